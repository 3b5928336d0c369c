"""Programs of numpyro, read as Gaussian latents, projections, answers and hyperparameters.

A `Program` is a call that was traced once. At given hyperparameters it is *read*: its Gaussian
sites give their covariances, and the predictors of its observed sites are linearized in the latent
vector, which gives the projection A as a map, without a design matrix. Sites that do not fit are
refused by name, before anything is computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from numpyro.distributions.transforms import biject_to

from relpref.errors import UnsupportedProgramError
from relpref.infer.affine import NUTS, AnySite, Doubt
from relpref.infer.arrow import Arrow, Kind
from relpref.infer.call import Call, Model, Site, Values, broadcast_fixed, survey
from relpref.infer.gaussians import gaussian_parts
from relpref.infer.jaxprs import reached
from relpref.infer.latents import Run, run
from relpref.infer.layout import (
    Layout,
    Observation,
    Reading,
    require_memory_for,
    shared_noise,
)
from relpref.infer.medians import median, medians_by_jax
from relpref.infer.members import Floats, Members, OfMembers
from relpref.infer.rows import SparseRows
from relpref.infer.spaces import Map
from relpref.infer.template import Filled, Template, log_prior
from relpref.lazy_jit import lazy_jit
from relpref.likelihoods import as_likelihood
from relpref.likelihoods.tilted import INTEGRATED, unwrap
from relpref.linalg import BlockDiagonal
from relpref.pytree import Untraced

# Tolerance of the affinity check, relative to the predictors probed; the probes are float64.
_TOLERANCE = 1e-7
_SHARED = 40  # largest number of values of small sites
_MANY = 20  # answers in a row, above which its site may be far more precise than the prior


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Program:
    """A numpyro program and its arguments: the reader of programs for all engines."""

    call: Call = field(metadata={"static": True})
    layout: Layout = field(metadata={"static": True})
    arrays: tuple[Any, ...]  # the arrays among the arguments
    fixed: Values  # fixed hyperparameters, in the shapes of their sites
    # Unconstrained prior medians of the hyperparameters; means where a prior has no quantile
    # function.
    medians: Values = field(default_factory=dict)
    # The projection, if it is constant and no predictor depends on more than two latents besides
    # those of small sites.
    rows: SparseRows | None = None
    counts: Any = ()  # number of answers of each row, shape (m,)
    arrow: Arrow | None = None  # if rows share noise
    # Members over which likelihoods are averaged: some hyperparameters have an entry for each.
    members: Members | None = None
    # Hyperparameters in plates that are at their maximum, and the site of the scale of each, see
    # `relpref.infer.plates.learned`.
    scales: tuple[tuple[str, str], ...] = field(default=(), metadata={"static": True})
    # Templates by layout and names of fixed hyperparameters.
    kept: Untraced = field(default_factory=lambda: Untraced({}), metadata={"static": True})

    @classmethod
    def of(
        cls,
        model: Model,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        *,
        dense: bool = True,
    ) -> "Program":
        """Trace a program and sort its sites; inside ``enable_x64``.

        A Gaussian site is latent when the predictors are affine in it and nothing else depends on
        it; a scalar or vector with a ``Normal`` prior that is used in any other way is a
        hyperparameter.

        Parameters
        ----------
        model : callable
        args, kwargs
            Arguments of the program.
        fixed : mapping from site to value, optional
        dense : bool
            Whether the covariance will be a matrix in memory, which is then checked.

        Raises
        ------
        UnsupportedProgramError
            Naming the site that no Gaussian engine can treat.
        DataError
            If ``fixed`` does not fit the program's sites, or the prior covariance would not fit
            into memory.
        """
        call, arrays = Call.split(model, args, kwargs or {})
        program = discover(call, arrays, broadcast_fixed(call, dict(fixed)) if fixed else {})
        if dense:
            require_memory_for(program.layout.num_latents)
        return program

    @property
    def template(self) -> Template:
        """The origins of its numbers, which are the same at other values of hyperparameters."""
        key, kept = (self.layout, frozenset(self.fixed)), self.kept.content
        arrays, members, template = kept.get(key, (None, None, None))
        if arrays is not self.arrays or members is not self.members:
            template = Template.of(self)
            kept[key] = self.arrays, self.members, template
        assert template is not None
        return template

    def on_host(self, unconstrained: Values | None = None) -> Filled:
        """The program at unconstrained hyperparameters, on arrays of NumPy."""
        return self.template.at(unconstrained or {}, self.fixed)

    @classmethod
    def for_samples(
        cls, model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> "Program":
        """Trace a program, see `of`, that may be one that only a sampler can run.

        Its latents are then the sites with a distribution of Gaussian vectors.
        """
        try:
            return cls.of(model, args, kwargs, dense=False)
        except UnsupportedProgramError:
            call, arrays = Call.split(model, args, kwargs)
            sites = survey(call)
        free = [s for s in sites if not (s.observed or s.integrated or s.support.is_discrete)]
        latents = [site for site in free if site.gaussian and site.support.event_dim]
        if not latents:
            raise UnsupportedProgramError(
                "the program has no site of a Gaussian vector, of which a posterior could be made"
            )
        layout = Layout(
            tuple((site.name, site.shape) for site in latents),
            tuple((site.name, site.shape) for site in free if site not in latents),
            tuple(site.name for site in sites if site.observed),
        )
        return cls(call, layout, arrays, {})

    def at(self, values: Mapping[str, Any]) -> "Program":
        """The program with some hyperparameters fixed at values on their supports."""
        members = self.members
        if members is not None and set(members.names) <= values.keys():
            members = None
        return replace(self, fixed={**self.fixed, **values}, members=members)

    def at_a_point(self) -> "Program":
        """The program for an engine that expands joint likelihoods of several rows at a point."""
        if self.layout.integrated:
            raise UnsupportedProgramError(
                "some answers are lists in groups that share effects, which Laplace has not; fit "
                "with EP, or leave the column 'group' out"
            )
        if self.rows is None:
            raise UnsupportedProgramError(
                "some answers are lists, and look at more than two latents each or at what "
                "hyperparameters change; Laplace has no lists of that kind: fit with EP"
            )
        return replace(self, layout=replace(self.layout, joint=True))

    def sites(
        self, vector: Array, unconstrained: Values | None = None, standard: Values | None = None
    ) -> dict[str, Values]:
        """Every sample site at a latent vector.

        Hyperparameters without a value are drawn from their priors; those of members are at the
        medians of their priors, or at the quantiles of ``standard``.
        """
        if self.members is not None:
            standard = dict.fromkeys(self.members.names, 0.0) | (standard or {})
        # While JAX traces, it caches the run, unless distributions hold values that cannot leave a
        # compiled function or the program closes over its data.
        run = _run_once if self.layout.portable and isinstance(vector, jax.core.Tracer) else _run
        values = (unconstrained or {}, standard or {})
        sites = run(self.call, self.layout.latents, self.arrays, self.fixed, vector, *values)
        return {name: dict(zip(_KEPT, kept, strict=True)) for name, kept in sites.items()}

    def _any_site(self, name: str, site: Values, unconstrained: Values | None) -> AnySite:
        return AnySite(
            name, site, lambda vector: unwrap(self.sites(vector, unconstrained)[name]["fn"])
        )

    def predictors(self, vector: Array, unconstrained: Values | None = None) -> Array:
        """Predictors of all rows, shape (m,)."""
        sites, general, parts = self.sites(vector, unconstrained), dict(self.layout.quadrature), []
        for name in self.layout.observed:
            if name in general:
                parts.append(self._any_site(name, sites[name], unconstrained).predictor(vector))
            else:
                parts.append(jnp.ravel(as_likelihood(sites[name]["fn"]).predictor))
        return jnp.concatenate(parts)

    def observations(
        self,
        sites: Mapping[str, Values],
        vector: Array,
        unconstrained: Values | None = None,
    ) -> tuple[Observation, ...]:
        """Likelihoods, values and counts of the observed sites, traced at a latent vector."""
        if self.members is not None:
            return self._of_members(sites, vector, unconstrained, self.members)
        likelihoods: dict[str, Any] = dict.fromkeys(self.layout.observed)
        for name, concave in self.layout.quadrature:
            site = self._any_site(name, sites[name], unconstrained)
            likelihoods[name] = site.likelihood(vector, concave)
        return tuple(Observation.of(sites[name], term) for name, term in likelihoods.items())

    def _of_members(
        self,
        sites: Mapping[str, Values],
        vector: Array,
        unconstrained: Values | None,
        members: Members,
    ) -> tuple[Observation, ...]:
        (name,) = self.layout.observed
        nodes, _ = members.nodes

        def at(node: Array) -> Any:
            standard = dict(zip(members.names, node, strict=True))
            each: Any = as_likelihood(self.sites(vector, unconstrained, standard)[name]["fn"])
            return each.rows(...) if hasattr(each, "rows") else each

        each = jax.vmap(at)(jnp.asarray(nodes))
        plain = Observation.of(sites[name])
        return (plain._replace(likelihood=OfMembers(each, members, plain.counts)),)

    def values_of_members(self, unconstrained: Values, standard: Floats) -> Values:
        """Values of the members' sites on their supports, at quantiles of shape (sites, number)."""
        assert self.members is not None
        on_host = self.on_host(unconstrained).quantiles(self.members, standard)
        if on_host is not None:
            return on_host
        values: Values = _values_of_members(self, unconstrained, standard)
        return values

    def read(self, unconstrained: Values | None = None, *, in_memory: bool = True) -> Reading:
        """The program at given unconstrained hyperparameters, differentiable in them.

        Without ``in_memory`` covariances stay operators, which are evaluated on request.
        """
        unconstrained = unconstrained or {}
        origin = jnp.zeros(self.layout.num_latents)
        sites = self.sites(origin, unconstrained)
        means, covariances = zip(
            *(gaussian_parts(sites[name]["fn"]) for name, _ in self.layout.latents), strict=True
        )
        if in_memory:
            covariances = tuple(covariance.in_memory() for covariance in covariances)
        location = jnp.concatenate(means)
        offset, apply = jax.linearize(
            partial(self.predictors, unconstrained=unconstrained), location
        )
        transpose = jax.linear_transpose(apply, location)
        observations = self.observations(sites, origin, unconstrained)
        noise = [kind.sd for kind in shared_noise([each.likelihood for each in observations])]
        scales = (unwrap(sites[name]["fn"]).scale for name, _ in self.layout.integrated)
        noise += [jnp.broadcast_to(scale, offset.shape) for scale in scales]
        return Reading(
            hyperparameters={name: sites[name]["value"] for name in unconstrained},
            covariance=BlockDiagonal(covariances),
            location=location,
            offset=offset,
            projection=Map(apply, lambda vector: transpose(vector)[0]),
            observations=observations,
            log_prior=log_prior(sites, unconstrained),
            noise=tuple(noise),
        )

    def prior_draws(self, key: Any, number: int) -> list[Values]:
        """Draws of the unconstrained hyperparameters from their prior."""
        draws = _draw(self, jax.random.split(key, number))
        return [{name: value[row] for name, value in draws.items()} for row in range(number)]

    def constrained(self, draws: Values) -> Values:
        """Unconstrained hyperparameters on their supports, draw by draw."""
        values: Values = _constrain(self, draws)
        return values

    def unconstrained(self, values: Mapping[str, Any]) -> Values:
        """Unconstrained values, in the shapes of their sites, of hyperparameters on supports."""
        supports = {site.name: site.support for site in survey(self.call)}
        return {
            name: biject_to(supports[name]).inv(
                jnp.broadcast_to(jnp.asarray(values[name]), array.shape)
            )
            for name, array in self.medians.items()
            if name in values
        }


