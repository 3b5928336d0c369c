# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A leaderboard of language models
#
# People read two responses to the same prompt and vote for the better one, or for a tie. A
# leaderboard ranks the models by these votes. This tutorial ranks them with intervals and tiers,
# counts votes on the same responses for what they are, removes the advantage of long responses,
# uses the families of models, and computes how many votes a new model needs.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import relpref

# %% [markdown]
# ## The votes
#
# Skip this cell if you have a table of votes. Here they are simulated: 15 models of five families,
# 30 people who differ in care, and responses whose length matters to them. The models of the family
# Ember write long responses. Three people read the same two responses, which may be better or worse
# than the models usually write.

# %%
rng = np.random.default_rng(11)
families = {"Alder": 1.4, "Birch": 0.6, "Cedar": 0.0, "Dune": -1.4, "Ember": -0.6}
models = pd.Series(
    {f"{name} {size}": name for name in families for size in (1, 2, 3)}, name="family"
)
skill = models.map(families) + [-0.2, 0.0, 0.2] * len(families) + rng.normal(0, 0.1, len(models))
wordy = models.map(lambda family: 320 if family == "Ember" else 200)
care = rng.normal(0, 0.5, 30)
care = np.exp(care - care.mean())  # the sd of each person's noise, around 1


def votes_on(one: str, other: str, name: str) -> list[dict[str, object]]:
    """The votes of three people on two responses."""
    words = np.round(rng.normal([wordy[one], wordy[other]], 60)).clip(20)
    gap = skill[one] - skill[other] + 0.6 * (words[0] - words[1]) / 100 + 0.8 * rng.normal()
    rows = []
    for rater in rng.choice(len(care), 3, replace=False):
        seen = gap + care[rater] * rng.normal()
        (winner, longer), (loser, shorter) = sorted(
            [(one, words[0]), (other, words[1])], key=lambda side: (side[0] == one) != (seen > 0)
        )
        row = {
            "winner": winner,
            "loser": loser,
            "tie": abs(seen) < 0.35,
            "rater": f"person {rater + 1}",
        }
        rows.append(row | {"group": name, "words_winner": longer, "words_loser": shorter})
    return rows


old = models.index.drop("Alder 3")  # Alder 3 is released later
folder = Path(tempfile.mkdtemp())
pairs = [rng.choice(old, 2, replace=False) for _ in range(800)]
votes = pd.DataFrame(
    [row for number, pair in enumerate(pairs) for row in votes_on(*pair, f"pair {number}")]
)
votes.to_csv(folder / "votes.csv", index=False)
pairs = [("Alder 3", rng.choice(old)) for _ in range(54)]
new = pd.DataFrame(
    [row for number, pair in enumerate(pairs) for row in votes_on(*pair, f"new {number}")]
)
new.to_csv(folder / "new.csv", index=False)

# %% [markdown]
# Each row is a vote. `tie` marks the votes for neither, whose first model is named as the winner.
# `words_winner` and `words_loser` are the lengths of the two responses, and `group` says which two
# they are.

# %%
votes, new = pd.read_csv(folder / "votes.csv"), pd.read_csv(folder / "new.csv")
votes.head(4)

# %% [markdown]
# ## A first leaderboard
#
# The first fit looks at winners, losers and ties alone. Every model has a utility; the difference
# of two, seen with noise, decides the vote, and a small one is a tie.

# %%
plain = relpref.fit(answers=votes[["winner", "loser", "tie"]], progress_bar=False)
plain.ranking().round(2)[["mean", "lower", "upper", "rank_lower", "rank_upper", "tier"]]

# %% [markdown]
# `lower` and `upper` bound the utility with a probability of 90 %, `rank_lower` and `rank_upper`
# the rank. The leader opens a tier, and every model that it cannot be told apart from joins, with
# a probability of 95 % for all pairs at once; the best of the rest opens the next tier.

# %% [markdown]
# ## Votes on the same responses
#
# Three people who read the same two responses say less of the two models than three who read
# different ones: one of the responses may happen to be good. The column `group` says so. What the
# votes of a group have in common is learned (`group_sd`, in units of the noise of a vote) and
# averaged over, and intervals are as wide as they should be.

# %%
grouped = relpref.fit(answers=votes[["winner", "loser", "tie", "group"]], progress_bar=False)
boards = {"without groups": plain.ranking(), "with groups": grouped.ranking()}
print(f"group_sd: {grouped.hyperparameters['group_sd']:.2f}")
pd.Series(
    {
        name: ((each["upper"] - each["lower"]) / each["mean"].std()).mean()
        for name, each in boards.items()
    },
    name="width of intervals, in sds of the models' utilities",
).round(2).to_frame()

