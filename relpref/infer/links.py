"""Predictors of a program with free variables, by derivatives in these."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import Array
from numpy.typing import NDArray

from relpref.errors import UnsupportedProgramError
from relpref.infer.affine import CONCAVE, Leaf, Link, Way
from relpref.infer.call import Values
from relpref.infer.latents import Run
from relpref.likelihoods import as_likelihood
from relpref.likelihoods.tilted import unwrap

Program = Any  # of `relpref.infer.program`, which builds on this module
_TOLERANCE = 1e-7  # of derivatives at different points, relative to the largest


class Linked(NamedTuple):
    """The predictors of an observed site."""

    matrix: Any  # sparse, shape (m, n)
    constant: bool  # whether that holds at all hyperparameters
    link: Leaf | Link | None  # of a likelihood whose moments are not used
    concave: bool


def linked(
    program: Program,
    shown: Run,
    name: str,
    general: bool,
    draws: list[Values],
    latent: str,
) -> Linked:
    """Find the predictors of a site at random points and two values of the hyperparameters.

    Raises
    ------
    UnsupportedProgramError
        If there are no predictors, one for each row.
    """
    site, way, generator = shown.observed[name], shown.way, np.random.default_rng(0)
    number = len(site.counts)
    if not way.shapes:
        raise TypeError("no variables")
    if way.name == "whole":
        size: tuple[int, ...] = (program.layout.num_latents,)
    else:
        if number != int(np.prod(way.rows)):
            raise TypeError("another number of rows")
        size = number, sum(int(np.prod(shape)) for shape in way.shapes) // number
    x = generator.standard_normal(size)
    # The sign is the other one, so that |x| and max(x, 0) show.
    points = np.stack([x, -x * generator.uniform(0.3, 3.0, size), x])
    weights = generator.standard_normal(number)
    both = jax.tree.map(lambda *parts: np.stack(parts), draws[0], draws[0], draws[1])
    slopes, across = map(np.asarray, _slopes(program, way, name, general, points, both, weights))
    slack = _TOLERANCE * (1 + np.max(np.abs(slopes), initial=0.0))
    kind = f"observed site {name!r} ({site.family.__name__})"
    if not np.all(np.abs(across) <= slack * (1 + np.abs(weights).max(initial=0.0))):
        raise UnsupportedProgramError(
            f"{kind} has answers that each depend on {latent} in more than one place, or that "
            "depend on each other's predictors"
        )
    first, second, other = slopes
    if not general:
        if not np.all(np.abs(first - second) <= slack):
            raise UnsupportedProgramError(
                f"{latent}: the observed predictors do not depend on it linearly"
            )
        constant = bool(np.allclose(first, other, rtol=1e-9, atol=slack))
        return Linked(_matrix(shown, first), constant and _stays(shown), None, False)
    top = np.take_along_axis(first, np.abs(first).argmax(axis=1)[:, None], axis=1)
    direction = np.round(first / np.where(top == 0, 1.0, top), 12)
    share = direction / np.maximum(np.square(direction).sum(axis=1), 1e-300)[:, None]
    for each in slopes:
        along = np.sum(each * share, axis=1)[:, None] * direction
        if not np.all(np.abs(each - along) <= slack):
            raise UnsupportedProgramError(
                f"{kind} depends on more than one linear combination of {latent} for an answer"
            )
    color: Any = np.zeros(number, np.int64)
    if way.name == "whole":
        color = colored(direction)
    link = Link(direction, color, way, site.shape, int(color.max(initial=0)) + 1)
    concave, family = site.concave, site.family
    if not hasattr(family, "log_concave") and family in CONCAVE:
        z = generator.standard_normal(number)
        concave = float(_bent(program, name, family, link, draws[0], z)) <= _TOLERANCE
    return Linked(_matrix(shown, direction), _stays(shown), link, concave)


def _stays(shown: Run) -> bool:
    return not any(values.moves for values in shown.variables)


def _matrix(shown: Run, wide: NDArray[np.float64]) -> Any:
    """The projection to rows from coefficients of their variables."""
    if shown.way.name == "whole":
        return scipy.sparse.csr_array(wide)
    number = len(wide)
    total, start = 0, 0
    for values in shown.variables:
        width = values.size // number
        for column in range(width):
            weights = scipy.sparse.diags_array(wide[:, start + column], format="csr")
            total = total + weights @ values.matrix[np.arange(number) * width + column]
        start += width
    return total


def _runs(program: Program, unconstrained: Values) -> Any:
    """Runs of a program, see `relpref.infer.program.Program.runs`."""
    layout = program.layout
    return program.runs(layout.unravel(jnp.zeros(layout.num_latents)), unconstrained)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _slopes(
    program: Program,
    way: Way,
    name: str,
    general: bool,
    points: Array,
    unconstrained: Values,
    weights: Array,
) -> tuple[Array, Array]:
    """Derivatives of rows in their variables, shape (points, m, w).

    And by how much they differ from what they would be if rows did not see each other.
    """

    def rows(wide: Array, values: Values) -> Array:
        variables = way.narrow(wide)
        run = _runs(program, values)
        site = run(lambda sites: way.latents(sites, way.given(variables)))[name]
        if not general:
            return jnp.ravel(as_likelihood(site["fn"]).predictor)
        base = unwrap(site["fn"])
        shape = np.broadcast_shapes(np.shape(site["value"]), base.batch_shape)
        return jnp.ravel(jnp.broadcast_to(base.log_prob(site["value"]), shape))

    def at(wide: Array, values: Values) -> tuple[Array, Array]:
        def moved(tangent: Array) -> Array:
            return jax.jvp(lambda wide: rows(wide, values), (wide,), (tangent,))[1]

        ones = jnp.ones(wide.shape)
        units = ones * jnp.eye(wide.shape[-1]).reshape(-1, *(1,) * (wide.ndim - 1), wide.shape[-1])
        slopes = jax.vmap(moved, out_axes=1)(units)
        if way.name == "whole":
            return slopes, jnp.zeros(())
        return slopes, moved(weights[:, None] * ones) - weights * jnp.sum(slopes, axis=1)

    return jax.vmap(at)(points, unconstrained)


@partial(jax.jit, static_argnums=(1, 2))
def _bent(
    program: Program, name: str, family: type, link: Link, unconstrained: Values, z: Array
) -> Array:
    """0 if a log density is surely concave in its predictor, by its family and parameters."""
    parameter, function, others = CONCAVE[family]
    run = _runs(program, unconstrained)

    def at(part: str, step: float) -> Array:
        return link.at(
            name,
            run,
            z + step,
            lambda base: jnp.broadcast_to(getattr(base, part), link.rows),
        )

    low, middle, high = (function(at(parameter, step)) for step in (-1.0, 0.0, 1.0))
    bends = [low - 2 * middle + high, *(at(part, 1.0) - at(part, -1.0) for part in others)]
    return jnp.max(jnp.abs(jnp.stack(bends))) / (1 + jnp.max(jnp.abs(high - low)))


def colored(looks: NDArray[np.float64]) -> NDArray[np.int64]:
    """A color for each row, so that rows of one color look at different latents; greedy."""
    used: list[NDArray[np.bool_]] = []
    colors = np.zeros(len(looks), np.int64)
    for row, look in enumerate(looks != 0):
        at = next((k for k, taken in enumerate(used) if not np.any(taken & look)), len(used))
        if at == len(used):
            used.append(np.zeros(looks.shape[1], bool))
        used[at], colors[row] = used[at] | look, at
    return colors
