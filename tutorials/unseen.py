# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # New fields, new varieties: ranking for new nodes
#
# A seed company has planted varieties of wheat in fields and measured the yields. Which variety is
# best for a *new* field? Where would a *new* variety do well? Both are conditional ranking: rank
# objects (varieties) for a given node (a field), also for nodes and objects without labels
# (Pahikkala et al. 2010, 2013). The intervals are wider for them.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import relpref
from relpref.infer import Exact
from relpref.models import conditional_ranking

# %% [markdown]
# ## Fields, varieties, yields
#
# Fields differ in rain and soil, varieties in thirst and roots. The yield is a smooth random
# function of the four, plus noise of 0.3. There are forty fields and thirty varieties. Half of both
# are kept as "new". Of the rest half has been planted.

# %%
rng = np.random.default_rng(8)
fields = pd.DataFrame(
    rng.uniform(size=(40, 2)),
    columns=["rain", "soil"],
    index=[f"field {number:02d}" for number in range(40)],
)
varieties = pd.DataFrame(
    rng.uniform(size=(30, 2)),
    columns=["thirst", "roots"],
    index=[f"variety {number:02d}" for number in range(30)],
)
# Further fields, with more and more rain, for the last picture.
wetter = pd.DataFrame({"rain": np.linspace(0, 3, 61), "soil": 0.5}, index=np.arange(61))


def root(table):
    """A root of the covariance of a smooth random function of the attributes."""
    apart = table.to_numpy()[:, None] - table.to_numpy()
    covariance = np.exp(-2 * (apart**2).sum(axis=-1))
    return np.linalg.cholesky(covariance + 1e-6 * np.eye(len(table)))


everywhere = pd.concat([fields, wetter])
truth = pd.DataFrame(
    root(everywhere) @ rng.standard_normal((len(everywhere), 30)) @ root(varieties).T,
    index=everywhere.index,
    columns=varieties.index,
)
known_fields, new_fields = fields.iloc[:20], fields.iloc[20:]
known_varieties, new_varieties = varieties.iloc[:15], varieties.iloc[15:]

noisy = truth + 0.3 * rng.standard_normal(truth.shape)
planted = noisy.iloc[:20, :15].where(rng.random((20, 15)) < 0.5)
planted.iloc[:3, :6].round(2)

# %% [markdown]
# Blanks are unknown. The model takes the table as it is.
#
# ## The fit
#
# The yield of a field and a variety is a Gaussian process with a product covariance: similar fields
# with similar varieties have similar yields. The posterior is exact, and the hyperparameters
# (lengthscales, amplitude, noise) maximize the evidence.

# %%
data = relpref.RelationData.from_tables(known_fields, planted, known_varieties)
posterior = Exact(conditional_ranking).run(0, data, loss="regression")
print(posterior)
print(f"noise {posterior.hyperparameters['noise']:.2f}, truth: 0.30")

# %% [markdown]
# ## Four settings
#
# A question is about a known field and a known variety whose yield is missing (setting 1), a new
# field (2), a new variety (3), or both (4). New ones are given by their attributes.

# %%
settings = {
    "1: both known": (known_fields, known_varieties, planted.isna()),
    "2: new field": (new_fields, known_varieties, None),
    "3: new variety": (known_fields, new_varieties, None),
    "4: both new": (new_fields, new_varieties, None),
}
rows, cells = {}, {}
for name, (some_fields, some_varieties, unknown) in settings.items():
    # Known ones are asked for by their labels, new ones by their attributes.
    asked = [
        list(table.index) if table is old else table
        for table, old in ((some_fields, known_fields), (some_varieties, known_varieties))
    ]
    mean, sd = posterior.mean(*asked), posterior.sd(*asked)
    true = truth.loc[some_fields.index, some_varieties.index]
    kept = np.ones(true.shape, bool) if unknown is None else unknown.to_numpy()
    cells[name] = pd.DataFrame(
        {"truth": true.to_numpy()[kept], "mean": mean.to_numpy()[kept], "sd": sd.to_numpy()[kept]}
    )
    error = (cells[name]["truth"] - cells[name]["mean"]).abs()
    correlations = [true.loc[one].corr(mean.loc[one], method="kendall") for one in true.index]
    rows[name] = {
        "error": np.sqrt((error**2).mean()),
        "stated sd": cells[name]["sd"].mean(),
        "in 90 % interval": (error < 1.645 * cells[name]["sd"]).mean(),
        "Kendall's tau": np.mean(correlations),
    }
