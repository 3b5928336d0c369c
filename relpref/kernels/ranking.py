"""Kernels on rankings for programs: by explicit features, of unit scale."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from numpy.typing import ArrayLike

from relpref.data import Rankings
from relpref.data.arrays import counted
from relpref.description import Description, describe
from relpref.errors import DataError
from relpref.kernels.attribute import SquaredExponential
from relpref.kernels.cut import (
    Function,
    check_keep,
    checked_weights,
    cut_scale,
    graph_weights,
    require_attributes,
    submodular,
)
from relpref.kernels.graph import Features, factored_features, landmark_features
from relpref.kernels.mallows import (
    checked_concentration,
    kendall_columns,
    kendall_diagonal,
    kendall_features,
    kendall_kernel,
    mallows_kernel,
    mallows_variances,
)
from relpref.kernels.positions import (
    in_double,
    partial_in_a_program,
    position_array,
    with_items_of,
)
from relpref.linalg import cholesky, pivoted_cholesky, real
from relpref.linalg.arrays import traced
from relpref.skeleton import evaluated

# A column takes as long as a Gram matrix of some hundred rankings. Where candidates are at most so
# many times the landmarks, all columns are computed at once.
_TOGETHER = 4
_JIAO_VERT = (
    "Y. Jiao and J.-P. Vert (2015). The Kendall and Mallows Kernels for Permutations. "
    "In: Proceedings of the 32nd International Conference on Machine Learning (ICML 2015)."
)


@runtime_checkable
class RankingKernel(Protocol):
    """A covariance function of rankings by its features, of the order of 1 for a full ranking."""

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """Default priors of the hyperparameters, by the names of their sites."""

    def features(self, *args: Any, **parameters: Any) -> Features:
        """Features of m rankings, from these and the hyperparameters by name.

        JAX can trace and differentiate them.
        """


@jax.tree_util.register_static
@dataclass(frozen=True)
class GivenFeatures:
    """The features that the rankings carry, see `Rankings.with_features`."""

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        return {}

    def features(self, rankings: Rankings) -> Features:
        if rankings.features is None:
            raise DataError("the rankings carry no features; give rankings.with_features(...)")
        values: Any = rankings.features, rankings.residual
        return Features(*values)

    def describe(self) -> Description:
        return Description("Rankings are compared by features that were computed beforehand.")


@dataclass(frozen=True, eq=False)
class Cut:
    """The graph cut kernel on exhaustive rankings (GCK).

    The features are those of `relpref.kernels.cut_features`, divided by `cut_scale`.

    Parameters
    ----------
    graph : array, sparse matrix or DataFrame, shape (n, n), or str, optional
        Weights between items, or the name of a relation of the items (programs take an array
        instead of a DataFrame); by default a squared exponential of their standardized attributes
        (GCK eq. 15; for attributes as they are, ``item_graph(attributes)``).
    lengthscale : "median", "learn" or float
        Lengthscale of that squared exponential. "median": the median distance of two items.
        "learn": a hyperparameter for each attribute, the site ``lengthscale``, with the prior of
        `relpref.kernels.SquaredExponential`.
    shared_lengthscale : bool
        Learn a single one.
    keep : float, optional
        Only this share of the pairs of items, the heaviest, keep their weights.
    function : "cut" or "concave"
        See `relpref.kernels.cut_features`.
    """

    graph: Any = None
    lengthscale: Literal["median", "learn"] | float = "median"
    shared_lengthscale: bool = False
    keep: float | None = None
    function: Function = "cut"

    def __post_init__(self) -> None:
        check_keep(self.keep)
        submodular(self.function)
        if self.graph is not None and self.lengthscale != "median":
            raise DataError(
                "Cut: a given graph has no lengthscale; leave out graph= or lengthscale="
            )
        scale = self.lengthscale
        if scale not in ("median", "learn") and (isinstance(scale, str) or not 0 < scale < np.inf):
            raise DataError(
                f"Cut: the lengthscale is {scale!r}; give 'median', 'learn' or a positive number"
            )
        if self.keep is not None and self.lengthscale == "learn" and not self.shared_lengthscale:
            raise DataError(
                "Cut: with a lengthscale for each attribute the heaviest pairs change in jumps; "
                "leave out keep=, or learn a shared_lengthscale=True"
            )
        if not (_named(self.graph) or isinstance(self.graph, pd.DataFrame) or traced(self.graph)):
            object.__setattr__(self, "graph", checked_weights(self.graph))

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """``lengthscale`` where it is learned, shape (d,), or () when shared."""
        if self.lengthscale != "learn":
            return {}
        number = require_attributes(rankings.items).shape[1]
        return SquaredExponential(shared_lengthscale=self.shared_lengthscale).parameters(number)

    def weights(self, rankings: Rankings, *, lengthscale: ArrayLike | None = None) -> Array:
        """Weights of the items' graph, shape (n, n)."""
        scale: Any = lengthscale if self.lengthscale == "learn" else self.lengthscale
        options = (scale, self.keep, self.function)
        return graph_weights(rankings, self.graph, rankings.shape[1], *options)

    def features(self, rankings: Rankings, *, lengthscale: ArrayLike | None = None) -> Features:
        """Features of exhaustive rankings, one for each item; others are refused."""
        weights = self.weights(rankings, lengthscale=lengthscale)
        _require_exhaustive(rankings)
        features, _ = submodular(self.function)
        scale = cut_scale(weights, self.function)
        return Features(real(features(position_array(rankings), weights) / scale))

    def describe(self) -> Description:
        graph = "their similarity by attributes" if self.graph is None else "a given graph"
        name = {"cut": "graph cut kernel", "concave": "kernel of a concave function"}[self.function]
        return Description(
            f"The {name} compares rankings by where they put items among their neighbors in "
            f"{graph} (Conserva et al. 2022).",
            "M. Conserva, M. P. Deisenroth and K. S. Sesh Kumar (2022). The Graph Cut Kernel for "
            "Ranked Data. In: Transactions on Machine Learning Research.",
            SquaredExponential().describe().parameters if self.lengthscale == "learn" else {},
        )


