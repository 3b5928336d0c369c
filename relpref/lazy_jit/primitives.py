"""What each operation of JAX is in NumPy and SciPy."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpref.lazy_jit.functions import extreme
from relpref.lazy_jit.writer import Rule, Shape, UntranslatableError, Value, Writer

# Element by element, see `elementwise`.
_ELEMENTWISE: dict[str, tuple[str, float]] = {
    **{name: (f"({{}} {sign} {{}})", 1.0) for name, sign in {
        "add": "+", "add_any": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^",
        "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    }.items()},
    **{name: (f"np.{function}({{}})", weight) for name, function, weight in (
        ("exp", "exp", 3.0), ("log", "log", 3.0), ("log1p", "log1p", 8.0), ("expm1", "expm1", 8.0),
        ("sqrt", "sqrt", 1.0), ("sin", "sin", 5.0), ("cos", "cos", 5.0), ("tan", "tan", 8.0),
        ("atan", "arctan", 8.0), ("sinh", "sinh", 8.0),
        ("cosh", "cosh", 8.0), ("tanh", "tanh", 5.0),
        ("atanh", "arctanh", 8.0), ("is_finite", "isfinite", 1.0), ("floor", "floor", 1.0), ("ceil", "ceil", 1.0),
        ("sign", "sign", 1.0),
    )},
    **{name: (f"special.{function}({{}})", 15.0) for name, function in {
        "erf": "erf", "erfc": "erfc", "erf_inv": "erfinv", "lgamma": "gammaln", "digamma": "psi", "logistic": "expit",
    }.items()},
    "polygamma": ("special.polygamma({}, {})", 50.0),
    "zeta": ("special.zeta({}, {})", 50.0),
    "atan2": ("np.arctan2({}, {})", 8.0),
    "neg": ("(-{})", 1.0),
    "not": ("(~{})", 1.0),
    "abs": ("abs({})", 1.0),
    "square": ("({0} * {0})", 1.0),
    "one_minus_square": ("((1 + {0}) * (1 - {0}))", 2.0),
    "rsqrt": ("(1 / np.sqrt({}))", 2.0),
    "max": ("np.maximum({}, {})", 1.0),
    "min": ("np.minimum({}, {})", 1.0),
    "clamp": ("np.minimum(np.maximum({1}, {0}), {2})", 2.0),
    "rem": ("np.fmod({}, {})", 5.0),
}  # fmt: skip
# Of numbers alone, which functions of arrays take ten times as long for. NaN goes through as in
# XLA.
_NUMBERS = {
    "max": "({0} if {0} >= {1} or {0} != {0} else {1})",
    "min": "({0} if {0} <= {1} or {0} != {0} else {1})",
    "is_finite": "({0} - {0} == 0)",
}
_NEUTRAL = {"add": 0, "add_any": 0, "mul": 1}  # numbers that change nothing
_SAME = ("copy", "copy_p", "stop_gradient", "optimization_barrier", "pvary", "reduce_precision_p")


def _together(values: Sequence[Value]) -> Shape:
    return np.broadcast_shapes(*(value.shape for value in values))


def _padded(value: Value, rank: int) -> Shape:
    """The shape of a value with a one for each axis that it lacks."""
    return (1,) * (rank - len(value.shape)) + value.shape


def _out(equation: Any) -> Any:
    return equation.outvars[0].aval


def elementwise(template: str, weight: float, name: str = "") -> Rule:
    """A rule by the expression of arrays, and the nanoseconds for each element that it takes more than XLA."""

    def rule(writer: Writer, equation: Any, operands: list[Value]) -> Value:
        shape = _together(operands)
        for number in (0, 1) if name in _NEUTRAL else ():
            if _is(operands[number], _NEUTRAL[name]):
                return operands[1 - number]
        return writer.emit(
            _NUMBERS.get(name, template) if shape == () else template, operands, shape, weight
        )

    return rule


def _same(writer: Writer, equation: Any, operands: list[Value]) -> list[Value]:
    return operands


def _is(value: Value, number: float) -> bool:
    return value.known is not None and value.shape == () and bool(value.known == number)


def _div(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    if _is(operands[1], 1):
        return operands[0]
    exact = _out(equation).dtype.kind == "f"
    return writer.emit("({} / {})" if exact else "quotient({}, {})", operands, _together(operands))


def _pow(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    base, exponent = operands
    if equation.invars[1].aval.dtype != _out(equation).dtype:
        exponent = writer.emit(f"{{}}.astype('{_out(equation).dtype}')", [exponent], exponent.shape)
    return writer.emit("({} ** {})", [base, exponent], _together(operands), 10.0)


def _integer_pow(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    power, (value,) = equation.params["y"], operands

    def raised(number: int) -> Value:
        if number == 1:
            return value
        half = raised(number // 2)
        whole = writer.emit("({0} * {0})", [half], value.shape)
        return whole if number % 2 == 0 else writer.emit("({} * {})", [whole, value], value.shape)

    if power == 0:
        return writer.constant(np.ones((), _out(equation).dtype))
    positive = raised(abs(power))
    return positive if power > 0 else writer.emit("(1 / {})", [positive], value.shape)


def _polynomial(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    """By coefficients of rising powers, by Horner's rule as XLA."""
    x, *coefficients, found = operands
    for coefficient in reversed(coefficients):
        product = writer.emit("({} * {})", [found, x], _together([found, x]))
        found = writer.emit("({} + {})", [product, coefficient], _together([product, coefficient]))
    return found


