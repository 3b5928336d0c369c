"""Posteriors: distributions of the Gaussian sites of a program, and facts about the fit."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from relpref.data import RelationData
from relpref.data.arrays import shown
from relpref.errors import DataError, StorageError, UnsupportedProgramError
from relpref.posterior.arviz import Groups, draw_groups, native, plain_coordinates, tree
from relpref.posterior.codec import (
    Arrays,
    Stored,
    check_arguments,
    checked,
    decode,
    encode,
    write,
)
from relpref.posterior.gaussian import Belief, Floats, Positions, belief_from, generator
from relpref.posterior.origin import Origin
from relpref.posterior.plots import plot_forest
from relpref.posterior.summary import Summary, fitted, forest
from relpref.posterior.tables import check_interval
from relpref.registry import find
from relpref.result import InferenceWarning, Result, warn_user

FITTED = "answers_at_fit"  # of ``info``: how many there were when hyperparameters were last fitted
_SCORE = "score"  # the site of `relpref.models.conditional_ranking`
T = TypeVar("T")


@dataclass(frozen=True)
class Parts:
    """Posterior means of the named parts of a site, and covariances of part and total.

    Arrays of shape (n,), value by value.

    They add up to the site's mean and variance.
    """

    means: Mapping[str, Floats]
    covariances: Mapping[str, Floats]


class _Fact(Generic[T]):
    """A typed property, from what ``info`` says."""

    def __init__(self, name: str, kind: Callable[[Any], T], missing: T) -> None:
        self._name, self._kind, self._missing = name, kind, missing

    def __get__(self, posterior: Any, owner: type) -> T:
        value = None if posterior is None else posterior.info.get(self._name)
        return self._missing if value is None else self._kind(value)


class PosteriorBase:
    """Base class of all posteriors.

    Attributes
    ----------
    kind : str
        ``"utilities"``, ``"relation"``, ``"classes"``; ``"program"`` for a custom program of
        another form.
    hyperparameters : dict from site to array or float
    log_evidence : float or None
    info : dict
        What the engine reports, for people; what decisions need is an attribute of its own.
    key : array of uint32
        Random key of Monte Carlo answers.
    sampled, large : bool
        Whether the distribution is made of draws; whether the covariance, too large for a matrix,
        is evaluated where it is needed.
    engine, solver : str
        Name of the engine, ``"samples"`` for draws made elsewhere; how an exact posterior was
        solved for, empty of the others.
    chains, effective_draws, r_hat : int, float or None, float or None
        Number of chains; effective number of draws, and largest R-hat over hyperparameters, where
        the engine found them.
    effective_points : float
        Effective number of weighted hyperparameters, see `relpref.infer.importance`; infinite
        without weights.
    gradient_norm : float
        Of the gradient where the search for hyperparameters ended; 0 without a search.
    lists : str
        The lists (choices, orderings) that pairs of answers were formed from, in words; empty where
        there are none.
    corrected : bool
        Whether means and covariances were put right when the fit checked itself.
    quick_answers : int
        Answers that came by quick updates since the engine last ran.
    indistinguishable_parts : tuple of (str, str)
        Pairs of parts of the prior that answers cannot tell apart.
    """

    kind: ClassVar[str] = "program"
    hyperparameters: Mapping[str, Any]
    log_evidence: float | None
    info: Mapping[str, Any]
    key: NDArray[np.uint32]

    engine = _Fact("engine", str, "")
    chains = _Fact("chains", int, 1)
    effective_draws = _Fact[float | None]("ess", float, None)
    effective_points = _Fact("effective_points", float, np.inf)
    r_hat = _Fact[float | None]("r_hat", float, None)
    solver = _Fact("solver", str, "")
    gradient_norm = _Fact("gradient_norm", float, 0.0)
    lists = _Fact("answers", str, "")
    quick_answers = _Fact("quick_answers", int, 0)
    corrected = _Fact("corrected", bool, False)
    indistinguishable_parts = _Fact[tuple[tuple[str, str], ...]](
        "alike_parts", lambda pairs: tuple(map(tuple, pairs)), ()
    )

    @property
    def result(self) -> Result:
        """Result code of the inference."""
        return Result[self.info["result"]]

    @property
    def converged(self) -> bool:
        """Whether the answers may be used without a warning."""
        return self.result.ok

    @property
    def empty(self) -> bool:
        """Whether the engine gave no numbers: all of them are NaN."""
        return self.result.empty

    @property
    def searched(self) -> bool:
        """Whether hyperparameters were searched for."""
        return "evaluations" in self.info

    @property
    def sampled(self) -> bool:
        return False

    @property
    def large(self) -> bool:
        return False

    def datasets(self) -> dict[str, Any]:
        """The data that the posterior comes from, by the name of the program's argument."""
        return {}

    def arrays(self) -> Stored:
        """Arrays by name, and JSON, for a file."""
        raise NotImplementedError

    def groups(self, num_samples: int, rng_key: Any) -> Groups:
        """Groups of arrays for ArviZ, with their coordinates and dimensions."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one netCDF file, replacing it whole or not at all; `relpref.load` reads it back.

        Raises
        ------
        StorageError
            If a label, kernel or option cannot be stored, or the file cannot be written.
        """
        write(path, *self.arrays())

    def summary(self, top: int = 10, interval: float = 0.9) -> str:
        """Summary of the best values, the fit and the tables, for people.

        Parameters
        ----------
        top : int
            How many rows are shown.
        interval : float
            Probability of the intervals, between 0 and 1.

        Returns
        -------
        str
            Plain text of a few lines, which is displayed as it is printed.
        """
        check_interval(interval)
        state = (
            []
            if self.converged
            else [f"Not to be relied on, {self.result.name}: {self.result.value}"]
        )
        notes = [
            f"* {note}" for data in self.datasets().values() for note in getattr(data, "notes", ())
        ]
        lines = [*state, *self._summarized(top, interval), fitted(self)]
        return Summary("\n".join([*lines, "How the tables were read:", *notes] if notes else lines))

    def _summarized(self, top: int, interval: float) -> list[str]:
        """Lines of `summary` about the values."""
        return []

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        sections: Sequence[Any] = (),
        relations_evidence: bool | pd.DataFrame | None = None,
        words: Mapping[str, str] | None = None,
    ) -> Path:
        """Write a shareable report: one HTML file that needs neither a network nor scripts.

        One page for a reader, with the details folded below it. Equal input gives equal bytes. The
        file is replaced whole or not at all.

        Parameters
        ----------
        path : path
            File to write; its folder must exist.
        title : str, optional
        sections : sequence of relpref.report.Section
            More to show, after the ranking.
        relations_evidence : bool or DataFrame, optional
            True to fit again without each part of the model, to see what it is worth; or the ready
            table of `relpref.diagnostics.evidence_without_each`.
        words : mapping, optional
            Nouns for an item and an answer, such as ``{"item": "coffee", "answer": "tasting"}``;
            a plural that is not regular follows a slash, as in ``"entry/entries"``.

        Returns
        -------
        Path
            Of the file.

        Raises
        ------
        DataError
            If a section's figure is not one self-contained SVG picture, or a ready table of
            evidence lacks a column; or if a word cannot be used.
        StorageError
            If the file cannot be written.
        """
        written: Path = find("function", "report")(
            self,
            path,
            title=title,
            sections=sections,
            relations_evidence=relations_evidence,
            words=words,
        )
        return written

    def compare(self, other: Any) -> pd.DataFrame:
        """Compare with another model by held-out predictions of the same answers.

        Short for `relpref.diagnostics.compare`.

        Parameters
        ----------
        other : posterior, HeldOut, or mapping from name to these
            Called "other" where it has no name; this posterior is called "this".
        """
        others = other if isinstance(other, Mapping) else {"other": other}
        return find("function", "compare")({"this": self}, others)

    def _encoded(self, *apart: str) -> Stored:
        """Arrays and JSON of the fields, apart from some that have another form in files."""
        arrays: dict[str, Any] = {}
        names = (field.name for field in fields(self))  # type: ignore[arg-type]
        content = {
            name: encode(getattr(self, name), arrays, name)
            for name in names
            if name not in ("info", *apart)
        }
        return arrays, {"kind": self.kind, "info": dict(self.info), **content}

    @classmethod
    def _decoded(cls, arrays: Arrays, content: Mapping[str, Any], *apart: str) -> dict[str, Any]:
        """Decode the fields that `_encoded` made, and check them against their declared types."""
        values = {
            name: stored if name == "info" else decode(stored, arrays, name)
            for name, stored in content.items()
            if name not in ("kind", *apart)
        }
        check_arguments(cls, values, "the posterior")
        values["hyperparameters"] = {
            name: float(value) if np.ndim(value) == 0 else value
            for name, value in values["hyperparameters"].items()
        }
        info = values["info"]
        checked(info.get("engine"), str, "the engine")
        if info.get("result") not in Result.__members__:
            raise StorageError(
                f"the result is {shown(info.get('result'))}, which no engine ends with; the file "
                "is damaged"
            )
        return values

    def _rng(self, key: Any) -> np.random.Generator:
        return generator(self.key if key is None else key)

    def _evidence_in_words(self) -> str:
        return "" if self.log_evidence is None else f", log evidence {self.log_evidence:.2f}"

    def _warn_if_not_converged(self) -> None:
        if not self.converged:
            warn_user(f"{self.result.name}: {self.result.value}", InferenceWarning)


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(PosteriorBase):
    """The joint distribution of the Gaussian sites of a program.

    Attributes
    ----------
    belief : Belief
        Of all sites, laid one after the other.
    slices : dict from site to slice
        Where each lies.
    parts : dict from site to Parts
    log_evidence : float or None
        log p(answers | hyperparameters), without the hyperparameters' prior, at their maximum; of a
        mixture over hyperparameters log p(answers), averaged over their prior. None from engines
        that do not compute it.
    info : dict
        ``engine``, ``result`` (a result code), ``iterations``, ``residual`` and what else the
        engine reports.
    sites : dict
        ``precision`` and ``shift`` of the sites of EP or Laplace, shape (m,), row by row; of a
        mixture (draws, m). Empty of draws.
    origin : Origin or None
    hyperparameter_draws : dict from site to array, shape (s, ...)
        Values that were integrated over, with ``belief.weights`` as their weights; empty from
        engines that find one value.
    prior_log_weights : array, shape (s,), or None
        Of a mixture over hyperparameters: log weights of the components less the log evidence of
        each, so that weights follow when answers come. Where ``log_evidence`` is known, it is log Σ
        exp of those log weights.
    data : PreferenceData, Rankings, RelationData or None
        Of utilities and classes.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> posterior.sample(10).shape
    (10, 3)
    """

    kind: ClassVar[Literal["program", "utilities", "classes"]] = "program"

    belief: Belief
    slices: Mapping[str, slice]
    parts: Mapping[str, Parts]
    hyperparameters: Mapping[str, Any]
    log_evidence: float | None
    info: Mapping[str, Any]
    sites: Mapping[str, Floats]
    key: NDArray[np.uint32]
    origin: Origin | None = None
    hyperparameter_draws: Mapping[str, Floats] = field(default_factory=dict)
    prior_log_weights: Floats | None = None
    data: Any = field(default=None, kw_only=True)

    @property
    def sampled(self) -> bool:
        return self.belief.sampled

    @property
    def large(self) -> bool:
        return self.belief.large

    @property
    def full(self) -> Belief:
        """The joint distribution of all sites, laid out as ``slices`` says."""
        return self.belief

    def datasets(self) -> dict[str, Any]:
        if self.data is not None:
            return {"data": self.data}
        return {} if self.origin is None else self.origin.datasets()

    def mean(self, weights: ArrayLike | None = None, *, site: str | None = None) -> Floats:
        """Posterior mean of a site, or of ``weights @ site``, shape (n,) or (k,).

        Parameters
        ----------
        weights : array, shape (k, n), optional
        site : str, optional
            Needed only where the program has several Gaussian sites.
        """
        return self._of(weights, site).mean()

    def sd(self, weights: ArrayLike | None = None, *, site: str | None = None) -> Floats:
        """Posterior standard deviation; arguments as in `mean`."""
        return self._of(weights, site).sd()

    def covariance(self, weights: ArrayLike | None = None, *, site: str | None = None) -> Floats:
        """Posterior covariance, shape (n, n) or (k, k); arguments as in `mean`."""
        return self._of(weights, site).covariance()

    def sample(
        self,
        num_samples: int = 1000,
        rng_key: Any = None,
        weights: ArrayLike | None = None,
        *,
        site: str | None = None,
    ) -> Floats:
        """Draws from the posterior, shape (num_samples, n) or (num_samples, k).

        Parameters
        ----------
        num_samples : int
        rng_key : JAX key or int, optional
            The posterior's own by default, so that the same call gives the same draws.
        weights, site
            As in `mean`.
        """
        if num_samples < 1:
            raise DataError(f"num_samples is {num_samples}; ask for at least one draw")
        draws = self._of(None, site).draw(num_samples, self._rng(rng_key))
        return (
            draws
            if weights is None
            else draws @ np.atleast_2d(np.asarray(weights, dtype=np.float64)).T
        )

    def reweighted(self, num_samples: int = 4000, rng_key: Any = None) -> "Posterior":
        """Draws of the exact posterior at the hyperparameters, by importance weights.

        Draws of this posterior are weighted by the exact posterior over this one (Vehtari et al.
        2024) and resampled; of a sample of hyperparameters with those of 25; of more
        items than a matrix has room for, those that answers are about.

        Parameters
        ----------
        num_samples : int
            Draws in the result, at least 100; up to 16 times as many are weighted. The Monte Carlo
            error of a mean is about 1/√1000 sds.
        rng_key : JAX key or int, optional

        Returns
        -------
        Posterior
            ``info`` has ``k_hat`` and ``ess`` of the weights; ``log_evidence`` is reweighted, too
            (None of a mixture). A posterior of draws is returned as it is.

        Raises
        ------
        InferenceError
            If the weights cannot be relied on (k-hat above 0.7, or fewer than 100 effective draws).
        UnsupportedProgramError
            If the posterior does not know its program.
        """
        if self.sampled:
            return self
        if self.origin is None:
            raise UnsupportedProgramError(
                "this posterior does not know its program, so that its draws cannot be weighted; "
                "fit with a program of relpref, or in this session"
            )
        engine = self.origin.engine or find("engine", "EP")
        weighted: Posterior = engine.reweighted(self, num_samples, rng_key)
        return weighted

    def hyperparameters_at(self, component: int) -> dict[str, Any]:
        """All hyperparameters of a component of the belief, or of a draw."""
        moving = {name: values[component] for name, values in self.hyperparameter_draws.items()}
        return {**self.hyperparameters, **moving}

    @property
    def has_answers(self) -> bool:
        """Whether anything was observed; without answers the posterior is the prior."""
        return True

    def reported(
        self, belief: Belief | None = None, chosen: Positions | slice = slice(None)
    ) -> pd.DataFrame:
        """``mean`` and ``sd`` of the values that people look at, by label.

        Taken from another ``belief``, of the ``chosen`` items alone, if it is given. They are
        utilities less their average, by item, and then effects of covariates; a
        classifier's latent functions, by example (and by class, where there are more than two);
        another program's Gaussian sites, by site and position.
        """
        belief = self.full if belief is None else belief
        places = [
            (site, row)
            for site, rows in self.slices.items()
            for row in range(rows.stop - rows.start)
        ]
        index = pd.MultiIndex.from_tuples(places, names=["site", "position"])
        return pd.DataFrame(
            {"mean": belief.mean()[self._order], "sd": belief.sd()[self._order]}, index=index
        )

    def plot(self, top: int = 30, *, interval: float = 0.9, axes: Any = None) -> Any:
        """Draw the values of `reported`, highest first, as dots with lines for their intervals.

        Of utilities that is the ranking, with a band for each tier where there are several (see
        `UtilityPosterior.tiers`).

        Parameters
        ----------
        top : int
            How many rows are drawn.
        interval : float
            Probability of the intervals, between 0 and 1.
        axes : matplotlib.axes.Axes, optional
            To draw on; those of a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
        """
        check_interval(interval)
        table, label = self._ranked(interval, top)
        return plot_forest(table, top, f"{label}, with {100 * interval:g}% intervals", axes)

    def _summarized(self, top: int, interval: float) -> list[str]:
        if self.empty:
            return []
        table, _ = self._ranked(interval, top)
        return [forest(table, top, interval, "site", "value")]

    def _ranked(self, interval: float, top: int) -> tuple[pd.DataFrame, str]:
        """Table that `plot` draws, highest first, and the name of its values."""
        table = self.reported()
        reach = float(ndtri(0.5 + interval / 2)) * table["sd"]
        table = table.assign(lower=table["mean"] - reach, upper=table["mean"] + reach)
        return table.sort_values("mean", ascending=False, kind="stable"), "value"

    @property
    def _order(self) -> Positions:
        """Positions of the sites' values, site by site."""
        return np.concatenate([np.arange(rows.start, rows.stop) for rows in self.slices.values()])

    def displayed(self, draws: Floats) -> Floats | None:
        """Values of `reported` for each draw, shape (s, rows).

        None where they are no linear function of the draws.
        """
        return draws[:, self._order]

    def to_datatree(self, num_samples: int = 1000, rng_key: Any = None) -> Any:
        """Draws and data as a DataTree, which arviz-base, arviz-stats and arviz-plots work on.

        Parameters
        ----------
        num_samples : int
            Draws in all, laid out as 4 chains; an engine that kept draws hands over those.
        rng_key : JAX key or int, optional

        Returns
        -------
        xarray.DataTree
            Groups ``posterior``, ``posterior_predictive``, ``log_likelihood``, ``observed_data``,
            ``constant_data`` (preferences) and ``sample_stats`` (of EP and Laplace ``sweeps``,
            ``damping``, ``residual``, and ``code``, the position of the result among
            `relpref.infer.Result`), with the user's labels as coordinates, versions and random key
            as attributes. Effects of covariates are those of one unit of each.
        """
        self._warn_if_not_converged()
        return tree(self, self.groups(num_samples, rng_key))

    def to_arviz(self, num_samples: int = 1000, rng_key: Any = None) -> Any:
        """DataTree of `to_datatree`, or the ``InferenceData`` of an installed ArviZ 0.x."""
        return native(self.to_datatree(num_samples, rng_key))

    def groups(self, num_samples: int, rng_key: Any) -> Groups:
        groups, coords, dims = draw_groups(self, num_samples, rng_key)
        relation = next((d for d in self.datasets().values() if isinstance(d, RelationData)), None)
        scores = groups["posterior"].get(_SCORE)
        if relation is not None and scores is not None:
            # Every pair's score, by the labels of its conditioning node and object.
            coords["node"] = plain_coordinates(relation.nodes.labels)
            coords["object"] = plain_coordinates((relation.objects or relation.nodes).labels)
            if scores.shape[2:] == (len(coords["node"]) * len(coords["object"]),):
                groups["posterior"][_SCORE] = scores.reshape(
                    *scores.shape[:2], len(coords["node"]), -1
                )
                dims[_SCORE] = ["node", "object"]
                if "label" in groups.get("observed_data", {}):
                    dims["label"] = ["edge"]
        return Groups(groups, coords, dims)

    def arrays(self) -> Stored:
        arrays, content = self._encoded("belief", "joint", "origin")
        arrays |= self.full.arrays()
        content["origin"] = None
        if self.data is not None and self.origin is not None:
            kept, content["origin"] = self.origin.encoded()
            arrays |= kept
        return arrays, content

    @classmethod
    def from_arrays(cls, arrays: Arrays, content: Any, program: Any = None) -> "Posterior":
        """Decode what `arrays` made; ``program`` is the user's own."""
        values = cls._decoded(arrays, content, "origin")
        origin = Origin.decoded(content["origin"], values["data"], arrays, program)
        # The belief is None where `relpref.posterior.storage` makes it of the prior.
        belief: Any = belief_from(arrays)
        return cls(belief=belief, origin=origin, **values)

    def __repr__(self) -> str:
        sites = ", ".join(f"{name}[{rows.stop - rows.start}]" for name, rows in self.slices.items())
        outcome = f"{self.engine}: {self.result.name}{self._evidence_in_words()}"
        return f"{type(self).__name__}({sites}; {outcome})"

    def _of(self, weights: ArrayLike | None, site: str | None) -> Belief:
        self._warn_if_not_converged()
        belief = self.full
        if site is None and len(self.slices) != 1 or site is not None and site not in self.slices:
            raise DataError(
                f"site is {site!r}; this posterior has the sites {', '.join(self.slices)}: name "
                "one of them"
            )
        if len(self.slices) > 1 and site is not None:
            rows = self.slices[site]
            belief = belief.subset(np.arange(rows.start, rows.stop))
        if weights is None:
            return belief
        matrix = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        if matrix.ndim != 2 or matrix.shape[1] != belief.size:
            raise DataError(
                f"weights have shape {matrix.shape}; each row needs {belief.size} entries, one for "
                "each value"
            )
        return belief.project(matrix)