@lazy_jit
def _constrain(program: Program, draws: Values) -> Values:
    def constrain(raw: Values) -> Values:
        sites = program.sites(jnp.zeros(program.layout.num_latents), raw)
        return {name: sites[name]["value"] for name in raw}

    return jax.vmap(constrain)(draws)


@lazy_jit
def _values_of_members(program: Program, unconstrained: Values, standard: Array) -> Values:
    assert program.members is not None
    names = program.members.names
    placed = dict(zip(names, standard, strict=True))
    sites = program.sites(jnp.zeros(program.layout.num_latents), unconstrained, placed)
    return {name: sites[name]["value"] for name in names}


@lazy_jit
def _draw(program: Program, keys: Array) -> Values:
    def draw(key: Array) -> Values:
        sites = program.call.trace(program.arrays, program.fixed, key)
        names = [name for name, _ in program.layout.hyperparameters]
        return {
            name: biject_to(sites[name]["fn"].support).inv(sites[name]["value"]) for name in names
        }

    return jax.vmap(draw)(keys)


_KEPT = ("fn", "value", "scale")  # of a site


def _run(
    call: Call,
    latents: tuple[tuple[str, tuple[int, ...]], ...],
    arrays: tuple[Any, ...],
    values: Values,
    vector: Array,
    unconstrained: Values,
    standard: Values,
) -> dict[str, tuple[Any, ...]]:
    """The distribution, value and scale of every sample site."""
    placed = Layout(latents, (), ()).unravel(vector)
    sites = call.trace(arrays, {**values, **placed}, unconstrained=unconstrained, standard=standard)
    return {
        name: tuple(site[part] for part in _KEPT)
        for name, site in sites.items()
        if site["type"] == "sample"
    }


