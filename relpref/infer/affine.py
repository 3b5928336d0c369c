"""What of a program is affine in its latents: the predictors of observed sites whose likelihood is any distribution.

The parameters of the distribution are traced as functions of the latent vector. What is affine in it is followed as far as it goes;
where something else is computed from it, the remainder begins. Everything that the remainder takes from one row must be one number, but
for an affine map: that is the row's predictor, and the distribution is a function of it.
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
from jax.extend.core import ClosedJaxpr, Literal

from relpref.errors import UnsupportedProgramError
from relpref.likelihoods.quadrature import ByQuadrature
from relpref.likelihoods.tilted import unwrap

NUTS = "numpyro's MCMC(NUTS(program)) can run it"
Given = dict[int, Array]

# Affine in all operands at once; of others it is found out.
_LINEAR = frozenset(
    [
        "add",
        "add_any",
        "sub",
        "neg",
        "slice",
        "squeeze",
        "reshape",
        "broadcast_in_dim",
        "transpose",
        "concatenate",
        "reduce_sum",
        "expand_dims",
        "copy",
        "copy_p",
        "rev",
        "cumsum",
    ]
)
# Entry by entry, whatever the shape.
_ELEMENTWISE = frozenset(
    [
        "abs",
        "acos",
        "acosh",
        "add",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "and",
        "cbrt",
        "ceil",
        "clamp",
        "convert_element_type",
        "cos",
        "cosh",
        "digamma",
        "div",
        "eq",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "ge",
        "gt",
        "igamma",
        "integer_pow",
        "is_finite",
        "le",
        "lgamma",
        "log",
        "log1p",
        "logistic",
        "lt",
        "max",
        "min",
        "mul",
        "ne",
        "neg",
        "not",
        "or",
        "pow",
        "rem",
        "round",
        "rsqrt",
        "select_n",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "stop_gradient",
        "sub",
        "tan",
        "tanh",
        "xor",
    ]
)
# From the entries of the first operand: they can be taken before an elementwise function as well as after it.
_PICKING = frozenset(
    [
        "broadcast_in_dim",
        "dynamic_slice",
        "expand_dims",
        "gather",
        "reshape",
        "rev",
        "slice",
        "squeeze",
        "transpose",
        "copy",
    ]
)
_INLINED = frozenset(("pjit", "jit", "closed_call", "core_call"))


@dataclass(frozen=True, eq=False)
class _Call:
    """An operation whose results are not affine in the latents."""

    function: Callable[..., Any]
    operands: tuple["_Node", ...]
    elementwise: bool


@dataclass(frozen=True, eq=False)
class _Node:
    """A value of the trace.

    Attributes
    ----------
    value : Array or None
        Of what does not depend on the latents or is affine in them.
    call, index
        Where it comes from, if it is not affine.
    moves : bool
        Whether it depends on the latents.
    """

    shape: tuple[int, ...]
    value: Any = None
    moves: bool = False
    call: _Call | None = None
    index: int = 0


class Followed(NamedTuple):
    """An observed site as a function of its predictor.

    Attributes
    ----------
    parts : Array, shape (m, k)
        What the remainder takes from the rows at the latent vector; multiples of each other in every row, but for a constant.
    parameters : callable
        From such parts to the parameters of the distribution.
    """

    parts: Array
    parameters: Callable[[Array], list[Any]]


def follow(parameters: Callable[[Array], list[Any]], vector: Array, rows: tuple[int, ...]) -> Followed:
    """Follow what is affine in the latents.

    Parameters
    ----------
    parameters : callable
        From the latent vector to the arrays that a distribution is made of.
    vector : Array, shape (n,)
    rows : tuple of int
        Shape of the site's answers.

    Raises
    ------
    UnsupportedProgramError
        If what is taken from the latents is not laid out row by row.
    """
    closed = jax.make_jaxpr(parameters)(vector)
    constants = [_known(value) for value in closed.consts]
    found = _interpret(closed.jaxpr, constants, [_Node(vector.shape, vector, moves=True)])
    found = [_in_rows(node, rows) for node in found]
    frontier = list({id(node): node for node in _leaves(found)}.values())
    columns, layouts = [], []
    for node in frontier:
        if node.shape[: len(rows)] != rows:
            raise UnsupportedProgramError(
                f"takes values of shape {node.shape} from its latents, which are not one row for each of its answers, of shape {rows}"
            )
        columns.append(jnp.reshape(node.value, (int(np.prod(rows)), -1)))
        layouts.append((id(node), node.shape, columns[-1].shape[1]))
    if not frontier:  # the site does not depend on the latents
        columns.append(jnp.zeros((int(np.prod(rows)), 1), vector.dtype))

    def at(parts: Array) -> list[Any]:
        given: Given = {}
        start = 0
        for key, shape, width in layouts:
            given[key] = jnp.reshape(parts[:, start : start + width], shape)
            start += width
        known: dict[int, list[Any]] = {}
        return [_evaluate(node, given, known) for node in found]

    return Followed(jnp.concatenate(columns, axis=1), at)


def reached(jaxpr: Any, inputs: list[bool]) -> list[bool]:
    """Which outputs of a jaxpr are computed from the marked inputs."""
    marked = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}
    for equation in jaxpr.eqns:
        marks = [not isinstance(v, Literal) and v in marked for v in equation.invars]
        inner = _inner(equation)
        found = [any(marks)] * len(equation.outvars) if inner is None else reached(inner.jaxpr, marks)
        marked |= {variable for variable, mark in zip(equation.outvars, found, strict=True) if mark}
    return [not isinstance(v, Literal) and v in marked for v in jaxpr.outvars]


def _inner(equation: Any) -> Any:
    """The closed jaxpr that an equation calls once with its own operands, if it does."""
    inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
    if inner is None or equation.primitive.name in ("scan", "while", "cond"):
        return None
    if not hasattr(inner, "jaxpr"):
        inner = ClosedJaxpr(inner, ())
    same = len(inner.jaxpr.invars) == len(equation.invars) and len(inner.jaxpr.outvars) == len(
        equation.outvars
    )
    return inner if same else None


def _known(value: Any) -> _Node:
    return _Node(jnp.shape(value), value)


def _interpret(jaxpr: Any, constants: Iterable[_Node], arguments: Iterable[_Node]) -> list[_Node]:
    nodes: dict[Any, _Node] = dict(zip(jaxpr.constvars, constants, strict=True))
    nodes |= dict(zip(jaxpr.invars, arguments, strict=True))

    def node(variable: Any) -> _Node:
        return _known(variable.val) if isinstance(variable, Literal) else nodes[variable]

    for equation in jaxpr.eqns:
        operands = tuple(node(variable) for variable in equation.invars)
        inner = _inner(equation) if equation.primitive.name in _INLINED else None
        if inner is not None:
            results = _interpret(inner.jaxpr, [_known(value) for value in inner.consts], operands)
        else:
            results = _apply(equation, operands)
        nodes |= dict(zip(equation.outvars, results, strict=True))
    return [node(variable) for variable in jaxpr.outvars]


def _apply(equation: Any, operands: tuple[_Node, ...]) -> list[_Node]:
    """The results of one operation."""
    name = equation.primitive.name
    bind = partial(_bind, equation)
    shapes = [tuple(variable.aval.shape) for variable in equation.outvars]
    if all(operand.call is None for operand in operands):
        moves = [operand.moves for operand in operands]
        if not any(moves) or _is_affine(equation, operands):
            results = bind(*(operand.value for operand in operands))
            return [_Node(shape, value, any(moves)) for shape, value in zip(shapes, results, strict=True)]
    if name in _PICKING and not any(operand.moves for operand in operands[1:]):
        rest = [operand.value for operand in operands[1:]]
        return [_picked(operands[0], lambda array: bind(array, *rest)[0], {})]
    elementwise = name in _ELEMENTWISE and all(operand.shape in ((), shapes[0]) for operand in operands)
    call = _Call(bind, operands, elementwise)
    return [_Node(shape, moves=True, call=call, index=index) for index, shape in enumerate(shapes)]


def _bind(equation: Any, *values: Any) -> list[Any]:
    found = equation.primitive.get_bind_params(equation.params)
    # Before JAX 0.11 the functions among the parameters come apart.
    functions, parameters = found if isinstance(found, tuple) else ((), found)
    results = equation.primitive.bind(*functions, *values, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]


def _is_affine(equation: Any, operands: tuple[_Node, ...]) -> bool:
    """Whether an operation is affine in the operands that are: whether its derivative does not depend on where it is taken."""
    if not all(jnp.issubdtype(variable.aval.dtype, jnp.floating) for variable in equation.outvars):
        return False
    if equation.primitive.name in _LINEAR:
        return True
    places = [place for place, operand in enumerate(operands) if operand.moves]

    def moved(*given: Array) -> list[Any]:
        values = [operand.value for operand in operands]
        for place, value in zip(places, given, strict=True):
            values[place] = value
        return _bind(equation, *values)

    def derivative(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> Any:
        return jax.jvp(moved, primals, tangents)[1]

    at = tuple(jnp.asarray(operands[place].value) for place in places)
    jaxpr = jax.make_jaxpr(derivative)(at, at).jaxpr
    number = len(places)
    by_place = reached(jaxpr, [True] * number + [False] * number)
    by_direction = reached(jaxpr, [False] * number + [True] * number)
    return not any(by_place) and all(by_direction)


def _picked(node: _Node, pick: Callable[[Any], Any], known: dict[int, _Node]) -> _Node:
    """Entries of a value, taken before what is computed entry by entry, so that each row has its own."""
    if id(node) in known:
        return known[id(node)]
    if node.call is None:
        value = pick(node.value)
        found = _Node(jnp.shape(value), value, node.moves)
    elif node.call.elementwise:
        operands = []
        for operand in node.call.operands:
            if operand.shape != node.shape and operand.moves:
                operand = _picked(operand, lambda array: jnp.broadcast_to(array, node.shape), {})
            scalar = operand.shape == () != node.shape
            operands.append(operand if scalar else _picked(operand, pick, known))
        shape = jax.eval_shape(pick, jax.ShapeDtypeStruct(node.shape, float)).shape
        found = _Node(
            tuple(shape), moves=True, call=_Call(node.call.function, tuple(operands), True), index=node.index
        )
    else:
        shape = jax.eval_shape(pick, jax.ShapeDtypeStruct(node.shape, float)).shape
        found = _Node(tuple(shape), moves=True, call=_Call(lambda array: [pick(array)], (node,), False))
    known[id(node)] = found
    return found


def _in_rows(node: _Node, rows: tuple[int, ...]) -> _Node:
    """A parameter that is the same for all rows, or of fewer dimensions, with an entry for each row."""
    if not node.moves or node.shape[: len(rows)] == rows:
        return node
    try:
        shape = np.broadcast_shapes(node.shape, rows)
    except ValueError:
        return node
    return _picked(node, lambda array: jnp.broadcast_to(array, rows), {}) if shape == rows else node


def _leaves(nodes: Iterable[_Node]) -> Iterable[_Node]:
    seen: set[int] = set()

    def walk(node: _Node) -> Iterable[_Node]:
        if id(node) in seen or not node.moves:
            return
        seen.add(id(node))
        if node.call is None:
            yield node
        else:
            for operand in node.call.operands:
                yield from walk(operand)

    for node in nodes:
        yield from walk(node)


def _evaluate(node: _Node, given: Given, known: dict[int, list[Any]]) -> Any:
    """A value of the remainder, given what it takes from the rows."""
    if not node.moves:
        return node.value
    if node.call is None:
        return given[id(node)]
    key = id(node.call)
    if key not in known:
        known[key] = node.call.function(*(_evaluate(operand, given, known) for operand in node.call.operands))
    return known[key][node.index]


# Of these families log p is concave in the predictor where a function of the named parameter is affine in it and the others do not
# depend on it.
_CONCAVE: dict[type, tuple[str, Callable[[Array], Array], tuple[str, ...]]] = {
    dist.BernoulliLogits: ("logits", jnp.asarray, ()),
    dist.BinomialLogits: ("logits", jnp.asarray, ("total_count",)),
    dist.Normal: ("loc", jnp.asarray, ("scale",)),
    dist.Logistic: ("loc", jnp.asarray, ("scale",)),
    dist.Laplace: ("loc", jnp.asarray, ("scale",)),
    dist.Poisson: ("rate", jnp.log, ()),
    dist.NegativeBinomial2: ("mean", jnp.log, ("concentration",)),
}


class Doubt(NamedTuple):
    """How far a site is from being a function of one affine predictor for each answer; all relative, 0 is perfect.

    Attributes
    ----------
    several : Array
        By how much what the remainder takes from a row is not one number and multiples of it.
    wrong : Array
        Mismatch of the log density of the predictor and that of the program.
    across : Array
        By how much an answer depends on the predictors of others.
    bent : Array
        0 where the family is known to be log-concave.
    """

    several: Array
    wrong: Array
    across: Array
    bent: Array


@dataclass(frozen=True)
class AnySite:
    """An observed site of any distribution, as a function of one predictor for each answer.

    Parameters
    ----------
    name : str
    site : dict
        As it was traced.
    at : callable
        From the latent vector to the site's distribution, without what plates and masks wrap around it.
    """

    name: str
    site: dict[str, Any]
    at: Callable[[Array], dist.Distribution]

    @property
    def rows(self) -> tuple[int, ...]:
        """Shape of the answers."""
        return tuple(np.broadcast_shapes(jnp.shape(self.site["value"]), unwrap(self.site["fn"]).batch_shape))

    def _followed(self, vector: Array) -> Followed:
        try:
            return follow(lambda latent: jax.tree.leaves(self.at(latent)), vector, self.rows)
        except UnsupportedProgramError as error:
            raise UnsupportedProgramError(f"observed site {self.name!r} {error}") from None

    def _shares(self, vector: Array) -> tuple[Array, Array, Array]:
        """Parts at the origin; which is the predictor, and what multiples of it the others are."""
        parts = self._followed(jnp.zeros_like(vector)).parts
        change = self._followed(_random(vector, 1)).parts - parts
        place = jnp.argmax(change != 0, axis=1, keepdims=True)
        own = jnp.take_along_axis(change, place, axis=1)
        return parts, place, jnp.where(change == 0, 0.0, change / jnp.where(own == 0, 1.0, own))

    def predictor(self, vector: Array) -> Array:
        """Shape (m,)."""
        parts = self._followed(vector).parts
        if parts.shape[1] == 1:
            return parts[:, 0]
        _, place, _ = self._shares(vector)
        return jnp.take_along_axis(parts, place, axis=1)[:, 0]

    def _distribution(self, vector: Array) -> Callable[[Array], dist.Distribution]:
        """As a function of the predictors of all rows; the latent vector is one at which the program can be traced."""
        followed, structure = self._followed(vector), jax.tree.structure(unwrap(self.site["fn"]))
        shares = None if followed.parts.shape[1] == 1 else self._shares(vector)

        def at(z: Array) -> dist.Distribution:
            parts = jnp.reshape(z, (-1, 1))
            if shares is not None:
                origin, place, slope = shares
                parts = origin + slope * (parts - jnp.take_along_axis(origin, place, axis=1))
            found: dist.Distribution = jax.tree.unflatten(structure, followed.parameters(parts))
            return found

        return at

    def _log_density(self, vector: Array) -> Callable[[Array, Array], Array]:
        """Of values, given predictors, in the shape of the rows."""
        at, rows = self._distribution(vector), self.rows
        return lambda value, z: jnp.broadcast_to(at(z).log_prob(value), rows)

    def likelihood(self, vector: Array, log_concave: bool) -> ByQuadrature:
        """With moments by quadrature; the predictors are those of a latent vector."""
        z = jnp.reshape(self.predictor(vector), self.rows)
        return ByQuadrature(z, self._log_density(vector), log_concave=log_concave)

    def doubt(self, vectors: Array) -> Doubt:
        """The largest over some latent vectors."""
        value = jnp.broadcast_to(self.site["value"], self.rows)
        at = self._log_density(vectors[0])
        try:
            at(value, jnp.zeros(self.rows))
        except (AttributeError, TypeError) as error:
            kind = type(unwrap(self.site["fn"])).__name__
            raise UnsupportedProgramError(
                f"observed site {self.name!r} ({kind}) cannot be rebuilt from its parameters ({error}); name them in the class's "
                f"arg_constraints or pytree_data_fields; {NUTS}"
            ) from None

        def one(vector: Array) -> tuple[Array, Array, Array]:
            z = jnp.reshape(self.predictor(vector), self.rows)
            parts = self._followed(vector).parts
            origin, place, slope = self._shares(vector)
            own = jnp.take_along_axis(parts - origin, place, axis=1)
            several = _relative(parts - origin - slope * own, parts)
            true = self.at(vector).log_prob(value)
            ways = [jnp.reshape(_random(jnp.ravel(z), seed), z.shape) for seed in (2, 3)]
            along = [jax.jvp(partial(at, value), (z,), (way,))[1] for way in (jnp.ones_like(z), *ways)]
            across = [_relative(d - along[0] * way, along[0]) for d, way in zip(along[1:], ways, strict=True)]
            return several, _relative(at(value, z) - true, true), jnp.max(jnp.stack(across))

        several, wrong, across = (jnp.max(each) for each in jax.vmap(one)(vectors))
        return Doubt(several, wrong, across, self._bent(vectors[0]))

    def _bent(self, vector: Array) -> Array:
        """Whether log-concavity is not known, by the family and how its parameters depend on the predictor."""
        base = unwrap(self.site["fn"])
        if hasattr(base, "log_concave"):
            return jnp.asarray(0.0 if base.log_concave else 1.0)
        if type(base) not in _CONCAVE:
            return jnp.asarray(1.0)
        name, link, others = _CONCAVE[type(base)]
        at, z = self._distribution(vector), self.predictor(vector)
        steps = [at(z + step) for step in (-1.0, 0.0, 1.0)]
        low, middle, high = (link(jnp.asarray(getattr(one, name))) for one in steps)
        bend = _relative(low - 2 * middle + high, high - low)
        moved = [_relative(getattr(steps[2], other) - getattr(steps[0], other), 1.0) for other in others]
        return jnp.max(jnp.stack([bend, *moved]))


def _random(like: Array, seed: int) -> Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(like.shape), like.dtype)


def _relative(error: Any, size: Any) -> Array:
    """The largest error; infinities of equal sign are equal."""
    error = jnp.where(jnp.isnan(error), 0.0, jnp.abs(error))
    size = jnp.where(jnp.isfinite(size), jnp.abs(size), 0.0)
    return jnp.max(error / (1 + jnp.max(size, initial=0.0)), initial=0.0)
