"""Reads a numpyro program: its Gaussian latents, their projections, its observed sites and its hyperparameters.

Nothing here knows any particular program. A program is traced at given hyperparameters; its Gaussian sites hand over their
covariance operators, and the observed sites' predictors are linearised in the latent vector: that gives the projection A
as a map, with no design matrix. Whatever does not fit this shape is refused by name, before anything is computed.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.distributions.transforms import biject_to

from relpref.infer.observed import Observation, Observed, unwrap
from relpref.infer.spaces import Map
from relpref.kernels import GaussianProcess
from relpref.linalg import BlockDiagonal, CovarianceOperator, Dense, real

Values = dict[str, Any]
Program = Callable[..., None]
_ARRAYS = (np.ndarray, np.generic, jax.Array)
# Whoever runs a program holds it: numpyro's handlers are one stack for all threads.
running = threading.RLock()


@dataclass(frozen=True)
class Call:
    """A program and its arguments, split so that JAX compiles once for all arguments of equal shape.

    Attributes
    ----------
    program : callable
    structure : PyTreeDef
        Of ``(args, kwargs)``.
    kinds : tuple of type
        Of its nodes: JAX (0.10 to 0.12) holds the structures of two registered dataclasses for equal if their fields are.
    static : tuple
        The leaves that are not arrays, in place; None where an array belongs.
    """

    program: Program
    structure: Any
    kinds: tuple[type, ...]
    static: tuple[Any, ...]

    @classmethod
    def split(
        cls, program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple["Call", tuple[Any, ...]]:
        """Separate the arrays among the arguments from everything else."""
        nodes: list[Any] = []
        leaves, structure = jax.tree.flatten(
            (args, dict(kwargs)),
            is_leaf=lambda node: bool(nodes.append(node)),  # type: ignore[func-returns-value]
        )
        kinds = tuple(type(node) for node in nodes if not isinstance(node, _ARRAYS))
        dynamic = [isinstance(leaf, _ARRAYS) for leaf in leaves]
        static = tuple(None if moves else leaf for leaf, moves in zip(leaves, dynamic, strict=True))
        arrays = tuple(leaf for leaf, moves in zip(leaves, dynamic, strict=True) if moves)
        return cls(program, structure, kinds, static), arrays

    def arguments(self, arrays: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the program is called with: the arrays back in their places."""
        stream = iter(arrays)
        # PyTreeDef leaves are never None, so None marks an array's place.
        leaves = [next(stream) if leaf is None else leaf for leaf in self.static]
        args, kwargs = jax.tree.unflatten(self.structure, leaves)
        return args, kwargs

    def trace(self, arrays: tuple[Any, ...], values: Values, seed: Any = 0) -> dict[str, dict[str, Any]]:
        """Run the program with the given values of latent sites, others drawn from their priors; record every site."""
        args, kwargs = self.arguments(arrays)
        seeded = handlers.seed(self.program, rng_seed=seed)
        with running:
            traced = handlers.trace(handlers.substitute(seeded, data=values))
            sites: dict[str, dict[str, Any]] = traced.get_trace(*args, **kwargs)
        return sites


@dataclass(frozen=True)
class Layout:
    """Which sites of a program are what; static, so that JAX can compile for it.

    Attributes
    ----------
    latents : tuple of (name, shape)
        The Gaussian vectors, in the order in which they lie in the joint latent vector.
    hyperparameters : tuple of (name, shape)
        The sites to be found.
    observed : tuple of str
    quadrature : tuple of (name, bool)
        Those of them whose tilted moments are found by quadrature, and whether they are log-concave.
    num_rows : int
        Entries of all predictors together.
    constant_projection : bool
        Whether the projection does not depend on hyperparameters.
    log_concave : bool
        Whether all likelihoods are, so that no site precision is negative.
    precise : bool
        Whether sites may be so precise that only careful algebra holds: some likelihood is Gaussian in its predictor, see
        `relpref.likelihoods.GaussianSite`, or a row stands for more than 20 answers.
    repeated : bool
        Whether a row stands for more than 4 answers.
    """

    latents: tuple[tuple[str, tuple[int, ...]], ...]
    hyperparameters: tuple[tuple[str, tuple[int, ...]], ...]
    observed: tuple[str, ...]
    quadrature: tuple[tuple[str, bool], ...] = ()
    num_rows: int = 0
    constant_projection: bool = True
    log_concave: bool = True
    precise: bool = False
    repeated: bool = False

    @property
    def num_latents(self) -> int:
        """Length of the joint latent vector."""
        return sum(int(np.prod(shape)) for _, shape in self.latents)

    @property
    def slices(self) -> dict[str, slice]:
        """Where each Gaussian site lies in the joint latent vector."""
        result, start = {}, 0
        for name, shape in self.latents:
            stop = start + int(np.prod(shape))
            result[name] = slice(start, stop)
            start = stop
        return result

    def unravel(self, vector: Array) -> Values:
        """Cut the joint latent vector into its sites."""
        slices = self.slices
        return {name: jnp.reshape(vector[slices[name]], shape) for name, shape in self.latents}


