"""Engines: they read a program and hand back a posterior."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relpref.infer.engine import EP
    from relpref.infer.exact.engine import Exact
    from relpref.infer.laplace import Laplace
    from relpref.infer.many import fit_many
    from relpref.infer.relation_posterior import RelationPosterior
    from relpref.infer.samples import from_samples, noncentered
    from relpref.posterior.base import Posterior
    from relpref.posterior.classes import ClassPosterior
    from relpref.posterior.utility import UtilityPosterior
    from relpref.result import InferenceWarning, Result

# Imported when first used: JAX and the engines take time.
_HOMES = {
    "EP": "infer.engine",
    "ClassPosterior": "posterior.classes",
    "Exact": "infer.exact.engine",
    "InferenceWarning": "result",
    "Laplace": "infer.laplace",
    "Posterior": "posterior.base",
    "RelationPosterior": "infer.relation_posterior",
    "Result": "result",
    "UtilityPosterior": "posterior.utility",
    "fit_many": "infer.many",
    "from_samples": "infer.samples",
    "noncentered": "infer.samples",
}

__all__ = [
    "EP",
    "ClassPosterior",
    "Exact",
    "InferenceWarning",
    "Laplace",
    "Posterior",
    "RelationPosterior",
    "Result",
    "UtilityPosterior",
    "fit_many",
    "from_samples",
    "noncentered",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'relpref.infer' has no attribute {name!r}")
    return getattr(import_module(f"relpref.{_HOMES[name]}"), name)
