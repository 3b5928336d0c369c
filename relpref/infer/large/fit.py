"""EP and Laplace for more items than a matrix has room for.

First the hyperparameters, on some of the answers (`search`). Then, at these, one of two ways:
answers about some thousands of items are those of a small problem, exactly (`fit_reduced`); answers
about more give a posterior whose precision is sparse (`fit_many`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from relpref.errors import UnsupportedProgramError
from relpref.infer.assemble import choose, prior_notes
from relpref.infer.evidence import on_host, space_of
from relpref.infer.large.covariance import Conditioned, ImplicitBelief, Unknown
from relpref.infer.large.problem import NODES, LargeProblem, Positions, blocks_of, touched
from relpref.infer.large.spaces import SeenRows
from relpref.infer.large.sparse_ep import Fitted
from relpref.infer.large.sparse_ep import fit as fit_sparse
from relpref.infer.plates import prepare_plates
from relpref.infer.search import fit_hyperparameters
from relpref.infer.sites import Sites
from relpref.limits import MAX_FACTORISED, MAX_NOTED_ITEMS, MAX_REDUCED_ITEMS
from relpref.linalg import Covariance, Dense, NamedSum
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


def fit_reduced(
    engine: GaussianEngine,
    problem: LargeProblem,
    prior: NamedSum,
    positions: Positions,
    values: Mapping[str, Any],
    blocks: Mapping[str, Floats],
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
) -> Fitted:
    """Fit the items that answers are about by the engine; the other items follow exactly.

    ``blocks`` are their prior covariances by part.
    """
    program = problem.read(positions, blocks, values)
    evidence, result, info, dual, _ = fit_hyperparameters(
        engine, program, start, key, progress_bar, None, None
    )
    sites = {name: np.asarray(site) for name, site in evidence.sites._asdict().items()}
    log_evidence = float(evidence.log_evidence)
    if result.empty:
        nothing = dict.fromkeys(prior.parts, np.full(prior.size, np.nan))
        return Fitted(nothing, None, log_evidence, sites, result, info)
    pull = np.zeros(prior.size)
    pull[positions] = np.asarray(evidence.alpha)
    means = {name: part.matmul(pull) for name, part in prior.parts.items()}
    # The posterior covariance is K − K AᵀMA K.
    here = program.on_host().prior
    within = space_of(program, here, Dense(here.covariance.dense()), dual)
    factor, rows = within.factorise(program.counts * sites["precision"]), here.projection
    if dual:
        projection, weights = rows.matrix, within.dual_weights(factor)
    else:
        projection = scipy.sparse.eye_array(len(positions), format="csr")
        weights = within.weights(factor)
        weights = 0.5 * (weights + weights.T)
    covariance = Conditioned(prior, positions, projection, weights)
    return Fitted(means, covariance, log_evidence, sites, result, info)


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
    part = replace(problem, origin=problem.called_with(data), data=data)
    if not problem.free(fixed):
        return {}, {}, Result.converged
    learnable = part.learnable(fixed)
    tables = {
        name: kernel.table(positions, fixed, progress_bar) for name, kernel in learnable.items()
    }
    program = prepare_plates(part.read(positions, tables, fixed), average=False)
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
    problem: LargeProblem,
    prior: NamedSum,
    positions: Positions,
    values: Mapping[str, Any],
    start: Mapping[str, Any] | None,
    rng_key: Any,
    progress_bar: bool,
) -> Fitted:
    """EP at known hyperparameters; the `GaussianEngine.fit_many` of engines that match moments."""
    program = problem.read(positions, None, values)
    if not program.layout.log_concave:
        raise UnsupportedProgramError(
            "so many answers about so many items can be fitted with log-concave likelihoods only, "
            "and the program's is not (a lapse "
            "rate makes it so); leave the lapse rate out, or take fewer answers"
        )
    parts, left_out = low_rank_parts(prior, rng_key)
    here, moments, *_ = on_host(program, {})
    with progress_line("Fitting many answers", progress_bar) as report:
        fitted = fit_sparse(
            parts,
            SeenRows.of(program, positions, prior.size),
            here.counts,
            moments,
            power=(here.power,) if program.layout.repeated else (),
            start=None if start is None else Sites(start["precision"], start["shift"]),
            tol=max(engine.options["tol"], _TOLERANCE),
            max_sweeps=engine.options["max_sweeps"],
            key=rng_key,
            progress=report,
        )
    info = {"engine": engine.name, "space": "sparse", "jitter": 0.0, "log_prior": 0.0}
    if left_out is not None:
        info["attributes_left_out"] = left_out
        if left_out > _MUCH:
            warn_user(
                f"{INDUCING} inducing items leave out {left_out:.0%} of the attributes' prior "
                "variance: intervals come out that much too narrow; fewer attributes, longer "
                "lengthscales, or fewer answers at a time keep more"
            )
    return fitted._replace(info=info | fitted.info)


def low_rank_parts(prior: NamedSum, key: Any) -> tuple[dict[str, Covariance], float | None]:
    """Parts of the prior, with attributes by inducing items, and the share of variance left out."""
    few = {
        name: part.low_rank(INDUCING, LEFT_OUT, generator(key))
        for name, part in prior.parts.items()
    }
    left_out = [part.left_out for part in few.values() if part is not None]
    return {name: part or prior.parts[name] for name, part in few.items()}, (left_out or [None])[-1]


def fit(
    engine: GaussianEngine,
    start: Mapping[str, Any] | None,
    key: Any,
    origin: Origin,
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
    problem = LargeProblem.of(origin)
    if engine.at_mode and problem.data.comparisons.list is not None:
        raise UnsupportedProgramError(
            "Laplace takes lists only where there is a matrix of all items; fit with EP, or with "
            "structure='dense' where memory allows it"
        )
    fixed = problem.known(engine.fixed)
    learned, how, searched = search(engine, problem, fixed, key, progress_bar, at_first)
    values = {**fixed, **learned}
    prior = problem.prior(values, progress_bar)
    number, positions = problem.data.num_items, touched(problem.data)
    given = engine, problem, prior, positions, values
    few = len(positions) <= MAX_REDUCED_ITEMS
    few &= min(problem.data.num_comparisons, len(positions)) <= MAX_FACTORISED
    noted = len(positions) <= MAX_NOTED_ITEMS
    blocks = blocks_of(prior, positions) if few or noted else {}
    if few:
        fitted = fit_reduced(*given, blocks, start, key, progress_bar)
    elif engine.fit_many is None:
        raise UnsupportedProgramError(
            f"{engine.name} has no way through so many answers about so many items; take EP, or "
            "fewer answers"
        )
    else:
        fitted = engine.fit_many(*given, start, key, progress_bar)
    result = searched if fitted.result.ok else fitted.result
    info = {
        **fitted.info,
        **how,
        "result": result.name,
        "structure": "sparse",
        "entities": number,
        "touched": len(positions),
    }
    if noted and not result.empty:
        info |= prior_notes(problem.data, {problem.latent: blocks}, positions)
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
    return choose(problem.origin, {problem.latent: slice(0, number)}, common)
