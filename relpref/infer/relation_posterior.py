"""The posterior of a relation: scores of objects, conditional on a node, with the user's own labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from relpref.errors import DataError
from relpref.infer.exact.closed import Loss
from relpref.infer.exact.domain import Asked, Domain
from relpref.infer.exact.solve import RelationProblem, Scores
from relpref.infer.relation_storage import PROBLEM, decode_problem, encode_problem
from relpref.likelihoods import CentredNormal
from relpref.posterior.arviz import CHAINS, Groups, native, plain_coordinates, sample_stats, tree
from relpref.posterior.base import PosteriorBase, checked_info, stored_hyperparameters
from relpref.posterior.codec import Stored, checked
from relpref.posterior.gaussian import Floats, GaussianBelief, generator
from relpref.posterior.tables import objects, pairs_of_labels, ranking_table

_PLAIN = {"noise": float, "shift": float, "log_evidence": float | None}
_CONTENT = {"kind": str, "plain": _PLAIN, "info": dict[str, Any], "hyperparameters": list[str], **PROBLEM}


@dataclass(frozen=True, eq=False, repr=False)
class RelationPosterior(PosteriorBase):
    """Beliefs about the score of every object for every conditioning node, known or new.

    Attributes
    ----------
    problem : RelationProblem
        Nodes, objects, labels and options; with the ranking loss only differences of scores for one conditioning node are
        identified.
    solution : Scores
    hyperparameters : dict
    log_evidence : float or None
        None where it was not computed.
    info : dict
        ``engine``, ``result``, ``solver`` and what else the engine reports.
    key : array of uint32
        Random key of Monte Carlo answers.
    """

    kind: ClassVar[Literal["relation"]] = "relation"
    problem: RelationProblem
    solution: Scores
    hyperparameters: Mapping[str, Any]
    log_evidence: float | None
    info: Mapping[str, Any]
    key: NDArray[np.uint32]

    def datasets(self) -> dict[str, Any]:
        return {"data": self.problem}

    @property
    def nodes(self) -> Domain:
        return self.problem.nodes

    @property
    def objects(self) -> Domain:
        """Objects; the same as ``nodes`` where nodes are ranked for one another."""
        return self.problem.objects

    @property
    def loss(self) -> Loss:
        return self.problem.loss

    @property
    def shift(self) -> float:
        """Added to scores: ½ for reciprocal labels in [0, 1]."""
        return self.problem.shift

    @property
    def noise(self) -> float:
        """λ times the scale: variance of a label given its score, in one direction; see `label_variance`."""
        return self.solution.scale * self.solution.regularization

    @property
    def label_variance(self) -> float:
        """Variance of a pair's next label given its score: under a constraint it counts in both directions, so half of ``noise``."""
        return self.noise if self.problem.symmetry == "none" else 0.5 * self.noise

    def mean(self, nodes: Any = None, objects: Any = None) -> pd.DataFrame:
        """Posterior mean of every score.

        Parameters
        ----------
        nodes, objects : optional
            Known ones by a list of labels, new ones by their features (a two-dimensional array, a sparse matrix, or a DataFrame
            whose index are their labels); all known ones by default.

        Returns
        -------
        DataFrame
            One row for each conditioning node, one column for each object.
        """
        left, right = self._ask(nodes, objects)
        return labelled_frame(self.shift + self.solution.mean(left, right), left, right)

    def sd(self, nodes: Any = None, objects: Any = None) -> pd.DataFrame:
        """Posterior standard deviation of every score; arguments as in `mean`."""
        left, right = self._ask(nodes, objects)
        return labelled_frame(np.sqrt(np.maximum(self.solution.variance(left, right), 0.0)), left, right)

    def belief(self, query: Any, objects: Any = None) -> GaussianBelief:
        """The joint belief about the scores of objects for one conditioning node.

        Parameters
        ----------
        query : label, or features of one new node
            A new node is a DataFrame, a two-dimensional array or a sparse matrix with one row.
        objects
            As in `mean`.
        """
        mean, covariance = self.solution.query(*self._query(query, objects))
        return GaussianBelief(self.shift + mean, covariance)

    def ranking(
        self, query: Any, objects: Any = None, *, interval: float = 0.9, key: Any = None
    ) -> pd.DataFrame:
        """The objects for one conditioning node, best first.

        Parameters
        ----------
        query, objects
            As in `belief`. A known node is not ranked for itself unless it is asked for.
        interval : float
            Probability of the intervals.
        key : JAX key or int, optional
            For the ranks, which come from 4000 draws.

        Returns
        -------
        DataFrame
            By object: ``mean``, ``sd``, ``lower``, ``upper`` of its score (with the ranking loss, of its score less the average
            over the objects ranked); ``expected_rank``, ``rank_lower``, ``rank_upper`` (1 is best), ``p_best``.
        """
        asked, right = self._query(query, objects)
        mean, covariance = self.solution.query(asked, right)
        belief = GaussianBelief(self.shift + mean, covariance)
        kept = np.arange(belief.size)
        if objects is None and self.nodes is self.objects and not asked.new:
            kept = np.delete(kept, asked.side.index[0])
        weights = np.eye(belief.size)[kept]
        if self.loss == "ranking" and len(kept):
            weights = weights - weights.mean(axis=0)
        rng = generator(self.key if key is None else key)
        labels = [right.labels[position] for position in kept]
        return ranking_table(belief.project(weights), labels, interval, rng, "object")

    def prefer(self, query: Any, pairs: Iterable[tuple[Any, Any]]) -> pd.DataFrame:
        """How likely the first object of each pair ranks above the second for a conditioning node.

        Parameters
        ----------
        query
            As in `belief`.
        pairs : iterable of (label, label)
            Of known objects.

        Returns
        -------
        DataFrame
            ``first``, ``second``; ``probability`` that the first's next noisy label is the higher; ``p_better`` that its score is;
            ``gap_mean`` and ``gap_sd`` of the difference of scores.
        """
        listed = pairs_of_labels(pairs)
        labels = list(dict.fromkeys(label for pair in listed for label in pair))
        position = {label: row for row, label in enumerate(labels)}
        belief = self.belief(query, labels)
        first, second = (np.array([position[pair[end]] for pair in listed], dtype=int) for end in (0, 1))
        margins = belief.differences(first, second)
        return pd.DataFrame(
            {
                "first": objects(pair[0] for pair in listed),
                "second": objects(pair[1] for pair in listed),
                "probability": ndtr(margins.mean / np.sqrt(margins.sd**2 + 2 * self.label_variance)),
                "p_better": margins.positive,
                "gap_mean": margins.mean,
                "gap_sd": margins.sd,
            }
        )

    def sample(self, query: Any, objects: Any = None, num_samples: int = 1000, key: Any = None) -> Floats:
        """Draws of the scores of objects for one conditioning node, shape (num_samples, b)."""
        if num_samples < 1:
            raise DataError(f"num_samples is {num_samples}; ask for at least one draw")
        return self.belief(query, objects).draw(num_samples, generator(self.key if key is None else key))

    def labels_of(self, query: Any, objects: Any = None) -> tuple[NDArray[np.intp], Floats]:
        """The known labels of objects for one conditioning node; none of a new one.

        Parameters
        ----------
        query, objects
            As in `belief`.

        Returns
        -------
        position : array of int, shape (l,)
            Of their objects among those asked for; an object occurs as often as it has labels.
        label : array, shape (l,)
            As they were given.
        """
        asked, right = self._query(query, objects)
        if asked.new or right.new:
            return np.zeros(0, dtype=np.intp), np.zeros(0)
        values = self.problem.values
        row = np.flatnonzero(values.rows == asked.side.index[0])
        position = np.full(values.shape[1], -1, dtype=np.intp)
        position[right.side.index] = np.arange(len(right.labels))
        found = position[values.columns[row]]
        return found[found >= 0], self.shift + values.values[row][found >= 0]

    def log_likelihood(self, scores: Floats, labels: Floats) -> Floats:
        """Log density of labels of one conditioning node at scores, label by label; with the ranking loss given the others.

        Parameters
        ----------
        scores : array, shape (..., l)
        labels : array, shape (l,)

        Returns
        -------
        array, shape (..., l)
        """
        with jax.enable_x64(True):
            noise = np.sqrt(self.label_variance)
            if self.loss == "regression":
                return np.asarray(dist.Normal(scores, noise).log_prob(labels))
            group = np.zeros(len(labels), dtype=np.int32)

            def one(location: Any) -> Any:
                return CentredNormal(location, noise, group, 1).conditional_log_prob(
                    jax.numpy.asarray(labels)
                )

            flat = jax.vmap(one)(jax.numpy.reshape(scores, (-1, len(labels))))
            return np.asarray(flat).reshape(np.shape(scores))

    def to_datatree(self, query: Any, objects: Any = None, num_samples: int = 1000, key: Any = None) -> Any:
        """Draws of scores and of next labels for one conditioning node as a DataTree, with its known labels beside them.

        Parameters
        ----------
        query, objects
            As in `belief`.
        num_samples : int
            In all, laid out as 4 chains.
        key : JAX key or int, optional

        Returns
        -------
        xarray.DataTree
            Groups as of `Posterior.to_datatree`; ``log_likelihood`` and ``observed_data`` where labels are known.
        """
        return tree(self, self.groups(num_samples, key, query, objects))

    def to_arviz(self, query: Any, objects: Any = None, num_samples: int = 1000, key: Any = None) -> Any:
        """As `to_datatree`, as the type of the ArviZ that is installed: `InferenceData` where that is 0.x."""
        return native(self.to_datatree(query, objects, num_samples, key))

    def groups(self, num_samples: int, key: Any, query: Any = None, objects: Any = None) -> Groups:
        rng = generator(self.key if key is None else key)
        per_chain = max(num_samples // CHAINS, 1)
        draws = self.belief(query, objects).draw(CHAINS * per_chain, rng).reshape(CHAINS, per_chain, -1)
        replicated = draws + np.sqrt(self.label_variance) * rng.standard_normal(draws.shape)
        numbers = {
            name: np.broadcast_to(np.asarray(value), (CHAINS, per_chain, *np.shape(value)))
            for name, value in self.hyperparameters.items()
        }
        groups: dict[str, dict[str, Any]] = {
            "posterior": {"score": draws, **numbers},
            "posterior_predictive": {"next_label": replicated},
            "sample_stats": sample_stats(self, CHAINS, per_chain),
        }
        names = plain_coordinates(self.objects.ask(objects).labels)
        coords = {"object": names}
        known, labels = self.labels_of(query, objects)
        if len(known):
            groups["posterior_predictive"]["label"] = replicated[..., known]
            groups["log_likelihood"] = {"label": self.log_likelihood(draws[..., known], labels)}
            groups["observed_data"] = {"label": labels}
            coords["labelled"] = [names[position] for position in known]
        groups["constant_data"] = {"label_sd": np.sqrt(self.label_variance)}
        dims = {"score": ["object"], "next_label": ["object"], "label": ["labelled"]}
        return Groups(groups, coords, dims)

    def arrays(self) -> Stored:
        arrays, content = encode_problem(self.problem, self.solution)
        arrays |= {"key": self.key}
        arrays |= {f"hyperparameters/{name}": np.asarray(v) for name, v in self.hyperparameters.items()}
        return arrays, {
            **content,
            "kind": "relation",
            "plain": {name: getattr(self, name) for name in _PLAIN},
            "info": dict(self.info),
            "hyperparameters": list(self.hyperparameters),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], content: Any, program: Any = None) -> "RelationPosterior":
        """The inverse of `arrays`; ``program`` is the caller's own."""
        checked(content, _CONTENT, "the posterior")
        hyperparameters, plain = stored_hyperparameters(arrays, content), content["plain"]
        problem, solution = decode_problem(arrays, content, plain["shift"], hyperparameters, program)
        info = checked_info(content["info"])
        return cls(problem, solution, hyperparameters, plain["log_evidence"], info, arrays["key"])

    def __repr__(self) -> str:
        evidence = "" if self.log_evidence is None else f", log evidence {self.log_evidence:.2f}"
        shape = f"{len(self.nodes.labels)} x {len(self.objects.labels)}"
        return (
            f"RelationPosterior({shape}, {self.loss}; {self.info['engine']}: {self.info['solver']}{evidence})"
        )

    def _ask(self, nodes: Any, objects: Any) -> tuple[Asked, Asked]:
        self._warn_if_not_converged()
        left = self.nodes.ask(nodes)
        return left, left if objects is nodes and self.nodes is self.objects else self.objects.ask(objects)

    def _query(self, query: Any, objects: Any) -> tuple[Asked, Asked]:
        self._warn_if_not_converged()
        one = query
        if not (hasattr(query, "ndim") and query.ndim == 2):
            if isinstance(query, list | set | dict | np.ndarray | pd.Series):
                raise DataError(f"query is a {type(query).__name__}; give one label, or one row of features")
            one = [query]
        asked = self.nodes.ask(one)
        if len(asked.labels) != 1:
            raise DataError(f"query has {len(asked.labels)} rows; ask for one conditioning node at a time")
        return asked, self.objects.ask(objects)


def labelled_frame(values: Floats, left: Asked, right: Asked) -> pd.DataFrame:
    """One row for each conditioning node, one column for each object."""
    rows, columns = (
        pd.Index(objects(side.labels), name=name, tupleize_cols=False)
        for name, side in (("node", left), ("object", right))
    )
    return pd.DataFrame(values, index=rows, columns=columns)
