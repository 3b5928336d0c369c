"""Solves with a graph's Laplacian on several devices."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.linalg.conjugate_gradient import CGResult
from relpref.linalg.sharded.conjugate_gradient import Progress, conjugate_gradient
from relpref.linalg.sharded.shards import Shards, Slots

Floats = NDArray[np.float64]

_COLUMNS = 8  # right-hand sides at once: each takes a device the memory of a number for each of its links


class _Operands(NamedTuple):
    """What a device holds of Δ + s: the links of its nodes, with empty places whose weight is 0."""

    rows: Array
    """Node of each link among those of its device, shape (places, 1)."""
    columns: Array
    """Place of the node at its other end among all."""
    weights: Array
    diagonal: Array
    """Weighted degree plus s, shape (n, 1)."""


class ShardedLaplacian:
    """Δ + s for the combinatorial Laplacian Δ = D − W of a graph, its nodes dealt out over devices.

    A device holds the links of its share of the nodes, which are dealt out by degree, so that every device has about as many
    links; in a product it sees the whole vector, but no more of the graph.

    Parameters
    ----------
    adjacency : scipy sparse array, shape (n, n)
        W, symmetric with positive weights and without a diagonal.
    mesh : jax.sharding.Mesh
        Of one axis, at most n devices. With those of several processes each process calls the same functions in the same order.

    Raises
    ------
    DataError
        If the mesh does not fit.
    """

    def __init__(self, adjacency: Any, mesh: Any) -> None:
        links = adjacency.tocoo()
        rows, columns = links.coords
        self.size = n = int(adjacency.shape[0])
        self._shards = shards = Shards.of(mesh, n, "nodes")
        owners = np.empty(n, dtype=np.intp)
        counts = np.bincount(rows, minlength=n)
        owners[np.argsort(-counts, kind="stable")] = np.arange(n) % shards.count
        self._nodes = Slots.of(owners, shards.count)
        places = Slots.of(owners[rows], shards.count)
        within = self._nodes.places - owners * (self._nodes.size // shards.count)
        self._degrees = np.bincount(rows, links.data, n)
        self._product = _Product(shards.axis)

        def placed(values: Any) -> Array:
            return shards.place_values(places.spread(values)[:, None])

        with jax.enable_x64(True):
            self._links = (
                placed(within[rows].astype(np.int32)),
                placed(self._nodes.places[columns].astype(np.int32)),
                placed(np.asarray(links.data, dtype=np.float64)),
            )

    def solve(
        self,
        shift: float,
        rhs: ArrayLike,
        tol: float = 1e-6,
        *,
        max_iterations: int | None = None,
        progress: Progress | None = None,
    ) -> CGResult:
        """(Δ + s)⁻¹ B, by conjugate gradients with Jacobi's preconditioner.

        Parameters
        ----------
        shift : float
            s, positive.
        rhs : array, shape (n,) or (n, k)
            B.
        tol : float
            Relative residual of every column.
        max_iterations : int, optional
            By default ten times n.
        progress : callable, optional
            ``progress(iterations, residual)`` now and then.

        Returns
        -------
        CGResult
            Its solution in every process; the iterations of eight columns at a time added up, and the largest residual.

        Raises
        ------
        DataError
            If the shift is not positive, or the right-hand side has another length or is not finite.
        RelprefError
            If a process that takes part is gone.
        """
        given = np.asarray(rhs, dtype=np.float64)
        if not (np.isfinite(shift) and shift > 0):
            raise DataError(f"shift is {shift}; the Laplacian alone is singular: give a positive number")
        if given.ndim not in (1, 2) or len(given) != self.size or not np.isfinite(given).all():
            raise DataError(
                f"the right-hand side has shape {given.shape}; give finite numbers, a row for each of the {self.size} nodes"
            )
        columns = given.reshape(self.size, -1)
        limit = 10 * self.size if max_iterations is None else max_iterations
        parts = [
            self._solve(shift, columns[:, start : start + _COLUMNS], tol, limit, progress)
            for start in range(0, columns.shape[1], _COLUMNS)
        ]
        if not parts:
            return CGResult(np.zeros(given.shape), 0, 0.0, "converged")
        unsolved = [part.reason for part in parts if part.reason != "converged"]
        return CGResult(
            np.hstack([part.solution for part in parts]).reshape(given.shape),
            sum(part.iterations for part in parts),
            max(part.residual for part in parts),
            unsolved[0] if unsolved else "converged",
        )

    def _solve(
        self, shift: float, columns: Floats, tol: float, limit: int, progress: Progress | None
    ) -> CGResult:
        shards, nodes = self._shards, self._nodes
        # Empty places have the diagonal 1 and nothing to solve for.
        diagonal = np.ones((nodes.size, 1))
        diagonal[nodes.places, 0] = self._degrees + shift
        # A last block of fewer columns is filled up with zeros, which cost no iterations: one shape, one compilation.
        width = min(_COLUMNS, 1 << (columns.shape[1] - 1).bit_length())
        padded = np.zeros((self.size, width))
        padded[:, : columns.shape[1]] = columns
        with jax.enable_x64(True):
            found = conjugate_gradient(
                self._product,
                _Operands(*self._links, shards.place_values(diagonal)),
                shards.place_values(nodes.spread(padded)),
                shards.place_values(np.zeros((nodes.size, width))),
                shards.place_values(1.0 / diagonal),
                shards,
                tol=tol,
                max_iterations=limit,
                progress=progress,
            )
            solution = shards.gather(found.solution)[nodes.places, : columns.shape[1]]
        return CGResult(solution, found.iterations, float(found.residuals.max()), found.reason)


@dataclass(frozen=True)
class _Product:
    """(Δ + s) X, as one device sees it."""

    axis: str

    def __call__(self, operands: _Operands, vectors: Array) -> Array:
        everywhere = lax.all_gather(vectors, self.axis, tiled=True)
        flows = operands.weights * everywhere[operands.columns[:, 0]]
        return operands.diagonal * vectors - jax.ops.segment_sum(flows, operands.rows[:, 0], len(vectors))
