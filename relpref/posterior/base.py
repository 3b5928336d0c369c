"""What an engine hands back: beliefs about a program's Gaussian sites, and how they were found."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from relpref.data import RelationData
from relpref.data.arrays import shown
from relpref.errors import DataError, StorageError, UnsupportedProgramError
from relpref.infer.result import InferenceWarning, Result, warn_user
from relpref.posterior.arviz import Groups, draw_groups, native, plain_coordinates, tree
from relpref.posterior.codec import (
    Stored,
    checked,
    write,
)
from relpref.posterior.gaussian import Belief, Floats, belief_from, generator
from relpref.posterior.origin import Origin
from relpref.registry import find

_SCORE = "score"  # the site of `relpref.models.conditional_ranking`


@dataclass(frozen=True)
class Parts:
    """The named parts of a site's covariance sum, after the data.

    Attributes
    ----------
    means : dict from part to array, shape (n,)
        They add up to the site's mean.
    covariances : dict from part to array, shape (n,)
        Covariance of the part with the total, entity by entity; they add up to the site's variance.
    """

    means: Mapping[str, Floats]
    covariances: Mapping[str, Floats]


_CONTENT = {
    "kind?": Literal["class"],
    "slices": dict[str, list[int]],
    "parts": dict[str, list[str]],
    "hyperparameters": list[str],
    "sites": list[str],
    "log_evidence": float | None,
    "info": dict[str, Any],
    "origin": str | None,
    "data": dict[str, Any] | None,
    "likelihood?": dict[str, Any],
}


def checked_info(info: dict[str, Any]) -> dict[str, Any]:
    """An ``info`` from a file, which names its engine and result."""
    checked(info.get("engine"), str, "the engine")
    if info.get("result") not in Result.__members__:
        raise StorageError(
            f"the result is {shown(info.get('result'))}, which no engine ends with; the file is damaged"
        )
    return info


def stored_hyperparameters(arrays: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters from a file: floats and arrays."""
    values = {name: arrays[f"hyperparameters/{name}"] for name in content["hyperparameters"]}
    return {name: float(value) if value.ndim == 0 else value for name, value in values.items()}


