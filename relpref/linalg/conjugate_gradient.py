"""Conjugate gradients and residuals for symmetric positive (semi)definite systems, in place and with early stopping."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relpref.errors import DataError

Floats = NDArray[np.float64]
Reason = Literal["converged", "max_iterations", "stopped", "breakdown"]
Minimise = Literal["error", "residual"]


class CGResult(NamedTuple):
    """How conjugate gradients ended.

    Attributes
    ----------
    solution : array, of the shape of the right-hand side
        Finite, whatever the reason.
    iterations : int
    residual : float
        ‖b − A x‖ / ‖b‖: computed anew when converged, else from the recurrence.
    reason : str
        "converged"; "max_iterations"; "stopped", by the callback; or "breakdown": A is not positive semidefinite, a
        product was not finite, or the tolerance is out of reach: in double precision, or because b is not in the range
        of A; with the smallest residuals the solution is then one of least squares. Only "converged" solves the system.
    """

    solution: Floats
    iterations: int
    residual: float
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

    Each iteration is one product with A and a few passes over the vectors. (SciPy's ``cg`` tells its callback no
    residual and cannot be stopped by it.)

    Parameters
    ----------
    apply : callable
        A times an array of the shape of ``rhs``; it must neither change its argument nor keep it.
    rhs : array
        b, of any shape.
    start : array, optional
        First guess; zero by default.
    minimise : {"error", "residual"}
        What is least after each iteration: (x − x*)ᵀ A (x − x*), conjugate gradients; or ‖b − A x‖, conjugate residuals
        (in exact arithmetic the iterates of MINRES). To regularise by stopping early take the second: the error is
        dominated by the part of b that A can hardly produce, noise more often than not.
    tol : float
        Relative residual ‖b − A x‖ / ‖b‖ at which to end.
    max_iterations : int, optional
        By default ten times the size of ``rhs``.
    callback : callable, optional
        Called after each iteration with its number, the solution so far (live: copy it to keep it) and the relative
        residual. If it returns True, the iterations stop: early stopping regularises.

    Returns
    -------
    CGResult

    Raises
    ------
    DataError
        If ``rhs`` or ``start`` is not finite.
    """
    for name, given in (("right-hand side", rhs), ("start", start)):
        if given is not None and not np.all(np.isfinite(given)):
            raise DataError(
                f"the {name} of conjugate gradients is not finite everywhere; look for NaN in the data"
            )
    shape, size = rhs.shape, rhs.size
    target = np.array(rhs, dtype=np.float64).ravel()
    norm = float(np.linalg.norm(target))
    if norm == 0.0:
        return CGResult(np.zeros(shape), 0, 0.0, "converged")

    def product(vector: Floats) -> Floats:
        return np.asarray(apply(vector.reshape(shape)), dtype=np.float64).ravel()

    solution = np.zeros(size) if start is None else np.array(start, dtype=np.float64).ravel()
    residual = target.copy() if start is None else target - product(solution)
    squared = float(residual @ residual)
    if not np.isfinite(squared):
        return CGResult(np.zeros(shape), 0, 1.0, "breakdown")
    # The inner products that both methods are made of: of r with itself, or of r with A r.
    # Infinity stands for none before, so that the first direction is the residual.
    gain, largest = np.inf, 0.0
    # Not SciPy's daxpy: its threads would wait for those of NumPy's products, and both spin.
    direction, image, scratch = np.zeros(size), np.zeros(size), np.empty(size)
    verified = np.inf  # the last residual that was computed anew
    limit = 10 * size if max_iterations is None else max_iterations

    def ended(iterations: int, reason: Reason) -> CGResult:
        return CGResult(solution.reshape(shape), iterations, float(np.sqrt(squared)) / norm, reason)

    iterations = 0
    while True:
        if np.sqrt(squared) <= tol * norm:
            # Rounding takes the recurrence's residual away from the true one: look, and go on from the true one.
            residual = target - product(solution)
            squared = float(residual @ residual)
            if np.sqrt(squared) <= tol * norm:
                return ended(iterations, "converged")
            if not squared < 0.5 * verified:
                return ended(iterations, "breakdown")
            verified, gain = squared, np.inf
        if iterations >= limit:
            return ended(iterations, "max_iterations")
        pushed = residual if minimise == "error" else product(residual)
        previous, gain = gain, float(residual @ pushed)
        largest = max(largest, gain / squared)
        if not (np.isfinite(gain) and gain > np.finfo(np.float64).eps * largest * squared):
            return ended(iterations, "breakdown")
        direction *= gain / previous
        direction += residual
        if minimise == "error":
            image = product(direction)
        else:
            image *= gain / previous
            image += pushed
        curvature = float((direction if minimise == "error" else image) @ image)
        if not (np.isfinite(curvature) and curvature > 0.0):
            return ended(iterations, "breakdown")
        residual -= np.multiply(image, gain / curvature, out=scratch)
        squared = float(residual @ residual)
        if not np.isfinite(squared):
            return ended(iterations, "breakdown")
        solution += np.multiply(direction, gain / curvature, out=scratch)
        iterations += 1
        if callback is not None and callback(
            iterations, solution.reshape(shape), float(np.sqrt(squared)) / norm
        ):
            return ended(iterations, "stopped")
