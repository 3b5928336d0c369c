"""A box for what travels beside the arrays of a pytree and must not cause a new compilation."""

from typing import Any


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
