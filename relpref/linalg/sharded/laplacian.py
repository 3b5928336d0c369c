"""Solves with a graph's Laplacian on several devices."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from relpref.linalg.implicit.laplacian import OrderedLaplacian
from relpref.linalg.implicit.laplacian_solver import LaplacianSolver
from relpref.linalg.implicit.refinement import Refinement, Solved
from relpref.linalg.sharded.conjugate_gradient import conjugate_gradient
from relpref.linalg.sharded.shards import Shards, Slots

Floats = NDArray[np.float64]

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
        self._system = _System(shards.axis)
        places = self._nodes.places
        within = places - owners * (self._nodes.size // count)
        # The empty places make up a component of their own.
        component = np.full((self._nodes.size, 1), len(laplacian.sizes), dtype=np.int32)
        component[places, 0] = np.repeat(np.arange(len(laplacian.sizes)), laplacian.sizes)
        slots = Slots.of(owners[rows], count)

        def placed(values: Any) -> Array:
            return shards.place_values(slots.spread(values)[:, None])

        with jax.enable_x64(True):
            self._operands = _Operands(
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


class _Operands(NamedTuple):
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
class _System:
    """Δ + s on the complement of the components' constants."""

    axis: str

    def apply(self, operands: _Operands, vectors: Array) -> Array:
        """(Δ + s) X."""
        everywhere = lax.all_gather(vectors, self.axis, tiled=True)
        flows = operands.entries * everywhere[operands.columns[:, 0]]
        return operands.shift * vectors + jax.ops.segment_sum(flows, operands.rows[:, 0], len(vectors))

    def project(self, operands: _Operands, vectors: Array) -> Array:
        """Take from each column its mean over each component."""
        component = operands.component[:, 0]
        totals = lax.psum(jax.ops.segment_sum(vectors, component, len(operands.share)), self.axis)
        return vectors - (operands.share[:, None] * totals)[component]
