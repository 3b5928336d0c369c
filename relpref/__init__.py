"""Bayesian preference learning and conditional ranking on relational data.

Tables in (who or what is compared, how they are related, what was answered); calibrated rankings
with uncertainty out.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relpref._version import __version__ as __version__

# Everything is imported when it is first used: ``import relpref`` alone loads none of JAX, pandas
# or ArviZ.
_NAMES = {
    "PreferenceData": "relpref.data",
    "PreferenceRanker": "relpref.classifiers",
    "Rankings": "relpref.data",
    "Relation": "relpref.data",
    "RelationData": "relpref.data",
    "compare": "relpref.diagnostics",
    "fit": "relpref.fitting",
    "load": "relpref.runs",
    "register": "relpref.registry",
}
_ROOMS = (
    "ask",
    "classifiers",
    "data",
    "data_loaders",
    "diagnostics",
    "errors",
    "explore",
    "infer",
    "kernels",
    "likelihoods",
    "linalg",
    "models",
    "report",
    "rls",
)

__all__ = [
    "PreferenceData",
    "PreferenceRanker",
    "Rankings",
    "Relation",
    "RelationData",
    "__version__",
    "compare",
    "fit",
    "load",
    "register",
]

if TYPE_CHECKING:
    from relpref.classifiers import PreferenceRanker
    from relpref.data import PreferenceData, Rankings, Relation, RelationData
    from relpref.diagnostics import compare
    from relpref.fitting import fit
    from relpref.registry import register
    from relpref.runs import load


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _ROOMS:
        return import_module(f"relpref.{name}")
    raise AttributeError(f"module 'relpref' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