class PosteriorBase:
    """What every posterior offers, whatever its values are.

    Attributes
    ----------
    kind : str
        ``"utilities"``, ``"relation"``, ``"classes"``; ``"program"`` where a program of one's own has another form.
    hyperparameters : dict from site to array or float
    log_evidence : float or None
    info : dict
        What the engine reports, for people; what decisions need has a property here.
    key : array of uint32
        Random key of Monte Carlo answers.
    """

    kind: ClassVar[str] = "program"
    hyperparameters: Mapping[str, Any]
    log_evidence: float | None
    info: Mapping[str, Any]
    key: NDArray[np.uint32]

    @property
    def result(self) -> Result:
        """How the inference ended."""
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
    def engine(self) -> str:
        """Name of the engine, ``"samples"`` for draws made elsewhere."""
        return str(self.info["engine"])

    @property
    def sampled(self) -> bool:
        """Whether the distribution is made of draws."""
        return False

    @property
    def large(self) -> bool:
        """Whether the covariance is evaluated where it is needed, because the whole matrix has no room."""
        return False

    @property
    def searched(self) -> bool:
        """Whether hyperparameters were searched for."""
        return "evaluations" in self.info

    @property
    def chains(self) -> int:
        """Number of chains that draws come from."""
        return int(self.info.get("chains", 1))

    @property
    def effective_draws(self) -> float | None:
        """Effective number of draws, where the engine counted it."""
        ess = self.info.get("ess")
        return None if ess is None else float(ess)

    @property
    def effective_points(self) -> float:
        """Effective number of weighted hyperparameters, see `relpref.infer.importance`; infinite without weights."""
        return float(self.info.get("effective_points", np.inf))

    @property
    def r_hat(self) -> float | None:
        """Largest R-hat of the chains over hyperparameters, where the engine ran some."""
        r_hat = self.info.get("r_hat")
        return None if r_hat is None else float(r_hat)

    @property
    def solver(self) -> str:
        """How an exact posterior was solved for; empty of the others."""
        return str(self.info.get("solver", ""))

    @property
    def gradient_norm(self) -> float:
        """Norm of the gradient where the search for hyperparameters ended; 0 without a search."""
        return float(self.info.get("gradient_norm", 0.0))

    @property
    def lists(self) -> str:
        """The lists (choices, orderings) that pairs of answers were formed from, in words; empty where there are none."""
        return str(self.info.get("answers", ""))

    @property
    def quick_answers(self) -> int:
        """Answers that came by quick updates since the engine last ran."""
        return int(self.info.get("quick_answers", 0))

    @property
    def alike_parts(self) -> tuple[tuple[str, str], ...]:
        """Pairs of parts of the prior that answers cannot tell apart."""
        return tuple((one, other) for one, other in self.info.get("alike_parts", ()))

    def datasets(self) -> dict[str, Any]:
        """The data that the posterior comes from, by the name of the program's argument."""
        return {}

    def arrays(self) -> Stored:
        """What a file holds: arrays by name, and the rest as JSON.

        Raises
        ------
        StorageError
            If a label or an option cannot be stored.
        """
        raise NotImplementedError

    def groups(self, num_samples: int, key: Any) -> Groups:
        """What ArviZ is given: groups of arrays, with their coordinates and dimensions."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one netCDF file, replacing it whole or not at all; `relpref.load` reads it back.

        Raises
        ------
        StorageError
            If a label, kernel or option cannot be stored, or the file cannot be written.
        """
        write(path, *self.arrays())

    def _warn_if_not_converged(self) -> None:
        if not self.converged:
            warn_user(f"{self.result.name}: {self.result.value}", InferenceWarning)


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(PosteriorBase):
    """Beliefs about the Gaussian sites of a program.

    Attributes
    ----------
    belief : Belief
        About all sites, laid one after the other.
    slices : dict from site to slice
        Where each lies.
    parts : dict from site to Parts
    hyperparameters : dict from site to array or float
    log_evidence : float or None
        log p(answers | hyperparameters), without the hyperparameters' prior, at their maximum; of a mixture over hyperparameters
        log p(answers), averaged over their prior. None from engines that do not compute it.
    info : dict
        ``engine``, ``result`` (a result code), ``iterations``, ``residual`` and what else the engine reports.
    sites : dict
        ``precision`` and ``shift`` of the sites of EP or Laplace, shape (m,), row by row; of a mixture (draws, m). Empty of draws.
    key : array of uint32
        The random key that Monte Carlo answers use by default.
    origin : Origin or None
    hyperparameter_draws : dict from site to array, shape (s, ...)
        Values that were integrated over, with ``belief.weights`` as their weights; empty from engines that find one value.
    prior_log_weights : array, shape (s,), or None
        Of a mixture over hyperparameters: log weights of the components less the log evidence of each, so that weights follow when
        answers come. Where ``log_evidence`` is known, it is log Σ exp of those log weights.
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

    @property
    def sampled(self) -> bool:
        return self.belief.sampled

    @property
    def large(self) -> bool:
        return self.belief.large

    def datasets(self) -> dict[str, Any]:
        return {} if self.origin is None else self.origin.datasets()

    def mean(self, weights: ArrayLike | None = None, *, site: str | None = None) -> Floats:
        """Posterior mean of a site, or of ``weights @ site``.

        Parameters
        ----------
        weights : array, shape (k, n), optional
        site : str, optional
            Needed only where the program has several Gaussian sites.

        Returns
        -------
        array, shape (n,) or (k,)
        """
        return self._about(weights, site).mean()

    def sd(self, weights: ArrayLike | None = None, *, site: str | None = None) -> Floats:
        """Posterior standard deviation; arguments as in `mean`."""
        return self._about(weights, site).sd()

    def covariance(self, weights: ArrayLike | None = None, *, site: str | None = None) -> Floats:
        """Posterior covariance, shape (n, n) or (k, k); arguments as in `mean`."""
        return self._about(weights, site).covariance()

    def sample(
        self,
        num_samples: int = 1000,
        key: Any = None,
        weights: ArrayLike | None = None,
        *,
        site: str | None = None,
    ) -> Floats:
        """Draws from the posterior.

        Parameters
        ----------
        num_samples : int
        key : JAX key or int, optional
            The posterior's own by default, so that the same call gives the same draws.
        weights, site
            As in `mean`.

        Returns
        -------
        array, shape (num_samples, n) or (num_samples, k)
        """
        if num_samples < 1:
            raise DataError(f"num_samples is {num_samples}; ask for at least one draw")
        draws = self._about(None, site).draw(num_samples, self._rng(key))
        return draws if weights is None else draws @ np.atleast_2d(np.asarray(weights, dtype=np.float64)).T

    def reweighted(self, num_samples: int = 4000, key: Any = None) -> "Posterior":
        """Draws of the exact posterior at the hyperparameters, by importance weights, with the same methods as this one.

        Draws of this posterior are weighted by the exact posterior over this one (Vehtari et al. 2024) and resampled. Of a mixture over
        hyperparameters, by 25 of its components, hyperparameters are weighted, too. Of more entities than a matrix has room for, those that
        answers are about.

        Parameters
        ----------
        num_samples : int
            Draws in the result, at least 100; up to 16 times as many are weighted. Their Monte Carlo error in a mean is about 1/√1000 sds.
        key : JAX key or int, optional

        Returns
        -------
        Posterior
            ``info`` has ``k_hat`` and ``ess`` of the weights; ``log_evidence`` is reweighted, too (None of a mixture). A posterior of draws
            is returned as it is.

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
                "this posterior does not know its program, so that its draws cannot be weighted; fit with a program of relpref, or in "
                "this session"
            )
        engine = self.origin.engine or find("engine", "EP")
        found: Posterior = engine.reweighted(self, num_samples, key)
        return found

    @property
    def has_answers(self) -> bool:
        """Whether anything was observed; without answers the posterior is the prior."""
        return True

    def reported(
        self, belief: Belief | None = None, chosen: NDArray[np.intp] | slice = slice(None)
    ) -> pd.DataFrame:
        """``mean`` and ``sd`` of what people look at, by label.

        Of utilities less their average, by item; of a classifier's latent functions, by example (and by class, where there are more
        than two); of another program's Gaussian sites, by site and position.

        Parameters
        ----------
        belief : Belief, optional
            In the place of the posterior's own; about the chosen items alone, if some are chosen.
        chosen : array of int, optional
            Positions of items; all of them by default.
        """
        belief = self.belief if belief is None else belief
        places = [(site, row) for site, rows in self.slices.items() for row in range(rows.stop - rows.start)]
        order = np.concatenate([np.arange(rows.start, rows.stop) for rows in self.slices.values()])
        index = pd.MultiIndex.from_tuples(places, names=["site", "position"])
        return pd.DataFrame({"mean": belief.mean()[order], "sd": belief.sd()[order]}, index=index)

    def to_datatree(self, num_samples: int = 1000, key: Any = None) -> Any:
        """Draws and data as a DataTree, which the packages arviz-base, arviz-stats and arviz-plots work on on every Python.

        Parameters
        ----------
        num_samples : int
            Draws in all, laid out as 4 chains; an engine that kept draws hands over those.
        key : JAX key or int, optional

        Returns
        -------
        xarray.DataTree
            Groups ``posterior``, ``posterior_predictive``, ``log_likelihood``, ``observed_data``, ``constant_data`` (preferences) and
            ``sample_stats`` (of EP and Laplace: ``sweeps``, ``damping``, ``residual``, and ``code``, the position of the result among
            `relpref.infer.Result`), with the user's labels as coordinates and versions and random key as attributes.
        """
        self._warn_if_not_converged()
        return tree(self, self.groups(num_samples, key))

    def to_arviz(self, num_samples: int = 1000, key: Any = None) -> Any:
        """As `to_datatree`, as the type of the ArviZ that is installed: `InferenceData` where that is 0.x."""
        return native(self.to_datatree(num_samples, key))

    def groups(self, num_samples: int, key: Any) -> Groups:
        groups, coords, dims = draw_groups(self, num_samples, key)
        relation = next((d for d in self.datasets().values() if isinstance(d, RelationData)), None)
        scores = groups["posterior"].get(_SCORE)
        if relation is not None and scores is not None:
            # Every pair's score, by the labels of its conditioning node and object.
            coords["node"] = plain_coordinates(relation.nodes.entities)
            coords["object"] = plain_coordinates((relation.objects or relation.nodes).entities)
            if scores.shape[2:] == (len(coords["node"]) * len(coords["object"]),):
                groups["posterior"][_SCORE] = scores.reshape(*scores.shape[:2], len(coords["node"]), -1)
                dims[_SCORE] = ["node", "object"]
                if "label" in groups.get("observed_data", {}):
                    dims["label"] = ["edge"]
        return Groups(groups, coords, dims)

    def arrays(self) -> Stored:
        arrays: dict[str, Any] = {"key": self.key, **self.belief.arrays()}
        if self.prior_log_weights is not None:
            arrays["prior_log_weights"] = self.prior_log_weights
        for group in ("sites", "hyperparameters", "hyperparameter_draws"):
            arrays |= {f"{group}/{name}": np.asarray(value) for name, value in getattr(self, group).items()}
        for row, parts in enumerate(self.parts.values()):
            for kind, named in (("mean", parts.means), ("covariance", parts.covariances)):
                arrays |= {f"parts/{kind}_{row}_{at}": values for at, values in enumerate(named.values())}
        return arrays, {
            "slices": {name: [rows.start, rows.stop] for name, rows in self.slices.items()},
            "parts": {site: list(parts.means) for site, parts in self.parts.items()},
            "hyperparameters": list(self.hyperparameters),
            "sites": list(self.sites),
            "log_evidence": self.log_evidence,
            "info": dict(self.info),
            "origin": None,
            "data": None,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], content: Any, program: Any = None) -> "Posterior":
        """The inverse of `arrays`; ``program`` is the caller's own."""
        return cls(**cls._stored_fields(arrays, content))

    @staticmethod
    def _stored_fields(arrays: Mapping[str, Any], content: Any) -> dict[str, Any]:
        checked(content, _CONTENT, "the posterior")
        parts = {}
        for row, (site, names) in enumerate(content["parts"].items()):
            means = {name: arrays[f"parts/mean_{row}_{at}"] for at, name in enumerate(names)}
            shares = {name: arrays.get(f"parts/covariance_{row}_{at}") for at, name in enumerate(names)}
            parts[site] = Parts(means, {name: value for name, value in shares.items() if value is not None})
        hyperparameters = stored_hyperparameters(arrays, content)
        drawn = {name: arrays.get(f"hyperparameter_draws/{name}") for name in hyperparameters}
        return {
            "belief": belief_from(arrays),
            "hyperparameter_draws": {name: value for name, value in drawn.items() if value is not None},
            "prior_log_weights": arrays.get("prior_log_weights"),
            "slices": {name: slice(start, stop) for name, (start, stop) in content["slices"].items()},
            "parts": parts,
            "hyperparameters": hyperparameters,
            "log_evidence": content["log_evidence"],
            "info": checked_info(content["info"]),
            "sites": {name: arrays[f"sites/{name}"] for name in content["sites"]},
            "key": arrays["key"],
        }

    def __repr__(self) -> str:
        evidence = "" if self.log_evidence is None else f", log evidence {self.log_evidence:.2f}"
        sites = ", ".join(f"{name}[{rows.stop - rows.start}]" for name, rows in self.slices.items())
        return f"{type(self).__name__}({sites}; {self.info['engine']}: {self.info['result']}{evidence})"

    def _rng(self, key: Any) -> np.random.Generator:
        return generator(self.key if key is None else key)

    def _site(self, site: str | None) -> str:
        if site is None and len(self.slices) == 1:
            return next(iter(self.slices))
        if site is None or site not in self.slices:
            raise DataError(
                f"site is {site!r}; this posterior has the sites {', '.join(self.slices)}: name one of them"
            )
        return site

    def _about(self, weights: ArrayLike | None, site: str | None) -> Belief:
        self._warn_if_not_converged()
        rows = self.slices[self._site(site)]
        whole = len(self.slices) == 1
        belief = self.belief if whole else self.belief.subset(np.arange(rows.start, rows.stop))
        if weights is None:
            return belief
        matrix = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        if matrix.ndim != 2 or matrix.shape[1] != belief.size:
            raise DataError(
                f"weights have shape {matrix.shape}; each row needs {belief.size} entries, one for each value"
            )
        return belief.project(matrix)
