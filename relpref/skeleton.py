"""Trees without their arrays, and functions of JAX on any arguments outside of programs."""

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
    """A tree without its arrays: what JAX compiles a function of the tree for."""

    structure: Any
    # Of its nodes: JAX (0.10 to 0.12) holds the structures of two registered dataclasses for equal if their fields are.
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
            a.astype(np.float64, copy=False) if np.issubdtype(a.dtype, np.floating) else a for a in arrays
        )
        return cls(structure, kinds, static), tuple(double)

    def join(self, arrays: Sequence[Any]) -> Any:
        """The tree with its arrays, or with what stands for them."""
        stream = iter(arrays)
        # PyTreeDef leaves are never None, so None marks an array's place.
        leaves = [next(stream) if leaf is None else leaf for leaf in self.static]
        return jax.tree.unflatten(self.structure, leaves)


def evaluated(function: Callable[..., Any], *args: Any) -> Any:
    """What a function of JAX makes of any arguments, in double precision and as NumPy arrays.

    Compiled for what is not an array among the arguments: options, and objects that JAX does not know. ``function`` stays the same
    object from call to call.
    """
    skeleton, arrays = Skeleton.split(args)
    with float64():
        try:
            hash(skeleton)
        except TypeError:  # a custom kernel
            found = function(*args)
        else:
            found = _evaluated(function, skeleton, arrays)
        return jax.tree.map(np.asarray, found)


@partial(lazy_jit, static_argnums=(0, 1))
def _evaluated(function: Callable[..., Any], skeleton: Skeleton, arrays: tuple[Any, ...]) -> Any:
    return function(*skeleton.join(arrays))
