"""How an inference ended: a code, a sentence, and a remedy."""

import sys
import warnings
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Self


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


_PACKAGE = str(Path(__file__).parents[1])


class InferenceWarning(UserWarning):
    """An answer comes from an inference that did not converge."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, blaming the first caller outside this package."""
    level = 1
    while (
        sys._getframe(level).f_code.co_filename.startswith(_PACKAGE)
        and sys._getframe(level).f_back is not None
    ):
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)


class Progress:
    """A line that counts steps and shows the best objective.

    Parameters
    ----------
    label : str
    wanted : bool
        Shown only if stderr is a terminal, too.
    unit : str
        What is counted.
    note : str
        How the number beside the count is shown.
    """

    def __init__(
        self,
        label: str,
        wanted: bool,
        unit: str = "evaluations",
        note: str = "log evidence + log prior {:.2f}",
    ) -> None:
        self._label, self._unit, self._note = label, unit, note
        self._wanted = wanted and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._wanted:
            from tqdm import tqdm

            self._bar = tqdm(
                desc=self._label,
                unit=f" {self._unit}",
                leave=False,
                file=sys.stderr,
            )
        return self

    def step(self, count: int, objective: float) -> None:
        """One evaluation more, or as many as are counted."""
        if self._bar is not None:
            self._bar.update(max(count - self._bar.n, 1))
            self._bar.set_postfix_str(self._note.format(objective))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, also when interrupted."""
        if self._bar is not None:
            self._bar.close()


class Solves:
    """Tells how many columns of a long computation are done, each computation on a line of its own that vanishes at its end.

    Parameters
    ----------
    label : str
    wanted : bool
        Shown only if stderr is a terminal, too.
    """

    _FEW = 64  # columns that are not worth a line

    def __init__(self, label: str, wanted: bool) -> None:
        self._label, self._wanted = label, wanted
        self._bar: Any = None

    def __call__(self, done: int, of: int) -> None:
        """``done`` columns ``of`` so many."""
        if not (self._wanted and of > self._FEW and sys.stderr.isatty()):
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(desc=self._label, total=of, unit=" columns", leave=False, file=sys.stderr)
        self._bar.update(done - self._bar.n)
        if done >= of:
            self._bar.close()
            self._bar = None
