# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Travel choices: one choice among several
#
# In 1987, 210 people who traveled between Sydney, Canberra and Melbourne were asked whether they
# took the plane, the train, the bus or the car (Greene and Hensher 1997; public domain). A choice
# among four is a list of three answers: the chosen alternative was better than each other one. This
# tutorial learns utilities from such choices, joins alternatives of similar travelers by a
# relation, and checks with travelers that were held out whether the relation helps.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import relpref
from relpref.data_loaders import load_modechoice
from relpref.kernels import SquaredExponential

# %% [markdown]
# ## The data
#
# Each traveler's four alternatives are items, 840 in all. The attributes are the times and the cost
# that are typical of a mode on one of two kinds of trips. (The times that the travelers reported
# for the mode they chose would give the choice away; the loader explains this.)

# %%
choices = load_modechoice()
choices.items.head(4)

# %% [markdown]
# The answers have a row for each alternative of each choice. The chosen alternative was preferred
# to each of the others in one look, and the model takes that into account.

# %%
choices.answers.head(4)

# %% [markdown]
# The relation `mode` joins alternatives of the same mode if their travelers are alike: a similar
# income, and a party of the same size.

# %%
links = choices.relations["mode"]
print(len(links), "links")
choices.travelers.head(3)

# %% [markdown]
# ## Hold out whole travelers
#
# A quarter of the travelers is held out. Their alternatives stay in the data, because attributes
# and links are known; their choices do not.

# %%
rng = np.random.default_rng(0)
travelers = choices.travelers.index.to_numpy()
held_out = rng.choice(travelers, size=len(travelers) // 4, replace=False)
learned = choices.answers[~choices.answers["choice"].isin(held_out)]
print(f"choices of {len(travelers) - len(held_out)} travelers; {len(held_out)} held out")

# %% [markdown]
# ## Three models
#
# One has the attributes only, one has the relation, too, and one is the control: a relation with
# the same links between other items. All have one length scale, because eight points (four modes,
# two kinds of trips) cannot tell three apart. With 840 items, averaging over the hyperparameters
# takes most of a minute, so this page takes their most probable values.

# %%
labels = choices.items.index
exchanged = pd.Series(rng.permutation(labels), index=labels)
shuffled = links.apply(lambda ends: ends.map(exchanged))
relations = {
    "attributes": None,
    "attributes and relation": {"mode": links},
    "attributes and shuffled relation": {"mode": shuffled},
}
models = {
    name: relpref.fit(
        choices.items,
        learned,
        relation,
        attribute_kernel=SquaredExponential(shared_lengthscale=True),
        hyperparameters="maximize",
        progress_bar=False,
    )
    for name, relation in relations.items()
}

# %% [markdown]
# ## Does the relation help?
#
# `choose` gives the probability that each of several items is chosen. The log loss is the average
# of −log of the probability of the true choice, 1.386 for one of four at random. The standard error
# is over travelers.

# %%
modes = ["air", "train", "bus", "car"]


def loss_of(model, traveler):
    """−log of the probability of a traveler's choice."""
    chances = model.choose([f"{traveler}:{mode}" for mode in modes])["probability"]
    return -np.log(chances[f"{traveler}:{choices.travelers.loc[traveler, 'chosen']}"])


loss = pd.DataFrame(
    {name: [loss_of(model, one) for one in held_out] for name, model in models.items()}
)
gain = loss.rsub(loss["attributes"], axis=0)
table = pd.DataFrame(
    {
        "log loss": loss.mean(),
        "gain": gain.mean(),
        "standard error": gain.std() / np.sqrt(len(gain)),
        "log evidence": {name: model.log_evidence for name, model in models.items()},
    }
)
table.round(3)

# %% [markdown]
# The relation predicts the travelers that were held out better, by about three standard errors; the
# shuffled one does not. The log evidence alone would not have told the two apart: both relations
# raise it by about the same amount. A control is worth its time.

# %%
figure, axis = plt.subplots(figsize=(6, 2.4), layout="constrained")
axis.errorbar(table["gain"], table.index, xerr=2 * table["standard error"], fmt="o", capsize=3)
axis.axvline(0, color="grey", linewidth=1)
axis.set(xlabel="gain in log loss, ± two standard errors", ylim=(2.5, -0.5))
plt.show()

# %% [markdown]
# ## Which mode is preferred?
#
# A mean over items is a linear function of the utilities. `mean` and `sd` of a posterior take such
# weights, one row for each function.

# %%
posterior = models["attributes and relation"]
mode = choices.mode.loc[list(posterior.data.labels)].to_numpy()
weights = np.stack([(mode == name) / np.sum(mode == name) for name in modes]) - 1 / mode.size
by_mode = pd.DataFrame({"mean": posterior.mean(weights), "sd": posterior.sd(weights)}, index=modes)
by_mode = by_mode.sort_values("mean", ascending=False)
by_mode.round(2)

# %% tags=["thumbnail"]
figure, axis = plt.subplots(figsize=(6, 2.4), layout="constrained")
axis.errorbar(by_mode["mean"], by_mode.index, xerr=1.645 * by_mode["sd"], fmt="o", capsize=3)
axis.invert_yaxis()
axis.axvline(0, color="grey", linewidth=1)
axis.set(xlabel="mean utility, with 90 % intervals")
plt.show()

# %% [markdown]
# The sample was drawn by mode, so these are no market shares: the bus was sampled more often than
# people take it.
#
# The parts of the utilities say how much of their spread comes from the attributes, from the
# relation, and from the alternatives themselves.

# %%
posterior.shares().round(2)

# %% [markdown]
# ## What was learned
#
# * A choice among several is a list of answers, and its answers are not independent: hold out and
#   average over whole choices.
# * A relation between items can carry what is known of people: alternatives are alike where their
#   travelers are.
# * The shuffled relation is the control. Held-out choices told it from the true one; the log
#   evidence did not.
# * Averages over groups of items have means and standard deviations of their own.
