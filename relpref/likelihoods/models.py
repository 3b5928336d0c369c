"""What a program's ``likelihood=`` is: from gaps and the columns of answers to a numpyro distribution, with its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from relpref.data import Comparisons
from relpref.description import Description
from relpref.errors import DataError
from relpref.likelihoods.comparison import (
    Comparison,
    GradedComparison,
    LogisticComparison,
    ProbitComparison,
    SoftComparison,
)
from relpref.linalg import real

# Parameters of which there is one for each member of a plate.
PLATES = {"rater_noise": "rater"}


@runtime_checkable
class AnswerModel(Protocol):
    """How answers come about."""

    def parameters(self, answers: Comparisons) -> Mapping[str, dist.Distribution]:
        """Its parameters for these columns, by site, and their default priors; those of `PLATES` for one member."""

    def value(self, answers: Comparisons) -> Array:
        """What was observed, shape (m,)."""

    def __call__(self, gap: Array, answers: Comparisons, **parameters: Array) -> Comparison:
        """The distribution of the answers, given the gaps of winner and loser, shape (m,)."""

    # It may also have ``describe(answers=None) -> relpref.description.Description``, where ``answers`` are the columns of the fit, and
    # ``columns``, the optional columns among "tie", "strength" and "probability" that it has a place for; without it, none.


@jax.tree_util.register_static
@dataclass(frozen=True)
class Probit:
    """Gaussian noise on the gap; what is made of the noisy gap follows from the columns that are there.

    Winners alone are `ProbitComparison`, ties and strengths `GradedComparison`, probabilities `SoftComparison`. With raters, each has
    a noise of their own; where the data says which of two was shown first, that one may gain by it.

    Parameters
    ----------
    lapse : bool
        Whether some answers are given at random, each of the K offered outcomes equally often: (1 − ε)·p + ε/K. K is 2, or 3 with ties;
        with S strengths 2S, or 2S + 1. The share ε is learned. Reported probabilities know no lapses.

    Notes
    -----
    ``lapse``: Beta(1, 19): one answer in twenty on average.
    ``tie_margin``: half-normal, scale 1: a gap within it, noise included, is a tie. ``strength_steps``: half-normal, scale 1 each;
    from one strength to the next. ``soft_noise``: half-normal, scale 1: error of a reported probability, on the probit scale.
    ``rater_noise``: log-normal around 1, log-sd ½, so that most raters are within a factor of 2.7 of the typical one; 1 is the unit
    of the utilities. ``position_bias``: normal, sd ½: what an entity gains by being shown first.
    """

    columns: ClassVar[tuple[str, ...]] = ("tie", "strength", "probability")

    lapse: bool = False

    def parameters(self, answers: Comparisons) -> Mapping[str, dist.Distribution]:
        """Those of the columns that are there; reported probabilities with lapses are refused."""
        if self.lapse and answers.probability is not None:
            raise DataError(
                "the likelihood Probit(lapse=True) does not use the column 'probability' of the comparisons: there is no number of "
                "outcomes to choose from at random; use Probit(), or leave the column out"
            )
        found = _lapse(self.lapse)
        if answers.tie is not None:
            found["tie_margin"] = dist.HalfNormal(1.0)
        if answers.strength is not None and answers.strengths > 1:
            found["strength_steps"] = dist.HalfNormal(1.0).expand([answers.strengths - 1]).to_event(1)
        if answers.probability is not None:
            found["soft_noise"] = dist.HalfNormal(1.0)
        return found | _noise_and_bias(answers)

    def value(self, answers: Comparisons) -> Array:
        """The probability; or the strength, 0 for a tie; or 1."""
        if answers.probability is not None:
            return real(answers.probability)
        if answers.strength is not None:
            return jnp.asarray(answers.strength)
        won = jnp.ones(answers.winner.shape, jnp.int32)
        return won if answers.tie is None else jnp.where(answers.tie, 0, won)

    def __call__(self, gap: Array, answers: Comparisons, **parameters: Array) -> Comparison:
        """The distribution of the answers."""
        scale, shift = _scale_and_shift(answers, parameters)
        if answers.probability is not None:
            return SoftComparison(gap, scale=parameters["soft_noise"] * scale, shift=shift)
        if answers.tie is None and answers.strength is None:
            return ProbitComparison(gap, scale=scale, shift=shift, lapse=parameters.get("lapse"))
        lowest = parameters.get("tie_margin", jnp.zeros_like(gap, shape=()))
        steps = jnp.broadcast_to(  # a prior of one's own may be that of one step for all
            parameters.get("strength_steps", jnp.zeros_like(gap, shape=())), (answers.strengths - 1,)
        )
        thresholds = lowest + jnp.concatenate([jnp.zeros_like(steps, shape=(1,)), jnp.cumsum(steps)])
        return GradedComparison(gap, thresholds, scale=scale, shift=shift, lapse=parameters.get("lapse"))

    def describe(self, answers: Comparisons | None = None) -> Description:
        """What is made of the columns of ``answers``; without any, of winners."""
        citation, kinds = None, []
        if answers is not None and answers.tie is not None:
            kinds.append("a tie where it is small")
        if answers is not None and answers.strength is not None:
            kinds.append("the stronger the larger it is")
        if answers is not None and answers.probability is not None:
            sentence = (
                "A reported probability is Φ of the difference of two utilities, seen with a Gaussian error."
            )
        elif kinds:
            sentence = f"An answer follows the difference of two utilities, seen with Gaussian noise: {' and '.join(kinds)} (Glenn and David 1960)."
            citation = (
                "W. A. Glenn and H. A. David (1960). Ties in Paired-Comparison Experiments Using a Modified Thurstone-Mosteller "
                "Model. Biometrics 16(1)."
            )
        else:
            sentence = "An answer favors the first of two with the probability Φ of the difference of their utilities."
        return Description(sentence + _noise_in_words(answers, self.lapse, "Gaussian"), citation, _MEANINGS)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Logistic:
    """Logistic noise on the gap, for winners: the model of Bradley & Terry, see `LogisticComparison`.

    Parameters
    ----------
    lapse : bool
        As in `Probit`.

    Notes
    -----
    ``lapse``, ``rater_noise`` and ``position_bias`` as in `Probit`.
    """

    columns: ClassVar[tuple[str, ...]] = ()

    lapse: bool = False

    def parameters(self, answers: Comparisons) -> Mapping[str, dist.Distribution]:
        """Those of raters and positions; other columns are refused."""
        for column in ("tie", "strength", "probability"):
            if getattr(answers, column) is not None:
                raise DataError(
                    f"the likelihood Logistic({'lapse=True' if self.lapse else ''}) does not use the column {column!r} of the comparisons; "
                    "use the default likelihood, or leave the column out"
                )
        return _lapse(self.lapse) | _noise_and_bias(answers)

    def value(self, answers: Comparisons) -> Array:
        """Ones: the winner was preferred."""
        return jnp.ones(answers.winner.shape, jnp.int32)

    def __call__(self, gap: Array, answers: Comparisons, **parameters: Array) -> Comparison:
        """The distribution of the answers."""
        scale, shift = _scale_and_shift(answers, parameters)
        return LogisticComparison(gap, scale=scale, shift=shift, lapse=parameters.get("lapse"))

    def describe(self, answers: Comparisons | None = None) -> Description:
        return Description(
            "An answer favors the first of two with the probability of the logistic function of the difference of their utilities "
            f"(Bradley and Terry 1952).{_noise_in_words(answers, self.lapse, 'logistic')}",
            "R. A. Bradley and M. E. Terry (1952). Rank Analysis of Incomplete Block Designs: I. The Method of Paired Comparisons. "
            "Biometrika 39(3/4).",
            _MEANINGS,
        )


_MEANINGS = {
    "tie_margin": "Tie margin: an answer is a tie where the difference of utilities, noise included, is smaller than this.",
    "strength_steps": (
        "Strength steps: by how much the difference of utilities, noise included, must be larger for an answer one grade stronger."
    ),
    "soft_noise": "Soft noise: the error of a reported probability on the probit scale, where 1 is the noise of a plain answer.",
    "rater_noise": (
        "Rater noise: how careless a rater is. 1 is a typical one; at 2, differences must be twice as large to be seen as often."
    ),
    "lapse": "Lapse: the share of answers that are given at random, whatever the difference of utilities.",
    "position_bias": "Position bias: what an entity gains by being shown first, in units of utility; negative if it loses.",
}


def _noise_in_words(answers: Comparisons | None, lapse: bool, noise: str) -> str:
    text = ""
    if answers is not None and answers.rater is not None:
        text += f" The {noise} noise of each rater has a scale of its own, 1 for a typical one."
    if answers is not None and answers.shown_first is not None:
        text += " The entity that is shown first may gain by it."
    if lapse:
        text += " Some answers are given at random, whatever the difference; their share is a hyperparameter."
    return text


def answer_model(likelihood: Any) -> AnswerModel:
    """The model that a program's ``likelihood=`` names: an instance, or None for `Probit`.

    Raises
    ------
    DataError
        If it is anything else.
    """
    if likelihood is None:
        return Probit()
    if isinstance(likelihood, type) or not isinstance(likelihood, AnswerModel):
        raise DataError(
            f"likelihood is {likelihood!r}; give an instance, such as relpref.likelihoods.Logistic(), or leave it out"
        )
    return likelihood


def _lapse(lapse: bool) -> dict[str, dist.Distribution]:
    return {"lapse": dist.Beta(1.0, 19.0)} if lapse else {}


def _noise_and_bias(answers: Comparisons) -> dict[str, dist.Distribution]:
    found: dict[str, dist.Distribution] = {}
    if answers.rater is not None:
        found["rater_noise"] = dist.LogNormal(0.0, 0.5)
    if answers.shown_first is not None:
        found["position_bias"] = dist.Normal(0.0, 0.5)
    return found


def _scale_and_shift(answers: Comparisons, parameters: Mapping[str, Array]) -> tuple[Any, Any]:
    """Of the noise by rater, and of the gap by position; neutral where a column is missing."""
    scale = 1.0 if answers.rater is None else parameters["rater_noise"][answers.rater]
    shift = 0.0 if answers.shown_first is None else parameters["position_bias"] * real(answers.shown_first)
    return scale, shift
