# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Relevance feedback on documents with links
#
# A reader looks for papers on a topic and compares a few pairs. Which of the other papers should be
# read? Words help, and so do citations: a paper that cites relevant ones is likely to be relevant.
# The mixed graph preference Gaussian process (XPGP; Kersting & Xu 2009) uses both. Here it is
# compared with the same model without citations.

# %%
import os
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics import roc_auc_score

import relpref
from relpref.data_loaders import planetoid
from relpref.explore import next_pairs
from relpref.infer import EP
from relpref.kernels import SquaredExponential
from relpref.models import preference_gp, xpgp

# %% [markdown]
# ## Papers, words, citations
#
# Cora is a network of machine learning papers in seven classes, with their words and citations.
# `relpref data get cora` fetches it. Without it, this cell simulates a network of the same form:
# papers of a class share some words, and mostly cite each other.


# %%
def make_up(size=400, classes=4, words=300):
    """A network in the loader's form."""
    rng = np.random.default_rng(0)
    of = rng.integers(classes, size=size)
    usual = rng.uniform(0.01, 0.06, size=words)
    favored = rng.random((classes, words)) < 0.08
    text = rng.random((size, words)) < np.where(favored[of], 2.5, 1.0) * usual
    source, target = np.triu_indices(size, 1)
    linked = rng.random(len(source)) < np.where(of[source] == of[target], 0.03, 0.003)
    links = pd.DataFrame({"source": source[linked], "target": target[linked]})
    return planetoid.CitationNetwork(scipy.sparse.csr_array(text.astype(float)), of, links)


here = Path(os.environ.get("RELPREF_DATA", "")) / "planetoid"
network = planetoid.load("cora", here) if here.is_dir() else make_up()

# %% [markdown]
# To keep this page fast, it uses four classes and the forty connected papers with most citations of
# each. Six topics of their words (a singular value decomposition) are the attributes.

# %%
cited = np.bincount(
    network.links[["source", "target"]].to_numpy().ravel(), minlength=len(network.classes)
)
by_citations = pd.DataFrame({"class": network.classes, "cited": cited}).sort_values(
    "cited", ascending=False
)
kept = by_citations[by_citations["class"] < 4].groupby("class").head(40).index
names = pd.Series([f"paper {paper}" for paper in kept], index=kept)
within = network.links["source"].isin(kept) & network.links["target"].isin(kept)
links = network.links[within].apply(lambda column: column.map(names))
graph = nx.from_pandas_edgelist(links)
graph = graph.subgraph(max(nx.connected_components(graph), key=len))
links = links[links["source"].isin(list(graph))]
kept = kept[names.isin(list(graph))]

topics = TruncatedSVD(6, random_state=0).fit_transform(network.words[kept.to_numpy()])
papers = pd.DataFrame(
    topics, index=names[kept].to_numpy(), columns=[f"topic {number}" for number in range(1, 7)]
)
relevant = pd.Series(network.classes[kept] == 1, index=papers.index)
print(
    f"{len(papers)} papers, {len(links)} citations, {relevant.sum()} papers of the class that the "
    "reader wants"
)

# %% [markdown]
# ## Answers of the reader
#
# For a paper of the class and one of another, the reader names the right one nine times out of ten.
# For two papers that are both right or both wrong, the answer is random.

# %%
rng = np.random.default_rng(1)


def ask(one, other):
    """The winner and the loser of a pair."""
    if relevant[one] == relevant[other]:
        better = rng.random() < 0.5
    else:
        better = relevant[one] if rng.random() < 0.9 else relevant[other]
    return (one, other) if better else (other, one)


def random_answers(number):
    """Answers to so many pairs, of a relevant and another paper each."""
    good, other = (rng.choice(papers.index[mask], number) for mask in (relevant, ~relevant))
    return pd.DataFrame(
        [ask(*pair) for pair in zip(good, other, strict=True)], columns=["winner", "loser"]
    )


answers = random_answers(25)
answers.head(3)

# %% [markdown]
# ## With and without citations

# %%
words_alike = SquaredExponential(shared_lengthscale=True)
engines = {"words": EP(preference_gp), "words and citations": EP(xpgp)}


def fit(name, answers):
    """The posterior of one of the two models."""
    data = relpref.PreferenceData.from_tables(papers, answers, {"cites": links})
    return engines[name].run(
        jax.random.key(0), data, attribute_kernel=words_alike, progress_bar=False
    )


def found(posterior, answers):
    """How well papers that were in no answer are told apart: the area under the curve, 0.5 by
    chance, 1 without a mistake.
    """
    unseen = ~papers.index.isin(answers[["winner", "loser"]].to_numpy().ravel())
    return roc_auc_score(relevant[unseen], posterior.utilities()["mean"][unseen])


posteriors = {name: fit(name, answers) for name in engines}
pd.DataFrame(
    {
        name: {"log evidence": one.log_evidence, "AUC of other papers": found(one, answers)}
        for name, one in posteriors.items()
    }
).T.round(2)

