"""Answers whose rows are one outcome, such as lists, at a point: for Laplace's approximation, which has a block of curvature for each.

Of a list, the log probability f is a function of all of its rows x. Its Gaussian site has the slope ∂f and the precision H = −∂²f, which
is no diagonal. As nothing is integrated out of it, the latent vector has the precision K⁻¹ + AᵀHA, as with the M of the arrow.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relpref.infer.arrow import Arrow, Blocks, Weights
from relpref.infer.call import Values
from relpref.infer.program import Observation, Program, Reading
from relpref.lazy_jit import lazy_jit
from relpref.linalg.arrays import Array, namespace


class Joint(NamedTuple):
    """Functions of the projections x, shape (m,), and which rows they are about."""

    arrow: Arrow
    directions: Array  # 1 where a row has this place in its group, shape (m, w)
    height: Callable[[Array], Array]  # Σ f
    # The slope, shape (m,), and the second derivatives of a row by the rows of its group, shape (m, w).
    slopes: Callable[[Array], tuple[Array, Array]]
    # Derivative in x of ½ Σ ⟨S, ∂²f⟩ by the rows of S, shape (m, w).
    bend: Callable[[Array, Array], Array]

    @property
    def alone(self) -> Array:
        """1 for rows of single answers, 0 for the others, shape (m,)."""
        return 1 - self.directions.sum(axis=1)

    def weights(self, precision: Array, second: Array) -> Weights:
        """Of all sites, from the precisions of single answers and second derivatives."""
        blocks, xp = self.arrow.blocks, namespace(second)
        room = xp.concatenate([-second, 0 * self.directions[:1]])
        groups = tuple(room[group.rows][:, :, : group.rows.shape[1]] for group in blocks.groups)
        return Weights(precision[blocks.alone], groups)

    def times(self, weights: Weights, vector: Array) -> Array:
        """The weights times a vector, shape (m,)."""
        blocks = self.arrow.blocks
        seen = zip(weights.groups, blocks.cut(vector), strict=True)
        return blocks.joined(
            weights.alone * vector[blocks.alone], [(block @ its[:, :, None])[:, :, 0] for block, its in seen]
        )

    def spread(self, covariance: Array) -> Array:
        """Covariances of a row with the rows of its group, given that of the latents, shape (m, w)."""
        assert self.arrow.rows is not None
        squares = [
            entries @ covariance[columns[:, :, None], columns[:, None, :]] @ entries.swapaxes(1, 2)
            for columns, entries in self.arrow.rows.items
        ]
        return _columns(self.arrow.blocks, squares)


def _columns(blocks: Blocks, squares: Sequence[Array]) -> Array:
    """The rows of blocks of shape (g, p, p), by the rows that they are about, shape (m, w)."""
    width = max(square.shape[2] for square in squares)
    xp = namespace(*squares)
    wide = [xp.pad(square, ((0, 0), (0, 0), (0, width - square.shape[2]))) for square in squares]
    nothing = xp.zeros(len(blocks.alone))
    return xp.stack([blocks.joined(nothing, [each[:, :, at] for each in wide]) for at in range(width)], 1)


def directions(arrow: Arrow) -> Array:
    """See `Joint.directions`."""
    xp = namespace(arrow.blocks.place)
    sizes = [group.rows.shape for group in arrow.blocks.groups]
    return _columns(arrow.blocks, [xp.broadcast_to(xp.eye(p), (g, p, p)) for g, p in sizes])


def height(observations: tuple[Observation, ...], offset: Array, value: Array) -> Array:
    """Log probability of all groups of rows that are one outcome."""
    start, total = 0, jnp.zeros(())
    for likelihood, answers, _ in observations:
        rows = slice(start, start + answers.size)
        start += answers.size
        whole = getattr(likelihood, "log_prob_of_lists", None)
        if whole is not None:
            total = total + whole(answers, jnp.reshape(value[rows] + offset[rows], answers.shape)).sum()
    return total


def slopes(reading: Reading, value: Array, along: Array) -> tuple[Array, Array]:
    """The derivative of the height, and that of its derivative along each column, shape (m, w)."""
    slope = jax.grad(partial(height, reading.observations, reading.offset))
    second = jax.vmap(lambda one: jax.jvp(slope, (value,), (one,))[1], 1, 1)(along)
    return slope(value), second


def half_trace(reading: Reading, value: Array, along: Array, spread: Array) -> Array:
    """½ Σ ⟨S, ∂²f⟩."""
    return 0.5 * jnp.vdot(slopes(reading, value, along)[1], spread)


def bend(reading: Reading, value: Array, along: Array, spread: Array) -> Array:
    """See `Joint.bend`."""
    return jax.grad(partial(half_trace, reading), 0)(value, along, spread)


@lazy_jit
def _height(program: Program, unconstrained: Values, value: Array) -> Array:
    reading = program.read(unconstrained)
    return height(reading.observations, reading.offset, value)


@lazy_jit
def _slopes(program: Program, unconstrained: Values, value: Array, along: Array) -> tuple[Array, Array]:
    return slopes(program.read(unconstrained), value, along)


@lazy_jit
def _bend(program: Program, unconstrained: Values, value: Array, along: Array, spread: Array) -> Array:
    return bend(program.read(unconstrained), value, along, spread)


def joint_of(arrow: Arrow, reading: Reading) -> Joint:
    """Of a program that JAX traces."""
    along = directions(arrow)
    return Joint(
        arrow,
        along,
        partial(height, reading.observations, reading.offset),
        lambda value: slopes(reading, value, along),
        lambda value, spread: bend(reading, value, along, spread),
    )


def joint_on_host(arrow: Arrow, program: Program, unconstrained: Values, fill: Callable[[Any], Any]) -> Joint:
    """Of NumPy's arrays; ``fill`` adds the rows that the ``program`` has beyond those of the arrow."""
    along, number = directions(arrow), len(arrow.blocks.place)
    wide = fill(along)

    def both(value: Array) -> tuple[Array, Array]:
        slope, second = _slopes(program, unconstrained, fill(value), wide)
        return slope[:number], second[:number]

    return Joint(
        arrow,
        along,
        lambda value: _height(program, unconstrained, fill(value)),
        both,
        lambda value, spread: _bend(program, unconstrained, fill(value), wide, fill(spread))[:number],
    )
