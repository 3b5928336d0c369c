# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Kernels on ballots: a classifier and a map
#
# A town votes on its budget. Each ballot lists up to four of eight projects, best first. Which
# ballots come from the old town and which from the new estates? This tutorial reads the file,
# chooses a kernel on rankings, fits a Gaussian process classifier, checks its probabilities, and
# draws a map of the voters.
#
# A kernel measures the similarity of two ballots of any length. Here it is the graph cut kernel of
# Conserva, Deisenroth & Sesh Kumar (2022), which uses the similarity of projects.

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
# Skip this cell if you have a file. Here the ballots are simulated. The score of a project is the
# product of its attributes and the weights of the voter's district, plus Gumbel noise (a
# Plackett-Luce model). The best two, three or four projects are on the ballot.

# %%
projects = pd.DataFrame(
    {
        "cost": [0.3, 0.9, 0.5, 0.2, 0.7, 0.8, 0.4, 0.6],
        "green": [0.6, 0.7, 0.1, 1.0, 0.0, 0.0, 0.2, 0.1],
        "cars": [0.0, 0.1, 0.0, 0.0, 1.0, 0.9, 0.1, 0.0],
        "children": [1.0, 0.3, 0.6, 0.3, 0.0, 0.1, 0.2, 0.9],
    },
    index=pd.Index(
        [
            "playground",
            "cycle path",
            "library",
            "trees",
            "car park",
            "road repair",
            "benches",
            "sports hall",
        ],
        name="project",
    ),
)
cares_for = pd.DataFrame(
    {"old town": [-0.5, 1.2, -0.4, 0.3], "new estates": [-0.5, 0.2, 0.9, 1.2]},
    index=projects.columns,
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
# Each ballot is a row and each project a column. A cell holds the position, or is blank if the
# project is not on the ballot:

# %%
table = pd.read_csv(file, index_col="ranker")
table.head(4)

# %% [markdown]
# ## Rankings
#
# Here each voter saw all eight projects, so a blank is below all listed projects: `completed()`
# states that. If voters had been shown four projects only, blanks would be unknown, and
# `completed()` would be wrong.

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
# The cut kernel compares ballots project by project. The attributes tell it that a ballot with the
# library first is similar to one with the sports hall first. `RankingGPClassifier` is a
# scikit-learn estimator, and rankings are split like arrays.

# %%
train, test = train_test_split(voters, test_size=0.25, random_state=0, stratify=voters.label)
classifier = RankingGPClassifier("cut").fit(train, train.label)
chance = classifier.predict_proba(test)[:, 1]
print(f"AUC {roc_auc_score(test.label, chance):.3f}, log loss {log_loss(test.label, chance):.3f}")
print(
    "without looking at the ballots: log loss "
    f"{log_loss(test.label, np.full(len(test), train.label.mean())):.3f}"
)

# %% [markdown]
# ## Calibration
#
# Of the ballots with a probability of about 70 % for the old town, about 70 % should be from the
# old town. Five folds predict each ballot once, by a classifier that has not seen it. Bars are the
# standard error of a calibrated forecast.

# %%
folds = StratifiedKFold(5, shuffle=True, random_state=0)
held_out = cross_val_predict(
    RankingGPClassifier("cut"), voters, voters.label, cv=folds, method="predict_proba"
)[:, 1]
happened, said = calibration_curve(voters.label, held_out, n_bins=8, strategy="quantile")
error = np.sqrt(said * (1 - said) / (len(voters) / 8))
print(
    f"the largest gap of the eight bins is {np.max(np.abs(happened - said) / error):.1f} standard "
    "errors"
)

figure, axes = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
axes.errorbar(said, happened, yerr=error, marker="o", capsize=2)
axes.set(xlabel="predicted probability", ylabel="observed frequency", xlim=(0, 1), ylim=(0, 1))
axes.set_title("Reliability")
plt.show()

# %% [markdown]
# The points follow the diagonal within the error of eight groups of 75 ballots.

# %% [markdown]
# ## A map of the voters
#
# The map uses the same kernel without labels: the two directions in which ballots differ most
# (kernel principal components). The color is the held-out probability. Each name marks the position
# of a ballot with that project alone.

# %% tags=["thumbnail"]
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
figure.colorbar(dots, ax=axes, label=f"probability of the {voters.classes[1]}")
plt.show()

# %% [markdown]
# The two directions do not use the districts. Voters of the old town are below on the left and
# those of the new estates above on the right. Where they mix, the probability is close to one half.
#
# ## What was learned
#
# * A blank in a ranking means below all others, or unknown. Only you know which.
# * With a kernel, ballots of any length go into a classifier and onto a map.
# * Compare held-out probabilities with the outcomes. Here they are calibrated.
