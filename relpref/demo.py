"""What the relation adds, on real data: travellers' choices among air, train, bus and car, some of them held out.

Three models are fitted to the choices of three quarters of the travellers: by attributes alone, by attributes and the
relation, and by attributes and the same relation with its nodes shuffled, a control from which nothing can be learned. The
others' choices then show what the relation is worth. Their alternatives stay in the data, only their answers do not.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
import pandas as pd

from relpref.data import PreferenceData
from relpref.data_loaders import ModeChoice, load_modechoice
from relpref.data_loaders.modechoice import MODES
from relpref.infer import EP, UtilityPosterior
from relpref.models import xpgp

HELD_OUT = 0.25
INTERVAL = 0.9
ALONE, RELATION, SHUFFLED = "attributes alone", "attributes and relation", "attributes and shuffled relation"


@dataclass(frozen=True, eq=False)
class Demo:
    """The three fits and how well each predicts the travellers that were held out.

    Attributes
    ----------
    choices : ModeChoice
        The bundled tables.
    learned, held_out : DataFrame
        Comparisons that were learned from, and those that were not.
    posteriors : dict from model to UtilityPosterior
        In the order of the table.
    """

    choices: ModeChoice
    learned: pd.DataFrame
    held_out: pd.DataFrame
    posteriors: dict[str, UtilityPosterior]

    @property
    def posterior(self) -> UtilityPosterior:
        """That of the model with the relation."""
        return self.posteriors[RELATION]

    @property
    def num_held_out(self) -> int:
        """Number of travellers that were held out."""
        return len(self.losses)

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Mean negative log probability of a held-out traveller's three comparisons: one row each, one column per model."""
        pairs = list(zip(self.held_out["winner"], self.held_out["loser"], strict=True))
        of = self.choices.traveller.loc[self.held_out["winner"]].to_numpy()
        each = {
            name: -np.log(posterior.prefer(pairs)["probability"].to_numpy())
            for name, posterior in self.posteriors.items()
        }
        return pd.DataFrame(each, index=of).groupby(level=0).mean()

    def table(self) -> pd.DataFrame:
        """One row per model: log loss, its gain over the attributes alone with a standard error, and log evidence.

        The standard error is that of the mean over travellers, not comparisons: the three comparisons of one traveller are one choice.
        """
        losses = self.losses
        gains = losses.rsub(losses[ALONE], axis=0)
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        evidence = {name: posterior.log_evidence for name, posterior in self.posteriors.items()}
        columns = {
            "log_loss": losses.mean(),
            "gain": gains.mean(),
            "gain_se": error,
            "log_evidence": pd.Series(evidence),
        }
        return pd.DataFrame(columns).loc[list(self.posteriors)].rename_axis("model")

    def modes(self) -> pd.DataFrame:
        """The average utility of each mode's alternatives, less that of all: mean, sd and interval, best first."""
        mode = self.choices.mode.loc[list(self.posterior.data.entities)].to_numpy()
        of_mode = np.stack([(mode == name) / np.sum(mode == name) for name in MODES])
        weights = of_mode - 1 / mode.size
        mean, sd = self.posterior.mean(weights), self.posterior.sd(weights)
        reach = float(_quantile(0.5 + INTERVAL / 2)) * sd
        table = pd.DataFrame(
            {"mean": mean, "sd": sd, "lower": mean - reach, "upper": mean + reach}, index=pd.Index(MODES, name="mode")
        )
        return table.sort_values("mean", ascending=False, kind="stable")


def run_demo(seed: int = 0, *, progress_bar: bool = True) -> Demo:
    """Fit the three models.

    Parameters
    ----------
    seed : int
        Decides which travellers are held out and how the nodes are shuffled.
    progress_bar : bool
        Show the search while it runs, where a person watches.

    Returns
    -------
    Demo
        See there.
    """
    choices = load_modechoice()
    rng = np.random.default_rng(seed)
    travellers = choices.travellers.index.to_numpy()
    held = rng.choice(travellers, size=round(HELD_OUT * travellers.size), replace=False)
    is_held = choices.traveller.loc[choices.comparisons["winner"]].isin(held).to_numpy()
    learned, held_out = choices.comparisons[~is_held], choices.comparisons[is_held]

    data = PreferenceData.from_tables(choices.entities, learned, choices.relations)
    shuffled = PreferenceData.from_tables(choices.entities, learned, _shuffled(choices, rng))
    # The two with a relation have equal shapes: they share one compilation.
    versions = {ALONE: data.without_relation("mode"), RELATION: data, SHUFFLED: shuffled}
    posteriors = {
        name: EP(xpgp).run(jax.random.key(seed), version, progress_bar=progress_bar)
        for name, version in versions.items()
    }
    return Demo(choices, learned, held_out, dict(_utilities(posteriors)))


def _utilities(posteriors: dict[str, Any]) -> Iterable[tuple[str, UtilityPosterior]]:
    for name, posterior in posteriors.items():
        assert isinstance(posterior, UtilityPosterior)
        yield name, posterior


def _shuffled(choices: ModeChoice, rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """The same graph over the same entities, its nodes exchanged at random."""
    labels = choices.entities.index.to_numpy()
    other = pd.Series(rng.permutation(labels), index=labels)
    return {name: links.apply(lambda column: column.map(other)) for name, links in choices.relations.items()}


def _quantile(probability: float) -> Any:
    from scipy.special import ndtri

    return ndtri(probability)