def _named(graph: Any) -> bool:
    return graph is None or isinstance(graph, str)


def _flatten(kernel: Cut) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if isinstance(kernel.graph, pd.DataFrame):
        raise DataError(
            "Cut: inside a program the graph is an array; give frame.loc[labels, "
            "labels].to_numpy() with the labels rankings.items.labels"
        )
    options = (kernel.lengthscale, kernel.shared_lengthscale, kernel.keep, kernel.function)
    return (
        ((), (kernel.graph, *options))
        if _named(kernel.graph)
        else ((kernel.graph,), (None, *options))
    )


def _unflatten(static: tuple[Any, ...], children: Any) -> Cut:
    kernel = object.__new__(Cut)  # without checks: leaves may be tracers or placeholders
    names = ("graph", "lengthscale", "shared_lengthscale", "keep", "function")
    kernel.__dict__.update(zip(names, (*(children or static[:1]), *static[1:]), strict=True))
    return kernel


jax.tree_util.register_pytree_node(Cut, _flatten, _unflatten)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Kendall:
    """The Kendall kernel on rankings of any kind, see `relpref.kernels.kendall_kernel`.

    It is 1 for a full ranking with itself. It has n(n − 1)/2 features, one for each pair of items;
    if these are more than the rankings, use `Landmarks` of it.
    """

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        return {}

    def features(self, rankings: Rankings) -> Features:
        return Features(kendall_features(rankings))

    def gram(self, rankings: Rankings, others: Rankings) -> Array:
        """Kernel between rankings, shape (m, m')."""
        return real(kendall_kernel(rankings, others))

    def diagonal(self, rankings: Rankings) -> Array:
        """Kernel of each ranking with itself, shape (m,)."""
        return real(kendall_diagonal(position_array(rankings)))

    def columns(self, rankings: Rankings) -> Callable[[int], Any]:
        """Columns of the kernel of rankings with themselves, one at a time."""
        return kendall_columns(rankings)

    def describe(self) -> Description:
        return Description(
            "The Kendall kernel compares rankings by the share of the pairs of items that they "
            "order alike (Jiao and Vert 2015).",
            _JIAO_VERT,
        )


