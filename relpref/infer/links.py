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
from relpref.infer.call import Call, Values
from relpref.infer.latents import Run
from relpref.infer.layout import Layout
from relpref.likelihoods import as_likelihood
from relpref.likelihoods.tilted import unwrap

_TOLERANCE = 1e-7  # of derivatives at different points, relative to the largest


class Linked(NamedTuple):
    """The predictors of an observed site."""

    matrix: Any  # sparse, shape (m, n)
    constant: bool  # whether that holds at all hyperparameters
    link: Leaf | Link | None  # of a likelihood whose moments are not used
    concave: bool


class _Spec(NamedTuple):
    """The static arguments of functions that run a program with free variables."""

    call: Call
    way: Way
    latents: tuple[tuple[str, tuple[int, ...]], ...]
    name: str  # of the site
    general: bool  # whether its moments are not used

    def run(self, arrays: Any, fixed: Values, unconstrained: Values) -> Any:
        """The sites of the program, by what `Way.latents` takes."""
        zeros = {name: jnp.zeros(shape) for name, shape in self.latents}
        return lambda place: self.call.trace(
            arrays, {**fixed, **place(zeros)}, unconstrained=unconstrained
        )


def linked(
    call: Call,
    arrays: tuple[Any, ...],
    fixed: Values,
    layout: Layout,
    shown: Run,
    name: str,
    general: bool,
    draws: tuple[Values, Values],
    latent: str,
) -> Linked:
    """Find the predictors of a site at random points and two values of the hyperparameters.

    Raises
    ------
    UnsupportedProgramError
        If there are no predictors, one for each row.
    """
    way, generator, number = shown.way, np.random.default_rng(0), len(shown.counts[name])
    if not way.shapes:
        raise TypeError("no variables")
    if way.name == "whole":
        size: tuple[int, ...] = (layout.num_latents,)
    else:
        if number != int(np.prod(way.rows)):
            raise TypeError("another number of rows")
        size = number, sum(int(np.prod(shape)) for shape in way.shapes) // number
    x = generator.standard_normal(size)
    # The sign is the other one, so that |x| and max(x, 0) show.
    points = np.stack([x, -x * generator.uniform(0.3, 3.0, size), x])
    weights = generator.standard_normal(number)
    spec = _Spec(call, way, layout.latents, name, general)
    both = jax.tree.map(lambda *parts: np.stack(parts), draws[0], draws[0], draws[1])
    slopes, across = map(np.asarray, _slopes(spec, arrays, fixed, points, both, weights))
    slack = _TOLERANCE * (1 + np.max(np.abs(slopes), initial=0.0))
    kind = f"observed site {name!r} ({shown.families[name].__name__})"
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
    rows = shown.shapes[name]
    link = Link(direction, color, way, rows, int(color.max(initial=0)) + 1)
    concave = shown.concave[name]
    family = shown.families[name]
    if not hasattr(family, "log_concave") and family in CONCAVE:
        z = generator.standard_normal(number)
        concave = float(_bent(spec, family, arrays, fixed, link, draws[0], z)) <= _TOLERANCE
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


@partial(jax.jit, static_argnums=0)
def _slopes(
    spec: _Spec, arrays: Any, fixed: Values, points: Array, unconstrained: Values, weights: Array
) -> tuple[Array, Array]:
    """Derivatives of rows in their variables, shape (points, m, w).

    And by how much they differ from what they would be if rows did not see each other.
    """

    def rows(wide: Array, values: Values) -> Array:
        variables = spec.way.narrow(wide)
        run = spec.run(arrays, fixed, values)
        site = run(lambda sites: spec.way.latents(sites, spec.way.given(variables)))[spec.name]
        if not spec.general:
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
        if spec.way.name == "whole":
            return slopes, jnp.zeros(())
        return slopes, moved(weights[:, None] * ones) - weights * jnp.sum(slopes, axis=1)

    return jax.vmap(at)(points, unconstrained)


@partial(jax.jit, static_argnums=(0, 1))
def _bent(
    spec: _Spec,
    family: type,
    arrays: Any,
    fixed: Values,
    link: Link,
    unconstrained: Values,
    z: Array,
) -> Array:
    """0 if a log density is surely concave in its predictor, by its family and parameters."""
    parameter, function, others = CONCAVE[family]
    run = spec.run(arrays, fixed, unconstrained)

    def at(part: str, step: float) -> Array:
        return link.at(
            spec.name,
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
