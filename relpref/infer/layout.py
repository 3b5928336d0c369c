"""Finds out which sites of a program are Gaussian latents, hyperparameters and observations, and checks that EP applies."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions.transforms import biject_to

from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.program import Call, Layout, Values, is_gaussian, unwrap
from relpref.kernels import GaussianProcess
from relpref.likelihoods import as_likelihood

_TOLERANCE = 1e-7  # of the affinity check, relative to the predictors probed; the probes are float64


def discover(call: Call, arrays: tuple[Any, ...], fixed: Values) -> tuple[Layout, Values]:
    """Sort a program's sites.

    Returns
    -------
    layout : Layout
    medians : dict from hyperparameter to Array
        Of their priors, unconstrained; a draw where the prior has no quantile function.

    A Gaussian site is latent when the predictors are affine in it and nothing else depends on it; a scalar or vector with
    a ``Normal`` prior that is used in any other way is a hyperparameter.

    Raises
    ------
    UnsupportedProgramError
        Naming the site that no Gaussian engine can treat.
    DataError
        If ``fixed`` names a site that the program does not have.
    """
    sites = _abstract_sites(call, arrays)
    observed = tuple(name for name, site in sites.items() if site["is_observed"])
    free = [name for name, site in sites.items() if not site["is_observed"]]
    for name in fixed:
        if name not in free:
            raise DataError(
                f"fixed names the site {name!r}; the program's unobserved sites are {', '.join(free) or 'none'}"
            )
    if not observed:
        raise UnsupportedProgramError(
            "the program has no observed site, so there is nothing to infer from; "
            "pass data with answers (data.without_answers() removes them)"
        )
    for name in observed:
        try:
            as_likelihood(sites[name]["fn"])
        except UnsupportedProgramError as error:
            raise UnsupportedProgramError(f"observed site {name!r}: {error}") from None
    for name in free:
        if unwrap(sites[name]["fn"]).support.is_discrete:
            raise _refuse(sites[name], "is a discrete latent variable")

    candidates = [name for name in free if name not in fixed and is_gaussian(sites[name]["fn"])]
    latents = [n for n in candidates if isinstance(unwrap(sites[n]["fn"]), GaussianProcess)]
    latents += [
        n
        for n in candidates
        if n not in latents and _Probe(call, arrays, sites, observed, (n,), fixed).affine
    ]
    if not latents:
        raise UnsupportedProgramError(
            "no Gaussian site of the program enters the observed predictors linearly "
            f"(unobserved sites: {', '.join(free) or 'none'}); numpyro's MCMC(NUTS(program)) can run it"
        )
    latents.sort(key=free.index)
    probe = _Probe(call, arrays, sites, observed, tuple(latents), fixed)
    if not probe.affine:
        raise _refuse(
            sites[latents[0]], "does not enter the observed predictors linearly, or other sites depend on it"
        )
    hyperparameters = tuple(
        (n, jnp.shape(sites[n]["value"])) for n in free if n not in latents and n not in fixed
    )
    layout = replace(
        probe.layout,
        hyperparameters=hyperparameters,
        num_rows=probe.num_rows,
        constant_projection=probe.constant_projection,
    )
    return layout, {name: probe.medians[name] for name, _ in hyperparameters}


def broadcast_fixed(call: Call, arrays: tuple[Any, ...], fixed: Values) -> Values:
    """Give every fixed value its site's shape; names that are no site are left for `discover` to refuse.

    Raises
    ------
    DataError
        If a value is not finite or its shape does not fit.
    """
    sites = _abstract_sites(call, arrays)
    result = {}
    for name, value in fixed.items():
        array = np.asarray(value, dtype=np.float64)
        if not np.all(np.isfinite(array)):
            raise DataError(f"fixed[{name!r}] is {value!r}; it must be finite")
        if name in sites:
            shape = jnp.shape(sites[name]["value"])
            try:
                array = np.broadcast_to(array, shape)
            except ValueError:
                raise DataError(
                    f"fixed[{name!r}] has shape {array.shape}; the site has shape {shape}"
                ) from None
            support = sites[name]["fn"].support
            # The edge of an open support is let through: an amplitude of 0 switches a part off.
            if not np.all(support(array) | support(np.nextafter(array, np.inf))):
                raise DataError(f"fixed[{name!r}] is {value!r}, outside the site's support, {support}")
        result[name] = array
    return result


def _abstract_sites(call: Call, arrays: tuple[Any, ...]) -> dict[str, dict[str, Any]]:
    """The program's sample sites, traced for shapes and types alone."""
    sites: dict[str, dict[str, Any]] = {}

    def record(arrays: tuple[Any, ...]) -> None:
        sites.update(call.trace(arrays, {}))

    jax.eval_shape(record, arrays)
    return {name: site for name, site in sites.items() if site["type"] == "sample"}


