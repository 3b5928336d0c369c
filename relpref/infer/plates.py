"""Hyperparameters inside of plates.

Some are averaged over by members; of the others the scales of their priors are learned.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtri

from relpref.compiled import compiled
from relpref.data.arrays import Floats
from relpref.infer.assemble import Component
from relpref.infer.call import Site, Values, each_draw, survey
from relpref.infer.evidence import Evidence, on_host
from relpref.infer.gradient import Slopes, slopes_of_answers_at
from relpref.infer.importance import Points, effective, inverse_root
from relpref.infer.layout import Prior
from relpref.infer.members import Members, means, quantiles, strata
from relpref.infer.program import Program
from relpref.infer.search import Fitted
from relpref.infer.sites import Cavity, Sites, cavities_of_answers
from relpref.infer.template import numbers_of
from relpref.likelihoods.tilted import prior_quantile
from relpref.linalg.arrays import Array, ravel
from relpref.result import Result

_MOVES = (0.7, -1.1, 0.1)  # of unconstrained hyperparameters, after which numbers are compared
_EXACT = 1e-6  # change of a log probability, relative to the largest one, that is an effect
# Most searches with entries of plates; before each but the first their scale is estimated.
_TURNS = 6
_EVEN = 0.5  # share of the effective points that must remain when weights change
_SETTLED = 0.03  # by how much the logarithms of scales may still move
_LEAST_CURVATURE = 0.5
_STEP = 1e-3  # of unconstrained hyperparameters, in differences
_LOG_SCALES = np.linspace(-6.0, 3.0, 361)


def prepare_plates(program: Program, average: bool) -> Program:
    """Prepare the plates of a program for an engine.

    Hyperparameters in a plate, of which each row depends on one entry, are averaged over if the
    engine can ``average``. Otherwise a maximum would make their common scale 0 or infinite, so it
    is fixed at its prior's median until it is `learned`.
    """
    sites = survey(program.call)
    if not any(site.plated and not site.observed for site in sites.values()):
        return program
    depends = _dependence(program, sites)
    members = _members(program, sites, depends) if average else None
    averaged = set() if members is None else set(members.names)
    idle = {
        name: dependence.scales
        for name, dependence in depends.items()
        if not (dependence.likelihoods or dependence.others or dependence.scales & averaged)
    }
    if idle:
        program = _at_medians(program, idle)
        scales = [
            (site, name) for name, plates in idle.items() for site in plates if len(plates) == 1
        ]
        program = replace(
            program, scales=tuple(pair for pair in scales if _is_scale(program, sites, *pair))
        )
    if members is None:
        return program
    free = _without(program, members.names)
    return replace(free, layout=replace(free.layout, log_concave=False), members=members)


def _at_medians(program: Program, names: Any) -> Program:
    """The program with these hyperparameters fixed at the medians of their priors."""
    medians = program.constrained({name: program.medians[name][None] for name in names})
    return _without(program.at({name: medians[name][0] for name in names}), names)


def _without(program: Program, names: Any) -> Program:
    """The program without these hyperparameters."""
    left = tuple(
        (name, shape) for name, shape in program.layout.hyperparameters if name not in names
    )
    medians = {name: value for name, value in program.medians.items() if name not in names}
    return replace(
        program,
        layout=replace(program.layout, hyperparameters=left),
        medians=medians,
    )


class _Dependence(NamedTuple):
    """Kinds of distributions that depend on a hyperparameter."""

    likelihoods: bool
    others: bool  # predictors, and distributions of latents
    scales: frozenset[str]  # hyperparameters in plates by their priors
    quantiles: bool  # whether its prior has them
    # The entry that each row depends on, shape (m,); None where a row depends on several, or where
    # that is not known yet.
    row: Any = None


def _dependence(program: Program, sites: Mapping[str, Site]) -> dict[str, _Dependence]:
    """Dependence on each hyperparameter, by name: what changes where it moves."""
    names, depends = [name for name, _ in program.layout.hyperparameters], {}
    plated = [name for name in names if sites[name].plated]
    quantiles, first = _with_quantiles(program, plated), _numbers(program, plated, program.medians)
    rng = np.random.default_rng(0)
    for name in names:
        value, changed = program.medians[name], np.zeros(len(first), bool)
        for scale in _MOVES:
            moved = value + scale * rng.uniform(0.5, 1.0, np.shape(value))
            others = _numbers(program, plated, program.medians | {name: moved})
            changed |= [not all(map(_equal, *both)) for both in zip(first, others, strict=True)]
        likelihoods, rest, *priors = map(bool, changed)
        scales = frozenset(site for site, moves in zip(plated, priors, strict=True) if moves)
        row = None
        if name in plated and likelihoods and not rest and len(sites[name].shape) == 1:
            row = _row(program, name, *sites[name].shape)
        depends[name] = _Dependence(likelihoods, rest, scales, name in quantiles, row)
    return depends


def _equal(number: Any, other: Any) -> bool:
    """Whether two numbers of a program are the same; a graph is the same object."""
    return number is other or np.array_equal(number, other)


def _numbers(program: Program, plated: list[str], values: Values) -> list[list[Any]]:
    """Numbers of likelihoods, of all else but priors, and of the prior of each plated site."""
    filled = program.on_host(values)
    prior, parameters = filled.prior, filled.parameters
    if prior.observations and parameters.keys() >= set(plated):
        rest = prior.covariance, prior.location, prior.offset, prior.noise, prior.projection
        parts = prior.observations, rest, *(parameters[name] for name in plated)
        return [numbers_of(part)[0] for part in parts]
    return _numbers_by_jax(program, tuple(plated), values)


@compiled(static_argnums=1)
def _numbers_by_jax(
    program: Program, plated: tuple[str, ...], unconstrained: Values
) -> list[list[Array]]:
    """`_numbers` where NumPy does not have them."""
    layout = program.layout
    # Not at 0, where a predictor that is scaled does not change.
    vector = jnp.asarray(np.random.default_rng(0).standard_normal(layout.num_latents))
    traces = program.sites(vector, unconstrained)
    latents = [name for name, _ in (*layout.latents, *layout.integrated)]
    parts = [layout.observed, latents, *([name] for name in plated)]
    leaves = [
        [leaf for name in part for leaf in jax.tree.leaves(traces[name]["fn"])] for part in parts
    ]
    leaves[1].append(program.predictors(vector, unconstrained))
    return leaves


def _with_quantiles(program: Program, plated: list[str]) -> set[str]:
    """Hyperparameters in plates whose priors have quantiles."""
    forms, names = program.template.forms, set[str]()
    if all(name in forms and forms[name].quantile for name in plated):
        return set(plated)

    def record() -> None:
        traces = program.sites(jnp.zeros(program.layout.num_latents), program.medians)
        quantiles = {name: prior_quantile(traces[name]["fn"], 0.5) for name in plated}
        names.update(name for name, quantile in quantiles.items() if quantile is not None)

    jax.eval_shape(record)
    return names


def _members(
    program: Program, sites: Mapping[str, Site], depends: dict[str, _Dependence]
) -> Members | None:
    """Members of the plates that can be averaged over; None where there are none."""
    layout = program.layout
    if layout.quadrature or len(layout.observed) > 1 or layout.joint or layout.observation_only:
        return None
    # Noise of lists is scaled by their rater; that of groups is not.
    if any(sites[name].closed_form or sites[name].shares_noise for name in layout.observed):
        return None
    rows: dict[str, Any] = {}
    for name, shape in layout.hyperparameters:
        alone = depends[name].likelihoods and not depends[name].others and depends[name].quantiles
        row = depends[name].row if sites[name].plated and alone else None
        first = next(iter(rows), name)
        if (
            row is not None
            and sites[first].shape == shape
            and np.array_equal(rows.get(first, row), row)
        ):
            rows[name] = row
    if not rows:
        return None
    name = next(iter(rows))
    return Members.of(tuple(rows), sites[name].shape[0], rows[name], np.asarray(program.counts))


def _row(program: Program, name: str, number: int) -> Any:
    """The entry of a hyperparameter that each row depends on, shape (m,).

    None where a row depends on several. Half of the entries move at a time, and then the others: a
    row that depends on one entry changes with one half, which is a binary digit of the entry.
    """
    rng, value = np.random.default_rng(0), program.medians[name]
    place = (
        rng.normal(0.3, 1, program.layout.num_rows) - program.on_host(program.medians).prior.offset
    )
    step = rng.uniform(0.2, 0.5, number)

    def log_p(moves: Any) -> Floats:
        answers = on_host(program, program.medians | {name: value + step * moves})
        return np.asarray(answers.moments(place, np.ones_like(place)).log_normalizer)

    first, row = log_p(0.0), np.zeros(len(place), np.int64)
    for digit in range(number.bit_length()):
        half = np.arange(number) >> digit & 1
        changes = np.abs(np.stack([log_p(half), log_p(1 - half)]) - first)
        inside, outside = changes > _EXACT * np.max(changes, initial=0.0)
        if np.any(inside & outside):
            return None
        row += inside << digit
    return row


def _cavities(
    program: Program, unconstrained: Values, evidence: Evidence
) -> tuple[Prior, Cavity, Any]:
    """The program at hyperparameters, and `cavities_of_answers` under its sites there."""
    prior = program.on_host(unconstrained).prior
    sites, marginals = evidence.sites, evidence.marginals
    return prior, *cavities_of_answers(prior.counts, prior.power, sites, marginals)


class Averaged(NamedTuple):
    """A program whose members are averaged over, and how an engine evaluates it."""

    program: Program
    evaluate: Any  # of the engine, from a program, unconstrained hyperparameters and sites

    def probability(self, unconstrained: Values, evidence: Evidence) -> Floats:
        """Posterior of the members at the nodes, shape (K, number).

        See `relpref.infer.members.Known`.
        """
        prior, cavity, power = _cavities(self.program, unconstrained, evidence)
        given = cavity.mean + prior.offset, cavity.variance, power
        likelihood: Any
        for likelihood, value, _ in prior.observations:
            if hasattr(likelihood.each, "powered"):
                return np.asarray(likelihood.known(value, *given).probability)
        return np.asarray(_probability(self.program, unconstrained, *given))

    def given(
        self, unconstrained: Values, evidence: Evidence, at: Floats | None
    ) -> tuple[Values, Evidence, float]:
        """Values of the members, the evidence where they are given, and a log density.

        The values are quantiles of the posterior of each member at probabilities ``at``, shape
        (sites, number); without ``at``, the means of z. The density is that of their prior over
        that of the draws.
        """
        members = self.program.members
        assert members is not None
        probability = self.probability(unconstrained, evidence)
        standard, log_ratio = means(members, probability), 0.0
        if at is not None:
            standard, log_ratio = quantiles(members, probability, at)
        values = self.program.values_of_members(unconstrained, standard)
        values = {name: np.asarray(value) for name, value in values.items()}
        conditional = self.evaluate(self.program.at(values), unconstrained, evidence.sites)
        return values, conditional, log_ratio

    def at_points(
        self, points: Points, unravel: Any, rng: np.random.Generator
    ) -> tuple[Points, list[tuple[Component, Values]]]:
        """Weighted points with members drawn for each, and their components and hyperparameters.

        Members are drawn as evenly as the weights allow, each from its own posterior. That those
        of one problem depend on each other is in the weights, if these remain even enough. Results
        of the points are components, hyperparameters and evidences.
        """
        members = self.program.members
        assert members is not None
        shape = (len(points.results), len(members.names), members.number)
        places = strata(points.weights, shape[1] * shape[2], rng).reshape(shape)
        drawn, prior = [], points.prior_log_weights.copy()
        ratios = np.zeros(len(prior))  # logarithms of the weights that the dependence asks for
        for row, (component, values, evidence) in enumerate(points.results):
            unconstrained = unravel(points.vectors[row])
            drawn_members, conditional, log_ratio = self.given(unconstrained, evidence, places[row])
            if conditional.info.converged and np.isfinite(conditional.log_evidence):
                before = component.log_evidence
                component = Component.of(self.program.layout, conditional)
                ratios[row] = component.log_evidence + log_ratio - before
                prior[row] += before - component.log_evidence
            drawn.append((component, values | drawn_members))
        log_weights = points.prior_log_weights + [each.log_evidence for each, *_ in points.results]
        if effective(log_weights + ratios) > _EVEN * effective(log_weights):
            prior += ratios + logsumexp(log_weights) - logsumexp(log_weights + ratios)
        return points._replace(prior_log_weights=prior), drawn

    def at_draws(self, draws: Values, sites: Sites, rng: np.random.Generator) -> Values:
        """Members for draws of the other hyperparameters, unconstrained; shapes (k, ...)."""
        members = self.program.members
        assert members is not None
        each, shape = each_draw(draws), (len(members.names), members.number)
        places = strata(np.full(len(each), 1 / len(each)), shape[0] * shape[1], rng)
        rows = []
        for unconstrained, place in zip(each, places, strict=True):
            evidence = self.evaluate(self.program, unconstrained, sites)
            probability = self.probability(unconstrained, evidence)
            standard, _ = quantiles(members, probability, place.reshape(shape))
            rows.append(self.program.values_of_members(unconstrained, standard))
        return {
            name: np.stack([np.asarray(entry[name]) for entry in rows]) for name in members.names
        }


@compiled
def _probability(program: Program, unconstrained: Values, *given: Array) -> Array:
    likelihood: Any
    ((likelihood, value, _),) = program.read(unconstrained).observations
    probability: Array = likelihood.known(value, *given).probability
    return probability


def _is_scale(program: Program, sites: Mapping[str, Site], site: str, name: str) -> bool:
    """Whether ``name`` is the sd of all entries of the plated ``site``, unconstrained, around 0."""
    if sites[site].kind not in ("LogNormal", "Normal") or sites[name].shape:
        return False
    prior = program.on_host(program.medians).parameters[site]
    return bool(np.all(prior["loc"] == 0) & np.all(prior["scale"] == program.fixed[name]))


class Learned(NamedTuple):
    """Hyperparameters in plates at their maximum."""

    program: Program  # with the scales of their priors
    fitted: Fitted
    where: NDArray[np.int64]  # their entries, among the flattened unconstrained hyperparameters
    root: Floats  # of the covariance of these entries, shape (k, k)

    def vectors(self, points: Points, rng: np.random.Generator) -> Floats:
        """Flattened hyperparameters of weighted points, with entries drawn for each.

        They are drawn as evenly as the weights allow.
        """
        vectors = points.vectors.copy()
        vectors[:, self.where] += ndtri(strata(points.weights, len(self.where), rng)) @ self.root.T
        return vectors


def learned(
    program: Program, fit: Callable[..., Fitted], at_first: Mapping[str, Any] | None
) -> Learned:
    """Hyperparameters in plates at their maximum, with the scales of their priors.

    The search begins with typical entries. At a maximum x̂ the answers say h'x − ½ x'Jx of the
    entries x of a plate. With x ~ N(0, s²) their evidence is ½ h'(J + s⁻²)⁻¹h − ½ log det(1 + s²J)
    then. The median of s by this and its prior is the next one, and J + s⁻² scales the next search.
    ``fit`` takes a program, the hyperparameters to start at, and further arguments of
    `relpref.infer.search.fit_hyperparameters`.
    """
    names = [site for site, _ in program.scales]
    fitted = fit(_at_medians(program, names), at_first)
    evaluations = fitted.info["evaluations"]
    for turn in range(_TURNS):
        vector, unravel = ravel(program.medians | fitted.unconstrained)
        with np.errstate(all="ignore"):  # what is not finite is looked for below
            bent = _curvature(program, unravel(vector), fitted.evidence)
        numbers = unravel(np.arange(len(vector)))
        if not np.all(np.isfinite(bent)):  # such as where a noise has become 0
            fitted.info["result"] = Result.nonfinite.name
            nothing = np.zeros((0, 0))
            return Learned(
                program, fitted._replace(result=Result.nonfinite), np.zeros(0, np.int64), nothing
            )
        prior, values = np.ones_like(vector), dict[str, float]()
        for site, name in program.scales:
            where = numbers[site].astype(int)
            sd, x = float(program.fixed[name]), vector[where]
            information = bent[np.ix_(where, where)]
            if turn:  # at first entries are typical, and this holds at a maximum only
                sd = _scale(program, name, information, information @ x + x / sd**2)
            values[name], prior[where] = sd, sd**-2
        bent += np.diag(prior)
        moved = max(abs(np.log(value / program.fixed[name])) for name, value in values.items())
        if turn and moved < _SETTLED:
            break
        program = program.at(values)
        start, at_first = fitted.evidence.sites._asdict(), fitted.evidence.hyperparameters
        root = inverse_root(bent, _LEAST_CURVATURE)
        fitted = fit(program, at_first, start=start, root=root)
        evaluations += fitted.info["evaluations"]
    fitted.info["evaluations"] = evaluations
    where = np.concatenate([numbers[name].astype(int) for name in names])
    least = min(prior[where])
    return Learned(program, fitted, where, inverse_root(bent[np.ix_(where, where)], least))


def _curvature(program: Program, unconstrained: Values, evidence: Evidence) -> Floats:
    """Minus second derivatives of the log evidence in the hyperparameters, shape (p, p).

    The hyperparameters are flattened and unconstrained. The derivatives are those of Σ log Ẑ at
    fixed cavities, less the response of the latent vector, F'ΣF, F = A'∂β, with the derivatives ∂β
    of log Ẑ in the cavities' means and the hyperparameters. Changes of the latents' prior are left
    out. Differences of first derivatives give the second.
    """
    prior, cavity, power = _cavities(program, unconstrained, evidence)
    given = (power,) if program.layout.repeated else ()
    vector, unravel = ravel(unconstrained)

    counts, nothing = prior.counts / power, np.zeros_like(power)

    def slopes(vector: Floats) -> Floats:
        """Derivatives of Σ log Ẑ in the hyperparameters, then in the cavities' means."""
        _, moments, answers, gradient = on_host(program, unravel(vector))
        dual = counts * moments(*cavity, *given).gradient
        parts = answers(*cavity, counts, nothing, *given)
        here = gradient(slopes_of_answers_at(*cavity, nothing, dual, parts))
        return np.append(ravel(here)[0] - ravel(gradient(Slopes({})))[0], dual)

    steps = _STEP * np.eye(len(vector))
    rows = [slopes(vector + step) - slopes(vector - step) for step in steps]
    bent, moving = np.split(np.array(rows).T / (2 * _STEP), [len(vector)])
    bent = -0.5 * (bent + bent.T)
    if program.rows is None or evidence.covariance is None:
        return bent
    pulled = program.rows.back(moving)
    curvature: Floats = bent - pulled.T @ evidence.covariance @ pulled
    return curvature


