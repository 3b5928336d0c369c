"""Result codes of inferences with their remedies, warnings, and lines of progress."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any


class Result(Enum):
    """Result codes of all engines; the value is a message with a remedy.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> relpref.infer.Result[posterior.info["result"]].name
    'converged'
    """

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
        "A likelihood that is declared log-concave asked for a negative site precision. Correct "
        "its tilted moments or "
        "its log_concave, or run NUTS on the same program."
    )
    prior_not_positive_definite = (
        "The prior covariance is not positive definite, even with jitter. "
        "Check a Precomputed kernel's smallest eigenvalue, or give the kernel a shorter "
        "lengthscale or range."
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
        "Raise draws and warmup, give tighter priors, or maximize the evidence instead."
    )
    too_precise = (
        "Some answers are so precise (noise/√count below 1e-5) that rounding may show in means and "
        "sds. "
        "Fix the noise at a larger value, such as fixed={'noise': 1e-4}, or give it a prior "
        "that keeps it from 0."
    )

    @property
    def ok(self) -> bool:
        """Whether the answers may be used without a warning."""
        return self is Result.converged

    @property
    def empty(self) -> bool:
        """Whether no sweep gave a posterior, so that every number is NaN."""
        return self in (
            Result.nonfinite,
            Result.negative_precision,
            Result.prior_not_positive_definite,
        )


CODES = tuple(Result)  # a compiled loop carries the positions
_PACKAGE = str(Path(__file__).parent)


class InferenceWarning(UserWarning):
    """A result of an inference that did not converge.

    Examples
    --------
    >>> import warnings
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", relpref.infer.InferenceWarning)
    ...     ranking = posterior.ranking()
    """


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, blaming the first caller outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level + 1)


@contextmanager
def progress_line(
    label: str,
    show: bool,
    unit: str = "steps",
    note: str = "",
) -> Iterator[Callable[[int, float], None]]:
    """Show a line with the number of steps and the best objective, where stderr is a terminal.

    Parameters
    ----------
    label : str
        Begins the line.
    show : bool
        Without it there is no line.
    unit : str
        Name of the steps.
    note : str
        Format of the objective; by default it is not shown.

    Yields
    ------
    callable
        Takes the number of steps so far and the objective.
    """
    with terminal_bar(label, show, unit=f" {unit}") as bar:

        def step(count: int, objective: float) -> None:
            bar.update(max(count - bar.n, 1))
            bar.set_postfix_str(note.format(objective))

        yield step


def terminal_bar(label: str, show: bool, **options: Any) -> Any:
    """Return a bar of tqdm with its options; it shows nothing where stderr is no terminal."""
    from tqdm import tqdm

    hidden = not (show and sys.stderr.isatty())
    return tqdm(desc=label, file=sys.stderr, leave=False, disable=hidden, **options)


class Solves:
    """Progress of computations by their columns; parameters as of `progress_line`."""

    _FEW = 64  # columns that are not worth a line

    def __init__(self, label: str, show: bool) -> None:
        self._label, self._show = label, show
        self._bar: Any = None

    def __call__(self, done: int, of: int) -> None:
        """Show that ``done`` of the columns, ``of`` in all, are finished."""
        if of <= self._FEW:
            return
        if self._bar is None:
            self._bar = terminal_bar(self._label, self._show, unit=" columns", total=of)
        self._bar.update(done - self._bar.n)
        if done >= of:
            self._bar.close()
            self._bar = None
