"""Kernels on relation graphs."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.sparse
from jax import Array
from numpy.typing import NDArray
from numpyro.distributions import constraints
from scipy.linalg import lapack

from relpref.compiled import float64
from relpref.data import Graph, ScaleReference
from relpref.description import Description
from relpref.errors import DataError
from relpref.likelihoods.tilted import TreeDistribution
from relpref.limits import MAX_NODES_OF_SPECTRUM
from relpref.linalg import (
    Covariance,
    Dense,
    HeatKernel,
    KernelMatrix,
    LaplacianSolver,
    SparseMatrix,
    SparsePrecision,
    cholesky,
    gap_quadrature,
    real,
)
from relpref.linalg.arrays import namespace, solve_lower
from relpref.linalg.covariance import Pulls, joined, root_of


class Features(NamedTuple):
    """k(x, x') = φ(x)ᵀφ(x') for x ≠ x', and k(x, x) = φ(x)ᵀφ(x) + residual(x)."""

    values: Array  # φ, a row for each example, shape (m, r)
    # Prior variance that the features leave out, shape (m,); None where that is nothing
    residual: Array | None = None


def landmark_features(cross: Array, corner: Array, diagonal: Array) -> Features:
    """Features from a kernel's values at r landmarks: φ(x) = L⁻¹ k(Z, x) with L Lᵀ = k(Z, Z).

    With their residual they stand for a prior that equals the kernel at the landmarks and between
    landmark and example; between two other examples it is the covariance that the landmarks explain
    (Snelson & Ghahramani 2006, "Sparse Gaussian processes using pseudo-inputs"). If every example
    of the training data is a landmark, nothing is approximated, at new examples either. ``cross``,
    ``corner`` and ``diagonal``, shapes (m, r), (r, r) and (m,), are k(x, Z), k(Z, Z) and k(x, x).
    """
    return factored_features(cross, cholesky(corner).lower, diagonal)


def factored_features(cross: Array, lower: Array, diagonal: Array) -> Features:
    """`landmark_features` by the Cholesky factor L of k(Z, Z), which serves all examples."""
    values, xp = solve_lower(lower, cross.T).T, namespace(lower, cross)
    return Features(values, xp.maximum(diagonal - xp.sum(xp.square(values), axis=1), 0.0))


Floats = NDArray[np.float64]

# Results kept for a graph: its solver, scale and heat kernel; copies with another scale share them.
_CACHE: WeakKeyDictionary[Graph, dict[str, Any]] = WeakKeyDictionary()


