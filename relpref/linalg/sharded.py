"""Large linear systems on several devices, which hold the rows of the matrices between them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import ArrayLike

from relpref.compiled import float64
from relpref.errors import DataError, RelprefError
from relpref.linalg.cg import CGResult, Floats, block_cg, check_finite
from relpref.linalg.graph_solver import LaplacianSolver, Positions, Solution

__all__ = ["ShardedEdges", "ShardedLaplacian"]

Swap = Literal["none", "symmetric", "reciprocal"]
Progress = Callable[[int, float], Any]

_SIGN = {"none": 0.0, "symmetric": 1.0, "reciprocal": -1.0}
_PROGRESS_INTERVAL = 25  # iterations


def row_sharding(mesh: Any, rows: int) -> NamedSharding:
    """Return the sharding of rows over a mesh; DataError if the mesh does not fit."""
    if not isinstance(mesh, Mesh):
        raise DataError(
            f"mesh is {mesh!r}; give a jax.sharding.Mesh, such as Mesh(np.array(jax.devices()), "
            "('device',))"
        )
    if len(mesh.axis_names) != 1:
        raise DataError(
            f"mesh has the axes {', '.join(map(str, mesh.axis_names))}; rows are sharded over one "
            "axis: give Mesh(mesh.devices.ravel(), ('device',))"
        )
    platforms = sorted({device.platform for device in mesh.devices.flat})
    if len(platforms) > 1:
        kinds = ", ".join(platforms)
        raise DataError(f"mesh mixes devices of the kinds {kinds}; give devices of one kind")
    if not mesh.local_devices:
        raise DataError(
            f"mesh has no device of process {jax.process_index()}; give at least one device of "
            "every process"
        )
    if mesh.size > rows:
        raise DataError(
            f"mesh has {mesh.size} devices for {rows} nodes; give at most as many devices as nodes"
        )
    # jax.make_mesh has explicit axes, which need a sharding for every array; these are automatic.
    return NamedSharding(Mesh(mesh.devices, mesh.axis_names), PartitionSpec(mesh.axis_names[0]))


def _replicated(sharding: NamedSharding) -> NamedSharding:
    return NamedSharding(sharding.mesh, PartitionSpec())


def _place(values: Any, sharding: NamedSharding) -> Array:
    """Return a global array of values that every process has."""
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def _place_matrix(matrix: Any, sharding: NamedSharding) -> Array:
    """Return a square matrix, padded with zeros to a multiple of the number of devices.

    A process reads the rows of its own devices.
    """
    rows = matrix.shape[0]
    size = rows + -rows % sharding.mesh.size

    def block(index: Any) -> Floats:
        start, stop, _ = index[0].indices(size)
        values = np.asarray(matrix[start : min(stop, rows)], dtype=np.float64)
        return np.pad(values, ((0, stop - start - len(values)), (0, size - rows)))

    return jax.make_array_from_callback((size, size), sharding, block)


def _gather(array: Array, sharding: NamedSharding) -> Floats:
    return np.asarray(jax.device_put(array, _replicated(sharding)))


@contextmanager
def _computing(sharding: NamedSharding) -> Iterator[None]:
    """Compute on the mesh in double precision; RelprefError if another process is lost."""
    processes = len({device.process_index for device in sharding.mesh.devices.flat})
    try:
        with float64(), jax.default_device(sharding.mesh.local_devices[0]):
            yield
    except jax.errors.JaxRuntimeError as error:
        if processes == 1:
            raise
        raise RelprefError(
            f"the {processes} processes lost one another, because one of them ended or cannot be "
            "reached; look at its output and start them all again "
            f"({str(error).splitlines()[0]})"
        ) from error


class _Edges(NamedTuple):
    """The kernels, and the edges of each row in slots, some of them empty; sharded by rows."""

    left: Array  # shape (p, p)
    right: Array | None  # shape (m, m); None if it is left
    columns: Array  # of the edge in each slot, shape (p, width)
    used: Array  # 1 in slots with an edge, 0 in empty ones, shape (p, width)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _product(
    sharding: NamedSharding, sign: float, centered: bool, edges: _Edges, noise: Array, dual: Array
) -> Array:
    """Return (K + λ) a, or C (K + λ) a with the centering C, shape (p · width, 1)."""
    left, right, columns, used = edges
    right = left if right is None else right
    values = dual.reshape(used.shape)
    zeros = jnp.zeros(len(right))
    weights = jax.vmap(lambda at, row: zeros.at[at].add(row))(columns, values)
    if sign:
        weights = 0.5 * (weights + sign * weights.T)
    weights = lax.with_sharding_constraint(weights, sharding)
    # Each block of columns is gathered on all devices, so one after the other saves memory.
    blocks = jnp.moveaxis(right.reshape(len(right), sharding.mesh.size, -1), 1, 0)
    scores = lax.map(lambda block: left @ (weights @ block), blocks)
    scores = jnp.moveaxis(scores, 0, 1).reshape(weights.shape)
    image = jnp.take_along_axis(scores, columns, axis=1) * used + noise * values
    image = _centered(used, image) if centered else image
    return lax.with_sharding_constraint(image.reshape(dual.shape), sharding)


@jax.jit
def _centered(used: Array, values: Array) -> Array:
    """Subtract from each edge's value the mean of its row."""
    table = values.reshape(used.shape)
    means = table.sum(axis=1, keepdims=True) / jnp.maximum(used.sum(axis=1, keepdims=True), 1.0)
    return ((table - means) * used).reshape(values.shape)


