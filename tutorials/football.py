# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # National football: what a win is worth
#
# A ranking of national football teams is hard to make. Teams play few matches, at home, away or on
# neutral ground, many matches end in a draw, and most opponents come from the same confederation.
# This tutorial ranks 209 teams from 3,483 matches. It shows that one relation between the teams
# improves the predictions, and checks that claim with a control.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import relpref
from relpref.data_loaders import football
from relpref.diagnostics import certify, leave_one_out
from relpref.kernels import HiddenCommonCause

# %% [markdown]
# ## The matches
#
# The matches come with the package: those since January 2023 between teams that have played at
# least eight, from the collection of [Mart
# Jürisoo](https://github.com/martj42/international_results) (CC0). `football.read_matches(folder)`
# reads the whole collection, 49,520 matches since 1872, where `relpref data get football` has put
# it.

# %%
matches = football.read_matches(football.BUNDLED)
matches.tail(3)

# %% [markdown]
# `football.answers` turns matches into answers. A draw is a tie. The home team is the one that was
# shown first; on neutral ground no team was. The model learns from these columns how often teams
# draw and how much playing at home is worth.

# %%
games = football.answers(matches)
games.tail(3)

# %% [markdown]
# `football.confederations` names the confederation of each team: the one in whose tournaments it
# plays. It does not look at results.

# %%
confederation = football.confederations(matches)
within = (
    confederation[matches["home_team"]].to_numpy() == confederation[matches["away_team"]].to_numpy()
)
print(f"{np.mean(~within):.0%} of the matches are between two confederations")
confederation.value_counts()

# %% [markdown]
# ## A ranking from the matches alone
#
# The models learn from the matches before September 2025. The later ones are for the test.

# %%
later = (matches["date"] >= "2025-09-01").to_numpy()
teams = list(confederation.index)
alone = relpref.fit(teams, games[~later], progress_bar=False)
alone.ranking()[["mean", "lower", "upper", "rank_lower", "rank_upper"]].head(8).round(2)

# %% [markdown]
# Iran is fifth and Japan seventh. Both won most of their matches, and most of these matches were
# within Asia:

# %%
before = matches[~later]
winner = games["winner"].where(~games["tie"])
for team in ("Iran", "Japan", "France", "England"):
    own = ((before["home_team"] == team) | (before["away_team"] == team)).to_numpy()
    won = (winner[~later] == team).to_numpy()
    print(
        f"{team}: {won.sum()} of {own.sum()} matches won, {within[~later][own].mean():.0%} within "
        "its confederation"
    )

# %% [markdown]
# ## The confederation as a relation
#
# A relation says that some items are similar. Here it is a column, from team to confederation. The
# kernel `HiddenCommonCause("cliques")` gives each confederation one value that its teams share. How
# much confederations differ, the amplitude, is learned. So every match between two confederations
# says something about all their teams.

# %%
relation = {"confederation": confederation}
kernel = {"confederation": HiddenCommonCause("cliques")}
related = relpref.fit(teams, games[~later], relation, relation_kernels=kernel, progress_bar=False)
pd.Series(related.hyperparameters).round(2)

# %% [markdown]
# The unit is the noise of one match. `position_bias` is the advantage of the home team, and
# `tie_margin` is half the range of differences on the day that end in a draw.

# %%
colors = dict(zip(confederation.unique(), plt.colormaps["Dark2"].colors, strict=False))
figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained")
for axis, title, posterior in zip(
    axes, ("From the matches alone", "With confederations"), (alone, related), strict=True
):
    top = posterior.ranking(ranks=False).head(14)
    for place, row in enumerate(top.itertuples()):
        color = colors[confederation[row.Index]]
        axis.plot([row.lower, row.upper], [place, place], color=color, linewidth=2)
        axis.plot(row.mean, place, "o", color=color)
    axis.set_yticks(range(14), top.index)
    axis.set(
        title=title, xlabel="strength, with 90 % intervals", ylim=(13.5, -0.5), xlim=(0.7, 2.9)
    )
handles = [
    plt.Line2D([], [], color=color, marker="o", label=name) for name, color in colors.items()
]
figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)
plt.show()

