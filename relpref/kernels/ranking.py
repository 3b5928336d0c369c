"""Kernels on rankings as programs use them: by explicit features, of unit scale."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from numpy.typing import ArrayLike

from relpref.data import Rankings
from relpref.errors import DataError
from relpref.kernels.attribute import SquaredExponential
from relpref.kernels.cut import (
    check_keep,
    checked_weights,
    cut_scale,
    exhaustive_features,
    graph_weights,
    heaviest,
    require_different_items,
    similarity,
)
from relpref.kernels.graph import Features, landmark_features
from relpref.kernels.mallows import (
    checked_concentration,
    kendall_columns,
    kendall_diagonal,
    kendall_features,
    kendall_kernel,
    mallows_kernel,
    mallows_variances,
)
from relpref.kernels.positions import in_double, partial_in_a_program, traced, with_items_of
from relpref.linalg import pivoted_cholesky, real


@runtime_checkable
class RankingKernel(Protocol):
    """A covariance function of rankings, of the order of 1 at a full ranking, by its features."""

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """Its hyperparameters and their default priors, by the names of their sites."""

    def features(self, *args: Any, **parameters: Any) -> Features:
        """Features of m rankings, from these and the hyperparameters by name; traceable by JAX and differentiable."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class GivenFeatures:
    """The features that the rankings carry, whatever they were computed from; see `Rankings.with_features`."""

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        return {}

    def features(self, rankings: Rankings) -> Features:
        """Return them as they are."""
        if rankings.features is None:
            raise DataError(
                "the rankings carry no features; give them with rankings.with_features(...), or choose another kernel"
            )
        residual = None if rankings.residual is None else real(rankings.residual)
        return Features(real(rankings.features), residual)


@dataclass(frozen=True, eq=False)
class Cut:
    """The graph cut kernel on exhaustive rankings, see `relpref.kernels.cut_features` (GCK).

    Parameters
    ----------
    graph : array, sparse matrix or DataFrame, shape (n, n), or str, optional
        Weights between items, or the name of a relation of the items (a DataFrame, which is read by the items' labels, is for the plain
        functions and the transformers: programs take an array); by default a squared exponential of their standardized
        attributes (GCK eq. 15; for attributes as they are, give ``item_graph(attributes)``).
    lengthscale : "median", "learn" or float
        Of that squared exponential. "median": the median distance of two items. "learn": a hyperparameter for each attribute, the
        site ``lengthscale``, with the prior of `relpref.kernels.SquaredExponential`.
    shared_lengthscale : bool
        Learn a single one.
    keep : float, optional
        Only this share of the pairs of items, the heaviest, keep their weights.

    Notes
    -----
    The features are divided by the root of the expected squared norm of the raw gains of a random full ranking
    (`relpref.kernels.cut_scale`): it depends on the graph alone, so that new rankings are scaled as old ones.
    """

    graph: Any = None
    lengthscale: Literal["median", "learn"] | float = "median"
    shared_lengthscale: bool = False
    keep: float | None = None

    def __post_init__(self) -> None:
        """Check the options and a graph that is given as numbers."""
        check_keep(self.keep)
        if self.graph is not None and self.lengthscale != "median":
            raise DataError(
                "Cut: a lengthscale is of the graph made from attributes; leave out graph= or lengthscale="
            )
        if isinstance(self.lengthscale, str) and self.lengthscale not in ("median", "learn"):
            raise DataError(
                f"Cut: the lengthscale is {self.lengthscale!r}; give 'median', 'learn' or a number"
            )
        if not isinstance(self.lengthscale, str) and not 0 < self.lengthscale < np.inf:
            raise DataError(f"Cut: the lengthscale is {self.lengthscale}; give a positive number")
        if self.keep is not None and self.lengthscale == "learn" and not self.shared_lengthscale:
            raise DataError(
                "Cut: with a lengthscale for each attribute the heaviest pairs change in jumps; leave out keep=, or learn a "
                "shared_lengthscale=True"
            )
        if not (_plain(self.graph) or isinstance(self.graph, pd.DataFrame) or traced(self.graph)):
            object.__setattr__(self, "graph", checked_weights(self.graph))

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """``lengthscale`` where it is learned, shape (d,), or () when shared."""
        if self.lengthscale != "learn":
            return {}
        self._check_attributes(rankings)
        return SquaredExponential(self.shared_lengthscale).parameters(rankings.items.attributes.shape[1])

    def weights(self, rankings: Rankings, *, lengthscale: ArrayLike | None = None) -> Array:
        """Weights of the items' graph, shape (n, n)."""
        if self.graph is not None:
            given = real(graph_weights(rankings, self.graph, rankings.shape[1]))
            return given if self.keep is None else heaviest(given, self.keep)
        self._check_attributes(rankings)
        if self.lengthscale == "median":
            require_different_items(rankings)
        scale = lengthscale if isinstance(self.lengthscale, str) else self.lengthscale
        return similarity(rankings.items.standardized_attributes(), scale, self.keep)

    def features(self, rankings: Rankings, *, lengthscale: ArrayLike | None = None) -> Features:
        """Features of exhaustive rankings, one for each item; others are refused."""
        weights = self.weights(rankings, lengthscale=lengthscale)
        _require_exhaustive(rankings)
        values = exhaustive_features(jnp.asarray(rankings.positions), weights) / cut_scale(weights)
        return Features(values)

    def _check_attributes(self, rankings: Rankings) -> None:
        if not rankings.items.attributes.shape[1]:
            raise DataError(
                "Cut: the items have no attributes to make a graph from; give graph=, or rankings.with_items(table)"
            )


