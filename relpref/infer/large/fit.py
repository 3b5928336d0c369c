"""EP and Laplace for more items than a matrix has room for.

First the hyperparameters, on some of the answers (`search`). Then, at these, one of two ways:
answers about some thousands of items are those of a small problem, exactly (`fit_reduced`); answers
about more give a posterior whose precision is sparse (`fit_many`).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from relpref.errors import InferenceError, UnsupportedProgramError
from relpref.infer.arrow import GroupedRows
from relpref.infer.assemble import choose, prior_notes
from relpref.infer.gradient import tilted
from relpref.infer.large.covariance import Conditioned, ImplicitBelief, PosteriorCovariance, Unknown
from relpref.infer.large.problem import NODES, LargeProblem, LargeReading, Positions, touched
from relpref.infer.large.sparse_ep import fit as fit_sparse
from relpref.infer.layout import powers
from relpref.infer.plates import prepare_plates
from relpref.infer.program import Program
from relpref.infer.rows import SparseRows
from relpref.infer.search import fit_hyperparameters
from relpref.infer.sites import Sites
from relpref.likelihoods import is_log_concave
from relpref.limits import MAX_FACTORISED, MAX_NOTED_ITEMS, MAX_REDUCED_ITEMS
from relpref.linalg import Covariance
from relpref.posterior.base import Parts, Posterior
from relpref.posterior.gaussian import Floats, generator
from relpref.posterior.origin import Origin
from relpref.result import Result, progress_line, warn_user

GaussianEngine = Any  # of `relpref.infer.engine`, which builds on this module

# A search looks at no more answers and items than these, and at fewer where solves take long: the
# number of stored links times items times nodes stays below the last.
_MOST_ANSWERS, _MOST_SEARCHED, _LEAST_SEARCHED, _WORK = 1500, 1500, 100, 2e10
_TOLERANCE = 1e-6  # of the sites; solves are a hundred times as accurate
# Inducing items that stand for the attributes of all, and the share of the prior variance that they
# may leave out.
INDUCING, LEFT_OUT = 300, 1e-3
_MUCH = 0.05  # a share that is worth a warning
_NOT_INTEGRATED = (
    "hyperparameters are at their maximum: without a matrix of all items the covariance of each of "
    "many points would be a search of its own; structure='dense' averages over them where memory "
    "allows it"
)


class Fitted(NamedTuple):
    """A fit at known hyperparameters."""

    means: dict[str, Floats]  # of the parts, shape (n,) each; they add up to the posterior mean
    covariance: PosteriorCovariance | None  # None where no sweep gave one
    log_evidence: float
    sites: dict[str, Floats]  # ``precision`` and ``shift``, shape (m,)
    result: Result
    info: dict[str, Any]


def fit_reduced(
    engine: GaussianEngine,
    problem: LargeProblem,
    reading: LargeReading,
    positions: Positions,
    values: Mapping[str, Any],
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
) -> Fitted:
    """Fit the items that answers are about by the engine; the other items follow exactly."""
    data, parts, space = problem.data, reading.prior.parts, engine.options["space"]
    blocks = reading.blocks(positions)
    fewer = data.num_comparisons <= len(positions) if space == "auto" else space == "observation"
    dual = fewer and all(is_log_concave(site.likelihood) for site in reading.observations)
    program = Program.of(*problem.reduced(positions, blocks), values)
    space = "observation" if dual else "latent"
    evidence, result, info, *_ = fit_hyperparameters(
        engine, program, start, key, progress_bar, None, None, space
    )
    sites = {name: np.asarray(site) for name, site in evidence.sites._asdict().items()}
    log_evidence = float(evidence.log_evidence)
    if result.empty:
        nothing = dict.fromkeys(parts, np.full(data.num_items, np.nan))
        return Fitted(nothing, None, log_evidence, sites, result, info)
    pull = np.zeros(data.num_items)
    pull[positions] = np.asarray(evidence.alpha)
    means = {name: part.matmul(pull) for name, part in parts.items()}
    dual_form = _dual(
        sum(blocks.values()), reading, positions, reading.counts * sites["precision"], dual
    )
    covariance = Conditioned(reading.prior, positions, *dual_form)
    return Fitted(means, covariance, log_evidence, sites, result, info)


def _dual(
    covariance: Any,
    reading: LargeReading,
    positions: Positions,
    precision: Floats,
    observation_space: bool,
) -> tuple[Any, Floats]:
    """Projection and weights for `Conditioned`, with the posterior precision K⁻¹ + AᵀMA.

    The algebra is that of `relpref.infer.sites`, by SciPy, because JAX would compile again for
    every number of answers.
    """
    projection, shared = reading.projection(positions), reading.shared
    try:
        if observation_space:
            root = np.sqrt(precision)
            gram = projection @ (projection @ covariance).T
            if shared is not None:
                gram += shared.blocks.matrix(shared.factors)
            gram *= root[:, None] * root
            gram[np.diag_indices_from(gram)] += 1.0
            lower = cholesky(gram, lower=True, overwrite_a=True)
            half = solve_triangular(lower, np.diag(root), lower=True, overwrite_b=True)
            return projection, half.T @ half
        pulled = projection.T @ scipy.sparse.diags_array(precision) @ projection  # Q
        if shared is not None:
            column = np.searchsorted(positions, reading.column)
            rows = GroupedRows.of(
                SparseRows(column, reading.entry, np.zeros(len(positions))), shared.blocks
            )
            pulled = scipy.sparse.csr_array(
                rows.gram(shared.blocks.middle(precision, shared.factors)[0])
            )
        lower = cholesky(covariance, lower=True)
        cross = pulled @ lower
        inner = lower.T @ cross
        inner[np.diag_indices_from(inner)] += 1.0
        weights = pulled.toarray() - cross @ cho_solve(cho_factor(inner, lower=True), cross.T)
        return scipy.sparse.eye_array(len(covariance), format="csr"), 0.5 * (weights + weights.T)
    except np.linalg.LinAlgError:
        result = Result.prior_not_positive_definite
        raise InferenceError(f"{result.name}: {result.value}", result) from None


def search(
    engine: GaussianEngine,
    problem: LargeProblem,
    fixed: Mapping[str, Any],
    key: Any,
    progress_bar: bool,
    at_first: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], dict[str, Any], Result]:
    """Maximize the evidence of some of the answers.

    Returns hyperparameters by site, entries for ``info``, and the result.
    """
    links = sum(2 * graph.num_edges + graph.num_nodes for graph in problem.data.relations.values())
    most = int(np.clip(_WORK / (NODES * max(links, 1)), _LEAST_SEARCHED, _MOST_SEARCHED))
    data = problem.subset(most, _MOST_ANSWERS, generator(key))
    positions = touched(data)
    part = LargeProblem(problem.program, *problem.called_with(data), data, problem.scale_error)
    if not problem.free(fixed):
        return {}, {}, Result.converged
    learnable = part.learnable(fixed)
    tables = {
        name: kernel.table(positions, fixed, progress_bar) for name, kernel in learnable.items()
    }
    program = prepare_plates(Program.of(*part.reduced(positions, tables), fixed), average=False)
    matrices = False if engine.options["hyperparameters"] == "em" else None  # EM reads them
    # In observation space an interpolated covariance need not be positive definite.
    fitted = fit_hyperparameters(
        engine, program, None, key, progress_bar, at_first, matrices, "observation"
    )
    learned = {name: value for name, value in program.fixed.items() if name not in fixed}
    learned |= fitted.evidence.hyperparameters
    values = {name: np.asarray(value) for name, value in learned.items()}
    kept = ("hyperparameters", "evaluations", "gradient_norm", "failed_evaluations", "log_prior")
    info: dict[str, Any] = {name: fitted.info[name] for name in kept if name in fitted.info}
    info["searched_answers"] = data.num_answers
    edges = [
        site
        for name, kernel in learnable.items()
        for site in kernel.sites.values()
        if site in values and tables[name].ends_at(float(values[site]))
    ]
    if edges:
        info["at_boundary"] = ", ".join(edges)
    return values, info, fitted.result


def fit_many(
    engine: GaussianEngine,
    reading: LargeReading,
    start: Mapping[str, Any] | None,
    rng_key: Any,
    progress_bar: bool,
) -> Fitted:
    """EP at known hyperparameters; the `GaussianEngine.fit_many` of engines that match moments."""
    if not all(is_log_concave(site.likelihood) for site in reading.observations):
        raise UnsupportedProgramError(
            "so many answers about so many items can be fitted with log-concave likelihoods only, "
            "and the program's is not (a lapse "
            "rate makes it so); leave the lapse rate out, or take fewer answers"
        )
    parts, left_out = low_rank_parts(reading, rng_key)
    observations: Any = jax.tree.map(np.asarray, reading.observations)
    moments: Any = partial(tilted, observations, reading.offset)
    if not all(hasattr(site.likelihood, "powered") for site in observations):
        moments = jax.jit(moments)
    with progress_line("Fitting many answers", progress_bar) as report:
        fitted = fit_sparse(
            parts,
            reading.column,
            reading.entry,
            reading.counts,
            moments,
            power=(np.asarray(powers(observations)),),
            shared=reading.shared,
            start=None if start is None else Sites(start["precision"], start["shift"]),
            tol=max(engine.options["tol"], _TOLERANCE),
            max_sweeps=engine.options["max_sweeps"],
            key=rng_key,
            progress=report,
        )
    variance = np.where(fitted.gap_variance > 0, fitted.gap_variance, np.inf)
    info = {
        "engine": engine.name,
        "iterations": fitted.sweeps,
        "residual": fitted.residual,
        "damping": fitted.damping,
        "space": "sparse",
        "jitter": 0.0,
        "log_prior": 0.0,
        "variances": fitted.method,
        "gap_sd_error": float(np.max(fitted.gap_variance_error / (2 * variance), initial=0.0)),
        "mean_error": float(np.max(fitted.mean_error, initial=0.0)),
        "log_evidence_error": fitted.log_evidence_error,
    }
    if left_out is not None:
        info["attributes_left_out"] = left_out
        if left_out > _MUCH:
            warn_user(
                f"{INDUCING} inducing items leave out {left_out:.0%} of the attributes' prior "
                "variance: intervals come out that much too narrow; fewer attributes, longer "
                "lengthscales, or fewer answers at a time keep more"
            )
    if fitted.detail:
        info["detail"] = fitted.detail
    sites = {name: np.asarray(value) for name, value in fitted.sites._asdict().items()}
    return Fitted(fitted.parts, fitted.covariance, fitted.log_evidence, sites, fitted.result, info)


def low_rank_parts(reading: LargeReading, key: Any) -> tuple[dict[str, Covariance], float | None]:
    """Parts of the prior, with attributes by inducing items, and the share of variance left out."""
    few = {
        name: part.low_rank(INDUCING, LEFT_OUT, generator(key))
        for name, part in reading.prior.parts.items()
    }
    left_out = [part.left_out for part in few.values() if part is not None]
    return {name: part or reading.prior.parts[name] for name, part in few.items()}, (
        left_out or [None]
    )[-1]


def fit(
    engine: GaussianEngine,
    start: Mapping[str, Any] | None,
    key: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    progress_bar: bool,
    at_first: Mapping[str, Any] | None,
) -> Posterior:
    """Fit a program to more items than a matrix has room for; see `GaussianEngine.run_from`."""
    if engine.options["hyperparameters"] == "nuts":
        raise UnsupportedProgramError(
            "hyperparameters is 'nuts', which needs a covariance of all items for each draw, and "
            "there are too many of them; "
            "take 'maximize' or 'em', or structure='dense' where memory allows it"
        )
    problem = LargeProblem.of(engine.program, args, kwargs)
    if engine.at_mode and problem.data.comparisons.list is not None:
        raise UnsupportedProgramError(
            "Laplace takes lists only where there is a matrix of all items; fit with EP, or with "
            "structure='dense' where memory allows it"
        )
    fixed = problem.known(engine.fixed)
    learned, how, searched = search(engine, problem, fixed, key, progress_bar, at_first)
    values = {**fixed, **learned}
    reading = problem.read(values, progress_bar)
    number, positions = problem.data.num_items, touched(problem.data)
    if (
        len(positions) <= MAX_REDUCED_ITEMS
        and min(len(reading.offset), len(positions)) <= MAX_FACTORISED
    ):
        fitted = fit_reduced(engine, problem, reading, positions, values, start, key, progress_bar)
    elif engine.fit_many is None:
        raise UnsupportedProgramError(
            f"{engine.name} has no way through so many answers about so many items; take EP, or "
            "fewer answers"
        )
    else:
        fitted = engine.fit_many(engine, reading, start, key, progress_bar)
    result = searched if fitted.result.ok else fitted.result
    info = {
        **fitted.info,
        **how,
        "result": result.name,
        "structure": "sparse",
        "entities": number,
        "touched": len(positions),
    }
    if len(positions) <= MAX_NOTED_ITEMS and not result.empty:
        info |= prior_notes(problem.data, {problem.latent: reading.blocks(positions)}, positions)
    if engine.options["hyperparameters"] == "integrate" and learned:
        info["integration"] = _NOT_INTEGRATED
    if problem.scale_error:
        info["scale_error"] = max(problem.scale_error.values())
    engine.raise_unless_ok(result, info)
    means = dict.fromkeys(fitted.means, np.full(number, np.nan)) if result.empty else fitted.means
    covariance = Unknown(number) if fitted.covariance is None or result.empty else fitted.covariance
    common = {
        "belief": ImplicitBelief(np.asarray(sum(means.values())), covariance),
        "parts": {problem.latent: Parts(means, {})},
        "hyperparameters": values,
        "log_evidence": np.nan if result.empty else fitted.log_evidence,
        "info": info,
        "sites": fitted.sites,
        "key": key,
    }
    return choose(
        Origin(engine.program, problem.args, problem.kwargs, engine),
        {problem.latent: slice(0, number)},
        common,
    )
