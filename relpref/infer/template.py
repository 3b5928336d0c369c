"""Templates of programs: where the numbers of priors, covariances and likelihoods come from.

A program runs once for shapes alone, with a tracer in place of each hyperparameter. Every number of
its distributions is then a hyperparameter (the very tracer), a constant, or computed by the
program. What it computes by NumPy from numbers may still be entries of a hyperparameter times
constants, such as the noise of each answer's rater; three more runs tell. At given hyperparameters
the numbers are filled in, and nothing runs but what computes the rest. Derivatives by the numbers
become derivatives by the hyperparameters in the same way.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.distributions.transforms import biject_to

from relpref.compiled import compiled
from relpref.data.arrays import Floats
from relpref.errors import UnsupportedProgramError
from relpref.infer.call import Values, survey
from relpref.infer.gaussians import gaussian_parts
from relpref.infer.latents import written
from relpref.infer.layout import Observation, Prior, joined_rows, known_sites, shared_noise
from relpref.infer.members import Members, OfMembers
from relpref.infer.priors import Form, Mapped, form_of
from relpref.infer.rows import DenseRows
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import BlockDiagonal
from relpref.linalg.arrays import Array, on_host, ravel, summed_to
from relpref.linalg.covariance import Pulls, at_path
from relpref.pytree import Untraced, is_graph

Program = Any  # of `relpref.infer.program`, which builds on this module
_STEP = 1e-5  # of differences, relative to a hyperparameter
Parameters = dict[str, dict[str, Any]]  # of priors, by hyperparameters and names


def _numbers(
    program: Program, named: tuple[str, ...], values: Values, origin: Array
) -> tuple[Prior, Parameters, dict[str, Form]]:
    """The program at values of all hyperparameters, with parameters and forms of ``named`` priors.

    The latents, of 0, are the ``origin``, and the prior means of predictors are left out where the
    program has the projection. A prior has no form where JAX alone knows it.
    """
    layout, program = program.layout, replace(program, fixed=values)
    projection: Any = None
    sites: Mapping[str, Values] = {}
    given = [array for array in program.arrays if not is_graph(array)]
    if program.rows is None and not layout.quadrature and on_host(values, given):
        # Without JAX, unless the program needs it.
        with suppress(TypeError):
            projection, sites = written(program.call, program.arrays, program.fixed, layout)
    if projection is None:
        sites = program.sites(origin)
    gaussians = [gaussian_parts(sites[name]["fn"]) for name, _ in layout.latents]
    location = joined_rows([mean for mean, _ in gaussians])
    observations = program.observations(sites, origin)
    noise = [kind.sd for kind in shared_noise([each.likelihood for each in observations])]
    noise += [unwrap(sites[name]["fn"]).scale for name, _ in layout.integrated]
    if program.rows is None and projection is None:
        offset, apply = jax.linearize(program.predictors, location)
        projection = DenseRows.of(apply, len(location))
    elif layout.quadrature:
        offset = program.predictors(origin)
    else:
        offset = joined_rows([each.likelihood.predictor for each in observations])
        if projection is not None:
            offset = offset + projection.rows(location)
    prior = Prior.of(
        observations,
        offset,
        hyperparameters={},
        covariance=BlockDiagonal(tuple(covariance.in_memory() for _, covariance in gaussians)),
        location=location,
        projection=projection,
        log_prior=None,
        noise=tuple(noise),
    )
    if layout.quadrature or not all(site.portable for site in survey(program.call).values()):
        prior = prior._replace(observations=())
    else:
        prior = prior._replace(gaussian=None)  # follows from the answers
    forms = {name: form_of(sites[name]["fn"]) for name in named}
    parts = {name: form for name, form in forms.items() if form is not None}
    parameters = {name: given for name, (_, given) in parts.items()}
    return prior, parameters, {name: form for name, (form, _) in parts.items()}


def numbers_of(tree: Any) -> tuple[list[Any], Any]:
    """Numbers of a tree, graphs among them, and its structure."""
    return jax.tree.flatten(tree, is_leaf=is_graph)


@compiled(static_argnums=(1, 2))
def _computed(
    program: Program, named: tuple[str, ...], places: tuple[int, ...], values: Values
) -> list[Array]:
    """The numbers at some places."""
    origin = jnp.zeros(program.layout.num_latents)
    leaves = numbers_of(_numbers(program, named, values, origin)[:2])[0]
    return [leaves[place] for place in places]


@compiled(static_argnums=(1, 2))
def _pulled(
    program: Program,
    named: tuple[str, ...],
    places: tuple[int, ...],
    fixed: Values,
    values: Values,
    slopes: list[Array],
) -> Values:
    """Derivatives in hyperparameters, from those in the numbers at some places."""

    def computed(values: Values) -> list[Array]:
        return _computed(program, named, places, {**fixed, **values})

    return jax.vjp(computed, values)[1](slopes)[0]


@compiled
def _prior(program: Program, fixed: Values, raw: Values) -> tuple[Values, Array]:
    """Hyperparameters on their supports, and the log density of the unconstrained ones."""
    sites = replace(program, fixed=fixed).sites(jnp.zeros(program.layout.num_latents), raw)
    return {name: sites[name]["value"] for name in raw}, log_prior(sites, raw)


@compiled
def _pulled_by_prior(program: Program, fixed: Values, raw: Values, slopes: Values) -> Values:
    """Derivatives in unconstrained hyperparameters, from those on the supports."""
    back = jax.vjp(partial(_prior, program, fixed), raw)[1]
    return back((slopes, jnp.ones(())))[0]


@compiled(static_argnums=1)
def _densities(program: Program, name: str, values: Values, raw: Array) -> Array | None:
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


class Multiple(NamedTuple):
    """Numbers that are powers of entries of a hyperparameter, each times a constant."""

    site: str
    entry: NDArray[np.intp]  # of the flattened hyperparameter, in the shape of the numbers
    factor: Any
    power: int = 1
    times: str | None = None  # a scalar hyperparameter by which they are multiplied

    @classmethod
    def whole(cls, site: str, shape: tuple[int, ...]) -> "Multiple":
        """A hyperparameter itself."""
        return cls(site, np.arange(math.prod(shape)).reshape(shape), 1.0)

    def at(self, values: Values) -> Any:
        """The numbers at flattened hyperparameters; that of ``site`` may have a first axis."""
        size = 1.0 if self.times is None else values[self.times][0]
        return size * self.factor * values[self.site][..., self.entry] ** self.power

    def back(self, slope: Any, values: Values) -> Values:
        """Derivatives in the flattened hyperparameters, from those in the numbers."""
        value, size = values[self.site], 1.0 if self.times is None else values[self.times][0]
        slope = summed_to(np.asarray(slope), self.entry.shape)
        by_entry = self.power * size * self.factor * value[self.entry] ** (self.power - 1)
        shares = (by_entry * slope).ravel()
        slopes: Values = {self.site: np.bincount(self.entry.ravel(), shares, value.size)}
        if self.times is not None:
            by_size = self.factor * value[self.entry] ** self.power
            slopes[self.times] = np.array([np.vdot(slope, by_size)])
        return slopes


# Errors of a program that needs JAX for a number.
_NO_NUMBERS = (AttributeError, TypeError, UnsupportedProgramError, ValueError)


def _run_by_numpy(program: Program, named: tuple[str, ...], values: Values) -> list[Any]:
    """All numbers of a program at given hyperparameters; tracers where JAX computes them."""
    leaves: list[Any] = []

    def record() -> None:
        origin = np.zeros(program.layout.num_latents)
        leaves.extend(numbers_of(_numbers(program, named, values, origin)[:2])[0])

    jax.eval_shape(record)
    return leaves


@dataclass(frozen=True, eq=False)
class Template:
    """A program that ran once, see the module."""

    program: Program  # without what is not needed to run it
    named: tuple[str, ...]  # hyperparameters whose priors are known
    shapes: Mapping[str, tuple[int, ...]]  # of all hyperparameters, fixed ones, too
    structure: Any  # of the first two results of `_numbers`
    leaves: tuple[Any, ...]  # constants; None in other places
    multiples: Mapping[int, Multiple]  # multiples of hyperparameters by their places
    # Shapes of computed numbers by their places: by NumPy, and by JAX
    moving: Mapping[int, tuple[int, ...]]
    computed: Mapping[int, tuple[int, ...]]
    movers: frozenset[str]  # hyperparameters that move the former
    forms: Mapping[str, Form]  # of priors; without those that JAX alone knows
    # Members whose hyperparameters are averaged over here; None: the program does, if any.
    members: Members | None = None

    @classmethod
    def of(cls, program: Program) -> "Template":
        """Run a program with tracers for all hyperparameters, fixed ones, too."""
        members = program.members
        if members is not None:
            template = cls._run(replace(program, members=None), members)
            (observation, *more) = template.places[0].observations
            moving = template.computing & set(jax.tree.leaves(observation))
            usable = all(
                name in template.forms and template.forms[name].quantile for name in members.names
            )
            if usable and not more and not moving:
                return template
        return cls._run(program)

    @classmethod
    def _run(cls, program: Program, members: Members | None = None) -> "Template":
        templates: list[Template] = []
        shapes = dict(program.layout.hyperparameters)
        shapes |= {name: np.shape(value) for name, value in program.fixed.items()}
        named = tuple(name for name, _ in program.layout.hyperparameters)
        if members is not None:
            named += members.names
            shapes |= dict.fromkeys(members.names, (members.number,))
        bare: dict[str, Any] = {"fixed": {}, "medians": {}, "counts": (), "arrow": None}
        given = replace(program, **bare, kept=Untraced({}))

        def record(values: Values, program: Any, origin: Array) -> None:
            *numbers, forms = _numbers(program, named, values, origin)
            leaves, structure = numbers_of(tuple(numbers))
            names = {id(tracer): name for name, tracer in values.items()}
            multiples, computed = {}, {}
            for at, leaf in enumerate(leaves):
                if id(leaf) in names:
                    name = names[id(leaf)]
                    multiples[at], leaves[at] = Multiple.whole(name, shapes[name]), None
                elif isinstance(leaf, jax.core.Tracer):
                    computed[at], leaves[at] = tuple(leaf.shape), None
                elif isinstance(leaf, jax.Array):
                    leaves[at] = np.asarray(leaf)
            template = cls(
                program=given,
                named=named,
                shapes=shapes,
                structure=structure,
                leaves=tuple(leaves),
                multiples=multiples,
                moving={},
                computed=computed,
                movers=frozenset(),
                forms=forms,
                members=members,
            )
            templates.append(template)

        origin = np.zeros(given.layout.num_latents)
        values = {name: jax.ShapeDtypeStruct(shape, np.float64) for name, shape in shapes.items()}
        try:
            jax.eval_shape(partial(record, program=given, origin=origin), values)
        except (TypeError, UnsupportedProgramError, ValueError):
            # It may do with its arguments what JAX alone can do.
            jax.eval_shape(record, values, given, origin)
            return templates[0]
        (template,) = templates
        return template._by_numpy() if shapes and template.computed else template

    def _by_numpy(self) -> "Template":
        """The template with numbers that the program computes by NumPy.

        The program runs at three values of the hyperparameters, of which the first two have a ratio
        of its own for each entry.
        """
        shapes, run = self.shapes, partial(_run_by_numpy, self.program, self.named)
        _, unravel = ravel({name: np.empty(shape) for name, shape in shapes.items()})
        rng, names = np.random.default_rng(0), sorted(shapes)
        sizes = [math.prod(shapes[name]) for name in names]
        starts = dict(zip(names, np.cumsum([0, *sizes]), strict=False))
        site_of, number = np.repeat(names, sizes), sum(sizes)
        first, third = rng.uniform(0.5, 1.0, (2, number))
        ratio = 1 - 0.5 * rng.permutation(number) / max(number, 1)
        flats = first, first * ratio, third
        try:
            several = [run(unravel(flat)) for flat in flats]
        except _NO_NUMBERS:
            return self
        scalars = [name for name, shape in shapes.items() if not shape]

        def multiple(times: str | None, power: int, numbers: list[Floats]) -> Multiple | None:
            if times is not None:
                each = zip(numbers, flats, strict=True)
                numbers = [number / flat[starts[times]] for number, flat in each]
            at_first, at_second, _ = numbers
            order, zero = np.argsort(ratio**power), at_first == 0
            seen = np.where(zero, 0.0, at_second / np.where(zero, 1.0, at_first))
            place = np.searchsorted(ratio[order] ** power, seen * (1 - 1e-9)).clip(max=number - 1)
            entry = np.where(zero, -1, order[place])
            (site, *others) = {*site_of[entry[~zero]].tolist()}
            entry = np.where(zero, starts[site], entry)
            factor = at_first / first[entry] ** power
            if (
                others
                or site == times
                or not all(
                    np.allclose(values, factor * flat[entry] ** power, 1e-12, 0.0)
                    for values, flat in zip(numbers[1:], flats[1:], strict=True)
                )
            ):
                return None
            return Multiple(site, entry - starts[site], factor, power, times)

        leaves, multiples = list(self.leaves), dict(self.multiples)
        moving, computed = dict[int, tuple[int, ...]](), dict(self.computed)
        for at, shape in self.computed.items():
            if not all(isinstance(each[at], np.ndarray | np.generic) for each in several):
                continue
            numbers = [np.asarray(each[at]) for each in several]
            if all(np.array_equal(numbers[0], other) for other in numbers[1:]):
                leaves[at] = several[0][at]
            elif np.issubdtype(numbers[0].dtype, np.floating):
                kinds = product((None, *scalars), (1, 2)) if np.any(numbers[0]) else ()
                tried = (multiple(*kind, numbers) for kind in kinds)
                if each := next(filter(None, tried), None):
                    multiples[at] = each
                else:
                    moving[at] = shape
            else:
                continue
            del computed[at]
        movers = set()
        for name in names if moving else ():
            moved = run(unravel(np.where(site_of == name, third, first)))
            if any(not np.array_equal(moved[at], several[0][at]) for at in moving):
                movers.add(name)
        return replace(
            self,
            leaves=tuple(leaves),
            multiples=multiples,
            moving=moving,
            movers=frozenset(movers),
            computed=computed,
        )

    @property
    def computing(self) -> set[int]:
        """Places of computed numbers."""
        return {*self.moving, *self.computed}

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
        moving = self.multiples.keys() | self.computing
        return not moving.isdisjoint(jax.tree.leaves(parts)) or not prior.observations

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
        every = {name: np.ones(shape) for name, shape in self.shapes.items()} | fixed | values
        flat, leaves = {name: np.ravel(value) for name, value in every.items()}, list(self.leaves)
        for at, multiple in self.multiples.items():
            leaves[at] = multiple.at(flat)
        if self.computed:
            numbers = _computed(self.program, self.named, tuple(self.computed), every)
            for at, number in zip(self.computed, numbers, strict=True):
                leaves[at] = np.asarray(number)
        if self.moving:
            numbers = _run_by_numpy(self.program, self.named, every)
            for at in self.moving:
                leaves[at] = numbers[at]
        prior, parameters = self.structure.unflatten(leaves)
        slopes: list[tuple[int | str, Any]] = []
        for name in mapped:
            form, given, places = self.forms[name], parameters[name], self.places[1][name]
            density, slope, by_parameter = form.density(values[name], **given)
            total += float(np.sum(np.broadcast_to(density, np.shape(values[name]))))
            slopes.append((name, slope))
            slopes += [(places[key], each) for key, each in by_parameter.items()]
        offset = np.ravel(prior.offset)
        if self.program.rows is not None and np.any(prior.location):
            offset = offset + self.program.rows.rows(prior.location)
        gaussian = prior.gaussian
        if prior.observations:
            gaussian = jax.tree.map(np.asarray, known_sites(prior.observations, offset))
        prior = prior._replace(
            gaussian=gaussian,
            hyperparameters=values,
            offset=offset,
            projection=prior.projection or self.program.rows,
            log_prior=total,
            noise=tuple(np.broadcast_to(sd, offset.shape) for sd in prior.noise),
        )
        filled = Filled(self, raw, fixed, prior, mapped, parameters, slopes, flat)
        return filled if self.members is None else filled.averaged(self.members)


class Filled(NamedTuple):
    """A template at given hyperparameters."""

    template: Template
    unconstrained: Values
    fixed: Values
    prior: Prior
    mapped: Mapping[str, Mapped]  # of each hyperparameter; empty where JAX is needed for a prior
    parameters: Parameters
    # Derivatives of the log prior, by hyperparameters and places of numbers.
    slopes: list[tuple[int | str, Any]]
    flat: Values  # all hyperparameters, flattened

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

    def quantiles(self, members: Members, standard: Floats) -> Values | None:
        """Values of the members' hyperparameters at quantiles, from z of shape (sites, ...).

        None where JAX alone knows them.
        """
        values = {}
        for name, z in zip(members.names, standard, strict=True):
            form = self.template.forms.get(name)
            if form is None or form.quantile is None:
                return None
            values[name] = form.quantile(z, **self.parameters[name])[0]
        return values

    def _at_nodes(self, members: Members) -> tuple[Any, Values]:
        """Nodes of z, shape (sites, K, 1), and the members' hyperparameters there, (K, number)."""
        nodes = members.nodes[0].T[:, :, None]
        values, shape = self.quantiles(members, nodes), (nodes.shape[1], members.number)
        assert values is not None
        return nodes, {name: np.broadcast_to(each, shape) for name, each in values.items()}

    def averaged(self, members: Members) -> "Filled":
        """The program with a likelihood that is averaged over members."""
        ((likelihood, value, counts),) = self.prior.observations
        rows: Any = likelihood
        leaves, structure = jax.tree.flatten(rows.rows(...))
        nodes, at_nodes = self._at_nodes(members)
        number = nodes.shape[1]
        places = jax.tree.leaves(self.template.places[0].observations[0].likelihood)
        for at, place in enumerate(places):
            target, multiple = leaves[at].shape, self.template.multiples.get(place)
            if multiple is not None and multiple.site in at_nodes:
                each = multiple.at(self.flat | at_nodes)
                each = each.reshape(number, *(1,) * (len(target) - each.ndim + 1), *each.shape[1:])
                leaves[at] = np.broadcast_to(each, (number, *target))
            else:
                leaves[at] = np.broadcast_to(leaves[at], (number, *target))
        every = OfMembers(jax.tree.unflatten(structure, leaves), members, counts)
        prior = self.prior._replace(
            observations=(Observation(every, value, counts),),
            log_concave=np.zeros(counts.shape, bool),
            power=np.ones(counts.shape),
        )
        return self._replace(prior=prior)

    def _of_members(self, members: Members, pulls: Pulls) -> list[tuple[int | str, Any]]:
        """Derivatives by places of numbers, from those of an averaged likelihood by its paths."""
        template, (_, parameters) = self.template, self.template.places
        places = template.places[0].observations[0].likelihood
        slopes: list[tuple[int | str, Any]] = []
        by_site: dict[str, Any] = dict.fromkeys(members.names, 0.0)
        (nodes, at_nodes), flat = self._at_nodes(members), self.flat
        for path, slope in pulls.items():
            place = at_path(places, path)
            multiple = template.multiples.get(place)
            if multiple is None or multiple.site not in by_site:
                slopes.append((place, slope))
            else:
                at_each = zip(slope, at_nodes[multiple.site], strict=True)
                backs = [
                    multiple.back(part, flat | {multiple.site: each}) for part, each in at_each
                ]
                by_site[multiple.site] += np.stack([back[multiple.site] for back in backs])
                if multiple.times is not None:
                    slopes.append((multiple.times, sum(back[multiple.times] for back in backs)[0]))
        for name, z in zip(members.names, nodes, strict=True):
            form = template.forms[name]
            assert form.quantile is not None
            _, by_parameter = form.quantile(z, **self.parameters[name])
            slopes += [
                (parameters[name][key], by_site[name] * each) for key, each in by_parameter.items()
            ]
        return slopes

    def _differences(self, every: Values, slopes: Mapping[int, Floats]) -> Values:
        """Derivatives in hyperparameters from those in the numbers that NumPy computes."""
        template, total = self.template, {}
        for name in template.movers & self.prior.hyperparameters.keys():
            value = self.prior.hyperparameters[name]
            total[name] = np.zeros(np.shape(value))
            for entry in np.ndindex(total[name].shape):
                step = _STEP * abs(np.asarray(value)[entry]) or _STEP
                sides = []
                for move in (step, -step):
                    moved = np.array(value, float)
                    moved[entry] += move
                    given = every | {name: moved}
                    sides.append(_run_by_numpy(template.program, template.named, given))
                total[name][entry] = sum(
                    np.vdot(slopes[at], sides[0][at] - sides[1][at]) for at in template.moving
                ) / (2 * step)
        return total

    def gradient(self, pulls: Pulls) -> Values:
        """Derivatives of log evidence and log prior in the unconstrained hyperparameters.

        ``pulls`` are those of the log evidence, by paths in the prior.
        """
        template, values = self.template, self.prior.hyperparameters
        places, _ = template.places
        program, slopes = template.program, list(self.slopes)
        if template.members is not None:
            start = ("observations", "0", "likelihood", "each")
            inside = {path[4:]: slope for path, slope in pulls.items() if path[:4] == start}
            slopes += self._of_members(template.members, inside)
            pulls = {path: slope for path, slope in pulls.items() if path[:4] != start}
        slopes += [(at_path(places, path), slope) for path, slope in pulls.items()]
        if program.rows is not None and ("offset",) in pulls:
            slopes.append((places.location, program.rows.back(pulls["offset",])))
        total, flat = {name: np.zeros(np.shape(value)) for name, value in values.items()}, self.flat
        shapes = {**template.moving, **template.computed}
        computed = {at: np.zeros(shape) for at, shape in shapes.items()}
        for place, slope in slopes:
            if isinstance(place, str):
                if place in total:
                    total[place] += summed_to(np.asarray(slope), total[place].shape)
                continue
            multiple = template.multiples.get(place)
            if multiple is not None:
                for name, share in multiple.back(slope, flat).items():
                    if name in total:
                        total[name] += share.reshape(total[name].shape)
            elif place in computed:
                computed[place] += summed_to(np.asarray(slope), computed[place].shape)
        held = {name: np.ones(shape) for name, shape in template.shapes.items()} | self.fixed
        if template.computed:
            slopes_at = [computed[at] for at in template.computed]
            by_place = tuple(template.computed), held, values, slopes_at
            back: Values = _pulled(program, template.named, *by_place)
            total = {name: slope + np.asarray(back[name]) for name, slope in total.items()}
        if template.moving:
            for name, back_by_entry in self._differences(held | values, computed).items():
                total[name] += back_by_entry
        if self.mapped or not values:
            return {
                name: slope * self.mapped[name].slope + self.mapped[name].slope_of_log
                for name, slope in total.items()
            }
        by_raw: Values = _pulled_by_prior(program, self.fixed, self.unconstrained, total)
        return {name: np.asarray(slope) for name, slope in by_raw.items()}