# %% [markdown]
# ## Style
#
# A length is a covariate of a side: each response has one. `covariates=["words"]` reads
# `words_winner` and `words_loser`, and learns what a word more is worth. `rater` gives each person
# a noise of their own: careful people count for more. There are thirty such hyperparameters, and
# many votes on each: their most probable values will do (`hyperparameters="maximize"`), which is
# faster than to average over them.

# %%
options = {"covariates": ["words"], "hyperparameters": "maximize", "progress_bar": False}
styled = relpref.fit(answers=votes, **options)
(100 * styled.effects[["mean", "lower", "upper"]]).round(2).rename(index={"words": "100 words"})

# %% [markdown]
# A hundred words more are worth about as much as the difference between the families Birch and
# Cedar. The utilities are now those of responses of equal length.

# %%
change = pd.DataFrame(
    {"as voted": grouped.ranking()["mean"], "at equal length": styled.ranking()["mean"]}
)
change = change.sort_values("at equal length")
colors = ["C1" if models[name] == "Ember" else "0.6" for name in change.index]
figure, axes = plt.subplots(figsize=(6, 4.6), layout="constrained")
for (name, row), color in zip(change.iterrows(), colors, strict=True):
    axes.plot([0, 1], row, marker="o", color=color)
    axes.text(1.04, row["at equal length"], name, va="center", fontsize=8)
axes.set_xticks([0, 1], change.columns)
axes.set(xlim=(-0.1, 1.4), ylabel="utility relative to the average", title="What length was worth")
plt.show()

# %% [markdown]
# The models of the family Ember (orange) fall: people had voted for the length of their responses.
#
# ## Families
#
# Models of one family are alike. A relation says so: a Series with the family of each model links
# those that share one. Alder 3 is new. It has six votes, on two pairs of responses.

# %%
known = pd.concat([votes, new[:6]])
related = relpref.fit(models.index.tolist(), known, {"family": models}, **options)
board = related.ranking()
board.round(2)[["mean", "lower", "upper", "rank_lower", "rank_upper", "tier"]]

# %% tags=["thumbnail"]
figure, axes = plt.subplots(figsize=(6.5, 4.6), layout="constrained")
shade = [f"C{tier - 1}" for tier in board["tier"]]
axes.hlines(board.index, board["lower"], board["upper"], color=shade, linewidth=3)
axes.plot(board["mean"], board.index, "o", color="black", markersize=4)
axes.plot((skill - skill.mean())[board.index], board.index, "|", color="black", markersize=12)
axes.invert_yaxis()
axes.set(
    xlabel="utility relative to the average, with 90 % intervals",
    title="Tiers by color; strokes are the truth",
)
plt.show()

# %% [markdown]
# Alder 3 stands near its family, with a wide interval. Without the relation, six votes place it
# nearer to the average of all models:

# %%
alone = relpref.fit(models.index.tolist(), known, **options)
pd.DataFrame(
    {
        name: posterior.ranking().loc["Alder 3", ["mean", "lower", "upper"]]
        for name, posterior in (("with its family", related), ("without", alone))
    }
).T.round(2)

# %% [markdown]
# ## How many votes does a newcomer need?
#
# Alder 3 is compared with models that are drawn at random. `update` takes the votes in as they
# come. The interval of its utility becomes narrower:

# %%
numbers = [6, 12, 24, 48, 96, 162]
widths = pd.DataFrame(index=pd.Index(numbers, name="votes"))
for name, posterior in (("with its family", related), ("without", alone)):
    later = [posterior, *(posterior.update(new[6:number]) for number in numbers[1:])]
    rows = [each.ranking().loc["Alder 3"] for each in later]
    widths[name] = [row["upper"] - row["lower"] for row in rows]
widths.round(2)

# %%
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
widths.plot(ax=axes, marker="o")
axes.set(ylim=(0, None), ylabel="width of the 90 % interval", title="Votes on a new model")
plt.show()

# %% [markdown]
# With its family, the new model's interval after six votes is as narrow as without it after about
# sixty. After 160 votes, the family adds little. `expected_gain` and `next_pairs` say whom to
# compare it with next.
#
# ## What was learned
#
# * Votes on the same responses are not independent. A column `group` keeps them from counting for
#   more than they say.
# * Tiers say what the votes settle. Ranks alone suggest more than is known.
# * A covariate of the two sides takes the style of responses out of the ranking, with its
#   uncertainty.
# * A relation between models of a family is worth votes, most of all for a model that has few.
# * Votes with equal columns may be one row with a `count`: a million votes among a hundred models
#   are fitted in seconds.
