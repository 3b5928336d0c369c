"""Programs of numpyro, read as Gaussian latents, projections, answers and hyperparameters.

A `Program` is a call that was traced once. At given hyperparameters it is *read*: its Gaussian
sites give their covariances, and the predictors of its observed sites are linearized in the latent
vector, with the projection A as their slope. Where predictors are, a few
runs for shapes alone show, see `relpref.infer.latents`. Sites that do not fit are
refused by name, before anything is computed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import Array
from numpy.typing import NDArray
from numpyro.distributions.transforms import biject_to

from relpref.compiled import compiled
from relpref.data.arrays import Floats
from relpref.errors import UnsupportedProgramError
from relpref.infer.affine import NUTS, Leaf, Link, Run, Way
from relpref.infer.arrow import Arrow, Kind
from relpref.infer.call import Call, Model, Site, Values, broadcast_fixed, each_draw, survey
from relpref.infer.gaussians import gaussian_parts
from relpref.infer.latents import AFFINE, run
from relpref.infer.layout import (
    Layout,
    NamedShapes,
    Observation,
    Prior,
    require_memory_for,
    shared_noise,
)
from relpref.infer.links import Linked, linked
from relpref.infer.members import Members, OfMembers
from relpref.infer.priors import Form, medians_by_jax
from relpref.infer.rows import DenseRows, SparseRows
from relpref.infer.template import Filled, Template, log_prior
from relpref.likelihoods import as_likelihood
from relpref.likelihoods.quadrature import ByQuadrature
from relpref.likelihoods.tilted import INTEGRATED, unwrap
from relpref.linalg import BlockDiagonal
from relpref.pytree import Untraced

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
    # Templates by layout and names of hyperparameters, fixed ones, too.
    kept: Untraced = field(default_factory=lambda: Untraced({}), metadata={"static": True})
    # Predictors of observed sites whose moments are computed by quadrature
    links: dict[str, Leaf | Link] = field(default_factory=dict)

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
        names = {*self.fixed, *dict(self.layout.hyperparameters)}
        key, kept = (self.layout, frozenset(names)), self.kept.content
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
            sites = survey(call).values()
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

    def values(
        self, names: Iterable[str], unconstrained: Values, standard: Values | None = None
    ) -> Values:
        """Values of hyperparameters on their supports, see `sites`."""
        sites = self.sites(jnp.zeros(self.layout.num_latents), unconstrained, standard)
        return {name: sites[name]["value"] for name in names}

    def runs(self, latents: Values, unconstrained: Values | None) -> Run:
        """Runs of the program, by what takes the place of values of its latents."""
        return lambda place: self.call.trace(
            self.arrays, {**self.fixed, **place(latents)}, unconstrained=unconstrained
        )

    def _linked(
        self, name: str, sites: Mapping[str, Values], unconstrained: Values | None
    ) -> tuple[Array, Callable[[Array, Array], Array]]:
        """Predictors of a site where sites were traced, and log density of values at predictors."""
        latents = [*self.layout.slices, *dict(self.layout.integrated)]
        values = {latent: sites[latent]["value"] for latent in latents}

        link, run = self.links[name], self.runs(values, unconstrained)
        return link.predictor(sites[name], run), link.log_density(name, sites[name], run)

    def predictors(self, vector: Array, unconstrained: Values | None = None) -> Array:
        """Predictors of all rows, shape (m,)."""
        sites, general, parts = self.sites(vector, unconstrained), dict(self.layout.quadrature), []
        for name in self.layout.observed:
            if name in general:
                parts.append(jnp.ravel(self._linked(name, sites, unconstrained)[0]))
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
            z, log_density = self._linked(name, sites, unconstrained)
            likelihoods[name] = ByQuadrature(z, log_density, log_concave=concave)
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

    def read(self, unconstrained: Values | None = None) -> Prior:
        """The program at given unconstrained hyperparameters, differentiable in them."""
        unconstrained = unconstrained or {}
        origin = jnp.zeros(self.layout.num_latents)
        sites = self.sites(origin, unconstrained)
        means, covariances = zip(
            *(gaussian_parts(sites[name]["fn"]) for name, _ in self.layout.latents), strict=True
        )
        location = jnp.concatenate(means)
        offset, apply = jax.linearize(
            partial(self.predictors, unconstrained=unconstrained), location
        )
        observations = self.observations(sites, origin, unconstrained)
        noise = [kind.sd for kind in shared_noise([each.likelihood for each in observations])]
        scales = (unwrap(sites[name]["fn"]).scale for name, _ in self.layout.integrated)
        noise += [jnp.broadcast_to(scale, offset.shape) for scale in scales]
        return Prior.of(
            observations,
            offset,
            hyperparameters={name: sites[name]["value"] for name in unconstrained},
            covariance=BlockDiagonal(tuple(each.in_memory() for each in covariances)),
            location=location,
            projection=self.rows or DenseRows.of(apply, len(location)),
            log_prior=log_prior(sites, unconstrained),
            noise=tuple(noise),
        )

    def prior_draws(self, key: Any, number: int) -> list[Values]:
        """Draws of the unconstrained hyperparameters from their prior."""
        return each_draw(_draw(self, jax.random.split(key, number)))

    @property
    def _forms(self) -> Mapping[str, Form]:
        """Forms of priors that NumPy knows; none of programs that only a sampler can run."""
        return self.template.forms if len(self.counts) else {}

    def constrained(self, draws: Values) -> Values:
        """Unconstrained hyperparameters on their supports, draw by draw."""
        forms = self._forms
        if draws.keys() <= forms.keys():
            return {name: forms[name].map(np.asarray(raw)).value for name, raw in draws.items()}
        values: Values = _constrain(self, draws)
        return values

    def unconstrained(self, values: Mapping[str, Any]) -> Values:
        """Unconstrained values, in the shapes of their sites, of hyperparameters on supports."""
        forms, sites = self._forms, survey(self.call)
        raw = {}
        for name in self.medians.keys() & values.keys():
            value = np.broadcast_to(np.asarray(values[name], float), self.medians[name].shape)
            inverse = forms[name].inverse if name in forms else biject_to(sites[name].support).inv
            raw[name] = inverse(value)
        return raw


@compiled
def _constrain(program: Program, draws: Values) -> Values:
    return jax.vmap(lambda raw: program.values(raw, raw))(draws)


@compiled
def _values_of_members(program: Program, unconstrained: Values, standard: Array) -> Values:
    assert program.members is not None
    placed = dict(zip(program.members.names, standard, strict=True))
    return program.values(placed, unconstrained, placed)


@compiled
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
    latents: NamedShapes,
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
    sites = survey(call)
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
    portable = bool(arrays) and all(site.portable for site in sites.values())
    bare = Program(call, Layout((), (), observed, portable=portable), arrays, fixed)
    program, matrix, gaps = _read(bare, sites, candidates, integrated)
    layout = program.layout
    concave = dict(layout.quadrature)
    latents = tuple((name, shape) for name, shape in layout.latents if name not in integrated)
    others = {*dict(latents), *integrated, *fixed}
    hyperparameters = tuple((name, sites[name].shape) for name in free if name not in others)
    most = float(np.max(program.counts, initial=0.0))
    rows, noise = None, []
    if layout.constant_projection:
        rows = _written(program.layout, [name for name, _ in latents], matrix)
        noise = [_written(program.layout, [name], matrix) for name in integrated]
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
    kinds = [Kind.of_gaps(*kind) for kind in gaps]
    kinds += [Kind.of_values(part.column, part.entry) for part in noise if part is not None]
    layout = replace(layout, observation_only=rows is None)
    return replace(program, layout=layout, arrow=Arrow.of(kinds, rows))


# Errors of NumPy and JAX where latents must be arrays of JAX.
_NO_ARRAYS = (
    AssertionError,
    AttributeError,
    IndexError,
    NotImplementedError,
    TypeError,
    ValueError,
)


class _Read(NamedTuple):
    program: Program
    matrix: Any  # the projection, sparse; of no meaning where it is not constant
    gaps: list[list[NDArray[Any]]]  # see `Run`


def _read(
    bare: Program,
    sites: Mapping[str, Site],
    candidates: Sequence[str],
    integrated: Sequence[str],
) -> _Read:
    """Read a program in the first `Way` that it allows."""
    observed = [site for site in sites.values() if site.observed]
    # Moments in closed form are used if possible; else log densities alone.
    unknown, rest = (
        tuple(site.name for site in observed if not getattr(site, ability))
        for ability in ("knows_moments", "closed_form")
    )
    processes = [name for name in candidates if sites[name].process]
    for general in dict.fromkeys((unknown, rest, tuple(site.name for site in observed))):
        problem = ""
        shapes = {site.rows for site in observed if site.name in general or not general}
        ways = [Way(name) for name in AFFINE]
        if len(shapes) == 1:
            ways += [Way(name, next(iter(shapes))) for name in ("rows", "sites")]
        for way in (*ways, Way("whole")):

            def read(
                names: Sequence[str], way: Way = way, general: Any = general
            ) -> _Read | list[str]:
                latents = [*names, *integrated]
                return _read_as(bare, sites, latents, way, general)

            names = list(candidates)
            try:
                while names:
                    seen = read(names)
                    if not isinstance(seen, list):
                        return seen
                    names = seen
            except UnsupportedProgramError as error:
                if way.name not in AFFINE:
                    problem = problem or str(error)
            except _NO_ARRAYS:
                if way.name == "whole":
                    raise

        def alone(name: str, read: Any = read) -> bool:
            try:
                return not isinstance(read([name]), list)
            except UnsupportedProgramError:
                return False

        for names in ([n for n in candidates if n in processes or alone(n)], processes):
            if names and len(names) < len(candidates):
                try:
                    seen = read(names)
                except UnsupportedProgramError as error:
                    problem = str(error)
                else:
                    if not isinstance(seen, list):
                        return seen
    raise UnsupportedProgramError(f"{problem}; {NUTS}")


def _read_as(
    bare: Program,
    sites: Mapping[str, Site],
    names: Sequence[str],
    way: Way,
    general: tuple[str, ...],
) -> _Read | list[str]:
    """Read a program with given latents; or return fewer, some being other parameters."""
    layout = replace(bare.layout, latents=tuple((name, sites[name].shape) for name in names))
    program = replace(bare, layout=layout)
    free = [n for n, s in sites.items() if not s.observed and n not in {*names, *bare.fixed}]
    shapes = {name: jax.ShapeDtypeStruct(sites[name].shape, float) for name in free}
    latent = f"the latent site{'s' if len(names) > 1 else ''} {' and '.join(map(repr, names))}"
    shown = run(program, shapes, way, general)
    # A parameter with a Gaussian prior may be anything else than a latent, too.
    left = [
        name
        for name in names
        if sites[name].process or shown.used.isdisjoint(np.r_[layout.slices[name]])
    ]
    if shown.moves or (shown.used and len(left) == len(names)):
        raise UnsupportedProgramError(
            f"{latent}: other sites depend on it, or a likelihood does but by its predictor"
        )
    if shown.used:
        return [name for name in left if not sites[name].integrated]
    generator = np.random.default_rng(0)
    # Standard normal in the unconstrained space: draws from the priors would need random keys.
    spaces = {
        name: biject_to(sites[name].support).inverse_shape(sites[name].shape) for name in free
    }
    draws = [
        {name: generator.standard_normal(shape) for name, shape in spaces.items()} for _ in range(2)
    ]
    predictors: dict[str, Linked] = {}
    for name, site in shown.observed.items():
        values = site.predictor
        if values is not None:
            predictors[name] = Linked(values.matrix, not values.moves, site.leaf, site.concave)
        elif way.name in AFFINE:  # a predictor that depends on no latent
            none = scipy.sparse.csr_array((len(site.counts), layout.num_latents))
            predictors[name] = Linked(none, True, None, False)
        else:
            predictors[name] = linked(program, shown, name, name in general, draws, latent)
    constant = all(each.constant for each in predictors.values())
    if way.name == "asked" and not constant:
        raise TypeError("what looks like a tracer may be a constant")
    counts = np.concatenate([site.counts for site in shown.observed.values()])
    medians = shown.medians
    if len(medians) < len(free):
        medians = {**medians_by_jax(program, tuple(free)), **medians}
    layout = replace(
        layout,
        quadrature=tuple((n, each.concave) for n, each in predictors.items() if n in general),
        num_rows=len(counts),
        constant_projection=constant,
    )
    links = {n: each.link for n, each in predictors.items() if each.link is not None}
    program = replace(program, layout=layout, medians=medians, counts=counts, links=links)
    matrix = scipy.sparse.vstack([each.matrix for each in predictors.values()], format="csr")
    return _Read(program, matrix, shown.gaps)


def _written(layout: Layout, names: Sequence[str], matrix: Any) -> SparseRows | None:
    """The projection of some latents as sparse rows; None if a row has more than two entries.

    Small sites before the last one, such as effects of covariates, do not count: every row may
    depend on all of their values.
    """
    places = [np.r_[layout.slices[name]] for name in names]
    *before, last = map(len, places)
    shared = range(sum(before)) if sum(before) <= min(last, _SHARED) else range(0)
    return SparseRows.of(matrix[:, np.concatenate(places)], shared)
