# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Kernels on ballots: a classifier one can believe, and a map of the voters
#
# A town votes on how to spend its budget. Every ballot lists up to four of eight projects, best first. Which ballots come from the old
# town and which from the new estates? And how do the voters lie to each other? The way: read the file, choose a kernel on
# rankings, fit a Gaussian process classifier, check its probabilities, draw the map.
#
# A kernel says how alike two ballots are. That is all a Gaussian process needs to learn from them, even though they are neither
# numbers nor of one length. Here it is the graph cut kernel of Conserva, Deisenroth & Sesh Kumar (2022), which knows that projects
# may be alike.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.calibration import calibration_curve
from sklearn.decomposition import KernelPCA
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split

from relpref import Rankings
from relpref.classifiers import RankingGPClassifier
from relpref.kernels import cut_kernel

# %% [markdown]
# ## The file
#
# So that this page needs no data from elsewhere, the ballots are drawn here. A voter's score of a project is the project's attributes
# times what the voter's district cares for, plus Gumbel noise (so the orders follow a Plackett-Luce model); the best two, three or
# four are put on the ballot. Skip this cell if there is a file already.

# %%
projects = pd.DataFrame(
    {
        "cost": [0.3, 0.9, 0.5, 0.2, 0.7, 0.8, 0.4, 0.6],
        "green": [0.6, 0.7, 0.1, 1.0, 0.0, 0.0, 0.2, 0.1],
        "cars": [0.0, 0.1, 0.0, 0.0, 1.0, 0.9, 0.1, 0.0],
        "children": [1.0, 0.3, 0.6, 0.3, 0.0, 0.1, 0.2, 0.9],
    },
    index=pd.Index(
        ["playground", "cycle path", "library", "trees", "car park", "road repair", "benches", "sports hall"],
        name="project",
    ),
)
cares_for = pd.DataFrame(
    {"old town": [-0.5, 1.2, -0.4, 0.3], "new estates": [-0.5, 0.2, 0.9, 1.2]}, index=projects.columns
)

rng = np.random.default_rng(7)
district = rng.choice(cares_for.columns, size=600, p=[0.4, 0.6])
scores = (projects @ cares_for[district]).to_numpy().T + 0.8 * rng.gumbel(size=(600, 8))
place = np.argsort(np.argsort(-scores, axis=1), axis=1) + 1
listed = place <= rng.integers(2, 5, size=(600, 1))
ballots = pd.DataFrame(np.where(listed, place, np.nan), columns=projects.index)
ballots.insert(0, "district", district)

file = Path(tempfile.mkdtemp()) / "ballots.csv"
ballots.to_csv(file, index_label="ranker")

# %% [markdown]
# One row for each ballot, one column for each project, the place in the cell, blank where a project is not on the ballot:

# %%
table = pd.read_csv(file, index_col="ranker")
table.head(4)

# %% [markdown]
# ## Rankings
#
# What does a blank mean? Here everybody saw all eight projects, so what is not on the ballot is below what is: `completed()` says that.
# (Had each voter been shown four projects only, blanks would mean "unknown", and the next line would end after `from_table`.)

# %%
voters = (
    Rankings.from_table(table.drop(columns="district"), items=projects)
    .completed()
    .with_labels(table["district"])
)
print(voters)

# %% [markdown]
# ## A classifier
#
# The cut kernel compares ballots project by project, and knows from the projects' attributes that a voter who puts the library first
# is not far from one who puts the sports hall first. `RankingGPClassifier` is a scikit-learn estimator; rankings are split like any array.

# %%
train, test = train_test_split(voters, test_size=0.25, random_state=0, stratify=voters.label)
classifier = RankingGPClassifier("cut").fit(train, train.label)
chance = classifier.predict_proba(test)[:, 1]
print(f"AUC {roc_auc_score(test.label, chance):.3f}, log loss {log_loss(test.label, chance):.3f}")
print(
    f"without looking at the ballots: log loss {log_loss(test.label, np.full(len(test), train.label.mean())):.3f}"
)

# %% [markdown]
# ## Can the probabilities be believed?
#
# If they can, then of the ballots that are said to be from the old town with a probability of about 70 %, about 70 % are. All ballots are
# predicted once, by a classifier that has not seen them, in five folds; bars are the error that chance alone makes.

# %%
folds = StratifiedKFold(5, shuffle=True, random_state=0)
held_out = cross_val_predict(
    RankingGPClassifier("cut"), voters, voters.label, cv=folds, method="predict_proba"
)[:, 1]
happened, said = calibration_curve(voters.label, held_out, n_bins=8, strategy="quantile")
error = np.sqrt(said * (1 - said) / (len(voters) / 8))
print(f"the largest gap of the eight bins is {np.max(np.abs(happened - said) / error):.1f} standard errors")

figure, axes = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
axes.errorbar(said, happened, yerr=error, marker="o", capsize=2)
axes.set(xlabel="probability said", ylabel="share that it happened to", xlim=(0, 1), ylim=(0, 1))
axes.set_title("Reliability")
plt.show()

# %% [markdown]
# The points follow the diagonal, as far as eight groups of 75 ballots can show it.

# %% [markdown]
# ## A map of the voters
#
# The same kernel, without any labels: the two directions in which ballots differ most (kernel principal components). The color is
# what the classifier says of each voter. A name stands where a ballot with that project alone would lie.

# %%
principal = KernelPCA(n_components=2, kernel="precomputed")
spots = principal.fit_transform(cut_kernel(voters))
alone = Rankings.from_orders([[project] for project in projects.index], items=projects).completed()
names = principal.transform(cut_kernel(alone, voters))

figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
# Equal ballots lie on each other; a little jitter shows how many they are.
spots += rng.normal(scale=0.01 * np.ptp(spots), size=spots.shape)
for code, marker in enumerate("o^"):
    mine = voters.label == code
    dots = axes.scatter(
        *spots[mine].T, c=held_out[mine], cmap="coolwarm", vmin=0, vmax=1, s=14, marker=marker
    )
    axes.scatter([], [], color="grey", s=14, marker=marker, label=voters.classes[code])
height, apart = -np.inf, 0.04 * np.ptp(spots[:, 1])
for project in np.argsort(names[:, 1]):
    # From below to above, so far apart that names do not cover each other.
    height = max(names[project, 1], height + apart)
    axes.annotate(
        projects.index[project], (names[project, 0], height), ha="center", weight="bold", fontsize=8
    )
axes.set(xticks=[], yticks=[], title="A map of the voters")
axes.legend(frameon=False)
figure.colorbar(dots, ax=axes, label=f"probability that it is from the {voters.classes[1]}")
plt.show()

# %% [markdown]
# The two directions know nothing of districts, and yet voters of the old town gather below on the left and those of the new estates above
# on the right. Where they mix, the classifier says something near one half, as it should.
#
# ## What was learned
#
# * A blank in a ranking has a meaning that only you know: below all others, or unknown.
# * With a kernel, ballots of any length go into a classifier and onto a map, without turning them into numbers by hand.
# * Held-out probabilities are checked by comparing them with what happened, and here they can be taken at their word.
