"""Ranking objects conditional on a node, as a scikit-learn estimator over the exact Gaussian engine."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from relpref.data.relation_data import read_relation
from relpref.errors import DataError
from relpref.infer.exact.edges import Callback, EarlyStopping, require_converged
from relpref.infer.exact.solve import EdgeLabels, EdgeScores, RelationProblem, Scores
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import InferenceWarning, warn_user
from relpref.limits import MAX_EVIDENCE_EDGES
from relpref.parallel import threads_for
from relpref.posterior.gaussian import key_words
from relpref.rls.hold_out import RegularizationPath
from relpref.rls.node_kernels import Kernel, RelationEstimator
from relpref.rls.spectrum import RidgeSpectrum
from relpref.rls.splits import concordance, per_node

Floats = NDArray[np.float64]

# λ, in units of the mean prior variance of a pair: noise from 1 % of a score's sd to a hundred
# times
_LEAST, _MOST = 1e-4, 1e4
_STEPS = 17  # of a first look between them: the evidence may have several maxima


def most_likely(problem: RelationProblem, rng: np.random.Generator) -> float:
    """The λ that maximizes the evidence, at the scale that maximizes it given λ.

    ``rng`` draws the conditioning nodes that are looked at where there is no closed form and there
    are many edges. The ranking loss under a constraint has no evidence, and that of the regression
    is taken.
    """
    if problem.symmetry != "none":
        problem = replace(problem, loss="regression")
    evidence = _evidence(problem, rng)
    unit = float(np.mean(problem.nodes.own) * np.mean(problem.objects.own))
    grid = np.log(unit) + np.linspace(np.log(_LEAST), np.log(_MOST), _STEPS)
    values = [evidence(float(np.exp(at))) for at in grid]
    best = int(np.argmax(values))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, _STEPS - 1)]
    found = minimize_scalar(
        lambda at: -evidence(float(np.exp(at))),
        bounds=ends,
        method="bounded",
        options={"xatol": 1e-3},
    )
    return float(np.exp(found.x if -found.fun >= values[best] else grid[best]))


def _evidence(problem: RelationProblem, rng: np.random.Generator) -> Callable[[float], float]:
    """Up to a constant; of edges from the eigenvalues of their kernel (of contrasts within nodes with the ranking loss)."""
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
    """Take the edges of a fraction of the conditioning nodes out of a problem, and watch how well those nodes are ranked for.

    Only nodes with two different labels have a concordance, and are chosen.
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
            "different labels; too few are left: "
            "choose the regularization by ConditionalRankerCV with cv='edge' instead"
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
            Known ones by a list of labels; new ones by two-dimensional features (for a precomputed
            kernel the rows hold the kernel with every training node); all known ones by default.
        return_std : bool
            Also the posterior standard deviations.

        Returns
        -------
        DataFrame, or array where the training nodes had no labels; or two of them
        """
        posterior = self._posterior()
        mean = posterior.nodes.as_given(posterior.mean(nodes, objects))
        return (
            (mean, posterior.nodes.as_given(posterior.sd(nodes, objects))) if return_std else mean
        )

    def rank(self, nodes: Any = None, objects: Any = None) -> pd.DataFrame:
        """Labels of the objects, best first: one row for each conditioning node, columns 1, 2, ... are the ranks; see `predict`."""
        scores = self._posterior().mean(nodes, objects)
        order = np.argsort(-scores.to_numpy(), axis=1, kind="stable")
        labels = scores.columns.to_numpy()[order]
        return pd.DataFrame(labels, index=scores.index, columns=np.arange(1, scores.shape[1] + 1))

    def score(self, nodes: Any, relation: Any, objects: Any = None) -> float:
        """Mean concordance over conditioning nodes: how often the object with the higher label has the higher score.

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
    """Ranks all objects for a given node by regularized least squares on edges, exactly (Pahikkala et al. 2010, 2013).

    Minimizes Σ (y_e − h(e))² + λ‖h‖² over the observed edges (``loss="regression"``), or the same
    with labels and scores centered within each conditioning node's edges (``loss="ranking"``, CR10
    eq. 12: the squared loss of all differences, each node of equal weight). As a Gaussian model λ
    is the variance of a label's noise, and with the ranking loss every conditioning node has an
    unknown offset; that gives each score its posterior variance.

    Parameters
    ----------
    kernel : str, callable or kernel of `relpref.kernels`
        Of nodes: ``"gaussian"``, ``"polynomial"``, ``"linear"``, ``"precomputed"`` and more, see
        `relpref.rls.node_kernels.gram`.
    object_kernel : as ``kernel``, optional
        Where objects are of another kind; the same as ``kernel`` by default.
    gamma, degree, coef0, kernel_params
        Of the kernels by name; ``gamma`` is 1/d by default. ``kernel_params`` are keywords for a
        function or a kernel object.
    standardize : bool
        Whether features are brought to mean 0 and standard deviation 1 over the nodes of the
        training before a kernel by name sees them; new nodes by the same. Sparse features are
        scaled and not centered.
    object_kernel_params : dict, optional
        Keywords for ``object_kernel``; without one, for ``kernel`` on objects, the same as
        ``kernel_params`` by default.
    pair_kernel : {"kronecker", "cartesian", "mlpk", "preference"}
        Of edges, see `relpref.kernels.pairwise`.
    loss : {"ranking", "regression"}
    symmetry : {"none", "symmetric", "reciprocal"}
        Of the relation between nodes of one kind; predictions obey it. Reciprocal labels in [0, 1]
        add up to 1 in both directions.
    regularization : float, optional
        λ, in units of K⊗G. By default the one that maximizes the evidence, between 1e-4 and 1e4
        times the mean prior variance of a pair: in closed form where there is one, else from at
        most 1500 edges; of the ranking loss under a constraint, which has no evidence, from that of
        the regression. 0 is possible with ``solver="cg"`` or early stopping.
    condition : {"first", "second"}
        Which argument of the relation the rankings are conditioned on: the rows or the columns of
        the relation.
    solver : {"auto", "closed", "cg"}
        Closed form where there is one (complete relation, Kronecker kernel, and not the ranking
        loss of a symmetric or reciprocal relation), else conjugate gradients; those also where
        ``early_stopping`` or a callback asks for iterations.
    tol, max_iter
        Of the conjugate gradients: relative residual, and iterations; without effect on the closed
        form.
    early_stopping : float or bool
        Fraction of the conditioning nodes with two different labels whose edges are held out (True:
        a tenth); the iterations stop ``patience`` after the concordance of those was best, and the
        best solution is kept. Iterations that end before the solution (so, by a callback or by
        ``max_iter``) give scores without uncertainty: scale and noise are NaN.
    patience : int
    warm_start : bool
        Start the iterations from the last solution where the edges are the same.
    mesh : jax.sharding.Mesh, optional
        Of one axis: devices that share the products of the conjugate gradients, which then take the
        closed form's place. For ``pair_kernel="kronecker"``, a positive ``regularization`` and no
        early stopping. A mesh cannot be pickled.
    random_state : int
        For the nodes held out, and for Monte Carlo answers.

    Attributes
    ----------
    posterior_ : RelationPosterior
    problem_ : RelationProblem
        What was solved: without the edges that early stopping held out.
    regularization_ : float
        λ as it was used.
    dual_coef_ : array, shape (q,) or (p, m)
        Coefficients of the edges of ``problem_``; of all pairs where they are complete.
    n_iter_ : int
        0 for the closed form.
    shift_ : float
        Subtracted from the labels and added to the scores: ½ for reciprocal labels in [0, 1].
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
            Where the second argument is of another kind (drugs and targets); the nodes themselves
            by default.
        callback : callable, optional
            ``callback(iteration, dual, residual)`` after each iteration; True ends them.
        progress_bar : bool
            Show the iterations where a person watches.

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
        """What `fit` solves: checked labels and the kernels of both sides; arguments as for `fit`."""
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
        """The second half of `fit`, for problems from `problem`."""
        info: dict[str, Any] = {"engine": "exact", "result": "converged", **problem.describe()}
        for option, given in (
            ("early_stopping", self.early_stopping),
            ("callback", callback is not None),
        ):
            if given and problem.solver == "closed":
                raise DataError(
                    f"solver='closed' has no iterations, which {option} is about; use 'auto' or "
                    "'cg'"
                )
            if given:
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
        noise = scores.scale * regularization
        self.posterior_ = RelationPosterior(
            problem=problem,
            solution=scores,
            hyperparameters={
                "regularization": regularization,
                "scale": scores.scale,
                "noise": noise,
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
        """The solution; what happened goes into ``info``."""
        regularization, start = self.regularization_, None
        if self.warm_start and hasattr(self, "dual_coef_"):
            start = (
                self.dual_coef_.reshape(-1)
                if self.problem_.values.same_edges(problem.values)
                else None
            )

        def each(iteration: int, dual: Floats, residual: float) -> bool:
            wanted = callback is not None and bool(callback(iteration, dual, residual))
            return (stopping is not None and stopping(iteration, dual, residual)) or wanted

        early = regularization == 0 or stopping is not None
        scores, found, solver = problem.solve(
            regularization,
            progress_bar=progress_bar,
            start=start,
            tol=self.tol,
            max_iterations=self.max_iter,
            callback=None if callback is None and stopping is None else each,
            # Few iterations regularize, and then those of the smallest residual do it better.
            minimise="residual" if early else "error",
        )
        info |= solver
        if found is None:
            return scores
        # Without regularization the number of iterations takes its place, and the smallest residual
        # is a solution.
        if found.reason == "breakdown" and not early:
            require_converged(found, regularization)
        ended = found.reason in ("converged", "stopped") or (
            regularization == 0 and self.max_iter is not None
        )
        if not ended:
            warn_user(
                f"conjugate gradients ended with {found.reason} after {found.iterations} "
                "iterations, residual "
                f"{found.residual:.1e}; raise max_iter, tol or regularization",
                InferenceWarning,
            )
        info |= {
            "result": "converged" if ended else "iterations_not_converged",
            "stopped": found.reason,
        }
        if stopping is not None and stopping.solution is not None:
            scores = EdgeScores(problem, regularization, np.nan, stopping.solution, stopped=True)
            info |= {
                "held_out_concordance": max(stopping.scores),
                "best_iteration": stopping.iteration,
            }
        return scores

    def predict_path(self, regularizations: Any, nodes: Any = None, objects: Any = None) -> Floats:
        """Scores for r values of λ, shape (r, a, b), from one decomposition, or each from the solution before it; see `predict`.

        Raises
        ------
        InferenceError
            If conjugate gradients do not converge.
        """
        check_is_fitted(self, "posterior_")
        problem = self.problem_
        left, right = problem.nodes.ask(nodes), problem.objects.ask(objects)
        values = np.asarray(regularizations, dtype=np.float64).tolist()
        found = np.empty((len(values), len(left.labels), len(right.labels)))
        path = RegularizationPath(values, self.tol, self.max_iter)
        with threads_for(max(problem.values.shape)):
            for place, scores in path.solutions(problem):
                found[place] = self.shift_ + scores.mean(left, right)
        return found
