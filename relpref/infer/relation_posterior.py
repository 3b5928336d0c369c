"""Posterior of a relation: scores of objects, conditional on a node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from relpref.compiled import float64
from relpref.data import RelationData
from relpref.data.arrays import counted, label
from relpref.errors import DataError, StorageError
from relpref.infer.exact.closed import Loss
from relpref.infer.exact.domain import Asked, Domain
from relpref.infer.exact.solve import ClosedScores, EdgeScores, RelationProblem, Scores
from relpref.infer.exact.structure import ProgramKernel
from relpref.likelihoods import CentredNormal
from relpref.posterior.arviz import CHAINS, Groups, native, plain_coordinates, sample_stats, tree
from relpref.posterior.base import PosteriorBase
from relpref.posterior.codec import Arrays, Stored, check_arguments, checked, decode, encode
from relpref.posterior.gaussian import Belief, Floats, GaussianBelief
from relpref.posterior.origin import Origin
from relpref.posterior.plots import plot_forest
from relpref.posterior.summary import forest
from relpref.posterior.tables import (
    objects,
    pairs_of_labels,
    preference_table,
    ranking_table,
    tier_table,
)

_PROBLEM = ("loss", "symmetry", "pair_kernel", "solver", "shift", "values")
_PROGRAM = {"origin": dict[str, Any], "field": str, "data": Any}
_DATA = ("nodes", "objects", "symmetry", "shift", "distinct", "observed")
_DOMAIN = ("labels", "features", "kernel", "name", "feature_names", "standardize")


@dataclass(frozen=True, eq=False, repr=False)
class RelationPosterior(PosteriorBase):
    """Distribution of the score of every object for every conditioning node, known or new.

    Attributes
    ----------
    problem : RelationProblem
        Nodes, objects, labels and options; with the ranking loss only differences of scores for one
        conditioning node are identified.
    solution : Scores
    hyperparameters, log_evidence, info, key
        See `relpref.posterior.base.PosteriorBase`.

    Examples
    --------
    >>> import numpy as np
    >>> from relpref import RelationData
    >>> players = {"speed": [0.0, 1.0, 2.0, 3.0]}
    >>> games = np.arange(16.0).reshape(4, 4)
    >>> data = RelationData.from_tables(players, games)
    >>> from relpref.infer import Exact
    >>> from relpref.models import conditional_ranking
    >>> posterior = Exact(conditional_ranking).run(0, data)
    >>> posterior.ranking(data.nodes.labels[0]).index.tolist()
    [3, 2, 1]
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
        """Variance of a label given its score, in one direction: λ times the scale."""
        return self.solution.scale * self.solution.regularization

    @property
    def label_variance(self) -> float:
        """Variance of a pair's next label given its score.

        Under a constraint a label counts in both directions: half of ``noise``.
        """
        return self.noise if self.problem.symmetry == "none" else 0.5 * self.noise

    def mean(self, nodes: Any = None, objects: Any = None) -> pd.DataFrame:
        """Posterior mean of every score.

        Parameters
        ----------
        nodes, objects : optional
            Known ones by a list of labels, new ones by their features (a two-dimensional array, a
            sparse matrix, or a DataFrame whose index are their labels); all known ones by default.

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
        return labelled_frame(
            np.sqrt(np.maximum(self.solution.variance(left, right), 0.0)), left, right
        )

    def belief(self, query: Any, objects: Any = None) -> GaussianBelief:
        """Joint distribution of the scores of objects for one conditioning node.

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
        self, query: Any, objects: Any = None, *, interval: float = 0.9, rng_key: Any = None
    ) -> pd.DataFrame:
        """Rank the objects for one conditioning node, best first.

        Parameters
        ----------
        query, objects
            As in `belief`. A known node is not ranked for itself unless it is asked for.
        interval : float
            Probability of the intervals.
        rng_key : JAX key or int, optional
            For the ranks, which come from 4000 draws.

        Returns
        -------
        DataFrame
            By object: ``mean``, ``sd``, ``lower``, ``upper`` of its score (with the ranking loss,
            of its score less the average over the objects ranked); ``expected_rank``,
            ``rank_lower``, ``rank_upper`` (1 is best), ``p_best``, and ``tier`` (see `tiers`).
        """
        belief, labels = self._scores(query, objects)
        return ranking_table(belief, labels, interval, self._rng(rng_key), "object")

    def plot(
        self,
        query: Any,
        objects: Any = None,
        top: int = 30,
        *,
        interval: float = 0.9,
        axes: Any = None,
    ) -> Any:
        """Draw the ranking for one conditioning node: dots, intervals, and bands for tiers.

        Parameters
        ----------
        query, objects, interval
            As in `ranking`.
        top, axes
            Number of rows that are drawn, and the matplotlib axes to draw on; those of a new figure
            by default.

        Returns
        -------
        matplotlib.axes.Axes
        """
        table = self.ranking(query, objects, interval=interval)
        return plot_forest(table, top, f"score, with {100 * interval:g}% intervals", axes)

    def tiers(self, query: Any, objects: Any = None, *, probability: float = 0.95) -> pd.DataFrame:
        """Tiers of objects for one conditioning node, see `UtilityPosterior.tiers`.

        Parameters
        ----------
        query, objects
            As in `ranking`.
        probability : float
            That all pairs that are told apart are in the right order, between 0 and 1.

        Returns
        -------
        DataFrame
            By object, best first: ``tier``, and ``rank_lower_all`` and ``rank_upper_all``, which
            hold the ranks of all objects at once.
        """
        belief, labels = self._scores(query, objects)
        return tier_table(belief, labels, probability, "object")

    def _scores(self, query: Any, objects: Any) -> tuple[Belief, list[Any]]:
        """The scores that `ranking` is about, with the labels of their objects."""
        asked, right = self._query(query, objects)
        mean, covariance = self.solution.query(asked, right)
        belief = GaussianBelief(self.shift + mean, covariance)
        kept = np.arange(belief.size)
        if objects is None and self.nodes is self.objects and not asked.new:
            kept = np.delete(kept, asked.side.index[0])
        weights = np.eye(belief.size)[kept]
        if self.loss == "ranking" and len(kept):
            weights = weights - weights.mean(axis=0)
        return belief.project(weights), [right.labels[position] for position in kept]

    def prefer(self, query: Any, pairs: Iterable[tuple[Any, Any]]) -> pd.DataFrame:
        """Probability that the first object of each pair ranks above the second for a node.

        Parameters
        ----------
        query
            As in `belief`.
        pairs : iterable of (label, label)
            Of known objects.

        Returns
        -------
        DataFrame
            ``first``, ``second``; ``probability`` that the first's next noisy label is the higher;
            ``p_better`` that its score is; ``gap_mean`` and ``gap_sd`` of the difference of scores.
        """
        listed = pairs_of_labels(pairs)
        labels = list(dict.fromkeys(label for pair in listed for label in pair))
        position = {label: row for row, label in enumerate(labels)}
        belief = self.belief(query, labels)
        first, second = (
            np.array([position[pair[end]] for pair in listed], dtype=int) for end in (0, 1)
        )
        margins = belief.differences(first, second)
        probability = ndtr(margins.mean / np.sqrt(margins.sd**2 + 2 * self.label_variance))
        return preference_table(listed, {"probability": probability}, margins)

    def sample(
        self, query: Any, objects: Any = None, num_samples: int = 1000, rng_key: Any = None
    ) -> Floats:
        """Draws of the scores of objects for one conditioning node, shape (num_samples, b)."""
        if num_samples < 1:
            raise DataError(f"num_samples is {num_samples}; ask for at least one draw")
        return self.belief(query, objects).draw(num_samples, self._rng(rng_key))

    def labels_of(self, query: Any, objects: Any = None) -> tuple[NDArray[np.intp], Floats]:
        """Known labels for a conditioning node, shape (l,), and positions of their objects.

        A new node has none. Arguments are those of `belief`.
        """
        asked, right = self._query(query, objects)
        if asked.new or right.new:
            return np.zeros(0, dtype=np.intp), np.zeros(0)
        values = self.problem.values
        row = np.flatnonzero(values.rows == asked.side.index[0])
        position = np.full(values.shape[1], -1, dtype=np.intp)
        position[right.side.index] = np.arange(len(right.labels))
        places = position[values.columns[row]]
        return places[places >= 0], self.shift + values.values[row][places >= 0]

    def log_likelihood(self, scores: Floats, labels: Floats) -> Floats:
        """Log density of each label (l,) of a conditioning node at scores (..., l).

        With the ranking loss it is conditional on the other labels.
        """
        with float64():
            noise = np.sqrt(self.label_variance)
            if self.loss == "regression":
                return np.asarray(dist.Normal(scores, noise).log_prob(labels))
            group = np.zeros(len(labels), dtype=np.int32)

            def log_density(location: Any) -> Any:
                return CentredNormal(location, noise, group, 1).conditional_log_prob(
                    jax.numpy.asarray(labels)
                )

            flat = jax.vmap(log_density)(jax.numpy.reshape(scores, (-1, len(labels))))
            return np.asarray(flat).reshape(np.shape(scores))

    def to_datatree(
        self, query: Any, objects: Any = None, num_samples: int = 1000, rng_key: Any = None
    ) -> Any:
        """DataTree with draws of scores and of next labels for one conditioning node.

        Arguments are those of `sample`; groups are those of `Posterior.to_datatree`,
        ``log_likelihood`` and ``observed_data`` where labels are known.
        """
        return tree(self, self.groups(num_samples, rng_key, query, objects))

    def to_arviz(
        self, query: Any, objects: Any = None, num_samples: int = 1000, rng_key: Any = None
    ) -> Any:
        """DataTree of `to_datatree`, or the ``InferenceData`` of an installed ArviZ 0.x."""
        return native(self.to_datatree(query, objects, num_samples, rng_key))

    def groups(
        self, num_samples: int, rng_key: Any, query: Any = None, objects: Any = None
    ) -> Groups:
        rng = self._rng(rng_key)
        per_chain = max(num_samples // CHAINS, 1)
        draws = (
            self.belief(query, objects).draw(CHAINS * per_chain, rng).reshape(CHAINS, per_chain, -1)
        )
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
        labelled, labels = self.labels_of(query, objects)
        if len(labelled):
            groups["posterior_predictive"]["label"] = replicated[..., labelled]
            groups["log_likelihood"] = {"label": self.log_likelihood(draws[..., labelled], labels)}
            groups["observed_data"] = {"label": labels}
            coords["labelled"] = [names[position] for position in labelled]
        groups["constant_data"] = {"label_sd": np.sqrt(self.label_variance)}
        dims = {"score": ["object"], "next_label": ["object"], "label": ["labelled"]}
        return Groups(groups, coords, dims)

    def arrays(self) -> Stored:
        """Arrays and JSON for a file; a closed form is not stored but solved again."""
        arrays, content = self._encoded("problem", "solution")
        problem, solution = self.problem, self.solution
        scores: dict[str, Any] = {
            "regularization": solution.regularization,
            "scale": solution.scale,
            **solution.arrays(),
        }
        if "dual" in scores:
            scores["stopped"] = solution.stopped
        values = {name: getattr(problem, name) for name in _PROBLEM}
        content |= {
            "problem": encode(values, arrays, "problem"),
            "solution": encode(scores, arrays, "solution"),
            "nodes": _encode_domain(problem.nodes, "nodes", arrays),
            "objects": None,
            "program": None,
        }
        if problem.objects is not problem.nodes:
            content["objects"] = _encode_domain(problem.objects, "objects", arrays)
        kernel: Any = problem.nodes.kernel
        if problem.nodes.features is None and kernel.data is not None:
            kept, origin = kernel.origin.encoded()
            if origin is not None:  # after loading, the program can be called for new nodes
                values = {name: getattr(kernel.data, name) for name in _DATA}
                data = encode(values, arrays, "data")
                content["program"] = {"origin": origin, "field": kernel.field, "data": data}
                arrays |= kept
        return arrays, content

    @classmethod
    def from_arrays(cls, arrays: Arrays, content: Any, program: Any = None) -> "RelationPosterior":
        """Decode the result of `arrays`; ``program`` is the user's own."""
        facts = cls._decoded(arrays, content, "problem", "solution", "nodes", "objects", "program")
        values, scores = (decode(content[name], arrays, name) for name in ("problem", "solution"))
        origin = data = None
        field = ""
        if content["program"] is not None:
            stored = checked(content["program"], _PROGRAM, "the program")
            parts = decode(stored["data"], arrays, "data")
            check_arguments(RelationData, parts, "the data")
            data, field = RelationData(values=values["values"], **parts), stored["field"]
            origin = Origin.decoded(stored["origin"], data, arrays, program)

        def domain(side: Literal["nodes", "objects"]) -> Domain:
            parts = decode(content[side], arrays, side)
            if parts["features"] is None:
                # New nodes need the program, where it is in the file.
                examples, matrix = (data if origin else None), parts["kernel"]
                parts["kernel"] = ProgramKernel(
                    origin, examples, facts["hyperparameters"], field, side, matrix
                )
            check_arguments(Domain, parts, f"the {side}")
            return Domain(**parts)

        first = domain("nodes")
        second = first if content["objects"] is None else domain("objects")
        check_arguments(RelationProblem, values, "the relation")
        problem = RelationProblem(first, second, **values)
        solve = EdgeScores if "dual" in scores else ClosedScores
        check_arguments(solve, scores, "the scores")
        return cls(problem, solve(problem, **scores), **facts)

    def _summarized(self, top: int, interval: float) -> list[str]:
        first = self.nodes.labels[0]
        sizes = (
            f"{counted(len(self.nodes.labels), 'conditioning node')}, "
            f"{counted(len(self.objects.labels), 'object')}"
        )
        lines = [f"Scores under the {self.loss} loss: {sizes}."]
        if not self.empty:
            table = self.ranking(first, interval=interval)
            lines += [
                f"The ranking for {label(first)}, for example:",
                forest(table, top, interval, "object", "score"),
            ]
        return lines

    def __repr__(self) -> str:
        shape = f"{len(self.nodes.labels)} x {len(self.objects.labels)}"
        how = f"{self.engine}: {self.solver}{self._evidence_in_words()}"
        return f"RelationPosterior({shape}, {self.loss}; {how})"

    def _ask(self, nodes: Any, objects: Any) -> tuple[Asked, Asked]:
        self._warn_if_not_converged()
        left = self.nodes.ask(nodes)
        same = objects is nodes and self.nodes is self.objects
        return left, left if same else self.objects.ask(objects)

    def _query(self, query: Any, objects: Any) -> tuple[Asked, Asked]:
        self._warn_if_not_converged()
        nodes = query
        if not (hasattr(query, "ndim") and query.ndim == 2):
            if isinstance(query, list | set | dict | np.ndarray | pd.Series):
                raise DataError(
                    f"query is a {type(query).__name__}; give one label, or one row of features"
                )
            nodes = [query]
        asked = self.nodes.ask(nodes)
        if len(asked.labels) != 1:
            raise DataError(
                f"query has {len(asked.labels)} rows; ask for one conditioning node at a time"
            )
        return asked, self.objects.ask(objects)


def labelled_frame(values: Floats, left: Asked, right: Asked) -> pd.DataFrame:
    """DataFrame with a row for each conditioning node and a column for each object."""
    rows, columns = (
        pd.Index(objects(side.labels), name=name, tupleize_cols=False)
        for name, side in (("node", left), ("object", right))
    )
    return pd.DataFrame(values, index=rows, columns=columns)


def _encode_domain(domain: Domain, side: str, arrays: dict[str, Any]) -> Any:
    values = {name: getattr(domain, name) for name in _DOMAIN}
    if domain.features is None:  # a program defines the kernel
        values["kernel"] = domain.gram
    try:
        encode(values["kernel"], {}, side)
    except StorageError as error:
        raise StorageError(
            f"the kernel of the {side} cannot be stored ({error}); kernels by name and those of "
            "relpref.kernels on attributes can: or give the kernel matrix with kernel='precomputed'"
        ) from None
    return encode(values, arrays, side)
