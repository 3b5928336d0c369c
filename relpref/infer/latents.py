"""Latent vectors in a run of a program: affine functions of them, which need no tracing.

A program runs for shapes alone, with a tracer in place of each hyperparameter and an `Affine` in
place of each Gaussian site. What a likelihood takes for its predictor then knows its rows.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.core import Tracer
from numpy.typing import NDArray

from relpref.infer.affine import Arithmetic, Leaf, Way, as_numbers, is_concave
from relpref.infer.call import Call, Values
from relpref.infer.layout import Layout, counts_of, shared_noise
from relpref.infer.priors import median_by_numpy
from relpref.infer.rows import DenseRows
from relpref.likelihoods import as_likelihood
from relpref.likelihoods.tilted import unwrap
from relpref.linalg.arrays import is_affine
from relpref.pytree import is_graph

Program = Any  # of `relpref.infer.program`, which builds on this module
Ask = Callable[["Affine"], Any]


def _refused(values: "Affine") -> Any:
    raise TypeError("a latent site has no values yet, which a function of JAX asks for")


class Affine(Arithmetic):
    """Values that are affine in a latent vector; indexing and arithmetic keep that.

    The i-th of them is row i of ``matrix`` times the latent vector, plus an entry of ``offset``,
    which may be a tracer. Where factors are tracers, so that the matrix ``moves``, it has other
    numbers than 0 where there may be any. No function of JAX takes the values.
    """

    def __init__(self, matrix: Any, offset: Any, ask: Ask, moves: bool = False) -> None:
        self.matrix, self.offset, self.ask, self.moves = matrix, offset, ask, moves

    @classmethod
    def latents(cls, layout: Layout, ask: Ask = _refused) -> "dict[str, Affine]":
        """Every latent site of a layout."""
        unit = cls._unit(layout.num_latents)
        return {
            name: cls(unit[layout.slices[name]], np.zeros(shape), ask)
            for name, shape in layout.latents
        }

    # Operations on matrices: a unit matrix, rows times factors, and products of weights with
    # matrices that have as many blocks of rows as the weights have columns.

    @staticmethod
    def _unit(size: int) -> Any:
        return scipy.sparse.eye_array(size, format="csr")

    @staticmethod
    def _scaled(factors: Any, matrix: Any) -> Any:
        return scipy.sparse.diags_array(factors, format="csr") @ matrix

    @staticmethod
    def _product(weights: Any, matrix: Any, rows: int) -> Any:
        each = scipy.sparse.kron(weights, scipy.sparse.eye_array(rows))
        return scipy.sparse.csr_array(each) @ matrix

    def _made(self, matrix: Any, offset: Any, *others: Any) -> "Affine":
        """Values computed from these and others."""
        moves = any(getattr(other, "moves", isinstance(other, Tracer)) for other in others)
        return type(self)(matrix, offset, self.ask, self.moves or moves)

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.offset)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def equals(self, other: "Affine") -> bool:
        """Whether the values are the same, whatever the hyperparameters."""
        return (
            self.shape == other.shape
            and not (self.moves or other.moves)
            and not any(isinstance(values.offset, Tracer) for values in (self, other))
            and np.array_equal(self.offset, other.offset)
            and not (self.matrix != other.matrix).nnz
        )

    @property
    def columns(self) -> set[int]:
        """The latents that the values depend on."""
        return set(self.matrix.indices[self.matrix.data != 0].tolist())

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a latent site has no values yet, which a function of NumPy asks for")

    def __bool__(self) -> bool:
        raise TypeError("a latent site has no values yet, which a condition asks for")

    def __len__(self) -> int:
        return self.shape[0]

    # Choices of entries --------------------------------------------------------------------------

    def _chosen(self, choose: Callable[[Any], Any]) -> "Affine":
        """Entries by a function of NumPy that chooses entries of an array."""
        places = np.arange(self.size)
        place = np.asarray(choose(places.reshape(self.shape)))
        matrix, rows = self.matrix, place.ravel()
        if not np.array_equal(rows, places):
            matrix = matrix[rows]
        return self._made(matrix, self.offset.ravel()[place])

    def __getitem__(self, index: Any) -> "Affine":
        index = jax.tree.map(_of_numpy, index) if isinstance(index, tuple) else _of_numpy(index)
        return self._chosen(lambda place: place[index])

    def reshape(self, *shape: Any, order: Any = "C") -> "Affine":
        """The values in another shape."""
        return self._chosen(lambda place: place.reshape(*shape, order=order))

    def ravel(self) -> "Affine":
        """The values in one dimension."""
        return self.reshape(-1)

    @property
    def T(self) -> "Affine":
        """The transpose."""
        return self._chosen(np.transpose)

    def _spread(self, shape: tuple[int, ...]) -> "Affine":
        return self._chosen(lambda place: np.broadcast_to(place, shape))

    @property
    def affine(self) -> "Affine":
        """The values themselves; what holds such values has them under the same name."""
        return self

    # Arithmetic ----------------------------------------------------------------------------------

    def __add__(self, other: Any) -> "Affine":
        other = as_numbers(other)
        shape = np.broadcast_shapes(self.shape, other.shape)
        values = self._spread(shape)
        if not isinstance(other, Affine):
            return self._made(values.matrix, values.offset + other)
        more = other._spread(shape)
        return self._made(values.matrix + more.matrix, values.offset + more.offset, other)

    def __mul__(self, other: Any) -> "Affine":
        factor = _factor(other)
        values = self._spread(np.broadcast_shapes(self.shape, factor.shape))
        matrix = values.matrix
        if not isinstance(factor, Tracer):
            factor = np.broadcast_to(factor, values.shape)
            matrix = self._scaled(factor.ravel(), matrix)
        return self._made(matrix, values.offset * factor, factor)

    def __rmatmul__(self, other: Any) -> "Affine":
        factor, matrix = _factor(other), self.matrix
        weights = factor
        if isinstance(factor, Tracer):
            weights, matrix = np.ones(factor.shape), abs(matrix)
        number = self.shape[1] if self.ndim > 1 else 1
        matrix = self._product(np.atleast_2d(weights), matrix, number)
        return self._made(matrix, factor @ self.offset, factor)

    def __matmul__(self, other: Any) -> "Affine":
        product: Affine = _factor(other).T @ self.T
        return product.T

    def sum(self, axis: int | None = None) -> "Affine":
        """The sum of the values, or along an axis."""
        if axis is None:
            return self.ravel().sum(0)
        first = self._chosen(lambda place: np.moveaxis(place, axis, 0))
        rows: Any = np.ones(len(first)) @ first.reshape(len(first), -1)
        return rows.reshape(first.shape[1:])

    def mean(self, axis: int | None = None) -> "Affine":
        """The mean of the values, or along an axis."""
        total = self.sum(axis)
        return total / (self.size / max(total.size, 1))


class DenseAffine(Affine):
    """Affine values with a matrix of NumPy, where no factor is a tracer."""

    @staticmethod
    def _unit(size: int) -> Any:
        return np.eye(size)

    @staticmethod
    def _scaled(factors: Any, matrix: Any) -> Any:
        return factors[:, None] * matrix

    @staticmethod
    def _product(weights: Any, matrix: Any, rows: int) -> Any:
        blocks = matrix.reshape(weights.shape[1], -1)
        if np.count_nonzero(blocks) <= len(blocks):  # as of latents themselves
            blocks = scipy.sparse.csr_array(blocks)
        return (weights @ blocks).reshape(len(weights) * rows, -1)


class Asked(Affine):
    """Affine values in whose place functions of JAX take what ``ask`` returns.

    So does arithmetic of JAX's arrays, on their right.
    """

    def __jax_array__(self) -> Any:
        return self.ask(self)


def _factor(value: Any) -> Any:
    if hasattr(value, "affine"):
        raise TypeError("products of latents are not affine in them")
    return as_numbers(value)


def _of_numpy(index: Any) -> Any:
    return np.asarray(index) if isinstance(index, jax.Array | list) else index


def written(
    call: Call, arrays: tuple[Any, ...], fixed: Values, layout: Layout
) -> tuple[DenseRows, dict[str, Values]]:
    """The projection of a program with numbers for all other sites, and its sites at latents of 0.

    A program that needs latents or factors of them as arrays of JAX raises a TypeError.
    """
    sites, matrices = call.trace(arrays, {**fixed, **DenseAffine.latents(layout)}), []
    for name in layout.observed:
        predictor: Any = as_likelihood(sites[name]["fn"]).predictor
        if not isinstance(predictor, Affine) or predictor.moves:
            raise TypeError("JAX computes what latents are multiplied by")
        matrices.append(predictor.matrix)
        at_zero = jax.tree.map(
            lambda leaf: leaf.offset if is_affine(leaf) else leaf, sites[name]["fn"]
        )
        sites[name] = {**sites[name], "fn": at_zero}
    return DenseRows(np.vstack(matrices)), sites


class Observed(NamedTuple):
    """An observed site in a run."""

    family: type
    shape: tuple[int, ...]  # of its answers
    counts: Any  # answers of each row, shape (m,)
    predictor: Affine | None  # None where the predictors are not affine by themselves
    # Of a likelihood that does not know its moments: its predictor, and whether it is surely
    # log-concave.
    leaf: Leaf | None
    concave: bool


class Run(NamedTuple):
    """Results of a run of a program with `Affine` values for some sites."""

    way: Way  # with the free variables
    variables: list[Affine]  # what these stand for
    observed: dict[str, Observed]
    # Group and items of the rows, shape (m,) each, for every kind of noise of the likelihoods
    gaps: list[list[NDArray[Any]]]
    medians: Values  # of hyperparameters whose prior medians NumPy knows
    used: set[int]  # latents that are parameters of distributions, but not in their predictors
    # Whether a distribution has a parameter that is computed from latents, besides predictors
    moves: bool


def run(program: Program, free: Mapping[str, Any], way: Way, general: Sequence[str]) -> Run:
    """Run a program for shapes alone, with tracers in the shapes of ``free`` sites.

    Where latents must be arrays of JAX, there is an error of NumPy or JAX, or `moves`. The ways of
    `Way` have free variables; "constants" has none, and "asked" one where a function of JAX
    takes a latent. In the latter only arrays of NumPy are constants; else JAX computes what depends
    on no tracer, which takes it a while. The moments of ``general`` sites are not used.
    """
    results: list[Run] = []
    layout = program.layout

    def shapes(hyperparameters: Values, zero: Any) -> list[Any]:
        asked: dict[int, tuple[Affine, Any]] = {}
        variables: list[tuple[Affine, Any]] = []
        order: list[int] = []

        def ask(values: Affine) -> Any:
            stand_in = zero * np.zeros(values.shape)
            asked[id(stand_in)] = values, stand_in
            return stand_in

        def take(values: Affine) -> Any:
            number = next((n for n, (v, _) in enumerate(variables) if v.equals(values)), None)
            if number is None:
                number = len(variables)
                variables.append((values, ask(values)))
            order.append(number)
            return variables[number][1]

        def affine(value: Any) -> Affine | None:
            values = getattr(value, "affine", None)
            return asked.get(id(value), (None,))[0] if values is None else values

        latents = (Asked if way.name == "asked" else Affine).latents(layout, ask)
        sites, seed = (
            latents if way.name in AFFINE else way.latents(latents, take),
            jax.random.key(0),
        )
        with nullcontext() if way.name == "asked" else jax.ensure_compile_time_eval():
            placed = {**program.fixed, **hyperparameters, **sites}
            trace: dict[str, Values] = program.call.trace(program.arrays, placed, seed)
        sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
        parts = {
            name: jax.tree.leaves(unwrap(site["fn"]), is_leaf=is_graph)
            for name, site in sites.items()
        }
        likelihoods, others = [], []
        observed: dict[str, Observed] = {}
        for name in layout.observed:
            base, value = unwrap(sites[name]["fn"]), sites[name]["value"]
            shape = np.broadcast_shapes(np.shape(value), base.batch_shape)
            predictor, leaf, concave = None, None, False
            if name not in general:
                likelihood = as_likelihood(base)
                likelihoods.append(likelihood)
                predictor, shape = likelihood.predictor, np.shape(likelihood.predictor)
                if affine(predictor) is None and way.name in AFFINE:
                    others.append(predictor)
                elif affine(predictor) is None:
                    parts[name] = taken_by(likelihood, value)
            elif way.name in AFFINE:
                ((number, predictor),) = (
                    (number, part)
                    for number, part in enumerate(parts[name])
                    if affine(part) is not None
                )
                of_numpyro = type(base).__module__.startswith("numpyro.")
                if not of_numpyro or base.event_shape or np.shape(predictor) != shape:
                    raise TypeError("the answers may depend on each other's predictors")
                leaf, concave = Leaf(number), is_concave(base, predictor)
            else:
                parts[name], concave = [], bool(getattr(base, "log_concave", False))
            counts, rows = counts_of(sites[name], shape), affine(predictor)
            observed[name] = Observed(type(base), shape, counts, rows, leaf, concave)
            if rows is not None:
                parts[name] = [part for part in parts[name] if part is not predictor]
        others += [part for each in parts.values() for part in each]
        used = [values for part in others if (values := affine(part)) is not None]
        gaps = shared_noise(likelihoods) if len(likelihoods) == len(observed) else []
        medians = {name: median_by_numpy(sites[name]["fn"]) for name in hyperparameters}
        results.append(
            Run(
                way=replace(way, order=tuple(order), shapes=tuple(v.shape for v, _ in variables)),
                variables=[values for values, _ in variables],
                observed=observed,
                gaps=[[np.asarray(part) for part in kind[:3]] for kind in gaps],
                medians={name: value for name, value in medians.items() if value is not None},
                used=set().union(*(values.columns for values in used)),
                moves=False,
            )
        )
        affines = [site.predictor for site in observed.values()]
        others += [values.offset for values in affines if values is not None]
        return [part for part in others if isinstance(part, jax.Array) and affine(part) is None]

    # Nothing that is returned may depend on the axis along which stand-ins are mapped.
    mapped = jax.vmap(shapes, in_axes=(None, 0), out_axes=None)
    try:
        jax.eval_shape(mapped, free, jax.ShapeDtypeStruct((1,), float))
    except ValueError:
        if not results:
            raise
        return results[0]._replace(moves=True)
    return results[0]


AFFINE = ("asked", "constants")  # ways without free variables


def taken_by(likelihood: Any, value: Any) -> list[Any]:
    """Moments of a likelihood at given predictors, so that its own do not matter."""
    shape = jnp.shape(likelihood.predictor)
    cavity, value = jnp.ones(shape), jnp.broadcast_to(value, shape)
    if hasattr(likelihood, "point"):
        return jax.tree.leaves(likelihood.point(value, cavity))
    return jax.tree.leaves(likelihood.tilted(value, cavity, cavity))
