"""How an inference ended: a code, a sentence, and a remedy."""

from enum import Enum


class Result(Enum):
    """Result codes of every engine; the value is what happened and what to do about it."""

    converged = "The engine converged."
    max_iterations = (
        "The largest number of sweeps was reached before the sites settled. "
        "Raise max_sweeps, or look at info['residual'] to see how near it came."
    )
    diverged = (
        "The sites moved away from a fixed point at every damping tried. "
        "Use smaller amplitudes or priors that hold them down, or run NUTS on the same program."
    )
    nonfinite = (
        "A likelihood or a covariance gave NaN or infinity. "
        "Look for hyperparameters at the edge of their support and for attributes of extreme size."
    )
    negative_precision = (
        "A likelihood that is declared log-concave asked for a negative site precision. Correct its tilted moments or "
        "its log_concave, or run NUTS on the same program."
    )
    prior_not_positive_definite = (
        "The prior covariance is not positive definite, even with jitter. "
        "Check a Precomputed kernel's smallest eigenvalue, or give the kernel a shorter lengthscale or range."
    )
    hyperparameters_not_converged = (
        "The search for hyperparameters stopped before the gradient vanished. "
        "Raise max_evaluations, try restarts, or give tighter priors."
    )
    iterations_not_converged = (
        "Conjugate gradients stopped before the residual was small. "
        "Raise max_iterations (max_iter), tol, or the noise (the regularization)."
    )
    hyperparameters_not_mixed = (
        "The chains over the hyperparameters disagree (R-hat above 1.2). "
        "Raise draws and warmup, give tighter priors, or maximise the evidence instead."
    )
    too_precise = (
        "Some answers are so precise (noise/√count below 1e-5) that rounding may show in means and sds. "
        "Fix the noise at a larger value, such as fixed={'soft_noise': 1e-4}, or give it a prior that keeps it from 0."
    )

    @property
    def ok(self) -> bool:
        """Whether the answers may be used without a warning."""
        return self is Result.converged

    @property
    def empty(self) -> bool:
        """Whether there are no answers at all: no sweep gave a posterior, and every number is NaN."""
        return self in (Result.nonfinite, Result.negative_precision, Result.prior_not_positive_definite)


# The numbers a jitted loop can carry for them.
CODES = tuple(Result)


def code(result: Result) -> int:
    """Position of a result in `CODES`."""
    return CODES.index(result)
