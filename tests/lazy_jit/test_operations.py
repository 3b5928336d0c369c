"""Every operation in NumPy against the same compiled by XLA."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax import lax
from numpy.testing import assert_allclose

from relpref.lazy_jit.steps import Steps, translate

RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((2, 4, 4))
POSITIVE = A @ A.T + np.eye(4)
X = RNG.standard_normal(4)
CUBE = RNG.standard_normal((3, 4, 5))
INTEGERS = np.array([[3, -2, 7], [0, 5, -9]])
PLACES = np.array([2, 0, 2, 1])


def check(function: Callable[..., Any], *args: Any, tolerance: float = 1e-13) -> Steps:
    """Compare the steps of a function with XLA; none of them may be left to JAX."""
    args = tuple(np.asarray(jnp.asarray(arg)) for arg in args)  # in the precision of the test
    steps = translate(jax.jit(function).trace(*args).jaxpr, list(args))
    assert "f0(" not in steps.source
    results = steps.run(list(args), np.inf)
    for result, expected in zip(results, jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        assert isinstance(result, np.ndarray | np.generic)
        assert result.dtype == expected.dtype and result.shape == expected.shape
        slack = tolerance if result.dtype == np.float64 else 3e-6
        assert_allclose(np.asarray(result), expected, rtol=slack, atol=slack)
    return steps


UNARY = [
    jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.sqrt, jnp.sin, jnp.cos, jnp.tan, jnp.arctan,
    jnp.sinh, jnp.cosh, jnp.tanh, jnp.abs, jnp.sign, jnp.floor, jnp.ceil, jnp.isfinite, jnp.isnan, jnp.square,
    jnp.negative, lax.rsqrt, lax.logistic, lax.erf, lax.erfc, jax.nn.softplus, jax.nn.relu, jax.scipy.special.log_ndtr,
    lambda x: x**3, lambda x: x**-2, lambda x: x**0.7, lambda x: lax.integer_pow(x, 7), jnp.round, lax.round,
    lambda x: jnp.clip(x, -1, 2), lambda x: jnp.where(x > 0, x, 0.5), lambda x: x.astype(bool), lambda x: ~(x > 0),
    jnp.nan_to_num,
]  # fmt: skip
ORDINARY = st.floats(-50, 50, width=32, allow_subnormal=False)
STRANGE = st.sampled_from([0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan])


# The same function object for each example, so that JAX compiles it once.
@cache
def of_vector_and_scalar(function: Any) -> Any:
    return lambda x: (function(x), function(x[0]))


@cache
def of_broadcast_arrays(function: Any) -> Any:
    if function is lax.rem:  # does not broadcast
        return lambda x, y: function(x, y)
    return lambda x, y: (function(x, y), function(x[0, 0], y[0]), function(x[:, :1], y[0]))


@pytest.mark.parametrize("function", UNARY, ids=lambda f: getattr(f, "__name__", "?"))
@settings(max_examples=8, deadline=None)
@given(x=hnp.arrays(np.float64, 7, elements=ORDINARY | STRANGE))
def test_functions_of_one_array(function: Any, x: Any) -> None:
    with jax.enable_x64(True):
        check(of_vector_and_scalar(function), x, tolerance=1e-11)


BINARY = [
    jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum, jnp.minimum, jnp.less, jnp.less_equal, jnp.greater,
    jnp.greater_equal, jnp.equal, jnp.not_equal, jnp.arctan2, jnp.logaddexp, jnp.hypot, lax.rem,
    lambda a, b: jnp.where(a > b, a, b),
]  # fmt: skip


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
@settings(max_examples=8, deadline=None)
@given(xy=hnp.arrays(np.float64, (2, 2, 3), elements=ORDINARY | STRANGE))
def test_functions_of_two_arrays(function: Any, xy: Any) -> None:
    with jax.enable_x64(True):
        check(of_broadcast_arrays(function), *xy, tolerance=1e-12)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda x: jax.scipy.special.gammaln(jnp.abs(x)), [X]),
        (lambda x: jax.scipy.special.digamma(jnp.abs(x) + 1), [X]),
        (lambda x: jax.scipy.special.ndtri(jax.nn.sigmoid(x)), [X]),
        (lambda x: jax.scipy.special.erfinv(jnp.tanh(x)), [X]),
    ],
)  # fmt: skip
def test_special_functions(function: Any, args: list[Any]) -> None:
    with jax.enable_x64(True):
        check(function, *args, tolerance=1e-10)


# Not around 26.6, where XLA rounds erfc to 0 and erfcx of JAX 0.10 with it.
WIDE = np.concatenate(
    [np.linspace(-26, 26, 4001), [0.0, 1.0, 2.25, 27.0, 50.0, 1e5, 1e200, np.inf, np.nan]]
)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("function", [jax.scipy.special.erfcx, lax.erfc, lax.erf])
def test_error_functions_and_their_derivatives(function: Any, order: int) -> None:
    for _ in range(order):
        function = jax.grad(function)
    with jax.enable_x64(True):
        check(jax.vmap(function), WIDE, tolerance=1e-11)


@pytest.mark.parametrize("precise", [True, False])
def test_polynomials_and_bits(precise: bool) -> None:
    """Coefficients are numbers, or arrays that are broadcast; newer versions of JAX have an
    operation for them.
    """

    def horner(x: Any, coefficients: Any) -> Any:
        return sum(coefficient * x**power for power, coefficient in enumerate(coefficients))

    polynomial = getattr(lax, "polynomial", horner)

    def polynomials(x: Any, more: Any) -> Any:
        many = jnp.broadcast_to(0.3 * x, (3, *np.shape(x)))
        return polynomial(x, [1.0, more, -3.0, x]), polynomial(many, [1.0, 2.0, -3.0] * 5)

    places = (A, X[None]), (X[None], A[:, :1]), (A[:, :1], A[:1]), (A[0, 0], A[1, 1])

    def bits(x: Any) -> Any:
        kind = np.dtype(f"int{8 * x.dtype.itemsize}")
        broadcast = lax.bitcast_convert_type(jnp.ones((3, 1)) * x.ravel()[0], kind)
        whole = lax.bitcast_convert_type(x, kind)
        return whole & 255, lax.bitcast_convert_type(whole & -256, x.dtype), broadcast

    with jax.enable_x64(precise):
        for x, more in places:
            check(polynomials, x, more)
        for x in (A, A[0, 0], A.T, A[::2, ::-1]):
            check(bits, x)


SHAPES: dict[str, Any] = {
    "broadcast": lambda x: jnp.broadcast_to(x[:, None, :], (4, 2, 4)) + 0,
    "rows": lambda x: x[:, None] * x[None, :, 0, None],
    "scalar": lambda x: jnp.full((3, 2), x[0, 0]).sum(0),
    "ones": lambda x: jnp.broadcast_to(jnp.ones((1, 4)), (4, 4)) @ x,
    "transpose": lambda x: x.T + jnp.broadcast_to(x[0], (4, 4)).T,
    "reshape": lambda x: x.reshape(2, 8).reshape(-1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "slice": lambda x: x[1:4:2, ::-1],
    "reverse": lambda x: x[::-1],
    "split": lambda x: jnp.split(x, [1, 3]),
    "concatenate": lambda x: jnp.concatenate([x, jnp.zeros((2, 4))]),
    "stack": lambda x: (jnp.stack([x, 2 * x]), jnp.stack([x[0], x[1]], 1), jnp.stack([x[0, 0], x[1, 1]])),
    "tile": lambda x: jnp.tile(x, (2, 1)),
    "pad": lambda x: jnp.pad(x, ((1, 0), (0, 2))),
    "pad within": lambda x: lax.pad(x, jnp.zeros((), x.dtype), ((-1, 2, 1), (1, -2, 2))),
    "diagonal": lambda x: (jnp.diag(x), jnp.diag(x[0]), jnp.tril(x), jnp.triu(x, 1), jnp.trace(x)),
    "iota": lambda x: jnp.arange(4) * x + jnp.eye(4),
    "sums": lambda x: (x.sum(), x.sum(0), x.sum(1, keepdims=True), x.mean(), x.var(1), x.prod(0)),
    "extremes": lambda x: (x.max(), x.min(0), x.argmax(), x.argmin(1), jnp.ptp(x)),
    "truth": lambda x: (jnp.all(x > 0), jnp.any(x > 0, 1), jnp.count_nonzero(x > 0)),
    "constants": lambda x: (jnp.full((3,), 2.0).max(), jnp.ones((2, 3)).sum(1), jnp.zeros((0,)).sum()),
    "nothing": lambda x: (jnp.max(x[:0], initial=1.0), x[:0].sum(0), x[:0] @ x, jnp.all(x[:0] > 0)),
    "cumulative": lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x), lax.cumsum(x, 1, reverse=True)),
    "logs": lambda x: (jax.nn.logsumexp(x, 1), jax.nn.softmax(x), jax.nn.log_softmax(x, 0)),
    "sort": lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), lax.sort((x, -x, 2 * x), num_keys=2)),
    "select": lambda x: (lax.select_n(jnp.array(2), x, 2 * x, 3 * x), lax.select_n(x[0, 0] > 0, x, -x)),
    "several": lambda x: lax.select_n(jnp.array([[0, 1], [2, 1]]), x[:2, :2], x[2:, :2], x[2:, 2:]),
    "scalars": lambda x: (jnp.maximum(x[0, 0], x[1, 1]), jnp.isfinite(x[0, 0] / 0), ~jnp.isfinite(x[0, 0])),
    "choice": lambda x: lax.select_n((x[0, 0] > 0).astype(int) + 1, x[0, 1], x[0, 2], x[0, 3]),
    "equal": lambda x: (x * 2 + x * 2, (x * 2).sum() + (x * 2).sum()),
    "types": lambda x: (x.astype(jnp.float32), x.astype(int), x > 0, (x > 0).astype(jnp.int8), x.astype(int) / 2),
    "identity": lambda x: (x, x.T, 3.0),
}  # fmt: skip


INTEGER: dict[str, Any] = {
    "division": lambda x: (x // 2, x % 3, -x // 4, lax.div(x, jnp.full_like(x, 2)), lax.rem(x, jnp.full_like(x, 4))),
    "sums": lambda x: (x.sum(0), x.max(), x.min(1), abs(x), jnp.sign(x), x.prod(), x @ x.T, jnp.cumsum(x, 0)),
    "bits": lambda x: (x & 3, x | 8, x ^ 5, ~x, x.astype(jnp.uint32), x > 0),
    "others": lambda x: (jnp.where(x > 0, x, 0), jnp.clip(x, -1, 4), x**2, lax.pow(x.astype(float), x), jnp.sort(x, 1)),
}  # fmt: skip


PRODUCTS: dict[str, Any] = {
    "matrices": lambda a, b, x, c: (a @ b, a.T @ b, a @ b.T, a.T @ b.T, jnp.kron(a, b)),
    "vectors": lambda a, b, x, c: (a @ x, x @ a, a.T @ x, jnp.vdot(x, x), jnp.outer(x, x)),
    "sums of cubes": lambda a, b, x, c: (jnp.einsum("ijk,jl->ikl", c, a), jnp.einsum("ijk,ilk->ijl", c, c)),
    "sums of pairs": lambda a, b, x, c: (jnp.einsum("ijk,ijk->i", c, c), jnp.einsum("ij,ij->ij", a, b)),
    "tensors": lambda a, b, x, c: jnp.tensordot(c, c, ([0, 2], [0, 2])),
    "many": lambda a, b, x, c: jax.vmap(lambda x, y: x @ y.T)(c, c),
}  # fmt: skip


MATRICES: dict[str, Any] = {
    "cholesky": jnp.linalg.cholesky,
    "cholesky fails": lambda a: jnp.linalg.cholesky(-a),
    "cholesky of many": lambda a: jnp.linalg.cholesky(jnp.stack([a, -a, 2 * a])),
    "lower": lambda a: jax.scipy.linalg.solve_triangular(a, a + 1, lower=True),
    "upper": lambda a: jax.scipy.linalg.solve_triangular(a, a + 1, lower=False),
    "lower transposed": lambda a: jax.scipy.linalg.solve_triangular(a, a + 1, trans=1, lower=True),
    "upper transposed": lambda a: jax.scipy.linalg.solve_triangular(a, a[0], trans=1),
    "unit": lambda a: jax.scipy.linalg.solve_triangular(a, a + 1, lower=True, unit_diagonal=True),
    "right": lambda a: lax.linalg.triangular_solve(a, a + 2, left_side=False, lower=True),
    "right transposed": lambda a: lax.linalg.triangular_solve(a, a + 2, lower=False, transpose_a=True),
    "many": lambda a: lax.linalg.triangular_solve(jnp.stack([a, 2 * a]), jnp.stack([a.T, a]), lower=True, left_side=True),
    "cho_solve": lambda a: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), a[0]),
    "positive": lambda a: jax.scipy.linalg.solve(a, a[0], assume_a="pos"),
    "inverse of transposed": lambda a: jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(a).T, jnp.eye(4)),
    "eigenvalues": lambda a: jnp.linalg.eigh(a)[0],
    "eigenvectors": lambda a: jnp.linalg.eigh(a)[1] ** 2,
    "gradient": jax.grad(lambda a: jnp.linalg.cholesky(a).sum()),
}  # fmt: skip


TAKEN: dict[str, Any] = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x[:, i],
    "pairs": lambda x, i: x[i, i[::-1]],
    "block": lambda x, i: x[i[:, None], i[None]],
    "one": lambda x, i: (x[1], x[:, -1], x[2, 3], x[i[0]], x[i[0], i[1]]),
    "window": lambda x, i: x[1:3, i],
    "mask": lambda x, i: jnp.where(x[i] > 0, x[i], 0),
    "take": lambda x, i: (jnp.take(x, i, 0), jnp.take(x, i, 1), jnp.take(x, i)),
    "outside": lambda x, i: [x.at[3 * i].get(mode=mode) for mode in ("fill", "clip")],
    "negative": lambda x, i: x[i - 3],
    "fill": lambda x, i: (x.at[3 * i].get(mode="fill", fill_value=7.0), i.at[3 * i].get(mode="fill"), (x > 0).at[3 * i].get(mode="fill")),
    "along": lambda x, i: jnp.take_along_axis(x, jnp.stack([i] * 4), 1),
    "batched": lambda x, i: jax.vmap(lambda row, place: row[place])(x, i),
    "windows": lambda x, i: jax.vmap(lambda place: lax.dynamic_slice(x, (place, 1), (2, 3)))(i),
    "batched windows": lambda x, i: jax.vmap(lambda row, place: lax.dynamic_slice(row, (place,), (2,)))(x, i),
    "dynamic": lambda x, i: (lax.dynamic_slice(x, (i[0] + 9, i[1]), (2, 2)), lax.dynamic_index_in_dim(x, i[0])),
    "update": lambda x, i: lax.dynamic_update_slice(x, x[:2, :2], (i[0] + 9, i[1])),
    "set": lambda x, i: (x.at[1].set(3.0), x.at[i[::2]].set(2.0), x.at[:, 2].set(i * 1.0)),
    "add": lambda x, i: (x.at[i].add(x), x.at[i, i].add(1.0), x.at[:, i].add(1.0), i.at[i].add(2)),
    "add outside": lambda x, i: (x.at[3 * i].add(x), x.at[3 * i].add(x, mode="clip"), x.at[3 * i, i].add(1.0)),
    "segments": lambda x, i: (jax.ops.segment_sum(x, i, 5), jnp.bincount(i, length=5)),
    "batched set": lambda x, i: jax.vmap(lambda row, place: row.at[place].set(5.0))(x, i),
    "batched add": lambda x, i: jax.vmap(lambda row, place: row.at[place].add(row))(x, i[:, None] + jnp.zeros((4, 4), int)),
    "gradient": lambda x, i: jax.grad(lambda x: (x[i, i[::-1]] ** 2).sum())(x),
}  # fmt: skip


def newton(x: Any) -> Any:
    return lax.while_loop(
        lambda s: abs(s[0] ** 2 - x) > 1e-6,
        lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1, s[2]),
        (x, 0, 7.0),
    )


CONTROL: dict[str, Any] = {
    "while": lambda x: newton(jnp.abs(x[0, 0]) + 1),
    "while of many": lambda x: jax.vmap(newton)(jnp.abs(x[0]) + 1),
    "never": lambda x: lax.while_loop(lambda s: s[0] < 0, lambda s: (s[0] + 1, s[1] * 2), (1, x)),
    "one result": lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2, s[2] @ x), (0, x, x))[1],
    "swap": lambda x: lax.fori_loop(0, 5, lambda i, s: (s[1], s[0] + i), (x, 2 * x)),
    "invariant": lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] + x @ x, s[2]), (0, x, jnp.exp(x))),
    "broadcast": lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + x), (0, jnp.zeros((4, 4)))),
    "cond": lambda x: (lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), lax.cond(x[0, 0] < 0, jnp.sin, jnp.cos, x)),
    "zeros": lambda x: lax.cond(x[0, 0] > 9, jnp.exp, jnp.zeros_like, x),
    "switch": lambda x: [lax.switch((x[0, 0] > 9).astype(int) + i, [jnp.sin, jnp.cos, jnp.tan], x) for i in range(-1, 4)],
    "scan": lambda x: lax.scan(lambda c, r: (c + r, c * r), jnp.zeros(4), jnp.tile(x, (10, 1))),
    "short scan": lambda x: lax.scan(lambda c, r: (c + r, c[0]), jnp.zeros(4), x),
    "backwards": lambda x: (lax.scan(lambda c, r: (c + r, c), x[0], x, reverse=True),
                            lax.scan(lambda c, r: (c + r, c), x[0], jnp.tile(x, (9, 1)), reverse=True)),
    "no rows": lambda x: lax.scan(lambda c, r: (c + r, c), x[0], x[:0]),
    "map": lambda x: lax.map(lambda r: jnp.where(r[0] > 0, r.sum(), 0.0), jnp.tile(x, (10, 1))),
    "polyval": lambda x: jnp.polyval(jnp.arange(9.0), x),
    "nested": lambda x: lax.fori_loop(0, 3, lambda i, c: lax.cond(i > 1, lambda c: lax.fori_loop(0, i, lambda j, d: d + x * j, c), jnp.sin, c), x),
    "gradient": lambda x: jax.grad(lambda x: lax.scan(lambda c, r: (jnp.tanh(c * r + x[0]), None), x[1], jnp.tile(x, (9, 1)))[0].sum())(x),
    "custom": lambda x: (jax.nn.gelu(x), jax.grad(lambda x: jax.nn.relu(x).sum())(x), jax.checkpoint(jnp.sin)(x)),
    "solve": lambda x: lax.custom_linear_solve(lambda v: 2 * v, x, lambda _, b: b / 2, symmetric=True),
    "jacobian": jax.jacfwd(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(4))[:, 0]),
    "hessian": jax.hessian(lambda x: jax.nn.logsumexp(x @ x[0])),
    "dead": lambda x: (jnp.linalg.svd(x)[1].sum(), x + 1)[1],
}  # fmt: skip


KINDS: dict[str, tuple[dict[str, Any], list[Any], float]] = {
    "shapes": (SHAPES, [A], 1e-13),
    "integers": (INTEGER, [INTEGERS], 1e-13),
    "products": (PRODUCTS, [A, B, X, CUBE], 1e-13),
    "matrices": (MATRICES, [POSITIVE], 1e-12),
    "places": (TAKEN, [A, PLACES], 1e-13),
    "control flow": (CONTROL, [A], 1e-11),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in KINDS for name in KINDS[kind][0]]
)
def test_operations(kind: str, name: str) -> None:
    functions, args, tolerance = KINDS[kind]
    with jax.enable_x64(True):
        check(functions[name], *args, tolerance=tolerance)
        if kind == "places":  # constants of the function
            check(lambda x: functions[name](x, jnp.asarray(PLACES)), A)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision(kind: str) -> None:
    """All functions of a kind, compiled together."""
    functions, args, _ = KINDS[kind]
    with jax.enable_x64(False):
        check(lambda *args: [function(*args) for function in functions.values()], *args)