class ShardedEdges:
    """The Kronecker kernel of q edges, K(v, v') G(w, w'), with the rows sharded over devices.

    Each of N devices holds its rows of K and G, the edges of its conditioning nodes v, and their
    rows of the (p, m) matrix of coefficients. A product takes it O((p²m + pm²)/N) operations and
    memory for O((p² + m² + pm)/N) numbers.

    Parameters
    ----------
    left : array-like, shape (p, p)
        K, symmetric. Only its shape and slices of its rows are used, so it may be in a file
        (``np.memmap``). A process reads the rows of its own devices.
    right : array-like, shape (m, m)
        G. If it is the same object as K, it is stored once.
    rows, columns : array of int, shape (q,)
        The nodes v and w of each edge. An edge may occur several times.
    mesh : jax.sharding.Mesh
        One axis, at most p devices. If they belong to several processes, all processes call the
        same functions in the same order.
    swap : {"none", "symmetric", "reciprocal"}
        Use ½(A ± Aᵀ) instead of A, which gives the symmetric and the reciprocal kernel.
    centered : bool
        Subtract from each edge's score the mean over the edges of its conditioning node, as the
        ranking loss does.
    """

    def __init__(
        self,
        left: Any,
        right: Any,
        rows: Positions,
        columns: Positions,
        mesh: Any,
        *,
        swap: Swap = "none",
        centered: bool = False,
    ) -> None:
        sharding = row_sharding(mesh, left.shape[0])
        counts = np.bincount(rows, minlength=left.shape[0] + -left.shape[0] % mesh.size)
        # The edges of a row take its first slots.
        number = np.empty(len(rows), dtype=np.intp)
        number[np.argsort(rows, kind="stable")] = np.arange(len(rows)) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        self._shape, self._slots = (len(counts), int(counts.max(initial=1))), (rows, number)
        self._sharding, self._sign, self._is_centered = sharding, _SIGN[swap], centered
        with float64():
            self._edges = _Edges(
                _place_matrix(left, sharding),
                None if right is left else _place_matrix(right, sharding),
                _place(self._in_slots(columns.astype(np.int32)), sharding),
                _place(self._in_slots(np.ones(len(rows))), sharding),
            )

    def solve(
        self,
        labels: Floats,
        noise: float,
        *,
        start: ArrayLike | None = None,
        tol: float = 1e-8,
        max_iterations: int | None = None,
        progress: Progress | None = None,
    ) -> CGResult:
        """Solve (K + λ) a = y, or if centered (C K C + λ) a = C y with a in the range of C.

        Parameters
        ----------
        labels : array, shape (q,)
            y.
        noise : float
            λ.
        start : array, shape (q,), optional
            The first guess; zeros by default.
        tol, max_iterations
            See `relpref.linalg.conjugate_gradient`.
        progress : callable, optional
            Called as ``progress(iterations, residual)``, every 25 iterations and at the end.

        Returns
        -------
        CGResult

        Raises
        ------
        DataError
            If ``labels`` or ``start`` is not finite.
        RelprefError
            If another process of the mesh is lost.
        """
        guess = None if start is None else np.asarray(start, dtype=np.float64)
        check_finite(labels, guess)

        def report(iteration: int, _: Array, residual: float) -> None:
            if progress is not None and iteration % _PROGRESS_INTERVAL == 0:
                progress(iteration, residual)

        system = partial(
            _product, self._sharding, self._sign, self._is_centered, self._edges, np.float64(noise)
        )
        with _computing(self._sharding):
            rhs = self._column(labels)
            result = block_cg(
                lambda dual, _: system(dual),
                _centered(self._edges.used, rhs) if self._is_centered else rhs,
                start=None if guess is None else self._column(guess),
                tol=tol,
                max_steps=10 * len(labels) if max_iterations is None else max_iterations,
                verify=True,
                callback=report,
            )
            solution = _gather(result.values, self._sharding).reshape(self._shape)[self._slots]
        residual = float(result.residual[0])
        if progress is not None:
            progress(result.steps, residual)
        return CGResult(solution, result.steps, residual, result.reason)

    def _in_slots(self, values: Any) -> Any:
        table = np.zeros(self._shape, dtype=values.dtype)
        table[self._slots] = values
        return table

    def _column(self, values: Floats) -> Array:
        return _place(self._in_slots(values).reshape(-1, 1), self._sharding)


