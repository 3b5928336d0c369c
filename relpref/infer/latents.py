"""Latent vectors in a run of a program: affine functions of them, which need no tracing.

A program runs for shapes alone, with a tracer in place of each hyperparameter and an `Affine` in
place of each Gaussian site. What a likelihood takes for its predictor then knows its rows.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse
from jax.core import Tracer
from numpy.typing import NDArray

from relpref.infer.call import Call, Values
from relpref.infer.layout import Layout, counts_of, shared_noise
from relpref.infer.medians import median_by_numpy
from relpref.likelihoods import as_likelihood
from relpref.likelihoods.tilted import unwrap

Ask = Callable[["Affine"], Any]


class Affine:
    """Values that are affine in a latent vector; indexing and arithmetic with constants keep that.

    The i-th of them is row i of ``matrix`` times the latent vector, plus an entry of ``offset``.
    JAX's functions get what ``ask`` returns in place of the values.
    """

    __array_ufunc__ = None  # NumPy leaves arithmetic to the methods below
    dtype = np.dtype(np.float64)

    def __init__(self, matrix: Any, offset: NDArray[np.float64], ask: Ask) -> None:
        self.matrix, self.offset, self.ask = matrix, offset, ask

    @classmethod
    def latents(cls, layout: Layout, ask: Ask) -> "dict[str, Affine]":
        """Every latent site of a layout."""
        unit = scipy.sparse.eye_array(layout.num_latents, format="csr")
        return {
            name: cls(unit[layout.slices[name]], np.zeros(shape), ask)
            for name, shape in layout.latents
        }

    @property
    def shape(self) -> tuple[int, ...]:
        return self.offset.shape

    @property
    def ndim(self) -> int:
        return self.offset.ndim

    @property
    def size(self) -> int:
        return self.offset.size

    @property
    def columns(self) -> set[int]:
        """The latents that the values depend on."""
        return set(self.matrix.indices[self.matrix.data != 0].tolist())

    def __jax_array__(self) -> Any:
        return self.ask(self)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a latent site has no values yet, which a function of NumPy asks for")

    def __bool__(self) -> bool:
        raise TypeError("a latent site has no values yet, which a condition asks for")

    def __len__(self) -> int:
        return len(self.offset)

    # Choices of entries --------------------------------------------------------------------------

    def _chosen(self, choose: Callable[[Any], Any]) -> "Affine":
        """Entries by a function of NumPy that chooses entries of an array."""
        place = np.asarray(choose(np.arange(self.size).reshape(self.shape)))
        return Affine(self.matrix[place.ravel()], self.offset.ravel()[place], self.ask)

    def __getitem__(self, index: Any) -> "Affine":
        index = jax.tree.map(_of_numpy, index) if isinstance(index, tuple) else _of_numpy(index)
        return self._chosen(lambda place: place[index])

    def reshape(self, *shape: Any, order: Any = "C") -> "Affine":
        """The values in another shape."""
        return self._chosen(lambda place: place.reshape(*shape, order=order))

    def ravel(self) -> "Affine":
        """The values in one dimension."""
        return self.reshape(-1)

    @property
    def T(self) -> "Affine":
        """The transpose."""
        return self._chosen(np.transpose)

    def _spread(self, shape: tuple[int, ...]) -> "Affine":
        return self._chosen(lambda place: np.broadcast_to(place, shape))

    # Arithmetic ----------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Affine):
            if not _is_constant(other):
                return self.ask(self) + other
            other = np.asarray(other)
        shape = np.broadcast_shapes(self.shape, other.shape)
        values = self._spread(shape)
        if not isinstance(other, Affine):
            return Affine(values.matrix, values.offset + other, self.ask)
        more = other._spread(shape)
        return Affine(values.matrix + more.matrix, values.offset + more.offset, self.ask)

    def __mul__(self, other: Any) -> Any:
        if not _is_constant(other):
            return self.ask(self) * other
        factor = np.asarray(other, np.float64)
        values = self._spread(np.broadcast_shapes(self.shape, factor.shape))
        factor = np.broadcast_to(factor, values.shape)
        matrix = scipy.sparse.diags_array(factor.ravel(), format="csr") @ values.matrix
        return Affine(matrix, values.offset * factor, self.ask)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "Affine":
        return self * -1.0

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __truediv__(self, other: Any) -> Any:
        return self * (1 / np.asarray(other)) if _is_constant(other) else self.ask(self) / other

    def __rmatmul__(self, other: Any) -> Any:
        if not _is_constant(other):
            return other @ self.ask(self)
        factor = np.asarray(other, np.float64)
        result = factor @ self.offset
        number = self.shape[1] if self.ndim > 1 else 1
        weights = scipy.sparse.kron(
            np.atleast_2d(factor), scipy.sparse.eye_array(number), format="csr"
        )
        return Affine(scipy.sparse.csr_array(weights) @ self.matrix, result, self.ask)

    def __matmul__(self, other: Any) -> Any:
        if not _is_constant(other):
            return self.ask(self) @ other
        return (np.asarray(other).T @ self.T).T

    def sum(self, axis: int | None = None) -> "Affine":
        """The sum of the values, or along an axis."""
        if axis is None:
            return self.ravel().sum(0)
        first = self._chosen(lambda place: np.moveaxis(place, axis, 0))
        rows: Any = np.ones(len(first)) @ first.reshape(len(first), -1)
        return rows.reshape(first.shape[1:])

    def mean(self, axis: int | None = None) -> "Affine":
        """The mean of the values, or along an axis."""
        total = self.sum(axis)
        return total / (self.size / max(total.size, 1))


def _is_constant(value: Any) -> bool:
    return not isinstance(value, Affine | Tracer)


def _of_numpy(index: Any) -> Any:
    return np.asarray(index) if isinstance(index, jax.Array | list) else index


class Run(NamedTuple):
    """What a run of a program with `Affine` values for some sites shows."""

    matrix: Any  # of the predictors of all rows, a sparse matrix of SciPy, shape (m, n)
    counts: NDArray[np.float64]  # answers of each row, shape (m,)
    # Group and items of the rows, shape (m,) each, for every kind of noise of the likelihoods
    gaps: list[list[NDArray[Any]]]
    medians: Values  # of hyperparameters whose prior medians NumPy knows
    used: set[int]  # latents that are parameters of distributions, but not in their predictors
    # Whether a distribution has a parameter that is computed from latents, besides predictors that
    # are affine
    moves: bool


def run(
    call: Call,
    arrays: tuple[Any, ...],
    fixed: Values,
    layout: Layout,
    free: Mapping[str, Any],
    *,
    constants: bool,
) -> Run:
    """Run a program for shapes alone, with tracers in the shapes of ``free`` sites.

    Its likelihoods must know their predictors. A program to which latents must be arrays raises an
    error of NumPy or JAX, or `moves`. With ``constants`` JAX computes what depends on no tracer,
    which takes it a while; without, only arrays of NumPy are constants.
    """
    results: list[Run] = []

    def shapes(hyperparameters: Values, zero: Any) -> list[Any]:
        asked: dict[int, tuple[Affine, Any]] = {}

        def ask(values: Affine) -> Any:
            stand_in = zero * np.zeros(values.shape)
            asked[id(stand_in)] = values, stand_in
            return stand_in

        def affine(value: Any) -> Affine | None:
            return value if isinstance(value, Affine) else asked.get(id(value), (None,))[0]

        given, seed = {**fixed, **hyperparameters, **Affine.latents(layout, ask)}, jax.random.key(0)
        with jax.ensure_compile_time_eval() if constants else nullcontext():
            trace = call.trace(arrays, given, seed)
        sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
        likelihoods = {name: as_likelihood(sites[name]["fn"]) for name in layout.observed}
        predictors = {name: each.predictor for name, each in likelihoods.items()}
        leaves = [
            leaf
            for name, site in sites.items()
            for leaf in (*jax.tree.leaves(unwrap(site["fn"])), predictors.get(name))
            if leaf is not predictors.get(name) or affine(leaf) is None
        ]
        used = [values for leaf in leaves if (values := affine(leaf)) is not None]
        rows = [affine(each) for each in predictors.values()]
        sizes = [np.shape(each) for each in predictors.values()]
        empty = [scipy.sparse.csr_array((int(np.prod(z)), layout.num_latents)) for z in sizes]
        matrices = [
            none if each is None else each.matrix for each, none in zip(rows, empty, strict=True)
        ]
        counts = [counts_of(sites[name], np.shape(each)) for name, each in predictors.items()]
        results.append(
            Run(
                scipy.sparse.vstack(matrices, format="csr"),
                np.concatenate(counts),
                [
                    [np.asarray(part) for part in kind[:3]]
                    for kind in shared_noise(list(likelihoods.values()))
                ],
                {
                    name: value
                    for name in hyperparameters
                    if (value := median_by_numpy(sites[name]["fn"])) is not None
                },
                set().union(*(values.columns for values in used)),
                False,
            )
        )
        return [leaf for leaf in leaves if isinstance(leaf, jax.Array) and affine(leaf) is None]

    # Nothing that is returned may depend on the axis along which stand-ins are mapped.
    mapped = jax.vmap(shapes, in_axes=(None, 0), out_axes=None)
    try:
        jax.eval_shape(mapped, free, jax.ShapeDtypeStruct((1,), float))
    except ValueError:
        if not results:
            raise
        return results[0]._replace(moves=True)
    return results[0]
