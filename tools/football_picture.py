"""Draw the README's picture: the ranking of the demo without and with the relation.

Usage: python tools/football_picture.py [FILE]     (default docs/football.png)
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image

from relpref.cli import demo

TOP = 14
COLORS = {
    "UEFA": "#2c6fbb",
    "CONMEBOL": "#d9822b",
    "CAF": "#3a9c5f",
    "AFC": "#c0392b",
    "CONCACAF": "#7d5ba6",
}
NAMES = {
    "UEFA": "Europe",
    "CONMEBOL": "South America",
    "CAF": "Africa",
    "AFC": "Asia",
    "CONCACAF": "North and Central America",
}


def draw(outcome: demo.Outcome, file: Path) -> None:
    """Draw two rankings beside each other, best first."""
    group = outcome.season.confederation
    rankings = [outcome.earlier[name].ranking(ranks=False) for name in (demo.ALONE, demo.RELATION)]
    titles = ("From the matches alone", "With the relation: confederations")
    figure, axes = plt.subplots(1, 2, figsize=(8, 4.6), layout="constrained")
    for axis, ranking, title in zip(axes, rankings, titles, strict=True):
        top = ranking.head(TOP)
        for place, row in enumerate(top.itertuples()):
            color = COLORS[group[row.Index]]
            axis.plot(
                [row.lower, row.upper],
                [place, place],
                color=color,
                linewidth=2,
                solid_capstyle="round",
            )
            axis.plot(row.mean, place, "o", color=color, markersize=6)
        axis.set_title(title, fontsize=11)
        axis.set(xlabel="strength, with 90 % intervals", ylim=(TOP - 0.5, -0.5), xlim=(0.75, 2.85))
        axis.set_yticks(
            range(TOP), [f"{team}  {place}" for place, team in enumerate(top.index, start=1)]
        )
        axis.tick_params(axis="y", length=0)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.grid(axis="x", alpha=0.3)
        for label, team in zip(axis.get_yticklabels(), top.index, strict=True):
            label.set_color(COLORS[group[team]])
    shown = dict.fromkeys(group[team] for ranking in rankings for team in ranking.index[:TOP])
    handles = [
        plt.Line2D([], [], color=COLORS[name], marker="o", label=NAMES[name]) for name in shown
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    figure.savefig(file, dpi=150)
    Image.open(file).convert("RGB").quantize(64).save(file, optimize=True)


if __name__ == "__main__":
    target = (
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else Path(__file__).parents[1] / "docs" / "football.png"
    )
    draw(demo.fit(demo.read()), target)
    print(f"The picture is in {target}")
