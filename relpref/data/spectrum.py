"""Eigendecomposition of a graph's Laplacian, by components."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from relpref.data.arrays import read_only


class Spectrum(NamedTuple):
    """Eigendecomposition of the combinatorial Laplacian D - W, one connected component at a time.

    Attributes
    ----------
    eigenvalues : array of float64, shape (n,)
        Ascending; exactly 0 once per component.
    eigenvectors : array of float64, shape (n, n)
        Column k belongs to eigenvalue k and vanishes outside one component; for the eigenvalue 0 it is
        exactly constant on it.
    gap_weights : array of float64, shape (n,)
        Weights w such that ``sum(w * f(eigenvalues))`` is the mean of K_ii + K_jj - 2 K_ij over the ordered
        pairs i != j inside components, for K = U f(eigenvalues) U^T: 2 s / sum_c s_c (s_c - 1) for the
        non-zero eigenvalues of a component of s nodes, 0 for the zero eigenvalues.
    """

    eigenvalues: Any
    eigenvectors: Any
    gap_weights: Any


def spectrum(adjacency: Any, component: NDArray[np.int32]) -> Spectrum:
    """Decompose the Laplacian.

    Parameters
    ----------
    adjacency : scipy CSR array, shape (n, n)
        Symmetric, positive weights.
    component : array of int, shape (n,)
        Number of the connected component of each node.

    Returns
    -------
    Spectrum
        Read-only arrays.
    """
    size = component.size
    eigenvalues = np.zeros(size)
    gap_weights = np.zeros(size)
    eigenvectors = np.zeros((size, size))
    # Nodes sorted by component: each component is one slice of `nodes`.
    nodes = np.argsort(component, kind="stable")
    sizes = np.bincount(component) if size else np.zeros(0, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    pairs = float(np.sum(sizes * (sizes - 1.0)))
    blocks = []
    for start, end in pairwise(starts):
        members = nodes[start:end]
        values, vectors = _component_spectrum(adjacency, members)
        eigenvalues[start:end] = values
        gap_weights[start + 1 : end] = 2 * (end - start) / pairs if pairs else 0.0
        blocks.append((members, slice(start, end), vectors))
    order = np.argsort(eigenvalues, kind="stable")
    rank = np.empty(size, dtype=np.int64)
    rank[order] = np.arange(size)
    for members, columns, vectors in blocks:
        eigenvectors[np.ix_(members, rank[columns])] = vectors
    return Spectrum(read_only(eigenvalues[order]), read_only(eigenvectors), read_only(gap_weights[order]))


def _component_spectrum(
    adjacency: Any, members: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenpairs of the Laplacian of one connected component, the constant vector first."""
    size = members.size
    values = np.zeros(size)
    vectors = np.full((size, size), 1 / np.sqrt(size))
    if size == 1:
        return values, vectors
    block = -adjacency[members][:, members].toarray()
    degree = -block.sum(axis=1)
    np.fill_diagonal(block, degree)
    # The constant vector is moved to the top of the spectrum (every eigenvalue is at most twice the largest
    # degree), so that it cannot mix with the vectors of eigenvalues that are nearly 0.
    block += 3 * degree.max() / size
    raised, raised_vectors = scipy.linalg.eigh(block, driver="evd", overwrite_a=True, check_finite=False)
    # A connected component has positive eigenvalues only: what is below 0 is rounding.
    values[1:] = np.maximum(raised[:-1], 0.0)
    vectors[:, 1:] = raised_vectors[:, :-1]
    return values, vectors
