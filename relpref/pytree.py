"""Immutable data classes as JAX pytrees, and what of a traced function depends on what."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal


@dataclass(eq=False, repr=False, slots=True)
class Untraced:
    """Static data of a pytree that JAX ignores when it compares two trees: any two boxes are equal and hash alike.

    So two data sets of equal shapes share one compilation although their labels differ. Inside a compiled function the content is that
    of the data set for which it was compiled: it may neither be read nor returned there.
    """

    content: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Untraced)

    def __hash__(self) -> int:
        return hash(Untraced)

    def __repr__(self) -> str:
        return "Untraced(...)"


def register(
    cls: type,
    leaves: Sequence[str],
    static: Sequence[str] = (),
    untraced: Sequence[str] = (),
    restored: Callable[[Any], object] | None = None,
) -> None:
    """Register a class whose objects keep their attributes in ``__dict__``; they are made again without their constructor.

    So nothing is checked: ``leaves``, attributes or cached properties, may be tracers. Programs are compiled for ``static`` ones;
    ``untraced`` ones never cause a compilation, see `Untraced`. ``restored`` is called with each object that was made again.
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


def reached(jaxpr: Any, inputs: list[bool]) -> list[bool]:
    """Which outputs of a jaxpr are computed from the marked inputs."""
    marked = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}
    for equation in jaxpr.eqns:
        marks = [not isinstance(v, Literal) and v in marked for v in equation.invars]
        inner = inlined(equation)
        found = [any(marks)] * len(equation.outvars) if inner is None else reached(inner.jaxpr, marks)
        marked |= {variable for variable, mark in zip(equation.outvars, found, strict=True) if mark}
    return [not isinstance(v, Literal) and v in marked for v in jaxpr.outvars]


def inlined(equation: Any) -> Any:
    """The closed jaxpr that an equation calls once with its own operands, if it does."""
    inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
    if inner is None or equation.primitive.name in ("scan", "while", "cond"):
        return None
    if not hasattr(inner, "jaxpr"):
        inner = ClosedJaxpr(inner, ())
    same = len(inner.jaxpr.invars) == len(equation.invars) and len(inner.jaxpr.outvars) == len(
        equation.outvars
    )
    return inner if same else None
