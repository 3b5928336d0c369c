"""A traced function as a list of steps in NumPy, and what running and compiling it cost."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr

from relpref.lazy_jit.functions import NAMES
from relpref.lazy_jit.primitives import RULES
from relpref.lazy_jit.writer import (
    TooLongError,
    UntranslatableError,
    Value,
    Writer,
    check,
    freed,
    indented,
)

# Estimates in seconds: to compile anything, and for each operation more.
_START, _COMPILE = 0.03, 3e-3
# A fit calls its functions about so often: a call may cost that share of what compiling costs.
_CALLS = 80


class Steps(NamedTuple):
    """A translated function."""

    run: Callable[[list[Any], float], list[Any]]  # raises `TooLongError`
    number: int
    least: float  # what a run costs at least, in estimated seconds
    most: float  # what a run may cost at most
    source: str


def translate(closed: ClosedJaxpr, leaves: Sequence[Any]) -> Steps:
    """Steps for a jaxpr, to be called with leaves of the same types as the given ones.

    Raises
    ------
    UntranslatableError
        If JAX has to run it.
    """
    jaxpr = closed.jaxpr
    if jaxpr.effects:
        raise UntranslatableError("effects")
    writer = Writer({**NAMES, "TooLongError": TooLongError}, RULES)
    wanted = [True] * len(jaxpr.outvars)
    needed = writer.needs(jaxpr, wanted)
    given: list[Value | None] = []
    for number, (variable, leaf) in enumerate(zip(jaxpr.invars, leaves, strict=True)):
        if variable not in needed:
            given.append(None)
            continue
        check(variable.aval)
        name, shape, dtype = writer.fresh(), variable.aval.shape, variable.aval.dtype
        text = f"leaves[{number}]"
        if (
            not isinstance(leaf, np.ndarray | np.generic)
            or leaf.dtype != dtype
            or not leaf.dtype.isnative
        ):
            text = f"asarray({text}, '{dtype}')"
        if not shape:
            text += "[()]"
        writer.block.lines.append((f"{name} = {text}", 0))
        given.append(Value(name, shape))
    found = writer.jaxpr(jaxpr, closed.consts, given, wanted)
    results = [
        writer.full(value, atom.aval.shape).text  # type: ignore[arg-type]
        for value, atom in zip(found, jaxpr.outvars, strict=True)
    ]
    body = freed(writer.block, set(results))
    end = f"return [{', '.join(results)}]"
    source = indented("def run(leaves, limit):", [f"spent = {writer.block.cost!r}", *body, end])
    exec(source, writer.names)  # noqa: S102
    inner = writer.names["run"]

    def run(leaves: list[Any], limit: float) -> list[Any]:
        with np.errstate(all="ignore"):
            found = inner(leaves, limit)
        return [_closed(one, leaves) for one in found]

    return Steps(
        run, writer.number, writer.block.cost, (_START + _COMPILE * writer.number) / _CALLS, source
    )


def _closed(result: Any, leaves: list[Any]) -> Any:
    """A read-only result."""
    if isinstance(result, np.ndarray):
        if not result.shape:
            return result[()]
        if result.flags.writeable:
            if result.base is not None or any(result is leaf for leaf in leaves):
                result = result.copy()
            result.flags.writeable = False
    return result
