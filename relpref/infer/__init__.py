"""Engines: they read a program and hand back a posterior."""

from relpref.infer.ep import EP
from relpref.infer.exact import Exact
from relpref.infer.laplace import Laplace
from relpref.infer.many import fit_many
from relpref.infer.program import noncentered
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import InferenceWarning, Result
from relpref.infer.samples import from_samples
from relpref.posterior.base import Posterior
from relpref.posterior.classes import ClassPosterior
from relpref.posterior.utility import UtilityPosterior

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
