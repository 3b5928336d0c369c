"""Conditional ranking of objects, as a scikit-learn estimator over the exact Gaussian engine."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from relpref.blas import threads_for
from relpref.data.arrays import Floats
from relpref.data.relation_data import read_relation
from relpref.errors import DataError
from relpref.infer.exact.edges import Callback, EarlyStopping, require_converged
from relpref.infer.exact.solve import EdgeLabels, EdgeScores, RelationProblem, Scores
from relpref.infer.relation_posterior import RelationPosterior
from relpref.limits import MAX_EVIDENCE_EDGES
from relpref.posterior.gaussian import key_words
from relpref.result import InferenceWarning, warn_user
from relpref.rls.hold_out import RegularizationPath
from relpref.rls.node_kernels import Kernel, RelationEstimator
from relpref.rls.spectrum import RidgeSpectrum
from relpref.rls.splits import concordance, per_node

# Range of λ in units of the mean prior variance of a pair: noise from 1 % of a score's sd to a
# hundred times. The evidence may have several maxima, hence a grid.
_GRID = np.linspace(np.log(1e-4), np.log(1e4), 17)


def most_likely(problem: RelationProblem, rng: np.random.Generator) -> float:
    """Find the λ that maximizes the evidence, at the scale that maximizes it given λ.

    ``rng`` draws the conditioning nodes whose edges are used where there is no closed form and
    there are many edges. The ranking loss under a constraint has no evidence, and that of the
    regression takes its place.
    """
    if problem.symmetry != "none":
        problem = replace(problem, loss="regression")
    evidence = _evidence(problem, rng)
    unit = float(np.mean(problem.nodes.own) * np.mean(problem.objects.own))
    grid = np.log(unit) + _GRID

    def loss(log_regularization: float) -> float:
        return -evidence(float(np.exp(log_regularization)))

    losses = [loss(at) for at in grid]
    best = int(np.argmin(losses))
    ends = grid[max(best - 1, 0) : best + 2][[0, -1]]
    result = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-3})
    return float(np.exp(result.x if result.fun <= losses[best] else grid[best]))


def _evidence(problem: RelationProblem, rng: np.random.Generator) -> Callable[[float], float]:
    """Make the function of λ that returns the log evidence, up to a constant.

    Without a closed form it uses the eigenvalues of the kernel of some edges, or of contrasts
    within nodes with the ranking loss.
    """
    if problem.closed:
        system = problem.system()

        def closed(regularization: float) -> float:
            fit = system.solve(regularization)
            return fit.log_evidence(fit.scale)

        return closed
    place = rng.permutation(problem.values.shape[0])
    kept = np.argsort(place[problem.labels.rows], kind="stable")[:MAX_EVIDENCE_EDGES]
    labels, lost = EdgeLabels._make(column[kept] for column in problem.labels), 0
    weight = 1 / np.sqrt(labels.share)
    covariance = problem.covariance(labels) * np.multiply.outer(weight, weight)
    values = (labels.values * weight)[:, None]
    if problem.loss == "ranking":
        groups = np.unique(labels.rows, return_inverse=True)[1]
        spectrum, lost = RidgeSpectrum.ranking(covariance, values, groups), int(groups.max()) + 1
    else:
        spectrum = RidgeSpectrum.regression(covariance, values)
    # Offsets take one eigenvalue of 0 each, along which labels are 0.
    eigenvalues, squares = spectrum.values[lost:], np.square(spectrum.rotated[lost:, 0])

    def evidence(regularization: float) -> float:
        total = eigenvalues + regularization
        quadratic = float(np.sum(squares / total))
        return -0.5 * float(
            len(total) * np.log(quadratic or np.finfo(float).tiny) + np.sum(np.log(total))
        )

    return evidence


def hold_nodes_out(
    problem: RelationProblem, fraction: float | bool, patience: int, seed: int
) -> tuple[RelationProblem, EarlyStopping]:
    """Hold out a fraction of the conditioning nodes, whose concordance stops the iterations.

    Only nodes with two different labels have a concordance and are chosen.
    """
    share = 0.1 if fraction is True else float(fraction)
    if not 0 < share < 1:
        raise DataError(f"early_stopping is {fraction}; it is a fraction between 0 and 1")
    values = problem.values
    labels = values.mean_matrix
    ranked = np.flatnonzero(np.fmax.reduce(labels, axis=1) > np.fmin.reduce(labels, axis=1))
    count = max(1, round(share * len(ranked)))
    if count >= len(ranked):
        raise DataError(
            f"early_stopping holds out {count} of {len(ranked)} conditioning nodes with two "
            "different labels; too few are left: choose the regularization by ConditionalRankerCV "
            "with cv='edge' instead"
        )
    held = np.random.default_rng(seed).choice(ranked, count, replace=False)
    out = np.isin(values.rows, held)
    if problem.kernel.one_domain:  # symmetric or reciprocal: both directions leave together
        out |= np.isin(values.columns, held)
    kept = replace(problem, values=values.select(~out))
    truth = labels[held]
    left, right = kept.nodes.ask([kept.nodes.labels[row] for row in held]), kept.objects.ask()

    def held_out_concordance(dual: Floats) -> float:
        scores = kept.kernel.scores(left.side, right.side, kept.dual_matrix(dual))
        return per_node(concordance, truth, scores).mean

    return kept, EarlyStopping(held_out_concordance, patience)


class RelationRanker(BaseEstimator):
    """Predictions of a fitted posterior of a relation."""

    def _posterior(self) -> RelationPosterior:
        check_is_fitted(self, "posterior_")
        posterior: RelationPosterior = self.posterior_
        return posterior

    def predict(self, nodes: Any = None, objects: Any = None, return_std: bool = False) -> Any:
        """Scores, one row for each conditioning node, one column for each object, shape (a, b).

        Parameters
        ----------
        nodes, objects : optional
            A list of labels of known nodes, or two-dimensional features of new ones (for a
            precomputed kernel, rows of the kernel with every training node); all known nodes by
            default.
        return_std : bool
            Whether to return the posterior standard deviations, too.

        Returns
        -------
        DataFrame, or array where the training nodes had no labels; or two of them
        """
        posterior = self._posterior()
        mean = posterior.nodes.as_given(posterior.mean(nodes, objects))
        if not return_std:
            return mean
        return mean, posterior.nodes.as_given(posterior.sd(nodes, objects))

    def rank(self, nodes: Any = None, objects: Any = None) -> pd.DataFrame:
        """Rank the objects: their labels, one row for each conditioning node, columns 1, 2, ...

        Arguments are those of `predict`; column 1 holds the best.
        """
        scores = self._posterior().mean(nodes, objects)
        order = np.argsort(-scores.to_numpy(), axis=1, kind="stable")
        labels = scores.columns.to_numpy()[order]
        return pd.DataFrame(labels, scores.index, range(1, scores.shape[1] + 1))

    def score(self, nodes: Any, relation: Any, objects: Any = None) -> float:
        """Mean concordance over conditioning nodes: the share of pairs with the right order.

        ``relation``, shape (a, b), has the true labels, NaN = unknown, of ``nodes`` and ``objects``
        as for `predict`; without objects those are the nodes themselves where there is one kind.
        """
        posterior = self._posterior()
        if objects is None and posterior.nodes is posterior.objects:
            objects = nodes
        scores = posterior.mean(nodes, objects)
        truth = read_relation(relation, tuple(scores.index), tuple(scores.columns)).mean_matrix
        return float(per_node(concordance, truth, scores.to_numpy()).mean)


@dataclass(eq=False, repr=False, kw_only=True)
class ConditionalRanker(RelationEstimator, RelationRanker):
    """Conditional ranking of objects for a node by regularized least squares on edges.

    Exact (Pahikkala et al. 2010, 2013). Minimizes Σ (y_e − h(e))² + λ‖h‖² over the observed edges
    (``loss="regression"``), or the same with labels and scores centered within each conditioning
    node's edges (``loss="ranking"``, CR10 eq. 12: the squared loss of all differences, each node of
    equal weight). As a Gaussian model λ is the variance of a label's noise, and with the ranking
    loss every conditioning node has an unknown offset; that gives each score its posterior
    variance.

    Parameters
    ----------
    kernel : str, callable or kernel of `relpref.kernels`
        Kernel of nodes: ``"gaussian"``, ``"polynomial"``, ``"linear"``, ``"precomputed"`` and more,
        see `relpref.rls.node_kernels.gram`.
    object_kernel : as ``kernel``, optional
        Kernel of objects of another kind; the same as ``kernel`` by default.
    gamma, degree, coef0, kernel_params
        Parameters of the kernels by name; ``gamma`` is 1/d by default. ``kernel_params`` are
        keywords for a function or a kernel object.
    standardize : bool
        Whether a kernel by name gets features with mean 0 and standard deviation 1 over the
        training nodes; new nodes are shifted and scaled alike. Sparse features are scaled and not
        centered.
    object_kernel_params : dict, optional
        Keywords for ``object_kernel``; without one, for ``kernel`` on objects, the same as
        ``kernel_params`` by default.
    pair_kernel : {"kronecker", "cartesian", "mlpk", "preference"}
        Kernel of edges, see `relpref.kernels.pairwise`.
    loss : {"ranking", "regression"}
    symmetry : {"none", "symmetric", "reciprocal"}
        Symmetry of a relation between nodes of one kind; predictions obey it. Reciprocal labels in
        [0, 1] add up to 1 in both directions.
    regularization : float, optional
        λ, in units of K⊗G. By default the one that maximizes the evidence, between 1e-4 and 1e4
        times the mean prior variance of a pair: in closed form where there is one, else from at
        most 1500 edges; of the ranking loss under a constraint, which has no evidence, from that of
        the regression. 0 is possible with ``solver="cg"`` or early stopping.
    condition : {"first", "second"}
        Argument of the relation that the rankings are conditioned on: rows or columns.
    solver : {"auto", "closed", "cg"}
        Closed form where there is one (complete relation, Kronecker kernel, and not the ranking
        loss of a symmetric or reciprocal relation), else conjugate gradients; those also where
        ``early_stopping`` or a callback asks for iterations.
    tol, max_iter
        Relative residual and number of iterations at which conjugate gradients end; without effect
        on the closed form.
    early_stopping : float or bool
        Fraction of the conditioning nodes with two different labels whose edges are held out (True:
        a tenth); the iterations stop ``patience`` after the concordance of those was best, and the
        best solution is kept. Iterations that end before the solution (so, by a callback or by
        ``max_iter``) give scores without uncertainty: scale and noise are NaN.
    patience : int
    warm_start : bool
        Start the iterations from the last solution where the edges are the same.
    mesh : jax.sharding.Mesh, optional
        Mesh of one axis: devices that share the products of the conjugate gradients, which then
        replace the closed form. For ``pair_kernel="kronecker"``, a positive ``regularization`` and
        no early stopping. A mesh cannot be pickled.
    random_state : int
        Seed of the choice of nodes held out, and of Monte Carlo answers.

    Attributes
    ----------
    posterior_ : RelationPosterior
    problem_ : RelationProblem
        Problem that was solved, without the edges that early stopping held out.
    regularization_ : float
        Value of λ.
    dual_coef_ : array, shape (q,) or (p, m)
        Coefficients of the edges of ``problem_``; of all pairs where they are complete.
    n_iter_ : int
        Number of iterations, 0 for the closed form.
    shift_ : float
        Subtracted from the labels and added to the scores: ½ for reciprocal labels in [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from relpref.rls import ConditionalRanker
    >>> nodes = np.arange(8.0).reshape(4, 2)
    >>> ranker = ConditionalRanker("linear", regularization=0.1)
    >>> ranker = ranker.fit(nodes, np.arange(16.0).reshape(4, 4))
    >>> ranker.predict(np.ones((1, 2))).shape
    (1, 4)
    """

    kernel: Kernel = field(default="gaussian", kw_only=False)
    standardize: bool = True
    pair_kernel: str = "kronecker"
    loss: str = "ranking"
    regularization: float | None = None
    condition: str = "first"
    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int | None = None
    early_stopping: float | bool = False
    patience: int = 10
    warm_start: bool = False
    mesh: Any = None
    random_state: int = 0

    def fit(
        self,
        nodes: Any,
        relation: Any,
        objects: Any = None,
        *,
        callback: Callback | None = None,
        progress_bar: bool = False,
    ) -> Self:
        """Learn from a known or partly known relation.

        Parameters
        ----------
        nodes : DataFrame, array or sparse matrix, shape (p, d)
            Features of the nodes; the index of a DataFrame are their labels. The kernel matrix for
            ``kernel="precomputed"``.
        relation : array, DataFrame or sparse matrix
            (p, m) labels, NaN = unknown, or an edge table; see `relpref.data.read_relation`. Rows
            or sources are the first argument.
        objects : as ``nodes``, optional
            Features of the second argument where it is of another kind (drugs and targets); the
            nodes themselves by default.
        callback : callable, optional
            ``callback(iteration, dual, residual)`` after each iteration; True ends them.
        progress_bar : bool
            Whether to show the iterations in a terminal.

        Raises
        ------
        DataError
            If features, labels or options do not fit, there is nothing to rank by, or memory would
            not suffice.
        InferenceError
            If the iterations broke down: the tolerance is out of reach.
        """
        problem = self.problem(nodes, relation, objects)
        with threads_for(max(problem.values.shape)):
            return self.solve(problem, callback, progress_bar)

    def problem(self, nodes: Any, relation: Any, objects: Any = None) -> RelationProblem:
        """Make the problem that `fit` solves, of checked labels and kernels; arguments as `fit`."""
        if self.condition not in ("first", "second"):
            raise DataError(f"condition is {self.condition!r}; it is 'first' or 'second'")
        first, second = self._domains(nodes, objects, standardize=self.standardize)
        values = read_relation(relation, first.labels, None if objects is None else second.labels)
        values, shift = values.constrained(self.symmetry)  # type: ignore[arg-type]
        if self.condition == "second":
            first, second, values = second, first, values.transposed()
        options: Any = (self.loss, self.symmetry, self.pair_kernel, self.solver, shift, self.mesh)
        problem = RelationProblem(first, second, values, *options)
        problem.require_variation()
        return problem

    def solve(
        self, problem: RelationProblem, callback: Callback | None = None, progress_bar: bool = False
    ) -> Self:
        """Solve a problem that `problem` returned; the second half of `fit`."""
        info: dict[str, Any] = {"engine": "exact", "result": "converged", **problem.describe()}
        if self.early_stopping or callback is not None:
            if problem.solver == "closed":
                option = "early_stopping" if self.early_stopping else "callback"
                raise DataError(
                    f"solver='closed' has no iterations, which {option} is about; use 'auto' or "
                    "'cg'"
                )
            problem = replace(problem, solver="cg")
        regularization = self.regularization
        if regularization is None:
            regularization = most_likely(problem, np.random.default_rng(self.random_state))
            info["regularization"] = "by the evidence"
        self.regularization_ = regularization
        stopping: EarlyStopping | None = None
        if self.early_stopping:
            edges = len(problem.values.values)
            problem, stopping = hold_nodes_out(
                problem, self.early_stopping, self.patience, self.random_state
            )
            kept = len(problem.values.values)
            info |= {"edges": kept, "complete": False, "held_out_edges": edges - kept}
        scores = self._scores(problem, stopping, info, callback, progress_bar)
        self.dual_coef_, self.n_iter_ = scores.coefficients, info["iterations"]
        self.problem_, self.shift_ = problem, problem.shift
        self.posterior_ = RelationPosterior(
            problem=problem,
            solution=scores,
            hyperparameters={
                "regularization": regularization,
                "scale": scores.scale,
                "noise": scores.scale * regularization,
            },
            log_evidence=scores.log_evidence() if problem.closed else None,
            info=info,
            key=key_words(self.random_state),
        )
        return self

    def _scores(
        self,
        problem: RelationProblem,
        stopping: EarlyStopping | None,
        info: dict[str, Any],
        callback: Callback | None,
        progress_bar: bool,
    ) -> Scores:
        """Solve the problem, and add to ``info`` how that went."""
        regularization, start = self.regularization_, None
        warm = self.warm_start and hasattr(self, "dual_coef_")
        if warm and self.problem_.values.same_edges(problem.values):
            start = self.dual_coef_.reshape(-1)
        watchers = [watch for watch in (callback, stopping) if watch is not None]

        def each(*iteration: Any) -> bool:
            decisions = [watch(*iteration) for watch in watchers]
            return any(decisions)

        early = regularization == 0 or stopping is not None
        scores, iterations, solver = problem.solve(
            regularization,
            progress_bar=progress_bar,
            start=start,
            tol=self.tol,
            max_iterations=self.max_iter,
            callback=each if watchers else None,
            # Few iterations regularize, and those of the smallest residual do it better.
            minimise="residual" if early else "error",
        )
        info |= solver
        if iterations is None:
            return scores
        reason = iterations.reason
        # Without regularization the number of iterations takes its place, and the smallest residual
        # is a solution.
        if reason == "breakdown" and not early:
            require_converged(iterations, regularization)
        limited = regularization == 0 and self.max_iter is not None
        ended = reason in ("converged", "stopped") or limited
        info |= {"result": "converged" if ended else "iterations_not_converged", "stopped": reason}
        if not ended:
            warn_user(
                f"conjugate gradients ended with {reason} after {iterations.iterations} "
                f"iterations, residual {iterations.residual:.1e}; raise max_iter, tol or "
                "regularization",
                InferenceWarning,
            )
        if stopping is not None and stopping.solution is not None:
            scores = EdgeScores(problem, regularization, np.nan, stopping.solution, stopped=True)
            info |= {
                "held_out_concordance": max(stopping.scores),
                "best_iteration": stopping.iteration,
            }
        return scores

    def predict_path(self, regularizations: Any, nodes: Any = None, objects: Any = None) -> Floats:
        """Scores for r values of λ, shape (r, a, b); see `predict`.

        One decomposition serves them all; conjugate gradients start from the solution before.

        Raises
        ------
        InferenceError
            If conjugate gradients do not converge.
        """
        check_is_fitted(self, "posterior_")
        problem = self.problem_
        left, right = problem.nodes.ask(nodes), problem.objects.ask(objects)
        values = np.asarray(regularizations, dtype=np.float64).tolist()
        scores = np.empty((len(values), len(left.labels), len(right.labels)))
        path = RegularizationPath(values, self.tol, self.max_iter)
        with threads_for(max(problem.values.shape)):
            for place, solution in path.solutions(problem):
                scores[place] = self.shift_ + solution.mean(left, right)
        return scores
