"""The models that are compared. One entry each: what it is called, and how it scores pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduce import svm
from benchmarks.reproduce.kernel import SquaredExponentialOfDistances
from benchmarks.reproduce.problem import Array, Problem
from relpref.infer import EP
from relpref.kernels import HiddenCommonCause, RegularizedLaplacian
from relpref.models import preference_gp, xpgp
from relpref.models.preference import AMPLITUDE_PRIOR

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Fitted:
    """What a model says about the remaining pairs.

    Attributes
    ----------
    scores : array
        Of each pair, winner first, see `benchmarks.reproduce.problem.quality`.
    result : str
        How the fit ended.
    """

    scores: Array
    result: str


Fit = Callable[[Problem, Positions, Positions], Fitted]


@dataclass(frozen=True)
class Model:
    """A contestant.

    Attributes
    ----------
    title : str
        In tables and figures.
    fit : callable
        From a problem, the positions of the known pairs and those of the remaining ones, to what it
        says about the latter.
    relational : bool
        Whether it is told the relations, as they are.
    """

    title: str
    fit: Fit
    relational: bool = False


def _gaussian_process(
    program: Any, relation_kernel: Any = None, *, shuffled: bool = False, individual: bool = False
) -> Fit:
    """EP with hyperparameters by maximizing the evidence; the score is the probit of P(winner
    preferred), XPGP section 4.2.

    As in the paper, items have no parts of their own unless ``individual``, and all amplitudes have
    the same prior.
    """

    def fit(problem: Problem, known: Positions, remaining: Positions) -> Fitted:
        whole = problem.shuffled.data if shuffled else problem.data
        kernels: dict[str, Any] = {
            "attribute_kernel": SquaredExponentialOfDistances(problem.distances)
        }
        kernels["individual"] = individual
        if relation_kernel is not None:
            kernels["priors"] = {f"{name}_amplitude": AMPLITUDE_PRIOR for name in whole.relations}
            kernels["relation_kernels"] = dict.fromkeys(whole.relations, relation_kernel)
        posterior = EP(program, hyperparameters="maximize", throw=False).run(
            jax.random.key(0), whole.select_comparisons(known), progress_bar=False, **kernels
        )
        gap = posterior.belief.differences(whole.winner[remaining], whole.loser[remaining])
        return Fitted(gap.mean / np.sqrt(1 + gap.sd**2), posterior.info["result"])

    return fit


def _ranking_svm(problem: Problem, known: Positions, remaining: Positions) -> Fitted:
    pairs = np.stack([problem.data.winner, problem.data.loser], axis=1)
    # In random order, for the folds; the data sorts its pairs.
    scores = svm.fit(problem.distances, np.random.default_rng(0).permutation(pairs[known]))
    return Fitted(scores[pairs[remaining, 0]] - scores[pairs[remaining, 1]], "converged")


BASELINE, CONTROL = "pgp", "xpgp_shuffled"
MODELS = {
    BASELINE: Model("PGP", _gaussian_process(preference_gp)),
    "xpgp_laplacian": Model(
        "XPGP, regularised Laplacian",
        _gaussian_process(xpgp, RegularizedLaplacian()),
        relational=True,
    ),
    "xpgp_common_cause": Model(
        "XPGP, hidden common cause", _gaussian_process(xpgp, HiddenCommonCause()), relational=True
    ),
    # A graph kernel gives every document a utility of its own as well, which the attributes alone
    # do not.
    CONTROL: Model(
        "XPGP, hidden common cause, shuffled",
        _gaussian_process(xpgp, HiddenCommonCause(), shuffled=True),
    ),
    "svm": Model("ranking SVM", _ranking_svm),
}
