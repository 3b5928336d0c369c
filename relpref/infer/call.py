"""A call of a numpyro program and its sites, traced for shapes and types alone."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import ndtr
from numpyro import handlers
from numpyro.distributions.constraints import real
from numpyro.distributions.transforms import biject_to

from relpref.data import PreferenceData
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.affine import NUTS
from relpref.infer.gaussians import is_gaussian, mean_of
from relpref.kernels import GaussianProcess
from relpref.likelihoods import as_likelihood
from relpref.likelihoods.tilted import INTEGRATED, prior_quantile, unwrap
from relpref.linalg.arrays import namespace
from relpref.pytree import is_graph
from relpref.skeleton import Skeleton

Values = dict[str, Any]
Model = Callable[..., None]  # a numpyro program
Shapes = tuple[Any, ...]  # of jax.ShapeDtypeStruct, for arrays without their values
# Held while a program runs: numpyro's handlers are one stack for all threads.
running = threading.RLock()


def preference_data(origin: Any) -> PreferenceData | None:
    """The preference data among a program's arguments, by the `Origin` of a posterior."""
    arguments = (*origin.args, *origin.kwargs.values())
    return next((a for a in arguments if isinstance(a, PreferenceData)), None)


def each_draw(draws: Values) -> list[Values]:
    """Values of every draw, from arrays with a first axis of draws."""
    number = len(next(iter(draws.values())))
    return [{name: value[row] for name, value in draws.items()} for row in range(number)]