class KernelCovariance(Covariance):
    """A covariance kept as a kernel, its inputs and its hyperparameters, and evaluated on demand.

    ``dense`` is a matrix, which JAX can trace; products and chosen entries are evaluated without a
    matrix, by NumPy and at hyperparameters that are numbers.
    """

    kernel: Any
    values: Mapping[str, Any]
    amplitude: Any  # a of a² K

    @property
    def scale(self) -> Any:
        """The factor a² of the kernel."""
        return self.amplitude * self.amplitude

    def scaled(self, factor: Any) -> Any:
        amplitude = root_of(factor) * self.amplitude
        return replace(self, amplitude=amplitude)  # type: ignore[type-var]

    @property
    @abstractmethod
    def without_matrix(self) -> Covariance:
        """The covariance in a form that needs no matrix, for many values."""

    @abstractmethod
    def _applied(self, function: Callable[..., Any], *first: Any) -> Any:
        """A function of further arguments, the inputs of the kernel and its hyperparameters."""

    def _unit(self) -> Any:
        """The matrix before it is scaled; one of NumPy is kept."""
        unit = vars(self).get("_matrix")
        if unit is None:
            unit = self._applied(self.kernel).dense()
            if isinstance(unit, np.ndarray):
                vars(self)["_matrix"] = unit
        return unit

    def dense(self) -> Any:
        return self.scale * self._unit()

    def in_memory(self) -> Covariance:
        # A kernel of a subclass may differ from what an inherited ``pull`` is the derivative of.
        return self if "pull" in vars(type(self.kernel)) else Dense(self.dense())

    def pull(self, weights: Any) -> Pulls:
        slopes = self._applied(self.kernel.pull, weights)
        of_values: Pulls = {(name,): self.scale * slopes[name] for name in self.values}
        total = 2 * self.amplitude * namespace(weights).vdot(weights, self._unit())
        return {("amplitude",): total, **joined(of_values, "values")}

    def matmul(self, vectors: Any) -> Any:
        return self.without_matrix.matmul(vectors)

    def block(self, rows: Any, columns: Any) -> Any:
        return self.without_matrix.block(rows, columns)

    def showing(self, progress: Callable[[], Any]) -> Covariance:
        return self.without_matrix.showing(progress)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class GraphCovariance(KernelCovariance):
    """The covariance that a kernel with hyperparameters gives a graph's nodes.

    For ``normalize`` see `RegularizedLaplacian`.
    """

    kernel: Any
    graph: Any
    values: Mapping[str, Any]
    normalize: bool = field(metadata={"static": True})
    amplitude: Any = 1.0

    depends_on_others = True

    @property
    def size(self) -> int:
        return int(self.graph.num_nodes)

    def _applied(self, function: Callable[..., Any], *first: Any) -> Any:
        return function(*first, self.graph, normalize=self.normalize, **self.values)

    def at(self, values: Mapping[str, Any]) -> "GraphCovariance":
        """The covariance at other hyperparameters of the kernel, not scaled."""
        return replace(self, values=values, amplitude=1.0)

    @cached_property
    def without_matrix(self) -> Covariance:
        form = getattr(self.kernel, "implicit", None)
        if form is None:
            raise DataError(
                f"{type(self.kernel).__name__} has no form for so many items; RegularizedLaplacian,"
                " Diffusion and HiddenCommonCause have, or fit with structure='dense'"
            )
        values = {name: float(value) for name, value in self.values.items()}
        covariance: Covariance = form(self.graph, normalize=self.normalize, **values)
        return covariance.scaled(float(self.scale))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class AttributeCovariance(KernelCovariance):
    """The covariance that a kernel with hyperparameters gives attribute vectors, shape (n, d)."""

    kernel: Any
    attributes: Any
    values: Mapping[str, Any]
    amplitude: Any = 1.0

    @property
    def size(self) -> int:
        return int(self.attributes.shape[0])

    def _applied(self, function: Callable[..., Any], *first: Any) -> Any:
        return function(*first, self.attributes, **self.values)

    @cached_property
    def without_matrix(self) -> Covariance:
        cross = getattr(self.kernel, "cross", None)
        if cross is None:
            raise DataError(
                f"{type(self.kernel).__name__} has no method cross(rows, columns, "
                "**hyperparameters) for the covariances of some items with others, which so many "
                "items need; write it, or fit with structure='dense'"
            )
        compiled = jax.jit(cross)

        def some(rows: Floats, columns: Floats) -> Floats:
            with float64():
                covariances = compiled(_filled(rows), _filled(columns), **self.values)
                return np.asarray(covariances)[: len(rows), : len(columns)]

        return KernelMatrix(some, np.asarray(self.attributes), float(self.scale))


def _filled(points: Floats) -> Floats:
    """Points, the last one repeated up to a round number, so that few shapes are compiled."""
    step = max(64, 1 << max(0, len(points).bit_length() - 3))
    return (
        np.pad(points, ((0, -len(points) % step), (0, 0)), mode="edge") if len(points) else points
    )


def solver_of(graph: Graph) -> LaplacianSolver:
    """The solver of a graph's Laplacian, created once."""
    cache = _CACHE.setdefault(graph, {})
    if "solver" not in cache:
        cache["solver"] = LaplacianSolver(graph.adjacency())
    solver: LaplacianSolver = cache["solver"]
    return solver


