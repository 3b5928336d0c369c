"""The algebra of `relpref.infer.sites` by a sparse posterior precision, on the host."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from relpref.data.arrays import Floats
from relpref.infer.arrow import ArrowSpace, Blocks, Items
from relpref.infer.large.sparse import (
    Draws,
    Factorised,
    Iterative,
    Latents,
    Root,
    SparsePosterior,
    Variances,
)
from relpref.infer.program import Program
from relpref.infer.rows import SparseRows
from relpref.infer.spaces import Marginals

_TOLERANCE = 1e-8  # of solves for a posterior from a file


class SeenRows(NamedTuple):
    """The rows of answers, and the noise that they share, as in `relpref.infer.arrow`."""

    rows: SparseRows
    blocks: Blocks
    factors: tuple[Floats, ...] = ()  # the blocks of F

    @classmethod
    def alone(cls, rows: SparseRows) -> "SeenRows":
        """Rows that share no noise."""
        everyone = np.arange(len(rows.column))
        return cls(rows, Blocks(everyone, (), everyone))

    @classmethod
    def of(cls, program: Program, positions: Any, number: int) -> "SeenRows":
        """The rows of a program of the items at some positions, among a number of items."""
        assert program.rows is not None
        rows = SparseRows(positions[program.rows.column], program.rows.entry, np.zeros(number))
        if program.arrow is None:
            return cls.alone(rows)
        blocks = program.arrow.blocks
        return cls(rows, blocks, blocks.factors(program.on_host().prior.noise))


@dataclass(frozen=True)
class SparseSpace(ArrowSpace):
    """Rows among many items; a factor is a `SparsePosterior`."""

    inner: Any  # Latents
    tol: float  # of every solve
    draws: Draws | None  # None for dense factors
    last: dict[str, Floats]  # solutions to start from

    @classmethod
    def of(cls, latents: Latents, seen: SeenRows, tol: float, draws: Draws | None) -> "SparseSpace":
        """The space of rows with their noise."""
        return cls(latents, seen.blocks, seen.factors, tol, draws, {})

    def factorise(self, precision: Any) -> Any:
        """Posterior by the symmetric root of M, continuous in M as a fixed point requires."""
        latents, precision = self.inner, np.asarray(precision)
        weights, total = self.blocks.middle(precision, self.factors)
        looks = [self._alone(np.sqrt(weights.alone))]
        for (columns, entries), block in zip(self.rows.items, weights.groups, strict=True):
            values, vectors = np.linalg.eigh(block @ np.eye(entries.shape[1])[None])
            half = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :] @ vectors.swapaxes(1, 2)
            looks.append(Items(columns, half @ entries))
        root = Root(tuple(looks), latents.size)
        solves: Any
        if self.draws is None:
            solves = Factorised(latents, root)
        else:
            solves = Iterative(latents, root, self.tol, self.last, self.draws)
        posterior = SparsePosterior.under(latents, solves, root, precision)
        return replace(posterior, precision=weights, log_determinant=float(total))

    def marginals(self, factor: Any, shift: Any) -> Marginals:
        """Marginals of the rows, without the determinant, which is needed only once, at the end."""
        fields: Any = self.response(factor, shift), self.variances(factor).value, np.zeros(())
        return Marginals(*fields)

    def variances(self, factor: Any) -> Variances:
        """Variances of the rows, shape (m,)."""
        alone = factor.variances_of(self._alone(np.ones(len(self.blocks.alone))))
        each = [tuple(part[:, 0] for part in alone)]
        for looks, noise in self._left(factor.precision):
            value, *errors = factor.variances_of(looks)
            each.append(tuple(np.concatenate(part) for part in (value + noise, *errors)))
        return Variances(
            *(np.concatenate(part)[self.blocks.place] for part in zip(*each, strict=True))
        )

    def pull(self, factor: Any, shift: Any) -> Floats:
        """Pull of the rows on the utilities, whose mean is Σ times it; for (m,) or (m, k)."""
        columns = np.asarray(shift).reshape(len(shift), -1).T
        pulled = np.stack([self._pulled(factor, column) for column in columns], axis=1)
        return np.asarray(self.inner.projection.T @ pulled.reshape(np.shape(shift)))

    def lasting(self, factor: SparsePosterior) -> SparsePosterior:
        """The posterior without the draws and solutions that only further sweeps would need."""
        if self.draws is None:
            return factor
        return replace(factor, relations=Iterative(self.inner, factor.half, self.tol))

    def _alone(self, scale: Floats) -> Items:
        """Rows without shared noise, times numbers."""
        rows = self.rows.alone
        return Items(rows.column, (scale[:, None] * rows.entry)[:, None, :])


def known_posterior(
    parts: Mapping[str, Any], seen: SeenRows, weights: ArrayLike
) -> SparsePosterior:
    """The posterior under known sites, whose precisions times counts are the ``weights``."""
    latents = Latents.of(parts, seen.rows, seen.blocks)
    # No samples are drawn, because `lasting` drops them.
    draws = None if latents.small else latents.noise(np.random.default_rng(0), 0)
    space = SparseSpace.of(latents, seen, _TOLERANCE, draws)
    return space.lasting(space.factorise(np.asarray(weights, np.float64)))
