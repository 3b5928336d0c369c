"""How far a posterior can be trusted: its diagnostics, or why there are none, as facts for the templates."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from relpref.compiled import float64
from relpref.diagnostics import Certificate, HeldOut, certify, influence, leave_one_out, raters
from relpref.diagnostics.certificate import off
from relpref.errors import RelprefError
from relpref.infer import Posterior
from relpref.infer.reweighting import Target
from relpref.posterior.gaussian import Floats
from relpref.report import plots
from relpref.report.blocks import clean

T = TypeVar("T")

_FEWEST = 20  # answers that a picture of calibration needs
_MOST_LATENTS = (
    4000  # of a posterior whose answers are left out: its covariance is looked at as a whole
)
_MOST_CERTIFIED = 1000  # unknowns, of whom weighted draws take 2 s on one core
_MOST_INFLUENCES = 20_000_000  # answers times latents
_COMPOSED = (
    "the answers are pairs that were composed from choices or lists, and the other pairs of a "
    "choice tell the winner of the pair that is "
    "left out, so every score would be far too good; to measure prediction, fit without some of "
    "the choices and predict these"
)


class Checked:
    """The diagnostics of a posterior, each None where it is not known; ``why`` then says the reason, a clause, by the name."""

    def __init__(self, posterior: Posterior) -> None:
        self.posterior = posterior
        self.why: dict[str, str] = {}

    @cached_property
    def held_out(self) -> HeldOut | None:
        """Every answer as predicted from all the others."""
        refused = self._refused(_MOST_LATENTS) or (_COMPOSED if self.posterior.lists else "")
        return self._known("held_out", refused, lambda: leave_one_out(self.posterior))

    @cached_property
    def influence(self) -> pd.DataFrame | None:
        held = self.held_out
        refused = self.why.get("held_out", "")
        if held is not None and held.num_answers * self.posterior.belief.size > _MOST_INFLUENCES:
            refused = "there are too many answers to look at one by one"
        return self._known("influence", refused, lambda: influence(self.posterior))

    @cached_property
    def raters(self) -> pd.DataFrame | None:
        """How well each rater's answers fit the rest."""
        posterior: Any = self.posterior
        named = posterior.kind == "utilities" and posterior.data.comparisons.rater is not None
        refused = (
            "" if named and self.held_out is not None else "no rater's answers can be left out"
        )
        return self._known("raters", refused, lambda: raters(posterior))

    @cached_property
    def certificate(self) -> Certificate | None:
        """Whether the engine's approximation can be relied on."""
        refused = self._refused(None if self.posterior.sampled else _MOST_CERTIFIED, answers=False)
        return self._known("certificate", refused, lambda: certify(self.posterior))

    @cached_property
    def prior_sd(self) -> Floats | None:
        """Prior standard deviation of every utility less the average of all, at the hyperparameters, shape (n,)."""
        posterior = self.posterior
        single = len(posterior.belief.weights) == 1 and not (posterior.sampled or posterior.large)
        refused = (
            self._refused(_MOST_CERTIFIED, answers=False) if single else "the prior is a mixture"
        )

        def centred() -> Floats:
            with float64():
                root = Target.of(posterior, dict(posterior.hyperparameters)).root[
                    -posterior.belief.size :
                ]
            return np.sqrt(np.square(root - root.mean(axis=0)).sum(axis=1))

        return self._known("prior_sd", refused, centred)

    def _refused(self, most: int | None, *, answers: bool = True) -> str:
        posterior: Any = self.posterior
        if not posterior.converged:
            return "the computation did not converge"
        if answers and posterior.kind == "utilities" and not posterior.data.num_answers:
            return "there are no answers"
        size = posterior.belief.size
        return f"with {size} unknowns that takes long" if most is not None and size > most else ""

    def _known(self, name: str, refused: str, compute: Callable[[], T]) -> T | None:
        if not refused:
            try:
                return compute()
            except RelprefError as error:
                refused = clean(error).rstrip(".")
        self.why[name] = refused
        return None

    def facts(self) -> dict[str, Any]:
        """What the macros ``certificate`` and ``predicted`` say of it."""
        held, certificate = self.held_out, self.certificate
        facts: dict[str, Any] = {
            "why": self.why,
            "certificate": certificate,
            "wrong": None,  # whether a mean or an interval is; not known without a table
            "unreliable": False,  # of draws, whether they can be used at all
            "held": held,
            "calibrated": None,
        }
        if certificate is not None and (table := certificate.table) is not None:
            facts["wrong"] = certificate.verdict != "good" and bool(off(table).any(axis=None))
            facts["most"] = float(table["shift"].abs().max())
            facts["widths"] = [float(table["sd_ratio"].min()), float(table["sd_ratio"].max())]
        if certificate is not None and certificate.verdict == "failed":
            facts["unreliable"] = self.posterior.sampled or certificate.table is not None
        if held is not None:
            summary = held.summary()
            facts["measures"] = summary[np.isfinite(summary["value"])]
            facts["density"] = "list" not in held.table and bool(
                (held.outcome < 0).any()
            )  # of numbers
            facts["ties"] = held.paired and bool((held.outcome == 1).any())
            facts["calibrated"] = self._calibrated(held)
        return facts

    def _calibrated(self, held: HeldOut) -> dict[str, Any] | None:
        """Whether probabilities are calibrated; without a picture where there are too few."""
        found = favorites(held)
        if found is None:
            return None
        predicted, right = found
        number, picture = len(predicted), None
        if number >= _FEWEST:
            picture = plots.reliability(predicted, right, "reliability")
        return {
            "number": number,
            "picture": picture,
            "expected": float(predicted.mean()),
            "observed": float(right.mean()),
            # Of a sum of independent outcomes with these probabilities.
            "error": float(np.sqrt(np.sum(predicted * (1 - predicted)))) / number,
        }


def favorites(held: HeldOut) -> tuple[Floats, Floats] | None:
    """Probability of each answer's favorite, the most probable outcome, and whether it came true; None for numbers.

    The favorite is one event for each answer: who is named first in a table is an accident, and
    both sides of an answer would count it twice.
    """
    forecasts = held.forecasts
    if forecasts is None:
        return None
    categories = [0, 2] if forecasts.paired else list(range(forecasts.chances.shape[1]))
    chances = forecasts.chances[:, categories]
    best = chances.argmax(axis=1)
    right = (np.asarray(categories)[best] == forecasts.outcome).astype(np.float64)
    count = np.round(forecasts.weight).astype(int)
    return np.repeat(chances.max(axis=1), count), np.repeat(right, count)