def heat_of(graph: Graph, time: float) -> HeatKernel:
    """The heat kernel of a graph; entries computed at the last time are kept."""
    solver, cache = solver_of(graph), _CACHE[graph]
    heat: HeatKernel | None = cache.get("heat")
    if heat is None or heat.time != time:
        heat = cache["heat"] = HeatKernel(solver, time)
    return heat


def scale_reference(graph: Graph) -> tuple[ScaleReference, float]:
    """Reference that scales kernels on a graph, and the scale's largest relative standard error.

    It is estimated if the graph is too large for its spectrum; otherwise the error is 0.
    """
    if graph.num_nodes <= MAX_NODES_OF_SPECTRUM:
        return graph.reference, 0.0
    eigenvalues, gap_weights, error = gap_quadrature(solver_of(graph))
    return ScaleReference(eigenvalues, gap_weights, graph.mean_degree, graph.component), error


def with_scale(graph: Graph) -> tuple[Graph, float | None]:
    """The graph with its `scale_reference`, and the error of that; None if the scale was given."""
    cache = _CACHE.setdefault(graph, {})
    if graph.frozen_reference is None:
        if "scale" not in cache:
            cache["scale"] = scale_reference(graph)
        graph = graph.with_reference(cache["scale"][0])
        _CACHE[graph] = cache
    return graph, cache["scale"][1] if "scale" in cache else None


def like(number: Any, *arrays: Any) -> tuple[Any, ...]:
    """Arrays in JAX's default precision where the number is JAX's; otherwise as they are."""
    return tuple(map(real, arrays)) if namespace(number) is jnp else arrays


def gap_scale(reference: ScaleReference, function: Any, heat: bool = False) -> Array:
    """Factor that brings the mean gap variance of a function of the Laplacian to 2.

    For ``heat`` that variance counts as at least a share of the one between components.
    """
    weights, eigenvalues = like(function(0.0), reference.gap_weights, reference.eigenvalues)
    variance = (weights * function(eigenvalues)).sum()
    return unit_scale(
        namespace(variance).maximum(
            variance, _LEAST_WITHIN * _heat_between(reference) if heat else 0.0
        )
    )


