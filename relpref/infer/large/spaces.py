"""The algebra of `relpref.infer.sites` by a sparse posterior precision, on the host.

A factor is a `SparsePosterior`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from relpref.infer.arrow import ArrowSpace, Blocks, GroupedRows, Items
from relpref.infer.large.sparse import (
    Draws,
    Factorised,
    Floats,
    Iterative,
    Latents,
    Root,
    Sampled,
    SparsePosterior,
    Variances,
)
from relpref.infer.rows import SparseRows
from relpref.infer.spaces import Marginals


class Shared(NamedTuple):
    """Noise that rows share, as in `relpref.infer.arrow`: its blocks, and those of F."""

    blocks: Blocks
    factors: tuple[Floats, ...]


@dataclass(frozen=True, eq=False)
class SparseSpace:
    """Rows that share no noise."""

    jitter: ClassVar[float] = 0.0

    latents: Latents
    tol: float  # of every solve
    draws: Draws | None  # None for dense factors
    last: dict[str, Floats]  # solutions to start from
    rows: GroupedRows | None = None

    def under(self, root: Root, weights: Floats) -> SparsePosterior:
        """The posterior under sites of these precisions, with their root."""
        solves: Any
        if self.draws is None:
            solves = Factorised(self.latents, root)
        else:
            solves = Sampled(self.latents, root, self.tol, self.last, self.draws)
        return SparsePosterior.under(self.latents, solves, root, weights)

    def factorise(self, precision: Any, _: Any = None) -> SparsePosterior:
        weights = np.asarray(precision)
        return self.under(Root.of(self.latents, weights), weights)

    def marginals(self, factor: SparsePosterior, shift: Any, _: Any = None) -> Marginals:
        """Marginals of the rows, without the determinant, which is needed only once, at the end."""
        return _marginals(self.response(factor, shift), self.variances(factor))

    def variances(self, factor: SparsePosterior) -> Variances:
        """Variances of the rows, shape (m,)."""
        looks = Items(self.latents.column, self.latents.entry[:, None, :])
        return Variances(*(part[:, 0] for part in factor.variances_of(looks)))

    def response(self, factor: SparsePosterior, shift: Any, projection: Any = None) -> Any:
        """Posterior covariance of the rows times a vector."""
        rows = self.latents.projection
        return rows @ np.asarray(sum(factor.by_part(rows.T @ shift, "mean").values()))

    def pull(self, factor: SparsePosterior, shift: Any) -> Floats:
        """Pull of the rows on the utilities, whose mean is Σ times it; for (m,) or (m, k)."""
        return np.asarray(self.latents.projection.T @ shift)

    def lasting(self, factor: SparsePosterior) -> SparsePosterior:
        """The posterior without the draws and solutions that only further sweeps would need."""
        if self.draws is None:
            return factor
        return replace(factor, relations=Iterative(self.latents, factor.half, self.tol))


class SharedSpace(ArrowSpace):
    """Rows that share noise."""

    inner: Any  # SparseSpace

    @property
    def latents(self) -> Latents:
        latents: Latents = self.inner.latents
        return latents

    def factorise(self, precision: Any, projection: Any = None) -> Any:
        """Posterior by the symmetric root of M, continuous in M as a fixed point requires."""
        precision = np.asarray(precision)
        weights, total = self.blocks.middle(precision, self.factors)
        looks = [_alone(self._rows, np.sqrt(weights.alone))]
        for (columns, entries), block in zip(self._rows.items, weights.groups, strict=True):
            values, vectors = np.linalg.eigh(block @ np.eye(entries.shape[1])[None])
            root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :] @ vectors.swapaxes(1, 2)
            looks.append(Items(columns, root @ entries))
        posterior = self.inner.under(Root(tuple(looks), self.latents.size), precision)
        return replace(posterior, precision=weights, log_determinant=float(total))

    def marginals(self, factor: Any, shift: Any, projection: Any = None) -> Marginals:
        """Marginals of the rows, without the determinant, as in `SparseSpace`."""
        return _marginals(self.response(factor, shift, None), self.variances(factor))

    def variances(self, factor: Any) -> Variances:
        """Variances of the rows, shape (m,)."""
        alone = factor.variances_of(_alone(self._rows, np.ones(len(self.blocks.alone))))
        each = [tuple(part[:, 0] for part in alone)]
        for looks, noise in self._left(factor.precision):
            value, *errors = factor.variances_of(looks)
            each.append(tuple(np.concatenate(part) for part in (value + noise, *errors)))
        return Variances(
            *(np.concatenate(part)[self.blocks.place] for part in zip(*each, strict=True))
        )

    def pull(self, factor: Any, shift: Any) -> Floats:
        """See `SparseSpace.pull`."""
        columns = np.asarray(shift).reshape(len(shift), -1).T
        pulled = np.stack([self._pulled(factor, column) for column in columns], axis=1)
        return np.asarray(self.latents.projection.T @ pulled.reshape(np.shape(shift)))

    def lasting(self, factor: SparsePosterior) -> SparsePosterior:
        """See `SparseSpace.lasting`."""
        posterior: SparsePosterior = self.inner.lasting(factor)
        return posterior


def _marginals(mean: Any, variances: Variances) -> Marginals:
    fields: Any = mean, variances.value, np.zeros(())
    return Marginals(*fields)


def _alone(rows: GroupedRows, scale: Floats) -> Items:
    """Rows without shared noise, times numbers."""
    return Items(rows.alone.column, (scale[:, None] * rows.alone.entry)[:, None, :])


def space_of(
    latents: Latents, tol: float, draws: Draws | None, shared: Shared | None
) -> SparseSpace | SharedSpace:
    """Space of rows with or without shared noise; arguments are those of `SparseSpace`."""
    if shared is None:
        return SparseSpace(latents, tol, draws, {})
    rows = SparseRows(latents.column, latents.entry, np.zeros(latents.size))
    inner: Any = SparseSpace(latents, tol, draws, {}, GroupedRows.of(rows, shared.blocks))
    return SharedSpace(inner, shared.blocks, shared.factors)


def known_posterior(
    parts: Mapping[str, Any],
    column: ArrayLike,
    entry: ArrayLike,
    weights: ArrayLike,
    shared: Shared | None = None,
    tol: float = 1e-8,
) -> SparsePosterior:
    """The posterior under known sites.

    ``weights`` are the sites' precisions times counts; other arguments are those of
    `sparse_ep.fit`.
    """
    latents = Latents.of(parts, column, entry)
    # No samples are drawn, because `lasting` drops them.
    draws = None if latents.small else latents.noise(np.random.default_rng(0), 0)
    space = space_of(latents, tol, draws, shared)
    posterior: SparsePosterior = space.lasting(space.factorise(np.asarray(weights, np.float64)))
    return posterior
