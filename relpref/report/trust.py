"""Diagnostics of a posterior, or the reasons for their absence, for the templates."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from relpref.compiled import float64
from relpref.data.arrays import counted
from relpref.diagnostics import Certificate, HeldOut, certify, influence, leave_one_out, raters
from relpref.diagnostics.certificate import off
from relpref.errors import RelprefError
from relpref.infer.reweighting import Target
from relpref.likelihoods.orders import NODES
from relpref.posterior.gaussian import Floats
from relpref.report import plots
from relpref.report.blocks import Facts, clean

T = TypeVar("T")

_FEWEST = 20  # answers for a picture of calibration
_MOST_LATENTS = 4000  # for leaving answers out, which takes the full covariance
_MOST_CERTIFIED = 1000  # unknowns, whose weighted draws take 2 s on one core
_MOST_INFLUENCES = 20_000_000  # answers times latents
_DRAWS, _FEWEST_DRAWS = 4000, 400  # to be weighted
_MOST_NODES = 200_000_000  # of the grids of all lists and draws, which take 10 s on one core


class Checked:
    """Diagnostics of a posterior, None if not available; ``why`` has the reasons by name."""

    def __init__(self, posterior: Any) -> None:
        self.posterior = posterior
        self.why: dict[str, str] = {}

    @cached_property
    def held_out(self) -> HeldOut | None:
        """Predictions of each answer from all others."""
        refused = self._refused(_MOST_LATENTS)
        return self._compute("held_out", refused, lambda: leave_one_out(self.posterior))

    @cached_property
    def influence(self) -> pd.DataFrame | None:
        """Influence of each answer about two items; lists of different lengths do not compare."""
        held = self.held_out
        refused = self.why.get("held_out", "")
        if held is not None and held.num_answers * self.posterior.belief.size > _MOST_INFLUENCES:
            refused = "there are too many answers to look at one by one"
        if held is not None and "list" in held.table and held.table["list"].notna().all():
            refused = "the answers are lists"
        table = self._compute("influence", refused, lambda: influence(self.posterior))
        return table if table is None or "list" not in table else table[table["list"].isna()]

    @cached_property
    def raters(self) -> pd.DataFrame | None:
        """Agreement of each rater with the others."""
        posterior = self.posterior
        named = posterior.kind == "utilities" and posterior.data.comparisons.rater is not None
        refused = (
            "" if named and self.held_out is not None else "no rater's answers can be left out"
        )
        return self._compute("raters", refused, lambda: raters(posterior))

    @cached_property
    def certificate(self) -> Certificate | None:
        """Certificate of the engine's approximation."""
        posterior = self.posterior
        refused = self._refused(None if posterior.sampled else _MOST_CERTIFIED, answers=False)
        number = _DRAWS
        gaussian = posterior.kind == "utilities" and posterior.engine == "EP"
        if gaussian and (sizes := posterior.data.comparisons.list_sizes):
            lists, _, items, tied = sizes
            number = min(_DRAWS, _MOST_NODES // (lists * items**2 * NODES ** (1 + tied)))
            if number < _FEWEST_DRAWS:
                instead = "relpref check compares with NUTS"
                refused = refused or f"with {counted(lists, 'list')} that takes long; {instead}"
        return self._compute("certificate", refused, lambda: certify(posterior, number))

    @cached_property
    def prior_sd(self) -> Floats | None:
        """Prior standard deviation of each utility less the average of all, shape (n,)."""
        posterior = self.posterior
        single = len(posterior.belief.weights) == 1 and not (posterior.sampled or posterior.large)
        refused = (
            self._refused(_MOST_CERTIFIED, answers=False) if single else "the prior is a mixture"
        )

        def centred() -> Floats:
            with float64():
                target = Target.of(posterior, dict(posterior.hyperparameters))
                root = target.root[-posterior.belief.size :]
            return np.sqrt(np.square(root - root.mean(axis=0)).sum(axis=1))

        return self._compute("prior_sd", refused, centred)

    def _refused(self, most: int | None, *, answers: bool = True) -> str:
        """Reason to leave a diagnostic out, or an empty string.

        ``most`` is the largest number of unknowns, ``answers`` whether it needs answers.
        """
        posterior = self.posterior
        if not posterior.converged:
            return "the computation did not converge"
        if answers and posterior.kind == "utilities" and posterior.data.num_answers < 2:
            return "there are no others to predict them from"
        size = posterior.belief.size
        return f"with {size} unknowns that takes long" if most is not None and size > most else ""

    def _compute(self, name: str, refused: str, compute: Callable[[], T]) -> T | None:
        """Result of a computation, or None with the reason in ``why``."""
        if not refused:
            try:
                return compute()
            except RelprefError as error:
                refused = clean(error).rstrip(".")
        self.why[name] = refused
        return None

    def facts(self) -> Facts:
        """Facts for the macros ``certificate`` and ``predicted``."""
        held, certificate = self.held_out, self.certificate
        facts: Facts = {
            "posterior": self.posterior,
            "why": self.why,
            "certificate": certificate,
            "wrong": None,  # whether a mean or an interval is wrong; None without a table
            "unreliable": False,  # whether the draws cannot be used at all
            "held": held,
            "calibrated": None,
        }
        if certificate is not None and (table := certificate.table) is not None:
            facts["wrong"] = certificate.verdict != "good" and off(table).any(axis=None)
            facts["most"] = table["shift"].abs().max()
            facts["widths"] = [table["sd_ratio"].min(), table["sd_ratio"].max()]
        if certificate is not None and certificate.verdict == "failed":
            facts["unreliable"] = self.posterior.sampled or certificate.table is not None
        if held is not None:
            summary = held.summary()
            facts["measures"] = summary[np.isfinite(summary["value"])]
            facts["density"] = (held.outcome < 0).any() and "list" not in held.table
            facts["ties"] = held.paired and (held.outcome == 1).any()
            facts["calibrated"] = self._calibrated(held)
        return facts

    def _calibrated(self, held: HeldOut) -> Facts | None:
        """Calibration of the probabilities; without a picture if there are too few answers."""
        forecasts = favorites(held)
        if forecasts is None:
            return None
        predicted, right = forecasts
        number, picture = len(predicted), None
        if number >= _FEWEST:
            picture = plots.reliability(predicted, right, "reliability")
        return {
            "number": number,
            "picture": picture,
            "expected": predicted.mean(),
            "observed": right.mean(),
            # Standard deviation for independent outcomes with these probabilities.
            "error": np.sqrt(np.sum(predicted * (1 - predicted))) / number,
        }


def favorites(held: HeldOut) -> tuple[Floats, Floats] | None:
    """Probability of the most probable outcome of each answer, and whether it came true.

    None for answers that are numbers. There is one event for each answer: the order of the two
    items in a table is arbitrary, and both sides of an answer would count it twice.
    """
    forecasts = held.forecasts
    if forecasts is None:
        return None
    categories = np.array([0, 2]) if forecasts.paired else np.arange(forecasts.chances.shape[1])
    chances = forecasts.chances[:, categories]
    best = chances.argmax(axis=1)
    right = (categories[best] == forecasts.outcome).astype(np.float64)
    count = np.round(forecasts.weight).astype(int)
    return np.repeat(chances.max(axis=1), count), np.repeat(right, count)
