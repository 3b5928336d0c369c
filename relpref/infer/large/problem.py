"""A program's call with data that is too large for matrices, and what stands in for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse
from jax import Array
from numpy.typing import NDArray
from numpyro.primitives import Messenger

from relpref.data import Graph, PreferenceData, ScaleReference
from relpref.data.marginal import PartialGraph, marginal, with_references
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.program import (
    Call,
    Layout,
    Model,
    Observation,
    Program,
    Values,
    broadcast_fixed,
    preference_data,
    shapes_of,
    survey,
)
from relpref.infer.result import Solves
from relpref.infer.sites import SparseRows
from relpref.kernels import GaussianProcess
from relpref.kernels.graph import scale_reference, share_solver
from relpref.linalg import Dense, Identity, NamedSum, real
from relpref.posterior.gaussian import Floats

_REFERENCES: WeakKeyDictionary[Graph, tuple[ScaleReference, float]] = WeakKeyDictionary()

Positions = NDArray[np.integer[Any]]


class LargeReading(NamedTuple):
    """A program at known hyperparameters.

    Attributes
    ----------
    prior : NamedSum
        The prior covariance of all entities, by its named parts.
    observations : tuple of Observation
    offset : array, shape (m,)
        The predictors where all utilities are 0.
    ends : array of int, shape (2, m)
        The entities of each answer.
    entries : array, shape (2, m)
        With which weights its predictor looks at them.
    """

    prior: NamedSum
    observations: tuple[Observation, ...]
    offset: Floats
    ends: Positions
    entries: Floats

    @property
    def counts(self) -> Floats:
        """How many answers each row stands for, shape (m,)."""
        return np.concatenate([np.asarray(one.counts) for one in self.observations])

    def projection(self, positions: Positions) -> Any:
        """The projection on some entities, all that answers are about among them: a sparse array, shape (m, t)."""
        number = self.ends.shape[1]
        rows = np.arange(number)
        both = (np.concatenate([rows, rows]), np.searchsorted(positions, self.ends).ravel())
        return scipy.sparse.csr_array((self.entries.ravel(), both), shape=(number, len(positions)))


class _Whole(Program):
    """A program that is run as it is, never compiled: JAX would ask graphs for matrices of all their nodes."""

    def sites(self, vector: Array, unconstrained: Values | None = None, key: Any = None) -> dict[str, Values]:
        values = {**self.fixed, **self.layout.unravel(vector)}
        found = self.call.trace(self.arrays, values, 0, unconstrained)
        return {name: site for name, site in found.items() if site["type"] == "sample"}


@dataclass(frozen=True, eq=False)
class LargeProblem:
    """A call of a preference program.

    Attributes
    ----------
    program : callable
    args, kwargs
        As it was called, with ``data`` in place of what was given.
    data : PreferenceData
        With scales for its graphs.
    scale_error : dict from relation to float
        Relative standard error of the scale of a graph whose spectrum was only estimated.
    """

    program: Model
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    data: PreferenceData
    scale_error: Mapping[str, float]

    @classmethod
    def of(cls, program: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "LargeProblem":
        """Estimate the scales of graphs that have none yet."""
        data = preference_data(args, kwargs)
        assert data is not None  # or it would not be large
        touched(data)  # refuses data without answers
        references, errors = {}, {}
        for name, graph in data.relations.items():
            if graph.frozen_reference is None:
                if graph not in _REFERENCES:
                    _REFERENCES[graph] = scale_reference(graph)
                references[name], errors[name] = _REFERENCES[graph]
            elif graph in _REFERENCES:  # estimated by an earlier fit, which this one updates
                errors[name] = _REFERENCES[graph][1]
        scaled = with_references(data, references) if references else data
        for name, reference in references.items():
            _REFERENCES[scaled.relations[name]] = reference, errors[name]
            share_solver(data.relations[name], scaled.relations[name])
        return cls(program, *_swapped(args, kwargs, data, scaled), scaled, errors)

    def called_with(self, data: PreferenceData) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other data."""
        return _swapped(self.args, self.kwargs, self.data, data)

    def known(self, fixed: Mapping[str, Any]) -> Values:
        """Fixed hyperparameters in the shapes of their sites; errors as of `broadcast_fixed`."""
        call, arrays = self._sample
        return broadcast_fixed(call, arrays, dict(fixed))

    @cached_property
    def _sample(self) -> tuple[Call, tuple[Any, ...]]:
        """The program with a single answer, from which it can be told what it is."""
        one = self.data.select_comparisons([0])
        args, kwargs = self.called_with(marginal(one, touched(one)))
        call, arrays = Call.split(Reduced(self.program), args, {**kwargs, "tables": None})
        try:
            survey(call, shapes_of(arrays))
        except AttributeError as error:
            if isinstance(error.obj, PartialGraph):
                raise UnsupportedProgramError(
                    f"the program asks a relation for its {error.name}, which there is not for so many entities; make its parts as the "
                    "programs of relpref.models do (relpref.kernels.graph_covariance), or fit with structure='dense'"
                ) from None
            raise
        return call, arrays

    @cached_property
    def latent(self) -> str:
        """Name of the site of the utilities."""
        processes = [
            site.name for site in survey(*_shaped(self._sample)) if site.process and not site.observed
        ]
        if len(processes) != 1:
            raise UnsupportedProgramError(
                f"the program has {len(processes)} sites of a GaussianProcess ({', '.join(processes) or 'none'}), and programs for so "
                "many entities have one, the utilities; fit with structure='dense'"
            )
        return processes[0]

    def free(self, fixed: Mapping[str, Any]) -> list[str]:
        """Hyperparameters that are to be found."""
        sites = survey(*_shaped(self._sample))
        return [s.name for s in sites if not s.observed and s.name != self.latent and s.name not in fixed]

    def _whole(self, values: Mapping[str, Any]) -> Program:
        """The program with all data, closed over: their graphs are too large to be flattened."""
        call, _ = Call.split(partial(self.program, *self.args, **self.kwargs), (), {})
        observed = tuple(site.name for site in survey(*_shaped(self._sample)) if site.observed)
        layout = Layout(((self.latent, (self.data.num_entities,)),), (), observed)
        return _Whole(call, layout, (), dict(values))

    def learnable(self, fixed: Mapping[str, Any]) -> dict[str, "Learnable"]:
        """The parts of the prior whose covariances among some entities depend on all."""
        program = self._whole(fixed)
        sites = program.sites(jnp.zeros(self.data.num_entities))
        found = {}
        for name, part in self._parts(sites[self.latent]["fn"].covariance).items():
            if part.depends_on_others:
                named = {
                    key: next((site for site, at in sites.items() if at["value"] is value), None)
                    for key, value in part.values.items()
                }
                lost = [key for key, site in named.items() if site is None]
                if lost:
                    raise UnsupportedProgramError(
                        f"part {name!r} of the prior: no site of the program is the {lost[0]} of its kernel as it stands, so nobody knows "
                        "what is to be learned"
                    )
                priors = {site: sites[site]["fn"] for site in named.values() if site}
                found[name] = Learnable(name, part, {key: str(site) for key, site in named.items()}, priors)
        return found

    def _parts(self, covariance: Any) -> Mapping[str, Any]:
        """Parts by name, none of them a matrix of all entities."""
        parts: Mapping[str, Any] = getattr(covariance, "parts", {self.latent: covariance})
        for name, part in parts.items():
            if part.is_matrix:
                raise DataError(
                    f"the part {name!r} of the prior is a {type(part).__name__}, a matrix of all entities; make the parts of a program for "
                    "so many as those of relpref.models do, or fit with structure='dense'"
                )
        return parts

    def reduced(
        self, positions: Positions, tables: Mapping[str, Any], spare: int = 0
    ) -> tuple[Model, tuple[Any, ...], dict[str, Any]]:
        """The program of some entities, with what covariances of parts of its prior are among these.

        ``spare`` entities more, which no answer is about, change nothing but the shape, for which a program is compiled.
        """
        args, kwargs = self.called_with(marginal(self.data, positions, spare))
        program = self.program
        while isinstance(program, partial):  # keywords are looked at, such as the likelihood
            args, kwargs, program = (*program.args, *args), {**program.keywords, **kwargs}, program.func
        return Reduced(program), args, {**kwargs, "tables": dict(tables)}

    def read(self, values: Mapping[str, Any], progress_bar: bool = False) -> LargeReading:
        """What the program is at given hyperparameters; with a line for each long solve, now and later, if ``progress_bar``.

        Raises
        ------
        UnsupportedProgramError
            If an answer looks at more than two utilities.
        """
        reading = self._whole(values).read(in_memory=False)
        number = len(reading.offset)
        rows = SparseRows.find(
            lambda vector: reading.projection.apply(jnp.asarray(vector)), (number, self.data.num_entities)
        )
        if rows is None:
            raise UnsupportedProgramError(
                "an answer of the program looks at other utilities than those of two entities, which programs for so many entities "
                "may not do; fit with structure='dense'"
            )
        parts = self._parts(reading.covariance.blocks[0])
        prior = {name: shown(part, name, progress_bar) for name, part in parts.items()}
        ends, entries = np.asarray(rows.column).T, np.asarray(rows.entry).T
        return LargeReading(NamedSum(prior), reading.observations, np.asarray(reading.offset), ends, entries)

    def subset(self, most_touched: int, most_answers: int, rng: np.random.Generator) -> PreferenceData:
        """The data with so many answers, drawn at random, that no more than so many entities are touched."""
        data = self.data
        if data.num_comparisons <= most_answers and len(touched(data)) <= most_touched:
            return data
        seen: set[int] = set()
        rows = []
        for row in rng.permutation(data.num_comparisons):
            both = {int(data.winner[row]), int(data.loser[row])}
            if len(seen | both) <= most_touched:
                seen |= both
                rows.append(int(row))
            if len(rows) == most_answers or len(seen) == most_touched:
                break
        return data.select_comparisons(np.sort(rows))


