"""How JAX takes a `PreferenceData` apart and puts it together again."""

from typing import TYPE_CHECKING, Any

import jax

from relpref.data.untraced import Untraced

if TYPE_CHECKING:
    from relpref.data.preference import PreferenceData

_LEAVES = ("attributes", "attribute_center", "attribute_scale", "comparisons")


def register_as_pytree(cls: type["PreferenceData"]) -> None:
    """Register the class: arrays and graphs are children, everything else is static.

    Labels and notes travel in an `Untraced` box, so that they never cause a compilation.
    """

    def unflatten(static: tuple[Any, ...], children: Any) -> "PreferenceData":
        # No checks: leaves may be tracers or placeholders.
        answered, attribute_names, names, _, untraced = static
        *leaves, graphs = children
        if isinstance(graphs, dict):
            graphs = {name: graphs[name] for name in names}
        entities, notes, links = untraced.content
        data = object.__new__(cls)
        data.__dict__.update(
            zip(_LEAVES, leaves, strict=True),
            _graphs=graphs,
            _links=links,
            answered=answered,
            attribute_names=attribute_names,
            entities=entities,
            notes=notes,
            implicit=False,
        )
        return data

    jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, unflatten, _flatten)


def _static(data: "PreferenceData") -> tuple[Any, ...]:
    # JAX sorts the keys of a dict; the names keep their order here.
    names = tuple(data.relations)
    # The links themselves are not looked at inside compiled functions, only which graphs a relation has.
    parts = tuple((name, data.parts_of(name)) for name in data.links)
    untraced = Untraced((data.entities, data.notes, dict(data.links)))
    return data.answered, data.attribute_names, names, parts, untraced


def _flatten(data: "PreferenceData") -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (*(getattr(data, name) for name in _LEAVES), dict(data.relations)), _static(data)


def _flatten_with_keys(data: "PreferenceData") -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
    leaves = [(jax.tree_util.GetAttrKey(name), getattr(data, name)) for name in _LEAVES]
    return [*leaves, (jax.tree_util.GetAttrKey("relations"), dict(data.relations))], _static(data)