@dataclass(frozen=True)
class Call:
    """A program and its arguments without their arrays.

    JAX compiles once for all arguments of equal shape.
    """

    program: Model
    skeleton: Skeleton  # of ``(args, kwargs)``
    structure: Any  # of the arrays, of which graphs have several
    leaves: tuple[Any, ...]  # their shapes and types

    @classmethod
    def split(
        cls, program: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple["Call", tuple[Any, ...]]:
        """Separate the arrays among the arguments, in double precision, from everything else."""
        skeleton, arrays = Skeleton.split((args, dict(kwargs)))
        empty = [array.with_shapes() if is_graph(array) else array for array in arrays]
        leaves, structure = jax.tree.flatten(tuple(empty))
        shapes = tuple(_shape(leaf.shape, leaf.dtype) for leaf in leaves)
        return cls(program, skeleton, structure, shapes), arrays

    @property
    def shapes(self) -> Shapes:
        """The arrays without their values."""
        shapes: Shapes = jax.tree.unflatten(self.structure, self.leaves)
        return shapes

    def trace(
        self,
        arrays: tuple[Any, ...],
        values: Values,
        seed: Any = 0,
        unconstrained: Values | None = None,
        standard: Values | None = None,
        *,
        draw: bool = True,
    ) -> dict[str, Values]:
        """Every site of a run with given values; others are drawn from their priors, or else 0.

        Values are on their supports, ``unconstrained``, or ``standard``: prior quantiles on the
        scale of a standard normal variable. Sites that are integrated out are at their prior mean,
        unless a value is given.
        """
        args, kwargs = self.skeleton.join(arrays)

        def place(site: Values) -> Any:
            if site["type"] != "sample" or site["is_observed"]:
                return None
            if site["name"] in quantiles:
                return prior_quantile(site["fn"], ndtr(jnp.asarray(quantiles[site["name"]])))
            if site["name"] in raw:
                return biject_to(site["fn"].support)(raw[site["name"]])
            if site["name"] in values:
                return None
            if is_integrated(site):
                return xp.asarray(mean_of(site["fn"]))
            if draw:
                return None
            prior = site["fn"]
            dtype = int if prior.support.is_discrete else float
            return jnp.zeros(prior.shape(site["kwargs"]["sample_shape"]), dtype)

        xp = namespace(*arrays)  # a program cannot index arrays of NumPy by what JAX traces
        raw, quantiles = unconstrained or {}, standard or {}
        model = handlers.substitute(self.program, data=values)
        model = handlers.substitute(model, substitute_fn=place)
        model = handlers.seed(model, rng_seed=seed)  # outside: sites with values take no key
        with running:
            try:
                sites: dict[str, Values] = handlers.trace(model).get_trace(*args, **kwargs)
            except jax.errors.TracerArrayConversionError as error:
                name = getattr(self.program, "__name__", "the program")
                raise UnsupportedProgramError(
                    f"{name} indexes a NumPy array by what JAX traces, or hands such a value to "
                    "NumPy; write jnp.asarray(array)[index] and "
                    "functions of jax.numpy in the program"
                ) from error
        return sites


def is_integrated(site: Values) -> bool:
    """Whether a site is marked to be integrated out and is independent normals of equal sd."""
    base = unwrap(site["fn"])
    return (
        bool(site["infer"].get(INTEGRATED))
        and type(base) is dist.Normal
        and not jnp.ndim(base.scale)
    )


@lru_cache(maxsize=1024)
def _shape(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """The same object for equal shapes.

    Every call of a compiled function compares them; JAX takes 10 µs for two different objects.
    """
    return jax.ShapeDtypeStruct(shape, dtype)


class Site(NamedTuple):
    """Description of a site, without its values."""

    name: str
    kind: str
    shape: tuple[int, ...]
    rows: tuple[int, ...]  # shape of its answers, if it is observed
    observed: bool
    gaussian: bool
    process: bool  # whether it is a GaussianProcess, and only one
    integrated: bool  # see `is_integrated`
    support: Any
    plated: bool
    problem: str | None
    without_moments: str | None  # why expectation propagation does not take it, if so
    without_mode: str | None  # why Laplace's method does not take it, if so
    knows_moments: bool
    log_concave: bool
    closed_form: bool
    shares_noise: bool  # whether its rows do, see `relpref.likelihoods.SharedNoise`
    # Whether the distribution keeps all attributes when JAX flattens and restores it
    portable: bool


@lru_cache(maxsize=64)
def survey(call: Call) -> Mapping[str, Site]:
    """The program's sample sites by name, traced for shapes and types alone."""
    sites: dict[str, Site] = {}

    def record(arrays: Shapes) -> None:
        for name, site in call.trace(arrays, {}, draw=False).items():
            if site["type"] != "sample":
                continue
            base, likelihood, problem = unwrap(site["fn"]), None, None
            gaussian = is_gaussian(base)
            if site["is_observed"]:
                try:
                    likelihood = as_likelihood(base)
                except UnsupportedProgramError:
                    if base.event_shape:
                        problem = (
                            f"its answers have the shape {base.event_shape}, and the "
                            "engines "
                            f"take one number each; {NUTS}"
                        )
            elif (
                not gaussian
                and getattr(base.support, "base_constraint", None) is real
                and type(base).__module__.startswith("numpyro.")
            ):
                problem = f"its vectors are not known to be Gaussian; {NUTS}"
            leaves, structure = jax.tree.flatten(base)
            again = vars(jax.tree.unflatten(structure, leaves))
            sites[name] = Site(
                name=name,
                kind=type(base).__name__,
                shape=tuple(jnp.shape(site["value"])),
                rows=np.broadcast_shapes(jnp.shape(site["value"]), base.batch_shape)
                if site["is_observed"]
                else (),
                observed=site["is_observed"],
                gaussian=gaussian,
                process=isinstance(base, GaussianProcess) and site["fn"].shape() == base.shape(),
                integrated=is_integrated(site),
                support=base.support,
                plated=bool(site["cond_indep_stack"]),
                problem=problem,
                without_moments=getattr(likelihood, "without_moments", None),
                without_mode=getattr(likelihood, "without_mode", None),
                knows_moments=likelihood is not None,
                log_concave=bool(getattr(likelihood, "log_concave", False)),
                closed_form=hasattr(likelihood, "gaussian_site"),
                shares_noise=hasattr(likelihood, "shared_noise"),
                portable=all(part in again or hasattr(type(base), part) for part in vars(base)),
            )

    jax.eval_shape(record, call.shapes)
    return sites


def broadcast_fixed(call: Call, fixed: Values) -> Values:
    """Give every fixed value its site's shape.

    Raises
    ------
    DataError
        If a name is no unobserved site, a value is not finite, its shape does not fit, or it lies
        outside its support.
    """
    sites = survey(call)
    free = [name for name, site in sites.items() if not site.observed]
    result = {}
    for name, value in fixed.items():
        try:
            array = np.asarray(value, dtype=np.float64)
        except (OverflowError, TypeError, ValueError):
            raise DataError(
                f"fixed[{name!r}] is {value!r}; it must be a number or an array of them"
            ) from None
        if not np.all(np.isfinite(array)):
            raise DataError(f"fixed[{name!r}] is {value!r}; it must be finite")
        if name not in free:
            names = ", ".join(free) or "none"
            raise DataError(
                f"fixed names the site {name!r}; the program's unobserved sites are {names}"
            )
        site = sites[name]
        try:
            array = np.broadcast_to(array, site.shape)
        except ValueError:
            raise DataError(
                f"fixed[{name!r}] has shape {array.shape}; the site has shape {site.shape}"
            ) from None
        # The edge of an open support is allowed: an amplitude of 0 switches a part off.
        if not np.all(site.support(array) | site.support(np.nextafter(array, np.inf))):
            raise DataError(
                f"fixed[{name!r}] is {value!r}, outside the site's support, {site.support}"
            )
        result[name] = array
    return result
