# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Rock, paper, scissors: where no global ranking exists
#
# Players who like rock beat those who like scissors, who beat those who like paper, who beat those
# who like rock. A model with one utility for each player cannot represent this. A *conditional*
# ranking can: for each player it ranks the others, from those that this player beats to those it
# loses to (Pahikkala et al. 2010). Here both models learn from the same games, and then predict
# games between players that neither has seen.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import relpref
from relpref.data_loaders import play_rock_paper_scissors
from relpref.infer import EP
from relpref.models import preference_gp
from relpref.rls import ConditionalRanker, ConditionalRankerCV

# %% [markdown]
# ## Players and games
#
# Sixty players have a taste: how often they show rock, paper and scissors. They play 1500 games; a
# coin decides draws. Sixty further players have a taste but no game yet. For them the true
# probabilities are known.

# %%
drawn = play_rock_paper_scissors(30.0, players=60, games=1500, seed=1)
drawn.players.head(3).round(2)

# %%
drawn.games.head(3)

# %% [markdown]
# ## Two models
#
# The first model has one utility for each player: a smooth function of the taste plus a part of the
# player. The player with the higher utility should win against everyone.

# %%
games = drawn.games
won = games["value"] > 0
answers = pd.DataFrame(
    {
        "winner": games["source"].where(won, games["target"]),
        "loser": games["target"].where(won, games["source"]),
    }
)
everybody = pd.concat([drawn.players, drawn.test_players])
data = relpref.PreferenceData.from_tables(items=everybody, answers=answers)
utility = EP(preference_gp).run(jax.random.key(0), data, progress_bar=False)
print(utility)

# %% [markdown]
# The second model learns a function of *pairs* of players, which changes its sign when the two are
# exchanged (`symmetry="reciprocal"`). Its regularization is chosen by predictions of games between
# held-out players.

# %%
ranker = ConditionalRankerCV(
    ConditionalRanker("linear", standardize=False, loss="regression", symmetry="reciprocal"),
    regularizations=[0.1, 1.0, 10.0, 100.0],
    cv="both",
    folds=5,
).fit(drawn.players, games)
conditional = ranker.posterior_
print(conditional, f"with the regularization {ranker.regularization_}")

# %% [markdown]
# ## New players
#
# These are the probabilities that each of the sixty new players beats each other one: the truth and
# the two models.

# %%
new = drawn.test_players
favourite = new.idxmax(axis=1)
order = new.index[
    np.lexsort([-new.max(axis=1), favourite.map({"rock": 0, "paper": 1, "scissors": 2})])
]

truth = drawn.test_relation.loc[order, order]
pairs = [(one, other) for one in order for other in order if one != other]
by_utility = (
    utility.prefer(pairs)
    .pivot(index="first", columns="second", values="probability")
    .loc[order, order]
)
# Labels are +1 for won and -1 for lost; their expectation is twice the probability less 1.
by_pair = (0.5 + 0.5 * conditional.mean(new.loc[order], new.loc[order])).clip(0, 1)

figure, grid = plt.subplots(1, 3, figsize=(10, 3.9), layout="constrained", sharex=True, sharey=True)
borders = np.cumsum(favourite.value_counts().loc[["rock", "paper", "scissors"]])
middles = borders - favourite.value_counts().loc[["rock", "paper", "scissors"]] / 2
for axes, table, title in zip(
    grid,
    (truth, by_pair, by_utility),
    ("truth", "conditional ranking", "one utility each"),
    strict=True,
):
    image = axes.imshow(table, cmap="RdBu", vmin=0, vmax=1)
    for border in borders[:-1]:
        axes.axhline(border - 0.5, color="black", linewidth=0.6)
        axes.axvline(border - 0.5, color="black", linewidth=0.6)
    axes.set_title(title)
    axes.set_xticks(middles, middles.index)
    axes.set_yticks(middles, middles.index, rotation=90, va="center")
grid[0].set_ylabel("favourite move of the player")
figure.supxlabel("favourite move of the opponent")
figure.colorbar(image, ax=grid, label="probability to win", shrink=0.8)
plt.show()

# %% [markdown]
# The truth is a cycle: rock loses to paper, paper to scissors, scissors to rock. Conditional
# ranking finds it for players that it never saw. Utilities cannot form a cycle, so they predict
# about one half almost everywhere.

# %%
off = ~np.eye(len(order), dtype=bool)
clear = off & (np.abs(truth.to_numpy() - 0.5) > 0.1)


def circles(table):
    """Share of all triples of players that beat each other in a circle."""
    beats = (table.to_numpy() > 0.5).astype(int)
    n = len(beats)
    return np.trace(beats @ beats @ beats) / 3 / (n * (n - 1) * (n - 2) / 6)


tables = {"truth": truth, "conditional ranking": by_pair, "one utility each": by_utility}
pd.DataFrame(
    {
        name: {
            "root mean squared error": np.sqrt(np.mean((table - truth).to_numpy()[off] ** 2)),
            "right favourite, clear cases": np.mean(
                ((table > 0.5) == (truth > 0.5)).to_numpy()[clear]
            ),
            "triples in a circle": circles(table),
        }
        for name, table in tables.items()
    }
).T.round(3)

# %% [markdown]
# Hardly more than a quarter of the triples of many players can be cycles, whatever the relation.
# Here nearly as many are. One utility for each player allows none.
#
# ## A ranking for each player
#
# Which opponents should the new player with the strongest taste for rock look for?

# %%
lover = new["rock"].idxmax()
opponents = new.drop(index=lover)
ranking = conditional.ranking(new.loc[[lover]], opponents)
ranking.head(3).round(2)

# %%
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
place = pd.Series(np.arange(1, len(ranking) + 1), index=ranking.index)
for move, shade in zip(("rock", "paper", "scissors"), ("C0", "C1", "C2"), strict=True):
    mine = ranking.loc[favourite.loc[ranking.index] == move]
    spread = [mine["mean"] - mine["lower"], mine["upper"] - mine["mean"]]
    axes.errorbar(
        place.loc[mine.index],
        mine["mean"],
        yerr=spread,
        fmt="o",
        markersize=4,
        color=shade,
        label=f"likes {move}",
    )
axes.axhline(0, color="grey", linewidth=1)
axes.legend(frameon=False)
axes.set(
    xlabel=f"place among the opponents of {lover}",
    ylabel="expected result, -1 to 1, with 90 % intervals",
    title="Opponents of a player of rock",
)
plt.show()

# %% [markdown]
# Scissors come first, paper last, and other players of rock in the middle. The intervals are those
# of the expected result, not of a single game. (The linear model does not know the bounds -1 and 1,
# hence the values slightly outside.)
#
# ## What was learned
#
# * One ranking cannot describe a relation with cycles.
# * A reciprocal conditional ranking learns from the same games, and predicts players without games
#   from their attributes.
# * Choose its regularization by the hold-out that matches the use: here pairs of players that are
#   both new.
