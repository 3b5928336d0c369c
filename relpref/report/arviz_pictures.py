"""Pictures by ArviZ: intervals in a forest, densities of draws, and calibration.

ArviZ draws the marks on axes that are given to it. The words are the page's own: ArviZ would set names of any length in columns
of equal width, read $x$ in them as mathematics, and has no mark for rows that are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relpref.infer.belief import Floats
from relpref.report.plots import BOTTOM, LETTER, WIDE, Shape, margin
from relpref.report.svg import ACCENT, FAINT, INK, MUTED, axes_of, axes_without_y, canvas
from relpref.report.text import shorten

_ROW = 22.0
_MOST_ANSWERS = 1000  # in a picture of calibration; of more, so many evenly spread over the probabilities


@dataclass(frozen=True)
class Line:
    """One row of a forest plot.

    Attributes
    ----------
    name : str
        In full; the picture shows what it has room for.
    place : int
        1 is best.
    middle, lower, upper : float
    """

    name: str
    place: int
    middle: float
    lower: float
    upper: float


def forest(
    lines: Sequence[Line],
    name: str,
    description: str,
    interval: float,
    shape: Shape = WIDE,
    *,
    quantity: str = "utility",
    measured: str = " less the average of all",
) -> str:
    """Values with intervals, best at the top (`arviz_plots.plot_forest`); a gap in the places is drawn as one."""
    gaps = [row for row in range(1, len(lines)) if lines[row].place > lines[row - 1].place + 1]
    height = [float(row) + sum(row >= gap for gap in gaps) for row in range(len(lines))]
    rows = len(lines) + len(gaps)
    names = [shorten(line.name, shape.longest_name) for line in lines]
    hidden = [f"… {lines[gap].place - lines[gap - 1].place - 1} not shown" for gap in gaps]
    places = 9 + LETTER * max(len(str(line.place)) for line in lines)
    left = margin([*names, *hidden]) + places
    across, up = shape.width - left - 14, rows * _ROW
    with canvas(shape.width, up + BOTTOM + 6) as drawing:
        axes = axes_without_y(drawing.figure, (left, BOTTOM, across, up))
        axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (2, 3)))
        _plot_forest(axes, lines, height)
        axes.set_ylim(rows - 0.5, -0.5)
        axes.set_xlim(*_limits(lines))
        axes.locator_params(axis="x", nbins=5 if shape.narrow else 9)
        here = {
            "transform": axes.get_yaxis_transform(),
            "ha": "right",
            "va": "center_baseline",
            "fontsize": 12,
            "clip_on": False,
        }
        for line, y, shown in zip(lines, height, names, strict=True):
            axes.text(-(10 + places) / across, y, drawing.words(shown, line.name), color=INK, **here)
            axes.text(-10 / across, y, str(line.place), color=MUTED, **here)
        for gap, words in zip(gaps, hidden, strict=True):
            axes.axhline(height[gap] - 1, color=FAINT, linewidth=1)
            axes.text(-(10 + places) / across, height[gap] - 1, drawing.words(words), color=MUTED, **here)
        label = quantity if shape.narrow else f"{quantity}{measured}"
        axes.set_xlabel(drawing.words(f"{label}, with {interval:.0%} intervals"), labelpad=8)
        title = {"utility": "Utilities", "score": "Scores"}[quantity]
        return drawing.svg(name, f"{title} with intervals", description, narrow=shape.narrow)


def calibration(
    predicted: Floats, observed: Floats, name: str, description: str, seed: int, shape: Shape = WIDE
) -> str:
    """How often came true what was predicted with each probability (`arviz_plots.plot_ppc_pava`).

    Parameters
    ----------
    predicted : array, shape (m,)
        Probabilities.
    observed : array of 0 and 1, shape (m,)
    name, description : str
        As for `Canvas.svg`.
    seed : int
        For the band, in which the line lies if the probabilities are right.
    shape : Shape
    """
    from xarray import DataTree

    order = np.argsort(predicted, kind="stable")
    if len(order) > _MOST_ANSWERS:
        order = order[np.linspace(0, len(order) - 1, _MOST_ANSWERS).round().astype(int)]
    right, seen = predicted[order], observed[order]
    # Outcomes as they would be if the probabilities were right; stratified, so that their mean is the probability itself.
    rng, number = np.random.default_rng(seed), 400
    levels = rng.permuted(np.tile((np.arange(number) + 0.5) / number, (len(order), 1)), axis=1).T
    outcomes = (levels < right).astype(float)
    side = min(shape.width - 70, 330.0)
    with canvas(shape.width, side + BOTTOM + 10) as drawing:
        axes = axes_of(drawing.figure, (56, BOTTOM, side, side))
        tree = DataTree.from_dict(
            {
                "/posterior_predictive": _dataset(outcomes[None], ("chain", "draw", "answer")),
                "/observed_data": _dataset(seen, ("answer",)),
            }
        )
        import arviz_plots

        arviz_plots.plot_ppc_pava(
            tree,
            ci_prob=0.9,
            plot_collection=_collection(axes, tree["posterior_predictive"].dataset, None),
            visuals={
                "lines": {"color": ACCENT, "width": 2},
                "credible_interval": {"color": ACCENT, "alpha": 0.2},
                "reference_line": {"color": MUTED, "width": 1, "linestyle": "--"},
                "xlabel": False,
                "ylabel": False,
                "title": False,
            },
        )
        axes.set_xlim(np.floor(10 * right[0]) / 10, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel(drawing.words("predicted probability"), labelpad=8)
        axes.set_ylabel(drawing.words("share that came true"), labelpad=8)
        return drawing.svg(name, "Calibration", description, narrow=shape.narrow)


def densities(draws: Mapping[str, Floats], name: str, description: str, shape: Shape = WIDE) -> str:
    """One density under another (`arviz_plots.plot_dist`), with a 90% interval and a dot at the mean.

    Parameters
    ----------
    draws : dict from name to array, shape (s,)
    name, description : str
        As for `Canvas.svg`.
    shape : Shape
    """
    import arviz_plots
    from xarray import DataTree

    names = [shorten(text, shape.longest_name) for text in draws]
    left, each = margin(names) + 10, 74.0
    across = shape.width - left - 14
    with canvas(shape.width, len(names) * each + 10) as drawing:
        for row, (shown, (full, values)) in enumerate(zip(names, draws.items(), strict=True)):
            bottom = (len(names) - 1 - row) * each + 26
            axes = axes_without_y(drawing.figure, (left, bottom, across, each - 34))
            tree = DataTree.from_dict({"/posterior": _dataset(np.asarray(values)[None], ("chain", "draw"))})
            arviz_plots.plot_dist(
                tree,
                kind="kde",
                ci_kind="eti",
                ci_prob=0.9,
                point_estimate="mean",
                plot_collection=_collection(axes, tree["posterior"].dataset, None),
                visuals={
                    "dist": {"color": ACCENT, "width": 1.5},
                    "credible_interval": {"color": ACCENT, "width": 3},
                    "point_estimate": {"color": ACCENT},
                    "point_estimate_text": False,
                    "title": False,
                    "remove_axis": False,
                },
            )
            axes.set_yticks([])
            axes.set_ylabel("")
            axes.locator_params(axis="x", nbins=5 if shape.narrow else 8)
            here = {"ha": "right", "va": "center_baseline", "fontsize": 12, "clip_on": False}
            axes.text(
                -10 / across, 0.3, drawing.words(shown, full), transform=axes.transAxes, color=INK, **here
            )
        return drawing.svg(name, "Posterior of the hyperparameters", description, narrow=shape.narrow)


def _plot_forest(axes: Any, lines: Sequence[Line], height: Sequence[float]) -> None:
    import arviz_plots
    from xarray import DataTree

    middle = np.array([line.middle for line in lines])
    ends = np.array([(line.lower, line.upper) for line in lines])
    values = _dataset(middle, ("row",))
    intervals = _dataset(ends, ("row", "ci_bound")).assign_coords(ci_bound=["lower", "upper"])
    draws = values.expand_dims(chain=1, draw=1)
    arviz_plots.plot_forest(
        DataTree.from_dict({"/posterior": draws}),
        combined=True,
        labels=[],
        ci_kind="eti",
        ci_probs=(0.5, 0.9),  # not used: the intervals are given, from the exact moments
        point_estimate="mean",
        stats={"twig": intervals, "point_estimate": values},
        plot_collection=_collection(axes, draws, height),
        visuals={
            "trunk": False,
            "ticklabels": False,
            "remove_axis": False,
            "twig": {"color": ACCENT, "width": 2.2},
            "point_estimate": {"color": ACCENT, "facecolor": ACCENT, "size": 49, "width": 0},
        },
    )


def _collection(axes: Any, data: Any, height: Sequence[float] | None) -> Any:
    """One pair of axes as what ArviZ draws on; rows at given heights."""
    import arviz_plots
    from xarray import Dataset, DataTree

    kind: Any = arviz_plots.plot_collection.PlotCollection

    one = np.empty((), dtype=object)
    one[()] = axes
    figure = np.empty((), dtype=object)
    figure[()] = axes.figure
    if height is None:
        drawn = Dataset({"figure": ((), figure), "plot": ((), one), "row_index": 0, "col_index": 0})
        return kind(data, DataTree.from_dict({"/": drawn}), backend="matplotlib")
    column = {"plot": ("column", one[None]), "row_index": ("column", [0]), "col_index": ("column", [0])}
    drawn = Dataset({"figure": ((), figure), **column}, coords={"column": ["forest"]})
    tree = DataTree.from_dict({"/": drawn})
    return kind(data, tree, aes={"y": ["row"]}, y=list(height), backend="matplotlib")


def _dataset(values: Floats, dims: Sequence[str]) -> Any:
    from xarray import Dataset

    coords = {dim: np.arange(size) for dim, size in zip(dims, values.shape, strict=True)}
    return Dataset({"value": (tuple(dims), values)}, coords=coords)


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    low, high = min(0.0, *(line.lower for line in lines)), max(0.0, *(line.upper for line in lines))
    room = 0.03 * (high - low) or 1.0
    return low - room, high + room