class GraphKernel(Protocol):
    """A covariance function of a graph's nodes."""

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """Default priors of the hyperparameters; their sites are named ``<relation>_<name>``."""

    def __call__(self, *args: Any, **parameters: Any) -> Covariance:
        """Covariance of the nodes, from the graph, ``normalize`` and hyperparameters by name."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class RegularizedLaplacian:
    """[Δ + I/ι²]⁻¹ with the combinatorial Laplacian Δ = D − W and the range ι.

    This is XPGP eq. 2 with β = 1: β would be redundant with the relation's amplitude. One
    eigendecomposition of Δ, computed once by the data, serves every ι; a first ι that is not very
    long is one Cholesky factorization.

    Notes
    -----
    With ``normalize`` the kernel is divided by its mean gap variance over two: then two items of
    one component differ, on average, as much as two far apart under a unit-amplitude attribute
    kernel, and amplitudes can be compared. (Unit diagonals would not do that: as ι grows, the
    entries of a component approach a constant and only the gaps count.)

    Prior of ι: log-normal with log-sd 1 and median √(10/mean degree). A node leans on its neighbors
    in proportion to degree·ι² against 1 on itself, for ten elevenths at the median; two log-sds
    reach from nearly independent nodes to nearly constant components.
    """

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """``range``, a scalar."""
        degree = graph.baseline.mean_degree
        return {"range": dist.LogNormal(0.5 * namespace(degree).log(10.0 / degree), 1.0)}

    def __call__(self, graph: Graph, *, normalize: bool = True, range: Array) -> Dense:
        new = graph.frozen_reference is None and "spectrum" not in vars(graph)
        if new and namespace(range) is np and 2 * graph.degree.max(initial=0.0) * range**2 < _SHORT:
            return Dense(_inverted(graph, range, normalize))
        return _spectral(graph, partial(_regularized, range), normalize)

    def pull(
        self, weights: Any, graph: Graph, *, normalize: bool = True, range: Any
    ) -> dict[str, Any]:
        """Derivatives of Σ_ij W_ij K_ij in the hyperparameters, by name."""
        function = partial(_regularized, range)
        slope = _pull_spectral(
            weights, graph, function, lambda values: 2 * function(values) ** 2 / range**3, normalize
        )
        return {"range": slope}

    def implicit(self, graph: Graph, *, normalize: bool = True, range: float) -> SparsePrecision:
        """The covariance of a graph too large for its spectrum: a sparse precision."""
        covariance = SparsePrecision(solver_of(graph), 1 / range**2)
        if not normalize:
            return covariance
        return covariance.scaled(float(gap_scale(graph.reference, partial(_regularized, range))))

    def describe(self) -> Description:
        return Description(
            "The regularized Laplacian makes linked items alike.",
            parameters={
                "range": "Range: how far utility reaches along links. Near 0 every item stands for "
                "itself; the longer it is, the more those that are linked are alike."
            },
            unit="two of its items",
            readings={"range": _leaning},
        )


def _regularized(range: Any, eigenvalues: Any) -> Any:
    return 1 / (eigenvalues + 1 / range**2)


# Bound of the condition number of Δ + I/ι² below which its inverse is as exact as by the spectrum.
_SHORT = 1e3


def _inverted(graph: Graph, range: Any, normalize: bool) -> Floats:
    """`RegularizedLaplacian` at a first range, without the spectrum."""
    precision: Floats = -graph.adjacency().toarray()
    np.fill_diagonal(precision, graph.degree + 1 / range**2)
    root, _ = lapack.dpotrf(precision.T, lower=True, overwrite_a=True)
    lower, _ = lapack.dpotri(root, lower=True, overwrite_c=True)
    covariance = np.tril(lower) + np.tril(lower, -1).T
    return np.asarray(rescaled(covariance, graph) if normalize else covariance)


def _leaning(value: float, graph: Graph) -> str:
    """Share of a linked item's prior mean that its neighbors have, given their utilities."""
    linked, pull = int(np.sum(graph.degree > 0)), graph.mean_degree * value**2
    if not linked:
        return ""
    items = "item" if linked == graph.num_nodes else f"one of the {linked} items with links"
    return f"a typical {items} leans {100 * pull / (1 + pull):.0f}% on its neighbors"


@jax.tree_util.register_static
@dataclass(frozen=True)
class Diffusion:
    """exp(−tΔ), the heat that has flowed along the links after the time t (Kondor & Lafferty 2002).

    Notes
    -----
    Smoother than `RegularizedLaplacian`, as the squared exponential is smoother than Matérn
    kernels. ``normalize`` is as there. Prior of t: log-normal with log-sd 1 and median 1/mean
    degree, the time in which a typical node would give away 63 % of its heat if nothing came back;
    two log-sds reach from 13 % to all but 1/1600 of it.

    Heat never leaves a component: within one, gaps vanish as exp(−λt), between two they do not. So
    scaling by the gaps within components alone would let utilities of different components differ
    without bound, and their means over t would not exist. With ``normalize`` the mean gap variance
    between components is at most 100 times the 2 within them.
    """

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """``time``, a scalar."""
        degree = graph.baseline.mean_degree
        return {"time": dist.LogNormal(-namespace(degree).log(degree), 1.0)}

    def __call__(self, graph: Graph, *, normalize: bool = True, time: Array) -> Dense:
        return _spectral(graph, partial(_heat, time), normalize, True)

    def pull(
        self, weights: Any, graph: Graph, *, normalize: bool = True, time: Any
    ) -> dict[str, Any]:
        """Derivatives of Σ_ij W_ij K_ij in the hyperparameters, by name."""
        function = partial(_heat, time)
        slope = _pull_spectral(
            weights, graph, function, lambda values: -values * function(values), normalize, True
        )
        return {"time": slope}

    def implicit(self, graph: Graph, *, normalize: bool = True, time: float) -> HeatKernel:
        """The covariance of a graph too large for its spectrum, by the Lanczos process."""
        covariance = heat_of(graph, time)
        if not normalize:
            return covariance
        return covariance.scaled(float(gap_scale(graph.reference, partial(_heat, time), True)))

    def describe(self) -> Description:
        return Description(
            "The diffusion kernel makes linked items alike, as if utility spread along links like "
            "heat (Kondor and Lafferty 2002).",
            "R. I. Kondor and J. Lafferty (2002). Diffusion Kernels on Graphs and Other Discrete "
            "Input Spaces. In: Proceedings of the 19th International Conference on Machine "
            "Learning (ICML 2002).",
            {
                "time": "Time: how long utility has spread along links like heat. Near 0 every "
                "item stands for itself; the longer it is, the more those that are linked are "
                "alike."
            },
            unit="two of its items",
        )


