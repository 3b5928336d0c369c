"""A program's call with data that is too large for matrices, and the tables in their place."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from numpyro.primitives import Messenger

from relpref.compiled import float64
from relpref.data import PreferenceData
from relpref.data.parts import PartialGraph, marginal
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.call import Call, Model, Site, Values, broadcast_fixed, preference_data, survey
from relpref.infer.program import Program
from relpref.kernels import GaussianProcess
from relpref.kernels.graph import with_scale
from relpref.likelihoods.tilted import prior_quantile, unwrap
from relpref.limits import MAX_ITEMS_OF_ANSWERS
from relpref.linalg import Covariance, Dense, Identity, NamedSum, real
from relpref.linalg.arrays import namespace
from relpref.linalg.covariance import Pulls, root_of
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import Floats
from relpref.posterior.origin import Origin
from relpref.posterior.utility import UtilityPosterior
from relpref.result import Solves

Positions = NDArray[np.integer[Any]]


def blocks_of(prior: NamedSum, positions: Positions) -> dict[str, Floats]:
    """Prior covariances of some items by part, shape (t, t) each."""
    blocks = {name: part.block(positions, positions) for name, part in prior.parts.items()}
    return {name: np.asarray(0.5 * (block + block.T)) for name, block in blocks.items()}


@dataclass(frozen=True, eq=False)
class LargeProblem:
    """A call of a preference program."""

    origin: Origin  # the call, with ``data`` in place of the original data
    data: PreferenceData  # with scales for its graphs
    scale_error: Mapping[str, float]  # relative standard errors of estimated scales, by relation

    @classmethod
    def of(cls, origin: Origin) -> "LargeProblem":
        """Read a call, and estimate the scales of graphs that have none yet."""
        data = preference_data(origin)
        assert data is not None  # or it would not be large
        if data.comparisons.group is not None:
            raise UnsupportedProgramError(
                "the answers have groups, whose effects they share, and fits without a matrix of "
                "all items have no place for that; leave the "
                "column 'group' out, or fit with structure='dense'"
            )
        if data.comparisons.covariates is not None:
            raise UnsupportedProgramError(
                "the answers have covariates, and fits without a matrix of all items have no place "
                "for their effects; fit with "
                "structure='dense', or read the answers without covariates"
            )
        touched(data)  # refuses data without answers
        scaled = {name: with_scale(graph) for name, graph in data.relations.items()}
        errors = {name: error for name, (_, error) in scaled.items() if error is not None}
        new = replace(data, _graphs={name: graph for name, (graph, _) in scaled.items()})
        return cls(origin.with_argument(data, new), new, errors)

    def called_with(self, data: PreferenceData) -> Origin:
        """The call with other data."""
        return self.origin.with_argument(self.data, data)

    def known(self, fixed: Mapping[str, Any]) -> Values:
        """Fixed hyperparameters in the shapes of their sites; errors as in `broadcast_fixed`."""
        return broadcast_fixed(self._sample[0], dict(fixed))

    @cached_property
    def _sample(self) -> tuple[Call, list[Site]]:
        """The program called with a single answer, and its sites."""
        single = self.data.select_comparisons([0])
        one_answer = replace(self, origin=self.called_with(single), data=single)
        reduced = one_answer.reduced(touched(single), None)
        call, _ = Call.split(reduced.program, reduced.args, reduced.kwargs)
        try:
            with float64():  # posteriors ask outside of an engine, too
                return call, list(survey(call).values())
        except AttributeError as error:
            if isinstance(error.obj, PartialGraph):
                raise UnsupportedProgramError(
                    f"the program asks a relation for its {error.name}, which there is not for so "
                    "many items; make its parts as the programs of relpref.models do "
                    "(relpref.kernels.GraphCovariance), or fit with structure='dense'"
                ) from None
            raise

    @cached_property
    def latent(self) -> str:
        """Name of the site of the utilities."""
        processes = [site.name for site in self._sample[1] if site.process and not site.observed]
        if len(processes) != 1:
            raise UnsupportedProgramError(
                f"the program has {len(processes)} sites of a GaussianProcess "
                f"({', '.join(processes) or 'none'}), and programs for so "
                "many items have one, the utilities; fit with structure='dense'"
            )
        return processes[0]

    def free(self, fixed: Mapping[str, Any]) -> list[str]:
        """Names of the hyperparameters that are not fixed."""
        return [
            s.name
            for s in self._sample[1]
            if not s.observed and s.name not in (self.latent, *fixed)
        ]

    def _sites(self, values: Mapping[str, Any]) -> dict[str, Values]:
        """The sites of the program with all data, which it closes over.

        It is never compiled, because JAX would ask graphs for matrices of all their nodes.
        """
        origin = self.origin
        call, _ = Call.split(partial(origin.program, *origin.args, **origin.kwargs), (), {})
        return call.trace((), {**values, self.latent: jnp.zeros(self.data.num_items)})

    def learnable(self, fixed: Mapping[str, Any]) -> dict[str, "Learnable"]:
        """The parts of the prior whose covariances among some items depend on all items."""
        sites = self._sites(fixed)
        site_of = {id(site.get("value")): name for name, site in sites.items()}
        learnable = {}
        for name, part in self._parts(sites).items():
            if part.depends_on_others:
                named = {}
                for key, value in part.values.items():
                    if id(value) not in site_of:
                        raise UnsupportedProgramError(
                            f"part {name!r} of the prior: no site of the program is the {key} of "
                            "its kernel as it stands, so it is unknown what is to be learned"
                        )
                    named[key] = site_of[id(value)]
                priors = {site: sites[site]["fn"] for site in named.values()}
                learnable[name] = Learnable(name, part, named, priors)
        return learnable

    def _parts(self, sites: Mapping[str, Values]) -> Mapping[str, Any]:
        """Parts of the prior by name; DataError if one of them is a matrix of all items."""
        covariance: Any = unwrap(sites[self.latent]["fn"]).covariance
        parts: Mapping[str, Any] = getattr(covariance, "parts", {self.latent: covariance})
        for name, part in parts.items():
            if part.is_matrix:
                raise DataError(
                    f"the part {name!r} of the prior is a {type(part).__name__}, a matrix of all "
                    "items; make the parts of a program for "
                    "so many as those of relpref.models do, or fit with structure='dense'"
                )
        return parts

    def prior(self, values: Mapping[str, Any], progress_bar: bool = False) -> NamedSum:
        """Prior covariance of all items at given hyperparameters, by its named parts.

        With ``progress_bar`` each long solve, now and later, shows a line.
        """
        with np.errstate(over="ignore"):  # the result of a fit says that numbers are infinite
            parts = self._parts(self._sites(values)).items()
            return NamedSum({name: shown(part, name, progress_bar) for name, part in parts})

    def reduced(self, positions: Positions, tables: Mapping[str, Any] | None) -> Origin:
        """The call for some items, see `Reduced`."""
        call = self.called_with(marginal(self.data, positions))
        kwargs = {**call.kwargs, "tables": tables}
        return replace(call, program=Reduced(call.program), kwargs=kwargs)

    def read(
        self, positions: Positions, tables: Mapping[str, Any] | None, fixed: Mapping[str, Any]
    ) -> Program:
        """Read the program of some items, with all that answers are about."""
        call, dense = self.reduced(positions, tables), tables is not None
        program = Program.of(call.program, call.args, call.kwargs, fixed, dense=dense)
        if program.rows is None:
            raise UnsupportedProgramError(
                "an answer of the program looks at other utilities than those of two items, which "
                "programs for so many items may not do; fit with structure='dense'"
            )
        return program

    def subset(
        self, most_touched: int, most_answers: int, rng: np.random.Generator
    ) -> PreferenceData:
        """Answers drawn at random, within limits of answers and of items; lists stay complete."""
        data = self.data
        if data.num_comparisons <= most_answers and len(touched(data)) <= most_touched:
            return data
        seen: set[int] = set()
        chosen, number = [], 0
        rows = pd.Series(data.winner).groupby(data.comparisons.answers.of_rows).indices
        for answer in rng.permutation(len(rows)):
            comparisons = rows[answer]
            items = {*data.winner[comparisons].tolist(), *data.loser[comparisons].tolist()}
            if len(seen | items) <= most_touched:
                seen |= items
                chosen.append(answer)
                number += len(comparisons)
            if number >= most_answers or len(seen) == most_touched:
                break
        return data.select_comparisons(np.sort(chosen))


def shown(covariance: Any, name: str, progress_bar: bool) -> Any:
    """A covariance without a matrix that shows the progress of its solves."""
    try:
        return covariance.showing(lambda: Solves(f"covariances by {name}", progress_bar))
    except DataError as error:
        raise DataError(f"part {name!r} of the prior: {error}") from None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Interpolated(Covariance):
    """Covariances of t items as a function of the only hyperparameter v of a kernel.

    They are a² Σ_k T_k(y) C_k with Chebyshev's polynomials T_k, and y = (log v − centre)/reach
    clipped to −1 and 1.
    """

    centre: Any
    reach: Any
    coefficients: Any  # C, shape (k, t, t); a single one where there is nothing to be learned
    values: tuple[Any, ...] = ()  # v, or nothing where there is nothing to be learned
    amplitude: Any = 1.0  # a

    def at(self, part: Any) -> "Interpolated":
        """Covariance at the hyperparameters and the amplitude of a part of the prior."""
        values = tuple(part.values.values()) if len(self.coefficients) > 1 else ()
        return replace(self, values=values, amplitude=part.amplitude)

    def ends_at(self, value: float) -> bool:
        """Whether a value of the hyperparameter lies at an end of the range."""
        place = (np.log(value) - self.centre) / self.reach
        return len(self.coefficients) > 1 and bool(abs(place) > 0.995)

    @property
    def size(self) -> int:
        return int(self.coefficients.shape[-1])

    @property
    def _place(self) -> Any:
        """Y, or 0 where there is nothing to be learned."""
        if not self.values:
            return np.zeros(())
        xp = namespace(*self.values)
        place = (xp.log(self.values[0]) - self.centre) / self.reach
        return xp.clip(place, -1.0, 1.0)

    def _polynomials(self) -> tuple[Any, Any]:
        """Chebyshev's polynomials T_k(y) and their derivatives k U_{k−1}(y), shape (k,) each.

        They come by their recurrences, because arccos has no slope at the ends.
        """
        place = self._place
        xp, number = namespace(place), len(self.coefficients)
        first, second = [xp.ones_like(place), place], [xp.zeros_like(place), xp.ones_like(place)]
        while len(first) < number:
            first.append(2 * place * first[-1] - first[-2])
            second.append(2 * place * second[-1] - second[-2])
        slopes = [order * value for order, value in enumerate(second)]
        return xp.stack(first[:number]), xp.stack(slopes[:number])

    def scaled(self, factor: Any) -> "Interpolated":
        return replace(self, amplitude=root_of(factor) * self.amplitude)

    def dense(self) -> Any:
        polynomials, _ = self._polynomials()
        coefficients = real(self.coefficients)
        xp = namespace(polynomials, coefficients)
        return self.amplitude * self.amplitude * xp.tensordot(polynomials, coefficients, 1)

    def pull(self, weights: Any) -> Pulls:
        xp = namespace(weights)
        by_order = xp.tensordot(self.coefficients, weights, 2)
        polynomials, slopes = self._polynomials()
        pulls: Pulls = {("amplitude",): 2 * self.amplitude * (polynomials @ by_order)}
        if self.values:
            inside = xp.abs(self._place) < 1
            slope = self.amplitude * self.amplitude * (slopes @ by_order)
            pulls["values", "0"] = xp.where(inside, slope / (self.reach * self.values[0]), 0.0)
        return pulls


@dataclass(frozen=True)
class Reduced:
    """A program of some of many items.

    ``tables`` replace parts of its prior: matrices or `Interpolated`. If it is None, utilities are
    independent, which is enough to read answers.
    """

    program: Model

    def __call__(self, *args: Any, tables: Mapping[str, Any] | None, **kwargs: Any) -> None:
        with _Replaced(tables):
            self.program(*args, **kwargs)


class _Replaced(Messenger):
    """Replace the covariances of all items in a program by those from tables."""

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
        replaced = {
            name: table.at(parts[name]) if isinstance(table, Interpolated) else Dense(real(table))
            for name, table in self.tables.items()
        }
        msg["fn"] = GaussianProcess(NamedSum({**parts, **replaced}))


def touched(data: PreferenceData) -> NDArray[np.int64]:
    """Positions of the items that occur in answers, ascending; DataError if there are none."""
    positions = np.unique(np.concatenate([data.winner, data.loser])).astype(np.int64)
    if not len(positions):
        raise DataError(
            "the data has no answers; so many items can be fitted only with some: ask first about "
            "a few that you choose"
        )
    return positions


NODES = 12
# Quantiles of the prior between which the hyperparameter is looked for; a log-normal's 2.5 log-sds.
_LOWER, _UPPER, _DRAWS = 0.0062, 0.9938, 4000


class Learnable(NamedTuple):
    """A part of the prior whose covariances among some items depend on all items."""

    name: str
    part: Any  # GraphCovariance
    sites: Mapping[str, str]  # of the program, by the kernel's hyperparameter
    priors: Mapping[str, Any]  # by site

    def table(
        self, positions: Positions, fixed: Mapping[str, Any], progress_bar: bool
    ) -> Interpolated:
        """Covariances of some items over the range of the free hyperparameter, if there is one.

        Otherwise they are at the fixed hyperparameters.
        """
        free = [key for key, site in self.sites.items() if site not in fixed]
        if not free:
            values = {key: float(fixed[site]) for key, site in self.sites.items()}
            return Interpolated(
                0.0, 1.0, self._among(self.name, positions, values, progress_bar)[None]
            )
        site = self.sites[free[0]]
        prior = self.priors[site]
        if len(self.sites) > 1 or prior.shape():
            raise DataError(
                f"relation {self.name!r}: {type(self.part.kernel).__name__} has the "
                f"hyperparameters {', '.join(self.sites)}; for so many "
                "items one positive number can be learned: fix them with fixed={site: value}"
            )
        # Quantiles of the prior; of draws, where it has no quantile function.
        lower, upper = prior_quantile(prior, _LOWER), prior_quantile(prior, _UPPER)
        if lower is None:
            draws = np.asarray(prior.sample(jax.random.key(0), (_DRAWS,)))
            lower, upper = np.quantile(draws, (_LOWER, _UPPER))
        lower, upper = float(lower), float(upper)
        if not 0 < lower < upper < np.inf:
            raise DataError(
                f"relation {self.name!r}: the prior of {site} reaches from {lower} to {upper}; "
                "give one of a positive number"
            )
        centre, reach = 0.5 * np.log(lower * upper), 0.5 * np.log(upper / lower)
        angles = np.pi * (np.arange(NODES) + 0.5) / NODES
        coefficients = np.zeros((NODES, len(positions), len(positions)))
        for node, angle in enumerate(angles):
            value = float(np.exp(centre + reach * np.cos(angle)))
            label = f"{self.name}, {node + 1} of {NODES}"
            covariance = self._among(label, positions, {free[0]: value}, progress_bar)
            for order in range(NODES):
                coefficients[order] += (
                    (2 - (order == 0)) / NODES * np.cos(order * angle) * covariance
                )
        return Interpolated(centre, reach, coefficients)

    def _among(
        self, label: str, positions: Positions, values: Mapping[str, float], progress_bar: bool
    ) -> Floats:
        covariance = shown(self.part.at(values), label, progress_bar).block(positions, positions)
        return np.asarray(0.5 * (covariance + covariance.T))


Asked = TypeVar("Asked", bound=Posterior)


def answered(posterior: Asked) -> Asked:
    """The posterior of the items that answers are about; the posterior itself if it has a matrix.

    The new one is a posterior of all answers by the same program, with the prior that these items
    have among all of them, at the same fixed hyperparameters. DataError or UnsupportedProgramError
    is raised, with the reason, if it does not exist.
    """
    if not posterior.large or not isinstance(posterior, UtilityPosterior):
        return posterior
    origin = posterior.origin
    if posterior.quick_answers:
        raise DataError("the posterior has answers that came by quick updates; call update() first")
    if origin is None or not origin.engine:
        raise UnsupportedProgramError(
            "the posterior does not know its program, which says what an answer's probability is; "
            "fit in this session, or with a program of relpref.models before saving"
        )
    positions = touched(posterior.data)
    if len(positions) > MAX_ITEMS_OF_ANSWERS:
        raise DataError(
            f"answers are about {len(positions)} items, and what is said of answers needs a matrix "
            f"of these, which may be {MAX_ITEMS_OF_ANSWERS}; fit the "
            "answers about fewer (data.select_comparisons), or look at beliefs alone, without "
            "answers: posterior.subset(labels)"
        )
    problem = LargeProblem.of(origin)
    with float64():
        blocks = blocks_of(problem.prior(problem.known(posterior.hyperparameters)), positions)
    call = problem.reduced(positions, blocks)
    engine = origin.engine.changed(
        call.program, structure="dense", fixed=dict(posterior.hyperparameters)
    )
    reduced: Any = posterior.at_positions(positions)
    # Hyperparameters are fixed, so there is no search.
    info = {name: value for name, value in reduced.info.items() if name != "evaluations"}
    data, origin = preference_data(call), replace(call, engine=engine)
    reduced = replace(reduced, data=data, origin=origin, info=info)
    return reduced


def approximations(posterior: Posterior) -> list[str]:
    """Sentences on a fit without a matrix of all items and on its errors; none with a matrix."""
    info = posterior.info
    if info.get("structure") != "sparse":
        return []
    number, touched = info["entities"], info["touched"]
    many = "gap_sd_error" in info
    how = (
        "by the sparse precision of their posterior"
        if many
        else f"only one of the {touched} that answers are about, from which the others follow "
        "exactly"
    )
    said = [f"The structure is sparse: there is no matrix of all {number} items, {how}."]
    if many:
        said.append(
            "Of the uncertainty about what answers compare the largest relative error is "
            f"{info['gap_sd_error']:.2g}; it moves mean utilities by up to "
            f"{info['mean_error']:.2g}, where the noise of an answer is 1; the standard error of "
            f"the log evidence is {info['log_evidence_error']:.2g}."
        )
    if info.get("attributes_left_out"):
        said.append(
            "The attributes' covariance is one of low rank; it leaves out "
            f"{info['attributes_left_out']:.2g} of the variance."
        )
    if info.get("scale_error"):
        said.append(
            "The scale of a relation was estimated from random vectors, with a relative standard "
            f"error of {info['scale_error']:.2g}: by "
            "so much its amplitude may differ from that of a smaller fit."
        )
    searched, answers = info.get("searched_answers"), getattr(posterior, "data", None)
    if searched is not None and answers is not None and searched < answers.num_answers:
        said.append(
            f"Hyperparameters were searched for by {searched} of the {answers.num_answers} "
            "answers, drawn at random; the posterior itself knows all of them."
        )
    if info.get("at_boundary"):
        said.append(
            f"The search ended where its range ends, at {info['at_boundary']}: the answers ask for "
            "a value beyond what the prior takes to be plausible."
        )
    return said