class _Probe:
    """Tries the predictors at a few random latent vectors and two draws of the hyperparameters."""

    def __init__(
        self,
        call: Call,
        arrays: tuple[Any, ...],
        sites: dict[str, dict[str, Any]],
        observed: tuple[str, ...],
        latents: tuple[str, ...],
        fixed: Values,
    ) -> None:
        self.layout = Layout(tuple((n, jnp.shape(sites[n]["value"])) for n in latents), (), observed)
        generator = np.random.default_rng(0)
        x, y = generator.standard_normal((2, self.layout.num_latents))
        points = np.stack([np.zeros_like(x), x, y, x + y])
        keys = [jax.random.key_data(jax.random.key(seed)) for seed in (0, 1)]
        first, self.medians = _probe(call, self.layout, arrays, fixed, points, keys[0])
        second, _ = _probe(call, self.layout, arrays, fixed, points, keys[1])
        first, second = np.asarray(first), np.asarray(second)
        self.num_rows = first.shape[1]
        slack = _TOLERANCE * (1 + np.abs(first).max(initial=0.0))
        superposition = first[3] - first[1] - first[2] + first[0]
        # Affine in x, y and x + y together: this also catches |x| and max(x, 0), which are linear along a ray.
        superposed = bool(np.all(np.abs(superposition) <= slack))
        self.affine = superposed and not _others_depend(call, self.layout, arrays, fixed)
        self.constant_projection = bool(
            np.allclose(second[1] - second[0], first[1] - first[0], rtol=1e-9, atol=slack)
        )


@partial(jax.jit, static_argnums=(0, 1))
def _probe(
    call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, points: Array, key_words: Array
) -> tuple[Array, Values]:
    """Predictors at each latent vector, and the medians of the hyperparameters' priors."""
    key = jax.random.wrap_key_data(key_words)

    def predictors(vector: Array) -> Array:
        sites = call.trace(arrays, {**fixed, **layout.unravel(vector)}, key)
        return jnp.concatenate(
            [jnp.ravel(as_likelihood(sites[name]["fn"]).predictor) for name in layout.observed]
        )

    sites = call.trace(arrays, {**fixed, **layout.unravel(points[0])}, key)
    latents = dict(layout.latents)
    free = [
        s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"] and n not in latents
    ]
    medians = {site["name"]: _median(site) for site in free if site["name"] not in fixed}
    return jax.vmap(predictors)(points), medians


def _median(site: dict[str, Any]) -> Array:
    distribution, value = site["fn"], site["value"]
    try:
        middle = jnp.broadcast_to(unwrap(distribution).icdf(jnp.asarray(0.5)), jnp.shape(value))
    except (NotImplementedError, ImportError):
        middle = value
    return biject_to(distribution.support).inv(middle)


def _refuse(site: dict[str, Any], why: str) -> UnsupportedProgramError:
    kind = type(unwrap(site["fn"])).__name__
    return UnsupportedProgramError(
        f"site {site['name']!r} ({kind}) {why}; numpyro's MCMC(NUTS(program)) can run it"
    )


def _others_depend(call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values) -> bool:
    """Whether any site's distribution, predictors apart, is computed from the latents."""

    def others(vector: Array) -> list[Any]:
        sites = call.trace(arrays, {**fixed, **layout.unravel(vector)})
        found: list[Any] = []
        for site in sites.values():
            if site["type"] != "sample":
                continue
            leaves = jax.tree.leaves(unwrap(site["fn"]))
            if site["name"] in layout.observed:
                predictor = as_likelihood(site["fn"]).predictor
                leaves = [leaf for leaf in leaves if leaf is not predictor]
            found += [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
        return found

    jaxpr = jax.make_jaxpr(others)(jnp.zeros(layout.num_latents)).jaxpr
    return any(_reached(jaxpr, [True]))


def _reached(jaxpr: Any, inputs: list[bool]) -> list[bool]:
    """Which outputs of a jaxpr are computed from the marked inputs."""
    marked = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}
    for equation in jaxpr.eqns:
        marks = [not hasattr(v, "val") and v in marked for v in equation.invars]
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        inner = getattr(inner, "jaxpr", inner)
        if (
            inner is not None
            and len(inner.invars) == len(marks)
            and len(inner.outvars) == len(equation.outvars)
        ):
            found = _reached(inner, marks)
        else:
            found = [any(marks)] * len(equation.outvars)
        marked |= {variable for variable, mark in zip(equation.outvars, found, strict=True) if mark}
    return [not hasattr(v, "val") and v in marked for v in jaxpr.outvars]
