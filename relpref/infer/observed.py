"""The observed sites of a program: their likelihoods, and the predictors through which these see the latents."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from relpref.errors import UnsupportedProgramError
from relpref.infer.affine import NUTS, Followed, follow, share
from relpref.likelihoods import Likelihood, as_likelihood
from relpref.likelihoods.quadrature import ByQuadrature

if TYPE_CHECKING:
    from relpref.infer.program import Call, Layout

Site = dict[str, Any]
_SEEDS = 1, 2, 3
_WRAPPERS = dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution
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


class Observation(NamedTuple):
    """One observed site: its likelihood, its value, and the number of answers each of its rows stands for."""

    likelihood: Likelihood
    value: Array
    counts: Array


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


def unwrap(distribution: dist.Distribution) -> dist.Distribution:
    """Take a distribution out of what plates, masks and ``to_event`` wrap around it."""
    while isinstance(distribution, _WRAPPERS):
        distribution = distribution.base_dist
    return distribution


def rows_of(site: Site) -> tuple[int, ...]:
    """Shape of the answers of an observed site of numbers."""
    return tuple(np.broadcast_shapes(jnp.shape(site["value"]), unwrap(site["fn"]).batch_shape))


def observation(site: Site) -> Observation:
    """One observed site whose distribution knows its tilted moments."""
    likelihood = as_likelihood(site["fn"])
    return _observation(site, likelihood)


def _observation(site: Site, likelihood: Likelihood) -> Observation:
    shape = jnp.shape(likelihood.predictor)
    return Observation(likelihood, jnp.broadcast_to(site["value"], shape), counts_of(site, shape))


def counts_of(site: Site, shape: tuple[int, ...]) -> Array:
    """How many answers each row of an observed site stands for, shape (m,)."""
    counts = 1.0 if site["scale"] is None else site["scale"]
    distribution = site["fn"]
    while isinstance(distribution, _WRAPPERS):
        if isinstance(distribution, dist.MaskedDistribution):  # what is masked was not answered
            counts = jnp.where(distribution._mask, counts, 0.0)
        distribution = distribution.base_dist
    return jnp.ravel(jnp.broadcast_to(jnp.asarray(counts, jnp.zeros(()).dtype), shape))


@dataclass(frozen=True)
class Observed:
    """The observed sites at given hyperparameters, as functions of the joint latent vector.

    Attributes
    ----------
    call : Call
    layout : Layout
        ``layout.quadrature`` names the sites whose predictors are to be found by following the trace.
    arrays : tuple
    values : dict
        Of the hyperparameters.
    key
        For what has no value.
    """

    call: "Call"
    layout: "Layout"
    arrays: tuple[Any, ...]
    values: Mapping[str, Any]
    key: Any = 0

    def sites(self, vector: Array) -> dict[str, Site]:
        """Every site of the program."""
        return self.call.trace(self.arrays, {**self.values, **self.layout.unravel(vector)}, self.key)

    def predictors(self, vector: Array) -> Array:
        """Of all rows, shape (m,)."""
        found, general = self.sites(vector), dict(self.layout.quadrature)
        return jnp.concatenate(
            [
                self._general(name, found[name]).predictor(vector)
                if name in general
                else jnp.ravel(as_likelihood(found[name]["fn"]).predictor)
                for name in self.layout.observed
            ]
        )

    def observations(self, vector: Array) -> tuple[Observation, ...]:
        """Likelihoods, values and counts, the predictors being those of a latent vector."""
        found, general = self.sites(vector), dict(self.layout.quadrature)
        return tuple(
            self._general(name, found[name]).observation(vector, general[name])
            if name in general
            else observation(found[name])
            for name in self.layout.observed
        )

    def doubts(self, vectors: Array) -> dict[str, Doubt]:
        """Of the sites whose predictors are followed, the worst over some latent vectors."""
        found = self.sites(vectors[0])
        return {name: self._general(name, found[name]).doubt(vectors) for name, _ in self.layout.quadrature}

    def direct_moments(self, vector: Array) -> list[Any]:
        """Tilted moments, at one cavity for all, of the sites that know theirs."""
        general, found = dict(self.layout.quadrature), self.sites(vector)
        results: list[Any] = []
        for name in self.layout.observed:
            if name not in general:
                likelihood, value, _ = observation(found[name])
                cavity = jnp.ones(jnp.shape(likelihood.predictor))
                results += jax.tree.leaves(likelihood.tilted(value, cavity, cavity))
        return results

    def _general(self, name: str, site: Site) -> "_General":
        return _General(self, name, site)


@dataclass(frozen=True)
class _General:
    """An observed site of any distribution."""

    observed: Observed
    name: str
    site: Site

    @property
    def _rows(self) -> tuple[int, ...]:
        return rows_of(self.site)

    def _parameters(self, vector: Array) -> list[Any]:
        return jax.tree.leaves(unwrap(self.observed.sites(vector)[self.name]["fn"]))

    def _followed(self, vector: Array) -> Followed:
        try:
            return follow(self._parameters, vector, self._rows)
        except UnsupportedProgramError as error:
            raise UnsupportedProgramError(f"observed site {self.name!r} {error}") from None

    def _shares(self, vector: Array) -> tuple[Array, Array, Array]:
        """Parts at the origin; which is the predictor, and what multiples of it the others are."""
        origin = jnp.zeros_like(vector)
        parts = self._followed(origin).parts
        return parts, *share(parts, self._followed(_random(vector, _SEEDS[0])).parts)

    def predictor(self, vector: Array) -> Array:
        """Shape (m,)."""
        parts = self._followed(vector).parts
        if parts.shape[1] == 1:
            return parts[:, 0]
        _, place, _ = self._shares(vector)
        return jnp.take_along_axis(parts, place, axis=1)[:, 0]

    def distribution(self, vector: Array) -> Callable[[Array], dist.Distribution]:
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

    def log_density(self, vector: Array) -> Callable[[Array, Array], Array]:
        """Of values, given predictors, in the shape of the rows."""
        at, rows = self.distribution(vector), self._rows
        return lambda value, z: jnp.broadcast_to(at(z).log_prob(value), rows)

    def observation(self, vector: Array, log_concave: bool) -> Observation:
        """With a likelihood by quadrature."""
        z = jnp.reshape(self.predictor(vector), self._rows)
        return _observation(self.site, ByQuadrature(z, self.log_density(vector), log_concave=log_concave))

    def doubt(self, vectors: Array) -> Doubt:
        """The largest over the latent vectors."""
        value = jnp.broadcast_to(self.site["value"], self._rows)
        at = self.log_density(vectors[0])
        try:
            at(value, jnp.zeros(self._rows))
        except (AttributeError, TypeError) as error:
            kind = type(unwrap(self.site["fn"])).__name__
            raise UnsupportedProgramError(
                f"observed site {self.name!r} ({kind}) cannot be rebuilt from its parameters ({error}); name them in the class's "
                f"arg_constraints or pytree_data_fields; {NUTS}"
            ) from None

        def one(vector: Array) -> tuple[Array, Array, Array]:
            z = jnp.reshape(self.predictor(vector), self._rows)
            parts = self._followed(vector).parts
            origin, place, slope = self._shares(vector)
            own = jnp.take_along_axis(parts - origin, place, axis=1)
            several = _relative(parts - origin - slope * own, parts)
            true = unwrap(self.observed.sites(vector)[self.name]["fn"]).log_prob(value)
            found = at(value, z)
            ways = [jnp.reshape(_random(jnp.ravel(z), seed), z.shape) for seed in _SEEDS[1:]]
            along = [jax.jvp(partial(at, value), (z,), (way,))[1] for way in (jnp.ones_like(z), *ways)]
            across = [_relative(d - along[0] * way, along[0]) for d, way in zip(along[1:], ways, strict=True)]
            return several, _relative(found - true, true), jnp.max(jnp.stack(across))

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
        at, z = self.distribution(vector), self.predictor(vector)
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
