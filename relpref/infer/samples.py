"""Posteriors from samples of numpyro's inference: NUTS, SVI or any other."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.infer.reparam import Reparam

from relpref.compiled import compiled, float64
from relpref.errors import DataError
from relpref.infer.assemble import choose
from relpref.infer.call import Model, Values
from relpref.infer.gaussians import gaussian_parts
from relpref.infer.layout import MATRICES, require_memory_for
from relpref.infer.program import Program
from relpref.kernels import GaussianProcess
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import fits
from relpref.posterior.base import Parts, Posterior
from relpref.posterior.gaussian import DrawsBelief, as_key
from relpref.posterior.origin import Origin

BASE = "_base"  # the whitened site is called <site>_base


class Whitened(Reparam):
    """u = L z with z standard normal and L the root of u's covariance."""

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[None, Any]:
        if obs is not None:
            raise ValueError(
                f"site {name!r} is observed; only latent Gaussian vectors are whitened"
            )
        root = fn.covariance.root().lower if isinstance(fn, GaussianProcess) else None
        shape = fn.shape() if root is None else (root.shape[1],)
        base = numpyro.sample(name + BASE, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))
        normal = unwrap(fn)
        return None, normal.loc + normal.scale * base if root is None else root @ base


def noncentered(program: Model) -> Callable[..., Any]:
    """Return the program with its Gaussian sites whitened, for NUTS and SVI.

    These are every `GaussianProcess` and every vector or matrix of normals. Whitened, utilities and
    the hyperparameters of their covariance are hardly coupled in the posterior, and NUTS takes far
    fewer steps. The sites are ``<site>_base`` and, as a deterministic site, ``<site>``. Run it
    inside ``jax.enable_x64(True)``: a float32 Cholesky factor of a smooth kernel needs a jitter
    that is visible in the results from some 200 items on.

    Examples
    --------
    >>> from relpref import PreferenceData
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> data = PreferenceData.from_tables(answers=answers)
    >>> import jax
    >>> from numpyro.handlers import seed, trace
    >>> from relpref.infer import noncentered
    >>> from relpref.models import xpgp
    >>> program = noncentered(xpgp)  # NUTS(program) samples it
    >>> sites = trace(seed(program, jax.random.key(0))).get_trace(data)
    >>> "individual_amplitude" in sites
    True
    """

    def whiten(site: dict[str, Any]) -> Whitened | None:
        if site["type"] != "sample" or site["is_observed"] or site["name"].endswith(BASE):
            return None
        fn = site["fn"]
        normals = fn.event_dim > 0 and isinstance(unwrap(fn), dist.Normal)
        return Whitened() if normals or isinstance(fn, GaussianProcess) else None

    return handlers.reparam(program, config=whiten)