# %% [markdown]
# European teams rise. `explain` has the parts of each strength:

# %%
related.explain().loc[
    ["Spain", "Argentina", "Iran", "Japan"], ["confederation", "individual", "mean"]
].round(2)

# %% [markdown]
# ## Is it true?
#
# Two numbers judge a model. The log evidence is the log probability of the matches that it learned
# from. The log loss is the average of −log of the probability of what happened in the later
# matches: win, draw or loss. Lower is better. `prefer` gives the three chances.

# %%
test = matches[later]
pairs = list(zip(test["home_team"], test["away_team"], strict=True))
hosts = [None if match.neutral else match.home_team for match in test.itertuples()]
goals = (test["home_score"] - test["away_score"]).to_numpy()
outcome = np.select([goals > 0, goals == 0], [0, 1], default=2)


def chances(posterior):
    """Win, draw and loss of the home team, for each later match."""
    table = posterior.prefer(pairs, shown_first=hosts)
    return np.column_stack(
        [table["probability"], table["tie"], 1 - table["probability"] - table["tie"]]
    )


def losses(probability):
    """−log of the probability of what happened."""
    return -np.log(probability[np.arange(len(outcome)), outcome])


# %% [markdown]
# The control has the same confederations, but they are shuffled among the teams. If the relation
# helps for the right reason, the shuffled one must not. One more relation is tried: `opponents`
# joins teams that met before September 2025, the more closely the more often.

# %%
rng = np.random.default_rng(0)
shuffled = pd.Series(rng.permutation(confederation.to_numpy()), index=confederation.index)
ends = np.sort(matches.loc[~later, ["home_team", "away_team"]].to_numpy(dtype=object), axis=1)
met = pd.DataFrame(ends, columns=["source", "target"]).value_counts().rename("weight").reset_index()
models = {
    "matches alone": alone,
    "confederations": related,
    "shuffled confederations": relpref.fit(
        teams,
        games[~later],
        {"confederation": shuffled},
        relation_kernels=kernel,
        progress_bar=False,
    ),
    "opponents": relpref.fit(teams, games[~later], {"opponents": met}, progress_bar=False),
}
loss = pd.DataFrame({name: losses(chances(posterior)) for name, posterior in models.items()})
for neutral in (True, False):  # what one knows without knowing the teams
    gap = (before["home_score"] - before["away_score"])[before["neutral"] == neutral]
    usual = np.array([(gap > 0).mean(), (gap == 0).mean(), (gap < 0).mean()])
    loss.loc[(test["neutral"] == neutral).to_numpy(), "usual shares"] = -np.log(
        usual[outcome[(test["neutral"] == neutral).to_numpy()]]
    )
gain = loss.rsub(loss["matches alone"], axis=0)
pd.DataFrame(
    {
        "log evidence": {name: posterior.log_evidence for name, posterior in models.items()},
        "log loss": loss.mean(),
        "gain": gain.mean(),
        "standard error": gain.std() / np.sqrt(len(gain)),
    }
).loc[[*models, "usual shares"]].round(3)

# %% [markdown]
# Confederations add about 29 nats of log evidence and predict the later matches better, by more
# than two standard errors. Shuffled confederations add nothing. `opponents` is better still: who
# plays whom also tells regions within a confederation apart, and good teams meet good teams in
# finals. It was derived from the matches before September 2025 only, so the comparison is fair.
#
# ## Can the probabilities be trusted?

# %%
said = chances(related).ravel()
happened = (outcome[:, None] == np.arange(3)).ravel()
edges = np.quantile(said, np.linspace(0, 1, 9))
group = np.clip(np.searchsorted(edges, said, side="right") - 1, 0, 7)
table = pd.DataFrame({"said": said, "happened": happened}).groupby(group).agg(["mean", "size"])
x, y = table["said"]["mean"], table["happened"]["mean"]
figure, axis = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
axis.plot([0, 1], [0, 1], color="grey", linewidth=1)
axis.errorbar(x, y, yerr=np.sqrt(x * (1 - x) / table["said"]["size"]), fmt="o", capsize=3)
axis.set(
    xlabel="predicted probability",
    ylabel="share that happened",
    title="Matches since September 2025",
)
plt.show()