def shown(covariance: Any, name: str, progress_bar: bool) -> Any:
    """A covariance without a matrix, which tells how far its solves are."""
    try:
        return covariance.showing(lambda: Solves(f"covariances by {name}", progress_bar))
    except DataError as error:
        raise DataError(f"part {name!r} of the prior: {error}") from None


def _shaped(sample: tuple[Call, tuple[Any, ...]]) -> tuple[Call, Any]:
    return sample[0], shapes_of(sample[1])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Known:
    """Covariances of some entities by a part of the prior, whatever its hyperparameters are.

    Attributes
    ----------
    matrix : array, shape (t, t)
    """

    matrix: Any

    def at(self, part: Any) -> Dense:
        return Dense(real(self.matrix))

    def padded(self, spare: int) -> "Known":
        """With entities more that are independent of all others."""
        return Known(scipy.linalg.block_diag(self.matrix, np.eye(spare))) if spare else self


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Table:
    """Covariances of t entities as a function of a kernel's one hyperparameter v, Σ_k T_k(y) C_k with Chebyshev's polynomials T_k.

    Attributes
    ----------
    center, reach : float
        y = (log v − center)/reach, which is held within −1 and 1.
    coefficients : array, shape (k, t, t)
        C; a single one where there is nothing to be learned.
    """

    centre: Any
    reach: Any
    coefficients: Any

    def at(self, part: Any) -> Dense:
        """At the hyperparameters of a part of the prior, scaled as it is."""
        coefficients = real(self.coefficients)
        if len(coefficients) == 1:
            return Dense(coefficients[0]).scaled(part.scale)
        (value,) = part.values.values()
        place = jnp.clip((jnp.log(value) - self.centre) / self.reach, -1.0, 1.0)
        # T_k(y) by its recurrence: arccos has no slope at the ends.
        terms = [jnp.ones(()), place]
        while len(terms) < len(coefficients):
            terms.append(2 * place * terms[-1] - terms[-2])
        return Dense(jnp.tensordot(jnp.stack(terms), coefficients, 1)).scaled(part.scale)

    def ends_at(self, value: float) -> bool:
        """Whether a hyperparameter was found where the range ends."""
        place = (np.log(value) - self.centre) / self.reach
        return len(self.coefficients) > 1 and bool(abs(place) > 0.995)


