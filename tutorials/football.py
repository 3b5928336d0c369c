# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A leaderboard with intervals: international football
#
# A league table of national teams is hard to read: they play few matches, against very different opponents, at home, away or on neutral ground,
# and many end in a draw. This page makes a leaderboard that accounts for all that and says how sure it is, and then asks it about matches
# that it has not seen.

# %%
import os
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from relpref.data_loaders import football
from relpref.infer import EP
from relpref.models import xpgp

# %% [markdown]
# ## The matches
#
# `football.load` reads the results of all men's internationals since 1872, which Mart Jürisoo collects and gives away
# ([CC0](https://github.com/martj42/international_results)). `relpref data get football` fetches the file, and `RELPREF_DATA` names the folder in which
# it lies. Where it is missing, as on a machine without a network, this page makes up a file of the same form: forty teams of four continents.


# %%
def make_up(folder):
    """Write results of teams that do not exist: the file's columns, and the teams' strengths drawn by continent."""
    rng = np.random.default_rng(3)
    teams = np.array(
        [f"{place} {number}" for place in ("North", "South", "East", "West") for number in range(1, 11)]
    )
    continent = np.repeat(np.arange(4), 10)
    strength = np.array([0.8, 0.2, -0.2, -0.6])[continent] + 0.8 * rng.standard_normal(40)
    days = pd.date_range("2023-01-01", "2026-07-19", periods=1200)
    rows = []
    for day in days:
        home = rng.integers(40)
        near = np.flatnonzero((continent == continent[home]) & (np.arange(40) != home))
        away = rng.choice(near) if rng.random() < 0.8 else rng.choice(np.delete(np.arange(40), home))
        neutral = rng.random() < 0.25
        gap = 0.35 * (strength[home] - strength[away]) + 0.15 * (not neutral)
        scores = rng.poisson(1.3 * np.exp([gap, -gap]))
        rows.append((day.date(), teams[home], teams[away], *scores, "Cup", "", "", str(neutral).upper()))
    names = [
        "date",
        "home_team",
        "away_team",
        "home_score",
        "away_score",
        "tournament",
        "city",
        "country",
        "neutral",
    ]
    pd.DataFrame(rows, columns=names).to_csv(folder / football.FILE, index=False)


folder = Path(os.environ.get("RELPREF_DATA", "")) / "international_results"
if not (folder / football.FILE).is_file():
    folder = Path(tempfile.mkdtemp())
    make_up(folder)

data = football.load(folder, since="2023-01-01", until="2025-12-31", least_matches=20)
print(data)

# %% [markdown]
# Items are teams with at least 20 matches against each other in three years. A draw is a tie, and the home team is the one that was "shown first":
# nothing on neutral ground. Teams have no attributes here. The relation `opponents` joins teams that met, the closer the
# oftener; it knows who met whom and not who won, and so mostly which teams are of one continent.
#
# ## The fit

# %%
posterior = EP(xpgp).run(jax.random.key(0), data, progress_bar=False)
print(posterior)
pd.Series(posterior.hyperparameters).round(2)

# %% [markdown]
# A unit is the noise of one match: a team that is better by 1 wins, home and draws aside, with a probability of 84 %. `position_bias` is what playing
# at home is worth, and `tie_margin` how near the two must come on the day for a draw.
#
# ## The leaderboard

# %%
ranking = posterior.ranking(interval=0.9)
ranking.head(10)[["mean", "lower", "upper", "rank_lower", "rank_upper", "p_best"]].round(2)

# %%
top = ranking.head(25)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 6), sharey=True, layout="constrained")
spread = [top["mean"] - top["lower"], top["upper"] - top["mean"]]
left.errorbar(top["mean"], top.index, xerr=spread, fmt="o", capsize=2)
left.set(xlabel="strength against the average team", title="Strength, 90 % intervals")
left.invert_yaxis()
right.hlines(top.index, top["rank_lower"], top["rank_upper"], linewidth=4, alpha=0.5)
right.plot(top["expected_rank"], top.index, "o")
right.set(xlabel="place", title="Place, 90 % intervals")
right.grid(axis="x", alpha=0.3)
plt.show()

