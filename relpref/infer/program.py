"""Reads a numpyro program: its Gaussian latents, their projections, its observed sites and its hyperparameters.

Nothing here knows any particular program. A program is traced at given hyperparameters; its Gaussian sites hand over their
covariance operators, and the observed sites' predictors are linearised in the latent vector: that gives the projection A
as a map, with no design matrix. Whatever does not fit this shape is refused by name, before anything is computed.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpy.typing import NDArray
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer.reparam import Reparam

from relpref.data import Comparisons, PreferenceData
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.affine import NUTS, Followed, follow, reached, share
from relpref.infer.sites import Map, SparseRows
from relpref.kernels import GaussianProcess
from relpref.likelihoods import GaussianSite, Likelihood, as_likelihood, is_log_concave
from relpref.likelihoods.quadrature import ByQuadrature
from relpref.linalg import BlockDiagonal, Covariance, Dense, real, require_memory

_LEAST, _DOUBLING, _STEP = 16, 256, 256
# A reported 0 would have an infinite probit, and a strength of 0 is a tie, which may be impossible.
_NEUTRAL = {"probability": 0.5, "strength": 1}


def preference_data(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PreferenceData | None:
    """The preference data among a program's arguments."""
    found = [a for a in (*args, *kwargs.values()) if isinstance(a, PreferenceData)]
    return found[0] if found else None