@dataclass(frozen=True)
class Reduced:
    """A program of some entities of many.

    ``tables`` hold what parts of its prior are among these; with None of them utilities are independent, for whoever
    only looks at the sites.
    """

    program: Model

    def __call__(self, *args: Any, tables: Mapping[str, Any] | None, **kwargs: Any) -> None:
        with _Replaced(tables):
            self.program(*args, **kwargs)


class _Replaced(Messenger):
    """Puts covariances from tables in place of those that a program makes of all entities."""

    def __init__(self, tables: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.tables = tables

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or not isinstance(msg["fn"], GaussianProcess):
            return
        covariance = msg["fn"].covariance
        if self.tables is None:
            msg["fn"] = GaussianProcess(Identity(covariance.size))
            return
        parts = getattr(covariance, "parts", {msg["name"]: covariance})
        known = {name: table.at(parts[name]) for name, table in self.tables.items()}
        msg["fn"] = GaussianProcess(NamedSum({**parts, **known}))


def touched(data: PreferenceData) -> NDArray[np.int64]:
    """Positions of the entities that occur in answers, ascending.

    Raises
    ------
    DataError
        If there are no answers.
    """
    found = np.unique(np.concatenate([data.winner, data.loser])).astype(np.int64)
    if not len(found):
        raise DataError(
            "the data has no answers; so many entities can be fitted only with some: ask first about a few that you choose"
        )
    return found


def _swapped(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], old: Any, new: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (
        tuple(new if a is old else a for a in args),
        {name: new if a is old else a for name, a in kwargs.items()},
    )


NODES = 12
# Quantiles of the prior between which the hyperparameter is looked for; a log-normal's 2.5 log-sds.
_LOWER, _UPPER, _DRAWS = 0.0062, 0.9938, 4000


class Learnable(NamedTuple):
    """A part of the prior whose covariances among some entities depend on all, and what is to be learned of it.

    Attributes
    ----------
    name : str
    part : GraphCovariance
    sites : dict from the kernel's hyperparameter to the program's site
    priors : dict from site to distribution
    """

    name: str
    part: Any
    sites: Mapping[str, str]
    priors: Mapping[str, Any]

    def table(self, positions: Positions, fixed: Mapping[str, Any], progress_bar: bool) -> Table:
        """Covariances of some entities over the range of the hyperparameter to be found; at the known ones if none is.

        Raises
        ------
        DataError
            If several hyperparameters of the kernel are to be found, or one that is no positive scalar.
        """
        free = [key for key, site in self.sites.items() if site not in fixed]
        if not free:
            known = {key: float(fixed[site]) for key, site in self.sites.items()}
            return Table(0.0, 1.0, self._among(self.name, positions, known, progress_bar)[None])
        site = self.sites[free[0]]
        prior = self.priors[site]
        if len(self.sites) > 1 or prior.shape():
            raise DataError(
                f"relation {self.name!r}: {type(self.part.kernel).__name__} has the hyperparameters {', '.join(self.sites)}; for so many "
                "entities one positive number can be learned: fix them with fixed={site: value}"
            )
        lower, upper = _range(prior)
        if not 0 < lower < upper < np.inf:
            raise DataError(
                f"relation {self.name!r}: the prior of {site} reaches from {lower} to {upper}; give one of a positive number"
            )
        centre, reach = 0.5 * np.log(lower * upper), 0.5 * np.log(upper / lower)
        angles = np.pi * (np.arange(NODES) + 0.5) / NODES
        coefficients = np.zeros((NODES, len(positions), len(positions)))
        for node, angle in enumerate(angles):
            value = float(np.exp(centre + reach * np.cos(angle)))
            label = f"{self.name}, {node + 1} of {NODES}"
            covariance = self._among(label, positions, {free[0]: value}, progress_bar)
            for order in range(NODES):
                coefficients[order] += (2 - (order == 0)) / NODES * np.cos(order * angle) * covariance
        return Table(centre, reach, coefficients)

    def _among(
        self, label: str, positions: Positions, values: Mapping[str, float], progress_bar: bool
    ) -> Floats:
        covariance = shown(self.part.at(values), label, progress_bar).block(positions, positions)
        return np.asarray(0.5 * (covariance + covariance.T))


def _range(prior: Any) -> tuple[float, float]:
    """Quantiles of a prior; of draws, where it has no quantile function."""
    try:
        return float(prior.icdf(_LOWER)), float(prior.icdf(_UPPER))
    except (NotImplementedError, ImportError):  # numpyro says it in both ways
        draws = np.asarray(prior.sample(jax.random.key(0), (_DRAWS,)))
        return float(np.quantile(draws, _LOWER)), float(np.quantile(draws, _UPPER))
