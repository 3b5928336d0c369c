"""Hyperparameters inside of plates: which are averaged over by members, and what becomes of the scale of those that are not."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relpref.infer.assemble import Component
from relpref.infer.call import Site, Values, survey
from relpref.infer.evidence import Evidence, filled, tilted
from relpref.infer.jaxprs import reached
from relpref.infer.members import Floats, Members, means, quantiles, strata
from relpref.infer.program import Program
from relpref.infer.result import CODES, Result
from relpref.infer.search import Points
from relpref.infer.sites import Sites, cavities
from relpref.lazy_jit import lazy_jit
from relpref.likelihoods.tilted import prior_quantile
from relpref.linalg.arrays import Array

_CONVERGED = CODES.index(Result.converged)
_EXACT = 1e-6  # relative error of a derivative by which a row says whose it is


def settled(program: Program, average: bool) -> Program:
    """The program as an engine treats its plates.

    Hyperparameters in a plate, of which each row depends on one entry, are averaged over if the engine can ``average``. Where they are
    not, a maximum would make their common scale 0 or infinite: it is known then, at its prior's median.
    """
    sites = {site.name: site for site in survey(program.compiled.call)}
    if not any(site.plated and not site.observed for site in sites.values()):
        return program
    depends = _dependence(program)
    members = _members(program, sites, depends) if average else None
    if members is None:
        idle = {name: program.medians[name][None] for name, its in depends.items() if its.none}
        if not idle:
            return program
        known = {name: np.asarray(value)[0] for name, value in program.constrained(idle).items()}
        return _without(program.at(known), known.keys())
    free = _without(program, members.names)
    layout: dict[str, Any] = {"log_concave": False, "repeated": False}
    filled = free.filled
    if filled is not None:
        filled = replace(filled, layout=replace(filled.layout, **layout), members=members)
        members = replace(members, row=members.row[: program.layout.num_rows])
    return replace(free, layout=replace(free.layout, **layout), members=members, filled=filled)


def _without(program: Program, names: Any) -> Program:
    """The program with these among its hyperparameters no more."""
    left = tuple(one for one in program.layout.hyperparameters if one[0] not in names)
    medians = {name: value for name, value in program.medians.items() if name not in names}
    filled = None if program.filled is None else _without(program.filled, names)
    return replace(
        program, layout=replace(program.layout, hyperparameters=left), medians=medians, filled=filled
    )


class _Dependence(NamedTuple):
    """What is computed from the value of a hyperparameter."""

    likelihoods: bool
    others: bool  # predictors, and distributions of latents
    quantiles: bool  # whether its prior has them

    @property
    def none(self) -> bool:
        """Whether only priors depend on it."""
        return not (self.likelihoods or self.others)


def _dependence(program: Program) -> dict[str, _Dependence]:
    """By hyperparameter."""
    its, layout = program.compiled, program.layout
    names, with_quantiles = [name for name, _ in layout.hyperparameters], set[str]()

    def computed(values: list[Array]) -> tuple[list[Array], list[Array]]:
        unconstrained = dict(zip(names, values, strict=True))
        origin = jnp.zeros(its.layout.num_latents)
        found = its.sites(origin, unconstrained)
        with_quantiles.update(name for name in names if prior_quantile(found[name]["fn"], 0.5) is not None)
        answers = [leaf for name in layout.observed for leaf in jax.tree.leaves(found[name]["fn"])]
        others = [name for name, _ in (*layout.latents, *layout.integrated)]
        latents = [leaf for name in others for leaf in jax.tree.leaves(found[name]["fn"])]
        return answers, [*latents, its.predictors(origin + 1.0, unconstrained)]

    given = [jnp.asarray(program.medians[name]) for name in names]
    traced, shape = jax.make_jaxpr(computed, return_shape=True)(given)
    first = len(shape[0])
    found = {}
    for at, name in enumerate(names):
        marks = reached(traced.jaxpr, [at == other for other in range(len(names))])
        found[name] = _Dependence(any(marks[:first]), any(marks[first:]), name in with_quantiles)
    return found


def _members(program: Program, sites: dict[str, Site], depends: dict[str, _Dependence]) -> Members | None:
    """Of the plates, if all of them can be averaged over."""
    layout = program.layout
    names = [name for name, _ in layout.hyperparameters if sites[name].plated]
    shapes = {sites[name].shape for name in names}
    # Noise of lists is scaled by their rater; that of groups is not, and is as it was.
    refused = layout.quadrature or len(layout.observed) > 1 or layout.joint or layout.observation_only
    refused = refused or any(sites[name].closed_form or sites[name].shares_noise for name in layout.observed)
    if refused or len(shapes) != 1 or len(next(iter(shapes))) != 1:
        return None
    if any(depends[name] != _Dependence(likelihoods=True, others=False, quantiles=True) for name in names):
        return None
    (number,) = shapes.pop()
    its = program.compiled
    rng = np.random.default_rng(0)
    cavity = rng.normal(0.3, 1, its.layout.num_rows), rng.uniform(0.5, 1.5, its.layout.num_rows)
    marks = np.stack([np.ones(number), np.arange(1.0, number + 1), rng.uniform(1, 2, number)])
    rows = []
    for name in names:
        # A row that depends on one entry has a derivative in proportion to what that entry moves by.
        one, place, check = np.asarray(_touched(its, name, its.medians, *cavity, marks))
        moved = np.where(one == 0, 1.0, one)
        row = np.rint(place / moved - 1).astype(np.int64)
        row = np.where(one == 0, 0, row)
        if np.any((row < 0) | (row >= number)):
            return None
        errors = [np.abs(place - (row + 1) * one), np.abs(check - marks[2][row] * one)]
        if any(np.any(error > _EXACT * np.abs(moved) * number) for error in errors):
            return None
        rows.append(row)
    if any(not np.array_equal(row, rows[0]) for row in rows):
        return None
    return Members.of(tuple(names), number, rows[0], np.asarray(its.counts))


@partial(lazy_jit, static_argnums=1)
def _touched(
    program: Program, name: str, unconstrained: Values, mean: Array, variance: Array, marks: Array
) -> Array:
    """Derivatives of every row's log normalizer where the entries of a hyperparameter move by each of ``marks``."""

    def log_normalizers(value: Array) -> Array:
        reading = program.read({**unconstrained, name: value})
        return tilted(reading.observations, reading.offset, mean, variance).log_normalizer

    return jax.vmap(lambda mark: jax.jvp(log_normalizers, (unconstrained[name],), (mark,))[1])(marks)


