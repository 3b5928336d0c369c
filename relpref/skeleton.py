"""Static parts of trees, and evaluation of JAX functions on any arguments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np

from relpref.compiled import float64
from relpref.pytree import is_graph

_ARRAYS = (np.ndarray, np.generic, jax.Array)


@dataclass(frozen=True)
class Skeleton:
    """Static part of a tree, for which JAX compiles a function of the tree."""

    structure: Any
    # Types of the nodes: JAX (0.10 to 0.12) takes the structures of two registered dataclasses with
    # equal fields for equal.
    kinds: tuple[type, ...]
    static: tuple[Any, ...]  # the leaves that are not arrays, in place; None where an array belongs

    @classmethod
    def split(cls, tree: Any) -> tuple[Self, tuple[Any, ...]]:
        """Separate arrays, in double precision, and graphs of a tree from everything else."""
        nodes: list[Any] = []

        def is_leaf(node: Any) -> bool:
            nodes.append(node)
            return is_graph(node)

        leaves, structure = jax.tree.flatten(tree, is_leaf=is_leaf)
        kinds = tuple(type(node) for node in nodes if not isinstance(node, _ARRAYS))
        moving = [isinstance(leaf, _ARRAYS) or is_graph(leaf) for leaf in leaves]
        arrays = tuple(_double(leaf) for leaf, moves in zip(leaves, moving, strict=True) if moves)
        static = (None if moves else leaf for leaf, moves in zip(leaves, moving, strict=True))
        return cls(structure, kinds, tuple(static)), arrays

    def join(self, arrays: Sequence[Any]) -> Any:
        """Put arrays, or what represents them, into the tree."""
        stream = iter(arrays)
        # PyTreeDef leaves are never None, so None marks an array's place.
        leaves = [next(stream) if leaf is None else leaf for leaf in self.static]
        return jax.tree.unflatten(self.structure, leaves)


def evaluated(function: Callable[..., Any], *args: Any) -> Any:
    """Evaluate a function in double precision; arrays of the result become NumPy arrays."""
    with float64():
        return jax.tree.map(np.asarray, function(*jax.tree.map(_double, args)))


def _double(leaf: Any) -> Any:
    """Array in double precision; anything but an array of real numbers stays as it is."""
    floating = isinstance(leaf, _ARRAYS) and np.issubdtype(leaf.dtype, np.floating)
    return leaf.astype(np.float64, copy=False) if floating else leaf