# JAX caches the trace, so that a program runs once for all of its derived quantities.
_run_once = jax.jit(_run, static_argnums=(0, 1), inline=True)


def discover(call: Call, arrays: tuple[Any, ...], fixed: Values) -> Program:
    """Sort a program's sites, see `Program.of`."""
    sites = {site.name: site for site in survey(call)}
    observed = tuple(name for name, site in sites.items() if site.observed)
    free = [name for name, site in sites.items() if not site.observed]
    if not observed:
        raise UnsupportedProgramError(
            "the program has no observed site, so there is nothing to infer from; "
            "pass data with answers (data.without_answers() removes them)"
        )
    for site in sites.values():
        if site.problem is not None and site.name not in fixed:
            raise UnsupportedProgramError(
                f"{'observed ' * site.observed}site {site.name!r} ({site.kind}): {site.problem}"
            )
        if not site.observed and site.support.is_discrete:
            raise UnsupportedProgramError(
                f"site {site.name!r} ({site.kind}) is a discrete latent variable; {NUTS}"
            )

    integrated = [name for name in free if name not in fixed and sites[name].integrated]
    candidates = [n for n in free if n not in fixed and n not in integrated and sites[n].gaussian]
    if not candidates:
        raise UnsupportedProgramError(
            "no observed site of the program depends on a Gaussian one "
            f"(unobserved sites: {', '.join(free) or 'none'}); {NUTS}"
        )
    seen = _seen(call, arrays, fixed, sites, candidates, integrated)
    program = seen[0] if seen else _followed(call, arrays, fixed, sites, candidates, integrated)
    layout = program.layout
    concave = dict(layout.quadrature)
    latents = tuple((name, shape) for name, shape in layout.latents if name not in integrated)
    others = {*dict(latents), *integrated, *fixed}
    hyperparameters = tuple((name, sites[name].shape) for name in free if name not in others)
    most = float(np.max(program.counts, initial=0.0))
    rows, noise = None, []
    if layout.constant_projection:
        matrix = seen[1].matrix if seen else None
        rows = _written(program, [name for name, _ in latents], matrix)
        noise = [_written(program, [name], matrix) for name in integrated]
    if len(noise) < len(integrated) or None in noise:
        raise UnsupportedProgramError(
            f"the latent site {integrated[0]!r} is to be integrated out, and answers look at more "
            "than two of its values each, or at what "
            f"hyperparameters change; leave {INTEGRATED!r} out of its infer, or: {NUTS}"
        )
    layout = replace(
        layout,
        latents=latents,
        integrated=tuple((name, int(np.prod(sites[name].shape))) for name in integrated),
        hyperparameters=hyperparameters,
        log_concave=all(concave.get(name, sites[name].log_concave) for name in observed),
        precise=most > _MANY
        or any(site.closed_form and name not in concave for name, site in sites.items()),
        repeated=bool(np.any((program.counts != 0) & (program.counts != 1))),
        ordered=any(sites[name].shares_noise for name in observed if name not in concave),
    )
    medians = {name: np.asarray(program.medians[name]) for name, _ in hyperparameters}
    program = replace(program, layout=layout, medians=medians, rows=rows)
    if not (layout.ordered or integrated):
        return program
    gaps: list[Any] = []
    if layout.ordered:
        gaps = seen[1].gaps if seen else _gaps(program)
    kinds = [Kind.of_gaps(*map(np.asarray, kind)) for kind in gaps]
    kinds += [Kind.of_values(part.column, part.entry) for part in noise if part is not None]
    layout = replace(layout, observation_only=rows is None)
    return replace(program, layout=layout, arrow=Arrow.of(kinds, rows))


