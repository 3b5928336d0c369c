"""What a certificate says to a reader who has not heard of importance weights, and in small print to one who has."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import jax
import numpy as np
import pandas as pd

from relpref.diagnostics import Certificate, HeldOut, certify, influence, leave_one_out, raters
from relpref.errors import RelprefError
from relpref.infer import Posterior, UtilityPosterior
from relpref.infer.reweighting import Target
from relpref.posterior.gaussian import Floats, GaussianBelief
from relpref.report.blocks import Block, Text, clean, fixed, sentence

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
        if self.posterior.lists:
            return Unknown(_COMPOSED)
        return _tried(lambda: leave_one_out(self.posterior))

    @cached_property
    def influence(self) -> pd.DataFrame | Unknown:
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
        why = "" if self.posterior.sampled else self._large(_MOST_CERTIFIED)
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
        if not posterior.converged:
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


_ELSEWHERE = "relpref check compares it with a sampler."
_OF_DRAWS = {
    "good": "The result is made of draws, and the chains agree.",
    "doubtful": "The result is made of draws, and whether these are enough is not certain.",
    "failed": "The result is made of draws that cannot be relied on.",
}


def certified(certificate: Certificate | Unknown) -> list[Block]:
    if isinstance(certificate, Unknown):
        return [Text(f"The approximation was not certified: {certificate.why}. {_ELSEWHERE}")]
    said = sentence(certificate.sentence)
    if certificate.verdict == "exact":
        if not certificate.num_samples:
            return [Text(said)]
        return [
            Text(
                "Nothing was approximated: given the hyperparameters, the result is that of the model itself."
            )
        ]
    return [Text(_plain(certificate)), Text(said, small=True)]


def _plain(certificate: Certificate) -> str:
    if np.isnan(certificate.k_hat):
        return _OF_DRAWS[certificate.verdict]
    table = certificate.table
    if table is None:
        return f"Whether the approximation is accurate could not be shown here, which does not mean that it is not: {_ELSEWHERE}"
    most = fixed(float(table["shift"].abs().max()))
    widths = f"{fixed(float(table['sd_ratio'].min()))} to {fixed(float(table['sd_ratio'].max()))} times as wide as they should be"
    found = f"no mean is off by more than {most} of a standard deviation, and intervals are {widths}"
    if certificate.verdict == "undecided":
        return f"Whether the approximation is accurate is not decided by so many draws: a mean seems off by up to {most} of a standard deviation, and intervals are {widths}."
    if certificate.verdict == "good":
        return f"The approximation is accurate: {found}."
    return f"The approximation is not accurate: a mean is off by {most} of a standard deviation, and intervals are {widths}."