def _bitcast(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    if _out(equation).dtype.itemsize != equation.invars[0].aval.dtype.itemsize:
        raise UntranslatableError("bitcast_convert_type to another size")
    return writer.emit(f"{{}}.view('{_out(equation).dtype}')", operands, operands[0].shape, 0)


def _convert(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    dtype, (value,) = _out(equation).dtype, operands
    if dtype == equation.invars[0].aval.dtype:
        return value
    return writer.emit(f"{{}}.astype('{dtype}')", [value], value.shape)


def _select(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    which, *cases = operands
    if which.known is not None and which.shape == ():
        return cases[int(which.known)]
    shape = _together(cases)
    if which.shape == () and all(case.shape == shape for case in cases):
        if len(cases) == 2:
            return writer.emit("({2} if {0} else {1})", operands, shape, 0)
        places = ", ".join(f"{{{number + 1}}}" for number in range(len(cases)))
        return writer.emit(f"({places},)[{{0}}]", operands, shape, 0)
    if len(cases) == 2:
        return writer.emit("np.where({0}, {2}, {1})", operands, _together(operands), 2.0)
    full = [writer.full(value, _out(equation).shape) for value in operands]
    places = ", ".join(f"{{{number + 1}}}" for number in range(len(cases)))
    return writer.emit(f"np.choose({{0}}, ({places}))", full, _out(equation).shape, 5.0)


# Shapes


def _reshaped(writer: Writer, value: Value, shape: Shape) -> Value:
    return (
        value
        if value.shape in (shape, ())
        else writer.emit(f"{{}}.reshape({shape})", [value], shape, 0)
    )


def _broadcast(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    value, target = operands[0], [1] * len(_out(equation).shape)
    places = equation.params["broadcast_dimensions"]
    for place, size in zip(places, _padded(value, len(places)), strict=True):
        target[place] = size
    # NumPy adds axes of length one in front by itself.
    first = next((number for number, size in enumerate(target) if size != 1), len(target))
    shape = tuple(target[first:])
    excess = len(value.shape) - len(shape)
    same = excess >= 0 and value.shape == (1,) * excess + shape
    return value if same else _reshaped(writer, value, shape)


def _reshape(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    if equation.params.get("dimensions") is not None and equation.primitive.name == "reshape":
        raise UntranslatableError("reshape with an order of axes")
    value, shape = operands[0], _out(equation).shape
    if value.shape == () and math.prod(shape):
        return value
    return _reshaped(writer, writer.full(value, equation.invars[0].aval.shape), shape)


def _transpose(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    value, order = operands[0], equation.params["permutation"]
    if value.shape == () or list(order) == sorted(order):
        return value
    value = _reshaped(writer, value, _padded(value, len(order)))
    return writer.emit(
        f"{{}}.transpose({tuple(order)})", [value], tuple(value.shape[place] for place in order), 0
    )


def _slice(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    parameters = equation.params
    steps = parameters["strides"] or (1,) * len(parameters["start_indices"])
    bounds = zip(parameters["start_indices"], parameters["limit_indices"], steps, strict=True)
    parts = ", ".join(f"{start}:{stop}:{step}" for start, stop, step in bounds)
    return _piece(writer, equation, operands[0], parts, _out(equation).shape)


def _piece(writer: Writer, equation: Any, value: Value, parts: str, shape: Shape) -> Value:
    if value.shape == ():
        return value
    return writer.emit(
        f"{{}}[{parts}]", [writer.full(value, equation.invars[0].aval.shape)], shape, 0
    )


def _reverse(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    shape = _out(equation).shape
    parts = ", ".join(
        "::-1" if axis in equation.params["dimensions"] else ":" for axis in range(len(shape))
    )
    return _piece(writer, equation, operands[0], parts, shape)


def _split(writer: Writer, equation: Any, operands: list[Value]) -> list[Value]:
    start, pieces = 0, []
    for size, variable in zip(equation.params["sizes"], equation.outvars, strict=True):
        parts = ":, " * equation.params["axis"] + f"{start}:{start + int(size)}"
        pieces.append(_piece(writer, equation, operands[0], parts, variable.aval.shape))
        start += int(size)
    return pieces


def _concatenate(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    full = _all_full(writer, equation, operands)
    places = "{}, " * len(full)
    return writer.emit(
        f"np.concatenate(({places}), {equation.params['dimension']})", full, _out(equation).shape
    )


def _stack(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    if equation.params["axis"] == 0:
        return writer.stack(operands, equation.outvars[0])
    full, places = _all_full(writer, equation, operands), "{}, " * len(operands)
    return writer.emit(
        f"np.stack(({places}), {equation.params['axis']})", full, _out(equation).shape
    )


def _all_full(writer: Writer, equation: Any, operands: Sequence[Value]) -> list[Value]:
    return [
        writer.full(value, variable.aval.shape)
        for value, variable in zip(operands, equation.invars, strict=True)
    ]


def _iota(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    aval, axis = _out(equation), equation.params["dimension"]
    after = (1,) * (len(aval.shape) - axis - 1)
    return writer.constant(np.arange(aval.shape[axis], dtype=aval.dtype).reshape((-1, *after)))


def _function(template: str, *parameters: str, weight: float | None = 2.0) -> Rule:
    """A rule that calls a function with whole arrays and parameters of the operation."""

    def rule(writer: Writer, equation: Any, operands: list[Value]) -> Value:
        given = {name: repr(_plain(equation.params[name])) for name in parameters}
        given |= {"dtype": f"'{_out(equation).dtype}'", "shape": repr(_out(equation).shape)}
        places = {f"x{number}": f"{{{number}}}" for number in range(len(operands))}
        text = template.format_map(given | places)
        return writer.emit(
            text, _all_full(writer, equation, operands), _out(equation).shape, weight
        )

    return rule


def _plain(parameter: Any) -> Any:
    if isinstance(parameter, tuple | list):
        return tuple(map(_plain, parameter))
    return parameter if isinstance(parameter, bool) or parameter is None else int(parameter)


# Sums and products


def _reduce(function: str, lowest: str | None = None) -> Rule:
    """A rule for a sum or product, or, with what it is of nothing, for one that repeated numbers do not change."""

    def rule(writer: Writer, equation: Any, operands: list[Value]) -> Value:
        axes, before, (value,), out = (
            equation.params["axes"],
            equation.invars[0].aval,
            operands,
            _out(equation),
        )
        if not axes or (value.shape == () and lowest is not None and before.size):
            return value
        options = "None" if len(axes) == before.ndim else str(tuple(axes))
        if lowest is None:
            options += f", '{out.dtype}'"
        elif not before.size:
            options += f", initial={lowest}('{out.dtype}')"
        return writer.emit(
            f"{function}.reduce({{}}, {options})",
            [writer.full(value, before.shape)],
            out.shape,
            0.5,
        )

    return rule


def _argument(function: str) -> Rule:
    def rule(writer: Writer, equation: Any, operands: list[Value]) -> Value:
        (axis,), dtype = equation.params["axes"], equation.params["index_dtype"]
        value = writer.full(operands[0], equation.invars[0].aval.shape)
        return writer.emit(
            f"np.{function}({{}}, {axis}).astype('{np.dtype(dtype)}')",
            [value],
            _out(equation).shape,
        )

    return rule


def _dot(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    shape, dtype = _out(equation).shape, _out(equation).dtype
    first, second = _all_full(writer, equation, operands)
    one, two = (variable.aval for variable in equation.invars)
    if dtype.kind == "b":
        raise UntranslatableError("product of truth values")
    if one.dtype != dtype:
        first = writer.emit(f"{{}}.astype('{dtype}')", [first], first.shape)
    if two.dtype != dtype:
        second = writer.emit(f"{{}}.astype('{dtype}')", [second], second.shape)
    if not left_batch and len(left) == 1 and max(one.ndim, two.ndim) <= 2:
        if one.ndim == 1 and two.ndim == 2:  # a vector may stand on either side
            first, second, left, right, one, two = second, first, right, left, two, one
        form = "{}.T" if left[0] == 0 and one.ndim == 2 else "{}"
        other = "{}.T" if right[0] == 1 else "{}"
        return writer.emit(f"{form}.dot({other})", [first, second], shape, None)
    free_left = [axis for axis in range(one.ndim) if axis not in (*left, *left_batch)]
    free_right = [axis for axis in range(two.ndim) if axis not in (*right, *right_batch)]
    batch = tuple(one.shape[axis] for axis in left_batch)
    inner = math.prod(one.shape[axis] for axis in left)
    rows = math.prod(one.shape[axis] for axis in free_left)
    columns = math.prod(two.shape[axis] for axis in free_right)
    first = writer.emit(
        f"{{}}.transpose({(*left_batch, *free_left, *left)}).reshape({(*batch, rows, inner)})",
        [first], (*batch, rows, inner), 0,
    )  # fmt: skip
    second = writer.emit(
        f"{{}}.transpose({(*right_batch, *right, *free_right)}).reshape({(*batch, inner, columns)})",
        [second], (*batch, inner, columns), 0,
    )  # fmt: skip
    return writer.emit(f"({{}} @ {{}}).reshape({shape})", [first, second], shape, None)


# Places


class _Windows:
    """Which elements of an operand, flattened, a gather reads or a scatter writes."""

    def __init__(
        self,
        equation: Any,
        rank: int,
        gone: Sequence[int],
        offsets: Sequence[int],
        starts: Sequence[int],
    ) -> None:
        self.operand, self.index = (variable.aval.shape for variable in equation.invars[:2])
        self.rank, self.starts = rank, tuple(starts)
        windows = [axis for axis in range(len(self.operand)) if axis not in gone]
        # From axes of the operand to the axes of the result along which windows run.
        self.offsets = dict(zip(windows, offsets, strict=True))
        self.outer = [axis for axis in range(rank) if axis not in offsets]
        # What lies outside is left out; otherwise windows are moved inside.
        self.drop = "fill" in str(equation.params["mode"]).lower()

    def places(
        self,
        writer: Writer,
        index: Value,
        sizes: Sequence[int],
        batching: Sequence[tuple[int, int]],
    ) -> tuple[Value, Value | None]:
        """Places of all elements of the result, and where they are inside, if that matters."""
        batch = self.index[:-1]

        def along(value: Value) -> Value:
            """A value of the shape of the indices, in that of the result."""
            shape = [1] * self.rank
            for axis, size in zip(self.outer, batch, strict=True):
                shape[axis] = size
            return _reshaped(writer, value, tuple(shape))

        where, inside = writer.constant(np.intp(0)), writer.constant(np.True_)
        for axis, size in enumerate(self.operand):
            terms = []
            if axis in self.starts:
                start = writer.emit(
                    f"{{}}[..., {self.starts.index(axis)}].astype('intp')", [index], batch
                )
                limits = [writer.constant(np.intp(0)), writer.constant(np.intp(size - sizes[axis]))]
                kept = writer.emit("np.minimum(np.maximum({}, {}), {})", [start, *limits], batch)
                if self.drop:
                    good = along(writer.emit("({} == {})", [start, kept], batch))
                    inside = writer.emit("({} & {})", [inside, good], good.shape)
                terms.append(along(kept))
            for own, its in batching:
                if own == axis:
                    numbers = np.arange(size).reshape(
                        [-1 if one == its else 1 for one in range(len(batch))]
                    )
                    terms.append(along(writer.full(writer.constant(numbers), batch)))
            if axis in self.offsets:
                shape = [1] * self.rank
                shape[self.offsets[axis]] = -1
                terms.append(writer.constant(np.arange(sizes[axis]).reshape(shape)))
            stride = writer.constant(np.intp(math.prod(self.operand[axis + 1 :])))
            for term in terms:
                step = writer.emit("({} * {})", [term, stride], term.shape)
                where = writer.emit("({} + {})", [where, step], _together([where, step]))
        return where, None if inside.known is not None and np.all(inside.known) else inside


def _gather(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    numbers, sizes, out = (
        equation.params["dimension_numbers"],
        equation.params["slice_sizes"],
        _out(equation),
    )
    value, index = _all_full(writer, equation, operands)
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    starts, batching = (
        numbers.start_index_map,
        (numbers.operand_batching_dims, numbers.start_indices_batching_dims),
    )
    windows = _Windows(equation, out.ndim, gone, numbers.offset_dims, starts)
    if len(starts) == 1 and starts == gone and not windows.drop:  # whole rows along one axis
        axis, more = starts[0], len(windows.index) - 2
        whole = all(sizes[one] == windows.operand[one] for one in windows.offsets)
        if whole and all(its == one + more * (one > axis) for one, its in windows.offsets.items()):
            rows = writer.emit("{}[..., 0]", [index], windows.index[:-1], 0)
            return writer.emit(f"{{}}.take({{}}, {axis}, mode='clip')", [value, rows], out.shape)
    where, inside = windows.places(writer, index, sizes, list(zip(*batching, strict=True)))
    flat = _reshaped(writer, value, (math.prod(windows.operand),))
    found = writer.emit("{}.take({})", [flat, writer.full(where, out.shape)], out.shape)
    if inside is None:
        return found
    missing = equation.params["fill_value"]
    if missing is None:
        kind = out.dtype.kind
        missing = (
            np.nan if kind == "f" else extreme(np.inf, "min" if kind == "i" else "max", out.dtype)
        )
    return writer.emit(
        "np.where({}, {}, {})",
        [inside, found, writer.constant(np.asarray(missing, out.dtype))],
        out.shape,
    )


def _scatter(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    numbers, updates = equation.params["dimension_numbers"], equation.invars[2].aval.shape
    full = _all_full(writer, equation, operands)
    gone = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    batching = (numbers.operand_batching_dims, numbers.scatter_indices_batching_dims)
    starts = numbers.scatter_dims_to_operand_dims
    windows = _Windows(equation, len(updates), gone, numbers.update_window_dims, starts)
    sizes = [
        updates[windows.offsets[axis]] if axis in windows.offsets else 1
        for axis in range(len(windows.operand))
    ]
    where, inside = windows.places(writer, full[1], sizes, list(zip(*batching, strict=True)))
    given = [full[0], writer.full(where, updates), full[2]]
    if inside is not None:
        given.append(writer.full(inside, updates))
    adds = equation.primitive.name != "scatter"
    return writer.emit(
        f"scattered({adds}, {', '.join(['{}'] * len(given))})", given, _out(equation).shape, 5.0
    )


def _dynamic_slice(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    value, *starts = operands
    shape, sizes = equation.invars[0].aval.shape, _out(equation).shape
    return writer.emit(
        f"window({{}}, {sizes}, {'{}, ' * len(starts)})",
        [writer.full(value, shape), *starts],
        sizes,
    )


def _dynamic_update(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    value, update, *starts = operands
    full = _all_full(writer, equation, [value, update, *starts])
    return writer.emit(f"updated({'{}, ' * len(full)})", full, _out(equation).shape)


def _platform(writer: Writer, equation: Any, operands: list[Value]) -> Value:
    for number, platforms in enumerate(equation.params["platforms"]):
        if platforms is None or "cpu" in platforms:
            return writer.constant(np.int32(number))
    raise UntranslatableError("no branch for this platform")


def _sort(writer: Writer, equation: Any, operands: list[Value]) -> list[Value]:
    axis, keys = equation.params["dimension"], equation.params["num_keys"]
    full = _all_full(writer, equation, operands)
    if len(full) == 1:
        return [writer.emit(f"np.sort({{}}, {axis}, kind='stable')", full, full[0].shape, 10.0)]
    places = ", ".join(f"{{{number}}}" for number in reversed(range(keys)))
    order = writer.emit(f"np.lexsort(({places},), {axis})", full[:keys], full[0].shape, 30.0)
    return [
        writer.emit(f"np.take_along_axis({{}}, {{}}, {axis})", [one, order], one.shape, 5.0)
        for one in full
    ]


RULES: dict[str, Rule] = {
    **{name: elementwise(*form, name) for name, form in _ELEMENTWISE.items()},
    **dict.fromkeys(_SAME, _same),
    "div": _div,
    "pow": _pow,
    "integer_pow": _integer_pow,
    "polynomial": _polynomial,
    "bitcast_convert_type": _bitcast,
    "convert_element_type": _convert,
    "select_n": _select,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "rev": _reverse,
    "split": _split,
    "concatenate": _concatenate,
    "stack": _stack,
    "iota": _iota,
    "empty2": lambda writer, equation, operands: writer.constant(
        np.zeros((), _out(equation).dtype)
    ),
    "tile": _function("np.tile({x0}, {reps})", "reps"),
    "pad": _function("padded({x0}, {x1}, {padding_config}, {shape})", "padding_config"),
    "reduce_sum": _reduce("np.add"),
    "reduce_prod": _reduce("np.multiply"),
    "reduce_max": _reduce("np.maximum", "lowest"),
    "reduce_min": _reduce("np.minimum", "highest"),
    "reduce_and": _reduce("np.logical_and", "highest"),
    "reduce_or": _reduce("np.logical_or", "lowest"),
    "argmax": _argument("argmax"),
    "argmin": _argument("argmin"),
    "cumsum": _function("cumulated(np.add, {x0}, {axis}, {reverse})", "axis", "reverse"),
    "cumprod": _function("cumulated(np.multiply, {x0}, {axis}, {reverse})", "axis", "reverse"),
    "sort": _sort,
    "dot_general": _dot,
    "gather": _gather,
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add"), _scatter),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "platform_index": _platform,
    "cholesky": _function("cholesky({x0})", weight=None),
    "triangular_solve": _function(
        "solved({x0}, {x1}, left={left_side}, lower={lower}, transposed={transpose_a}, "
        "unit={unit_diagonal})",
        "left_side",
        "lower",
        "transpose_a",
        "unit_diagonal",
        weight=None,
    ),
}