# %% [markdown]
# Points near the diagonal mean that the probabilities hold. The bars are one standard error.
#
# ## The ranking of all matches

# %%
posterior = relpref.fit(teams, games, relation, relation_kernels=kernel, progress_bar=False)
ranking = posterior.ranking()
ranking[["mean", "lower", "upper", "rank_lower", "rank_upper", "p_best"]].head(10).round(2)

# %% [markdown]
# `rank_lower` and `rank_upper` hold the place of one team with a probability of 90 %. `tiers`
# compares all pairs at once, which is harder:

# %%
posterior.tiers().head(4)

# %% [markdown]
# The leader opens a tier, and every team that it cannot be told apart from joins, with a
# probability of 95 % for all pairs at once; the best of the rest opens the next tier. The places
# that are left to Spain are those down to `rank_upper_all`.
#
# Is the fit itself right? The certificate compares it with the exact posterior by importance
# sampling, and each match is predicted from all others.

# %%
print(certify(posterior).sentence)
held_out = leave_one_out(posterior)
print(f"log loss of each match, predicted from all others: {held_out.log_loss:.3f}")

# %% [markdown]
# ## Tomorrow's match
#
# The same match on neutral ground, in Spain, and in Argentina:

# %%
grounds = [None, "Spain", "Argentina"]
match = posterior.prefer([("Spain", "Argentina")] * 3, shown_first=grounds)
match["loss"] = 1 - match["probability"] - match["tie"]
match[["probability", "tie", "loss", "p_better"]].set_axis(
    ["neutral", "in Spain", "in Argentina"]
).round(2)

# %% [markdown]
# `p_better` is the probability that Spain is the stronger team. It does not depend on the ground.
#
# ## Newcomers, and teams with few matches
#
# The interval of a team narrows with its matches:

# %%
number = pd.concat([games["winner"], games["loser"]]).value_counts().rename("matches")
width = (ranking["upper"] - ranking["lower"]).rename("width of the interval")
pd.concat([number, width], axis=1).loc[
    ["Tonga", "Samoa", "Tahiti", "San Marino", "Spain", "Mexico"]
].round(2)

# %% [markdown]
# A team without any match gets the strength of its confederation, with a wide interval. `extend`
# adds two new teams without refitting the hyperparameters, and `update` adds a first result:

# %%
names = ["Atlantis (UEFA)", "Atlantis (OFC)"]
newcomers = pd.DataFrame({"source": names, "target": ["UEFA", "OFC"]})
extended = posterior.extend(names, {"confederation": newcomers})
won = pd.DataFrame(
    {"winner": names, "loser": ["Italy", "Italy"], "tie": False, "shown_first": None}
)
after = extended.update(won)
pd.concat(
    {
        "before a match": extended.ranking(ranks=False),
        "after a win against Italy": after.ranking(ranks=False),
    }
).swaplevel().loc[names, ["mean", "lower", "upper"]].round(2)

# %% [markdown]
# ## The most informative match
#
# Which match would teach most about the strengths, of all 21,736 pairs? And among the ten best
# teams?

# %%
columns = ["first", "second", "score", "probability"]
print(relpref.explore.next_pairs(posterior, 3)[columns].round(3))
print(relpref.explore.next_pairs(posterior, 3, items=list(ranking.index[:10]))[columns].round(3))

# %% [markdown]
# Macau and Tonga have played few matches, so nearly every result is news. Among the best teams less
# is left to learn.
#
# `relpref demo` makes this fit, prints the main figures and writes a report.
#
# ## What was learned
#
# * Draws, playing at home and neutral grounds are columns of the answers.
# * A relation tells how much a win is worth where groups of items seldom meet. A shuffled relation
#   is the control.
# * Predicting later matches is the plainest check of a model, and `prefer` gives all three outcomes
#   for it.
# * The place of a team is less certain than its strength suggests, all the more so when all pairs
#   are compared at once.
