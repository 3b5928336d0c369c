"""Draws from a program: hyperparameters, Gaussian sites and answers; and the program with such answers in place of the data's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers

from relpref.data import PreferenceData, Rankings
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.class_posterior import DECISION
from relpref.infer.exact.structure import find_structure
from relpref.infer.layout import discover, shapes_of, survey
from relpref.infer.program import Call, Layout, Program, Values, in_double


@dataclass(frozen=True)
class Answered:
    """A program with other answers, which are its first argument: all simulations share what JAX compiles."""

    program: Program

    def __call__(self, answers: Values, *args: Any, **kwargs: Any) -> None:
        """Run it with them observed."""
        args = tuple(_labelled(value, answers) for value in args)
        kwargs = {name: _labelled(value, answers) for name, value in kwargs.items()}
        labelled = any(isinstance(value, Rankings) for value in (*args, *kwargs.values()))
        with handlers.condition(data={} if labelled and DECISION in answers else answers):
            self.program(*args, **kwargs)


@dataclass(frozen=True)
class Unanswered:
    """A program whose observed sites are drawn like the others."""

    program: Program

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run it."""
        with handlers.uncondition():
            self.program(*args, **kwargs)


@dataclass(frozen=True)
class Known:
    """A program some of whose sites have known values, which are its first argument; to engines they are no sites."""

    program: Program

    def __call__(self, known: Values, *args: Any, **kwargs: Any) -> None:
        """Run it with them."""
        inner = handlers.substitute(self.program, data=known)
        handlers.block(inner, hide=list(known))(*args, **kwargs)


@dataclass(frozen=True)
class Questions:
    """What is simulated: a program and what it was called with.

    Attributes
    ----------
    program : callable
    args : tuple
    kwargs : mapping
        Without answers, or with answers that are not looked at.
    layout : Layout
        Which of its sites are what.
    """

    program: Program
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    layout: Layout

    @classmethod
    def of(
        cls,
        program: Program,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        relation: bool = False,
        sampled: bool = False,
    ) -> "Questions":
        """Look at a program; inside of ``enable_x64``.

        Parameters
        ----------
        program, args, kwargs
        relation : bool
            It is one for the exact engine.
        sampled : bool
            A sampler takes it, and with it what no Gaussian engine but the exact one does: labels that depend on each other.

        Raises
        ------
        UnsupportedProgramError
            If it has no observed site, or no Gaussian one that enters the predictors linearly.
        DataError
            If what it observes could not have been drawn from it.
        """
        args = tuple(_one_by_one(value) for value in args)
        kwargs = {name: _one_by_one(value) for name, value in kwargs.items()}
        call, arrays = split(program, args, kwargs)
        layout = _relation_layout(call, arrays) if relation else _layout(call, arrays, sampled)
        hidden = tuple(_hidden(value) for value in args)
        return cls(program, hidden, {name: _hidden(value) for name, value in kwargs.items()}, layout)

    def draw(self, keys: Array) -> "Draws":
        """One simulation for each of s keys."""
        call, arrays = split(Unanswered(self.program), self.args, self.kwargs)
        sites = jax.tree.map(np.asarray, _draw(call, arrays, keys))
        known = {name: sites[name] for name, _ in self.layout.hyperparameters}
        latents = {name: sites[name] for name, _ in self.layout.latents}
        return Draws(known, latents, {name: sites[name] for name in self.layout.observed})

    def call(self, answers: Values) -> tuple[Call, tuple[Any, ...]]:
        """The program with simulated answers, for JAX; the arrays begin with those of the answers."""
        return split(Answered(self.program), (answers, *self.args), self.kwargs)


@dataclass(frozen=True)
class Draws:
    """Simulations.

    Attributes
    ----------
    hyperparameters, latents, answers : dict from site to array, shape (s, ...)
    """

    hyperparameters: Values
    latents: Values
    answers: Values

    def __getitem__(self, row: int) -> "Draws":
        """One of them."""
        parts = (self.hyperparameters, self.latents, self.answers)
        return Draws(*({name: value[row] for name, value in part.items()} for part in parts))

    def vector(self, layout: Layout) -> Any:
        """The joint latent vector of one."""
        return np.concatenate([np.ravel(self.latents[name]) for name, _ in layout.latents])


@partial(jax.jit, static_argnums=0)
def _draw(call: Call, arrays: tuple[Any, ...], keys: Array) -> Values:
    def one(key: Array) -> Values:
        sites = call.trace(arrays, {}, key)
        return {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}

    return jax.vmap(one)(keys)


def split(program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, tuple[Any, ...]]:
    """A call for JAX, in double precision."""
    call, arrays = Call.split(program, args, kwargs)
    return call, tuple(in_double(array) for array in arrays)


def _layout(call: Call, arrays: tuple[Any, ...], sampled: bool) -> Layout:
    try:
        found = discover(call, arrays, {})
    except UnsupportedProgramError:
        if not sampled:
            raise
        return _relation_layout(call, arrays)
    if not np.all(np.isin(found.counts, (0.0, 1.0))):
        raise DataError(
            "the program gives some of its answers another weight than one, so that they cannot be drawn; calibrate it without weights"
        )
    return found.layout


def _relation_layout(call: Call, arrays: tuple[Any, ...]) -> Layout:
    structure = find_structure(call, arrays, {})
    if structure.loss == "ranking" and structure.symmetry != "none":
        raise DataError(
            f"the ranking loss uses every label of a {structure.symmetry} relation at both its ends, which is no distribution of labels "
            "to draw from; take loss='regression', which is relpref conditional fit --loss regression"
        )
    shapes = {site.name: site.shape for site in survey(call, shapes_of(arrays))}
    hyperparameters = tuple((name, shapes[name]) for name in structure.hyperparameters)
    return Layout(
        ((structure.field, shapes[structure.field]),),
        hyperparameters,
        (structure.label,),
        num_rows=int(np.prod(shapes[structure.label])),
    )


def _one_by_one(value: Any) -> Any:
    """Every answer a row of its own: to an answer that was given k times belong k simulated ones, which may differ."""
    if not isinstance(value, PreferenceData):
        return value
    return replace(value, comparisons=value.comparisons.single())


def _hidden(value: Any) -> Any:
    """Without what would tell a program which answers there were."""
    if isinstance(value, PreferenceData):
        return value.without_answers()
    return value.without_labels() if isinstance(value, Rankings) else value


def _labelled(value: Any, answers: Values) -> Any:
    """Rankings with the classes that the decisions lead to: which decisions were taken depends on them."""
    if not isinstance(value, Rankings) or DECISION not in answers:
        return value
    went_on = jnp.cumprod(answers[DECISION], axis=1)  # to stop at the first class is 0
    label: Any = jnp.sum(went_on, axis=1).astype(np.int32)
    return replace(value, label=label)
