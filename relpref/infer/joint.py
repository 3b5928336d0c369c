"""Joint likelihoods of rows that are one outcome, such as lists, for Laplace's approximation.

The curvature has a block for each outcome.

Of a list, the log probability f is a function of all of its rows x. Its Gaussian site has the slope
∂f and the precision H = −∂²f, which is no diagonal. As nothing is integrated out of it, the latent
vector has the precision K⁻¹ + AᵀHA, as with the M of the arrow.

Second and third derivatives are differences of f and its slope at a few points around x, which err
less than the grids behind f: XLA takes minutes for derivatives of derivatives of these.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relpref.compiled import compiled
from relpref.infer.arrow import Arrow, Blocks, Weights
from relpref.infer.call import Values
from relpref.infer.layout import Observation, Prior, placed
from relpref.infer.program import Program
from relpref.linalg.arrays import Array, namespace

# Steps of first and of second differences, where the noise of an answer is 1.
_SHORT, _LONG = 1e-3, 3e-3


class Around(NamedTuple):
    """Height, slope and second derivatives of f at a point."""

    height: Array  # Σ f
    slope: Array  # shape (m,)
    second: Array  # derivatives of a row's slope by the rows of its group, shape (m, w)


class Joint(NamedTuple):
    """Functions of the projections x, shape (m,), and the rows that they depend on."""

    arrow: Arrow
    directions: Array  # 1 where a row has this place in its group, shape (m, w)
    # From points, shape (m, k), to Σ f at each, shape (k,), and its slopes there, shape (m, k).
    slopes: Callable[[Array], tuple[Array, Array]]

    @classmethod
    def of(cls, arrow: Arrow, slopes: Callable[[Array], tuple[Array, Array]]) -> "Joint":
        """The joint likelihood of rows that share noise."""
        blocks, xp = arrow.blocks, namespace(arrow.blocks.place)
        sizes = [group.rows.shape for group in blocks.groups]
        units = [xp.broadcast_to(xp.eye(p), (g, p, p)) for g, p in sizes]
        return cls(arrow, _columns(blocks, units), slopes)

    @property
    def alone(self) -> Array:
        """1 for rows of single answers, 0 for the others, shape (m,)."""
        return 1 - self.directions.sum(axis=1)

    def at(self, value: Array) -> Around:
        """Height, slope and second derivatives at a point."""
        height, slope = self.slopes(_around(value, _SHORT * self.directions))
        width = self.directions.shape[1]
        return Around(
            height[0], slope[:, 0], (slope[:, 1 : 1 + width] - slope[:, 1 + width :]) / (2 * _SHORT)
        )

    def bend(self, value: Array, roots: Array) -> Array:
        """Derivative in x of ½ Σ ⟨RRᵀ, ∂²f⟩, R as of `roots`, shape (m,)."""
        points, shares = half_trace(value, roots)
        return self.slopes(points)[1] @ shares

    def weights(self, precision: Array, second: Array) -> Weights:
        """Weights of all sites, from precisions of single answers and second derivatives."""
        blocks, xp = self.arrow.blocks, namespace(second)
        padded = xp.concatenate([-second, 0 * self.directions[:1]])
        squares = (padded[group.rows][:, :, : group.rows.shape[1]] for group in blocks.groups)
        groups = tuple(0.5 * (square + square.swapaxes(1, 2)) for square in squares)
        return Weights(precision[blocks.alone], groups)

    def times(self, weights: Weights, vector: Array) -> Array:
        """The weights times a vector, shape (m,)."""
        blocks = self.arrow.blocks
        pairs = zip(weights.groups, blocks.cut(vector), strict=True)
        return blocks.joined(
            weights.alone * vector[blocks.alone],
            [(block @ part[:, :, None])[:, :, 0] for block, part in pairs],
        )

    def roots(self, covariance: Array) -> Array:
        """R, shape (m, w), where RRᵀ are the covariances of a row with the rows of its group.

        ``covariance`` is that of the latents.
        """
        assert self.arrow.rows is not None
        squares, xp = [], namespace(covariance)
        for columns, entries in self.arrow.rows.items:
            spread = (
                entries
                @ covariance[columns[:, :, None], columns[:, None, :]]
                @ entries.swapaxes(1, 2)
            )
            values, vectors = xp.linalg.eigh(spread)  # some rows may follow from the others
            squares.append(vectors * xp.sqrt(xp.maximum(values, 0.0))[:, None, :])
        return _columns(self.arrow.blocks, squares)


def slope_along(value: Array, direction: Array) -> tuple[Array, Array]:
    """Points, shape (m, k), and shares of the values there.

    The weighted sum of the values is the derivative along a direction.
    """
    step = _step(_SHORT, direction)
    return _around(value, step * direction[:, None]), np.array([0.0, 0.5, -0.5]) / step


def half_trace(value: Array, roots: Array) -> tuple[Array, Array]:
    """Points and shares for half the sum of the second derivatives along the roots.

    See `slope_along`.
    """
    step, width = _step(_LONG, roots), roots.shape[1]
    return _around(value, step * roots), np.append(-width, np.full(2 * width, 0.5)) / step**2


def _step(most: float, directions: Array) -> Array:
    """Step that moves no row by more than ``most``."""
    xp = namespace(directions)
    return most / xp.maximum(xp.max(xp.abs(directions), initial=0.0), 1e-30)


def _around(value: Array, moves: Array) -> Array:
    """A point and the ends of moves of shape (m, w) on both sides, shape (m, 1 + 2w)."""
    middle = value[:, None]
    return namespace(value, moves).concatenate([middle, middle + moves, middle - moves], axis=1)


def _columns(blocks: Blocks, squares: Sequence[Array]) -> Array:
    """Rows of blocks of shape (g, p, p), in the order of the projections, shape (m, w)."""
    width = max(square.shape[2] for square in squares)
    xp = namespace(*squares)
    wide = [xp.pad(square, ((0, 0), (0, 0), (0, width - square.shape[2]))) for square in squares]
    nothing = xp.zeros(len(blocks.alone))
    return xp.stack(
        [blocks.joined(nothing, [each[:, :, at] for each in wide]) for at in range(width)], 1
    )


def heights(observations: tuple[Observation, ...], offset: Array, points: Array) -> Array:
    """Log probability of all groups of rows that are one outcome, shape (k,).

    ``points`` has the shape (m, k).
    """

    def height(value: Array) -> Array:
        total = jnp.zeros(())
        for likelihood, answers, _, rows in placed(observations):
            log_prob = getattr(likelihood, "log_prob_of_lists", None)
            if log_prob is not None:
                predictor = jnp.reshape(value[rows] + offset[rows], answers.shape)
                total = total + log_prob(answers, predictor).sum()
        return total

    return jax.vmap(height, 1)(points)


def slopes_at(prior: Prior, points: Array) -> tuple[Array, Array]:
    """See `Joint.slopes`."""

    def total(points: Array) -> tuple[Array, Array]:
        height = heights(prior.observations, prior.offset, points)
        return height.sum(), height

    slope, height = jax.grad(total, has_aux=True)(points)
    return height, slope


@compiled
def slopes_on_host(program: Program, unconstrained: Values, points: Array) -> tuple[Array, Array]:
    """See `Joint.slopes`; on arrays of NumPy."""
    return slopes_at(program.read(unconstrained), points)