# Errors of NumPy and JAX where latents must be arrays of JAX.
_NO_ARRAYS = (AttributeError, IndexError, NotImplementedError, TypeError, ValueError)


def _seen(
    call: Call,
    arrays: tuple[Any, ...],
    fixed: Values,
    sites: Mapping[str, Site],
    candidates: Sequence[str],
    integrated: Sequence[str],
) -> tuple[Program, Run] | None:
    """The program by a run with affine latents, and what that shows; None if it needs more."""
    observed = tuple(name for name, site in sites.items() if site.observed)
    names, constants = list(candidates), False
    while names:
        layout = Layout(
            tuple((name, sites[name].shape) for name in (*names, *integrated)),
            (),
            observed,
            portable=bool(arrays) and all(site.portable for site in sites.values()),
        )
        free = [n for n, s in sites.items() if not s.observed and n not in {*layout.slices, *fixed}]
        shapes = {name: jax.ShapeDtypeStruct(sites[name].shape, float) for name in free}
        try:
            shown = run(call, arrays, fixed, layout, shapes, constants=constants)
        except (*_NO_ARRAYS, UnsupportedProgramError):
            shown = None
        if shown is None or shown.moves or not (shown.constant or constants):
            if constants:
                return None
            constants = True
        elif shown.used:
            # A parameter with a Gaussian prior may be anything else than a latent, too.
            rest = [
                name
                for name in names
                if sites[name].process or shown.used.isdisjoint(np.r_[layout.slices[name]])
            ]
            names = rest if len(rest) < len(names) else []
        else:
            layout = replace(
                layout,
                quadrature=tuple(shown.concave.items()),
                num_rows=len(shown.counts),
                constant_projection=shown.constant,
            )
            medians = shown.medians
            if len(medians) < len(free):
                more = medians_by_jax(call, tuple(free), layout, arrays, fixed)
                medians = {**more, **medians}
            return Program(call, layout, arrays, fixed, medians, counts=shown.counts), shown
    return None


