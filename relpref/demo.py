"""What a relation adds, on real data: travelers' choices among air, train, bus and car, some of them held out.

Three models are fitted to the choices of three quarters of the travelers: by attributes alone, by attributes and the
relation, and by attributes and the same relation with its nodes exchanged at random, a control from which nothing can be learned.
The choices of the others then show what the relation is worth. Their alternatives stay in the data, their answers do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from scipy.special import ndtri

from relpref.data import PreferenceData
from relpref.data_loaders import ModeChoice, load_modechoice
from relpref.data_loaders.bundled import MODES
from relpref.infer import EP, UtilityPosterior
from relpref.kernels import SquaredExponential
from relpref.models import xpgp
from relpref.models.preference import ADDED_AMPLITUDE_PRIOR

HELD_OUT = 0.25
INTERVAL = 0.9
ALONE, RELATION, SHUFFLED = "attributes alone", "attributes and relation", "attributes and shuffled relation"
_NOTHING = 1e-6
# One lengthscale: the attributes are those of four modes on two kinds of trips, eight points that cannot tell three.
KERNEL = SquaredExponential(shared_lengthscale=True)


@dataclass(frozen=True, eq=False)
class Experiment:
    """Which travelers are held out, and the data of each model.

    Attributes
    ----------
    choices : ModeChoice
        The bundled tables.
    learned, held_out : DataFrame
        Comparisons that are learned from, and those that are not.
    data : dict from model to PreferenceData
        The attributes alone have the relation, too: it is their prior that does not let it in, see `fit`.
    """

    choices: ModeChoice
    learned: pd.DataFrame
    held_out: pd.DataFrame
    data: dict[str, PreferenceData]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The three fits and how well each predicts the travelers that were held out.

    Attributes
    ----------
    experiment : Experiment
    posteriors : dict from model to UtilityPosterior
    """

    experiment: Experiment
    posteriors: dict[str, UtilityPosterior]

    @property
    def posterior(self) -> UtilityPosterior:
        """That of the model with the relation."""
        return self.posteriors[RELATION]

    def hyperparameters(self, model: str) -> Mapping[str, Any]:
        """Those that were found for a model."""
        found = self.posteriors[model].hyperparameters
        return {
            name: value for name, value in found.items() if model != ALONE or not name.startswith("mode_")
        }

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Mean negative log probability of a held-out traveller's three comparisons: one row each, one column per model."""
        held_out = self.experiment.held_out
        pairs = list(zip(held_out["winner"], held_out["loser"], strict=True))
        each = {
            name: -np.log(posterior.prefer(pairs)["probability"].to_numpy())
            for name, posterior in self.posteriors.items()
        }
        traveller = self.experiment.choices.traveller.loc[held_out["winner"]].to_numpy()
        return pd.DataFrame(each, index=traveller).groupby(level=0).mean()

    def table(self) -> pd.DataFrame:
        """One row per model: ``log_loss``, its ``gain`` over the attributes alone, ``gain_se`` and ``log_evidence``.

        The standard error is that of a mean over travelers: the three comparisons of one traveler are one choice.
        """
        gains = self.losses.rsub(self.losses[ALONE], axis=0)
        columns = {
            "log_loss": self.losses.mean(),
            "gain": gains.mean(),
            "gain_se": gains.std(ddof=1) / np.sqrt(len(gains)),
            "log_evidence": pd.Series(
                {name: fitted.log_evidence for name, fitted in self.posteriors.items()}
            ),
        }
        return pd.DataFrame(columns).loc[list(self.posteriors)].rename_axis("model")

    def modes(self) -> pd.DataFrame:
        """The average utility of each mode's alternatives less that of all: mean, sd and interval, best first."""
        mode = self.experiment.choices.mode.loc[list(self.posterior.data.entities)].to_numpy()
        weights = np.stack([(mode == name) / np.sum(mode == name) for name in MODES]) - 1 / mode.size
        mean, sd = self.posterior.mean(weights), self.posterior.sd(weights)
        reach = ndtri(0.5 + INTERVAL / 2) * sd
        columns = {"mean": mean, "sd": sd, "lower": mean - reach, "upper": mean + reach}
        table = pd.DataFrame(columns, index=pd.Index(MODES, name="mode"))
        return table.sort_values("mean", ascending=False, kind="stable")


def prepare(seed: int = 0) -> Experiment:
    """Load the tables and hold travellers out."""
    choices = load_modechoice()
    rng = np.random.default_rng(seed)
    everyone = choices.travellers.index.to_numpy()
    held = rng.choice(everyone, size=round(HELD_OUT * everyone.size), replace=False)
    is_held = choices.traveller.loc[choices.comparisons["winner"]].isin(held).to_numpy()
    learned = choices.comparisons[~is_held]

    data = PreferenceData.from_tables(choices.entities, learned, choices.relations)
    labels = choices.entities.index.to_numpy()
    exchanged = pd.Series(rng.permutation(labels), index=labels)
    relations = {
        name: links.apply(lambda end: end.map(exchanged)) for name, links in choices.relations.items()
    }
    shuffled = PreferenceData.from_tables(choices.entities, learned, relations)
    versions = {ALONE: data, RELATION: data, SHUFFLED: shuffled}
    return Experiment(choices, learned, choices.comparisons[is_held], versions)


def fit(experiment: Experiment, seed: int = 0, *, progress_bar: bool = True) -> Outcome:
    """Fit the three models."""
    posteriors = {}
    for name, data in experiment.data.items():
        # Leaving the relation out and holding its amplitude at nothing come to the same. This way all three are one program
        # with arrays of equal shapes (the scale of the prior is one of them), and only the first has to wait for the compiler.
        scale = np.asarray(_NOTHING if name == ALONE else ADDED_AMPLITUDE_PRIOR.scale, dtype=np.float64)
        # At the maximum: averaging over hyperparameters of 840 entities takes most of a minute, and changes little with so many answers.
        fitted = EP(xpgp, hyperparameters="maximise").run(
            jax.random.key(seed),
            data,
            progress_bar=progress_bar,
            attribute_kernel=KERNEL,
            priors={"mode_amplitude": dist.HalfNormal(scale)},
        )
        posteriors[name] = cast(UtilityPosterior, fitted)
    return Outcome(experiment, posteriors)
