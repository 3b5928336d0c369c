"""Templates of programs: where the numbers of priors, covariances and likelihoods come from.

A program runs once for shapes alone, with a tracer in place of each hyperparameter. Every number of
its distributions is then a hyperparameter (the very tracer), a constant, or computed by the
program. At given hyperparameters the numbers are filled in, and nothing runs but what computes the
last kind. Derivatives by the numbers become derivatives by the hyperparameters in the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.distributions.transforms import biject_to

from relpref.errors import UnsupportedProgramError
from relpref.infer.call import Values, survey
from relpref.infer.gaussians import gaussian_parts
from relpref.infer.layout import Prior, Reading, joined_rows, prior_of, shared_noise
from relpref.infer.priors import Form, Mapped, form_of
from relpref.infer.spaces import Map
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import BlockDiagonal
from relpref.linalg.arrays import Array, summed_to
from relpref.linalg.covariance import Pulls, at_path
from relpref.pytree import Untraced

if TYPE_CHECKING:
    from relpref.infer.program import Program

Floats = NDArray[np.float64]


Parameters = dict[str, dict[str, Any]]  # of priors, by hyperparameters and names


def _numbers(
    program: "Program", values: Values, origin: Array
) -> tuple[Prior, Parameters, dict[str, Form]]:
    """The program at values of all hyperparameters, with parameters and forms of their priors.

    The latents, of 0, are the ``origin``, and the prior means of predictors are left out where the
    program has the projection. A prior has no form where JAX alone knows it.
    """
    layout, program = program.layout, replace(program, fixed=values)
    sites = program.sites(origin)
    parts = [gaussian_parts(sites[name]["fn"]) for name, _ in layout.latents]
    location = joined_rows([mean for mean, _ in parts])
    observations = program.observations(sites, origin)
    noise = [kind.sd for kind in shared_noise(observations)]
    noise += [unwrap(sites[name]["fn"]).scale for name, _ in layout.integrated]
    projection: Any = None
    if program.rows is None:
        offset, apply = jax.linearize(program.predictors, location)
        projection = Map(apply, apply)
    elif layout.quadrature:
        offset = program.predictors(origin)
    else:
        offset = joined_rows([each.likelihood.predictor for each in observations])
    reading = Reading(
        hyperparameters={},
        covariance=BlockDiagonal(tuple(covariance.in_memory() for _, covariance in parts)),
        location=location,
        offset=offset,
        projection=projection,
        observations=observations,
        log_prior=None,
        noise=tuple(noise),
    )
    prior = prior_of(reading, program.rows is not None)
    if layout.quadrature or not all(site.portable for site in survey(program.call)):
        prior = prior._replace(observations=())
    forms = {name: form_of(sites[name]["fn"]) for name, _ in layout.hyperparameters}
    known = {name: form for name, form in forms.items() if form is not None}
    parameters = {name: given for name, (_, given) in known.items()}
    return prior, parameters, {name: form for name, (form, _) in known.items()}


def _is_graph(node: Any) -> bool:
    # Flattened, a graph would compute its spectrum.
    return hasattr(node, "num_nodes")


@partial(jax.jit, static_argnums=1)
def _computed(program: "Program", places: tuple[int, ...], values: Values) -> list[Array]:
    """The numbers at some places."""
    numbers = _numbers(program, values, jnp.zeros(program.layout.num_latents))[:2]
    leaves = jax.tree.leaves(numbers, is_leaf=_is_graph)
    return [leaves[place] for place in places]


@partial(jax.jit, static_argnums=1)
def _pulled(
    program: "Program",
    places: tuple[int, ...],
    fixed: Values,
    values: Values,
    slopes: list[Array],
) -> Values:
    """Derivatives in hyperparameters, from those in the numbers at some places."""

    def computed(values: Values) -> list[Array]:
        return _computed(program, places, {**fixed, **values})

    return jax.vjp(computed, values)[1](slopes)[0]


@jax.jit
def _prior(program: "Program", fixed: Values, raw: Values) -> tuple[Values, Array]:
    """Hyperparameters on their supports, and the log density of the unconstrained ones."""
    sites = replace(program, fixed=fixed).sites(jnp.zeros(program.layout.num_latents), raw)
    return {name: sites[name]["value"] for name in raw}, log_prior(sites, raw)


@jax.jit
def _pulled_by_prior(program: "Program", fixed: Values, raw: Values, slopes: Values) -> Values:
    """Derivatives in unconstrained hyperparameters, from those on the supports."""
    back = jax.vjp(partial(_prior, program, fixed), raw)[1]
    return back((slopes, jnp.ones(())))[0]


@partial(jax.jit, static_argnums=1)
def _densities(program: "Program", name: str, values: Values, raw: Array) -> Array | None:
    """See `Filled.densities`."""
    sites = replace(program, fixed=values).sites(jnp.zeros(program.layout.num_latents))
    prior = unwrap(sites[name]["fn"])
    if prior.event_dim or tuple(prior.batch_shape) not in ((), raw.shape[1:]):
        return None
    transform = biject_to(prior.support)
    value = transform(raw)
    return prior.log_prob(value) + transform.log_abs_det_jacobian(raw, value)


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

    program: "Program"  # without what is not needed to run it
    structure: Any  # of what `_numbers` returns but for the forms
    leaves: tuple[Any, ...]  # constants, and what JAX traced in other places
    sites: Mapping[int, str]  # hyperparameters by their places
    computed: Mapping[int, tuple[int, ...]]  # shapes of computed numbers by their places
    forms: Mapping[str, Form]  # of priors; without those that JAX alone knows

    @classmethod
    def of(cls, program: "Program") -> "Template":
        """Run a program with tracers for all hyperparameters, fixed ones, too."""
        made: list[Template] = []
        fixed = program.fixed
        bare: dict[str, Any] = {
            "fixed": {},
            "medians": {},
            "counts": (),
            "arrow": None,
            "kept": Untraced({}),
        }
        program = replace(program, **bare)

        def record(values: Values, program: Any, origin: Array) -> None:
            *numbers, forms = _numbers(program, values, origin)
            leaves, structure = jax.tree.flatten(tuple(numbers), is_leaf=_is_graph)
            names = {id(tracer): name for name, tracer in values.items()}
            sites, computed = {}, {}
            for at, leaf in enumerate(leaves):
                if id(leaf) in names:
                    sites[at] = names[id(leaf)]
                elif isinstance(leaf, jax.core.Tracer):
                    computed[at] = tuple(leaf.shape)
                elif isinstance(leaf, jax.Array):
                    leaves[at] = np.asarray(leaf)
            made.append(cls(given, structure, tuple(leaves), sites, computed, forms))

        given, origin = program, np.zeros(program.layout.num_latents)
        shapes = dict(program.layout.hyperparameters)
        shapes |= {name: np.shape(value) for name, value in fixed.items()}
        values = {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in shapes.items()}
        try:
            jax.eval_shape(partial(record, program=program, origin=origin), values)
        except (TypeError, UnsupportedProgramError, ValueError):
            # It may do with its arguments what JAX alone can do.
            jax.eval_shape(record, values, program, origin)
        return made[0]

    @cached_property
    def places(self) -> tuple[Prior, Parameters]:
        """The place of each number."""
        places: tuple[Prior, Parameters] = self.structure.unflatten(range(len(self.leaves)))
        return places

    @cached_property
    def answers_move(self) -> bool:
        """Whether likelihoods, predictors or noise depend on hyperparameters."""
        prior, _ = self.places
        parts = (prior.observations, prior.noise, prior.offset, prior.location)
        moves = any(at in self.sites or at in self.computed for at in jax.tree.leaves(parts))
        return moves or not prior.observations

    def at(self, unconstrained: Values, fixed: Values) -> "Filled":
        """The program at unconstrained hyperparameters, and others fixed on their supports."""
        raw = {name: np.asarray(value) for name, value in unconstrained.items()}
        mapped: dict[str, Mapped] = {}
        if raw.keys() <= self.forms.keys():
            mapped = {name: self.forms[name].map(value) for name, value in raw.items()}
            values = {name: each.value for name, each in mapped.items()}
            total = sum(float(np.sum(each.log_slope)) for each in mapped.values())
        else:
            values, total = jax.tree.map(np.asarray, _prior(self.program, fixed, raw))
        leaves, every = list(self.leaves), {**fixed, **values}
        for at, name in self.sites.items():
            leaves[at] = every[name]
        if self.computed:
            numbers = _computed(self.program, tuple(self.computed), every)
            for at, number in zip(self.computed, numbers, strict=True):
                leaves[at] = np.asarray(number)
        prior, parameters = self.structure.unflatten(leaves)
        slopes: list[tuple[Any, Any]] = []
        for name in mapped:
            form, given, places = self.forms[name], parameters[name], self.places[1][name]
            density, slope, by_parameter = form.density(values[name], **given)
            total += float(np.sum(np.broadcast_to(density, np.shape(values[name]))))
            slopes.append((name, slope))
            slopes += [(places[key], each) for key, each in by_parameter.items()]
        offset = np.ravel(prior.offset)
        if self.program.rows is not None and np.any(prior.location):
            offset = offset + self.program.rows.rows(prior.location)
        prior = prior._replace(
            hyperparameters=values,
            offset=offset,
            projection=prior.projection or self.program.rows,
            log_prior=total,
            noise=tuple(np.broadcast_to(sd, offset.shape) for sd in prior.noise),
        )
        return Filled(self, raw, fixed, prior, mapped, parameters, slopes)


class Filled(NamedTuple):
    """A template at given hyperparameters."""

    template: Template
    unconstrained: Values
    fixed: Values
    prior: Prior
    mapped: Mapping[str, Mapped]  # of each hyperparameter; empty where JAX is needed for a prior
    parameters: Parameters
    # Derivatives of the log prior, by hyperparameters and places of numbers.
    slopes: list[tuple[Any, Any]]

    def densities(self, name: str, raw: Floats) -> Floats | None:
        """Log densities of values of an unconstrained hyperparameter, entry by entry.

        The other hyperparameters are as they are. None where entries depend on each other.
        """
        form = self.template.forms.get(name)
        if form is None:
            values = {**self.fixed, **self.prior.hyperparameters}
            by_jax = _densities(self.template.program, name, values, raw)
            return None if by_jax is None else np.asarray(by_jax)
        mapped = form.map(raw)
        density: Floats = form.density(mapped.value, **self.parameters[name])[0] + mapped.log_slope
        return density

    def gradient(self, pulls: Pulls) -> Values:
        """Derivatives of log evidence and log prior in the unconstrained hyperparameters.

        ``pulls`` are those of the log evidence, by paths in the prior.
        """
        template, values = self.template, self.prior.hyperparameters
        places, _ = template.places
        program, slopes = template.program, list(self.slopes)
        slopes += [(at_path(places, path), slope) for path, slope in pulls.items()]
        if program.rows is not None and ("offset",) in pulls:
            slopes.append((places.location, program.rows.back(pulls["offset",])))
        total = {name: np.zeros(np.shape(value)) for name, value in values.items()}
        computed = {at: np.zeros(shape) for at, shape in template.computed.items()}
        for place, slope in slopes:
            name = template.sites.get(place, place)
            if name in total:
                total[name] = total[name] + summed_to(np.asarray(slope), total[name].shape)
            elif place in computed:
                shape = computed[place].shape
                computed[place] = computed[place] + summed_to(np.asarray(slope), shape)
        if computed:
            by_place = tuple(computed), self.fixed, values, list(computed.values())
            back = _pulled(program, *by_place)
            total = {name: slope + np.asarray(back[name]) for name, slope in total.items()}
        if self.mapped or not values:
            return {
                name: slope * self.mapped[name].slope + self.mapped[name].slope_of_log
                for name, slope in total.items()
            }
        back = _pulled_by_prior(program, self.fixed, self.unconstrained, total)
        return {name: np.asarray(slope) for name, slope in back.items()}
