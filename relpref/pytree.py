"""Immutable data classes as JAX pytrees."""

from collections.abc import Callable, Sequence
from typing import Any

import jax


class Untraced:
    """Static data of a pytree that JAX ignores when it compares two trees.

    Any two boxes are equal and hash alike, so two data sets of equal shapes share one compilation
    although their labels differ. The price: inside a compiled function the content is that of the
    data set for which it was compiled, hence a compiled function may neither read the content nor
    return the tree that carries it.

    Parameters
    ----------
    content : object
        What to carry.
    """

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        """Return True for every other box."""
        return isinstance(other, Untraced)

    def __hash__(self) -> int:
        """Return the same number for every box."""
        return hash(Untraced)

    def __repr__(self) -> str:
        """Return a text without the content, which may be long."""
        return "Untraced(...)"


def register(
    cls: type,
    leaves: Sequence[str],
    static: Sequence[str] = (),
    untraced: Sequence[str] = (),
    restored: Callable[[Any], object] | None = None,
) -> None:
    """Register a class whose objects keep their attributes in ``__dict__``.

    Objects are made again without their constructor, so nothing is checked: leaves may be tracers or placeholders.

    Parameters
    ----------
    cls : type
    leaves : sequence of str
        Attributes, or cached properties, that are children of the tree.
    static : sequence of str
        Those that programs are compiled for: where they differ, so do the programs.
    untraced : sequence of str
        Those that never cause a compilation, see `Untraced`.
    restored : callable, optional
        Called with each object that was made again.
    """

    def flatten(data: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, Untraced]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(data, name)) for name in leaves]
        kept = tuple(getattr(data, name) for name in static)
        return children, (kept, Untraced(tuple(getattr(data, name) for name in untraced)))

    def unflatten(structure: tuple[Any, Untraced], children: Any) -> Any:
        data: Any = object.__new__(cls)
        for names, values in (
            (leaves, children),
            (static, structure[0]),
            (untraced, structure[1].content),
        ):
            data.__dict__.update(zip(names, values, strict=True))
        if restored is not None:
            restored(data)
        return data

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