# %%
rows = []
for number in (5, 10, 20, 30):
    for _ in range(6):
        answers = random_answers(number)
        rows += [
            {"answers": number, "model": name, "AUC": found(fit(name, answers), answers)}
            for name in engines
        ]
results = pd.DataFrame(rows).groupby(["model", "answers"])["AUC"].agg(["mean", "sem"])

figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name in engines:
    one = results.loc[name]
    axes.errorbar(one.index, one["mean"], yerr=one["sem"], fmt="o-", capsize=3, label=name)
axes.legend(frameon=False)
axes.set(xlabel="answers", ylabel="AUC of papers without answers", title="Six sets of answers each")
plt.show()

# %% [markdown]
# Bars are one standard error over the sets of answers. Citations improve the predictions more than
# further answers do: from words the model learns slowly, with citations each answer informs a whole
# neighborhood.
#
# ## Explain the utilities
#
# `explain` splits the utility of a paper into the contributions of words, of citations, and of the
# paper itself. The first two are shown.

# %% tags=["thumbnail"]
posterior = posteriors["words and citations"]
parts = posterior.explain()
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for mask, shade, label in (
    (~relevant, "C7", "another class"),
    (relevant, "C3", "the wanted class"),
):
    left.scatter(parts["attributes"][mask], parts["cites"][mask], s=16, color=shade, label=label)
left.legend(frameon=False)
left.set(
    xlabel="contribution of words",
    ylabel="contribution of citations",
    title="Two parts of each utility",
)

spots = nx.spring_layout(graph, seed=3, k=0.25)
nx.draw_networkx_edges(graph, spots, ax=right, edge_color="lightgrey", width=0.8)
for mask, shape, label in ((~relevant, "o", "another class"), (relevant, "^", "the wanted class")):
    members = [paper for paper in graph if mask[paper]]
    dots = right.scatter(
        *np.array([spots[paper] for paper in members]).T,
        c=parts["mean"][members],
        cmap="coolwarm",
        vmin=-np.abs(parts["mean"]).max(),
        vmax=np.abs(parts["mean"]).max(),
        marker=shape,
        s=28,
        edgecolor="black",
        linewidth=0.4,
        label=label,
    )
right.legend(frameon=False, fontsize=8)
right.set(title="Utilities on the network")
right.axis("off")
figure.colorbar(dots, ax=right, label="utility")
plt.show()

# %% [markdown]
# On the left citations separate the two kinds of papers (vertically) much better than words
# (horizontally). On the right papers that cite each other have similar utilities, also papers
# without answers, and utilities are mostly high where they should be: at the triangles.
#
# ## Choose the pairs
#
# So far each pair had one relevant paper. A program does not know which those are. It can draw
# pairs at random, or ask the most informative question (`next_pairs`). Both begin without answers
# and with the hyperparameters found above. Quick updates take milliseconds.

# %%
engine = EP(xpgp, fixed=posterior.hyperparameters)
nothing = relpref.PreferenceData.from_tables(papers, relations={"cites": links})
start = engine.run(jax.random.key(0), nothing, attribute_kernel=words_alike, progress_bar=False)


def feedback(choose, questions=30):
    """How well all papers are told apart after each answer."""
    posterior, track = start, []
    for _ in range(questions):
        posterior = posterior.update([ask(*choose(posterior))], quick=True)
        track.append(roc_auc_score(relevant, posterior.utilities()["mean"]))
    return track


def at_random(posterior):
    """Any two papers."""
    return rng.choice(papers.index, 2, replace=False)


def by_information(posterior):
    """The most informative pair."""
    return next_pairs(posterior, rng_key=int(rng.integers(2**31)))[["first", "second"]].iloc[0]


figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for choose, label in ((at_random, "pairs at random"), (by_information, "most informative pairs")):
    tracks = np.array([feedback(choose) for _ in range(8)])
    mean, error = tracks.mean(axis=0), tracks.std(axis=0, ddof=1) / np.sqrt(len(tracks))
    axes.plot(np.arange(1, 31), mean, label=label)
    axes.fill_between(np.arange(1, 31), mean - error, mean + error, alpha=0.2)
axes.legend(frameon=False)
axes.set(
    xlabel="answers", ylabel="AUC of all papers", title="Eight runs each, with one standard error"
)
plt.show()

# %% [markdown]
# The chosen pairs lead late, if at all. Many of them are pairs of two irrelevant papers: the model
# expects information and gets a coin toss. Allow such a reader to say "neither" (a column `tie`),
# and simulate your reader before you rely on a choice of questions, as in the tutorial on asking.
#
# ## What was learned
#
# * Links are evidence: with citations the model needs far fewer answers, and finds relevant papers
#   without answers.
# * `explain` says whether words or citations brought a paper to the top.
# * Judge on papers that were in no answer.
# * The most informative question assumes that readers answer as the model does. If they toss coins,
#   random questions are hard to beat.
