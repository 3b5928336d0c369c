"""Writes jaxprs as Python on NumPy arrays: blocks, branches and loops. What single operations become is in `primitives`.

Each operation becomes one line, such as ``v7 = (v3 * v5)``. A line is left out where its result is
not used, is computed at once where it depends on constants only, and stands before a loop if
nothing in it changes. Broadcasts are not carried out as long as NumPy does that by itself: the
shape of a `Value` is the one it has, the variable of the jaxpr holds the one it stands for.
"""

import math
import re
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

Shape = tuple[int, ...]

# Estimates in seconds: to run an operation on numbers and on arrays, and for each element.
_ON_NUMBERS, _ON_ARRAYS, _ELEMENT = 2e-7, 0.6e-6, 1e-9
_CHEAP = 1e-4  # of a line whose result may not be used
_FOLDED = 50_000  # elements of a constant
_UNROLLED = 16  # repetitions of a short loop
_LARGE = 10_000  # elements of an array that is dropped as soon as it is not needed
_CALLS = 2  # of operations that JAX runs
_CONTROL = ("cond", "while", "scan")
_CALLING = (
    "jit",
    "pjit",
    "custom_jvp_call",
    "custom_vjp_call",
    "closed_call",
    "core_call",
    "remat",
    "checkpoint",
)
_NAME = re.compile(r"\bv\d+\b")


class UntranslatableError(Exception):
    """JAX has to run the function."""


class TooLongError(Exception):
    """Running took so many steps that compiling pays."""


class Value(NamedTuple):
    """An expression, the shape it has, the block that it needs, and its value if that is constant."""

    text: str
    shape: Shape
    block: int = 0
    known: Any = None


class _Block:
    """Lines that run together; those of a loop may be moved to the block around it."""

    def __init__(self, parent: "_Block | None", loop: bool = False) -> None:
        self.parent, self.loop = parent, loop
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.lines: list[tuple[str, int]] = []  # with the number of elements of what it makes
        self.seen: dict[str, Value] = {}
        self.cost = 0.0


Rule = Callable[["Writer", Any, list[Value]], "Value | Sequence[Value | None]"]


