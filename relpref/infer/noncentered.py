"""Whitening for samplers: the same program, with its Gaussian vectors written as L z."""

from collections.abc import Callable
from typing import Any

import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer.reparam import Reparam

from relpref.infer.observed import unwrap
from relpref.infer.program import Program
from relpref.kernels import GaussianProcess

BASE = "_base"  # the whitened site is called <site>_base


class Whitened(Reparam):
    """u = L z with z standard normal and L the root of u's covariance."""

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[None, Any]:
        """Sample z, return u."""
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
