"""A few rankings that stand for all others, for kernels without features of their own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self, runtime_checkable

import jax
import numpy as np
import numpyro.distributions as dist
from jax import Array

from relpref.data import Rankings
from relpref.errors import DataError
from relpref.kernels.features import Features, landmark_features
from relpref.kernels.kendall import kendall_columns, kendall_diagonal
from relpref.kernels.mallows import checked_concentration, mallows_kernel, mallows_variances
from relpref.kernels.positions import in_double, with_items_of
from relpref.kernels.ranking import Kendall
from relpref.linalg import pivoted_cholesky


@runtime_checkable
class GramKernel(Protocol):
    """A covariance function of rankings by its values: `Mallows` and `Kendall`."""

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """Its hyperparameters and their default priors, by the names of their sites."""

    def gram(self, *args: Any, **parameters: Any) -> Array:
        """Kernel between rankings and others, shape (m, m'), from both and the hyperparameters by name."""

    def diagonal(self, *args: Any, **parameters: Any) -> Array:
        """Kernel of each ranking with itself, shape (m,), from rankings and the hyperparameters by name."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Landmarks:
    """Features from a kernel's values at landmarks, inducing points (see `relpref.kernels.landmark_features`).

    Parameters
    ----------
    kernel : GramKernel
        Its hyperparameters stay hyperparameters.
    rankings : Rankings, length r
        The landmarks. If they are all the rankings of the training data, each once, nothing is approximated.
    error : float
        Share of the prior variance of the rankings they were chosen from that they leave out, 0 to 1, at the hyperparameters for which
        they were chosen; NaN if nobody chose. That variance is not lost: each ranking has it by itself, see `Features`.
    """

    kernel: GramKernel
    rankings: Rankings
    error: Any = np.nan

    @classmethod
    def choose(
        cls,
        kernel: GramKernel,
        rankings: Rankings,
        number: int = 200,
        *,
        tol: float = 0.0,
        **parameters: Any,
    ) -> Self:
        """Choose some of the rankings, each time the one that those chosen explain worst (`relpref.linalg.pivoted_cholesky`).

        Parameters
        ----------
        kernel : GramKernel
        rankings : Rankings
            To choose from; equal ones are chosen once.
        number : int
            How many at most.
        tol : float
            Share of the variance that may be left out: with fewer landmarks if they do.
        **parameters
            Hyperparameters at which to choose; the medians of their priors by default.

        Raises
        ------
        DataError
            If there are no rankings, or a hyperparameter is none of the kernel's.
        """
        if not len(rankings):
            raise DataError("Landmarks: there are no rankings to choose from")
        plain = Rankings(rankings.items, rankings.positions, rankings.rankers)
        medians = {name: in_double(prior.icdf, 0.5) for name, prior in kernel.parameters(plain).items()}
        if unknown := set(parameters) - set(medians):
            raise DataError(
                f"Landmarks: {type(kernel).__name__} has no hyperparameter {', '.join(sorted(unknown))}; "
                f"it has: {', '.join(medians) or 'none'}"
            )
        values = medians | parameters
        chosen, error = pivoted_cholesky(
            in_double(partial(kernel.diagonal, plain, **values)),
            _columns(kernel, plain, values),
            number,
            tol,
        )
        return cls(kernel, plain[chosen], np.float64(error))

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """Those of the kernel."""
        return self.kernel.parameters(rankings)

    def features(self, rankings: Rankings, **parameters: Any) -> Features:
        """Features of rankings, one for each landmark, and the prior variance that they leave out.

        Items are matched by their labels; inside a program they must be those of the landmarks, in the same order.
        """
        rankings = with_items_of(self.rankings, rankings)
        return landmark_features(
            self.kernel.gram(rankings, self.rankings, **parameters),
            self.kernel.gram(self.rankings, self.rankings, **parameters),
            self.kernel.diagonal(rankings, **parameters),
        )


def _columns(kernel: GramKernel, rankings: Rankings, values: Mapping[str, Any]) -> Callable[[int], Any]:
    if isinstance(kernel, Kendall):
        return kendall_columns(rankings)
    return lambda row: in_double(partial(kernel.gram, rankings, rankings[[row]], **values))[:, 0]


def mallows_features(
    rankings: Rankings, landmarks: Rankings, *, concentration: float, samples: int = 32, key: Any = 0
) -> Features:
    """Features of rankings of any kind by the Mallows kernel with landmarks of any kind, computed beforehand.

    For exhaustive rankings they are those of ``Landmarks(Mallows(), landmarks)``; others are sampled, see `mallows_kernel`.

    Parameters
    ----------
    rankings, landmarks : Rankings
        Of the same items, which are matched by their labels.
    concentration : float
    samples : int
        Linear extensions drawn for each non-exhaustive ranking and landmark.
    key : int or JAX key

    Returns
    -------
    Features
        NumPy: ``rankings.with_features(*mallows_features(...))``.
    """
    rankings = with_items_of(landmarks, rankings)
    options: dict[str, Any] = {"concentration": concentration, "samples": samples, "key": key}
    found = in_double(
        jax.jit(landmark_features),
        mallows_kernel(rankings, landmarks, **options),
        mallows_kernel(landmarks, **options),
        mallows_variances(rankings, **options),
    )
    return Features(*found)


def mallows_landmarks(rankings: Rankings, number: int, *, concentration: float) -> Rankings:
    """Choose landmarks among rankings of any kind without sampling, for `mallows_features`.

    As `Landmarks.choose`, from exp(−λ · mean number of discordant pairs of the linear extensions), which is a covariance function and
    known in closed form by the Kendall kernel; for full rankings it is the Mallows kernel.
    """
    plain = Rankings(rankings.items, rankings.positions, rankings.rankers)
    n = rankings.shape[1]
    strength = checked_concentration(concentration) * n * (n - 1) / 4
    column = kendall_columns(plain)
    chosen, _ = pivoted_cholesky(
        np.exp(strength * (in_double(kendall_diagonal, plain.positions) - 1)),
        lambda row: np.exp(strength * (column(row) - 1)),
        number,
    )
    return plain[chosen]