class Writer:
    """Writes a function down; `emit` is what the rules of `primitives` call."""

    def __init__(self, names: dict[str, Any], rules: dict[str, Rule]) -> None:
        self.names, self.rules = dict(names), rules
        self.block = _Block(None)
        self.number = self.calls = 0
        self._count = count()
        self._needs: dict[Any, set[Any]] = {}
        self._constants: dict[Any, Value] = {}

    def fresh(self) -> str:
        return f"v{next(self._count)}"

    def constant(self, value: Any) -> Value:
        """A value that is known beforehand."""
        value = np.asarray(value)[()]
        # Equal ones get one name, so that equal lines show.
        key = (
            (value.dtype, value.shape, value.tobytes())
            if value.size < _LARGE
            else len(self._constants)
        )
        if key not in self._constants:
            if value.shape and value.flags.writeable:
                value = value.view()
                value.flags.writeable = False
            name = f"k{len(self._constants)}"
            self.names[name] = value
            self._constants[key] = Value(name, value.shape, 0, value)
        return self._constants[key]

    def emit(
        self, template: str, operands: Sequence[Value], shape: Shape, weight: float | None = 1.0
    ) -> Value:
        """The value of an expression of operands; of the given shape.

        ``weight`` is the number of nanoseconds for each element that XLA would not take; None of
        long work that takes XLA as long.
        """
        text = template.format(*(operand.text for operand in operands))
        size = max(
            (math.prod(one) for one in (shape, *(operand.shape for operand in operands))), default=1
        )
        if size <= _FOLDED and all(operand.known is not None for operand in operands):
            with np.errstate(all="ignore"):
                known = np.asarray(eval(text, self.names))
            return self.constant(known)
        cost = _ON_NUMBERS if size == 1 else _ON_ARRAYS + (weight or 0) * size * _ELEMENT
        needed = max((operand.block for operand in operands), default=0)
        if not all(math.prod(operand.shape) for operand in operands):
            needed = (
                self.block.depth
            )  # NumPy may refuse what has no elements, where JAX never comes by
        target = self._place(needed, np.inf if weight is None else cost)
        block: _Block | None = self.block
        while block is not None:
            if text in block.seen:
                return block.seen[text]
            block = block.parent
        name = self.fresh()
        target.lines.append((f"{name} = {text}", math.prod(shape)))
        target.cost += cost
        self.number += 1
        found = target.seen[text] = Value(name, shape, target.depth)
        return found

    def _place(self, needed: int, cost: float) -> _Block:
        """Where a line stands: before loops in which nothing that it needs changes, unless only a branch has it and it is dear."""
        target = block = self.block
        while block.depth > needed and block.parent is not None and (block.loop or cost < _CHEAP):
            inside, block = block, block.parent
            if inside.loop:
                target = block
        return target

    def call(
        self, function: Callable[..., Any], operands: Sequence[Value], shapes: Sequence[Shape]
    ) -> list[Value]:
        """Several results of a Python function."""
        name, targets = f"f{len(self.names)}", [self.fresh() for _ in shapes]
        self.names[name] = function
        arguments = ", ".join(operand.text for operand in operands)
        size = sum(math.prod(shape) for shape in shapes)
        self.block.lines.append((f"{', '.join(targets)}, = {name}({arguments})", size))
        self.block.cost += 5 * _ON_ARRAYS
        self.number += 1
        return [
            Value(target, shape, self.block.depth)
            for target, shape in zip(targets, shapes, strict=True)
        ]

    def full(self, value: Value, shape: Shape) -> Value:
        """The value in its whole shape."""
        if value.shape == shape:
            return value
        return self.emit(f"spread({{}}, {shape})", [value], shape, 0.5)

    def jaxpr(
        self,
        jaxpr: Jaxpr,
        constants: Sequence[Any],
        given: Sequence[Value | None],
        wanted: Sequence[bool],
    ) -> list[Value | None]:
        """The wanted results of a jaxpr."""
        known: dict[Any, Value | None] = dict(zip(jaxpr.invars, given, strict=True))

        def read(atom: Any) -> Value | None:
            if isinstance(atom, Literal):
                return self.constant(np.asarray(atom.val, getattr(atom.aval, "dtype", None)))
            return known.get(atom)  # None where nothing needs it

        for variable, value in zip(jaxpr.constvars, constants, strict=True):
            known[variable] = value if isinstance(value, Value) else self.constant(_array(value))
        needed = self.needs(jaxpr, wanted)
        for equation in jaxpr.eqns:
            outputs = [variable in needed for variable in equation.outvars]
            if not any(outputs):
                continue
            name = equation.primitive.name
            operands = [read(atom) for atom in equation.invars]
            inner, places = inlined(equation)
            if inner is not None:
                found = self.jaxpr(
                    inner.jaxpr, inner.consts, [operands[place] for place in places], outputs
                )
            elif name in _CONTROL:
                found = getattr(self, f"_{name}")(equation, operands, outputs)
            else:
                for atom in (*equation.invars, *equation.outvars):
                    check(atom.aval)
                rule = self.rules.get(name, _by_jax)
                made = rule(self, equation, operands)  # type: ignore[arg-type]
                found = [made] if isinstance(made, Value) else list(made)
            known.update(zip(equation.outvars, found, strict=True))
        return [
            read(atom) if want else None for atom, want in zip(jaxpr.outvars, wanted, strict=True)
        ]

    # What is needed

    def needs(self, jaxpr: Jaxpr, wanted: Sequence[bool]) -> set[Any]:
        """Variables of a jaxpr that wanted results need."""
        key = (id(jaxpr), tuple(wanted))
        if key not in self._needs:
            outputs = zip(jaxpr.outvars, wanted, strict=True)
            needed = {atom for atom, want in outputs if want and not isinstance(atom, Literal)}
            for equation in reversed(jaxpr.eqns):
                marks = [variable in needed for variable in equation.outvars]
                if any(marks):
                    operands = zip(equation.invars, self._operands(equation, marks), strict=True)
                    needed |= {
                        atom for atom, want in operands if want and not isinstance(atom, Literal)
                    }
            self._needs[key] = needed
        return self._needs[key]

    def _arguments(self, jaxpr: Jaxpr, wanted: Sequence[bool]) -> list[bool]:
        """Which arguments of a jaxpr wanted results need."""
        needed = self.needs(jaxpr, wanted)
        return [variable in needed for variable in jaxpr.invars]

    def _operands(self, equation: Any, outputs: list[bool]) -> list[bool]:
        """Which operands of an equation its wanted results need."""
        parameters, number = equation.params, len(equation.invars)
        inner, places = inlined(equation)
        if inner is not None:
            found = zip(places, self._arguments(inner.jaxpr, outputs), strict=True)
            marked = {place for place, mark in found if mark}
            return [place in marked for place in range(number)]
        match equation.primitive.name:
            case "cond":
                each = [self._arguments(branch.jaxpr, outputs) for branch in parameters["branches"]]
                return [True, *map(any, zip(*each, strict=True))]
            case "while":
                tests, before = (
                    parameters["cond_nconsts"],
                    parameters["cond_nconsts"] + parameters["body_nconsts"],
                )
                carried = self._carried(equation, outputs)
                in_test = self._arguments(parameters["cond_jaxpr"].jaxpr, [True])
                in_body = self._arguments(parameters["body_jaxpr"].jaxpr, carried)
                return in_test[:tests] + in_body[: before - tests] + carried
            case "scan":
                carried = self._carried(equation, outputs)
                first, kept = _scanned(parameters)
                marks = self._arguments(parameters["jaxpr"].jaxpr, carried + outputs[kept:])
                return marks[:first] + carried + marks[first + kept :]
        return [True] * number

    def _carried(self, equation: Any, outputs: list[bool]) -> list[bool]:
        """Which carried values of a loop its wanted results need."""
        parameters = equation.params
        if equation.primitive.name == "while":
            tests, body = parameters["cond_nconsts"], parameters["body_jaxpr"].jaxpr
            first, others, number = parameters["body_nconsts"], [], len(outputs)
            test = self._arguments(parameters["cond_jaxpr"].jaxpr, [True])[tests:]
            carried = [one or two for one, two in zip(outputs, test, strict=True)]
        else:
            body, (first, number) = parameters["jaxpr"].jaxpr, _scanned(parameters)
            carried, others = outputs[:number], outputs[number:]
        while True:
            marks = self._arguments(body, carried + others)[first : first + number]
            more = [one or two for one, two in zip(carried, marks, strict=True)]
            if more == carried:
                return carried
            carried = more

    # Control flow

    def _cond(self, equation: Any, operands: list[Any], outputs: list[bool]) -> list[Value | None]:
        branches = equation.params["branches"]
        index, *given = operands
        if index.known is not None:
            chosen = branches[min(max(int(index.known), 0), len(branches) - 1)]
            return self.jaxpr(chosen.jaxpr, chosen.consts, given, outputs)
        outer, names = self.block, [self.fresh() for wanted in outputs if wanted]
        shapes = [
            variable.aval.shape
            for variable, want in zip(equation.outvars, outputs, strict=True)
            if want
        ]
        texts = []
        for number, branch in enumerate(branches):
            self.block = _Block(outer)
            found = self.jaxpr(branch.jaxpr, branch.consts, given, outputs)
            wanted = [value for value in found if value is not None]
            full = [self.full(value, shape) for value, shape in zip(wanted, shapes, strict=True)]
            word = "if" if number == 0 else "elif" if number < len(branches) - 1 else "else"
            test = f" {index.text} <= {number}" if word != "else" else ""
            lines = freed(self.block, {value.text for value in full})
            if self.block.cost > 1e-5:
                lines.insert(0, f"spent += {self.block.cost!r}")
            lines += [f"{', '.join(names)} = {', '.join(value.text for value in full)}"]
            texts.append(indented(f"{word}{test}:", lines))
        self.block = outer
        outer.lines.append(("\n".join(texts), 0))
        made = iter(
            Value(name, shape, outer.depth) for name, shape in zip(names, shapes, strict=True)
        )
        return [next(made) if wanted else None for wanted in outputs]

    def _loop(
        self,
        head: str,
        given: Sequence[Any],
        shapes: Sequence[Shape],
        carried: Sequence[bool],
        body: Jaxpr,
        first: int,
        write: Callable[[list[Any]], Sequence[Any]],
    ) -> list[Value | None]:
        """A loop in the present block, and its carried values at the end; ``body`` takes them from its argument ``first`` on.

        ``write`` writes a repetition, from the carried values in it to what they become.
        """
        outer, begin, inside = self.block, list[Value](), list[Value | None]()
        names = []
        for number, (value, shape, wanted) in enumerate(zip(given, shapes, carried, strict=True)):
            if (
                not wanted or body.outvars[number] is body.invars[first + number]
            ):  # it stays as it is
                inside.append(value if wanted else None)
                continue
            begin.append(self.full(value, shape))
            inside.append(Value(self.fresh(), shape, outer.depth + 1))
            names.append(inside[-1].text)  # type: ignore[union-attr]
        if names:
            outer.lines.append(
                (f"{', '.join(names)}, = {', '.join(value.text for value in begin)},", 0)
            )
        self.block = _Block(outer, loop=True)
        last = [
            self.full(value, shape).text
            for value, before, shape in zip(write(inside), inside, shapes, strict=True)
            if before is not None and before.text in names
        ]
        lines = freed(self.block, set(last))
        if names:
            lines.append(f"{', '.join(names)}, = {', '.join(last)},")
        check = [
            f"spent += {self.block.cost + 2e-7!r}",
            "if spent > limit:",
            "    raise TooLongError",
        ]
        size = max((size for _, size in self.block.lines), default=0)
        self.block = outer
        outer.lines.append((indented(head, [*check, *lines]), size))
        return [
            value if value is None or value.text not in names else value._replace(block=outer.depth)
            for value in inside
        ]

    def _while(self, equation: Any, operands: list[Any], outputs: list[bool]) -> list[Value | None]:
        parameters = equation.params
        test, body = parameters["cond_jaxpr"], parameters["body_jaxpr"]
        first, second = (
            parameters["cond_nconsts"],
            parameters["cond_nconsts"] + parameters["body_nconsts"],
        )
        carried = self._carried(equation, outputs)
        shapes = [variable.aval.shape for variable in equation.outvars]

        def write(inside: list[Any]) -> Sequence[Any]:
            (going,) = self.jaxpr(test.jaxpr, test.consts, operands[:first] + inside, [True])
            assert going is not None
            # Of many loops together, those that have ended stay as they are.
            going = self.full(going, test.out_avals[0].shape)
            many = ".any()" if going.shape else ""
            self.block.lines.append((f"if not {going.text}{many}:\n    break", 0))
            found = self.jaxpr(body.jaxpr, body.consts, operands[first:second] + inside, carried)
            if many:
                found = [
                    value if value is None else self._where(going, value, before, shape)
                    for value, before, shape in zip(found, inside, shapes, strict=True)
                ]
            return found

        return self._loop(
            "while True:", operands[second:], shapes, carried, body.jaxpr, second - first, write
        )

    def _where(self, test: Value, value: Value, otherwise: Value, shape: Shape) -> Value:
        """A choice by the first axes of arrays."""
        wide = test.shape + (1,) * (len(shape) - len(test.shape))
        if wide != test.shape:
            test = self.emit(f"{{}}.reshape({wide})", [test], wide, 0)
        return self.emit("np.where({}, {}, {})", [test, value, otherwise], shape)

    def _scan(self, equation: Any, operands: list[Any], outputs: list[bool]) -> list[Value | None]:
        parameters = equation.params
        body, length, backward = parameters["jaxpr"], parameters["length"], parameters["reverse"]
        first, kept = _scanned(parameters)
        fixed, given, rows = (
            operands[:first],
            operands[first : first + kept],
            operands[first + kept :],
        )
        carried, stacked = self._carried(equation, outputs), outputs[kept:]
        shapes = [variable.aval.shape for variable in equation.outvars]
        sources = [
            None if row is None else self.full(row, variable.aval.shape)
            for row, variable in zip(rows, equation.invars[first + kept :], strict=True)
        ]

        def row(source: Value | None, place: Value) -> Value | None:
            return (
                None
                if source is None
                else self.emit("{}[{}]", [source, place], source.shape[1:], 0)
            )

        order = range(length)[::-1] if backward else range(length)
        if length <= _UNROLLED and len(body.jaxpr.eqns) * length <= 4 * _UNROLLED:
            state, parts = list(given), []
            for number in order:
                place = self.constant(np.intp(number))
                found = self.jaxpr(
                    body.jaxpr,
                    body.consts,
                    [*fixed, *state, *(row(one, place) for one in sources)],
                    carried + stacked,
                )
                state = found[:kept]
                parts.append(found[kept:])
            columns = list(zip(*(parts[::-1] if backward else parts), strict=True)) or [()] * len(
                stacked
            )
            ends: list[Value | None] = [
                self.stack(column, variable) if wanted else None
                for column, wanted, variable in zip(
                    columns, stacked, equation.outvars[kept:], strict=True
                )
            ]
            return [*state, *ends]
        collected: list[Value | None] = []
        for variable, wanted in zip(equation.outvars[kept:], stacked, strict=True):
            collected.append(
                Value(self.fresh(), variable.aval.shape, self.block.depth) if wanted else None
            )
            if wanted:
                made = f"empty({variable.aval.shape}, '{variable.aval.dtype}')"
                self.block.lines.append(((f"{collected[-1].text} = {made}"), variable.aval.size))  # type: ignore[union-attr]
        at = self.fresh()

        def write(inside: list[Any]) -> Sequence[Any]:
            place = Value(at, (), self.block.depth)
            every = [*fixed, *inside, *(row(one, place) for one in sources)]
            found = self.jaxpr(body.jaxpr, body.consts, every, carried + stacked)
            for target, value in zip(collected, found[kept:], strict=True):
                if target is not None and value is not None:
                    self.block.lines.append((f"{target.text}[{at}] = {value.text}", 0))
            return found[:kept]

        head = f"for {at} in {order!r}:"
        ending = self._loop(head, given, shapes[:kept], carried, body.jaxpr, first, write)
        return [*ending, *collected]

    def stack(self, column: Sequence[Value], variable: Any) -> Value:
        """Values one behind another along a new first axis."""
        shape = variable.aval.shape
        parts = [self.full(value, shape[1:]) for value in column]
        places = "".join(f"{{{number}}}, " for number in range(len(parts)))
        made = f"array(({places}), '{variable.aval.dtype}').reshape({shape})"
        return self.emit(made, parts, shape)


