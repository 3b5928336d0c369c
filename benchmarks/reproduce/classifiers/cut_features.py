"""Cut features of one ranking of ten sushis and of the reversed one (Conserva et al. 2022, section
3.1, Fig. 2 and 3), on the graph of the text and on that of the published code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import table
from benchmarks.reproduce.experiment import Experiment, Part
from benchmarks.reproduce.rows import Row
from relpref.data_loaders import sushi
from relpref.kernels import cut_features, item_graph

ORDER = (5, 8, 3, 4, 1, 2, 9, 10, 7, 6)
PAPER = {5: -4.22, 8: -2.36, 3: -2.36}
GRAPHS = ("text", "text, scaled attributes", "code, median of pairs", "code")


def graph(name: str) -> Any:
    """Weights between the sushis.

    The text says a squared exponential, and not how attributes are scaled. The code divides them by
    their maximum, and its weights are exponentials of the distances, whose median is over all
    entries of their matrix, with the zeros of the diagonal.
    """
    attributes = sushi.load("a").rankings.items.attributes
    scaled = attributes / attributes.max(axis=0)
    if name.startswith("text"):
        return item_graph(attributes if name == "text" else scaled)
    distances = np.linalg.norm(scaled[:, None] - scaled, axis=2)
    return np.exp(-distances / np.median(distances if name == "code" else distances[distances > 0]))


def compute(part: Part, quick: bool) -> list[Row]:
    """A row for each sushi."""
    position = np.argsort(ORDER)
    features, reverse = cut_features(np.stack([position, 9 - position]), graph(str(part[0])))
    return [
        {"item": item + 1, "feature": features[item], "reversed": reverse[item]}
        for item in range(len(ORDER))
    ]


def parts(quick: bool) -> list[Part]:
    return [(name,) for name in GRAPHS]


def markdown(rows: pd.DataFrame) -> str:
    """The features that the paper has, and whether those of the reversed ranking are opposite."""
    lines = [["paper", *map(str, PAPER.values()), "", ""]]
    for name, of in rows.groupby("graph", sort=False):
        features = of.set_index("item")["feature"]
        far = max(abs(features[item] + value) for item, value in PAPER.items())
        opposite = (of["feature"] + of["reversed"]).abs().max()
        shown = [f"{features[item]:.3f}" for item in PAPER]
        lines.append([str(name), *shown, f"{far:.3f}", f"{opposite:.1g}"])
    names = [f"φ_{item}" for item in PAPER]
    return table(["graph", *names, "−φ from the paper's", "φ + φ(reversed)"], lines)


def draw(rows: pd.DataFrame, figure: Any) -> None:
    """Features along the ranking on each graph; then by item, and products with the reversed."""
    along, by_item, products = figure.subplots(1, 3)
    for name, of in rows.groupby("graph", sort=False):
        features = of.set_index("item")["feature"]
        along.plot([*map(str, ORDER)], features[[*ORDER]], ".-", label=name)
    along.plot([*map(str, PAPER)], [-value for value in PAPER.values()], "kx", label="paper, −φ")
    along.legend(frameon=False, fontsize=7)
    of = rows[rows["graph"] == "code"]
    for column, shift, label in (("feature", -0.2, "φ"), ("reversed", 0.2, "φ(reversed)")):
        by_item.bar(of["item"] + shift, of[column], 0.4, label=label)
    by_item.legend(frameon=False, fontsize=7)
    products.bar(of["item"], of["feature"] * of["reversed"])
    titles = ("φ along the ranking", "code: φ by sushi", "code: φ · φ(reversed)")
    for panel, title in zip((along, by_item, products), titles, strict=True):
        panel.set_title(title)
        panel.set_xlabel("sushi")


EXPERIMENT = Experiment(
    name="cut-features",
    title="Cut features of one ranking",
    part=("graph",),
    key=("graph", "item"),
    parts=parts,
    compute=compute,
    markdown=markdown,
    draw=draw,
    size=(10, 3),
)
