"""Gaussian process classifier of rankings."""

import numpy as np

from relpref.data import Rankings
from relpref.data.arrays import shown
from relpref.errors import DataError
from relpref.kernels import Kendall, RankingKernel
from relpref.likelihoods import Link
from relpref.models.preference import Hyperparameters, Priors, sample_decisions


def ranking_classifier(
    data: Rankings,
    *,
    kernel: RankingKernel | None = None,
    link: Link = "probit",
    priors: Priors | None = None,
) -> None:
    """Classes of rankings from a latent Gaussian process over rankings (GCK section 4.2).

    It is in weight space: the process is a linear function of the kernel's features with
    independent normal weights, so that its cost is linear in the number of rankings. Two classes:
    the second is chosen with probability Φ(f(x) + b). More: decisions in sequence, each with a
    function of its own: stop at the first class or go on; if not, stop at the second or go on; and
    so on (the continuation-ratio model, Agresti 2013, "Categorical data analysis", section 8.3.4).
    Probabilities add up to 1, and each decision is binary. The order of the classes is part of the
    model.

    Parameters
    ----------
    data : Rankings
        With labels, see `Rankings.with_labels`; without, only their classes are needed.
    kernel : RankingKernel, optional
        `Kendall` by default.
    link : {"probit", "logit"}
    priors : mapping from site to distribution, optional
        Replaces the default prior of a hyperparameter. Sites: ``amplitude`` (prior sd of the
        process at a full ranking, about) and those of the kernel.
    """
    decisions = len(data.classes) - 1
    if decisions < 1:
        given = f"only {shown(data.classes[0])}" if data.classes else "none"
        raise DataError(
            f"the classes of the rankings are {given}; a classifier needs two or more: give labels "
            "with rankings.with_labels(...)"
        )
    hyperparameters = Hyperparameters(priors)
    chosen = Kendall() if kernel is None else kernel
    if isinstance(chosen, type) or not isinstance(chosen, RankingKernel):
        raise DataError(
            f"kernel is {chosen!r}, which has no features; give an instance of a kernel that has, "
            "such as Cut() or Kendall(), or "
            "Landmarks.choose(Mallows(), rankings)"
        )
    features = chosen.features(data, **hyperparameters.sample_all(chosen.parameters(data)))
    if data.label is None:
        outcome, taken = None, np.ones((len(data), decisions), bool)
    else:
        # Decision c was taken where no earlier class was chosen, and it was to go on where a later
        # one was.
        step, label = np.arange(decisions), data.label[:, None]
        outcome, taken = (label > step).astype(np.int32), label >= step
    sample_decisions(features, outcome, taken, hyperparameters, link, "ranking")
