"""Models of answers, which choose a distribution by the columns of the answers.

JAX is imported when that distribution is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from relpref.data import Comparisons
from relpref.description import Description
from relpref.errors import DataError
from relpref.likelihoods.chances import (
    ROUNDING,
    Floats,
    davidson_chances,
    expected_ndtr,
    graded_chances,
    logistic_chance,
)
from relpref.pytree import register_static

if TYPE_CHECKING:
    import numpyro.distributions as dist
    from jax import Array

    from relpref.likelihoods.comparison import Comparison
    from relpref.likelihoods.lists import ListComparison

# Parameters with an entry for each rater, log-normal around 1, and the sds of their logarithms.
SPREADS = {"rater_noise": "rater_spread", "rater_margin": "rater_margin_spread"}
# Sd of the deviation that the answers of a group share; a parameter of the program for any model of
# answers.
GROUP_SD = "group_sd"


@runtime_checkable
class AnswerModel(Protocol):
    """A model of answers, which a program takes as ``likelihood=``."""

    def parameters(self, answers: Comparisons) -> "Mapping[str, dist.Distribution]":
        """Parameters for these columns, by site, and their default priors.

        The parameters in `SPREADS` have the priors of a single rater.
        """

    def value(self, answers: Comparisons) -> Any:
        """Observed values, shape (m,)."""

    def __call__(
        self, gap: "Array", answers: Comparisons, **parameters: "Array"
    ) -> "Comparison | ListComparison":
        """The distribution of the answers, given the gaps of winner and loser, shape (m,)."""

    # It may also have ``describe(answers=None) -> relpref.description.Description``, where
    # ``answers`` are the columns of the fit, and ``columns``, the optional columns among "tie",
    # "strength" and "probability" that it has a place for; without it, none. One that has
    # ``sites(answers)``, the names of its parameters, and ``predict(answers, mean, variance,
    # **parameters)``, which returns what `Comparison.predict` does, from NumPy's arrays, predicts
    # answers without JAX.


@dataclass(frozen=True, kw_only=True)
class _Noisy:
    """The columns of answers as parameters and values, whatever the noise on the gap."""

    noise: ClassVar[str]
    lists: ClassVar[str]  # whose model of orders it is
    # Probability that a gap, of a mean and a variance, is positive when seen with noise of a scale.
    chance: ClassVar[Any]

    lapse: bool = False
    margins: Literal["common", "rater"] = "common"

    def __post_init__(self) -> None:
        if self.margins not in ("common", "rater"):
            raise DataError(f"margins is {self.margins!r}; it is 'common' or 'rater'")

    @property
    def columns(self) -> tuple[str, ...]:
        """The optional columns that the model uses."""
        return "tie", "strength", "probability"

    @property
    def distributions(self) -> tuple[str, str]:
        """Names of the distributions of winners, and of answers with ties or strengths."""
        raise NotImplementedError

    def sites(self, answers: Comparisons) -> list[str]:
        """Names of the parameters for the columns that the answers have.

        Raises
        ------
        DataError
            If there is a column that the likelihood does not use.
        """
        for column in ("tie", "strength", "probability"):
            # There is no number of outcomes to choose from.
            random = self.lapse and column == "probability"
            if getattr(answers, column) is not None and (random or column not in self.columns):
                raise DataError(
                    f"the likelihood {self._said} does not use the column {column!r} of the "
                    "answers; use the default likelihood, Probit(), or leave the column out"
                )
        if self.lapse and answers.list is not None:
            raise DataError(
                "the likelihood with lapse=True is for single answers, and some are in lists; "
                "leave lapse=True out, or leave lists of more than two items out"
            )
        for column in ("tie", "rater") if self.margins == "rater" else ():
            if getattr(answers, column) is None:
                raise DataError(
                    f"the likelihood {self._said} is for answers with the column {column!r}, which "
                    "is missing; leave margins out"
                )
        present = {
            "lapse": self.lapse,
            "tie_margin": answers.tie is not None,
            "strength_steps": answers.strength is not None and answers.strengths > 1,
            "soft_noise": answers.probability is not None,
            "rater_noise": answers.rater is not None,
            "rater_margin": self.margins == "rater",
            "position_bias": answers.shown_first is not None,
        }
        return [site for site, is_present in present.items() if is_present]

    @property
    def _said(self) -> str:
        changed = (
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if getattr(self, each.name) != each.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def parameters(self, answers: Comparisons) -> "Mapping[str, dist.Distribution]":
        """Priors of the parameters in `sites`.

        Before a parameter of raters comes the scale of its logarithm, see `SPREADS`.
        """
        import numpyro.distributions as dist

        size = max(answers.strengths - 1, 1)
        sites = self.sites(answers)
        # A distribution checks its parameters by operations of JAX, so only those that are there
        # are made.
        priors: dict[str, Callable[[], dist.Distribution]] = {
            "lapse": lambda: dist.Beta(1.0, 19.0),
            "tie_margin": lambda: dist.HalfNormal(1.0),
            "strength_steps": lambda: dist.HalfNormal(1.0).expand([size]).to_event(1),
            "soft_noise": lambda: dist.InverseGamma(1.5, 0.5),
            "rater_spread": lambda: dist.HalfNormal(0.75),
            "rater_noise": lambda: dist.LogNormal(0.0, 0.5),
            "rater_margin_spread": lambda: dist.HalfNormal(0.75),
            "rater_margin": lambda: dist.LogNormal(0.0, 0.5),
            "position_bias": lambda: dist.Normal(0.0, 0.5),
        }
        sites += [SPREADS[site] for site in sites if site in SPREADS]
        return {site: prior() for site, prior in priors.items() if site in sites}

    def value(self, answers: Comparisons) -> Any:
        """The probability; or the strength, 0 for a tie; or 1."""
        from relpref.linalg import real
        from relpref.linalg.arrays import namespace

        if answers.probability is not None:
            return real(answers.probability)
        if answers.strength is not None:
            return answers.strength
        won = np.ones(answers.winner.shape, np.int32)
        return won if answers.tie is None else namespace(answers.tie).where(answers.tie, 0, won)

    def seen(self, answers: Comparisons, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Scale, shift and lapse of a `Comparison`; neutral where a column is missing."""
        scale = 1.0 if answers.rater is None else parameters["rater_noise"][answers.rater]
        if answers.probability is not None:
            scale = parameters["soft_noise"] * scale
        bias = answers.shown_first
        shift = 0.0 if bias is None else parameters["position_bias"] * bias
        return {"scale": scale, "shift": shift, "lapse": parameters.get("lapse")}

    @staticmethod
    def margin(answers: Comparisons, parameters: Mapping[str, Any], zero: Any) -> Any:
        """The tie margin, shape () or (m,); ``zero`` where there are no ties."""
        margin = parameters.get("tie_margin", zero)
        if "rater_margin" in parameters:
            margin = margin * parameters["rater_margin"][answers.rater]
        return margin

    def __call__(
        self, gap: "Array", answers: Comparisons, **parameters: "Array"
    ) -> "Comparison | ListComparison":
        """The distribution of the answers."""
        from relpref.likelihoods import comparison
        from relpref.linalg.arrays import namespace

        seen, (plain, graded) = self.seen(answers, parameters), self.distributions
        single: Comparison
        if answers.probability is not None:
            single = comparison.SoftComparison(gap, **seen)
        elif answers.tie is None and answers.strength is None:
            single = getattr(comparison, plain)(gap, **seen)
        else:
            xp = namespace(gap, *parameters.values())
            zero = xp.zeros_like(gap, shape=())
            # A custom prior may be that of one step for all.
            size = (answers.strengths - 1,)
            steps = xp.broadcast_to(parameters.get("strength_steps", zero), size)
            margin = self.margin(answers, parameters, zero)
            single = getattr(comparison, graded).by_steps(gap, margin, steps, **seen)
        if answers.list is None or answers.list_sizes is None:
            return single
        from relpref.likelihoods.lists import ListComparison, ListSizes

        items = answers.list, answers.winner, answers.loser
        return ListComparison(single, *items, ListSizes(*answers.list_sizes))

    def predict(
        self, answers: Comparisons, mean: Floats, variance: Floats, **parameters: Floats
    ) -> dict[str, Floats]:
        """Probabilities of next answers at gaps N(mean, variance), shape (k,).

        The result is that of `Comparison.predict`.
        """
        seen, margin = (
            self.seen(answers, parameters),
            self.margin(answers, parameters, np.zeros(())),
        )
        if answers.probability is not None:
            variance = 1 + ROUNDING**2 + variance
        options: dict[str, Any] = {"strengths": answers.strengths, "chance": self.chance}
        return graded_chances(mean, variance, **seen, margin=margin, **options)

    def described(
        self, answers: Comparisons | None, sentence: str, citation: str | None
    ) -> Description:
        """The sentence, and more about the other columns and lapses."""
        columns = {} if answers is None else answers.columns
        if "rater" in columns:
            sentence += (
                f" The {self.noise} noise of each rater has a scale of its own, 1 for a "
                "typical one."
            )
        if self.margins == "rater":
            sentence += " So has the difference below which a rater calls two items equal."
        if "shown_first" in columns:
            sentence += " The item that is shown first may gain by it."
        if answers is not None and answers.covariates is not None:
            names = ", ".join(covariate.name for covariate in answers.covariates_are)
            sentence += (
                f" What is known of its two sides ({names}) adds to that difference, with "
                "effects that are Gaussian a priori."
            )
        if "list" in columns:
            sentence += (
                " A choice or an order is one look at all its items, each of which is seen with "
                f"{self.noise} noise of its own "
                f"({self.lists})."
            )
        if "group" in columns:
            sentence += (
                " Answers of one group share a deviation of the difference from that of "
                "the utilities; each group has another one."
            )
        if "weight" in columns:
            sentence += (
                " The probability of each answer is taken to the power of its weight: a weighted "
                "likelihood, which is no model of how people answer."
            )
        if self.lapse:
            sentence += (
                " Some answers are given at random, whatever the difference; their share "
                "is a hyperparameter."
            )
        return Description(sentence, citation, _MEANINGS)


