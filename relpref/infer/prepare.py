"""What an engine does before it computes: it looks at the program and its arguments."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
from jax import Array
from numpyro.distributions.transforms import biject_to

from relpref.infer.layout import Discovery, broadcast_fixed, discover
from relpref.infer.padding import left_out, preference_data, with_padding
from relpref.infer.program import Call, Layout, Program, Values, in_double, read
from relpref.linalg import require_memory

MATRICES = 4  # of the size of a prior covariance that are needed at once


class Prepared(NamedTuple):
    """A program that has been looked at.

    Attributes
    ----------
    call : Call
    arrays : tuple
    fixed : dict
        In the shapes of their sites.
    discovery : Discovery
    answered : int
        How many of its rows, from the first on, are answers; all where none were added.
    """

    call: Call
    arrays: tuple[Any, ...]
    fixed: Values
    discovery: Discovery
    answered: int


def prepare(
    program: Program,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    fixed: Mapping[str, Any],
    padding: bool,
) -> Prepared:
    """Find out what a program is, with rows added where that is wanted and possible; errors as of `discover`.

    Raises
    ------
    DataError
        If the prior covariance would not fit into memory.
    """

    def prepared(args: tuple[Any, ...], kwargs: Mapping[str, Any], answered: int | None) -> Prepared:
        call, arrays = _split(program, args, kwargs)
        given = broadcast_fixed(call, arrays, dict(fixed))
        found = discover(call, arrays, given)
        size = found.layout.num_latents
        require_memory(MATRICES * 8.0 * size**2, f"the prior covariance of {size} values")
        return Prepared(call, arrays, given, found, found.layout.num_rows if answered is None else answered)

    data = preference_data(args, kwargs)
    if padding and data is not None:
        found = prepared(*with_padding(args, kwargs), data.num_comparisons)
        if left_out(found.discovery.counts, data):
            return found
    return prepared(args, kwargs, None)


def _split(
    program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Call, tuple[Any, ...]]:
    call, arrays = Call.split(program, args, kwargs)
    return call, tuple(in_double(array) for array in arrays)


def prior_draws(
    call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, key: Any, number: int
) -> list[Values]:
    """Draws of the unconstrained hyperparameters from their prior."""
    if not number:
        return []
    draws = _draw(call, layout, arrays, fixed, jax.random.split(key, number))
    return [{name: value[row] for name, value in draws.items()} for row in range(number)]


@partial(jax.jit, static_argnums=(0, 1))
def constrained(call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, draws: Values) -> Values:
    """Hyperparameters on their supports, draw by draw."""
    return jax.vmap(lambda values: read(call, arrays, layout, values, fixed).hyperparameters)(draws)


@partial(jax.jit, static_argnums=(0, 1))
def _draw(call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, keys: Array) -> Values:
    def draw(key: Array) -> Values:
        sites = call.trace(arrays, fixed, key)
        names = [name for name, _ in layout.hyperparameters]
        return {name: biject_to(sites[name]["fn"].support).inv(sites[name]["value"]) for name in names}

    return jax.vmap(draw)(keys)