def from_samples(
    samples: Mapping[str, Any],
    program: Model,
    *args: Any,
    rng_key: Any = 0,
    num_chains: int = 1,
    extra_fields: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Posterior:
    """Turn samples of a program's sites into a posterior.

    Parameters
    ----------
    samples : mapping from site to array, shape (s, ...)
        From ``mcmc.get_samples()`` or ``guide.sample_posterior(...)``: every hyperparameter, and
        every Gaussian site either itself or whitened as ``<site>_base`` (see `noncentered`). Sites
        the program does not have are ignored.
    program, *args, **kwargs
        The program and how it was called.
    rng_key : JAX key or int
        Kept for Monte Carlo answers.
    num_chains : int
        The samples are this many chains laid one after the other, as ``get_samples()`` returns
        them.
    extra_fields : mapping from name to array, shape (s,), optional
        From ``mcmc.get_extra_fields()``, such as ``diverging``: what the sampler says of each draw,
        for ArviZ's ``sample_stats``.

    Returns
    -------
    Posterior
        As from an engine, except: ``log_evidence`` is None, ``sites`` is empty, ``hyperparameters``
        are averages (their draws are in ``hyperparameter_draws``).

    Raises
    ------
    DataError
        If a site is missing or the numbers of draws differ.

    Notes
    -----
    Splitting the utilities into their parts takes one Cholesky factor for each draw, O(s n³), or
    one in all where hyperparameters do not move. Where that does not fit into memory, and the sites
    were not sampled whitened, the posterior has no parts.

    Examples
    --------
    >>> from relpref import PreferenceData
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> data = PreferenceData.from_tables(answers=answers)
    >>> import numpy as np
    >>> from relpref.infer import from_samples
    >>> from relpref.models import xpgp
    >>> draws = np.random.default_rng(0).normal(size=(50, 3))
    >>> samples = {"utility": draws, "individual_amplitude": np.ones(50)}
    >>> posterior = from_samples(samples, xpgp, data)
    """
    fields = {name: np.asarray(value, np.float64) for name, value in (extra_fields or {}).items()}
    with float64():
        origin = Origin(program, args, kwargs)
        given = origin.read()
        layout = given.layout
        needed = [name for name, _ in layout.hyperparameters]
        needed += [name if name in samples else name + BASE for name, _ in layout.latents]
        missing = [name for name in needed if name not in samples]
        if missing:
            raise DataError(
                f"samples lack the site {missing[0]!r}; they hold {', '.join(samples) or 'nothing'}"
            )
        draws = {name: jnp.asarray(np.asarray(samples[name]), float) for name in needed}
        lengths = {name: len(value) for name, value in (draws | fields).items()}
        number = min(lengths.values())
        if len(set(lengths.values())) != 1 or number < 2:
            raise DataError(
                f"samples hold different numbers of draws, or fewer than two: {lengths}"
            )
        if num_chains < 1 or number % num_chains:
            raise DataError(f"{number} draws cannot be {num_chains} chains of equal length")
        size = layout.num_latents
        latents, parts = draws, dict[str, Any]()
        if any(name not in draws for name, _ in layout.latents) or fits(MATRICES * 8.0 * size**2):
            require_memory_for(size)
            # At one value of the hyperparameters one factor of the covariance will do.
            fixed = all(np.all(draws[name] == draws[name][0]) for name, _ in layout.hyperparameters)
            latents, parts = _latent_parts(given, draws, fixed)
    values = {name: np.asarray(latents[name]).reshape(number, -1) for name, _ in layout.latents}
    hyperparameter_draws = {name: np.asarray(draws[name]) for name, _ in layout.hyperparameters}
    summaries = {}
    # Means of parts, and their covariances with the total over the draws.
    for name, total in values.items():
        centered = (total - total.mean(axis=0)) / (number - 1)
        drawn = {part: np.asarray(value) for part, value in parts.get(name, {}).items()}
        means = {part: value.mean(axis=0) for part, value in drawn.items()}
        covariances = {part: (centered * value).sum(axis=0) for part, value in drawn.items()}
        summaries[name] = Parts(means, covariances)
    common = {
        "belief": DrawsBelief(np.concatenate(list(values.values()), axis=1), fields),
        "parts": summaries,
        "hyperparameters": {
            name: value.mean(axis=0) for name, value in hyperparameter_draws.items()
        },
        "hyperparameter_draws": hyperparameter_draws,
        "log_evidence": None,
        "info": {
            "engine": "samples",
            "result": "converged",
            "iterations": number,
            "chains": num_chains,
        },
        "sites": {},
        "key": as_key(rng_key),
    }
    return choose(origin, layout.slices, common)


@compiled(static_argnums=2)
def _latent_parts(
    program: Program, draws: Values, fixed: bool
) -> tuple[Values, dict[str, dict[str, Array]]]:
    """Gaussian sites at each draw, and the expectation of their named parts given them, K_p K⁻¹ u.

    ``fixed`` hyperparameters do not move.
    """
    layout = program.layout

    def at_draw(values: Values) -> tuple[Values, dict[str, dict[str, Array]]]:
        placeholder = {name: jnp.zeros(shape) for name, shape in layout.latents}
        sites = program.call.trace(program.arrays, {**placeholder, **values})
        latents, parts = {}, {}
        for name, shape in layout.latents:
            location, covariance = gaussian_parts(sites[name]["fn"])
            covariance = covariance.in_memory()
            root = covariance.root().lower
            value = (
                jnp.ravel(values[name])
                if name in values
                else location + root @ jnp.ravel(values[name + BASE])
            )
            latents[name] = jnp.reshape(value, shape)
            alpha = jax.scipy.linalg.cho_solve((root, True), value - location)
            named = getattr(covariance, "parts", {})
            raw = {part: operator.dense() @ alpha for part, operator in named.items()}
            # Jitter, where the covariance needed it, belongs to no part: share it out so that the
            # parts add up to u.
            missing = (value - location - sum(raw.values(), jnp.zeros_like(value))) / max(
                len(raw), 1
            )
            parts[name] = {part: mean + missing for part, mean in raw.items()}
        return latents, parts

    if fixed:
        constant = {name: draws[name][0] for name, _ in layout.hyperparameters}
        moving = {name: value for name, value in draws.items() if name not in constant}
        return jax.vmap(lambda values: at_draw({**constant, **values}))(moving)
    return jax.lax.map(at_draw, draws)
