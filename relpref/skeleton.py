"""Static parts of trees, and evaluation of JAX functions on any arguments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import jax
import numpy as np

from relpref.compiled import float64
from relpref.lazy_jit import lazy_jit

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
        """Separate the arrays of a tree, in double precision, from everything else."""
        nodes: list[Any] = []
        leaves, structure = jax.tree.flatten(
            tree,
            is_leaf=nodes.append,  # type: ignore[arg-type]  # its None means no leaf
        )
        kinds = tuple(type(node) for node in nodes if not isinstance(node, _ARRAYS))
        static = tuple(None if isinstance(leaf, _ARRAYS) else leaf for leaf in leaves)
        arrays = [leaf for leaf in leaves if isinstance(leaf, _ARRAYS)]
        double = (
            a.astype(np.float64, copy=False) if np.issubdtype(a.dtype, np.floating) else a
            for a in arrays
        )
        return cls(structure, kinds, static), tuple(double)

    def join(self, arrays: Sequence[Any]) -> Any:
        """Put arrays, or what represents them, into the tree."""
        stream = iter(arrays)
        # PyTreeDef leaves are never None, so None marks an array's place.
        leaves = [next(stream) if leaf is None else leaf for leaf in self.static]
        return jax.tree.unflatten(self.structure, leaves)


def evaluated(function: Callable[..., Any], *args: Any) -> Any:
    """Evaluate a function of JAX in double precision; arrays become NumPy arrays.

    The function is compiled for its static arguments: options, and objects unknown to JAX. Pass the
    same function object in every call.
    """
    skeleton, arrays = Skeleton.split(args)
    with float64():
        try:
            hash(skeleton)
        except TypeError:  # a custom kernel
            result = function(*args)
        else:
            result = _evaluated(function, skeleton, arrays)
        return jax.tree.map(np.asarray, result)


@partial(lazy_jit, static_argnums=(0, 1))
def _evaluated(function: Callable[..., Any], skeleton: Skeleton, arrays: tuple[Any, ...]) -> Any:
    return function(*skeleton.join(arrays))