def _heat(time: Any, eigenvalues: Any) -> Any:
    return namespace(time, eigenvalues).exp(-time * eigenvalues)


# Least mean gap variance within components that a scale is based on, relative to that between them.
_LEAST_WITHIN = 0.01


def _heat_between(reference: ScaleReference) -> Array:
    """Mean gap variance of exp(−tΔ) between components as t → ∞; 0 without such pairs or edges.

    For two components it is 1/s + 1/s' for components of s and s' nodes.
    """
    component, gap_weights = reference.component, reference.gap_weights
    xp = namespace(component, gap_weights)
    length = {"minlength" if xp is np else "length": component.size}
    size = xp.bincount(component, **length)[component]
    others = component.size - size
    mean = 2 * (others / size).sum() / xp.maximum(others.sum(), 1)
    return xp.where(gap_weights.sum() > 0, mean, 0.0)


def _spectral(
    graph: Graph, function: Callable[[Any], Any], normalize: bool, heat: bool = False
) -> Dense:
    """A function of the Laplacian, scaled by its eigenvalues alone if ``normalize``."""
    eigenvalues, vectors, _ = graph.spectrum
    values = function(eigenvalues)
    if normalize:
        values = gap_scale(graph.reference, function, heat) * values
    (vectors,) = like(values, vectors)
    if namespace(values) is np:  # the values are positive, and NumPy takes half the time for A Aᵀ
        root = vectors * np.sqrt(values)
        return Dense(root @ root.T)
    return Dense((vectors * values) @ vectors.T)


def _pull_spectral(
    weights: Any,
    graph: Graph,
    function: Callable[[Any], Any],
    slope: Callable[[Any], Any],
    normalize: bool,
    heat: bool = False,
) -> Any:
    """Derivative of Σ_ij W_ij K_ij of `_spectral` in what ``function`` has the ``slope`` in."""
    eigenvalues, vectors, _ = like(weights, *graph.spectrum)
    each, change = ((weights @ vectors) * vectors).sum(axis=0), slope(eigenvalues)
    if not normalize:
        return each @ change
    # K = s V diag(f) Vᵀ with s = 2/v, where v, the mean gap variance, may be bounded from below.
    reference, xp = graph.reference, namespace(weights)
    gap_weights, of_reference = like(weights, reference.gap_weights, reference.eigenvalues)
    scale, variance = gap_scale(reference, function, heat), gap_weights @ function(of_reference)
    moves = (variance > 0) & (abs(scale * variance - 2) < 1e-9)
    change_of_scale = xp.where(moves, -0.5 * scale**2 * (gap_weights @ slope(of_reference)), 0.0)
    return scale * (each @ change) + change_of_scale * (each @ function(eigenvalues))


def unit_scale(gap_variance: Array, negligible: float = 0.0) -> Array:
    """Factor that brings a mean gap variance to 2; 1 where the variance is negligible.

    It is negligible, for example, where no component has two nodes.
    """
    xp, counts = namespace(gap_variance), gap_variance > negligible
    return xp.where(counts, 2 / xp.where(counts, gap_variance, 1), 1)


