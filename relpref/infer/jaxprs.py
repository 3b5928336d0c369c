"""Dependence of the outputs of a traced function on its inputs."""

from typing import Any

from jax.extend.core import ClosedJaxpr, Literal


def reached(jaxpr: Any, inputs: list[bool]) -> list[bool]:
    """Whether each output of a jaxpr is computed from any of the marked inputs."""
    marked = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}
    for equation in jaxpr.eqns:
        marks = [not isinstance(v, Literal) and v in marked for v in equation.invars]
        inner = inlined(equation)
        outputs = equation.outvars
        results = [any(marks)] * len(outputs) if inner is None else reached(inner.jaxpr, marks)
        marked |= {variable for variable, mark in zip(outputs, results, strict=True) if mark}
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
