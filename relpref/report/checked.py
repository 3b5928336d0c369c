"""What the diagnostics say of a posterior, or why they say nothing; each is computed once, when a chapter asks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import jax
import numpy as np
import pandas as pd

from relpref.diagnostics import Certificate, HeldOut, certify, influence, leave_one_out, raters
from relpref.diagnostics.certificates.target import Target
from relpref.errors import RelprefError
from relpref.infer import Posterior, Result, UtilityPosterior
from relpref.infer.belief import Floats, GaussianBelief
from relpref.report.text import clean

T = TypeVar("T")

_MOST_LATENTS = 4000  # of a posterior whose answers are left out: its covariance is looked at as a whole
_MOST_CERTIFIED = 1000  # unknowns, of whom weighted draws take 2 s on one core
_MOST_INFLUENCES = 20_000_000  # answers times latents
_COMPOSED = (
    "the answers are pairs that were composed from choices or lists, and the other pairs of a choice tell the winner of the pair that is "
    "left out, so every score would be far too good; to measure prediction, fit without some of the choices and predict these"
)


@dataclass(frozen=True)
class Unknown:
    """Nothing is known, for a reason.

    Attributes
    ----------
    why : str
        A clause without a full stop.
    """

    why: str


@dataclass(frozen=True)
class Checked:
    """The diagnostics of a posterior.

    Parameters
    ----------
    posterior : Posterior
    """

    posterior: Posterior

    @cached_property
    def held_out(self) -> HeldOut | Unknown:
        """Every answer as predicted from all the others."""
        if (why := self._refused()) or (why := self._large(_MOST_LATENTS)):
            return Unknown(why)
        if self.posterior.info.get("answers"):
            return Unknown(_COMPOSED)
        return _tried(lambda: leave_one_out(self.posterior))

    @cached_property
    def influence(self) -> pd.DataFrame | Unknown:
        """Answers, most surprising first."""
        if isinstance(self.held_out, Unknown):
            return self.held_out
        if self.held_out.num_answers * self.posterior.belief.size > _MOST_INFLUENCES:
            return Unknown("there are too many answers to look at one by one")
        return _tried(lambda: influence(self.posterior))

    @cached_property
    def raters(self) -> pd.DataFrame | Unknown:
        """How well each rater's answers fit the rest."""
        posterior = self.posterior
        if not isinstance(posterior, UtilityPosterior) or posterior.data.comparisons.rater is None:
            return Unknown("the answers do not say who gave them")
        if isinstance(self.held_out, Unknown):
            return self.held_out
        return _tried(lambda: raters(posterior))

    @cached_property
    def certificate(self) -> Certificate | Unknown:
        """Whether the engine's approximation can be relied on."""
        why = "" if self.posterior.info["engine"] == "samples" else self._large(_MOST_CERTIFIED)
        if (refused := self._refused(answers=False)) or why:
            return Unknown(refused or why)
        return _tried(lambda: certify(self.posterior))

    @cached_property
    def prior_sd(self) -> Floats | Unknown:
        """Prior standard deviation of every utility less the average of all, at the hyperparameters, shape (n,)."""
        posterior = self.posterior
        if not isinstance(posterior.belief, GaussianBelief):
            return Unknown("there is not one prior but a mixture of them")
        if why := self._refused(answers=False) or self._large(_MOST_CERTIFIED):
            return Unknown(why)

        def centred() -> Floats:
            with jax.enable_x64(True):
                root = Target.of(posterior, dict(posterior.hyperparameters)).root
            return np.sqrt(np.square(root - root.mean(axis=0)).sum(axis=1))

        return _tried(centred)

    def _refused(self, *, answers: bool = True) -> str:
        posterior = self.posterior
        if not Result[posterior.info["result"]].ok:
            return "the computation did not converge"
        if answers and isinstance(posterior, UtilityPosterior) and not posterior.data.num_answers:
            return "there are no answers"
        return ""

    def _large(self, most: int) -> str:
        size = self.posterior.belief.size
        return f"with {size} unknowns that takes long" if size > most else ""


def _tried(compute: Callable[[], T]) -> T | Unknown:
    try:
        return compute()
    except RelprefError as error:
        return Unknown(clean(error).rstrip("."))
