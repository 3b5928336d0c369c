"""Ten known pairs, chosen by a score or at random (XPGP Fig. 4): ten subsets of Cora, and ten
queries of OHSUMED.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pandas as pd

from benchmarks.measure import table
from benchmarks.reproduce import ohsumed, trec
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.kernel import SquaredExponentialOfDistances
from benchmarks.reproduce.models import MODELS, Positions
from benchmarks.reproduce.problem import Problem, quality
from benchmarks.reproduce.protocol import Source
from benchmarks.reproduce.rows import Row
from benchmarks.simulation import Truth, simulate_steps
from relpref.data import PreferenceData
from relpref.explore import SCORES
from relpref.infer import EP, UtilityPosterior
from relpref.kernels import RegularizedLaplacian
from relpref.models import xpgp
from relpref.models.preference import AMPLITUDE_PRIOR

Chooser = Callable[
    [int], tuple[Positions, Positions]
]  # of a rerun: positions of known and of remaining pairs

KNOWN = 10
MODEL = "xpgp_laplacian"
BASELINE = "random"
PROTOCOLS = {one.name: one for one in (trec.PROTOCOL, ohsumed.PROTOCOL)}
RERUNS = 20  # of random questions; a score asks the same each time


def parts(quick: bool) -> list[Part]:
    """A score on a query."""
    queries = 2 if quick else 10
    scores = [BASELINE, "ratio", "variance"] if quick else list(SCORES)
    return [
        (name, query, score) for name in PROTOCOLS for query in range(queries) for score in scores
    ]


def compute(part: Part, quick: bool) -> list[Row]:
    """All reruns in all settings."""
    protocol, query, score = PROTOCOLS[str(part[0])], int(part[1]), str(part[2])
    reruns = 1 if score != BASELINE else 2 if quick else RERUNS
    rows = []
    for setting, problem in protocol.load(Source(), query).items():
        chosen = (
            _at_random(problem, protocol.seed, query) if score == BASELINE else _by(problem, score)
        )
        for rerun in range(reruns):
            known, remaining = chosen(rerun)
            fitted = MODELS[MODEL].fit(problem, known, remaining)
            judged = quality(fitted.scores)
            row = {"setting": setting, "rerun": rerun, "error": judged.error, "auc": judged.auc}
            rows.append(row | {"result": fitted.result})
    return rows


def _at_random(problem: Problem, seed: int, query: int) -> Chooser:
    """The very pairs of the experiment of Fig. 3."""
    return lambda rerun: problem.draw(KNOWN, (seed, query, KNOWN, rerun))


def _by(problem: Problem, score: str) -> Chooser:
    """Pairs that a score asks about, from those of different relevance; every answer is the right
    one.
    """
    data = problem.data
    labels = np.asarray(data.labels)
    pairs = pd.DataFrame({"winner": labels[data.winner], "loser": labels[data.loser]})
    truth = Truth(data.select_comparisons([]), recorded=pairs)
    start = _fit(problem, truth.data)
    at = {
        pair: row
        for row, pair in enumerate(zip(data.winner.tolist(), data.loser.tolist(), strict=True))
    }

    def choose(rerun: int) -> tuple[Positions, Positions]:
        chosen = np.zeros(len(pairs), dtype=bool)
        for _, step in zip(
            range(KNOWN), simulate_steps(truth, score, rerun, start=start), strict=False
        ):
            chosen[at[step.pair if step.outcome > 0 else step.pair[::-1]]] = True
        return np.flatnonzero(chosen), np.flatnonzero(~chosen)

    return choose


def _fit(problem: Problem, data: PreferenceData) -> UtilityPosterior:
    """The model that is judged, before the first answer."""
    posterior = EP(xpgp, hyperparameters="maximize", throw=False).run(
        jax.random.key(0),
        data,
        progress_bar=False,
        attribute_kernel=SquaredExponentialOfDistances(problem.distances),
        relation_kernels=dict.fromkeys(data.relations, RegularizedLaplacian()),
        individual=False,
        priors={f"{name}_amplitude": AMPLITUDE_PRIOR for name in data.relations},
    )
    assert isinstance(posterior, UtilityPosterior)
    return posterior


def settings(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Protocol and setting, the paper's first."""
    found = set(zip(rows["protocol"], rows["setting"], strict=True))
    return sorted(found, key=lambda one: (list(PROTOCOLS).index(one[0]), one[1]))


