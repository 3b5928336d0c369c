"""How JAX takes `Rankings` apart and puts them together again."""

from typing import TYPE_CHECKING, Any

import jax

from relpref.data.untraced import Untraced

if TYPE_CHECKING:
    from relpref.data.rankings import Rankings


_KNOWN = ("exhaustive", "items_code", "items_alike")


def register_as_pytree(cls: type["Rankings"]) -> None:
    """Register the class: items and arrays are children; labels travel in an `Untraced` box, so that they never cause a compilation.

    What kernels have to know of the values when they are compiled is static: rankings of other items are compiled anew.
    """

    def unflatten(static: tuple[Any, ...], children: Any) -> "Rankings":
        # No checks: leaves may be tracers or placeholders.
        known, _, untraced = static
        items, positions, label, features, residual = children
        rankers, classes = untraced.content
        data = cls(items, positions, rankers, classes, label, features, residual)
        data.__dict__.update(
            zip(_KNOWN, known, strict=True)
        )  # arrays cannot be asked inside a compiled function
        return data

    jax.tree_util.register_pytree_node(cls, _flatten, unflatten)


def _flatten(data: "Rankings") -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    arrays = (data.items, data.positions, data.label, data.features, data.residual)
    known = tuple(getattr(data, name) for name in _KNOWN)
    return arrays, (known, len(data.classes), Untraced((data.rankers, data.classes)))