def rescaled(covariance: Array, graph: Graph, *, negligible: float = 0.0) -> Array:
    """Scale a covariance of the nodes to a mean gap variance of 2 within components.

    The mean is over the pairs of the graph of reference: the gaps of new nodes do not change the
    scale. Up to the mean gap variance ``negligible`` the covariance is returned unchanged.
    """
    component = graph.baseline.component
    xp = namespace(covariance, component)
    within = covariance[: component.size, : component.size]
    together = (component[:, None] == component[None, :]).astype(covariance.dtype)
    # Σ K_ii + K_jj − 2 K_ij over the ordered pairs; those with i = j add nothing.
    diagonal = xp.sum(xp.diagonal(within) * xp.sum(together, axis=1))
    total = 2 * diagonal - 2 * xp.sum(together * within)
    pairs = xp.sum(together) - component.size
    return covariance * unit_scale(total / xp.where(pairs > 0, pairs, 1), negligible)


class GaussianProcess(TreeDistribution):
    """Zero-mean Gaussian over n values with a structured covariance.

    A `NamedSum` keeps the names of its parts, which ``Posterior.explain`` reports.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real_vector
    reparametrized_params: ClassVar[list[str]] = []
    leaves = ("covariance",)

    def __init__(self, covariance: Covariance, *, validate_args: bool | None = None) -> None:
        self.covariance = covariance
        super().__init__(event_shape=(covariance.size,), validate_args=validate_args)

    @property
    def mean(self) -> Any:
        return np.zeros(self.event_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw vectors, shape ``sample_shape + (n,)``."""
        lower = self.covariance.root().lower
        return jax.random.normal(key, (*sample_shape, lower.shape[1]), lower.dtype) @ lower.T

    def log_prob(self, value: Array) -> Array:
        """Gaussian log density, by the covariance's root."""
        lower = self.covariance.root().lower
        flat = jnp.reshape(value, (-1, value.shape[-1]))
        white = jax.scipy.linalg.solve_triangular(lower, flat.T, lower=True)
        n = value.shape[-1]
        constant = jnp.sum(jnp.log(jnp.diagonal(lower))) + 0.5 * n * jnp.log(2 * jnp.pi)
        return jnp.reshape(-0.5 * jnp.sum(jnp.square(white), axis=0) - constant, value.shape[:-1])


# 1 % of 2, the gap variance of independent items: below it, those that are linked count as one.
_NEGLIGIBLE_GAP = 0.02


