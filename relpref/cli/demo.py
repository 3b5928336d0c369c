"""``relpref demo``: rank national football teams with and without their confederations."""

import textwrap
from argparse import Namespace
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from relpref.cli.fit import sizes
from relpref.cli.output import document, formatted, say
from relpref.data.arrays import counted
from relpref.data_loaders import football
from relpref.runs import REPORT, TABLES, Copy, check_target, is_run_of, save_run

if TYPE_CHECKING:
    from relpref.posterior.utility import UtilityPosterior

PREDICTED_SINCE = "2025-09-01"
ALONE = "teams alone"
RELATION = "teams and confederations"
SHUFFLED = "teams and shuffled confederations"
NAME = "confederation"
TOP = 8
_NOTHING = 1e-6  # scale of the prior of an amplitude that is kept at about 0
_WIDTH = 100


@dataclass(frozen=True, eq=False)
class Season:
    """Matches, the confederation of each team, and which matches are held out as ``later``."""

    matches: pd.DataFrame
    confederation: pd.Series
    later: pd.Series

    def shuffled(self, seed: int) -> pd.Series:
        """Confederations in a random order of the teams."""
        mixed = np.random.default_rng(seed).permutation(self.confederation.to_numpy())
        return pd.Series(mixed, index=self.confederation.index)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Fit to all matches, and fits to the earlier matches by model."""

    season: Season
    posterior: "UtilityPosterior"
    earlier: "dict[str, UtilityPosterior]"

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Negative log probability of the result of each later match, one column per model."""
        matches = self.season.matches[self.season.later]
        pairs = list(zip(matches["home_team"], matches["away_team"], strict=True))
        hosts = [None if row.neutral else row.home_team for row in matches.itertuples()]
        goals = (matches["home_score"] - matches["away_score"]).to_numpy()
        each = {}
        for name, posterior in self.earlier.items():
            chances = posterior.prefer(pairs, shown_first=hosts)
            won, drawn = chances["probability"].to_numpy(), chances["tie"].to_numpy()
            each[name] = -np.log(np.select([goals > 0, goals == 0], [won, drawn], 1 - won - drawn))
        return pd.DataFrame(each)

    @cached_property
    def models(self) -> pd.DataFrame:
        """Comparison of the models.

        ``log_evidence`` is of the earlier matches; ``log_loss``, and its ``gain`` over teams alone
        with the standard error ``gain_se``, are of the later matches.
        """
        gains = self.losses.rsub(self.losses[ALONE], axis=0)
        columns = {
            "log_evidence": pd.Series(
                {name: posterior.log_evidence for name, posterior in self.earlier.items()}
            ),
            "log_loss": self.losses.mean(),
            "gain": gains.mean(),
            "gain_se": gains.std(ddof=1) / np.sqrt(len(gains)),
        }
        return pd.DataFrame(columns).loc[list(self.earlier)].rename_axis("model")

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """Ranking with each team's confederation and number of matches."""
        teams = self.season.matches[["home_team", "away_team"]].stack().value_counts()
        ranking = self.posterior.ranking()
        return ranking.assign(confederation=self.season.confederation, matches=teams)


def read() -> Season:
    """Read the bundled matches."""
    matches = football.read_matches(football.BUNDLED)
    return Season(matches, football.confederations(matches), matches["date"] >= PREDICTED_SINCE)


def fit(season: Season, seed: int = 0, *, progress_bar: bool = True) -> Outcome:
    """Fit the model to all matches, and three models to the earlier matches."""
    import numpyro.distributions as dist

    from relpref.fitting import fit as fitted
    from relpref.kernels import HiddenCommonCause
    from relpref.models.preference import ADDED_AMPLITUDE_PRIOR

    amplitude = float(ADDED_AMPLITUDE_PRIOR.scale)

    def run(matches: pd.DataFrame, groups: pd.Series, scale: float = amplitude) -> Any:
        # A model without the relation has an amplitude of about 0. This way all models are the
        # same program, which is traced once.
        return fitted(
            list(groups.index),
            football.answers(matches),
            {NAME: groups},
            seed=seed,
            progress_bar=progress_bar,
            priors={f"{NAME}_amplitude": dist.HalfNormal(np.float64(scale))},
            # One value for each confederation.
            relation_kernels={NAME: HiddenCommonCause("cliques")},
            # Averaging over the four hyperparameters takes three seconds more and changes only
            # last printed digits.
            hyperparameters="maximize",
        )

    learned = season.matches[~season.later]
    models = {
        ALONE: run(learned, season.confederation, _NOTHING),
        RELATION: run(learned, season.confederation),
        SHUFFLED: run(learned, season.shuffled(seed)),
    }
    return Outcome(season, run(season.matches, season.confederation), models)


