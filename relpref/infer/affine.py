"""Observed sites of any distribution, as functions of one predictor for each answer.

Either a parameter of the distribution is affine in the latents, or the program runs with free
variables in place of what it takes from them, such as rows ``f[shop]``. By its derivatives in them
an answer depends on one linear combination of a row's variables, which is its predictor. What the
program does with the variables afterwards is the likelihood's.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from relpref.likelihoods.tilted import unwrap

NUTS = "numpyro's MCMC(NUTS(program)) can run it"

# Families whose log density is concave in the predictor if a function of the named parameter is
# affine in it and the other parameters do not depend on it.
CONCAVE: dict[type, tuple[str, Callable[[Array], Array], tuple[str, ...]]] = {
    dist.BernoulliLogits: ("logits", jnp.asarray, ()),
    dist.BinomialLogits: ("logits", jnp.asarray, ("total_count",)),
    dist.Normal: ("loc", jnp.asarray, ("scale",)),
    dist.Logistic: ("loc", jnp.asarray, ("scale",)),
    dist.Laplace: ("loc", jnp.asarray, ("scale",)),
    dist.Poisson: ("rate", jnp.log, ()),
    dist.NegativeBinomial2: ("mean", jnp.log, ("concentration",)),
}


def is_concave(base: dist.Distribution, predictor: Any) -> bool:
    """Whether a log density is surely concave in one of its parameters."""
    name, link, _ = CONCAVE.get(type(base), ("", None, ()))
    family = link is jnp.asarray and getattr(base, name) is predictor
    return bool(getattr(base, "log_concave", family))


Take = Callable[[Any], Any]


def as_numbers(value: Any) -> Any:
    """A value of a program as an array of NumPy, unless it stands for an array or is traced."""
    as_it_is = hasattr(value, "affine") or isinstance(value, jax.core.Tracer)
    return value if as_it_is else np.asarray(value, np.float64)


class Arithmetic(ABC):
    """Operators of values that stand for arrays, by their sums and products."""

    stands_for_array = True  # see `relpref.linalg.arrays.is_affine`
    __array_ufunc__ = None  # NumPy leaves arithmetic to these methods
    dtype = np.dtype(np.float64)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @abstractmethod
    def __add__(self, other: Any) -> Any: ...

    @abstractmethod
    def __mul__(self, other: Any) -> Any: ...

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __neg__(self) -> Any:
        return self * -1.0

    def __sub__(self, other: Any) -> Any:
        return self + -as_numbers(other)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __truediv__(self, other: Any) -> Any:
        return self * (1 / as_numbers(other))


class Free(Arithmetic):
    """A latent site, or what arithmetic makes of it, until the program takes rows of it.

    ``value`` is an array or affine values; ``take`` returns what the program gets in place of what
    it picks by an index or a matrix.
    """

    def __init__(self, value: Any, take: Take) -> None:
        self.value, self.take = value, take

    @property
    def affine(self) -> Any:
        """Affine values that it holds, or None."""
        return getattr(self.value, "affine", None)

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.value)

    @property
    def T(self) -> "Free":
        """The transpose."""
        return Free(self.value.T, self.take)

    def reshape(self, *shape: Any, order: Any = "C") -> "Free":
        """The values in another shape."""
        return Free(self.value.reshape(*shape, order=order), self.take)

    def __getitem__(self, index: Any) -> Any:
        return self.take(self.value[index])

    def __matmul__(self, other: Any) -> Any:
        return self.take(self.value @ other)

    def __rmatmul__(self, other: Any) -> Any:
        return self.take(other @ self.value)

    def __add__(self, other: Any) -> "Free":
        return Free(self.value + getattr(other, "value", other), self.take)

    def __mul__(self, other: Any) -> "Free":
        return Free(self.value * other, self.take)


@dataclass(frozen=True)
class Way:
    """A rule for where free variables take the place of latents.

    By "rows" they do where the program picks a row for each answer, by "sites" also where a site
    itself has such rows; by "whole" every site is one variable.
    """

    name: str
    rows: tuple[int, ...] = ()  # shape of the answers
    order: tuple[int, ...] = ()  # numbers of the variables as the program takes them
    shapes: tuple[tuple[int, ...], ...] = ()  # of the variables

    def latents(self, sites: Mapping[str, Any], take: Take) -> dict[str, Any]:
        """Latent sites for a run, in which ``take`` returns a variable for a value."""

        def taken(value: Any) -> Any:
            has_rows = np.shape(value)[: len(self.rows)] == self.rows
            return take(value) if has_rows or self.name == "whole" else Free(value, taken)

        if self.name == "rows":
            return {name: Free(value, taken) for name, value in sites.items()}
        return {name: taken(value) for name, value in sites.items()}

    def given(self, variables: Sequence[Any]) -> Take:
        """Gives a run the values of the variables."""
        numbers = iter(self.order)
        return lambda _: variables[next(numbers)]

    def wide(self, variables: Sequence[Any], number: int) -> Any:
        """All values that a row looks at, shape (m, w), or by "whole" those of all rows, (w,)."""
        if self.name == "whole":
            return jnp.concatenate([jnp.ravel(value) for value in variables])
        return jnp.concatenate([jnp.reshape(value, (number, -1)) for value in variables], axis=1)

    def narrow(self, wide: Any) -> list[Any]:
        """The variables from `wide`."""
        number = 1 if self.name == "whole" else wide.shape[0]
        sizes = [int(np.prod(shape)) // number for shape in self.shapes]
        parts = jnp.split(wide, np.cumsum(sizes)[:-1].tolist(), axis=-1)
        return [jnp.reshape(part, shape) for part, shape in zip(parts, self.shapes, strict=True)]


Run = Callable[[Any], dict[str, dict[str, Any]]]  # a program's sites, by what `Way.latents` takes


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Leaf:
    """A parameter of a distribution that is its predictor."""

    number: int = field(metadata={"static": True})  # among the leaves of the distribution

    def predictor(self, site: dict[str, Any], run: Run) -> Array:
        """The predictors of a site as it was traced, in the shape of its answers."""
        return jnp.asarray(jax.tree.leaves(unwrap(site["fn"]))[self.number])

    def log_density(
        self, name: str, site: dict[str, Any], run: Run
    ) -> Callable[[Array, Array], Array]:
        """Log density of values at predictors."""
        leaves, structure = jax.tree.flatten(unwrap(site["fn"]))
        shape = jnp.shape(leaves[self.number])

        def at(value: Array, z: Array) -> Array:
            parts = [*leaves[: self.number], jnp.reshape(z, shape), *leaves[self.number + 1 :]]
            density: Array = jax.tree.unflatten(structure, parts).log_prob(value)
            return jnp.broadcast_to(density, shape)

        return at


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Link:
    """Directions in the free variables of rows along which the answers' distributions move."""

    direction: Array  # shape (m, w)
    # Rows of one color look at different variables, shape (m,).
    color: Array
    way: Way = field(metadata={"static": True})
    rows: tuple[int, ...] = field(metadata={"static": True})  # shape of the answers
    colors: int = field(metadata={"static": True})

    def predictor(self, site: dict[str, Any], run: Run) -> Array:
        """The predictors, in the shape of the answers."""
        taken: list[Any] = []

        def take(value: Any) -> Any:
            taken.append(value)
            return value

        run(lambda sites: self.way.latents(sites, take))
        first = dict(zip(self.way.order[::-1], taken[::-1], strict=True))
        variables = [first[number] for number in range(len(self.way.shapes))]
        wide = self.way.wide(variables, len(self.direction))
        return jnp.reshape(jnp.sum(self.direction * wide, axis=1), self.rows)

    def at(self, name: str, run: Run, z: Array, ask: Callable[[Any], Array]) -> Array:
        """The answers of a distribution to a question, row by row, at these predictors."""
        size = jnp.sum(jnp.square(self.direction), axis=1)
        share = self.direction / jnp.where(size > 0, size, 1.0)[:, None] * jnp.reshape(z, (-1, 1))

        def asked(wide: Array) -> Array:
            variables = self.way.narrow(wide)
            sites = run(lambda sites: self.way.latents(sites, self.way.given(variables)))
            return jnp.ravel(ask(unwrap(sites[name]["fn"])))

        if self.way.name != "whole":
            return jnp.reshape(asked(share), self.rows)
        chosen = jnp.arange(self.colors)[:, None] == self.color
        each = jax.vmap(lambda some: asked(jnp.sum(jnp.where(some[:, None], share, 0.0), 0)))(
            chosen
        )
        return jnp.reshape(each[self.color, jnp.arange(len(self.color))], self.rows)

    def log_density(
        self, name: str, site: dict[str, Any], run: Run
    ) -> Callable[[Array, Array], Array]:
        """Log density of values at predictors."""
        return lambda value, z: self.at(
            name, run, z, lambda base: jnp.broadcast_to(base.log_prob(value), self.rows)
        )
