"""Cost against the number of items, with the exponents of a power law."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

QUANTITIES = ("seconds", "memory")
_WORDS = {"sparse": "without matrices of all", "dense": "with matrices of all"}


def lines(runs: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
    """Sizes and costs of the runs that ended, by structure and quantity; memory in GB beyond that
    of the imports.
    """
    found: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for one in runs:
        if one["stopped"]:
            continue
        first, last = one["steps"][0], one["steps"][-1]
        costs = {"seconds": last["seconds"], "memory": (last["peak"] - first["peak"]) / 1e9}
        for quantity, cost in costs.items():
            sizes, values = found.setdefault((one["size"]["structure"], quantity), ([], []))
            sizes.append(one["size"]["entities"])
            values.append(cost)
    return found


def exponents(runs: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, float]]:
    """Least squares on logarithms, over all sizes and over the largest decade of them."""
    found = {}
    for key, (sizes, costs) in lines(runs).items():
        x, y = np.log(sizes), np.log(costs)
        end = x > x.max() - np.log(10.001)
        found[key] = _slope(x, y), _slope(x[end], y[end])
    return found


def _slope(x: Any, y: Any) -> float:
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else float("nan")


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Two panels, seconds and gigabytes; equal runs give equal files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    powers = exponents(runs)
    with matplotlib.rc_context({"svg.hashsalt": "many items", "font.size": 9}):
        figure, panels = pyplot.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
        for (structure, quantity), (sizes, costs) in lines(runs).items():
            panel = panels[QUANTITIES.index(quantity)]
            whole, end = powers[structure, quantity]
            label = f"{_WORDS[structure]}: $n^{{{whole:.2f}}}$, largest decade $n^{{{end:.2f}}}$"
            panel.loglog(sizes, costs, marker="os"[structure == "dense"], markersize=4, label=label)
        for panel, label in zip(
            panels, ("seconds, fit and ranking", "peak beyond the imports, GB"), strict=True
        ):
            panel.set(xlabel="items n", ylabel=label)
            panel.grid(alpha=0.3)
            panel.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18))
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)
