"""The predictors of observed sites whose likelihood is any distribution.

The parameters of the distribution are traced as functions of the latent vector. Values that are
affine in it are computed directly; the rest of the trace is the remainder. All affine values that
the remainder takes from a row must be affine functions of a single number, the row's predictor.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.extend.core import Literal

from relpref.errors import UnsupportedProgramError
from relpref.infer.jaxprs import inlined, reached
from relpref.likelihoods.quadrature import ByQuadrature
from relpref.likelihoods.tilted import unwrap

NUTS = "numpyro's MCMC(NUTS(program)) can run it"

# Operations, by the names of JAX's primitives.
_TABLE = {
    # Affine in all operands at once; other operations are tested.
    "linear": "add add_any sub neg slice squeeze reshape broadcast_in_dim transpose concatenate "
    "reduce_sum expand_dims copy copy_p rev cumsum",
    # Entry by entry, whatever the shape.
    "elementwise": "abs acos acosh add asin asinh atan atan2 atanh and cbrt ceil clamp "
    "convert_element_type cos cosh digamma div eq erf "
    "erf_inv erfc exp exp2 expm1 floor ge gt igamma integer_pow is_finite le lgamma log log1p "
    "logistic lt max min mul ne neg not or pow "
    "rem round rsqrt select_n sign sin sinh sqrt square stop_gradient sub tan tanh xor",
    # Select entries of the first operand, before an elementwise function as well as after it.
    "picking": "broadcast_in_dim dynamic_slice expand_dims gather reshape rev slice squeeze "
    "transpose copy",
    "inlined": "pjit jit closed_call core_call",
}
_LINEAR, _ELEMENTWISE, _PICKING, _INLINED = (frozenset(names.split()) for names in _TABLE.values())


@dataclass(frozen=True, eq=False)
class _Call:
    """An operation whose results are not affine in the latents."""

    function: Callable[..., Any]
    operands: tuple["_Node", ...]
    elementwise: bool


@dataclass(frozen=True, eq=False)
class _Node:
    """A value of the trace."""

    shape: tuple[int, ...]
    value: Any = None  # if it does not depend on the latents or is affine in them
    moves: bool = False  # whether it depends on the latents
    # The operation and the index of its result, if the value is not affine.
    call: _Call | None = None
    index: int = 0


Parameters = Callable[[Array], list[Any]]


def follow(
    parameters: Parameters, vector: Array, rows: tuple[int, ...]
) -> tuple[Array, Parameters]:
    """Split a distribution's parameters, for answers of shape ``rows``, at their affine parts.

    Returns the affine values that the remainder takes from the rows at the latent vector, shape
    (m, k), in every row multiples of each other up to a constant; and a function from such values
    to the parameters.

    Raises
    ------
    UnsupportedProgramError
        If the affine values are not laid out row by row.
    """
    closed = jax.make_jaxpr(parameters)(vector)
    nodes = _interpret(closed, [_Node(vector.shape, vector, moves=True)])
    nodes = [_in_rows(node, rows) for node in nodes]
    columns, layouts = [], []
    for node in _leaves(nodes):
        if node.shape[: len(rows)] != rows:
            raise UnsupportedProgramError(
                f"takes values of shape {node.shape} from its latents, which are not one row for "
                f"each of its answers, of shape {rows}"
            )
        columns.append(jnp.reshape(node.value, (int(np.prod(rows)), -1)))
        layouts.append((id(node), node.shape, columns[-1].shape[1]))
    if not columns:  # the site does not depend on the latents
        columns.append(jnp.zeros((int(np.prod(rows)), 1), vector.dtype))

    def at(parts: Array) -> list[Any]:
        values, start = {}, 0
        for key, shape, width in layouts:
            values[key] = jnp.reshape(parts[:, start : start + width], shape)
            start += width
        results: dict[int, list[Any]] = {}
        return [_evaluate(node, values, results) for node in nodes]

    return jnp.concatenate(columns, axis=1), at


def _interpret(closed: Any, arguments: Iterable[_Node]) -> list[_Node]:
    """The results of a closed jaxpr."""
    constants = [_Node(jnp.shape(value), value) for value in closed.consts]
    nodes: dict[Any, _Node] = dict(zip(closed.jaxpr.constvars, constants, strict=True))
    nodes |= dict(zip(closed.jaxpr.invars, arguments, strict=True))

    def node(variable: Any) -> _Node:
        if isinstance(variable, Literal):
            return _Node(jnp.shape(variable.val), variable.val)
        return nodes[variable]

    for equation in closed.jaxpr.eqns:
        operands = tuple(node(variable) for variable in equation.invars)
        inner = inlined(equation) if equation.primitive.name in _INLINED else None
        results = _apply(equation, operands) if inner is None else _interpret(inner, operands)
        nodes |= dict(zip(equation.outvars, results, strict=True))
    return [node(variable) for variable in closed.jaxpr.outvars]


def _apply(equation: Any, operands: tuple[_Node, ...]) -> list[_Node]:
    """The results of one operation."""
    name = equation.primitive.name
    bind = partial(_bind, equation)
    shapes = [tuple(variable.aval.shape) for variable in equation.outvars]
    if all(operand.call is None for operand in operands):
        moves = [operand.moves for operand in operands]
        if not any(moves) or _is_affine(equation, operands):
            results = bind(*(operand.value for operand in operands))
            return [
                _Node(shape, value, any(moves))
                for shape, value in zip(shapes, results, strict=True)
            ]
    if name in _PICKING and not any(operand.moves for operand in operands[1:]):
        rest = [operand.value for operand in operands[1:]]
        return [_picked(operands[0], lambda array: bind(array, *rest)[0], {})]
    elementwise = name in _ELEMENTWISE and all(
        operand.shape in ((), shapes[0]) for operand in operands
    )
    call = _Call(bind, operands, elementwise)
    return [_Node(shape, moves=True, call=call, index=index) for index, shape in enumerate(shapes)]


def _bind(equation: Any, *values: Any) -> list[Any]:
    parameters = equation.primitive.get_bind_params(equation.params)
    # Before JAX 0.11 the functions among the parameters are returned separately.
    functions, parameters = parameters if isinstance(parameters, tuple) else ((), parameters)
    results = equation.primitive.bind(*functions, *values, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]


def _is_affine(equation: Any, operands: tuple[_Node, ...]) -> bool:
    """Whether an operation is affine in the operands that depend on the latents.

    Then its derivative does not depend on the point where it is taken.
    """
    if not all(jnp.issubdtype(variable.aval.dtype, jnp.floating) for variable in equation.outvars):
        return False
    if equation.primitive.name in _LINEAR:
        return True
    places = [place for place, operand in enumerate(operands) if operand.moves]

    def moved(*moving: Array) -> list[Any]:
        values = [operand.value for operand in operands]
        for place, value in zip(places, moving, strict=True):
            values[place] = value
        return _bind(equation, *values)

    at = tuple(jnp.asarray(operands[place].value) for place in places)
    jaxpr = jax.make_jaxpr(partial(jax.jvp, moved))(at, at).jaxpr
    number = len(places)
    changes = slice(len(jaxpr.outvars) // 2, None)
    by_place = reached(jaxpr, [True] * number + [False] * number)[changes]
    by_direction = reached(jaxpr, [False] * number + [True] * number)[changes]
    return not any(by_place) and all(by_direction)


def _picked(node: _Node, pick: Callable[[Any], Any], picked: dict[int, _Node]) -> _Node:
    """Entries of a value, selected before elementwise operations so that each row has some."""
    if id(node) in picked:
        return picked[id(node)]
    if node.call is None:
        value = pick(node.value)
        result = _Node(jnp.shape(value), value, node.moves)
    else:
        call = _Call(lambda array: [pick(array)], (node,), False)
        if node.call.elementwise:
            operands = []
            for operand in node.call.operands:
                if operand.shape != node.shape and operand.moves:
                    operand = _picked(
                        operand, lambda array: jnp.broadcast_to(array, node.shape), {}
                    )
                scalar = operand.shape == () != node.shape
                operands.append(operand if scalar else _picked(operand, pick, picked))
            call = _Call(node.call.function, tuple(operands), True)
        shape = tuple(jax.eval_shape(pick, jax.ShapeDtypeStruct(node.shape, float)).shape)
        result = _Node(shape, moves=True, call=call, index=node.index if call.elementwise else 0)
    picked[id(node)] = result
    return result


def _in_rows(node: _Node, rows: tuple[int, ...]) -> _Node:
    """A parameter that broadcasts to the rows, with an entry for each row."""
    if not node.moves or node.shape[: len(rows)] == rows:
        return node
    try:
        shape = np.broadcast_shapes(node.shape, rows)
    except ValueError:
        return node
    return _picked(node, lambda array: jnp.broadcast_to(array, rows), {}) if shape == rows else node


def _leaves(nodes: Iterable[_Node]) -> Iterable[_Node]:
    """Affine values that the remainder takes, each once, in the order of the operands."""
    seen: set[int] = set()
    left = list(nodes)[::-1]
    while left:
        node = left.pop()
        if id(node) not in seen and node.moves:
            seen.add(id(node))
            if node.call is None:
                yield node
            else:
                left += node.call.operands[::-1]


def _evaluate(node: _Node, values: dict[int, Array], results: dict[int, list[Any]]) -> Any:
    """A value of the remainder, from the affine values and earlier results of operations."""
    if not node.moves:
        return node.value
    if node.call is None:
        return values[id(node)]
    key = id(node.call)
    if key not in results:
        results[key] = node.call.function(
            *(_evaluate(operand, values, results) for operand in node.call.operands)
        )
    return results[key][node.index]


# Families whose log density is concave in the predictor if a function of the named parameter is
# affine in it and the other parameters do not depend on it.
_CONCAVE: dict[type, tuple[str, Callable[[Array], Array], tuple[str, ...]]] = {
    dist.BernoulliLogits: ("logits", jnp.asarray, ()),
    dist.BinomialLogits: ("logits", jnp.asarray, ("total_count",)),
    dist.Normal: ("loc", jnp.asarray, ("scale",)),
    dist.Logistic: ("loc", jnp.asarray, ("scale",)),
    dist.Laplace: ("loc", jnp.asarray, ("scale",)),
    dist.Poisson: ("rate", jnp.log, ()),
    dist.NegativeBinomial2: ("mean", jnp.log, ("concentration",)),
}


def is_concave(base: dist.Distribution, predictor: Any) -> bool:
    """Whether a log density is surely concave in a parameter, by its family."""
    name, link, _ = _CONCAVE.get(type(base), ("", None, ()))
    family = link is jnp.asarray and getattr(base, name) is predictor
    return bool(getattr(base, "log_concave", family))


class Doubt(NamedTuple):
    """Relative deviations of a site from one affine predictor for each answer; 0 is exact."""

    several: Array  # of a row's affine values from multiples of a single number
    wrong: Array  # of the log density of the predictor from that of the program
    across: Array  # dependence of an answer on the predictors of others
    bent: Array  # 0 if the likelihood is surely log-concave


@dataclass(frozen=True)
class AnySite:
    """An observed site of any distribution, as a function of one predictor for each answer."""

    name: str
    site: dict[str, Any]  # as it was traced
    # Maps the latent vector to the site's distribution, without the wrappers of plates and masks.
    at: Callable[[Array], dist.Distribution]

    @property
    def rows(self) -> tuple[int, ...]:
        """Shape of the answers."""
        return tuple(
            np.broadcast_shapes(jnp.shape(self.site["value"]), unwrap(self.site["fn"]).batch_shape)
        )

    def _followed(self, vector: Array) -> tuple[Array, Parameters]:
        try:
            return follow(lambda latent: jax.tree.leaves(self.at(latent)), vector, self.rows)
        except UnsupportedProgramError as error:
            raise UnsupportedProgramError(f"observed site {self.name!r} {error}") from None

    def _shares(self, vector: Array) -> tuple[Array, Array, Array]:
        """Affine values at the origin, the predictor's column and all columns' multiples of it."""
        parts, _ = self._followed(jnp.zeros_like(vector))
        change = self._followed(_random(vector, 1))[0] - parts
        place = jnp.argmax(change != 0, axis=1, keepdims=True)
        unit = jnp.take_along_axis(change, place, axis=1)
        return parts, place, jnp.where(change == 0, 0.0, change / jnp.where(unit == 0, 1.0, unit))

    def predictor(self, vector: Array) -> Array:
        """The predictors at a latent vector, shape (m,)."""
        parts, _ = self._followed(vector)
        if parts.shape[1] == 1:
            return parts[:, 0]
        _, place, _ = self._shares(vector)
        return jnp.take_along_axis(parts, place, axis=1)[:, 0]

    def _distribution(self, vector: Array) -> Callable[[Array], dist.Distribution]:
        """The distribution as a function of all rows' predictors, traced at a latent vector."""
        first, parameters = self._followed(vector)
        structure = jax.tree.structure(unwrap(self.site["fn"]))
        shares = None if first.shape[1] == 1 else self._shares(vector)

        def at(z: Array) -> dist.Distribution:
            parts = jnp.reshape(z, (-1, 1))
            if shares is not None:
                origin, place, slope = shares
                parts = origin + slope * (parts - jnp.take_along_axis(origin, place, axis=1))
            distribution: dist.Distribution = jax.tree.unflatten(structure, parameters(parts))
            return distribution

        return at

    def _log_density(self, vector: Array) -> Callable[[Array, Array], Array]:
        """Log density of values at given predictors, in the shape of the rows."""
        at, rows = self._distribution(vector), self.rows
        return lambda value, z: jnp.broadcast_to(at(z).log_prob(value), rows)

    def likelihood(self, vector: Array, log_concave: bool) -> ByQuadrature:
        """A likelihood with moments by quadrature, at the predictors of a latent vector."""
        z = jnp.reshape(self.predictor(vector), self.rows)
        return ByQuadrature(z, self._log_density(vector), log_concave=log_concave)

    def doubt(self, vectors: Array) -> Doubt:
        """The largest deviations at some latent vectors."""
        value = jnp.broadcast_to(self.site["value"], self.rows)
        at = self._log_density(vectors[0])
        try:
            at(value, jnp.zeros(self.rows))
        except (AttributeError, TypeError) as error:
            kind = type(unwrap(self.site["fn"])).__name__
            raise UnsupportedProgramError(
                f"observed site {self.name!r} ({kind}) cannot be rebuilt from its parameters "
                f"({error}); name them in the class's "
                f"arg_constraints or pytree_data_fields; {NUTS}"
            ) from None

        def deviations(vector: Array) -> tuple[Array, Array, Array]:
            z = jnp.reshape(self.predictor(vector), self.rows)
            parts, _ = self._followed(vector)
            origin, place, slope = self._shares(vector)
            change = jnp.take_along_axis(parts - origin, place, axis=1)
            several = _relative(parts - origin - slope * change, parts)
            true = self.at(vector).log_prob(value)
            ways = [jnp.reshape(_random(jnp.ravel(z), seed), z.shape) for seed in (2, 3)]
            along = [
                jax.jvp(partial(at, value), (z,), (way,))[1] for way in (jnp.ones_like(z), *ways)
            ]
            across = [
                _relative(d - along[0] * way, along[0])
                for d, way in zip(along[1:], ways, strict=True)
            ]
            return several, _relative(at(value, z) - true, true), jnp.max(jnp.stack(across))

        several, wrong, across = (jnp.max(each) for each in jax.vmap(deviations)(vectors))
        return Doubt(several, wrong, across, self._bent(vectors[0]))

    def _bent(self, vector: Array) -> Array:
        """0 if the likelihood is surely log-concave, by its family and parameters, else more."""
        base = unwrap(self.site["fn"])
        if hasattr(base, "log_concave"):
            return jnp.asarray(0.0 if base.log_concave else 1.0)
        if type(base) not in _CONCAVE:
            return jnp.asarray(1.0)
        name, link, others = _CONCAVE[type(base)]
        at, z = self._distribution(vector), self.predictor(vector)
        steps = [at(z + step) for step in (-1.0, 0.0, 1.0)]
        low, middle, high = (link(jnp.asarray(getattr(step, name))) for step in steps)
        bend = _relative(low - 2 * middle + high, high - low)
        moved = [
            _relative(getattr(steps[2], other) - getattr(steps[0], other), 1.0) for other in others
        ]
        return jnp.max(jnp.stack([bend, *moved]))


def _random(like: Array, seed: int) -> Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(like.shape), like.dtype)


def _relative(error: Any, size: Any) -> Array:
    """The largest error; infinities of equal sign are equal."""
    error = jnp.where(jnp.isnan(error), 0.0, jnp.abs(error))
    size = jnp.where(jnp.isfinite(size), jnp.abs(size), 0.0)
    return jnp.max(error / (1 + jnp.max(size, initial=0.0)), initial=0.0)
