"""Conjugate gradients for many right-hand sides at once, on the host or on JAX devices.

Also threads to run them in.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from relpref.errors import DataError

Floats = NDArray[np.float64]
Block = NDArray[Any]  # float32 or float64, shape (n, k)
Reason = Literal["converged", "max_iterations", "stopped", "breakdown"]
Minimise = Literal["error", "residual"]
Callback = Callable[[int, Any, float], bool | None]

# Entries of a chunk: they stay in a core's cache from one operation to the next.
CHUNK = 2**17


class BlockCG(NamedTuple):
    """Result of `block_cg`."""

    values: Any  # a solution in each column, shape (n, k); finite, whatever the reason
    steps: int
    # √(rᵀM⁻¹r / bᵀM⁻¹b) of each column: recomputed if ``verify`` found it converged, else from the
    # recurrence.
    residual: Floats
    reason: Reason  # of the worst column, see `CGResult`


def block_cg(
    apply: Callable[[Any, Any], Any],
    rhs: Any,
    *,
    precondition: Callable[[Any, Any], Any] | None = None,
    start: Any = None,
    minimise: Minimise = "error",
    tol: float | Floats,
    max_steps: int,
    verify: bool = False,
    callback: Callback | None = None,
) -> BlockCG:
    """Solve A X = B for a symmetric positive (semi)definite A.

    Each column has separate step lengths. A column that has converged does not change any more; on
    the host, when half of the columns have converged, the rest continues without them. The result
    for a column does not depend on the others.

    ``apply`` and ``precondition`` (M⁻¹, by default the identity) go from a block and an array of
    its shape to the product. For NumPy arrays that may be written into the second argument; for JAX
    arrays it is ignored. ``rhs``, shape (n, k), has the precision to compute in; a NumPy
    array is overwritten unless ``verify``, which recomputes the residual if a column converged by
    the recurrence, and continues from the true one. ``tol`` bounds √(rᵀM⁻¹r / bᵀM⁻¹b), for all
    columns or each: with M the diagonal this norm weighs each entry by its scale. After each
    iteration the callback is called with the number of the iteration, the solutions so far (live:
    copy them to keep them) and the largest residual; if it returns True, the iterations stop. For
    ``minimise`` see `conjugate_gradient`; "residual" is without a preconditioner.
    """
    host, by_residual = isinstance(rhs, np.ndarray), minimise == "residual"
    xp: Any = np if host else jnp
    scratch = np.empty_like(rhs) if host else None

    def through(block: Any) -> Any:
        return block if precondition is None else precondition(block, scratch)

    residual = rhs.copy() if host and verify else rhs
    pushed = through(residual)
    target = inner(residual, pushed)
    values, squared = 0 * rhs, target.copy()
    if start is not None:
        # The solution for a right-hand side of zeros is zero, and no guess is near enough.
        values = xp.where(target > 0, start, values)
        residual = rhs - apply(values, xp.empty_like(rhs))
        pushed = through(residual)
        squared = inner(residual, pushed)
    count = rhs.shape[1]
    solution, live, enough, norms = (
        values,
        np.arange(count),
        np.square(tol) * target,
        squared.copy(),
    )
    running, sound = np.ones(count, dtype=bool), np.isfinite(squared)
    gain, verified, largest = np.full(count, np.inf), np.full(count, np.inf), np.zeros(count)
    direction: Any = None
    image: Any = np.empty_like(rhs) if host else None
    steps, stopped = 0, False
    while not stopped:
        reached = running[live] & (squared <= enough[live])
        if verify and reached.any():
            # By rounding, the recurrence's residual drifts away from the true one: compute that,
            # and continue from it.
            given = rhs if live.size == count else rhs[:, live]
            residual = xp.where(reached, given - apply(solution, xp.empty_like(residual)), residual)
            pushed = through(residual)
            squared = np.where(reached, inner(residual, pushed), squared)
            solved = squared <= enough[live]
            sound[live[reached & ~solved & ~(squared < 0.5 * verified)]] = False
            verified, gain = np.where(reached, squared, verified), np.where(reached, np.inf, gain)
            reached &= solved
        running[live[reached]] = False
        norms[live], active = squared, (running & sound)[live]
        if not active.any() or steps >= max_steps:
            break
        if host and 2 * np.count_nonzero(active) <= live.size:
            if solution is not values:
                values[:, live] = solution
            live = live[active]
            squared, gain, verified, largest = (
                each[active] for each in (squared, gain, verified, largest)
            )
            residual, solution = residual[:, active], values[:, live]
            direction = None if direction is None else direction[:, active]
            pushed = residual if precondition is None else pushed[:, active]
            image = image[:, active] if by_residual else np.empty_like(residual)
            scratch, active = np.empty_like(residual), active[active]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            pulled: Any = apply(pushed, scratch) if by_residual else None
            gain, before = (inner(residual, pulled) if by_residual else squared), gain
            largest = np.fmax(largest, gain / squared)
            good = (
                active & np.isfinite(gain) & (gain > np.finfo(np.float64).eps * largest * squared)
            )
            turn = np.where(good, gain / before, 0.0)
            direction = (
                pushed.copy() if direction is None else _combined(direction, turn, pushed, None)
            )
            if by_residual:
                image = pulled.copy() if steps == 0 else _combined(image, turn, pulled, None)
            else:
                image = apply(direction, image)
            curvature = inner(image if by_residual else direction, image)
            good &= np.isfinite(curvature) & (curvature > 0)
            length = np.where(good, gain / curvature, 0.0)
            residual = _combined(residual, None, image, -length)
            pushed = through(residual)
            following = np.where(active, inner(residual, pushed), squared)
        good &= np.isfinite(following)
        if (bad := active & ~good).any():  # the solution stays finite
            sound[live[bad]] = False
            length, following = np.where(bad, 0.0, length), np.where(bad, squared, following)
            residual, direction, image = (
                xp.where(bad, 0.0, block) for block in (residual, direction, image)
            )
            pushed = through(residual)
        squared = following
        if good.any():
            solution = _combined(solution, None, direction, length)
            steps += 1
        if callback is not None and good.any():
            values = _stored(values, live, solution)
            relative = squared / np.where(target[live] > 0, target[live], 1.0)
            stopped = bool(callback(steps, values, float(np.sqrt(relative.max()))))
            norms[live] = squared
    values = _stored(values, live, solution)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(target == 0, 0.0, np.sqrt(norms / target))
    reason: Reason = "stopped" if stopped else "max_iterations" if running.any() else "converged"
    return BlockCG(values, steps, left, reason if sound.all() else "breakdown")


def _stored(values: Any, live: Any, solution: Any) -> Any:
    """All solutions, with those of the live columns updated."""
    if solution is values or not isinstance(values, np.ndarray):
        return solution
    values[:, live] = solution
    return values


def _combined(block: Any, turn: Any, other: Any, length: Any) -> Any:
    """turn·block + length·other, column by column (None is 1); in place for NumPy arrays."""
    if not isinstance(block, np.ndarray):
        return _on_devices(
            block, 1.0 if turn is None else turn, other, 1.0 if length is None else length
        )
    turn, length = (
        None if factor is None else factor.astype(block.dtype) for factor in (turn, length)
    )
    for rows in chunks(block):
        if turn is not None:
            block[rows] *= turn
        block[rows] += other[rows] if length is None else other[rows] * length
    return block


@jax.jit
def _on_devices(block: Array, turn: Any, other: Array, length: Any) -> Array:
    return turn * block + length * other


@jax.jit
def _inner_on_devices(left: Array, right: Array) -> Array:
    return jnp.sum(left * right, axis=0)


def inner(left: Any, right: Any) -> Floats:
    """Inner products of the columns, added up in double precision."""
    if not isinstance(left, np.ndarray):
        return np.array(_inner_on_devices(left, right))
    total = np.zeros(left.shape[1])
    for rows in chunks(left):
        total += np.einsum("ij,ij->j", left[rows], right[rows])
    return total


def chunks(block: Block) -> Iterator[slice]:
    """Runs of rows that stay in the cache."""
    size, width = block.shape
    step = max(1, CHUNK // max(width, 1))
    for start in range(0, size, step):
        yield slice(start, start + step)


class CGResult(NamedTuple):
    """Result of `conjugate_gradient`.

    The reason is "converged"; "max_iterations"; "stopped", by the callback; or "breakdown": A is
    not positive semidefinite, a product was not finite, or the tolerance cannot be reached, in
    double precision or because b is not in the range of A; with ``minimise="residual"`` the
    solution is then one of least squares.
    """

    solution: Floats  # of the shape of the right-hand side; finite, whatever the reason
    iterations: int
    residual: float  # ‖b − A x‖ / ‖b‖: recomputed when converged, else from the recurrence
    reason: Reason


def conjugate_gradient(
    apply: Callable[[Floats], Floats],
    rhs: Floats,
    *,
    start: Floats | None = None,
    minimise: Minimise = "error",
    tol: float = 1e-8,
    max_iterations: int | None = None,
    callback: Callable[[int, Floats, float], bool | None] | None = None,
) -> CGResult:
    """Solve A x = b for a symmetric positive definite A, or a semidefinite one with b in its range.

    ``apply`` multiplies A with an array of the shape of ``rhs``, b, which may be any; it must
    neither change its argument nor keep it. Iterations end at the relative residual ‖b − A x‖ / ‖b‖
    = ``tol``, by the callback (see `block_cg`; early stopping regularizes), or after ten times as
    many of them as b has entries. Each one minimizes (x − x*)ᵀ A (x − x*), conjugate gradients; or
    with ``minimise="residual"`` ‖b − A x‖, conjugate residuals (in exact arithmetic the iterates of
    MINRES), which suits regularization by stopping early. DataError if ``rhs`` or ``start`` is not
    finite.
    """
    check_finite(rhs, start)
    shape = rhs.shape
    if not np.any(rhs):
        return CGResult(np.zeros(shape), 0, 0.0, "converged")

    def product(block: Floats, _: Floats) -> Floats:
        return np.asarray(apply(block.reshape(shape)), dtype=np.float64).reshape(-1, 1)

    def each(iteration: int, solution: Floats, residual: float) -> bool:
        return callback is not None and bool(callback(iteration, solution.reshape(shape), residual))

    result = block_cg(
        product,
        np.array(rhs, dtype=np.float64).reshape(-1, 1),
        start=None if start is None else np.array(start, dtype=np.float64).reshape(-1, 1),
        minimise=minimise,
        tol=tol,
        max_steps=10 * rhs.size if max_iterations is None else max_iterations,
        verify=True,
        callback=each,
    )
    return CGResult(
        result.values.reshape(shape), result.steps, float(result.residual[0]), result.reason
    )


def check_finite(rhs: Any, start: Any) -> None:
    """Refuse a right-hand side or a first guess with NaN or infinity."""
    for name, given in (("right-hand side", rhs), ("start", start)):
        if given is not None and not np.all(np.isfinite(given)):
            raise DataError(
                f"the {name} of conjugate gradients is not finite everywhere; look for NaN in the "
                "data"
            )


Result = TypeVar("Result")
Progress = Callable[[int, int], object]


def cores() -> int:
    """Number of cores that the process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def in_threads(
    function: Callable[[slice], Result],
    parts: Sequence[slice],
    progress: Progress | None = None,
    workers: int | None = None,
) -> Iterator[tuple[slice, Result]]:
    """Call a function with each run of columns, on all cores, and yield the results in order.

    ``progress`` is called after each run with the numbers of finished and of all columns.
    """
    total, done = sum(part.stop - part.start for part in parts), 0
    with ThreadPoolExecutor(max(min(workers or cores(), len(parts)), 1)) as pool:
        futures = [pool.submit(function, part) for part in parts]
        try:
            # In order, whichever is ready first: the results must not depend on the order of
            # completion.
            for part, future in zip(parts, futures, strict=True):
                yield part, future.result()
                done += part.stop - part.start
                if progress is not None:
                    progress(done, total)
        finally:
            for future in futures:
                future.cancel()