def _followed(
    call: Call,
    arrays: tuple[Any, ...],
    fixed: Values,
    sites: Mapping[str, Site],
    candidates: Sequence[str],
    integrated: Sequence[str],
) -> Program:
    """The program by its trace."""
    observed = tuple(name for name, site in sites.items() if site.observed)
    # Moments in closed form are used if possible; else the trace of the site is followed.
    unknown = tuple(name for name in observed if not sites[name].knows_moments)
    not_closed = tuple(name for name in observed if not sites[name].closed_form)
    for general in dict.fromkeys((unknown, not_closed, observed)):

        def probe(
            names: Sequence[str], general: tuple[str, ...] = general
        ) -> tuple[Program, str | None]:
            return _probed(call, arrays, fixed, sites, general, [*names, *integrated])

        # Most programs need only one compilation, with all candidates at once.
        program, problem = probe(candidates)
        if problem is not None:
            processes = [name for name in candidates if sites[name].process]
            alone = [n for n in candidates if n in processes or probe([n])[1] is None]
            for names in (alone, processes):
                if problem is not None and names:
                    program, problem = probe(names)
        if problem is None:
            return program
    raise UnsupportedProgramError(f"{problem}; {NUTS}")


@lazy_jit
def _gaps(program: Program) -> list[tuple[Array, ...]]:
    """Groups and pairs of items of the rows, for each kind of noise of their likelihoods."""
    observations = program.read(program.medians).observations
    return [tuple(kind)[:3] for kind in shared_noise([each.likelihood for each in observations])]


def _written(program: Program, names: Sequence[str], matrix: Any) -> SparseRows | None:
    """The projection of some latents as sparse rows; None if a row has more than two entries.

    Small sites before the last one, such as effects of covariates, do not count: every row may
    depend on all of their values.
    """
    slices = [program.layout.slices[name] for name in names]
    sizes = [place.stop - place.start for place in slices]
    *before, last = sizes
    shared = range(sum(before)) if sum(before) <= min(last, _SHARED) else range(0)
    if matrix is not None:
        return SparseRows.of(matrix[:, np.concatenate([np.r_[place] for place in slices])], shared)

    def image(vector: NDArray[np.float64]) -> Any:
        latents = np.zeros(program.layout.num_latents)
        for place, part in zip(slices, np.split(vector, np.cumsum(sizes)[:-1]), strict=True):
            latents[place] = part
        return _image(program, latents)

    return SparseRows.find(image, (program.layout.num_rows, sum(sizes)), shared)


@lazy_jit
def _image(program: Program, vector: Array) -> Array:
    """The projection of a latent vector, shape (m,)."""
    predictors = partial(program.predictors, unconstrained=program.medians)
    return jax.jvp(predictors, (jnp.zeros_like(vector),), (vector,))[1]