def _scanned(parameters: dict[str, Any]) -> tuple[int, int]:
    """How many constants a scan has, and how many carried values."""
    if "num_consts" in parameters:
        return parameters["num_consts"], parameters["num_carry"]
    constants, carried, _ = parameters["ft_in"].unpack()  # from JAX 0.12 on
    return len(constants), len(carried)


def inlined(equation: Any) -> tuple[ClosedJaxpr | None, Sequence[int]]:
    """The jaxpr that an equation calls once, if it does, and which of its operands that takes."""
    parameters, every = equation.params, range(len(equation.invars))
    if equation.primitive.name == "custom_linear_solve":
        lengths = parameters["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        last = first + lengths.solve
        return parameters["jaxprs"].solve, [
            *every[first:last],
            *every[last + lengths.transpose_solve :],
        ]
    inner = parameters.get("jaxpr") or parameters.get("call_jaxpr")
    if inner is None or not equation.primitive.name.startswith(_CALLING):
        return None, ()
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ()), every


def _by_jax(writer: Writer, equation: Any, operands: list[Value]) -> list[Value]:
    """An operation for which there is no rule: JAX compiles it alone."""
    writer.calls += 1
    if writer.calls > _CALLS or writer.block.parent is not None:
        raise UntranslatableError(equation.primitive.name)
    full = [
        writer.full(value, variable.aval.shape)
        for value, variable in zip(operands, equation.invars, strict=True)
    ]
    primitive, parameters = equation.primitive, equation.params

    def run(*given: Any) -> list[Any]:
        found = primitive.bind(*given, **parameters)
        return [np.asarray(one)[()] for one in (found if primitive.multiple_results else [found])]

    return writer.call(run, full, [variable.aval.shape for variable in equation.outvars])


