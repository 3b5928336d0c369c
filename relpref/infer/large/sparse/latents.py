"""The prior in its parts, u = Σ_r g_r + Φ w, and the rows through which answers see it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from numpy.typing import NDArray

from relpref.errors import DataError
from relpref.linalg import Identity, ImplicitCovariance, LowRank, SparsePrecision

Floats = NDArray[np.float64]
Whole = NDArray[np.integer]

_DENSE = 3000  # unknowns


@dataclass(frozen=True, eq=False)
class Latents:
    """One vector g_r ~ N(0, Q_r⁻¹) for each of R relations and w ~ N(0, I) for the attributes; answers see A u.

    The entities' own parts are a relation without links: Q_r = I/scale_r.

    Vectors over all g_r have shape (R·n,) and lie one after the other.

    Parameters
    ----------
    size : int
        Number of entities n.
    relations : mapping from name to SparsePrecision or Identity
        Q_r = (Δ_r + s_r I)/scale_r, or I/scale_r.
    factors : mapping from name to array, shape (n, r)
        Their columns together are Φ.
    column : array of int, shape (m, 2)
        Entities that each row of A looks at, two different ones.
    entry : array, shape (m, 2)
        With which weight; 0 where there is none.
    """

    size: int
    relations: Mapping[str, SparsePrecision | Identity]
    factors: Mapping[str, Floats]
    column: Whole
    entry: Floats

    @classmethod
    def of(cls, parts: Mapping[str, ImplicitCovariance], column: Whole, entry: Floats) -> "Latents":
        """Sort the parts; what has the scale 0 is left out.

        Raises
        ------
        DataError
            If a part is neither a sparse precision nor of low rank.
        """
        relations: dict[str, SparsePrecision | Identity] = {}
        factors: dict[str, Floats] = {}
        if not parts:
            raise DataError("the prior has no parts; give a relation or attributes")
        size = next(iter(parts.values())).size
        for name, part in parts.items():
            if isinstance(part, SparsePrecision | Identity):
                if part.scale > 0:
                    relations[name] = part
            elif isinstance(part, LowRank):
                factors[name] = part.factor
            else:
                raise DataError(
                    f"the part {name!r} of the prior is a {type(part).__name__}; many answers about many entities need a sparse "
                    "precision or a low rank (relpref.linalg.nystrom makes one of a kernel)"
                )
        column, entry = np.array(column), np.array(entry, dtype=np.float64)
        same = column[:, 0] == column[:, 1]
        entry[same] = np.stack([entry[same].sum(axis=1), np.zeros(np.count_nonzero(same))], axis=1)
        column[same, 1] = (column[same, 0] + 1) % size
        return cls(size, relations, factors, column, entry)

    @property
    def copies(self) -> int:
        """Number of relations R."""
        return len(self.relations)

    @property
    def small(self) -> bool:
        """Whether a dense factor of S is cheaper than solves by iteration."""
        return self.copies * self.size <= _DENSE

    @cached_property
    def projection(self) -> Any:
        """A as a scipy CSR array, shape (m, n)."""
        rows = len(self.column)
        ends = np.arange(0, 2 * rows + 1, 2)
        return scipy.sparse.csr_array(
            (self.entry.ravel(), self.column.ravel(), ends), shape=(rows, self.size)
        )

    @cached_property
    def factor(self) -> Floats:
        """Φ, shape (n, r)."""
        return np.hstack([np.zeros((self.size, 0)), *self.factors.values()])

    @cached_property
    def seen(self) -> Floats:
        """A Φ, shape (m, r)."""
        return np.asarray(self.projection @ self.factor)

    @cached_property
    def precisions(self) -> tuple[Any, ...]:
        """The Q_r as scipy CSR arrays, shape (n, n)."""
        return tuple(part.inverse() for part in self.relations.values())

    @cached_property
    def prior(self) -> Any:
        """The Q_r on a diagonal, scipy CSR, shape (R·n, R·n)."""
        if not self.relations:
            return scipy.sparse.csr_array((0, 0))
        return scipy.sparse.csr_array(scipy.sparse.block_diag(self.precisions, format="csr"))

    @cached_property
    def factorised_blocks(self) -> list[tuple[slice, Any]]:
        """Rows of the relations whose factors are about as sparse as they are, and their Q_r."""
        ranges = [slice(place * self.size, (place + 1) * self.size) for place in range(self.copies)]
        each = zip(ranges, self.precisions, self.relations.values(), strict=True)
        return [(rows, precision) for rows, precision, part in each if part.is_treelike]

    def precision(self, weights: Floats) -> Any:
        """S = Q + (11ᵀ) ⊗ AᵀTA, what is left of the posterior precision when w is known; scipy CSR, shape (R·n, R·n).

        Parameters
        ----------
        weights : array, shape (m,)
            Diagonal of T.
        """
        gram = self.projection.T @ (scipy.sparse.diags_array(weights) @ self.projection)
        together = scipy.sparse.kron(np.ones((self.copies, self.copies)), gram, format="csr")
        return scipy.sparse.csr_array(self.prior + together)

    @cached_property
    def components(self) -> Any:
        """Eigenvectors of S whatever the weights, scipy CSR of zeros and ones, shape (R·n, c); None if a row of A is no gap.

        Neither a relation's Laplacian nor a gap sees what is constant on a component of the relation and the answers together.
        """
        if np.any(self.entry.sum(axis=1) != 0):
            return None
        answers = abs(self.projection).T @ abs(self.projection)
        blocks = []
        for precision in self.precisions:
            number, label = scipy.sparse.csgraph.connected_components(
                abs(precision) + answers, directed=False
            )
            entries = (np.ones(self.size), label, np.arange(self.size + 1))
            blocks.append(scipy.sparse.csr_array(entries, shape=(self.size, number)))
        return scipy.sparse.csr_array(scipy.sparse.block_diag(blocks, format="csr"))

    @cached_property
    def known_inverse(self) -> Floats:
        """One over the eigenvalues of `components`, by rows, shape (R·n, 1)."""
        values = [part.of_constants for part in self.relations.values()]
        return np.repeat(values, self.size)[:, None]

    def spread(self, vectors: Floats) -> Floats:
        """The same (n, k) for every relation, shape (R·n, k)."""
        return np.tile(vectors, (self.copies, 1))

    def total(self, vectors: Floats) -> Floats:
        """Sum over relations of an (R·n, k) array, shape (n, k)."""
        return vectors.reshape(self.copies, self.size, vectors.shape[1]).sum(axis=0)

    def noise(self, generator: np.random.Generator, number: int) -> Floats:
        """Draws from N(0, Q), shape (R·n, number): a Laplacian's root is its weighted incidence matrix, nothing is factorised."""
        drawn = np.empty((self.copies * self.size, number))
        for place, (precision, part) in enumerate(zip(self.precisions, self.relations.values(), strict=True)):
            edges = scipy.sparse.triu(-precision, 1, format="coo")
            source, target = edges.coords
            across, within = np.sqrt(edges.data), np.sqrt(1 / part.of_constants)
            block = drawn[place * self.size : (place + 1) * self.size]
            for column in range(number):
                flow = across * generator.standard_normal(len(across))
                block[:, column] = np.bincount(source, flow, self.size) - np.bincount(target, flow, self.size)
                block[:, column] += within * generator.standard_normal(self.size)
        return drawn