def weighted(distribution: Any, answers: Comparisons) -> Any:
    """The distribution of answers, each to the power of its weight if there are weights.

    Raises
    ------
    DataError
        If there are lists, too.
    """
    if answers.weight is None:
        return distribution
    if answers.list is not None:
        raise DataError(
            "some answers have weights and some are in lists, whose probability has no power that "
            "an engine knows; leave the column "
            "'weight' out, or repeat lists by 'count'"
        )
    from relpref.likelihoods.weighted import WeightedComparison

    return WeightedComparison(distribution, answers.weight)


@register_static
@dataclass(frozen=True)
class Probit(_Noisy):
    """Gaussian noise on the gap; the columns of the data determine the kind of answers.

    Winners alone are `ProbitComparison`, ties and strengths `GradedComparison`, probabilities
    `SoftComparison`. Each rater has a noise scale; if the data has the item that was
    shown first, it may gain by that.

    Parameters
    ----------
    lapse : bool
        Whether some answers are given at random, each of the K offered outcomes equally often: (1 −
        ε)·p + ε/K. K is 2, or 3 with ties; with S strengths 2S, or 2S + 1. The share ε is learned.
        Not of reported probabilities.
    margins : {"common", "rater"}
        Whether all ties have the same ``tie_margin``, or that of a rater is ``tie_margin`` times
        their ``rater_margin``.

    Notes
    -----
    ``lapse``: Beta(1, 19): one answer in twenty on average. ``tie_margin``: half-normal, scale 1: a
    gap within it, noise included, is a tie. ``strength_steps``: half-normal, scale 1 each; from one
    strength to the next. ``soft_noise``: inverse gamma (1.5, 0.5), around 0.4: error of a reported
    probability, on the probit scale, beside one of 0.01 from rounding. Its density near 0 is so
    small that a few equal reports do not pass for exact ones. ``rater_noise``: log-normal
    around 1, the unit of the utilities, with the log-sd ``rater_spread``. That is learned from all
    raters together; half-normal, scale ¾, so that a priori half of the raters are within a factor
    of 1.5 of the typical one. ``rater_margin``:
    likewise, with the log-sd ``rater_margin_spread``. ``position_bias``: normal, sd ½: what an item
    gains by being shown first.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> likelihood = relpref.likelihoods.Probit(lapse=True)
    >>> posterior = relpref.fit(answers=answers, likelihood=likelihood)
    """

    noise: ClassVar[str] = "Gaussian"
    lists: ClassVar[str] = "Thurstone 1927"
    chance = staticmethod(expected_ndtr)

    @property
    def distributions(self) -> tuple[str, str]:
        return "ProbitComparison", "GradedComparison"

    def describe(self, answers: Comparisons | None = None) -> Description:
        """Description of the model for the columns of ``answers``; without them, for winners."""
        citation, columns = None, {} if answers is None else answers.columns
        meanings = {"tie": "a tie where it is small", "strength": "the stronger the larger it is"}
        kinds = [meaning for column, meaning in meanings.items() if column in columns]
        if "probability" in columns:
            sentence = (
                "A reported probability is Φ of the difference of two utilities, seen with "
                "a Gaussian error."
            )
        elif kinds:
            sentence = (
                "An answer follows the difference of two utilities, seen with Gaussian "
                f"noise: {' and '.join(kinds)} (Glenn and David 1960)."
            )
            citation = (
                "W. A. Glenn and H. A. David (1960). Ties in Paired-Comparison Experiments Using a "
                "Modified Thurstone-Mosteller Model. Biometrics 16(1)."
            )
        else:
            sentence = (
                "An answer favors the first of two with the probability Φ of the difference of "
                "their utilities."
            )
        return self.described(answers, sentence, citation)