@jax.tree_util.register_static
@dataclass(frozen=True)
class Mallows:
    """The Mallows kernel on exhaustive rankings, see `relpref.kernels.mallows_kernel`.

    It has features by `Landmarks` only.

    Notes
    -----
    Prior of the concentration λ: log-normal with log-sd 1 and median 4/(n(n − 1)). Two random full
    rankings of n items disagree on n(n − 1)/4 pairs on average, so the median gives them the kernel
    e⁻¹, like two random points under the squared exponential with the median of its prior; two
    log-sds reach from a nearly constant kernel (.87) to independent rankings (.0006).
    """

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """``concentration``, a scalar."""
        n = rankings.shape[1]
        if n < 2:
            raise DataError(
                "Mallows: the rankings are of a single item; there is nothing to compare"
            )
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

    def describe(self) -> Description:
        return Description(
            "The Mallows kernel compares rankings by the number of pairs of items that they order "
            "differently (Jiao and Vert 2015).",
            _JIAO_VERT,
            {
                "concentration": "Concentration: each pair that is ordered differently multiplies "
                "the covariance by exp(−concentration)."
            },
        )


def _require_exhaustive(*sets: Rankings) -> None:
    if not all(rankings.exhaustive for rankings in sets):
        raise partial_in_a_program()


@runtime_checkable
class GramKernel(Protocol):
    """A covariance function of rankings by its values: `Mallows` and `Kendall`."""

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        """Default priors of the hyperparameters, by the names of their sites."""

    def gram(self, *args: Any, **parameters: Any) -> Array:
        """Kernel between rankings, shape (m, m'), from two sets and the hyperparameters."""

    def diagonal(self, *args: Any, **parameters: Any) -> Array:
        """Kernel of each ranking with itself, shape (m,), from these and the hyperparameters."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Landmarks:
    """Features from a kernel's values at landmarks, also called inducing points.

    See `relpref.kernels.landmark_features`.

    Parameters
    ----------
    kernel : GramKernel
        Its hyperparameters stay hyperparameters.
    rankings : Rankings, length r
        The landmarks. If they are all the rankings of the training data, each once, nothing is
        approximated.
    error : float
        Share of the candidates' prior variance that the landmarks leave out, 0 to 1, at the
        hyperparameters for which they were chosen; NaN if they were given. Each ranking has that
        variance by itself, see `Features`.
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
        """Choose landmarks, one by one the ranking that those chosen before explain worst.

        See `relpref.linalg.pivoted_cholesky`.

        Parameters
        ----------
        kernel : GramKernel
        rankings : Rankings
            Candidates; equal ones are chosen once.
        number : int
            Number of landmarks at most.
        tol : float
            Share of the variance that may be left out; fewer landmarks are chosen if they suffice.
        **parameters
            Hyperparameters at which to choose; the medians of their priors by default.
        """
        if not len(rankings):
            raise DataError("Landmarks: there are no rankings to choose from")
        plain = _plain(rankings)
        values = medians(kernel, plain)
        if unknown := set(parameters) - set(values):
            raise DataError(
                f"Landmarks: {type(kernel).__name__} has no hyperparameter "
                f"{', '.join(sorted(unknown))}; it has: {', '.join(values) or 'none'}"
            )
        values |= parameters
        columns = getattr(kernel, "columns", None)
        gram = partial(kernel.gram, **values)
        if columns:
            column = columns(plain)
        elif len(plain) <= _TOGETHER * number:
            column = in_double(gram, plain, plain).__getitem__
        else:

            def column(row: int) -> Any:
                return in_double(gram, plain, plain[[row]])[:, 0]

        diagonal = in_double(partial(kernel.diagonal, plain, **values))
        chosen, error = pivoted_cholesky(diagonal, column, number, tol)
        return cls(kernel, plain[chosen], np.float64(error))

    def parameters(self, rankings: Rankings) -> Mapping[str, dist.Distribution]:
        return self.kernel.parameters(rankings)

    def features(self, rankings: Rankings, **parameters: Any) -> Features:
        """Features, one for each landmark.

        Inside a program, items must be those of the landmarks, in the same order.
        """
        rankings = with_items_of(self.rankings, rankings)
        return landmark_features(
            self.kernel.gram(rankings, self.rankings, **parameters),
            self.kernel.gram(self.rankings, self.rankings, **parameters),
            self.kernel.diagonal(rankings, **parameters),
        )

    def describe(self) -> Description:
        inner = describe(self.kernel)
        number = counted(len(self.rankings), "landmark ranking")
        return replace(
            inner, sentence=f"{inner.sentence} Its values at {number} stand for the others."
        )


