"""Finds out which sites of a program are Gaussian latents, hyperparameters and observations, and checks that EP applies."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from numpyro.distributions.transforms import biject_to

from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.affine import NUTS, reached
from relpref.infer.observed import Doubt, Observed, rows_of, unwrap
from relpref.infer.program import Call, Layout, Values, is_gaussian
from relpref.infer.rows import SparseRows
from relpref.kernels import GaussianProcess
from relpref.likelihoods import GaussianSite, as_likelihood, is_log_concave

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