@register_static
@dataclass(frozen=True, kw_only=True)
class Logistic(_Noisy):
    """Logistic noise on the gap: the model of Bradley & Terry, with ties and strengths.

    Winners alone are `LogisticComparison`.

    Parameters
    ----------
    lapse, margins
        As in `Probit`; so are the priors of ``lapse``, ``tie_margin``, ``strength_steps``,
        ``rater_noise`` and ``position_bias``.
    ties : {"rao-kupper", "davidson"}
        The first is a margin on the noisy gap, as in `Probit`, and takes strengths, too:
        `LogisticGradedComparison`. In the second the odds of two items stay those of Bradley and
        Terry, and a tie has a multiple of their geometric mean: `DavidsonComparison`. In both two
        equals tie in tanh(``tie_margin``/2) of the answers.

    Raises
    ------
    DataError
        If ``ties`` or ``margins`` is none of these.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> likelihood = relpref.likelihoods.Logistic()
    >>> posterior = relpref.fit(answers=answers, likelihood=likelihood)
    """

    noise: ClassVar[str] = "logistic"
    lists: ClassVar[str] = "Luce 1959, Plackett 1975"
    chance = staticmethod(logistic_chance)

    ties: Literal["rao-kupper", "davidson"] = "rao-kupper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ties not in ("rao-kupper", "davidson"):
            raise DataError(f"ties is {self.ties!r}; it is 'rao-kupper' or 'davidson'")

    @property
    def columns(self) -> tuple[str, ...]:
        return ("tie",) if self.ties == "davidson" else ("tie", "strength")

    @property
    def distributions(self) -> tuple[str, str]:
        davidson = self.ties == "davidson"
        return (
            "LogisticComparison",
            "DavidsonComparison" if davidson else "LogisticGradedComparison",
        )

    def predict(
        self, answers: Comparisons, mean: Floats, variance: Floats, **parameters: Floats
    ) -> dict[str, Floats]:
        if answers.tie is None or self.ties != "davidson":
            return super().predict(answers, mean, variance, **parameters)
        margin = self.margin(answers, parameters, np.zeros(()))
        return davidson_chances(mean, variance, **self.seen(answers, parameters), margin=margin)

    def describe(self, answers: Comparisons | None = None) -> Description:
        sentence = (
            "An answer favors the first of two with the probability of the logistic function of "
            "the difference of their utilities (Bradley and Terry 1952)."
        )
        citation = (
            "R. A. Bradley and M. E. Terry (1952). Rank Analysis of Incomplete Block Designs: I. "
            "The Method of Paired Comparisons. Biometrika 39(3/4)."
        )
        columns = {} if answers is None else answers.columns
        if "tie" in columns and self.ties == "davidson":
            sentence += (
                " A tie has a multiple of the geometric mean of both probabilities (Davidson 1970)."
            )
            citation = (
                "R. R. Davidson (1970). On Extending the Bradley-Terry Model to Accommodate Ties "
                "in Paired Comparison Experiments. "
                "Journal of the American Statistical Association 65(329)."
            )
        elif "tie" in columns:
            sentence += (
                " It is a tie where that difference, seen with logistic noise, is small "
                "(Rao and Kupper 1967)."
            )
            citation = (
                "P. V. Rao and L. L. Kupper (1967). Ties in Paired-Comparison Experiments: A "
                "Generalization of the Bradley-Terry Model. "
                "Journal of the American Statistical Association 62(317)."
            )
        if "strength" in columns:
            sentence += " The larger it is, the stronger is the answer."
        return self.described(answers, sentence, citation)