def medians(kernel: GramKernel, rankings: Rankings) -> dict[str, Any]:
    """The hyperparameters of a kernel at the medians of their priors."""
    priors = dict(kernel.parameters(rankings))
    values: dict[str, Any] = evaluated(_medians, priors) if priors else {}
    return values


@jax.jit
def _medians(priors: Mapping[str, dist.Distribution]) -> dict[str, Array]:
    return {name: prior.icdf(jnp.asarray(0.5)) for name, prior in priors.items()}


def _plain(rankings: Rankings) -> Rankings:
    """The rankings alone, without classes and features."""
    return Rankings(rankings.items, rankings.positions, rankings.rankers)


@dataclass(frozen=True)
class SampledMallows:
    """The Mallows kernel with a fixed concentration on rankings of any kind, see `mallows_kernel`.

    It cannot be used inside of programs.
    """

    concentration: float
    samples: int = 32
    rng_key: Any = 0

    def gram(self, rankings: Rankings, others: Rankings, **options: Any) -> Any:
        return mallows_kernel(rankings, others, **vars(self), **options)

    def diagonal(self, rankings: Rankings) -> Any:
        return mallows_variances(rankings, **vars(self))


@dataclass(frozen=True, eq=False)
class LandmarkFeatures:
    """Features at landmarks for rankings of any kind, by a kernel without hyperparameters.

    They cannot be used inside of programs.
    """

    kernel: Kendall | SampledMallows
    landmarks: Rankings

    @cached_property
    def _factor(self) -> Any:
        return in_double(lambda: cholesky(self.kernel.gram(self.landmarks, self.landmarks)).lower)

    def features(self, rankings: Rankings) -> tuple[Features, float]:
        """Features as NumPy arrays, and 0, because sampling errors are those of the kernel."""
        rankings = with_items_of(self.landmarks, rankings)
        cross = in_double(self.kernel.gram, rankings, self.landmarks)
        diagonal = in_double(self.kernel.diagonal, rankings)
        return evaluated(factored_features, cross, self._factor, diagonal), 0.0


def mallows_landmarks(rankings: Rankings, number: int, *, concentration: float) -> Rankings:
    """Choose landmarks for `LandmarkFeatures` of `SampledMallows`, without sampling.

    The choice is that of `Landmarks.choose` for the kernel exp(−λ · mean number of discordant pairs
    of the linear extensions), which is a covariance function and has a closed form by the Kendall
    kernel; for full rankings it is the Mallows kernel.
    """
    plain, n = _plain(rankings), rankings.shape[1]
    strength = checked_concentration(concentration) * n * (n - 1) / 4
    column = kendall_columns(plain)
    chosen, _ = pivoted_cholesky(
        np.exp(strength * (kendall_diagonal(plain.positions) - 1)),
        lambda row: np.exp(strength * (column(row) - 1)),
        number,
    )
    return plain[chosen]
