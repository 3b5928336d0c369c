# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Asking the right questions
#
# With 24 teas there are 276 pairs, too many for one taster. The model can predict some answers and
# not others. It chooses the most informative question, and says when more questions are not worth
# it.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import relpref
from relpref.explore import expected_gain, next_pairs, why
from relpref.infer import EP
from relpref.models import xpgp

# %% [markdown]
# ## Teas and a taster
#
# Each tea has two attributes. The taster likes flowery teas that are not too strong. An answer is
# that liking plus noise.


# %%
def make_teas(seed):
    """Teas with two attributes, and a hidden liking for each."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        rng.uniform(size=(24, 2)),
        columns=["strength", "flowery"],
        index=[f"tea {number:02d}" for number in range(24)],
    )
    peak, slope = rng.uniform(0.2, 0.8), rng.uniform(2, 5)
    liking = slope * table["flowery"] - 14 * (table["strength"] - peak) ** 2
    return table, liking - liking.mean()


teas, liking = make_teas(1)
teas.head(3).round(2)

# %% [markdown]
# ## The first question
#
# A fit needs no answers: each tea is then uncertain, and teas with similar attributes have similar
# utilities. `next_pairs` scores each pair. `score` is the mutual information between the answer and
# the answers to all other pairs (Krause, Singh & Guestrin 2008).

# %%
posterior = EP(xpgp).run(
    jax.random.key(0), relpref.PreferenceData.from_tables(teas), progress_bar=False
)
start = posterior
next_pairs(posterior, k=3).round(3)

# %% [markdown]
# ## Thirty questions
#
# Ask, take the answer, ask again. `update` continues from the last fit. With
# `hyperparameters="schedule"` it refits the hyperparameters when there are a quarter more answers.
# (`relpref ask` runs this loop with a person, in the terminal or in the browser.)


# %%
def ask(posterior, liking, number, score="mutual_information", seed=0):
    """Ask questions, learn from the answers, and yield each answer with the posterior after it."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        question = next_pairs(posterior, score=score, rng_key=int(rng.integers(2**31))).iloc[0]
        winner, loser = question["first"], question["second"]
        if liking[winner] - liking[loser] + rng.standard_normal() < 0:
            winner, loser = loser, winner
        posterior = posterior.update([(winner, loser)], hyperparameters="schedule")
        yield (winner, loser), posterior


def share_wrong(posterior, liking):
    """Share of the pairs of teas that the posterior means put in the wrong order."""
    means = posterior.utilities()["mean"]
    gaps, true_gaps = (
        np.subtract.outer(value, value)
        for value in (means.to_numpy(), liking[means.index].to_numpy())
    )
    return np.mean((gaps * true_gaps <= 0)[np.triu_indices(len(means), 1)])


asked, outlook = [], []
for pair, posterior in ask(start, liking, 30):
    asked.append(pair)
    expected = expected_gain(posterior).wrong_now
    outlook.append(
        {"answers": len(asked), "expected": expected, "true": share_wrong(posterior, liking)}
    )
print(why(posterior, *next_pairs(posterior)[["first", "second"]].iloc[0]))

# %%
figure, grid = plt.subplots(1, 2, figsize=(9, 3.8), sharex=True, sharey=True, layout="constrained")
for axes, one, title in zip(grid, (start, posterior), ("before", "after 30 answers"), strict=True):
    ranking = one.ranking(interval=0.9)
    true = liking[ranking.index]
    spread = [ranking["mean"] - ranking["lower"], ranking["upper"] - ranking["mean"]]
    axes.errorbar(true, ranking["mean"], yerr=spread, fmt="o", markersize=4, capsize=2)
    axes.plot([true.min(), true.max()], [true.min(), true.max()], color="grey", linewidth=1)
    axes.set(xlabel="true liking", title=title)
grid[0].set_ylabel("liking relative to the average, 90 %")
plt.show()

# %% [markdown]
# Before the first answer each tea is average, with a wide interval. After thirty answers the order
# is close to the truth, also for teas with few answers.

# %% tags=["thumbnail"]
figure, axes = plt.subplots(figsize=(6, 4.4), layout="constrained")
for number, pair in enumerate(asked):
    ends = teas.loc[list(pair)]
    axes.plot(
        ends["strength"], ends["flowery"], color=plt.cm.viridis(number / 29), linewidth=1, zorder=1
    )
dots = axes.scatter(
    teas["strength"], teas["flowery"], c=liking, cmap="coolwarm", s=50, zorder=2, edgecolor="black"
)
figure.colorbar(dots, label="true liking")
axes.set(xlabel="strength", ylabel="flowery", title="The pairs that were asked (dark lines first)")
plt.show()

# %% [markdown]
# Early questions compare distant teas, to learn the effect of the attributes. Later questions are
# finer.
#
# ## When to stop
#
# `expected_gain` estimates the share of pairs in the wrong order, now and after more answers. It
# does not need the truth. Here we can compare it with the truth.

# %%
further = expected_gain(posterior, answers=10)
print(further.sentence)

# %%
track = pd.DataFrame(outlook).set_index("answers")
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
(100 * track).plot(ax=axes)
axes.set(xlabel="answers", ylabel="pairs in the wrong order, %", ylim=(0, None))
plt.show()

# %% [markdown]
# The two lines differ for one taster and one set of answers. The expected share is an average over
# everything that is possible under the model.
#
# ## Compare with random questions
#
# One run proves little. The next loop repeats it with eight other tasters and teas: once with
# questions by mutual information and once with random questions. Other scores are compared in the
# same way, also your own.

# %%
curves = {"mutual_information": [], "random": []}
for seed in range(8):
    table, hidden = make_teas(100 + seed)
    prior = EP(xpgp, hyperparameters="maximize").run(
        0, relpref.PreferenceData.from_tables(table), progress_bar=False
    )
    for score, runs in curves.items():
        runs.append(
            [share_wrong(posterior, hidden) for _, posterior in ask(prior, hidden, 25, score, seed)]
        )

figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
for score, runs in curves.items():
    mean, error = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / np.sqrt(len(runs))
    axes.plot(range(1, 26), 100 * mean, label=score.replace("_", " "))
    axes.fill_between(range(1, 26), 100 * (mean - error), 100 * (mean + error), alpha=0.15)
axes.legend(frameon=False)
axes.set(xlabel="answers", ylabel="pairs in the wrong order, %", ylim=(0, None))
plt.show()

# %% [markdown]
# Bands are one standard error over the eight tasters. They are wide; a study needs more seeds. With
# sixty items, five simulators and fifty seeds, chosen questions save a fifth to a third of the
# answers.
#
# ## What was learned
#
# * A model with uncertainty chooses its own questions, from the first one.
# * `expected_gain` estimates the error of the ranking, and the effect of ten more answers.
# * Compare scores over many simulated truths like yours. Differences of single runs mean little.