def _flatten(kernel: Cut) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if isinstance(kernel.graph, pd.DataFrame):
        raise DataError(
            "Cut: inside a program the graph is an array; give frame.loc[labels, labels].to_numpy() with the labels rankings.items.entities"
        )
    options = (kernel.lengthscale, kernel.shared_lengthscale, kernel.keep)
    return ((), (kernel.graph, *options)) if _plain(kernel.graph) else ((kernel.graph,), (None, *options))


def _unflatten(static: tuple[Any, ...], children: Any) -> Cut:
    # No checks: leaves may be tracers or placeholders.
    kernel = object.__new__(Cut)
    names = ("graph", "lengthscale", "shared_lengthscale", "keep")
    kernel.__dict__.update(zip(names, static, strict=True))
    if children:
        kernel.__dict__["graph"] = children[0]
    return kernel


def _plain(graph: Any) -> bool:
    return graph is None or isinstance(graph, str)


jax.tree_util.register_pytree_node(Cut, _flatten, _unflatten)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Kendall:
    """The Kendall kernel on rankings of any kind, see `relpref.kernels.kendall_kernel`; 1 for a full ranking with itself.

    n(n − 1)/2 features, one for each pair of items; where there are more of them than rankings, take `Landmarks` of it.
    """

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        return {}

    def features(self, rankings: Rankings) -> Features:
        """A feature for each pair of items."""
        return Features(real(kendall_features(rankings)))

    def gram(self, rankings: Rankings, others: Rankings) -> Array:
        """Kernel between rankings, shape (m, m')."""
        return real(kendall_kernel(rankings, others))

    def diagonal(self, rankings: Rankings) -> Array:
        """Kernel of each ranking with itself, shape (m,)."""
        return kendall_diagonal(jnp.asarray(rankings.positions))

    def columns(self, rankings: Rankings) -> Callable[[int], Any]:
        """Columns of the kernel of rankings with themselves, one at a time."""
        return kendall_columns(rankings)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Mallows:
    """The Mallows kernel on exhaustive rankings, see `relpref.kernels.mallows_kernel`; it has features by `Landmarks` only.

    Notes
    -----
    Prior of the concentration λ: log-normal with log-sd 1 and median 4/(n(n − 1)). Two random full rankings of n items disagree on
    n(n − 1)/4 pairs on average, so the median gives them the kernel e⁻¹, which is what two random points have under the squared
    exponential with the median of its prior; two log-sds reach from a nearly constant kernel (.87) to independent rankings (.0006).
    """

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """``concentration``, a scalar."""
        n = rankings.shape[1]
        if n < 2:
            raise DataError("Mallows: the rankings are of a single item; there is nothing to compare")
        return {"concentration": dist.LogNormal(np.log(4.0 / (n * (n - 1))), 1.0)}

    def gram(self, rankings: Rankings, others: Rankings, *, concentration: ArrayLike) -> Array:
        """Kernel between exhaustive rankings, shape (m, m'); others are refused."""
        others = with_items_of(rankings, others)
        _require_exhaustive(rankings, others)
        return real(mallows_kernel(rankings, others, concentration=concentration))

    def diagonal(self, rankings: Rankings, *, concentration: ArrayLike) -> Array:
        """Kernel of each ranking with itself, shape (m,): 1 for full rankings, less with ties."""
        _require_exhaustive(rankings)
        return real(mallows_variances(rankings, concentration=concentration))


def _require_exhaustive(*given: Rankings) -> None:
    if not all(rankings.exhaustive for rankings in given):
        raise partial_in_a_program()


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
        gram = partial(kernel.gram, **values)
        known = getattr(kernel, "columns", None)
        column = known(plain) if known else lambda row: in_double(gram, plain, plain[[row]])[:, 0]
        chosen, error = pivoted_cholesky(
            in_double(partial(kernel.diagonal, plain, **values)), column, number, tol
        )
        return cls(kernel, plain[chosen], np.float64(error))

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
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
