"""Exact inference for relations: the Gaussian model that regularized least squares is."""

from typing import TYPE_CHECKING, Any

from relpref.infer.exact.edges import EarlyStopping, solve_edges

if TYPE_CHECKING:
    from relpref.infer.exact.engine import Exact

__all__ = ["EarlyStopping", "Exact", "solve_edges"]


def __getattr__(name: str) -> Any:
    if name != "Exact":
        raise AttributeError(f"module 'relpref.infer.exact' has no attribute {name!r}")
    # When first used: the engine hands back posteriors, which build on the other modules here.
    from relpref.infer.exact.engine import Exact

    return Exact