@jax.tree_util.register_static
@dataclass(frozen=True)
class HiddenCommonCause:
    """Kernel that makes items alike if they share hidden causes.

    Every group of linked items has a hidden cause, and an item is the sum of the causes of its
    groups, scaled to unit variance: with U_ij the number of groups that hold both items i and j,
    the kernel is U_ij / √(U_ii U_jj) (Silva, Chu & Ghahramani 2007, sections 3.1 to 3.3; XPGP
    section 3.1).

    Parameters
    ----------
    method : {"edges", "cliques"}
        The groups. "edges" (their method II): the two ends of each link; a link of weight w counts
        w times, so that U = D + W. "cliques" (method I): the maximal cliques of the triangulated
        graph, whatever the weights and the order of the items (see
        `relpref.data.graph.maximal_cliques`); the data must have counted them:
        ``data.with_cliques("name")``.
    regularization : float
        Added to the diagonal of U, in units of the mean weight of a link (of one clique).

    Raises
    ------
    DataError
        When called, if the cliques have not been counted, or all items are linked to each other
        alike. ``with_cliques`` refuses a relation in which a connected component that is not fully
        linked becomes a single clique, because its links do not tell its items apart: rings, tori,
        cubes and most other regular graphs.

    Notes
    -----
    There is no hyperparameter but the amplitude. Items without a common group are independent.
    ``normalize`` is as for `RegularizedLaplacian`, with one exception. Where the items of a
    component are all in the same groups (brands: a bipartite relation with one target for each
    item), the only gaps within components are those of the regularization, and scaling these up to
    2 would blow up the gaps between components. So where their mean variance is below 1 % of that
    between components, the variances stay 1.
    """

    method: Literal["edges", "cliques"] = "edges"
    regularization: float = 1e-4

    def __post_init__(self) -> None:
        if self.method not in ("edges", "cliques"):
            raise DataError(
                f'HiddenCommonCause: there is no method {self.method!r}; use "edges" or "cliques"'
            )
        if not 0 < self.regularization < float("inf"):
            raise DataError(
                f"HiddenCommonCause: the regularization is {self.regularization}; give a positive "
                "number, such as 1e-4"
            )

    def parameters(self, graph: Graph) -> Mapping[str, dist.Distribution]:
        """No hyperparameters; the graph is checked."""
        if not graph.partial:
            self._check(graph)
        return {}

    def __call__(self, graph: Graph, *, normalize: bool = True) -> Dense:
        """Covariance matrix of the nodes."""
        self._check(graph)
        if self.method == "edges":
            weights = real(graph.weight_matrix)
            mean = jnp.sum(weights) / jnp.maximum(jnp.sum(weights > 0), 1)
            mean = jnp.where(mean > 0, mean, 1.0)
            shared = weights + jnp.diag(jnp.sum(weights, axis=1) + self.regularization * mean)
        else:
            shared = real(graph.cliques) + self.regularization * jnp.eye(graph.num_nodes)
        scale = jnp.sqrt(jnp.diagonal(shared))
        correlation = shared / (scale[:, None] * scale[None, :])
        return Dense(
            rescaled(correlation, graph, negligible=_NEGLIGIBLE_GAP) if normalize else correlation
        )

    def implicit(self, graph: Graph, *, normalize: bool = True) -> SparseMatrix:
        """The covariance by edges of a graph too large for a matrix.

        Items that are not linked are independent.
        """
        if self.method != "edges":
            raise DataError(
                'HiddenCommonCause(method="cliques") has no form for so many items; take '
                "method=\"edges\", or fit with structure='dense'"
            )
        self._check(graph)
        weights = graph.adjacency()
        mean = float(graph.weight.mean()) if graph.num_edges else 1.0
        variance = graph.degree + self.regularization * mean
        scale = scipy.sparse.diags_array(1 / np.sqrt(variance))
        correlation = scipy.sparse.csr_array(
            scale @ weights @ scale + scipy.sparse.eye_array(graph.num_nodes)
        )
        if not normalize:
            return SparseMatrix(correlation)
        # As in `rescaled`: all variances are 1, and covariances that are not 0 belong to links.
        component = np.asarray(graph.baseline.component)
        together = float(np.bincount(component)[component].sum())
        entries = scipy.sparse.coo_array(correlation[: component.size, : component.size])
        inside = component[entries.coords[0]] == component[entries.coords[1]]
        pairs = together - component.size
        gap_variance = 2 * (together - float(entries.data[inside].sum())) / (pairs or 1.0)
        return SparseMatrix(correlation).scaled(
            2 / gap_variance if gap_variance > _NEGLIGIBLE_GAP else 1.0
        )

    def describe(self) -> Description:
        return Description(
            "The hidden common cause kernel makes items alike that share "
            f"{'links' if self.method == 'edges' else 'cliques'} (Silva, Chu and Ghahramani 2007).",
            "R. Silva, W. Chu and Z. Ghahramani (2007). Hidden Common Cause Relations in "
            "Relational Learning. In: Advances in Neural Information Processing Systems 20 (NIPS "
            "2007).",
            unit="two of its items",
        )

    def _check(self, graph: Graph) -> None:
        if self.method == "cliques" and graph.cliques is None:
            raise DataError(
                'HiddenCommonCause(method="cliques"): the cliques have not been counted; '
                "call data.with_cliques(name of the relation) and pass what it returns"
            )
        constant = ("constant", "weighted") if self.method == "cliques" else ("constant",)
        if graph.completeness in constant:
            remedy = "keep only the stronger links" if self.method == "cliques" else "give weights"
            raise DataError(
                "HiddenCommonCause: every two items are linked alike, so all correlations are the "
                f"same and the relation says nothing; {remedy} or link only those above a threshold"
            )