def run(chosen: Namespace) -> None:
    """Fit the models, print a summary, write the run with its report."""
    out = Path(chosen.out)
    # An earlier demo is replaced, a run of the user is not.
    replace = is_run_of(out, "demo")
    check_target(out, replace=replace, how="the demo does not replace it")
    season = read()
    if chosen.speaks:
        _paragraph(about(season))
    outcome = fit(season, chosen.seed, progress_bar=not chosen.quiet)
    save_run(
        out,
        outcome.posterior,
        _tables(season),
        command="demo",
        model="xpgp",
        seed=chosen.seed,
        options={"relation_kernels": {NAME: "hidden-common-cause-cliques"}},
        replace=replace,
        report=lambda path: _report(outcome, path),
    )
    if chosen.json:
        data = outcome.posterior.data
        document(
            chosen,
            report=out / REPORT,
            seed=chosen.seed,
            data={"description": data.describe(), **sizes(data)},
            hyperparameters=outcome.posterior.hyperparameters,
            predicted=len(outcome.losses),
            models=outcome.models.reset_index().to_dict("records"),
            ranking=outcome.ranking.reset_index(names="team").head(TOP).to_dict("records"),
        )
    if chosen.speaks:
        _print(outcome, out)


def _print(outcome: Outcome, out: Path) -> None:
    top = outcome.ranking.reset_index(names="team").head(TOP)
    top.insert(0, "place", range(1, len(top) + 1))
    columns = [
        ("", "{place}"),
        ("team", "{team}"),
        (NAME, "{confederation}"),
        ("matches", "{matches}"),
        ("strength", "{mean:+.2f}"),
        ("90% interval", "{lower:+.2f} to {upper:+.2f}"),
        ("place", "{rank_lower} to {rank_upper}"),
    ]
    say(formatted(columns, top.to_dict("records"), left=(1, 2)))
    models = _model_table(outcome)
    say(f"\n{formatted([(name, f'{{{name}}}') for name in models], models.to_dict('records'))}")
    _paragraph(evaluation(outcome))
    for text in findings(outcome):
        _paragraph(text, indent="  ")
    name = quote(str(out))
    say(f"\nTry: relpref rank {name} --top 20, or relpref prefer {name} Spain Argentina")
    say(f"The report is in {out / REPORT}")


def _model_table(outcome: Outcome) -> pd.DataFrame:
    """Comparison of the models, as text."""
    models = outcome.models
    columns = {
        "model": models.index,
        "log evidence": models["log_evidence"].map("{:.1f}".format),
        "log loss": models["log_loss"].map("{:.3f}".format),
        "gain": [
            ""
            if row.Index == ALONE
            else f"{row.gain:+.3f} ± {row.gain_se:.3f}"
            if max(abs(row.gain), row.gain_se) >= 0.0005
            else "about 0"
            for row in models.itertuples()
        ],
    }
    return pd.DataFrame(columns).reset_index(drop=True)


def _paragraph(text: str, indent: str = "") -> None:
    """Print a wrapped paragraph, and an empty line below it unless it is a part of a list."""
    lines = textwrap.fill(text, _WIDTH, break_on_hyphens=False, subsequent_indent=indent)
    say(lines if indent else f"{lines}\n")


def about(season: Season) -> str:
    """Describe the data."""
    matches, group = season.matches, season.confederation
    first, last = (f"{day:%B %Y}" for day in (matches["date"].min(), matches["date"].max()))
    home, away = (group[matches[side]].to_numpy() for side in ("home_team", "away_team"))
    return (
        f"{len(matches):,} matches of {len(group)} national football teams, {first} to {last} (M. "
        "Jürisoo, CC0). One relation joins the teams of a confederation; "
        f"{100 * (home != away).mean():.0f}% of the matches are between two confederations."
    )


