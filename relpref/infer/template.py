"""Templates of programs: where the numbers of priors, covariances and likelihoods come from.

A program runs once for shapes alone, with a tracer in place of each hyperparameter. Every number of
its distributions is then a hyperparameter (the very tracer), a constant, or computed by the
program. At given hyperparameters the numbers are filled in, and nothing runs but what computes the
last kind. Derivatives by the numbers become derivatives by the hyperparameters in the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.distributions.transforms import biject_to

from relpref.errors import UnsupportedProgramError
from relpref.infer.call import Call, Values
from relpref.infer.gaussians import gaussian_parts
from relpref.infer.layout import Layout, Observation, Reading, joined_rows, shared_noise
from relpref.infer.priors import Form, Mapped, form_of
from relpref.infer.rows import SparseRows
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import BlockDiagonal
from relpref.linalg.arrays import Array, summed_to
from relpref.linalg.covariance import Pulls, at_path

Floats = NDArray[np.float64]


class Numbers(NamedTuple):
    """What a program says of its latents, answers and hyperparameters."""

    reading: Reading  # at latents of zeros, without a projection
    priors: dict[str, dict[str, Any]]  # parameters of the hyperparameters' priors


def _numbers(
    call: Call, layout: Layout, arrays: tuple[Any, ...], values: Values, origin: Array
) -> tuple[Numbers, dict[str, Form]]:
    """The numbers at values of all hyperparameters, and the forms of their priors.

    The latents, of 0, are the ``origin``. A prior has no form where JAX alone knows it.
    """
    sites = call.trace(arrays, {**values, **layout.unravel(origin)})
    parts = [gaussian_parts(sites[name]["fn"]) for name, _ in layout.latents]
    observations = tuple(Observation.of(sites[name]) for name in layout.observed)
    noise = [kind.sd for kind in shared_noise(observations)]
    noise += [unwrap(sites[name]["fn"]).scale for name, _ in layout.integrated]
    reading = Reading(
        hyperparameters={},
        covariance=BlockDiagonal(tuple(covariance.in_memory() for _, covariance in parts)),
        location=joined_rows([mean for mean, _ in parts]),
        offset=joined_rows([each.likelihood.predictor for each in observations]),
        projection=None,
        observations=observations,
        log_prior=None,
        noise=tuple(noise),
    )
    forms = {name: form_of(sites[name]["fn"]) for name, _ in layout.hyperparameters}
    known = {name: form for name, form in forms.items() if form is not None}
    priors = {name: parameters for name, (_, parameters) in known.items()}
    return Numbers(reading, priors), {name: form for name, (form, _) in known.items()}


def _is_graph(node: Any) -> bool:
    # Flattened, a graph would compute its spectrum.
    return hasattr(node, "num_nodes")


@partial(jax.jit, static_argnums=(0, 1, 2))
def _computed(
    call: Call, layout: Layout, places: tuple[int, ...], arrays: tuple[Any, ...], values: Values
) -> list[Array]:
    """The numbers at some places."""
    numbers, _ = _numbers(call, layout, arrays, values, jnp.zeros(layout.num_latents))
    leaves = jax.tree.leaves(numbers, is_leaf=_is_graph)
    return [leaves[place] for place in places]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _pulled(
    call: Call,
    layout: Layout,
    places: tuple[int, ...],
    arrays: tuple[Any, ...],
    fixed: Values,
    values: Values,
    slopes: list[Array],
) -> Values:
    """Derivatives in hyperparameters, from those in the numbers at some places."""

    def computed(values: Values) -> list[Array]:
        return _computed(call, layout, places, arrays, {**fixed, **values})

    return jax.vjp(computed, values)[1](slopes)[0]


@partial(jax.jit, static_argnums=(0, 1))
def _prior(
    call: Call, layout: Layout, arrays: tuple[Any, ...], fixed: Values, raw: Values
) -> tuple[Values, Array]:
    """Hyperparameters on their supports, and the log density of the unconstrained ones."""
    origin = layout.unravel(jnp.zeros(layout.num_latents))
    sites = call.trace(arrays, {**fixed, **origin}, unconstrained=raw)
    return {name: sites[name]["value"] for name in raw}, log_prior(sites, raw)


@partial(jax.jit, static_argnums=(0, 1))
def _pulled_by_prior(
    call: Call,
    layout: Layout,
    arrays: tuple[Any, ...],
    fixed: Values,
    raw: Values,
    slopes: Values,
) -> Values:
    """Derivatives in unconstrained hyperparameters, from those on the supports."""
    back = jax.vjp(partial(_prior, call, layout, arrays, fixed), raw)[1]
    return back((slopes, jnp.ones(())))[0]


def log_prior(sites: Mapping[str, Values], unconstrained: Values) -> Array:
    """Log density of hyperparameters in the unconstrained space, by sites traced there."""
    total = jnp.zeros(())
    for name, raw in unconstrained.items():
        density, value = sites[name]["fn"], sites[name]["value"]
        jacobian = biject_to(density.support).log_abs_det_jacobian(raw, value)
        total = total + jnp.sum(density.log_prob(value)) + jnp.sum(jacobian)
    return total


@dataclass(frozen=True, eq=False)
class Template:
    """A program that ran once, see the module."""

    call: Call
    layout: Layout
    arrays: tuple[Any, ...]
    rows: SparseRows
    structure: Any  # of `Numbers`
    leaves: tuple[Any, ...]  # constants, and what JAX traced in other places
    sites: Mapping[int, str]  # hyperparameters by their places
    computed: Mapping[int, tuple[int, ...]]  # shapes of computed numbers by their places
    forms: Mapping[str, Form]  # of priors; without those that JAX alone knows

    @classmethod
    def of(
        cls,
        call: Call,
        layout: Layout,
        arrays: tuple[Any, ...],
        rows: SparseRows,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> "Template":
        """Run a program with tracers for hyperparameters of these shapes."""
        made: list[Template] = []
        given, origin = arrays, np.zeros(layout.num_latents)

        def record(values: Values, arrays: tuple[Any, ...], origin: Array) -> None:
            numbers, forms = _numbers(call, layout, arrays, values, origin)
            leaves, structure = jax.tree.flatten(numbers, is_leaf=_is_graph)
            names = {id(tracer): name for name, tracer in values.items()}
            sites, computed = {}, {}
            for at, leaf in enumerate(leaves):
                if id(leaf) in names:
                    sites[at] = names[id(leaf)]
                elif isinstance(leaf, jax.core.Tracer):
                    computed[at] = tuple(leaf.shape)
                elif isinstance(leaf, jax.Array):
                    leaves[at] = np.asarray(leaf)
            parts = structure, tuple(leaves), sites, computed, forms
            made.append(cls(call, layout, given, rows, *parts))

        values = {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in shapes.items()}
        try:
            jax.eval_shape(partial(record, arrays=arrays, origin=origin), values)
        except (TypeError, UnsupportedProgramError, ValueError):
            # It may do with its arguments what JAX alone can do.
            jax.eval_shape(record, values, arrays, origin)
        return made[0]

    @cached_property
    def places(self) -> Numbers:
        """The place of each number."""
        places: Numbers = self.structure.unflatten(range(len(self.leaves)))
        return places

    @cached_property
    def answers_move(self) -> bool:
        """Whether likelihoods, predictors or noise depend on hyperparameters."""
        reading = self.places.reading
        parts = (reading.observations, reading.noise, reading.offset, reading.location)
        return any(at in self.sites or at in self.computed for at in jax.tree.leaves(parts))

    def at(self, unconstrained: Values, fixed: Values) -> "Filled":
        """The program at unconstrained hyperparameters, and others fixed on their supports."""
        raw = {name: np.asarray(value) for name, value in unconstrained.items()}
        mapped: dict[str, Mapped] = {}
        if raw.keys() <= self.forms.keys():
            mapped = {name: self.forms[name].map(value) for name, value in raw.items()}
            values = {name: each.value for name, each in mapped.items()}
            total = sum(float(np.sum(each.log_slope)) for each in mapped.values())
        else:
            given = self.call, self.layout, self.arrays, fixed
            values, total = jax.tree.map(np.asarray, _prior(*given, raw))
        leaves, every = list(self.leaves), {**fixed, **values}
        for at, name in self.sites.items():
            leaves[at] = every[name]
        if self.computed:
            numbers = _computed(self.call, self.layout, tuple(self.computed), self.arrays, every)
            for at, number in zip(self.computed, numbers, strict=True):
                leaves[at] = np.asarray(number)
        reading, priors = self.structure.unflatten(leaves)
        slopes: list[tuple[Any, Any]] = []
        for name in mapped:
            density, slope, by_parameter = self.forms[name].density(values[name], **priors[name])
            total += float(np.sum(np.broadcast_to(density, np.shape(values[name]))))
            slopes.append((name, slope))
            places = self.places.priors[name]
            slopes += [(places[key], each) for key, each in by_parameter.items()]
        offset = np.ravel(reading.offset)
        if np.any(reading.location):
            offset = offset + self.rows.rows(reading.location)
        reading = reading._replace(
            hyperparameters=values,
            offset=offset,
            projection=self.rows,
            log_prior=total,
            noise=tuple(np.broadcast_to(sd, offset.shape) for sd in reading.noise),
        )
        return Filled(self, raw, fixed, reading, mapped, slopes)


class Filled(NamedTuple):
    """A template at given hyperparameters."""

    template: Template
    unconstrained: Values
    fixed: Values
    reading: Reading
    mapped: Mapping[str, Mapped]  # of each hyperparameter; empty where JAX is needed for a prior
    # Derivatives of the log prior, by hyperparameters and places of numbers.
    slopes: list[tuple[Any, Any]]

    def gradient(self, pulls: Pulls) -> Values:
        """Derivatives of log evidence and log prior in the unconstrained hyperparameters.

        ``pulls`` are those of the log evidence, by paths in the reading.
        """
        template, values = self.template, self.reading.hyperparameters
        places = template.places.reading
        slopes = [*self.slopes, *((at_path(places, path), each) for path, each in pulls.items())]
        if (dual := pulls.get(("offset",))) is not None:
            slopes.append((places.location, template.rows.back(dual)))
        total = {name: np.zeros(np.shape(value)) for name, value in values.items()}
        computed = {at: np.zeros(shape) for at, shape in template.computed.items()}
        for place, slope in slopes:
            name = template.sites.get(place, place)
            if name in total:
                total[name] = total[name] + summed_to(np.asarray(slope), total[name].shape)
            elif place in computed:
                shape = computed[place].shape
                computed[place] = computed[place] + summed_to(np.asarray(slope), shape)
        given = template.call, template.layout
        rest = template.arrays, self.fixed
        if computed:
            back = _pulled(*given, tuple(computed), *rest, values, list(computed.values()))
            total = {name: slope + np.asarray(back[name]) for name, slope in total.items()}
        if self.mapped or not values:
            return {
                name: slope * self.mapped[name].slope + self.mapped[name].slope_of_log
                for name, slope in total.items()
            }
        back = _pulled_by_prior(*given, *rest, self.unconstrained, total)
        return {name: np.asarray(slope) for name, slope in back.items()}
