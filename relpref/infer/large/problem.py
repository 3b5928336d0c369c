"""A program's call with data that is too large for matrices, and what stands in for them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from relpref.data import Graph, PreferenceData, ScaleReference
from relpref.data.marginal import MarginalGraph, Table, implicit, marginal, with_references
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.large.covariance import entries_of
from relpref.infer.program import (
    Call,
    Model,
    Observation,
    Values,
    broadcast_fixed,
    preference_data,
)
from relpref.infer.result import Solves
from relpref.kernels.graph import as_implicit, graph_implicit, scale_reference, share_solver
from relpref.likelihoods import as_likelihood
from relpref.linalg import Covariance, HeatKernel, NamedSum, SparsePrecision
from relpref.posterior.gaussian import Floats

UTILITY = "utility"
_REFERENCES: WeakKeyDictionary[Graph, tuple[ScaleReference, float]] = WeakKeyDictionary()

Positions = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Request:
    """What a program makes of a relation.

    Attributes
    ----------
    kernel : GraphKernel
    normalize : bool
    sites : dict from the kernel's hyperparameter to the program's site
    """

    kernel: Any
    normalize: bool
    sites: Mapping[str, str]


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
        args, kwargs = self.called_with(self.sample)
        call, arrays = Call.split(self.program, args, kwargs)
        return broadcast_fixed(call, arrays, dict(fixed))

    def sites(
        self, data: PreferenceData, values: Mapping[str, Any], utility: Any = None
    ) -> dict[str, dict[str, Any]]:
        """Every site of the program on other data, at given values (and utilities, or none); run as it is, not compiled."""
        args, kwargs = self.called_with(data)
        call, nothing = Call.split(partial(self.program, *args, **kwargs), (), {})
        at = jnp.zeros(data.num_entities) if utility is None else jnp.asarray(utility)
        found = call.trace(nothing, {**values, UTILITY: at})
        if UTILITY not in found:
            raise UnsupportedProgramError(
                f"the program has no site {UTILITY!r}, which programs for so many entities need; name the utilities so"
            )
        return found

    @cached_property
    def sample(self) -> PreferenceData:
        """The data of one answer, from which it can be told what the program is."""
        one = self.data.select_comparisons([0])
        return marginal(one, touched(one))

    def requests(self, values: Mapping[str, Any]) -> dict[str, Request]:
        """What the program makes of each relation."""
        data = replace(self.sample, _graphs=fresh(self.sample.relations))
        sites = self.sites(data, values)
        found: dict[str, Request] = {}
        for name, graph in data.relations.items():
            assert isinstance(graph, MarginalGraph)
            if not graph.requests:
                continue  # as preference_gp, which ranks by attributes alone
            if len(graph.requests) != 1:
                raise UnsupportedProgramError(
                    f"the program makes {len(graph.requests)} covariances of the relation {name!r}; for so many entities it is to make one "
                    "(relpref.kernels.graph_covariance): merge them, or fit with structure='dense'"
                )
            kernel, normalize, keys = graph.requests[0]
            named = {key: _sites_called(f"{name}_{key}", sites) for key in keys}
            lost = [key for key, candidates in named.items() if len(candidates) != 1]
            if lost:
                raise UnsupportedProgramError(
                    f"relation {name!r}: no site of the program is called {name}_{lost[0]}, so nobody knows what is to be learned"
                )
            found[name] = Request(kernel, normalize, {key: sites_of[0] for key, sites_of in named.items()})
        return found

    def with_tables(
        self, positions: Positions, tables: Mapping[str, Table], spare: int = 0
    ) -> PreferenceData:
        """The data of some entities, with their covariances by every relation.

        ``spare`` entities more, which no answer is about, change nothing but the shape, for which a program is compiled.
        """
        data = marginal(self.data, positions, spare)
        graphs: Any = {
            name: MarginalGraph(
                data.num_entities,
                graph.reference,
                padded(tables[name], spare) if name in tables else None,
            )
            for name, graph in self.data.relations.items()
        }
        return replace(data, _graphs=graphs)

    def read(self, values: Mapping[str, Any], progress_bar: bool = False) -> "LargeReading":
        """What the program is at given hyperparameters; with a line for each long solve, now and later, if ``progress_bar``.

        Raises
        ------
        UnsupportedProgramError
            If an answer looks at more than the utilities of its two entities.
        """
        data = implicit(self.data)
        sites = self.sites(data, values)
        observed = [name for name, site in sites.items() if site["type"] == "sample" and site["is_observed"]]
        observations = tuple(Observation.of(sites[name]) for name in observed)

        def predictors(found: Mapping[str, dict[str, Any]]) -> Floats:
            return np.concatenate([np.ravel(as_likelihood(found[name]["fn"]).predictor) for name in observed])

        offset = predictors(sites)
        probes = np.random.default_rng(0).standard_normal((3, self.data.num_entities))
        looked = np.stack([predictors(self.sites(data, values, probe)) - offset for probe in probes])
        ends = np.stack([self.data.winner, self.data.loser])
        entries = entries_of(probes, looked, ends) if looked.shape[1] == ends.shape[1] else None
        if entries is None:
            raise UnsupportedProgramError(
                "an answer of the program looks at other utilities than those of its two entities, which programs for so many entities "
                "may not do; fit with structure='dense'"
            )
        covariance = sites[UTILITY]["fn"].covariance
        parts: dict[str, Covariance] = {
            name: shown(as_implicit(part), name, progress_bar) for name, part in covariance.parts.items()
        }
        return LargeReading(NamedSum(parts), observations, offset, ends, entries)

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


def shown(covariance: Covariance, name: str, progress_bar: bool) -> Covariance:
    """A covariance that tells how far its solves are."""
    if not isinstance(covariance, SparsePrecision | HeatKernel):
        return covariance
    return replace(covariance, progress=Solves(f"covariances by {name}", progress_bar))


def _sites_called(name: str, sites: Mapping[str, Any]) -> list[str]:
    """The site of a name, or those of the name after a prefix; a relation's name may be the end of another's."""
    return [name] if name in sites else [site for site in sites if site.endswith(name)]


def fresh(graphs: Mapping[str, Any]) -> Any:
    """The graphs of a sample, of which nothing was asked yet."""
    return {name: MarginalGraph(graph.num_nodes, graph.reference) for name, graph in graphs.items()}


def padded(table: Table, spare: int) -> Table:
    """A table with entities more that are independent of all others."""
    if not spare:
        return table
    grown = np.pad(np.asarray(table.coefficients), ((0, 0), (0, spare), (0, spare)))
    at = np.arange(grown.shape[1] - spare, grown.shape[1])
    grown[0, at, at] = 1.0
    return replace(table, coefficients=grown)


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


def constant(
    name: str,
    graph: Graph,
    request: Request,
    positions: NDArray[Any],
    values: Mapping[str, Any],
    progress_bar: bool,
) -> Table:
    known = {key: float(values[site]) for key, site in request.sites.items()}
    return Table(0.0, 1.0, _covariance(name, graph, request, positions, known, progress_bar)[None])


def interpolated(
    name: str,
    graph: Graph,
    request: Request,
    positions: NDArray[Any],
    fixed: Mapping[str, Any],
    sites: Mapping[str, Any],
    progress_bar: bool,
) -> Table:
    """Over the range of the hyperparameter that is to be found; at the known ones if none is.

    Raises
    ------
    DataError
        If several hyperparameters of the kernel are to be found, or one that is no positive scalar.
    """
    free = [key for key, site in request.sites.items() if site not in fixed]
    if not free:
        return constant(name, graph, request, positions, fixed, progress_bar)
    prior = sites[request.sites[free[0]]]["fn"]
    if len(request.sites) > 1 or prior.shape():
        raise DataError(
            f"relation {name!r}: {type(request.kernel).__name__} has the hyperparameters {', '.join(request.sites)}; for so many entities "
            "one positive number can be learned: fix them with fixed={site: value}"
        )
    lower, upper = _range(prior)
    if not 0 < lower < upper < np.inf:
        raise DataError(
            f"relation {name!r}: the prior of {request.sites[free[0]]} reaches from {lower} to {upper}; give one of a positive number"
        )
    centre, reach = 0.5 * np.log(lower * upper), 0.5 * np.log(upper / lower)
    angles = np.pi * (np.arange(NODES) + 0.5) / NODES
    coefficients = np.zeros((NODES, len(positions), len(positions)))
    for node, angle in enumerate(angles):
        value = float(np.exp(centre + reach * np.cos(angle)))
        label = f"{name}, {node + 1} of {NODES}"
        covariance = _covariance(label, graph, request, positions, {free[0]: value}, progress_bar)
        for order in range(NODES):
            coefficients[order] += (2 - (order == 0)) / NODES * np.cos(order * angle) * covariance
    return Table(centre, reach, coefficients)


def _range(prior: Any) -> tuple[float, float]:
    """Quantiles of a prior; of draws, where it has no quantile function."""
    try:
        return float(prior.icdf(_LOWER)), float(prior.icdf(_UPPER))
    except (NotImplementedError, ImportError):  # numpyro says it in both ways
        draws = np.asarray(prior.sample(jax.random.key(0), (_DRAWS,)))
        return float(np.quantile(draws, _LOWER)), float(np.quantile(draws, _UPPER))


def _covariance(
    label: str,
    graph: Graph,
    request: Request,
    positions: NDArray[Any],
    values: Mapping[str, float],
    progress_bar: bool,
) -> NDArray[np.float64]:
    form = shown(graph_implicit(request.kernel, graph, request.normalize, values), label, progress_bar)
    covariance = form.block(positions, positions)
    return np.asarray(0.5 * (covariance + covariance.T))


def at_boundary(table: Table, value: float) -> bool:
    """Whether a hyperparameter was found where the range ends."""
    place = (np.log(value) - table.centre) / table.reach
    return len(table.coefficients) > 1 and bool(abs(place) > 0.995)