class Averaged(NamedTuple):
    """A program whose members are averaged over, and how an engine evaluates it."""

    program: Program
    evaluate: Any  # of the engine, from a program, unconstrained hyperparameters and sites

    def said(self, unconstrained: Values, evidence: Evidence) -> Floats:
        """What the answers say of the members there, see `relpref.infer.members.Known`; shape (K, number)."""
        its = self.program.compiled
        cavity = cavities(np.asarray(self.program.counts), evidence.sites, evidence.marginals)
        room = its.layout.num_rows
        return np.asarray(_said(its, unconstrained, *(filled(np.asarray(part), room) for part in cavity)))

    def given(self, unconstrained: Values, evidence: Evidence, at: Floats | None) -> tuple[Values, Evidence]:
        """Values of the members, and the evidence where they are known.

        At quantiles of what is known of each, of probabilities ``at``, shape (sites, number), or, without, at the means of z.
        """
        members = self.program.members
        assert members is not None
        said = self.said(unconstrained, evidence)
        standard = means(members, said) if at is None else quantiles(members, said, at)
        values = self.program.values_of_members(unconstrained, standard)
        values = {name: np.asarray(value) for name, value in values.items()}
        return values, self.evaluate(self.program.at(values), unconstrained, evidence.sites)

    def at_points(
        self, points: Points, unravel: Any, rng: np.random.Generator
    ) -> tuple[Points, list[tuple[Component, Values]]]:
        """Weighted points with members drawn for each, as evenly as their weights allow, and what is known there.

        Results of the points are components, hyperparameters and evidences.
        """
        members = self.program.members
        assert members is not None
        evidences = np.array([component.log_evidence for component, _, _ in points.results])
        log_weights = points.prior_log_weights + evidences
        weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
        shape = (len(weights), len(members.names), members.number)
        places = strata(weights, shape[1] * shape[2], rng).reshape(shape)
        found, prior = [], points.prior_log_weights.copy()
        for row, (component, values, evidence) in enumerate(points.results):
            own, known = self.given(unravel(points.vectors[row]), evidence, places[row])
            if int(known.info.code) == _CONVERGED and np.isfinite(float(known.log_evidence)):
                component = Component.of(self.program.layout, known)
                prior[row] += evidences[row] - component.log_evidence  # the weights stay
            found.append((component, values | own))
        return points._replace(prior_log_weights=prior), found

    def at_draws(self, draws: Values, sites: Sites, rng: np.random.Generator) -> Values:
        """Members for draws of the other hyperparameters, unconstrained; shapes (k, ...)."""
        members = self.program.members
        assert members is not None
        number = len(next(iter(draws.values())))
        places = strata(np.full(number, 1 / number), len(members.names) * members.number, rng)
        found = []
        for row in range(number):
            unconstrained = {name: value[row] for name, value in draws.items()}
            evidence = self.evaluate(self.program, unconstrained, sites)
            said = self.said(unconstrained, evidence)
            standard = quantiles(members, said, places[row].reshape(len(members.names), members.number))
            found.append(self.program.values_of_members(unconstrained, standard))
        return {name: np.stack([np.asarray(one[name]) for one in found]) for name in members.names}


@lazy_jit
def _said(program: Program, unconstrained: Values, mean: Array, variance: Array) -> Array:
    reading = program.read(unconstrained)
    likelihood: Any
    ((likelihood, value, _),) = reading.observations
    known: Array = likelihood.known(value, mean + reading.offset, variance).probability
    return known
