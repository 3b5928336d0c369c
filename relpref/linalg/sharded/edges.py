"""Regularised least squares on edges with the Kronecker product of two kernels, K A G, on several devices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.linalg.conjugate_gradient import CGResult
from relpref.linalg.implicit.laplacian import OrderedLaplacian
from relpref.linalg.implicit.laplacian_solver import LaplacianSolver, Refinement, Solved
from relpref.linalg.sharded.conjugate_gradient import Progress, Shards, Slots, conjugate_gradient

Floats = NDArray[np.float64]
Swap = Literal["none", "symmetric", "reciprocal"]

_SIGN = {"symmetric": 1.0, "reciprocal": -1.0}


class _Operands(NamedTuple):
    """What a device holds of the system: rows of the kernels, and the edges of these rows, with empty places."""

    left: Array
    """K, shape (p, p)."""
    right: Array | None
    """G, shape (m, m); None where it is K."""
    rows: Array
    """Row of each edge among those of its device, shape (places, 1)."""
    columns: Array
    """Column of each edge."""
    taken: Array
    """1 where there is an edge, 0 in an empty place."""
    share: Array
    """1 over the number of edges of each row, shape (p, 1)."""
    noise: Array
    """λ, a number."""


class ShardedEdges:
    """The kernel matrix of q edges, Kronecker's K(v, v') G(w, w'), with the conditioning nodes dealt out over devices.

    A device holds its share of the rows of K and of G, of the edges by their conditioning node, and of the (p, m) matrix of
    coefficients. In a product the blocks of the kernels' other rows come by in turn, from neighbour to neighbour. So a product
    takes each of N devices O((p²m + pm²)/N) operations and the memory of (p² + m² + 4pm)/N numbers.

    Parameters
    ----------
    left : array-like, shape (p, p)
        K, symmetric: an array, or anything that has a shape and gives slices of rows (``np.memmap``): a process reads only the
        rows of its own devices.
    right : array-like, shape (m, m)
        G; the same object where it is K, which is then held once.
    rows, columns : array of int, shape (q,)
        The nodes that each edge joins; an edge may occur several times.
    mesh : jax.sharding.Mesh
        Of one axis, at most p devices. With those of several processes each process calls the same functions in the same order.
    swap : {"none", "symmetric", "reciprocal"}
        With ½(A ± Aᵀ) in place of A: the symmetric and the reciprocal kernel.
    centred : bool
        Subtract from each edge's score the mean of its row's edges: the system of the ranking loss.

    Raises
    ------
    DataError
        If the mesh does not fit.
    """

    def __init__(
        self,
        left: Any,
        right: Any,
        rows: NDArray[np.intp],
        columns: NDArray[np.intp],
        mesh: Any,
        *,
        swap: Swap = "none",
        centred: bool = False,
    ) -> None:
        p = left.shape[0]
        self._shards = shards = Shards.of(mesh, p, "nodes")
        block = shards.block(p)
        owners = rows // block
        self._slots = Slots.of(owners, shards.count)
        self._system = _System(shards.axis, shards.count, _SIGN.get(swap, 0.0), centred)
        share = np.zeros((block * shards.count, 1))
        share[:p, 0] = 1.0 / np.maximum(np.bincount(rows, minlength=p), 1)
        with jax.enable_x64(True):
            self._operands = _Operands(
                shards.place_matrix(left),
                None if right is left else shards.place_matrix(right),
                self._placed((rows - owners * block).astype(np.int32)),
                self._placed(columns.astype(np.int32)),
                self._placed(np.ones(len(rows))),
                shards.place_values(share),
                jnp.zeros(()),
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
        """The coefficients a with (K + λ) a = y, or where it is centred (C K C + λ) a = C y with a in the range of C.

        Parameters
        ----------
        labels : array, shape (q,)
            y.
        noise : float
            λ.
        start : array, shape (q,), optional
        tol, max_iterations
            As for `relpref.linalg.conjugate_gradient`.
        progress : callable, optional
            ``progress(iterations, residual)`` now and then.

        Returns
        -------
        CGResult
            Its solution in every process.

        Raises
        ------
        DataError
            If the labels or the start are not finite.
        RelprefError
            If a process that takes part is gone.
        """
        first = np.zeros(len(labels)) if start is None else np.asarray(start, dtype=np.float64)
        for name, given in (("right-hand side", labels), ("start", first)):
            if not np.all(np.isfinite(given)):
                raise DataError(
                    f"the {name} of conjugate gradients is not finite everywhere; look for NaN in the data"
                )
        with jax.enable_x64(True):
            found = conjugate_gradient(
                self._system,
                self._operands._replace(noise=jnp.asarray(noise, dtype=jnp.float64)),
                self._placed(labels),
                self._placed(first),
                jnp.ones(()),  # the diagonal of a kernel varies little
                self._shards,
                tol=tol,
                max_iterations=10 * len(labels) if max_iterations is None else max_iterations,
                progress=progress,
            )
            solution = self._shards.gather(found.solution)[self._slots.places, 0]
        return CGResult(solution, found.iterations, float(found.residuals[0]), found.reason)

    def _placed(self, values: Any) -> Array:
        return self._shards.place_values(self._slots.spread(values)[:, None])


@dataclass(frozen=True)
class _System:
    """K + λ, within the range of the centring C of each row's edges."""

    axis: str
    count: int
    sign: float
    centred: bool

    def apply(self, operands: _Operands, dual: Array) -> Array:
        """(K + λ) a."""
        rows, columns = operands.rows[:, 0], operands.columns[:, 0]
        left = operands.left
        right = left if operands.right is None else operands.right
        weights = jnp.zeros((len(left), right.shape[1])).at[rows, columns].add(dual[:, 0])
        if self.sign:
            weights = 0.5 * (weights + self.sign * self._transposed(weights))
        scores = self._from_left(left, self._from_right(weights, right))
        return scores[rows, columns][:, None] * operands.taken + operands.noise * dual

    def project(self, operands: _Operands, values: Array) -> Array:
        if not self.centred:
            return values
        rows = operands.rows[:, 0]
        means = jax.ops.segment_sum(values[:, 0], rows, len(operands.left))[:, None] * operands.share
        return (values - means[rows]) * operands.taken

    def _from_left(self, left: Array, matrix: Array) -> Array:
        """K B, from the rows of both that the device holds."""
        height = len(matrix)

        def part(owner: Array, block: Array) -> Array:
            return lax.dynamic_slice_in_dim(left, owner * height, height, axis=1) @ block

        return self._round(matrix, part)

    def _from_right(self, matrix: Array, right: Array) -> Array:
        height = len(right)

        def part(owner: Array, block: Array) -> Array:
            return lax.dynamic_slice_in_dim(matrix, owner * height, height, axis=1) @ block

        return self._round(right, part)

    def _round(self, block: Array, part: Callable[[Array, Array], Array]) -> Array:
        """Σ over the devices of ``part(device, its block)``; the blocks go round, so that none has more than two at a time."""
        here = lax.axis_index(self.axis)
        neighbours = [(device, (device - 1) % self.count) for device in range(self.count)]

        def step(turn: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
            total, block = carried
            block = lax.ppermute(block, self.axis, neighbours)
            return total + part((here + turn) % self.count, block), block

        return lax.fori_loop(1, self.count, step, (part(here, block), block))[0]

    def _transposed(self, matrix: Array) -> Array:
        """The device's rows of Aᵀ."""
        return lax.all_to_all(matrix, self.axis, split_axis=1, concat_axis=0, tiled=True).T


_COLUMNS = 8  # at once: each takes a device the memory of a number for each of its links
_MOST_STEPS = 3000


class ShardedLaplacian(LaplacianSolver):
    """A `LaplacianSolver` whose nodes are dealt out over devices: by conjugate gradients in double precision.

    A device holds the links of its share of the nodes, which are dealt out by degree, so that every device has about as many
    links; in a product it sees whole vectors, but no more of the graph. With devices of several processes each process calls the
    same functions in the same order, and has the whole graph and the solutions in its own memory.

    Parameters
    ----------
    adjacency : scipy sparse array, shape (n, n)
        W: symmetric, positive weights, no loops.
    mesh : jax.sharding.Mesh
        Of one axis, at most n devices.

    Raises
    ------
    DataError
        If it is something else, or the mesh does not fit.
    """

    # Processes meet in every product, so that all of them take the columns in one order.
    _workers: ClassVar[int | None] = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Devices belong to a process."""
        raise TypeError(
            "a solver on a mesh of devices stays in its process; make one in each, see docs/devices.md"
        )

    def __init__(self, adjacency: Any, mesh: Any) -> None:
        super().__init__(adjacency)
        self._refinement = _OnDevices(self._laplacian, Shards.of(mesh, self.size, "nodes"))


class _OnDevices(Refinement):
    """Solves (Δ + shift I) X = B on a mesh."""

    def __init__(self, laplacian: OrderedLaplacian, shards: Shards) -> None:
        super().__init__(laplacian)
        entries = laplacian.matrix.tocoo()
        rows, columns = entries.coords
        size, count = laplacian.size, shards.count
        owners = np.empty(size, dtype=np.intp)
        links = np.diff(laplacian.matrix.indptr)
        owners[np.argsort(-links, kind="stable")] = np.arange(size) % count
        self._shards, self._nodes = shards, Slots.of(owners, count)
        self._system = _laplacian_System(shards.axis)
        places = self._nodes.places
        within = places - owners * (self._nodes.size // count)
        # The empty places make up a component of their own.
        component = np.full((self._nodes.size, 1), len(laplacian.sizes), dtype=np.int32)
        component[places, 0] = np.repeat(np.arange(len(laplacian.sizes)), laplacian.sizes)
        slots = Slots.of(owners[rows], count)

        def placed(values: Any) -> Array:
            return shards.place_values(slots.spread(values)[:, None])

        with jax.enable_x64(True):
            self._operands = _laplacian_Operands(
                placed(within[rows].astype(np.int32)),
                placed(places[columns].astype(np.int32)),
                placed(entries.data),
                shards.place_values(component),
                jnp.asarray(1.0 / np.append(laplacian.sizes, 1)),
                jnp.zeros(()),
            )

    def solve(self, shift: float, rhs: Floats, tol: float) -> Solved:
        """Solve for a few columns after the other."""
        laplacian = self._laplacian
        values, steps, residual = np.empty_like(rhs), 0, 0.0
        for start in range(0, rhs.shape[1], _COLUMNS):
            part = slice(start, start + _COLUMNS)
            values[:, part], taken, left = self._few(shift, rhs[:, part], tol)
            steps, residual = max(steps, taken), max(residual, left)
        # Δ1 = 0 on each component: the constant part of the solution is known, the rest was sought without it.
        laplacian.center(values)
        laplacian.spread(values, laplacian.means(rhs) / shift)
        return Solved(
            values, steps, residual, f"conjugate gradients (Jacobi) on {self._shards.count} devices"
        )

    def _few(self, shift: float, rhs: Floats, tol: float) -> tuple[Floats, int, float]:
        shards, nodes = self._shards, self._nodes
        # Columns of zeros need no iterations: powers of two share what is compiled.
        width = 1 << (rhs.shape[1] - 1).bit_length()
        columns = np.zeros((nodes.size, width))
        columns[nodes.places, : rhs.shape[1]] = rhs
        inverse = np.ones((nodes.size, 1))
        inverse[nodes.places, 0] = 1.0 / (self._laplacian.degree + shift)
        with jax.enable_x64(True):
            found = conjugate_gradient(
                self._system,
                self._operands._replace(shift=jnp.asarray(shift, dtype=jnp.float64)),
                shards.place_values(columns),
                shards.place_values(np.zeros_like(columns)),
                shards.place_values(inverse),
                shards,
                tol=tol,
                max_iterations=_MOST_STEPS,
            )
            solution = shards.gather(found.solution)[nodes.places, : rhs.shape[1]]
        return solution, found.iterations, float(found.residuals.max())


class _laplacian_Operands(NamedTuple):
    """What a device holds: the stored entries of its rows of Δ, with empty places, and the components of its nodes."""

    rows: Array
    """Row of each entry among those of its device, shape (places, 1)."""
    columns: Array
    """Place of its column among all."""
    entries: Array
    component: Array
    """Number of each node's component, shape (n, 1)."""
    share: Array
    """1 over the size of each component, shape (c,), everywhere."""
    shift: Array
    """A number."""


@dataclass(frozen=True)
class _laplacian_System:
    """Δ + s on the complement of the components' constants."""

    axis: str

    def apply(self, operands: _laplacian_Operands, vectors: Array) -> Array:
        """(Δ + s) X."""
        everywhere = lax.all_gather(vectors, self.axis, tiled=True)
        flows = operands.entries * everywhere[operands.columns[:, 0]]
        return operands.shift * vectors + jax.ops.segment_sum(flows, operands.rows[:, 0], len(vectors))

    def project(self, operands: _laplacian_Operands, vectors: Array) -> Array:
        """Take from each column its mean over each component."""
        component = operands.component[:, 0]
        totals = lax.psum(jax.ops.segment_sum(vectors, component, len(operands.share)), self.axis)
        return vectors - (operands.share[:, None] * totals)[component]
