# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Quickstart: from two tables to a ranking
#
# A hiking club wants to rank twelve walks. It has a table of walks with their length and climb, a
# table of answers to "which of two walks is better?", and a list of walks in the same valley. This
# tutorial computes a ranking with intervals, the probability that one walk is better than another,
# an explanation, a report and a file.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import relpref

# %% [markdown]
# ## Two tables
#
# Skip this cell if you have tables of your own. Here they are simulated. Walkers like walks of
# medium length, dislike climbs, and like the river's valley. An answer compares two such scores
# with noise.

# %%
folder = Path(tempfile.mkdtemp())

walks = pd.DataFrame(
    {
        "walk": ["Mill", "Ferry", "Gorge", "Weir", "Beech", "Charcoal", "Badger", "Chapel"]
        + ["Beacon", "Scramble", "Skyline", "Quarry"],
        "length_km": [6, 9, 14, 11, 7, 18, 12, 8, 16, 10, 13, 5],
        "climb_m": [150, 420, 800, 350, 100, 950, 600, 500, 300, 700, 200, 60],
        "valley": ["river"] * 4 + ["wood"] * 4 + ["ridge"] * 4,
    }
)
score = -(((walks["length_km"] - 11) / 4) ** 2) - walks["climb_m"] / 400
score = (score + walks["valley"].map({"river": 1.5, "wood": -0.5, "ridge": 0.0})).to_numpy()

rng = np.random.default_rng(4)
two = np.array([rng.choice(len(walks), 2, replace=False) for _ in range(60)])
first_wins = score[two[:, 0]] - score[two[:, 1]] + rng.standard_normal(60) > 0
better, worse = np.where(first_wins, two.T, two.T[::-1])
names = walks["walk"].to_numpy()

walks.to_csv(folder / "walks.csv", index=False)
pd.DataFrame({"winner": names[better], "loser": names[worse]}).to_csv(
    folder / "answers.csv", index=False
)

# %% [markdown]
# The first table has one row for each walk. Its index is the label that answers use, and its
# numbers are attributes.

# %%
walks = pd.read_csv(folder / "walks.csv", index_col="walk")
walks.head(3)

# %% [markdown]
# The second table has one row for each answer. (Optional columns: `count` repeats an answer, `tie`
# marks a tie, `rater` names the person.)

# %%
answers = pd.read_csv(folder / "answers.csv")
answers.head(3)

# %% [markdown]
# A relation is a table of links, or a networkx graph. Here it links each two walks of the same
# valley.

# %%
same_valley = walks.reset_index().merge(walks.reset_index(), on="valley", suffixes=("", "_other"))
same_valley = same_valley[same_valley["walk"] < same_valley["walk_other"]]
links = same_valley[["walk", "walk_other"]].set_axis(["source", "target"], axis=1)
links.head(3)

# %% [markdown]
# ## The fit
#
# The model is that of Kersting & Xu (2009): the utility of a walk is a smooth function of its
# attributes, plus a part that it shares with neighbors in the relation, plus a part of its own. The
# walk with the higher utility wins with a probability above one half. Expectation propagation
# computes the posterior of the utilities.

# %%
posterior = relpref.fit(
    walks[["length_km", "climb_m"]], answers, {"valley": links}, progress_bar=False
)
print(posterior)

# %% [markdown]
# ## The ranking
#
# `mean` is the utility relative to the average of all walks, in units of the noise of one answer.
# It lies between `lower` and `upper` with a probability of 90 %. `p_best` is the probability that
# no walk is better.

# %%
ranking = posterior.ranking(interval=0.9)
ranking.round(2)

# %%
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
spread = [ranking["mean"] - ranking["lower"], ranking["upper"] - ranking["mean"]]
axes.errorbar(ranking["mean"], ranking.index, xerr=spread, fmt="o", capsize=3)
axes.axvline(0, color="grey", linewidth=1)
axes.invert_yaxis()
axes.set(
    xlabel="utility relative to the average, with 90 % intervals", title="Twelve walks, best first"
)
plt.show()

# %% [markdown]
# Where long intervals overlap, the order is open. `rank_lower` and `rank_upper` bound the rank of
# each walk.

# %% [markdown]
# ## Compare two walks
#
# `p_better` is the probability that the first walk has the higher utility. `probability` is the
# probability that the next person prefers it. It is closer to one half, because people differ.

# %%
best, second, last = ranking.index[0], ranking.index[1], ranking.index[-1]
posterior.prefer([(best, second), (best, last)]).round(2)

# %%
order = list(ranking.index)
table = posterior.prefer([(one, other) for one in order for other in order if one != other])
chances = table.pivot(index="first", columns="second", values="p_better").loc[order, order]

figure, axes = plt.subplots(figsize=(6, 4.6), layout="constrained")
image = axes.imshow(chances, cmap="RdBu", vmin=0, vmax=1)
axes.set_xticks(range(len(order)), order, rotation=45, ha="right")
axes.set_yticks(range(len(order)), order)
figure.colorbar(image, label="probability that the row is better than the column")
plt.show()

# %% [markdown]
# Dark blue and dark red pairs are settled. Pale pairs are open: close in the ranking, or with few
# answers.

# %% [markdown]
# ## Explain a utility
#
# Each utility is the sum of a part from the attributes, a part from the valley, and a part of the
# walk itself (`individual`).

# %%
parts = posterior.explain().loc[order[::-1], ["attributes", "valley", "individual"]]
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
parts.plot.barh(ax=axes, width=0.75)
axes.axvline(0, color="grey", linewidth=1)
axes.set(xlabel="contribution to the utility", ylabel="", title="Parts of the utilities")
plt.show()

# %% [markdown]
# The bars of a walk add up to its utility relative to the average. Walks of the same valley have
# similar orange bars: the relation corrects what length and climb predict. These are the shares of
# the parts in the differences between walks:

# %%
posterior.shares().round(2)

# %% [markdown]
# ## More answers, a report, and a file
#
# `update` returns a new posterior with more answers. A file holds the posterior and the data. The
# report is one HTML file.

# %%
posterior = posterior.update(pd.DataFrame({"winner": [second] * 3, "loser": [best] * 3}))
print(posterior.ranking().head(3)[["mean", "lower", "upper", "p_best"]].round(2))

posterior.save(folder / "walks.nc")
again = relpref.load(folder / "walks.nc")
report = again.report(folder / "report.html", title="Twelve walks")
print(f"{report.name}: {report.stat().st_size / 1000:.0f} kB")

# %% [markdown]
# The command line does the same. Its table of items holds names and numbers only:

# %%
walks[["length_km", "climb_m"]].to_csv(folder / "attributes.csv")
links.to_csv(folder / "links.csv", index=False)

# %% [markdown]
# `relpref fit --items attributes.csv --answers answers.csv --relation valley=links.csv --out run/`,
# then `relpref rank run/`, `relpref prefer run/ Mill Ferry` and `relpref report run/`.
#
# ## What was learned
#
# * Two tables are enough; a relation adds what attributes do not know.
# * `ranking()` gives every walk an interval. Where intervals overlap widely, the order is open, and
#   `p_best` and `p_better` say how open.
# * `probability` is about the next answer, `p_better` about the truth behind the answers.
# * `explain()` says which part of a utility comes from where; `update()` takes more answers in;
#   `save`, `relpref.load` and `posterior.report` keep and send the result.