def evaluation(outcome: Outcome) -> str:
    """Describe how the models were compared, and the teams they rank first."""
    season = outcome.season
    later = season.later.sum()
    best = {name: _first_five(outcome.earlier[name]) for name in (ALONE, RELATION)}
    return (
        f"The three models learned from the {len(season.matches) - later:,} matches before "
        f"September 2025 and predicted win, draw or loss of the {later} matches since (log loss "
        "and its gain: nats a match, ± one standard error). Best five at that time without the "
        f"relation: {best[ALONE]}; with it: {best[RELATION]}."
    )


def findings(outcome: Outcome) -> list[str]:
    """Sentences about the posterior of all matches."""
    from relpref.explore import next_pairs

    posterior, table = outcome.posterior, outcome.ranking
    average = table.groupby(NAME)["mean"].mean().sort_values(ascending=False)
    strengths = ", ".join(f"{name} {value:+.2f}" for name, value in average.items())
    first, second = table.index[:2]
    match = posterior.prefer([(first, second)] * 2, shown_first=[None, first])
    neutral, home = map(_chances, match.itertuples())
    few, many = (
        _interval(table.loc[team])
        for team in (table["matches"].idxmin(), table["matches"].idxmax())
    )
    widest, close = (
        "–".join(next_pairs(posterior, items=items)[["first", "second"]].iloc[0])
        for items in (None, list(table.index[:TOP]))
    )
    return [
        f"Average strength: {strengths}.",
        f"Tiers: {tiers_in_words(posterior.tiers())}.",
        f"Tomorrow's match: {first}–{second} {neutral} (win / draw / loss in 100) "
        + f"on neutral ground; home advantage: {home} in {first}.",
        f"Few matches, wide interval: {few}; {many}.",
        f"Most informative next match: {widest}; among the best {TOP} teams: {close}.",
    ]


def tiers_in_words(tiers: pd.DataFrame) -> str:
    """Sentence about the teams that cannot be told apart from the best."""
    others = (tiers["tier"] == 1).sum() - 1
    who = f"{others} of the {len(tiers) - 1} others" if others else "none of the others"
    return (
        f"{counted(tiers['tier'].max(), 'tier')}; {tiers.index[0]} cannot be told apart from "
        f"{who} (95%, all pairs at once)"
    )


def _first_five(posterior: "UtilityPosterior") -> str:
    return ", ".join(posterior.ranking(ranks=False).index[:5])


def _chances(row: Any) -> str:
    """Percentages of win, draw and loss."""
    chances = (row.probability, row.tie, 1 - row.probability - row.tie)
    return " / ".join(f"{100 * chance:.0f}" for chance in chances)


def _interval(row: Any) -> str:
    return f"{row.name} ({row['matches']} matches) {row['lower']:+.2f} to {row['upper']:+.2f}"


def _report(outcome: Outcome, path: Path) -> None:
    from relpref.report import Section, write

    sections = (
        Section("In short", [text.replace(" -", " −") for text in findings(outcome)]),
        Section(
            "What the confederations add",
            (evaluation(outcome),),
            table=_model_table(outcome).replace("^-", "−", regex=True).set_index("model"),
        ),
    )
    write(
        outcome.posterior,
        path,
        title="Which national football team is the best?",
        sections=sections,
        relations_evidence=False,
        words={"item": "team", "answer": "match/matches"},
    )


def _tables(season: Season) -> tuple[Copy, ...]:
    links = season.confederation.rename_axis("source").rename("target").reset_index()
    tables = {
        "entities": links[["source"]].to_csv(index=False, header=["team"]),
        "comparisons": football.answers(season.matches).to_csv(index=False),
        f"relations/{NAME}.bipartite": links.to_csv(index=False),
    }
    return tuple(
        Copy(f"{TABLES}/{name}.csv", f"{name}.csv", text.encode()) for name, text in tables.items()
    )
