"""One large system on several devices: its rows are dealt out over a mesh, and no device holds more of the matrix than its share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import ArrayLike

from relpref.compiled import float64
from relpref.errors import DataError, RelprefError
from relpref.linalg.cg import CGResult, Floats, block_cg, check_finite
from relpref.linalg.graph_solver import LaplacianSolver, Positions, Solution

__all__ = ["ShardedEdges", "ShardedLaplacian"]

Swap = Literal["none", "symmetric", "reciprocal"]
Progress = Callable[[int, float], Any]

_SIGN = {"symmetric": 1.0, "reciprocal": -1.0}
_NEWS = 25  # iterations between two calls of a progress


@dataclass(frozen=True)
class Shards:
    """Devices of a mesh of one axis, each of which holds the same number of an array's rows."""

    mesh: Mesh

    @classmethod
    def of(cls, mesh: Any, rows: int, what: str) -> "Shards":
        """Check a mesh for so many rows, which errors call ``what``; DataError if it does not fit."""
        if not isinstance(mesh, Mesh):
            raise DataError(
                f"mesh is {mesh!r}; give a jax.sharding.Mesh, such as Mesh(np.array(jax.devices()), ('device',))"
            )
        if len(mesh.axis_names) != 1:
            raise DataError(
                f"mesh has the axes {', '.join(map(str, mesh.axis_names))} of {mesh.devices.shape} devices; rows are dealt out "
                "over one: give Mesh(mesh.devices.ravel(), ('device',))"
            )
        kinds = sorted({device.platform for device in mesh.devices.flat})
        if len(kinds) > 1:
            raise DataError(f"mesh mixes devices of the kinds {', '.join(kinds)}; give devices of one kind")
        if not mesh.local_devices:
            raise DataError(
                f"mesh has no device of process {jax.process_index()}; every process takes part with at least one"
            )
        if mesh.size > rows:
            raise DataError(
                f"mesh has {mesh.size} devices for {rows} {what}; give at most as many devices as {what}"
            )
        # A mesh from jax.make_mesh has explicit axes, to which arrays without a sharding are strange.
        return cls(Mesh(mesh.devices, mesh.axis_names))

    @property
    def axis(self) -> str:
        return str(self.mesh.axis_names[0])

    @property
    def count(self) -> int:
        """Number of devices."""
        return int(self.mesh.size)

    def block(self, rows: int) -> int:
        """Rows on each device, of a total; the last devices hold padding, too."""
        return -(-rows // self.count)

    def place(self, shape: tuple[int, ...], rows_from: Any, spread: bool = True) -> Array:
        """A global array, its rows dealt out or (without ``spread``) whole on every device.

        ``rows_from`` maps the first row and the one behind the last to their values; a process asks only for those of its devices.
        """
        sharding = NamedSharding(self.mesh, PartitionSpec(self.axis) if spread else PartitionSpec())

        def values(index: Any) -> Any:
            return rows_from(*index[0].indices(shape[0])[:2])

        return jax.make_array_from_callback(shape, sharding, values)

    def place_matrix(self, matrix: Any) -> Array:
        """A square matrix, with zeros to the next multiple; anything that has a shape and gives slices of rows."""
        rows = matrix.shape[0]
        size = self.block(rows) * self.count

        def values(start: int, stop: int) -> Floats:
            given = np.asarray(matrix[start : min(stop, rows)], dtype=np.float64)
            return np.pad(given, ((0, stop - start - len(given)), (0, size - rows)))

        return self.place((size, size), values)

    def place_values(self, values: Any, spread: bool = True) -> Array:
        """An array that every process has."""
        return self.place(values.shape, lambda start, stop: values[start:stop], spread)

    def gather(self, array: Array) -> Any:
        """All rows, as NumPy, in every process."""
        if array.is_fully_addressable or array.is_fully_replicated:
            return np.asarray(array)
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Double precision, and a RelprefError that says what happened where one of several processes is lost."""
        processes = len({device.process_index for device in self.mesh.devices.flat})
        try:
            with float64():
                yield
        except jax.errors.JaxRuntimeError as error:
            if processes == 1:
                raise
            raise RelprefError(
                f"the {processes} processes lost one another: one has ended or cannot be reached, and the others cannot go on; look "
                f"at its output and start them all again ({str(error).splitlines()[0]})"
            ) from error


@dataclass(frozen=True)
class Slots:
    """Places of items in an array with as many for each device, some of them empty."""

    places: Positions
    size: int

    @classmethod
    def of(cls, owners: Positions, count: int) -> "Slots":
        """From the device that each item belongs to, in their order."""
        numbers = np.bincount(owners, minlength=count)
        width = max(int(numbers.max(initial=0)), 1)
        # Rounded up by at most an eighth, so that problems of about the same size share what is compiled.
        width += -width % (1 << max(0, width.bit_length() - 4))
        order = np.argsort(owners, kind="stable")
        starts = np.cumsum(numbers) - numbers
        places = np.empty(len(owners), dtype=np.intp)
        places[order] = owners[order] * width + np.arange(len(owners)) - starts[owners[order]]
        return cls(places, count * width)

    def spread(self, values: Any) -> Any:
        """Values of the items, shape (q, ...), in their places, and zeros."""
        found = np.zeros((self.size, *values.shape[1:]), dtype=values.dtype)
        found[self.places] = values
        return found


class _Operands(NamedTuple):
    """What a device holds of the system: rows of the kernels, and the edges of these rows, with empty places."""

    left: Array  # K, shape (p, p)
    right: Array | None  # G, shape (m, m); None where it is K
    rows: Array  # of each edge among those of its device, shape (places, 1)
    columns: Array
    taken: Array  # 1 where there is an edge, 0 in an empty place
    share: Array  # 1 over the number of edges of each row, shape (p, 1)


@dataclass(frozen=True)
class _System:
    """K + λ, within the range of the centering C of each row's edges, as one device sees it."""

    shards: Shards
    sign: float
    centred: bool

    @partial(jax.jit, static_argnums=0)
    def product(self, operands: _Operands, noise: Array, dual: Array) -> Array:
        return self._on_devices(self._apply, operands, noise, dual)

    @partial(jax.jit, static_argnums=0)
    def projection(self, operands: _Operands, values: Array) -> Array:
        return self._on_devices(self._project, operands, values)

    def _on_devices(self, function: Callable[..., Array], *operands: Any) -> Array:
        """Call a function of one device's rows on all devices; numbers are the same everywhere."""
        rows = PartitionSpec(self.shards.axis)
        specs = jax.tree.map(lambda leaf: rows if jnp.ndim(leaf) > 1 else PartitionSpec(), operands)
        return jax.shard_map(function, mesh=self.shards.mesh, in_specs=specs, out_specs=rows)(*operands)

    def _apply(self, operands: _Operands, noise: Array, dual: Array) -> Array:
        """C (K + λ) a."""
        rows, columns = operands.rows[:, 0], operands.columns[:, 0]
        left = operands.left
        right = left if operands.right is None else operands.right
        weights = jnp.zeros((len(left), right.shape[1])).at[rows, columns].add(dual[:, 0])
        if self.sign:
            transposed = lax.all_to_all(weights, self.shards.axis, split_axis=1, concat_axis=0, tiled=True).T
            weights = 0.5 * (weights + self.sign * transposed)
        scores = self._times(left, self._times(weights, right))
        return self._project(operands, scores[rows, columns][:, None] * operands.taken + noise * dual)

    def _project(self, operands: _Operands, values: Array) -> Array:
        if not self.centred:
            return values
        rows = operands.rows[:, 0]
        means = jax.ops.segment_sum(values[:, 0], rows, len(operands.left))[:, None] * operands.share
        return (values - means[rows]) * operands.taken

    def _times(self, matrix: Array, block: Array) -> Array:
        """Rows of M B from the device's rows of both: the blocks of B go round, so that none has more than two at a time."""
        axis, count = self.shards.axis, self.shards.count
        here, height = lax.axis_index(axis), len(block)
        neighbours = [(device, (device - 1) % count) for device in range(count)]

        def part(owner: Array, block: Array) -> Array:
            return lax.dynamic_slice_in_dim(matrix, owner * height, height, axis=1) @ block

        def step(turn: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
            total, block = carried
            block = lax.ppermute(block, axis, neighbours)
            return total + part((here + turn) % count, block), block

        return lax.fori_loop(1, count, step, (part(here, block), block))[0]


class ShardedEdges:
    """The kernel matrix of q edges, Kronecker's K(v, v') G(w, w'), with the conditioning nodes dealt out over devices.

    A device holds its share of the rows of K and of G, of the edges by their conditioning node, and of the (p, m) matrix of
    coefficients. In a product the blocks of the kernels' other rows come by in turn, from neighbor to neighbor. So a product
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
    centered : bool
        Subtract from each edge's score the mean of its row's edges: the system of the ranking loss.
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
        centred: bool = False,
    ) -> None:
        p = left.shape[0]
        self._shards = shards = Shards.of(mesh, p, "nodes")
        block = shards.block(p)
        owners = rows // block
        self._slots = Slots.of(owners, shards.count)
        self._system = _System(shards, _SIGN.get(swap, 0.0), centred)
        share = np.zeros((block * shards.count, 1))
        share[:p, 0] = 1.0 / np.maximum(np.bincount(rows, minlength=p), 1)
        with float64():
            self._operands = _Operands(
                shards.place_matrix(left),
                None if right is left else shards.place_matrix(right),
                self._placed((rows - owners * block).astype(np.int32)),
                self._placed(columns.astype(np.int32)),
                self._placed(np.ones(len(rows))),
                shards.place_values(share),
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
        """The coefficients a with (K + λ) a = y, or where it is centered (C K C + λ) a = C y with a in the range of C.

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

        Raises
        ------
        RelprefError
            If a process that takes part is gone.
        """
        first = None if start is None else np.asarray(start, dtype=np.float64)
        check_finite(labels, first)

        def each(iteration: int, _: Array, residual: float) -> None:
            if progress is not None and iteration % _NEWS == 0:
                progress(iteration, residual)

        with self._shards.together():
            weight = np.float64(noise)
            found = block_cg(
                lambda dual, _: self._system.product(self._operands, weight, dual),
                self._system.projection(self._operands, self._placed(labels)),
                start=None if first is None else self._placed(first),
                tol=tol,
                max_steps=10 * len(labels) if max_iterations is None else max_iterations,
                verify=True,
                callback=each,
            )
            solution = self._shards.gather(found.values)[self._slots.places, 0]
        residual = float(found.residual[0])
        if progress is not None:
            progress(found.steps, residual)
        return CGResult(solution, found.steps, residual, found.reason)

    def _placed(self, values: Any) -> Array:
        return self._shards.place_values(self._slots.spread(values)[:, None])


_COLUMNS = 8  # at once: each takes a device the memory of a number for each of its links
_MOST_STEPS = 3000


class ShardedLaplacian(LaplacianSolver):
    """A `LaplacianSolver` whose links are dealt out over devices: by conjugate gradients in double precision.

    A device holds its share of the links, and adds up what flows along them; vectors are whole on every device. With devices of
    several processes each process calls the same functions in the same order, and has the whole graph and the solutions in its
    own memory.

    Parameters
    ----------
    adjacency : scipy sparse array, shape (n, n)
        W: symmetric, positive weights, no loops.
    mesh : jax.sharding.Mesh
        Of one axis, at most n devices.
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
        self._shards = shards = Shards.of(mesh, self.size, "nodes")
        entries, sizes = self._laplacian.matrix.tocoo(), self._laplacian.sizes
        filled = -entries.nnz % shards.count
        links = (np.pad(part, (0, filled)) for part in (*entries.coords, entries.data))
        component = np.repeat(np.arange(len(sizes)), sizes)
        with float64():
            spread = [shards.place_values(part) for part in links]
            whole = [shards.place_values(part, spread=False) for part in (component, 1.0 / sizes[:, None])]
            self._links = _Links(*spread, *whole)

    def _refined(self, shift: float, rhs: Floats, scale: Floats, norm: Floats, tol: float) -> Solution:
        """A few columns after the other."""
        values, steps, residual, shards = np.empty_like(rhs), 0, 0.0, self._shards
        with shards.together():
            inverse = shards.place_values(scale, spread=False)
            for start in range(0, rhs.shape[1], _COLUMNS):
                part = rhs[:, start : start + _COLUMNS]
                # Columns of zeros need no iterations: powers of two share what is compiled.
                more = (1 << (part.shape[1] - 1).bit_length()) - part.shape[1]
                found = block_cg(
                    lambda block, _: _flows(self._links, np.float64(shift), block),
                    shards.place_values(np.pad(part, ((0, 0), (0, more))), spread=False),
                    precondition=lambda block, _: _centred(self._links, inverse * block),
                    tol=tol,
                    max_steps=_MOST_STEPS,
                    verify=True,
                )
                values[:, start : start + _COLUMNS] = shards.gather(found.values)[:, : part.shape[1]]
                steps, residual = max(steps, found.steps), max(residual, float(found.residual.max()))
        self._laplacian.center(values)
        method = f"conjugate gradients (Jacobi) on {shards.count} devices"
        return Solution(values, steps, residual, method)


class _Links(NamedTuple):
    """The stored entries of Δ, dealt out over the devices and filled up with zeros, and the components of the nodes."""

    rows: Array
    columns: Array
    entries: Array
    component: Array  # of each node, shape (n,), everywhere
    share: Array  # 1 over the size of each component, shape (c, 1), everywhere


@jax.jit
def _flows(links: _Links, shift: Array, vectors: Array) -> Array:
    """(Δ + s) X, within the complement of the components' constants."""
    flows = links.entries[:, None] * vectors[links.columns]
    return _centred(links, shift * vectors + jax.ops.segment_sum(flows, links.rows, len(vectors)))


@jax.jit
def _centred(links: _Links, vectors: Array) -> Array:
    """Take from each column its mean over each component."""
    totals = jax.ops.segment_sum(vectors, links.component, len(links.share))
    return vectors - (links.share * totals)[links.component]