_MAX_COLUMNS = 8  # solved together, because each takes memory for a number per link
_MAX_STEPS = 3000


class ShardedLaplacian(LaplacianSolver):
    """A `LaplacianSolver` with the links sharded over devices.

    It uses conjugate gradients in double precision. Each device multiplies with its own links;
    vectors are replicated on all devices. Each process has the graph and the solutions in its
    memory.

    Parameters
    ----------
    adjacency : scipy sparse array, shape (n, n)
        W: symmetric, with positive weights and no loops.
    mesh : jax.sharding.Mesh
        One axis, at most n devices. If they belong to several processes, all processes call the
        same functions in the same order.
    """

    # All processes take part in every product, so they solve the columns in the same order.
    _workers: ClassVar[int | None] = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled, because devices belong to a process."""
        raise TypeError(
            "a solver on a mesh of devices stays in its process; make one in each process, see "
            "docs/large.md"
        )

    def __init__(self, adjacency: Any, mesh: Any) -> None:
        super().__init__(adjacency)
        self._sharding = sharding = row_sharding(mesh, self.size)
        matrix, sizes = self._laplacian.matrix.tocoo(), self._laplacian.sizes
        entries, padding = (*matrix.coords, matrix.data), -matrix.nnz % mesh.size
        component = np.repeat(np.arange(len(sizes)), sizes)
        with float64():
            rows, columns, values = (
                _place(np.pad(part, (0, padding)), sharding) for part in entries
            )
            self._links = _Links(
                rows,
                columns,
                values,
                _place(component, _replicated(sharding)),
                _place(1.0 / sizes[:, None], _replicated(sharding)),
            )

    def _refined(
        self, shift: float, rhs: Floats, scale: Floats, norm: Floats, tol: float
    ) -> Solution:
        """Solve a few columns at a time."""
        values, steps, residual, sharding = np.empty_like(rhs), 0, 0.0, self._sharding
        with _computing(sharding):
            inverse = _place(scale, _replicated(sharding))
            for start in range(0, rhs.shape[1], _MAX_COLUMNS):
                part = rhs[:, start : start + _MAX_COLUMNS]
                # Columns of zeros need no iterations; numbers of columns that are powers of two
                # share compiled code.
                padding = (1 << (part.shape[1] - 1).bit_length()) - part.shape[1]
                result = block_cg(
                    lambda block, _: _laplacian_product(self._links, np.float64(shift), block),
                    _place(np.pad(part, ((0, 0), (0, padding))), _replicated(sharding)),
                    precondition=lambda block, _: _without_means(self._links, inverse * block),
                    tol=tol,
                    max_steps=_MAX_STEPS,
                    verify=True,
                )
                part_values = _gather(result.values, sharding)[:, : part.shape[1]]
                values[:, start : start + _MAX_COLUMNS] = part_values
                steps = max(steps, result.steps)
                residual = max(residual, float(result.residual.max()))
        self._laplacian.center(values)
        method = f"conjugate gradients (Jacobi) on {sharding.mesh.size} devices"
        return Solution(values, steps, residual, method)


class _Links(NamedTuple):
    """Entries of Δ, sharded and padded with zeros, and the components of the nodes, replicated."""

    rows: Array
    columns: Array
    entries: Array
    component: Array  # of each node, shape (n,)
    share: Array  # 1 / size of each component, shape (c, 1)


@jax.jit
def _laplacian_product(links: _Links, shift: Array, vectors: Array) -> Array:
    """Return (Δ + s) X without the means over components."""
    products = links.entries[:, None] * vectors[links.columns]
    products = jax.ops.segment_sum(products, links.rows, len(vectors))
    return _without_means(links, shift * vectors + products)


@jax.jit
def _without_means(links: _Links, vectors: Array) -> Array:
    """Subtract from each column its mean over each component."""
    totals = jax.ops.segment_sum(vectors, links.component, len(links.share))
    return vectors - (links.share * totals)[links.component]
