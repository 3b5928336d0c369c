"""Error and AUC over the number of known pairs, as in XPGP Fig. 2 and 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.reproduce.models import MODELS
from benchmarks.reproduce.protocol import Protocol
from relpref.files import replaced

FORMATS = ("svg", "png")


def draw(lines: pd.DataFrame, protocol: Protocol, stem: Path) -> list[Path]:
    """Write the figure in every format to ``stem`` with its ending; a row of two panels for each
    setting, bars of one standard deviation.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings = list(dict.fromkeys(lines["setting"]))
    with matplotlib.rc_context({"svg.hashsalt": protocol.name, "font.size": 9}):
        size = (8, 0.8 + 2.6 * len(settings))
        figure, panels = pyplot.subplots(
            len(settings), 2, figsize=size, squeeze=False, layout="constrained"
        )
        for row, setting in zip(panels, settings, strict=True):
            for panel, quantity, label in zip(
                row, ("error", "auc"), ("error rate", "AUC"), strict=True
            ):
                _panel(panel, lines[lines["setting"] == setting], quantity)
                panel.set(xlabel="known pairs", ylabel=label, title=setting, xticks=protocol.sizes)
        figure.suptitle(protocol.title)
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        paths = [stem.with_name(f"{stem.name}.{ending}") for ending in FORMATS]
        for path in paths:
            with replaced(path) as part:
                # Without a date, so that equal rows give equal files.
                metadata = {"Date": None} if path.suffix == ".svg" else None
                figure.savefig(part, format=path.suffix[1:], dpi=150, metadata=metadata)
        pyplot.close(figure)
    return paths


def _panel(panel: Any, lines: pd.DataFrame, quantity: str) -> None:
    width = 0.06 * (lines["size"].max() - lines["size"].min() or 10)
    for at, (name, model) in enumerate(MODELS.items()):
        mine = lines[lines["model"] == name].sort_values("size")
        if len(mine):
            panel.errorbar(
                mine["size"] + (at - (len(MODELS) - 1) / 2) * width / len(MODELS),
                mine[quantity],
                yerr=mine[f"{quantity}_sd"],
                label=model.title,
                marker="os^vD"[at % 5],
                markersize=4,
                linewidth=1,
                capsize=2,
            )