def _probed(
    call: Call,
    arrays: tuple[Any, ...],
    fixed: Values,
    sites: Mapping[str, Site],
    general: tuple[str, ...],
    names: list[str],
) -> tuple[Program, str | None]:
    """The program with the latents of these names, and why no engine can fit it, or None.

    Its predictors are tried at a few random latent vectors and two random values of the
    hyperparameters.
    """
    layout = Layout(
        tuple((name, sites[name].shape) for name in names),
        (),
        tuple(name for name, site in sites.items() if site.observed),
        tuple((name, False) for name in general),
        portable=bool(arrays) and all(site.portable for site in sites.values()),
    )
    program = Program(call, layout, arrays, fixed)
    generator = np.random.default_rng(0)
    x, z = generator.standard_normal((2, layout.num_latents))
    # The sign is the other one, so that |x| and max(x, 0) show.
    y = -x * generator.uniform(0.3, 3.0, layout.num_latents)
    points = np.stack([np.zeros_like(x), x, y, x + y, z, x + z])
    # Standard normal in the unconstrained space: draws from the priors would need random keys, for
    # which NumPy has no rules.
    shapes = {
        name: biject_to(site.support).inverse_shape(site.shape)
        for name, site in sites.items()
        if not (site.observed or name in fixed or name in names)
    }
    draws = [
        {name: generator.standard_normal(shape) for name, shape in shapes.items()} for _ in range(2)
    ]
    try:
        predictors, medians, counts, doubts, moves = _probe(program, points, draws[0])
        other = _probe(program, points, draws[1])[0]
    except UnsupportedProgramError as error:
        return program, str(error)
    first, second = np.asarray(predictors), np.asarray(other)
    slack = _TOLERANCE * (1 + np.abs(first).max(initial=0.0))
    errors = (first[3] - first[1] - first[2] + first[0], first[5] - first[1] - first[4] + first[0])
    latent = f"the latent site{'s' if len(names) > 1 else ''} {' and '.join(map(repr, names))}"
    problem = None
    if not all(bool(np.all(np.abs(error) <= slack)) for error in errors):
        problem = f"{latent}: the observed predictors do not depend on it linearly"
    elif moves:
        problem = f"{latent}: other sites depend on it, or a likelihood does but by its predictor"
    for name, doubt in doubts.items():
        why = None
        if doubt.several > _TOLERANCE:
            why = f"depends on more than one linear combination of {latent} for an answer"
        elif doubt.across > _TOLERANCE or doubt.wrong > _TOLERANCE:
            why = (
                f"has answers that each depend on {latent} in more than one place, or that "
                "depend on each other's predictors"
            )
        if why:
            problem = f"observed site {name!r} ({sites[name].kind}) {why}"
    layout = replace(
        layout,
        quadrature=tuple((name, bool(doubt.bent <= _TOLERANCE)) for name, doubt in doubts.items()),
        num_rows=first.shape[1],
        constant_projection=bool(
            np.allclose(second[1] - second[0], first[1] - first[0], rtol=1e-9, atol=slack)
        ),
    )
    return replace(program, layout=layout, medians=medians, counts=np.asarray(counts)), problem


@lazy_jit
def _probe(
    program: Program, points: Array, unconstrained: Values
) -> tuple[Array, Values, Array, dict[str, Doubt], bool]:
    """Predictors at latent vectors, prior medians of hyperparameters, counts and doubts.

    The last value is whether any site's distribution, apart from predictors, is computed from the
    latents.
    """
    sites, layout = program.sites(points[0], unconstrained), program.layout
    medians = {name: median(sites[name]) for name in unconstrained}
    observations = program.observations(sites, points[0], unconstrained)
    doubts = {
        name: program._any_site(name, sites[name], unconstrained).doubt(points[1:3])
        for name, _ in layout.quadrature
    }

    def others(vector: Array) -> list[Any]:
        arrays: list[Any] = []
        for name, site in program.sites(vector, unconstrained).items():
            if name not in layout.observed:
                leaves = jax.tree.leaves(unwrap(site["fn"]))
                arrays += [leaf for leaf in leaves if isinstance(leaf, Array)]
            elif name not in doubts:
                likelihood: Any
                likelihood, value, _ = Observation.of(site)
                cavity = jnp.ones(jnp.shape(likelihood.predictor))
                of_point = hasattr(likelihood, "point")
                arrays += jax.tree.leaves(
                    likelihood.point(value, cavity)
                    if of_point
                    else likelihood.tilted(value, cavity, cavity)
                )
        return arrays

    moves = any(reached(jax.make_jaxpr(others)(points[0]).jaxpr, [True]))
    predictors = jax.vmap(partial(program.predictors, unconstrained=unconstrained))(points)
    counts = jnp.concatenate([observation.counts for observation in observations])
    return predictors, medians, counts, doubts, moves