def room_for(rows: int) -> int:
    """How many rows there are to be: a power of two, from 256 on a multiple of 256."""
    if rows > _DOUBLING:
        return -(-rows // _STEP) * _STEP
    return max(_LEAST, 1 << max(rows - 1, 0).bit_length())


def padded(data: PreferenceData) -> PreferenceData:
    """The data with rows of count 0, in which an entity is compared with itself."""
    return replace(data, comparisons=padded_answers(data.comparisons))


def padded_answers(answers: Comparisons) -> Comparisons:
    """The answers with rows of count 0, in which an entity is compared with itself."""
    more = room_for(len(answers.winner)) - len(answers.winner)
    columns: dict[str, Any] = {
        name: np.concatenate([column, np.full(more, _NEUTRAL.get(name, 0), column.dtype)])
        for name, column in answers.columns.items()
    }
    return replace(answers, **columns)


def with_padding(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a program with padded data."""
    return (
        tuple(padded(a) if isinstance(a, PreferenceData) else a for a in args),
        {name: padded(a) if isinstance(a, PreferenceData) else a for name, a in kwargs.items()},
    )


def left_out(counts: NDArray[np.float64], data: PreferenceData) -> bool:
    """Whether a program makes nothing of the rows that were added: it may look at more than the counts of its answers."""
    known = data.num_comparisons
    return (
        len(counts) == room_for(known)
        and np.array_equal(counts[:known], data.count)
        and not counts[known:].any()
    )


Site = dict[str, Any]
_SEEDS = 1, 2, 3
_WRAPPERS = dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution
# Of these families log p is concave in the predictor where a function of the named parameter is affine in it and the others do not
# depend on it.
_CONCAVE: dict[type, tuple[str, Callable[[Array], Array], tuple[str, ...]]] = {
    dist.BernoulliLogits: ("logits", jnp.asarray, ()),
    dist.BinomialLogits: ("logits", jnp.asarray, ("total_count",)),
    dist.Normal: ("loc", jnp.asarray, ("scale",)),
    dist.Logistic: ("loc", jnp.asarray, ("scale",)),
    dist.Laplace: ("loc", jnp.asarray, ("scale",)),
    dist.Poisson: ("rate", jnp.log, ()),
    dist.NegativeBinomial2: ("mean", jnp.log, ("concentration",)),
}


class Observation(NamedTuple):
    """One observed site: its likelihood, its value, and the number of answers each of its rows stands for."""

    likelihood: Likelihood
    value: Array
    counts: Array


class Doubt(NamedTuple):
    """How far a site is from being a function of one affine predictor for each answer; all relative, 0 is perfect.

    Attributes
    ----------
    several : Array
        By how much what the remainder takes from a row is not one number and multiples of it.
    wrong : Array
        Mismatch of the log density of the predictor and that of the program.
    across : Array
        By how much an answer depends on the predictors of others.
    bent : Array
        0 where the family is known to be log-concave.
    """

    several: Array
    wrong: Array
    across: Array
    bent: Array


def unwrap(distribution: dist.Distribution) -> dist.Distribution:
    """Take a distribution out of what plates, masks and ``to_event`` wrap around it."""
    while isinstance(distribution, _WRAPPERS):
        distribution = distribution.base_dist
    return distribution


def rows_of(site: Site) -> tuple[int, ...]:
    """Shape of the answers of an observed site of numbers."""
    return tuple(np.broadcast_shapes(jnp.shape(site["value"]), unwrap(site["fn"]).batch_shape))


def observation(site: Site) -> Observation:
    """One observed site whose distribution knows its tilted moments."""
    likelihood = as_likelihood(site["fn"])
    return _observation(site, likelihood)


def _observation(site: Site, likelihood: Likelihood) -> Observation:
    shape = jnp.shape(likelihood.predictor)
    return Observation(likelihood, jnp.broadcast_to(site["value"], shape), counts_of(site, shape))


def counts_of(site: Site, shape: tuple[int, ...]) -> Array:
    """How many answers each row of an observed site stands for, shape (m,)."""
    counts = 1.0 if site["scale"] is None else site["scale"]
    distribution = site["fn"]
    while isinstance(distribution, _WRAPPERS):
        if isinstance(distribution, dist.MaskedDistribution):  # what is masked was not answered
            counts = jnp.where(distribution._mask, counts, 0.0)
        distribution = distribution.base_dist
    return jnp.ravel(jnp.broadcast_to(jnp.asarray(counts, jnp.zeros(()).dtype), shape))


@dataclass(frozen=True)
class Observed:
    """The observed sites at given hyperparameters, as functions of the joint latent vector.

    Attributes
    ----------
    call : Call
    layout : Layout
        ``layout.quadrature`` names the sites whose predictors are to be found by following the trace.
    arrays : tuple
    values : dict
        Of the hyperparameters.
    key
        For what has no value.
    """

    call: "Call"
    layout: "Layout"
    arrays: tuple[Any, ...]
    values: Mapping[str, Any]
    key: Any = 0

    def sites(self, vector: Array) -> dict[str, Site]:
        """Every site of the program."""
        return self.call.trace(self.arrays, {**self.values, **self.layout.unravel(vector)}, self.key)

    def predictors(self, vector: Array) -> Array:
        """Of all rows, shape (m,)."""
        found, general = self.sites(vector), dict(self.layout.quadrature)
        return jnp.concatenate(
            [
                self._general(name, found[name]).predictor(vector)
                if name in general
                else jnp.ravel(as_likelihood(found[name]["fn"]).predictor)
                for name in self.layout.observed
            ]
        )

    def observations(self, vector: Array) -> tuple[Observation, ...]:
        """Likelihoods, values and counts, the predictors being those of a latent vector."""
        found, general = self.sites(vector), dict(self.layout.quadrature)
        return tuple(
            self._general(name, found[name]).observation(vector, general[name])
            if name in general
            else observation(found[name])
            for name in self.layout.observed
        )

    def doubts(self, vectors: Array) -> dict[str, Doubt]:
        """Of the sites whose predictors are followed, the worst over some latent vectors."""
        found = self.sites(vectors[0])
        return {name: self._general(name, found[name]).doubt(vectors) for name, _ in self.layout.quadrature}

    def direct_moments(self, vector: Array) -> list[Any]:
        """Tilted moments, at one cavity for all, of the sites that know theirs."""
        general, found = dict(self.layout.quadrature), self.sites(vector)
        results: list[Any] = []
        for name in self.layout.observed:
            if name not in general:
                likelihood, value, _ = observation(found[name])
                cavity = jnp.ones(jnp.shape(likelihood.predictor))
                results += jax.tree.leaves(likelihood.tilted(value, cavity, cavity))
        return results

    def _general(self, name: str, site: Site) -> "_General":
        return _General(self, name, site)


@dataclass(frozen=True)
class _General:
    """An observed site of any distribution."""

    observed: Observed
    name: str
    site: Site

    @property
    def _rows(self) -> tuple[int, ...]:
        return rows_of(self.site)

    def _parameters(self, vector: Array) -> list[Any]:
        return jax.tree.leaves(unwrap(self.observed.sites(vector)[self.name]["fn"]))

    def _followed(self, vector: Array) -> Followed:
        try:
            return follow(self._parameters, vector, self._rows)
        except UnsupportedProgramError as error:
            raise UnsupportedProgramError(f"observed site {self.name!r} {error}") from None

    def _shares(self, vector: Array) -> tuple[Array, Array, Array]:
        """Parts at the origin; which is the predictor, and what multiples of it the others are."""
        origin = jnp.zeros_like(vector)
        parts = self._followed(origin).parts
        return parts, *share(parts, self._followed(_random(vector, _SEEDS[0])).parts)

    def predictor(self, vector: Array) -> Array:
        """Shape (m,)."""
        parts = self._followed(vector).parts
        if parts.shape[1] == 1:
            return parts[:, 0]
        _, place, _ = self._shares(vector)
        return jnp.take_along_axis(parts, place, axis=1)[:, 0]

    def distribution(self, vector: Array) -> Callable[[Array], dist.Distribution]:
        """As a function of the predictors of all rows; the latent vector is one at which the program can be traced."""
        followed, structure = self._followed(vector), jax.tree.structure(unwrap(self.site["fn"]))
        shares = None if followed.parts.shape[1] == 1 else self._shares(vector)

        def at(z: Array) -> dist.Distribution:
            parts = jnp.reshape(z, (-1, 1))
            if shares is not None:
                origin, place, slope = shares
                parts = origin + slope * (parts - jnp.take_along_axis(origin, place, axis=1))
            found: dist.Distribution = jax.tree.unflatten(structure, followed.parameters(parts))
            return found

        return at

    def log_density(self, vector: Array) -> Callable[[Array, Array], Array]:
        """Of values, given predictors, in the shape of the rows."""
        at, rows = self.distribution(vector), self._rows
        return lambda value, z: jnp.broadcast_to(at(z).log_prob(value), rows)

    def observation(self, vector: Array, log_concave: bool) -> Observation:
        """With a likelihood by quadrature."""
        z = jnp.reshape(self.predictor(vector), self._rows)
        return _observation(self.site, ByQuadrature(z, self.log_density(vector), log_concave=log_concave))

    def doubt(self, vectors: Array) -> Doubt:
        """The largest over the latent vectors."""
        value = jnp.broadcast_to(self.site["value"], self._rows)
        at = self.log_density(vectors[0])
        try:
            at(value, jnp.zeros(self._rows))
        except (AttributeError, TypeError) as error:
            kind = type(unwrap(self.site["fn"])).__name__
            raise UnsupportedProgramError(
                f"observed site {self.name!r} ({kind}) cannot be rebuilt from its parameters ({error}); name them in the class's "
                f"arg_constraints or pytree_data_fields; {NUTS}"
            ) from None

        def one(vector: Array) -> tuple[Array, Array, Array]:
            z = jnp.reshape(self.predictor(vector), self._rows)
            parts = self._followed(vector).parts
            origin, place, slope = self._shares(vector)
            own = jnp.take_along_axis(parts - origin, place, axis=1)
            several = _relative(parts - origin - slope * own, parts)
            true = unwrap(self.observed.sites(vector)[self.name]["fn"]).log_prob(value)
            found = at(value, z)
            ways = [jnp.reshape(_random(jnp.ravel(z), seed), z.shape) for seed in _SEEDS[1:]]
            along = [jax.jvp(partial(at, value), (z,), (way,))[1] for way in (jnp.ones_like(z), *ways)]
            across = [_relative(d - along[0] * way, along[0]) for d, way in zip(along[1:], ways, strict=True)]
            return several, _relative(found - true, true), jnp.max(jnp.stack(across))

        several, wrong, across = (jnp.max(each) for each in jax.vmap(one)(vectors))
        return Doubt(several, wrong, across, self._bent(vectors[0]))

    def _bent(self, vector: Array) -> Array:
        """Whether log-concavity is not known, by the family and how its parameters depend on the predictor."""
        base = unwrap(self.site["fn"])
        if hasattr(base, "log_concave"):
            return jnp.asarray(0.0 if base.log_concave else 1.0)
        if type(base) not in _CONCAVE:
            return jnp.asarray(1.0)
        name, link, others = _CONCAVE[type(base)]
        at, z = self.distribution(vector), self.predictor(vector)
        steps = [at(z + step) for step in (-1.0, 0.0, 1.0)]
        low, middle, high = (link(jnp.asarray(getattr(one, name))) for one in steps)
        bend = _relative(low - 2 * middle + high, high - low)
        moved = [_relative(getattr(steps[2], other) - getattr(steps[0], other), 1.0) for other in others]
        return jnp.max(jnp.stack([bend, *moved]))


def _random(like: Array, seed: int) -> Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(like.shape), like.dtype)


def _relative(error: Any, size: Any) -> Array:
    """The largest error; infinities of equal sign are equal."""
    error = jnp.where(jnp.isnan(error), 0.0, jnp.abs(error))
    size = jnp.where(jnp.isfinite(size), jnp.abs(size), 0.0)
    return jnp.max(error / (1 + jnp.max(size, initial=0.0)), initial=0.0)


Values = dict[str, Any]
Program = Callable[..., None]
_ARRAYS = (np.ndarray, np.generic, jax.Array)
# Whoever runs a program holds it: numpyro's handlers are one stack for all threads.
running = threading.RLock()


@dataclass(frozen=True)
class Call:
    """A program and its arguments, split so that JAX compiles once for all arguments of equal shape.

    Attributes
    ----------
    program : callable
    structure : PyTreeDef
        Of ``(args, kwargs)``.
    kinds : tuple of type
        Of its nodes: JAX (0.10 to 0.12) holds the structures of two registered dataclasses for equal if their fields are.
    static : tuple
        The leaves that are not arrays, in place; None where an array belongs.
    """

    program: Program
    structure: Any
    kinds: tuple[type, ...]
    static: tuple[Any, ...]

    @classmethod
    def split(
        cls, program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple["Call", tuple[Any, ...]]:
        """Separate the arrays among the arguments from everything else."""
        nodes: list[Any] = []
        leaves, structure = jax.tree.flatten(
            (args, dict(kwargs)),
            is_leaf=lambda node: bool(nodes.append(node)),  # type: ignore[func-returns-value]
        )
        kinds = tuple(type(node) for node in nodes if not isinstance(node, _ARRAYS))
        dynamic = [isinstance(leaf, _ARRAYS) for leaf in leaves]
        static = tuple(None if moves else leaf for leaf, moves in zip(leaves, dynamic, strict=True))
        arrays = tuple(leaf for leaf, moves in zip(leaves, dynamic, strict=True) if moves)
        return cls(program, structure, kinds, static), arrays

    def arguments(self, arrays: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the program is called with: the arrays back in their places."""
        stream = iter(arrays)
        # PyTreeDef leaves are never None, so None marks an array's place.
        leaves = [next(stream) if leaf is None else leaf for leaf in self.static]
        args, kwargs = jax.tree.unflatten(self.structure, leaves)
        return args, kwargs

    def trace(self, arrays: tuple[Any, ...], values: Values, seed: Any = 0) -> dict[str, dict[str, Any]]:
        """Run the program with the given values of latent sites, others drawn from their priors; record every site."""
        args, kwargs = self.arguments(arrays)
        seeded = handlers.seed(self.program, rng_seed=seed)
        with running:
            traced = handlers.trace(handlers.substitute(seeded, data=values))
            sites: dict[str, dict[str, Any]] = traced.get_trace(*args, **kwargs)
        return sites


@dataclass(frozen=True)
class Layout:
    """Which sites of a program are what; static, so that JAX can compile for it.

    Attributes
    ----------
    latents : tuple of (name, shape)
        The Gaussian vectors, in the order in which they lie in the joint latent vector.
    hyperparameters : tuple of (name, shape)
        The sites to be found.
    observed : tuple of str
    quadrature : tuple of (name, bool)
        Those of them whose tilted moments are found by quadrature, and whether they are log-concave.
    num_rows : int
        Entries of all predictors together.
    constant_projection : bool
        Whether the projection does not depend on hyperparameters.
    log_concave : bool
        Whether all likelihoods are, so that no site precision is negative.
    precise : bool
        Whether sites may be so precise that only careful algebra holds: some likelihood is Gaussian in its predictor, see
        `relpref.likelihoods.GaussianSite`, or a row stands for more than 20 answers.
    repeated : bool
        Whether a row stands for more than 4 answers.
    """

    latents: tuple[tuple[str, tuple[int, ...]], ...]
    hyperparameters: tuple[tuple[str, tuple[int, ...]], ...]
    observed: tuple[str, ...]
    quadrature: tuple[tuple[str, bool], ...] = ()
    num_rows: int = 0
    constant_projection: bool = True
    log_concave: bool = True
    precise: bool = False
    repeated: bool = False

    @property
    def num_latents(self) -> int:
        """Length of the joint latent vector."""
        return sum(int(np.prod(shape)) for _, shape in self.latents)

    @property
    def slices(self) -> dict[str, slice]:
        """Where each Gaussian site lies in the joint latent vector."""
        result, start = {}, 0
        for name, shape in self.latents:
            stop = start + int(np.prod(shape))
            result[name] = slice(start, stop)
            start = stop
        return result

    def unravel(self, vector: Array) -> Values:
        """Cut the joint latent vector into its sites."""
        slices = self.slices
        return {name: jnp.reshape(vector[slices[name]], shape) for name, shape in self.latents}


class Reading(NamedTuple):
    """A program at given hyperparameters.

    Attributes
    ----------
    hyperparameters : dict
        On their supports; without the fixed ones.
    covariance : BlockDiagonal
        Prior covariance of the joint latent vector.
    location : Array, shape (n,)
        Its prior mean.
    offset : Array, shape (m,)
        The predictors at the prior mean.
    projection : Map
        The linear part of the predictors.
    observations : tuple of Observation
    log_prior : Array
        Log density of the hyperparameters in the unconstrained space.
    """

    hyperparameters: Values
    covariance: BlockDiagonal
    location: Array
    offset: Array
    projection: Map
    observations: tuple[Observation, ...]
    log_prior: Array


def in_double(array: Any) -> Any:
    """A floating-point array as float64; any other as it is."""
    return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array


def is_gaussian(distribution: dist.Distribution) -> bool:
    """Whether a latent site is one whose posterior an engine can find by Gaussian algebra."""
    return isinstance(unwrap(distribution), GaussianProcess | dist.Normal | dist.MultivariateNormal)


def gaussian_parts(distribution: dist.Distribution) -> tuple[Array, Covariance]:
    """Mean and covariance operator of a Gaussian site's values, laid out as one vector."""
    base, shape = unwrap(distribution), distribution.shape()
    size = int(np.prod(shape))
    if isinstance(base, GaussianProcess):
        return jnp.zeros(size), base.covariance
    if isinstance(base, dist.Normal):
        location, scale = (jnp.broadcast_to(real(x), shape).reshape(size) for x in (base.loc, base.scale))
        return location, Dense(jnp.diag(jnp.square(scale)))
    return jnp.broadcast_to(real(base.loc), shape).reshape(size), Dense(real(base.covariance_matrix))


def constrain(sites: Mapping[str, dict[str, Any]], unconstrained: Values) -> tuple[Values, Array]:
    """Map unconstrained hyperparameters to their supports, with their log prior density (Jacobian included)."""
    values, log_prior = {}, jnp.zeros(())
    for name, raw in unconstrained.items():
        distribution = sites[name]["fn"]
        transform = biject_to(distribution.support)
        value = transform(raw)
        values[name] = value
        jacobian = transform.log_abs_det_jacobian(raw, value)
        log_prior = log_prior + jnp.sum(distribution.log_prob(value)) + jnp.sum(jacobian)
    return values, log_prior


def read(
    call: Call, arrays: tuple[Any, ...], layout: Layout, unconstrained: Values, fixed: Values
) -> Reading:
    """Read a program at given hyperparameters; differentiable in them."""
    # Supports may depend on no other hyperparameter, densities may: first the values, then the densities at the values.
    placeholder = {name: jnp.zeros(shape) for name, shape in layout.latents}
    first = call.trace(arrays, {**fixed, **placeholder})
    hyperparameters, _ = constrain(first, unconstrained)
    values = {**fixed, **hyperparameters}
    sites = call.trace(arrays, {**values, **placeholder})
    _, log_prior = constrain(sites, unconstrained)

    parts = [gaussian_parts(sites[name]["fn"]) for name, _ in layout.latents]
    location = jnp.concatenate([mean for mean, _ in parts])

    observed = Observed(call, layout, arrays, values)
    offset, apply = jax.linearize(observed.predictors, location)
    transpose = jax.linear_transpose(apply, location)
    return Reading(
        hyperparameters=hyperparameters,
        covariance=BlockDiagonal(tuple(covariance for _, covariance in parts)),
        location=location,
        offset=offset,
        projection=Map(apply, lambda vector: transpose(vector)[0]),
        observations=observed.observations(jnp.zeros_like(location)),
        log_prior=log_prior,
    )


_TOLERANCE = 1e-7  # of the affinity check, relative to the predictors probed; the probes are float64

# Answers in a row: identical sites that may approximate badly, and that may be far more precise than the prior.
_MANY, _VERY_MANY = 4, 20

_WIDTH = 256  # columns of the projection that are looked at together

Shapes = tuple[
    Any, ...
]  # of jax.ShapeDtypeStruct: what can be said of a program before its arrays are looked at


@dataclass(frozen=True)
class _Site:
    """What a site is, without its values."""

    name: str
    kind: str
    shape: tuple[int, ...]
    observed: bool
    gaussian: bool
    process: bool
    support: Any
    problem: str | None
    knows_moments: bool
    rows: tuple[int, ...]
    log_concave: bool
    closed_form: bool
    plated: bool

    @classmethod
    def describe(cls, site: dict[str, Any]) -> "_Site":
        base = unwrap(site["fn"])
        problem, knows_moments, log_concave, closed_form = None, True, True, False
        rows: tuple[int, ...] = ()
        if site["is_observed"]:
            try:
                likelihood = as_likelihood(site["fn"])
                rows = tuple(jnp.shape(likelihood.predictor))
                log_concave, closed_form = is_log_concave(likelihood), isinstance(likelihood, GaussianSite)
            except UnsupportedProgramError:
                knows_moments = False
                if base.event_shape:
                    problem = f"its answers have the shape {base.event_shape}, and the engines take one number each; {NUTS}"
                else:
                    rows = rows_of(site)
        process = isinstance(base, GaussianProcess)
        shape = tuple(jnp.shape(site["value"]))
        gaussian = is_gaussian(site["fn"])
        return cls(
            site["name"],
            type(base).__name__,
            shape,
            site["is_observed"],
            gaussian,
            process,
            base.support,
            problem,
            knows_moments,
            rows,
            log_concave,
            closed_form,
            bool(site["cond_indep_stack"]),
        )


class Discovery(NamedTuple):
    """What a program is made of.

    Attributes
    ----------
    layout : Layout
    medians : dict from hyperparameter to Array
        Of their priors, unconstrained; a draw where the prior has no quantile function.
    rows : SparseRows or None
        The projection, where it is constant, has more rows than columns, and no predictor takes more than two latents.
    counts : array, shape (m,)
        How many answers each row stands for.
    """

    layout: Layout
    medians: Values
    rows: SparseRows | None
    counts: NDArray[np.float64]


def discover(call: Call, arrays: tuple[Any, ...], fixed: Values) -> Discovery:
    """Sort a program's sites.

    A Gaussian site is latent when the predictors are affine in it and nothing else depends on it; a scalar or vector with
    a ``Normal`` prior that is used in any other way is a hyperparameter.

    Raises
    ------
    UnsupportedProgramError
        Naming the site that no Gaussian engine can treat.
    DataError
        If ``fixed`` names a site that the program does not have.
    """
    sites = {site.name: site for site in survey(call, shapes_of(arrays))}
    observed = tuple(name for name, site in sites.items() if site.observed)
    free = [name for name, site in sites.items() if not site.observed]
    for name in fixed:
        if name not in free:
            known = ", ".join(free) or "none"
            raise DataError(f"fixed names the site {name!r}; the program's unobserved sites are {known}")
    if not observed:
        raise UnsupportedProgramError(
            "the program has no observed site, so there is nothing to infer from; "
            "pass data with answers (data.without_answers() removes them)"
        )
    for site in sites.values():
        if site.problem is not None:
            raise UnsupportedProgramError(f"observed site {site.name!r} ({site.kind}): {site.problem}")
        if not site.observed and site.support.is_discrete:
            raise _refuse(site, "is a discrete latent variable")

    def probe(names: list[str], general: tuple[str, ...]) -> _Probe:
        latents = tuple((name, sites[name].shape) for name in names)
        layout = Layout(latents, (), observed, tuple((name, False) for name in general))
        return _Probe(call, layout, arrays, fixed, {name: sites[name] for name in observed})

    def attempt(general: tuple[str, ...]) -> _Probe:
        # All at once: one compilation, and for most programs the answer.
        found = probe(candidates, general)
        if found.problem is not None:
            processes = [name for name in candidates if sites[name].process]
            latents = [n for n in candidates if n in processes or probe([n], general).problem is None]
            for names in (latents, processes):
                if found.problem is not None and names:
                    found = probe(names, general)
        return found

    candidates = [name for name in free if name not in fixed and sites[name].gaussian]
    found = None
    if candidates:
        unknown = tuple(name for name in observed if not sites[name].knows_moments)
        found = attempt(unknown)
        for several in (tuple(name for name in observed if not sites[name].closed_form), observed):
            if found.problem is not None and several != unknown:
                found = attempt(several)
    if found is None:
        raise UnsupportedProgramError(
            "no observed site of the program depends on a Gaussian one "
            f"(unobserved sites: {', '.join(free) or 'none'}); {NUTS}"
        )
    if found.problem is not None:
        raise UnsupportedProgramError(f"{found.problem}; {NUTS}")
    latents = [name for name, _ in found.layout.latents]
    general = dict(found.layout.quadrature)
    hyperparameters = tuple((n, sites[n].shape) for n in free if n not in latents and n not in fixed)
    most = float(np.max(found.counts, initial=0.0))
    layout = replace(
        found.layout,
        hyperparameters=hyperparameters,
        num_rows=found.num_rows,
        constant_projection=found.constant_projection,
        log_concave=all(general.get(name, sites[name].log_concave) for name in observed),
        precise=most > _VERY_MANY
        or any(site.closed_form and name not in general for name, site in sites.items()),
        repeated=most > _MANY,
    )
    rows = None
    more_rows = layout.num_rows > layout.num_latents
    if layout.constant_projection and (more_rows or layout.precise):  # what entity space is for
        rows = _sparse_rows(call, layout, arrays, fixed)
    medians = {name: found.medians[name] for name, _ in hyperparameters}
    return Discovery(layout, medians, rows, found.counts)


def sampled_layout(call: Call, arrays: tuple[Any, ...]) -> Layout:
    """As of `discover`, of a program that only a sampler can run: its Gaussian vectors are those that say so."""
    sites = survey(call, shapes_of(arrays))
    free = [site for site in sites if not site.observed and not site.support.is_discrete]
    latents = [site for site in free if site.process or site.kind == "MultivariateNormal"]
    if not latents:
        raise UnsupportedProgramError(
            "the program has no site of a GaussianProcess or MultivariateNormal distribution, of which a posterior could be made"
        )
    return Layout(
        tuple((site.name, site.shape) for site in latents),
        tuple((site.name, site.shape) for site in free if site not in latents),
        tuple(site.name for site in sites if site.observed),
    )


def broadcast_fixed(call: Call, arrays: tuple[Any, ...], fixed: Values) -> Values:
    """Give every fixed value its site's shape; names that are no site are left for `discover` to refuse.

    Raises
    ------
    DataError
        If a value is not finite, its shape does not fit, or it lies outside its support.
    """
    sites = {site.name: site for site in survey(call, shapes_of(arrays))}
    result = {}
    for name, value in fixed.items():
        try:
            array = np.asarray(value, dtype=np.float64)
        except (OverflowError, TypeError, ValueError):
            raise DataError(
                f"fixed[{name!r}] is {value!r}; it must be a number or an array of them"
            ) from None
        if not np.all(np.isfinite(array)):
            raise DataError(f"fixed[{name!r}] is {value!r}; it must be finite")
        if name in sites:
            site = sites[name]
            try:
                array = np.broadcast_to(array, site.shape)
            except ValueError:
                raise DataError(
                    f"fixed[{name!r}] has shape {array.shape}; the site has shape {site.shape}"
                ) from None
            # The edge of an open support is let through: an amplitude of 0 switches a part off.
            if not np.all(site.support(array) | site.support(np.nextafter(array, np.inf))):
                raise DataError(f"fixed[{name!r}] is {value!r}, outside the site's support, {site.support}")
        result[name] = array
    return result


def shapes_of(arrays: tuple[Any, ...]) -> Shapes:
    """What can be said of arrays without looking into them."""
    return tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays)


@lru_cache(maxsize=64)
def survey(call: Call, shapes: Shapes) -> tuple[_Site, ...]:
    """The program's sample sites, traced for shapes and types alone."""
    sites: list[_Site] = []

    def record(arrays: Shapes) -> None:
        sites.extend(_Site.describe(s) for s in call.trace(arrays, {}).values() if s["type"] == "sample")

    jax.eval_shape(record, shapes)
    return tuple(sites)


class _Probe:
    """Tries the predictors at a few random latent vectors and two draws of the hyperparameters.

    Attributes
    ----------
    problem : str or None
        Why no engine can go on with these latents and these likelihoods.
    """

    def __init__(
        self,
        call: Call,
        layout: Layout,
        arrays: tuple[Any, ...],
        fixed: Values,
        sites: Mapping[str, _Site],
    ) -> None:
        self.layout = layout
        self.problem: str | None = None
        generator = np.random.default_rng(0)
        x, z = generator.standard_normal((2, layout.num_latents))
        y = -x * generator.uniform(
            0.3, 3.0, layout.num_latents
        )  # of the other sign, so that |x| and max(x, 0) show
        points = np.stack([np.zeros_like(x), x, y, x + y, z, x + z])
        try:
            first, self.medians, counts, doubts = _probe(call, layout, arrays, fixed, points, _key_words(0))
            second, _, _, _ = _probe(call, layout, arrays, fixed, points, _key_words(1))
            moves = _others_depend(call, layout, shapes_of(arrays), tuple(sorted(fixed)))
        except UnsupportedProgramError as error:
            self.problem = str(error)
            return
        first, second = np.asarray(first), np.asarray(second)
        self.counts = np.asarray(counts)
        self.num_rows = first.shape[1]
        slack = _TOLERANCE * (1 + np.abs(first).max(initial=0.0))
        errors = (first[3] - first[1] - first[2] + first[0], first[5] - first[1] - first[4] + first[0])
        names = " and ".join(repr(name) for name, _ in layout.latents)
        latent = f"the latent site {names}" if len(layout.latents) == 1 else f"the latent sites {names}"
        if not all(bool(np.all(np.abs(error) <= slack)) for error in errors):
            self.problem = f"{latent}: the observed predictors do not depend on it linearly"
        elif moves:
            self.problem = f"{latent}: other sites depend on it, or a likelihood does but by its predictor"
        for name, doubt in doubts.items():
            problem = _doubted(doubt, latent)
            if problem:
                self.problem = f"observed site {name!r} ({sites[name].kind}) {problem}"
        self.layout = replace(
            layout, quadrature=tuple((n, bool(d.bent <= _TOLERANCE)) for n, d in doubts.items())
        )
        self.constant_projection = bool(
            np.allclose(second[1] - second[0], first[1] - first[0], rtol=1e-9, atol=slack)
        )


def _doubted(doubt: Doubt, latent: str) -> str | None:
    """Why an observed site is no function of one predictor for each answer."""
    if doubt.several > _TOLERANCE:
        return f"depends on more than one linear combination of {latent} for an answer"
    if doubt.across > _TOLERANCE or doubt.wrong > _TOLERANCE:
        return f"has answers that each depend on {latent} in more than one place, or that depend on each other's predictors"
    return None


@lru_cache(maxsize=2)
def _key_words(seed: int) -> Any:
    return np.asarray(jax.random.key_data(jax.random.key(seed)))


@partial(jax.jit, static_argnums=(0, 1))
def _probe(
    call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, points: Array, key_words: Array
) -> tuple[Array, Values, Array, dict[str, Doubt]]:
    """Predictors at each latent vector, the medians of the hyperparameters' priors, the count of each row, and what is doubtful."""
    key = jax.random.wrap_key_data(key_words)
    observed = Observed(call, layout, arrays, fixed, key)
    sites = observed.sites(points[0])
    latents = dict(layout.latents)
    free = [
        s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"] and n not in latents
    ]
    medians = {site["name"]: median(site) for site in free if site["name"] not in fixed}
    counts = [one.counts for one in observed.observations(points[0])]
    return (
        jax.vmap(observed.predictors)(points),
        medians,
        jnp.concatenate(counts),
        observed.doubts(points[1:3]),
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _columns(
    call: Call, layout: Layout, width: int, arrays: tuple[Any, ...], fixed: Values, start: Array
) -> Array:
    """What each of some latents adds to the predictors, shape (width, m)."""
    predictors = Observed(call, layout, arrays, fixed).predictors
    units = jax.nn.one_hot(start + jnp.arange(width), layout.num_latents)
    return jax.vmap(predictors)(units) - predictors(jnp.zeros(layout.num_latents))


def _sparse_rows(call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values) -> SparseRows | None:
    """The projection's entries, some columns at a time, if no row has more than two."""
    size, width = layout.num_latents, min(layout.num_latents, _WIDTH)
    entries = np.zeros(layout.num_rows, dtype=int)
    rows, columns, values = [], [], []
    for start in range(0, size, width):
        block = np.asarray(_columns(call, layout, width, arrays, fixed, start))[: size - start]
        column, row = np.nonzero(block)
        entries += np.bincount(row, minlength=layout.num_rows)
        if entries.max(initial=0) > 2:
            return None
        rows.append(row)
        columns.append(column + start)
        values.append(block[column, row])
    row, column, value = (np.concatenate(part) for part in (rows, columns, values))
    return SparseRows.of(row, column, value, (layout.num_rows, size))


def unconstrained_values(
    call: Call, arrays: tuple[Any, ...], values: Mapping[str, Any], like: Values
) -> Values:
    """Values of hyperparameters on their supports, of those in ``like`` and in their shapes, in the unconstrained space."""
    supports = {site.name: site.support for site in survey(call, shapes_of(arrays))}
    return {
        name: biject_to(supports[name]).inv(jnp.broadcast_to(jnp.asarray(values[name]), array.shape))
        for name, array in like.items()
        if name in values
    }


def median(site: dict[str, Any]) -> Array:
    """Of a site's prior, unconstrained; its value where the prior has no quantile function."""
    distribution, value = site["fn"], site["value"]
    try:
        middle = jnp.broadcast_to(unwrap(distribution).icdf(jnp.asarray(0.5)), jnp.shape(value))
    except (NotImplementedError, ImportError):
        middle = value
    return biject_to(distribution.support).inv(middle)


@lru_cache(maxsize=64)
def _others_depend(call: Call, layout: Layout, shapes: Shapes, fixed: tuple[str, ...]) -> bool:
    """Whether any site's distribution, predictors apart, is computed from the latents."""

    def others(vector: Array, arrays: Shapes) -> list[Any]:
        # The fixed sites' values do not matter here, only that they are not latent.
        observed = Observed(call, layout, arrays, {})
        found = observed.direct_moments(vector)
        for site in observed.sites(vector).values():
            if site["type"] == "sample" and site["name"] not in layout.observed:
                found += [leaf for leaf in jax.tree.leaves(unwrap(site["fn"])) if isinstance(leaf, jax.Array)]
        return found

    vector = jax.ShapeDtypeStruct((layout.num_latents,), jnp.zeros(()).dtype)
    jaxpr = jax.make_jaxpr(others)(vector, shapes).jaxpr
    return any(reached(jaxpr, [True] + [False] * (len(jaxpr.invars) - 1)))


def _refuse(site: _Site, why: str) -> UnsupportedProgramError:
    return UnsupportedProgramError(f"site {site.name!r} ({site.kind}) {why}; {NUTS}")


MATRICES = 4  # of the size of a prior covariance that are needed at once


class Prepared(NamedTuple):
    """A program that has been looked at.

    Attributes
    ----------
    call : Call
    arrays : tuple
    fixed : dict
        In the shapes of their sites.
    discovery : Discovery
    answered : int
        How many of its rows, from the first on, are answers; all where none were added.
    """

    call: Call
    arrays: tuple[Any, ...]
    fixed: Values
    discovery: Discovery
    answered: int


def prepare(
    program: Program,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    fixed: Mapping[str, Any],
    padding: bool,
) -> Prepared:
    """Find out what a program is, with rows added where that is wanted and possible; errors as of `discover`.

    Raises
    ------
    DataError
        If the prior covariance would not fit into memory.
    """

    def prepared(args: tuple[Any, ...], kwargs: Mapping[str, Any], answered: int | None) -> Prepared:
        call, arrays = _split(program, args, kwargs)
        given = broadcast_fixed(call, arrays, dict(fixed))
        found = discover(call, arrays, given)
        size = found.layout.num_latents
        require_memory(MATRICES * 8.0 * size**2, f"the prior covariance of {size} values")
        return Prepared(call, arrays, given, found, found.layout.num_rows if answered is None else answered)

    data = preference_data(args, kwargs)
    if padding and data is not None:
        found = prepared(*with_padding(args, kwargs), data.num_comparisons)
        if left_out(found.discovery.counts, data):
            return found
    return prepared(args, kwargs, None)


def _split(
    program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Call, tuple[Any, ...]]:
    call, arrays = Call.split(program, args, kwargs)
    return call, tuple(in_double(array) for array in arrays)


def prior_draws(
    call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, key: Any, number: int
) -> list[Values]:
    """Draws of the unconstrained hyperparameters from their prior."""
    if not number:
        return []
    draws = _draw(call, layout, arrays, fixed, jax.random.split(key, number))
    return [{name: value[row] for name, value in draws.items()} for row in range(number)]


@partial(jax.jit, static_argnums=(0, 1))
def constrained(call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, draws: Values) -> Values:
    """Hyperparameters on their supports, draw by draw."""
    return jax.vmap(lambda values: read(call, arrays, layout, values, fixed).hyperparameters)(draws)


@partial(jax.jit, static_argnums=(0, 1))
def _draw(call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, keys: Array) -> Values:
    def draw(key: Array) -> Values:
        sites = call.trace(arrays, fixed, key)
        names = [name for name, _ in layout.hyperparameters]
        return {name: biject_to(sites[name]["fn"].support).inv(sites[name]["value"]) for name in names}

    return jax.vmap(draw)(keys)


BASE = "_base"  # the whitened site is called <site>_base


class Whitened(Reparam):
    """u = L z with z standard normal and L the root of u's covariance."""

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[None, Any]:
        if obs is not None:
            raise ValueError(f"site {name!r} is observed; only latent Gaussian vectors are whitened")
        if isinstance(fn, GaussianProcess):
            root = fn.covariance.root().lower
            base = numpyro.sample(name + BASE, dist.Normal(0.0, 1.0).expand([root.shape[1]]).to_event(1))
            return None, root @ base
        shape, normal = fn.shape(), unwrap(fn)
        base = numpyro.sample(name + BASE, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))
        return None, normal.loc + normal.scale * base


def noncentered(program: Program) -> Callable[..., Any]:
    """Return the program with every `GaussianProcess` and every vector or matrix of normals whitened, for NUTS and SVI.

    Utilities and the hyperparameters of their covariance are strongly coupled in the posterior; whitened, they hardly are,
    and NUTS takes far fewer steps. Run it inside ``jax.enable_x64(True)``: a float32 Cholesky factor of a smooth kernel needs
    a jitter that is visible in the results from some 200 entities on.

    Parameters
    ----------
    program : callable

    Returns
    -------
    callable
        With sites ``<site>_base`` and, as a deterministic site, ``<site>``.
    """

    def whiten(site: dict[str, Any]) -> Whitened | None:
        if site["type"] != "sample" or site["is_observed"] or site["name"].endswith(BASE):
            return None
        fn = site["fn"]
        normals = fn.event_dim > 0 and isinstance(unwrap(fn), dist.Normal)
        return Whitened() if normals or isinstance(fn, GaussianProcess) else None

    return handlers.reparam(program, config=whiten)
