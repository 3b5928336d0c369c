"""Small problems on which every program is tried: a dozen items, six nodes and four objects, thirty
people who rank five things.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

ITEMS, QUESTIONS = 12, 30
NODES, OBJECTS = 6, 4
RANKERS, RANKED, CLASSES = 30, 5, 3
PROGRAMS = (
    "xpgp",
    "preference_gp",
    "conditional_ranking",
    "ranking_classifier",
    "kronecker_classifier",
)
RANKING_LOSS = "conditional_ranking, ranking loss"  # for the exact engine alone
# The default prior lets noise be next to nothing. Where it is, EP's evidence is beyond what float64
# holds, and a sampler gets lost; the exact engine has a floor for it.
SOME_NOISE = "conditional_ranking, some noise"
LIKELIHOODS = ("logistic", "ties", "strengths and ties", "probabilities", "raters and positions")


def case(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A program, its arguments and its keywords, by the name of the program or of a likelihood of
    ``xpgp``.
    """
    import numpyro.distributions as dist

    from relpref import models

    if name in LIKELIHOODS or name == "xpgp":
        data, options = questions(name)
        return models.xpgp, (data,), options
    if name == "preference_gp":
        return models.preference_gp, (questions("xpgp")[0],), {}
    if name == "ranking_classifier":
        return models.ranking_classifier, (ballots(),), {}
    program = getattr(models, name.split(",")[0])
    data = relation("classes" if name == "kronecker_classifier" else "numbers")
    if name == "kronecker_classifier":
        return program, (data,), {"landmarks": models.edge_landmarks(data)}
    keywords: dict[str, Any] = {"loss": "ranking" if name == RANKING_LOSS else "regression"}
    if name == SOME_NOISE:
        keywords["priors"] = {"noise": dist.LogNormal(-0.7, 0.5)}
    return program, (data,), keywords


def questions(kind: str) -> tuple[Any, dict[str, Any]]:
    """Questions about a dozen items with two attributes and a chain of links, and the program's
    options.

    What was answered is not looked at; the columns say which likelihood there is.
    """
    import numpyro.distributions as dist

    import relpref
    from relpref.likelihoods import Logistic

    rng = np.random.default_rng(0)
    names = [f"e{row}" for row in range(ITEMS)]
    every = [(names[i], names[j]) for i in range(ITEMS) for j in range(i)]
    pairs = [every[row] for row in rng.choice(len(every), QUESTIONS, replace=False)]
    table = pd.DataFrame(pairs, columns=["winner", "loser"])
    cycle = np.arange(QUESTIONS)
    if kind in ("ties", "strengths and ties"):
        table["tie"] = cycle % 5 == 0
    if kind == "strengths and ties":
        table["strength"] = pd.array(cycle % 3 + 1, dtype="Int64")
        table.loc[table["tie"], "strength"] = pd.NA
    if kind == "probabilities":
        table = table.rename(columns={"winner": "first", "loser": "second"}).assign(probability=0.6)
    if kind == "raters and positions":
        table["rater"] = [f"rater {row}" for row in cycle % 3]
        table["shown_first"] = np.where(cycle % 2 == 0, table["winner"], table["loser"])
    data = relpref.PreferenceData.from_tables(
        pd.DataFrame(rng.standard_normal((ITEMS, 2)), columns=["x", "y"], index=names),
        table,
        {"next": pd.DataFrame({"source": names[:-1], "target": names[1:]})},
    )
    options: dict[str, Any] = {"likelihood": Logistic()} if kind == "logistic" else {}
    if kind == "probabilities":
        # Gaps beyond 8 noise sds would be reported as a probability that float64 rounds to 1.
        small = {site: dist.HalfNormal(0.7) for site in ("attributes_amplitude", "next_amplitude")}
        options["priors"] = small
    return data, options


def relation(labels: str) -> Any:
    """Every pair of a node and an object, with one attribute each; the labels are not looked at."""
    import relpref

    rng = np.random.default_rng(1)
    nodes = pd.DataFrame(
        {"x": rng.standard_normal(NODES)}, index=[f"n{row}" for row in range(NODES)]
    )
    objects = pd.DataFrame(
        {"x": rng.standard_normal(OBJECTS)}, index=[f"o{row}" for row in range(OBJECTS)]
    )
    values = np.arange(NODES * OBJECTS, dtype=float).reshape(NODES, OBJECTS)
    if labels == "classes":
        values = values % 2
    return relpref.RelationData.from_tables(nodes, values, objects)


def ballots() -> Any:
    """Full rankings by people of three classes; who is of which class is not looked at."""
    import relpref

    rng = np.random.default_rng(2)
    items = np.array(list("abcde"))[:RANKED]
    orders = [list(rng.permutation(items)) for _ in range(RANKERS)]
    return relpref.Rankings.from_orders(orders).with_labels(
        [row % CLASSES for row in range(RANKERS)]
    )
