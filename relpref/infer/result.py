"""How an inference ended: a code, a sentence, and a remedy; and how far importance weights can be relied on."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp


class Result(Enum):
    """Result codes of all engines; the value is a message with a remedy."""

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
        "Fix the noise at a larger value, such as fixed={'soft_noise': 1e-4}, or give it a prior "
        "that keeps it from 0."
    )

    @property
    def ok(self) -> bool:
        """Whether the answers may be used without a warning."""
        return self is Result.converged

    @property
    def empty(self) -> bool:
        """Whether there are no answers at all: no sweep gave a posterior, and every number is NaN."""
        return self in (
            Result.nonfinite,
            Result.negative_precision,
            Result.prior_not_positive_definite,
        )


CODES = tuple(Result)  # a compiled loop carries the positions
_PACKAGE = str(Path(__file__).parents[1])


class InferenceWarning(UserWarning):
    """A result of an inference that did not converge."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, blaming the first caller outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level + 1)


@contextmanager
def progress_line(
    label: str,
    wanted: bool,
    unit: str = "evaluations",
    note: str = "log evidence + log prior {:.2f}",
) -> Iterator[Callable[[int, float], None]]:
    """A line that counts steps and shows the best objective; gives what is told the number of steps and the objective.

    Shown only if ``wanted`` and if stderr is a terminal. ``unit`` is what is counted, ``note`` how
    the objective is shown.
    """
    bar = _bar(label, unit) if wanted and sys.stderr.isatty() else None

    def step(count: int, objective: float) -> None:
        if bar is not None:
            bar.update(max(count - bar.n, 1))
            bar.set_postfix_str(note.format(objective))

    try:
        yield step
    finally:
        if bar is not None:
            bar.close()


def _bar(label: str, unit: str, total: int | None = None) -> Any:
    from tqdm import tqdm

    return tqdm(desc=label, total=total, unit=f" {unit}", leave=False, file=sys.stderr)


class Solves:
    """Tells how many columns of each long computation are done; parameters as of `progress_line`."""

    _FEW = 64  # columns that are not worth a line

    def __init__(self, label: str, wanted: bool) -> None:
        self._label, self._wanted = label, wanted
        self._bar: Any = None

    def __call__(self, done: int, of: int) -> None:
        """``done`` columns ``of`` so many."""
        if not (self._wanted and of > self._FEW and sys.stderr.isatty()):
            return
        if self._bar is None:
            self._bar = _bar(self._label, "columns", of)
        self._bar.update(done - self._bar.n)
        if done >= of:
            self._bar.close()
            self._bar = None


Floats = NDArray[np.float64]

FEWEST = 25  # weights; of fewer ArviZ finds no tail to fit
_FAR = 1e300  # in the place of infinity, which must not be subtracted from itself


class Smoothed(NamedTuple):
    """Importance weights whose largest ones were replaced by quantiles of a generalized Pareto distribution."""

    log_weights: Floats  # of weights that add up to 1, shape (..., s)
    # Shape of the tail, shape (...): the weights have a finite variance below 0.5, a finite mean
    # below 1. −inf where they are all equal, inf where there is no tail to be fitted.
    k_hat: Floats

    @property
    def ess(self) -> Floats:
        """Effective sample size of the weights, 1/Σw², shape (...)."""
        return np.asarray(np.exp(-logsumexp(2 * self.log_weights, axis=-1)))


def smoothed(log_weights: Floats) -> Smoothed:
    """Pareto-smoothed importance sampling (Vehtari, Simpson, Gelman, Yao & Gabry 2024) of weights along the last axis.

    Where a row cannot be smoothed its k-hat is inf and the weights are as given: where there are
    fewer than 25, one is NaN or +inf, all are −inf, or all but the largest are zero to 308 digits.
    """
    array_stats = _array_stats()
    given = np.atleast_2d(log_weights)
    finite = np.isfinite(given.max(axis=-1)).ravel()
    flat = np.nan_to_num(given.reshape(-1, given.shape[-1]), nan=-_FAR, posinf=_FAR, neginf=-_FAR)
    weights, k_hat = flat.copy(), np.full(len(flat), np.inf)
    for row, one in enumerate(flat):
        if not finite[row]:
            continue
        if len(np.unique(one)) <= (5 if len(one) >= FEWEST else 1):
            k_hat[row] = -np.inf  # of equal weights there is no tail to be smoothed
        elif len(one) >= FEWEST:
            with np.errstate(all="ignore"):  # a tail that underflows
                # ArviZ takes log likelihoods, whose negatives are the log weights of leaving out.
                found, shape = array_stats.psislw(-one)
            if np.isfinite(shape) and np.all(np.isfinite(found)):
                weights[row], k_hat[row] = found, shape
    weights -= logsumexp(weights, axis=-1, keepdims=True)
    shape = np.shape(log_weights)
    return Smoothed(weights.reshape(shape), k_hat.reshape(shape[:-1]))


def threshold(number: int) -> float:
    """Largest k-hat at which so many draws can be relied on, min(1 − 1/log₁₀ s, 0.7) (Vehtari et al. 2024, section 3.2.4)."""
    return float(min(1 - 1 / np.log10(number), 0.7))


def by_chain(draws: Floats, chains: int) -> Floats:
    """Draws of chains that are laid one after the other, shape (chains, s, n)."""
    length = len(draws) // chains
    return draws[: chains * length].reshape(chains, length, -1)


def convergence(draws: Floats) -> tuple[float, float]:
    """Largest rank-normalized split R-hat and smallest bulk effective sample size (Vehtari et al. 2021) of draws (chains, s, n).

    NaN where a value never moves, or there are fewer than four draws to a chain.
    """
    array_stats = _array_stats()
    axes = {"chain_axis": 0, "draw_axis": 1}
    chains, number, size = draws.shape
    # One chain is held against itself: its halves are taken for two.
    several = draws if chains > 1 else draws[:, : number // 2 * 2].reshape(2, -1, size)
    with np.errstate(invalid="ignore"):  # a value that never moves
        r_hat = array_stats.rhat(several, method="rank", **axes)
        ess = array_stats.ess(draws, method="bulk", **axes)
    return float(np.max(r_hat)), float(np.min(ess))


def _array_stats() -> Any:
    """ArviZ's functions of arrays, loaded when they are first used."""
    import arviz_stats.base

    base: Any = arviz_stats.base
    return base.array_stats
