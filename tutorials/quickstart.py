# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Quickstart: from two tables to a ranking one can send
#
# A hiking club wants to rank twelve walks. It has a table of walks, with their length and climb, and a table of answers: somebody who
# had done two of the walks said which one was better. It also knows which walks lie in the same valley. Out of these tables come a
# ranking with intervals, an answer to "is this one really better?", an explanation, a report, and a file to go on with.

# %%
import tempfile
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import relpref
from relpref.infer import EP
from relpref.models import xpgp

# %% [markdown]
# ## Two tables
#
# If you have tables of your own, skip this cell. Here they are made up. Walkers like walks of middling length, dislike climbs, and the
# river's valley is lovelier than its numbers say; an answer compares two such scores, with some noise, because tastes differ.

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
pd.DataFrame({"winner": names[better], "loser": names[worse]}).to_csv(folder / "answers.csv", index=False)

# %% [markdown]
# The first table has one row for each walk. Its index is the name by which answers call it; its numbers are attributes.

# %%
walks = pd.read_csv(folder / "walks.csv", index_col="walk")
walks.head(3)

# %% [markdown]
# The second has one row for each answer. (A column `count` would say how often it was given, `tie` that neither was better, `rater` who
# gave it.)

# %%
answers = pd.read_csv(folder / "answers.csv")
answers.head(3)

# %% [markdown]
# Which walks are alike in ways that no number says? Those of one valley, perhaps. A relation is a table of links, or a networkx graph:
# here each two walks of the same valley.

# %%
same_valley = walks.reset_index().merge(walks.reset_index(), on="valley", suffixes=("", "_other"))
same_valley = same_valley[same_valley["walk"] < same_valley["walk_other"]]
links = same_valley[["walk", "walk_other"]].set_axis(["source", "target"], axis=1)

data = relpref.PreferenceData.from_tables(
    items=walks[["length_km", "climb_m"]], answers=answers, relations={"valley": links}
)
print(data)

# %% [markdown]
# ## The fit
#
# `xpgp` is the model of Kersting & Xu (2009): every walk has a utility, which is a smooth function of its attributes plus a part that
# neighbors in the relation share, plus a part of its own. An answer favors the walk of higher utility, but not always. `EP` (expectation propagation) finds the
# utilities that go with the answers, and how sure one can be of them.

# %%
posterior = EP(xpgp).run(jax.random.key(0), data, progress_bar=False)
print(posterior)

# %% [markdown]
# ## The ranking
#
# `mean` is a walk's utility against the average of all walks, in units of the noise of one answer. With a probability of 90 % it lies between
# `lower` and `upper`. `p_best` is the probability that no walk is better.

# %%
ranking = posterior.ranking(interval=0.9)
ranking.round(2)

# %%
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
spread = [ranking["mean"] - ranking["lower"], ranking["upper"] - ranking["mean"]]
axes.errorbar(ranking["mean"], ranking.index, xerr=spread, fmt="o", capsize=3)
axes.axvline(0, color="grey", linewidth=1)
axes.invert_yaxis()
axes.set(xlabel="utility against the average walk, with 90 % intervals", title="Twelve walks, best first")
plt.show()

# %% [markdown]
# Long intervals that overlap say that the order of these walks is not settled by the answers. The places of single walks are in the columns
# `rank_lower` and `rank_upper`.

# %% [markdown]
# ## Is this one really better?
#
# Two probabilities are worth telling apart. `p_better`: the first walk's utility is the higher one. `probability`: the next person asked says
# so. The second is nearer to one half, since people differ.

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
# Dark blue and dark red are settled. Pale fields are open: pairs of walks that are near each other in the ranking, or about which little was said.

# %% [markdown]
# ## Why is it up there?
#
# Each utility is the sum of a part that the attributes explain, one that comes from the valley, and one that is the walk's own (`individual`).

# %%
parts = posterior.explain().loc[order[::-1], ["attributes", "valley", "individual"]]
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
parts.plot.barh(ax=axes, width=0.75)
axes.axvline(0, color="grey", linewidth=1)
axes.set(xlabel="contribution to the utility", ylabel="", title="Where utilities come from")
plt.show()

# %% [markdown]
# The bars of one walk add up to its utility, which is relative to the average of all walks as in the ranking. Walks of the same valley have similar orange bars:
# the relation corrects what length and climb alone would have said. Over all walks, the parts account for these shares of the differences:

# %%
posterior.shares().round(2)

# %% [markdown]
# ## More answers, a report, and a file
#
# A posterior is updated with further answers; the old one stays as it was. It is saved to one file, which holds the data as well, and a
# report is one HTML file that needs nothing else.

# %%
posterior = posterior.update(pd.DataFrame({"winner": [second] * 3, "loser": [best] * 3}))
print(posterior.ranking().head(3)[["mean", "lower", "upper", "p_best"]].round(2))

posterior.save(folder / "walks.nc")
again = relpref.load(folder / "walks.nc")
report = again.report(folder / "report.html", title="Twelve walks")
print(f"{report.name}: {report.stat().st_size / 1000:.0f} kB")

# %% [markdown]
# The same on the command line, for which a table of items holds names and numbers only:

# %%
walks[["length_km", "climb_m"]].to_csv(folder / "attributes.csv")
links.to_csv(folder / "links.csv", index=False)

# %% [markdown]
# `relpref fit --items attributes.csv --answers answers.csv --relation valley=links.csv --out run/`, then
# `relpref rank run/`, `relpref prefer run/ Mill Ferry` and `relpref report run/`.
#
# ## What was learned
#
# * Two tables are enough; a relation adds what attributes do not know.
# * `ranking()` gives every walk an interval. Where intervals overlap widely, the order is open, and `p_best` and `p_better` say how open.
# * `probability` is about the next answer, `p_better` about the truth behind the answers.
# * `explain()` says which part of a utility comes from where; `update()` takes more answers in; `save`, `relpref.load` and
#   `posterior.report` keep and send the result.