_MEANINGS = {
    "tie_margin": "Tie margin: an answer is a tie where the difference of utilities, noise "
    "included, is smaller than this.",
    "strength_steps": (
        "Strength steps: by how much the difference of utilities, noise included, must be larger "
        "for an answer one grade stronger."
    ),
    "soft_noise": "Soft noise: the error of a reported probability on the probit scale, where 1 is "
    "the noise of a plain answer.",
    "rater_noise": (
        "Rater noise: how careless a rater is. 1 is a typical one; at 2, differences must be twice "
        "as large to be seen as often."
    ),
    "rater_spread": (
        "Rater spread: how different raters are. It is the standard deviation of the logarithm of "
        "their noise; 0.5 means that one in three "
        "is more careful or more careless than a typical one by a factor of 1.6."
    ),
    "rater_margin": "Rater margin: how large a rater's tie margin is, as a multiple of the tie "
    "margin of a typical one.",
    "rater_margin_spread": (
        "Rater margin spread: how different the tie margins of raters are, as the standard "
        "deviation of their logarithms."
    ),
    "lapse": "Lapse: the share of answers that are given at random, whatever the difference of "
    "utilities.",
    GROUP_SD: (
        "Group sd: by how much the difference of two items deviates from that of their utilities "
        "in all answers of a group, as a standard deviation; 1 is the noise of a single answer."
    ),
    "effect_scale": (
        "Effect scale: the standard deviation of effects of covariates, in units of utility; of "
        "numbers, for their root mean square difference."
    ),
    "position_bias": "Position bias: what an item gains by being shown first, in units of utility; "
    "negative if it loses.",
}


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
            f"likelihood is {likelihood!r}; give an instance, such as "
            "relpref.likelihoods.Logistic(), or leave it out"
        )
    return likelihood