def by_query(rows: pd.DataFrame) -> pd.DataFrame:
    """Means and standard deviations over the reruns of a query."""
    groups = rows.groupby(["protocol", "setting", "query", "strategy"], sort=False)
    return groups[["error", "auc"]].agg(["mean", "std"])


def markdown(rows: pd.DataFrame) -> str:
    """In how many queries each score is better than the mean of random, and by how much."""
    lines = []
    for protocol, setting in settings(rows):
        group = rows[(rows["protocol"] == protocol) & (rows["setting"] == setting)]
        found = by_query(group).droplevel(["protocol", "setting"])
        base = found.xs(BASELINE, level="strategy")
        for score in (name for name in SCORES if name in set(group["strategy"])):
            mine = found.xs(score, level="strategy")
            shared = mine.index.intersection(base.index)
            line = [f"{_title(protocol)}, {setting}", score]
            line += [f"{mine['error', 'mean'].mean():.3f}", f"{mine['auc', 'mean'].mean():.3f}"]
            if score == BASELINE:
                lines.append([*line, "", "", ""])
                continue
            below = (
                mine.loc[shared, ("error", "mean")] < base.loc[shared, ("error", "mean")]
            ).sum()
            above = (mine.loc[shared, ("auc", "mean")] > base.loc[shared, ("auc", "mean")]).sum()
            away = (mine["error", "mean"] - base["error", "mean"]).loc[shared] / base.loc[
                shared, ("error", "std")
            ]
            lines.append(
                [
                    *line,
                    f"{below} of {len(shared)}",
                    f"{above} of {len(shared)}",
                    f"{away.mean():+.1f}",
                ]
            )
    header = [
        "queries",
        "score",
        "error",
        "AUC",
        "error below random's mean",
        "AUC above",
        "sds from random",
    ]
    return table(header, lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """As the paper's figure: mean and sd of random for each query, and what each score gets."""
    every = settings(rows)
    panels = figure.subplots(len(every), 2, sharex="row", squeeze=False)
    for row, (protocol, setting) in zip(panels, every, strict=True):
        mine = by_query(rows[(rows["protocol"] == protocol) & (rows["setting"] == setting)])
        mine = mine.droplevel(["protocol", "setting"])
        for panel, what, label in zip(row, ("error", "auc"), ("error rate", "AUC"), strict=True):
            _panel(panel, mine[what])
            panel.set(title=f"{_title(protocol)}, {setting}", ylabel=label, xlabel="query")
            panel.set_xticks(sorted(set(mine.index.get_level_values("query"))))
            panel.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)


def _title(protocol: str) -> str:
    return PROTOCOLS[protocol].title.split(" (")[0]


def _panel(panel: Any, found: pd.DataFrame) -> None:
    base = found.xs(BASELINE, level="strategy")
    panel.errorbar(
        base.index,
        base["mean"],
        yerr=base["std"],
        fmt="o",
        color="black",
        markersize=4,
        capsize=3,
        label=BASELINE,
    )
    scores = [name for name in SCORES if name in set(found.index.get_level_values("strategy"))]
    for at, name in enumerate(scores):
        if name != BASELINE:
            mine = found.xs(name, level="strategy")["mean"]
            shift = 0.5 * ((at + 0.5) / len(scores) - 0.5)
            panel.plot(
                mine.index + shift,
                mine,
                "os^vDPX*"[at % 8],
                color=f"C{at}",
                markersize=4,
                label=name,
            )


EXPERIMENT = Experiment(
    name="selection",
    title="Ten known pairs (XPGP Fig. 4)",
    part=("protocol", "query", "strategy"),
    key=("protocol", "query", "strategy", "setting", "rerun"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
    size=(10, 7.5),
)