def check(aval: Any) -> None:
    """Refuse what NumPy has no type for, or computes otherwise."""
    dtype = getattr(aval, "dtype", None)
    if (
        not isinstance(dtype, np.dtype)
        or dtype.kind not in "biuf"
        or dtype.itemsize == 2
        and dtype.kind == "f"
    ):
        raise UntranslatableError(f"values of type {aval}")


def _array(value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise UntranslatableError("a tracer of another trace")
    check(value if hasattr(value, "dtype") else np.asarray(value))
    return np.asarray(value)


def indented(head: str, lines: Sequence[str]) -> str:
    """Lines of a block under its head."""
    return "\n".join([head, *("    " + line.replace("\n", "\n    ") for line in lines)])


def freed(block: _Block, used: set[str]) -> list[str]:
    """The lines of a block; large arrays of it are dropped after their last use, except those ``used`` afterwards."""
    lines = [text for text, _ in block.lines]
    last: dict[str, int] = {}
    for number, text in enumerate(lines):
        for name in _NAME.findall(text):
            last[name] = number
    drops: dict[int, list[str]] = {}
    for text, size in block.lines:
        name = text.partition(" = ")[0]
        if size > _LARGE and name in last and _NAME.fullmatch(name) and name not in used:
            drops.setdefault(last[name], []).append(name)
    return [
        part
        for number, text in enumerate(lines)
        for part in (text, *(f"{name} = None" for name in drops.get(number, ())))
    ]