def _scale(program: Program, name: str, curvature: Floats, slope: Floats) -> float:
    """Posterior median of a scale, given the answers' h'x − ½ x'Jx of the entries x.

    ``curvature`` is J, shape (n, n), and ``slope`` h, shape (n,).
    """
    # The program's prior of the scale, which is fixed in it.
    fixed = {site: value for site, value in program.fixed.items() if site != name}
    hyperparameters = *program.layout.hyperparameters, (name, ())
    layout = replace(program.layout, hyperparameters=hyperparameters)
    free = replace(program, fixed=fixed, layout=layout)
    log_prior: Any = free.on_host(program.medians).densities(name, _LOG_SCALES)
    scales = np.asarray(free.constrained({name: _LOG_SCALES})[name])
    values, vectors = np.linalg.eigh(curvature)
    values, squares = np.maximum(values, 0.0), np.square(vectors.T @ slope)
    grown = 1 + np.square(scales)[:, None] * values
    evidence = np.square(scales)[:, None] * squares / grown - np.log(grown)
    log_density = 0.5 * evidence.sum(axis=1) + log_prior
    below = np.cumsum(np.exp(log_density - log_density.max()))
    return float(
        np.exp(
            np.interp(0.5, (below - 0.5 * np.diff(below, prepend=0.0)) / below[-1], np.log(scales))
        )
    )