pd.DataFrame(rows).T.round(2)

# %% [markdown]
# Errors grow from setting 1 to setting 4, and so do the standard deviations: in all four nearly
# nine in ten of the true yields lie within their intervals. (Slightly fewer, because the
# hyperparameters are taken as known.) Kendall's τ compares, for each field, the order of the
# varieties with the true one.

# %%
figure, grid = plt.subplots(1, 4, figsize=(11, 3.2), sharex=True, sharey=True, layout="constrained")
for axes, (name, table) in zip(grid, cells.items(), strict=True):
    some = table.iloc[:: max(len(table) // 100, 1)]
    axes.errorbar(
        some["mean"],
        some["truth"],
        xerr=1.645 * some["sd"],
        fmt="o",
        markersize=2.5,
        linewidth=0.6,
        alpha=0.7,
    )
    axes.plot([-2, 2], [-2, 2], color="grey", linewidth=1)
    axes.set_title(name)
grid[0].set_ylabel("true yield")
figure.supxlabel("predicted yield, with 90 % intervals")
plt.show()

# %% [markdown]
# Each point is a field and a variety (about a hundred in each picture). The intervals are widest on
# the right.
#
# ## Varieties for a new field
#
# This ranking of all thirty varieties is for a field without history. Half of the varieties were
# never planted.

# %%
field = new_fields.iloc[[0]]
ranking = posterior.ranking(field, varieties)
ranking.head(5)[["mean", "lower", "upper", "rank_lower", "rank_upper", "p_best"]].round(2)

# %% tags=["thumbnail"]
figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
place = pd.Series(np.arange(1, 31), index=ranking.index)
for name, shade, members in (("known", "C0", known_varieties), ("new", "C1", new_varieties)):
    mine = ranking.loc[ranking.index.isin(members.index)]
    spread = [mine["mean"] - mine["lower"], mine["upper"] - mine["mean"]]
    axes.errorbar(
        place.loc[mine.index],
        mine["mean"],
        yerr=spread,
        fmt="o",
        capsize=2,
        color=shade,
        label=f"{name} variety",
    )
axes.plot(place, truth.loc[field.index[0], ranking.index], "k_", markersize=9, label="truth")
axes.legend(frameon=False)
axes.set(
    xlabel="predicted place",
    ylabel="yield, with 90 % intervals",
    title=f"Thirty varieties for {field.index[0]}",
)
plt.show()

# %% [markdown]
# ## Far from the data
#
# The planted fields have a rain between 0 and 1. These predictions are for wetter fields.

# %%
best = ranking.index[ranking.index.isin(known_varieties.index)][0]
mean, sd = posterior.mean(wetter, [best])[best], posterior.sd(wetter, [best])[best]
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.fill_between(
    wetter["rain"], mean - 1.645 * sd, mean + 1.645 * sd, alpha=0.25, label="90 % interval"
)
axes.plot(wetter["rain"], mean)
axes.plot(wetter["rain"], truth.loc[wetter.index, best], "k--", linewidth=1, label="truth")
axes.axvspan(0, 1, color="grey", alpha=0.12, label="rain of planted fields")
axes.legend(frameon=False)
axes.set(xlabel="rain", ylabel=f"yield of {best}")
plt.show()

# %% [markdown]
# Within the gray range the band is narrow. Beyond it the band widens to that of the prior.
#
# ## What was learned
#
# * Give the attributes of new nodes and objects in place of labels.
# * New fields, new varieties and both are different questions. Hold out what will be new when you
#   judge a model.
# * The intervals widen for new nodes and objects, and contained the truth about as often as stated.
# * The intervals also widen with the distance from the data.