class Reading(NamedTuple):
    """A program at given hyperparameters.

    Attributes
    ----------
    hyperparameters : dict
        On their supports; without the fixed ones.
    covariance : BlockDiagonal
        Prior covariance of the joint latent vector.
    location : Array, shape (n,)
        Its prior mean.
    offset : Array, shape (m,)
        The predictors at the prior mean.
    projection : Map
        The linear part of the predictors.
    observations : tuple of Observation
    log_prior : Array
        Log density of the hyperparameters in the unconstrained space.
    """

    hyperparameters: Values
    covariance: BlockDiagonal
    location: Array
    offset: Array
    projection: Map
    observations: tuple[Observation, ...]
    log_prior: Array


def in_double(array: Any) -> Any:
    """A floating-point array as float64; any other as it is."""
    return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array


def is_gaussian(distribution: dist.Distribution) -> bool:
    """Whether a latent site is one whose posterior an engine can find by Gaussian algebra."""
    return isinstance(unwrap(distribution), GaussianProcess | dist.Normal | dist.MultivariateNormal)


def gaussian_parts(distribution: dist.Distribution) -> tuple[Array, CovarianceOperator]:
    """Mean and covariance operator of a Gaussian site's values, laid out as one vector."""
    base, shape = unwrap(distribution), distribution.shape()
    size = int(np.prod(shape))
    if isinstance(base, GaussianProcess):
        return jnp.zeros(size), base.covariance
    if isinstance(base, dist.Normal):
        location, scale = (jnp.broadcast_to(real(x), shape).reshape(size) for x in (base.loc, base.scale))
        return location, Dense(jnp.diag(jnp.square(scale)))
    return jnp.broadcast_to(real(base.loc), shape).reshape(size), Dense(real(base.covariance_matrix))


def constrain(sites: Mapping[str, dict[str, Any]], unconstrained: Values) -> tuple[Values, Array]:
    """Map unconstrained hyperparameters to their supports, with their log prior density (Jacobian included)."""
    values, log_prior = {}, jnp.zeros(())
    for name, raw in unconstrained.items():
        distribution = sites[name]["fn"]
        transform = biject_to(distribution.support)
        value = transform(raw)
        values[name] = value
        jacobian = transform.log_abs_det_jacobian(raw, value)
        log_prior = log_prior + jnp.sum(distribution.log_prob(value)) + jnp.sum(jacobian)
    return values, log_prior


def read(
    call: Call, arrays: tuple[Any, ...], layout: Layout, unconstrained: Values, fixed: Values
) -> Reading:
    """Read a program at given hyperparameters; differentiable in them."""
    # Supports may depend on no other hyperparameter, densities may: first the values, then the densities at the values.
    placeholder = {name: jnp.zeros(shape) for name, shape in layout.latents}
    first = call.trace(arrays, {**fixed, **placeholder})
    hyperparameters, _ = constrain(first, unconstrained)
    values = {**fixed, **hyperparameters}
    sites = call.trace(arrays, {**values, **placeholder})
    _, log_prior = constrain(sites, unconstrained)

    parts = [gaussian_parts(sites[name]["fn"]) for name, _ in layout.latents]
    location = jnp.concatenate([mean for mean, _ in parts])

    observed = Observed(call, layout, arrays, values)
    offset, apply = jax.linearize(observed.predictors, location)
    transpose = jax.linear_transpose(apply, location)
    return Reading(
        hyperparameters=hyperparameters,
        covariance=BlockDiagonal(tuple(covariance for _, covariance in parts)),
        location=location,
        offset=offset,
        projection=Map(apply, lambda vector: transpose(vector)[0]),
        observations=observed.observations(jnp.zeros_like(location)),
        log_prior=log_prior,
    )