# %% [markdown]
# The picture on the right is what a plain table hides. Places of teams in the middle of the board are known to within ten or more, and only the
# first few are set apart from the rest.
#
# ## Matches that it has not seen
#
# The fit ends with 2025. What did it expect of the matches of 2026? `prefer` gives the probability that the first team wins, with the
# home team as the one shown first, and the probability of a draw.

# %%
matches = football.read_matches(folder, since="2026-01-01")
known = matches["home_team"].isin(data.labels) & matches["away_team"].isin(data.labels)
matches = matches[known].reset_index(drop=True)
hosts = [None if match.neutral else match.home_team for match in matches.itertuples()]
expected = posterior.prefer(zip(matches["home_team"], matches["away_team"], strict=True), shown_first=hosts)
chances = np.column_stack(
    [expected["probability"], expected["tie"], 1 - expected["probability"] - expected["tie"]]
)
goals = matches["home_score"] - matches["away_score"]
outcome = np.select([goals > 0, goals == 0], [0, 1], default=2)
pd.concat(
    [
        matches[["home_team", "away_team", "home_score", "away_score"]],
        pd.DataFrame(chances, columns=["win", "draw", "loss"]).round(2),
    ],
    axis=1,
).tail(4)

# %% [markdown]
# Is that any good? The log loss is the average of −log of the probability of what happened: the lower, the better. Beside it stands what one gets
# without knowing the teams: the shares of wins, draws and losses, at home and on neutral ground, in the years before.


# %%
def shares(table, neutral):
    """How often the home team won, drew and lost."""
    gap = (table["home_score"] - table["away_score"])[table["neutral"] == neutral]
    return [(gap > 0).mean(), (gap == 0).mean(), (gap < 0).mean()]


before = football.read_matches(folder, since="2023-01-01", until="2025-12-31")
usual = np.where(matches["neutral"].to_numpy()[:, None], shares(before, True), shares(before, False))
rows = np.arange(len(matches))
losses = {
    name: -np.log(table[rows, outcome]) for name, table in (("leaderboard", chances), ("usual shares", usual))
}
difference = losses["usual shares"] - losses["leaderboard"]
print(f"{len(matches)} matches")
print({name: round(float(loss.mean()), 3) for name, loss in losses.items()})
print(f"gain {difference.mean():.3f} ± {difference.std(ddof=1) / np.sqrt(len(matches)):.3f} a match")

# %%
said, happened = chances.ravel(), (outcome[:, None] == np.arange(3)).ravel()
bins = np.quantile(said, np.linspace(0, 1, 9))
group = np.clip(np.searchsorted(bins, said, side="right") - 1, 0, 7)
table = pd.DataFrame({"said": said, "happened": happened}).groupby(group).agg(["mean", "size"])
x, y = table["said"]["mean"], table["happened"]["mean"]
figure, axes = plt.subplots(figsize=(4.8, 4.4), layout="constrained")
axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
axes.errorbar(x, y, yerr=np.sqrt(x * (1 - x) / table["said"]["size"]), fmt="o", capsize=3)
axes.set(xlabel="probability said", ylabel="share that happened", title="Wins, draws and losses of 2026")
plt.show()

# %% [markdown]
# Points near the diagonal say that the probabilities can be taken at their word; bars are one standard error, from the number of outcomes in each
# point.
#
# ## What was learned
#
# * Draws, playing at home and neutral grounds are columns of the answers, not reasons to throw matches away.
# * A leaderboard has two uncertainties to show: that of a strength, and that of a place. The second is often startlingly large.
# * Predicting later matches is the plainest check there is, and `prefer` gives all three outcomes for it.
