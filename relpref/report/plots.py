"""The shape of a picture, and shares as bars, which ArviZ does not draw.

Each picture is drawn twice, for a screen as wide as a page and for one as narrow as a phone; the style sheet shows the one that fits.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import escape
from numpy.typing import ArrayLike, NDArray

from relpref.posterior.gaussian import Floats
from relpref.report.blocks import Cell, Grid, Text, clean, fixed, shorten, signed_percent, significant

# Matplotlib draws with these colours; on the page each becomes a variable of the style sheet, so that a picture follows
# the reader into the dark.
INK, MUTED, FAINT, ACCENT, AGAINST = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {INK: "--ink", MUTED: "--muted", FAINT: "--line", ACCENT: "--accent", AGAINST: "--against"}

_TOKEN = re.compile(r"@@(\d+)@@")
_STYLE = {
    "svg.fonttype": "none",  # real text: searchable, readable aloud, in the reader's own font
    "svg.hashsalt": "relpref",
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.unicode_minus": True,
    "xtick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.color": MUTED,
    "ytick.labelcolor": MUTED,
    "font.size": 12.0,
    "axes.labelsize": 12.0,
    "xtick.labelsize": 12.0,
    "ytick.labelsize": 12.0,
}


class Canvas:
    """A matplotlib figure and the words on it.

    Attributes
    ----------
    figure : matplotlib Figure
        One unit of its size is one point; text is set in points, too.
    """

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        self._size = (width, height)
        self._words: list[tuple[str, str]] = []
        self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        FigureCanvasSVG(self.figure)

    def words(self, text: str, title: str | None = None) -> str:
        """A token to draw in place of ``text``.

        Matplotlib never sees the words of a user: it would take $x$ for mathematics, and warn for every letter that its font
        lacks. Give the alignment explicitly; the token is not as wide as the words.
        """
        self._words.append((text, title or text))
        return f"@@{len(self._words) - 1}@@"

    def svg(self, name: str, title: str, description: str, *, narrow: bool = False) -> str:
        """The picture.

        Parameters
        ----------
        name : str
            Unique on the page; it begins every id of the picture.
        title, description : str
            For those who cannot see it.
        narrow : bool
            For small screens only.
        """
        buffer = StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self.figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
        body = buffer.getvalue()
        body = body[body.index(">", body.index("<svg")) + 1 :]
        body = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
        body = prefixed(body, name)
        body = re.sub(r" ?font-family:[^;\"]*;", "", body)
        body = re.sub(r"font: (?:[^;\"']*? )?([\d.]+px) [^;\"]*", r"font-size: \1", body)
        body = re.sub(r' transform="rotate\(-?0 [^"]*"', "", body)
        for colour, variable in _VARIABLES.items():
            body = body.replace(colour, f"var({variable})")
        body = _TOKEN.sub(self._word, body)
        width, height = self._size
        return (
            f'<svg class="plot{" narrow" if narrow else ""}" preserveAspectRatio="xMinYMin" viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{name}-title {name}-text" '
            f'style="--width: {width:g}px" xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">\n'
            f' <title id="{name}-title">{escape(title)}</title>\n <desc id="{name}-text">{escape(description)}</desc>{body}'
        )

    def _word(self, token: re.Match[str]) -> str:
        text, title = self._words[int(token[1])]
        return str(escape(text)) if text == title else f"{escape(text)}<title>{escape(title)}</title>"


@contextmanager
def canvas(width: float, height: float) -> Iterator[Canvas]:
    """A canvas in the page's style, whatever the user's own style of matplotlib is."""
    import matplotlib.style

    with matplotlib.style.context(["default", _STYLE], after_reset=True):
        yield Canvas(width, height)


def prefixed(body: str, name: str) -> str:
    """Make the ids of a picture unique on the page."""
    body = re.sub(r'(\sid=["\'])', rf"\g<1>{name}-", body)
    body = re.sub(r'(href=["\']#)', rf"\g<1>{name}-", body)
    body = re.sub(r'(aria-(?:labelledby|describedby)=")([^"]*)', partial(_each_prefixed, name), body)
    return re.sub(r"(url\(['\"]?#)", rf"\g<1>{name}-", body)


def _each_prefixed(name: str, attribute: re.Match[str]) -> str:
    return attribute[1] + " ".join(f"{name}-{one}" for one in attribute[2].split())


def axes_of(figure: Any, rectangle: tuple[float, float, float, float]) -> Any:
    """Axes in a rectangle in points: left, bottom, width, height."""
    width, height = figure.get_size_inches() * 72
    left, bottom, across, up = rectangle
    axes = figure.add_axes((left / width, bottom / height, across / width, up / height))
    axes.tick_params(length=4)
    axes.patch.set_visible(False)
    return axes


def axes_without_y(figure: Any, rectangle: tuple[float, float, float, float]) -> Any:
    """The same; the caller names the rows itself."""
    axes = axes_of(figure, rectangle)
    axes.set_yticks([])
    return axes


LETTER = 6.9  # mean width of a letter, in points, at the size of the row names
BOTTOM = 46.0  # room for the numbers and the words under the axis


@dataclass(frozen=True)
class Shape:
    """How wide a picture is, and how long its names may be."""

    width: float
    longest_name: int
    narrow: bool


WIDE, NARROW = Shape(680.0, 30, False), Shape(360.0, 16, True)


def bars(names: Sequence[str], values: ArrayLike, name: str, description: str, shape: Shape = WIDE) -> str:
    """Shares as horizontal bars, each with its number."""
    shares: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    shown = [shorten(text, shape.longest_name) for text in names]
    left, up = margin(shown) + 10, len(names) * 30.0
    across = shape.width - left - 60
    low, high = min(0.0, float(shares.min())), max(1.0, float(shares.max()))
    with canvas(shape.width, up + BOTTOM + 6) as drawing:
        axes = axes_without_y(drawing.figure, (left, BOTTOM, across, up))
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(low, high)
        axes.locator_params(axis="x", nbins=4 if shape.narrow else 7)
        axes.barh(
            range(len(names)), shares, height=0.56, color=[ACCENT if s >= 0 else AGAINST for s in shares]
        )
        axes.axvline(0, color=MUTED, linewidth=1)
        here = {"va": "center_baseline", "fontsize": 12, "clip_on": False, "color": INK}
        for row, (text, title, share) in enumerate(zip(shown, names, shares, strict=True)):
            word = drawing.words(text, title)
            axes.text(-10 / across, row, word, transform=axes.get_yaxis_transform(), ha="right", **here)
            beyond = max(float(share), 0.0) + 8 / across * (high - low)
            axes.text(beyond, row, drawing.words(signed_percent(share)), ha="left", **here)
        ticks = [tick for tick in axes.get_xticks() if low - 1e-9 <= tick <= high + 1e-9]
        axes.set_xticks(ticks, [f"{fixed(100 * tick, 0)}%" for tick in ticks])
        label = "share of the spread" if shape.narrow else "share of the spread between the entities"
        axes.set_xlabel(drawing.words(label), labelpad=8)
        return drawing.svg(name, "What the utilities rest on", description, narrow=shape.narrow)


def margin(names: Sequence[str]) -> float:
    """Room for names, wide letters included."""
    letters = [sum(1.75 if ord(letter) > 0x2E80 else 1.0 for letter in text) for text in names]
    return 14 + LETTER * max(letters, default=0.0)


_MOST_ROWS = 200
_MOST_COLUMNS = 30
_LONGEST_CELL = 60


def cell(value: object, longest: int = _LONGEST_CELL) -> Cell:
    """Any value; long text is cut and kept whole in the title."""
    if isinstance(value, float | np.floating):
        return Cell(significant(float(value)))
    full = "–" if value is None or value is pd.NA or value is pd.NaT else clean(value)
    short = shorten(full, longest)
    return Cell(short, None if short == full else full)


def grid(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    numeric: Iterable[int] = (),
    heading: int = 0,
) -> Grid:
    """A table from cells and plain text."""
    filled = [[one if isinstance(one, Cell) else Cell(one) for one in row] for row in rows]
    return Grid(caption, columns, filled, heading, frozenset(numeric))


def from_frame(frame: pd.DataFrame, caption: str) -> list[Grid | Text]:
    """A user's DataFrame, and a sentence where some of it is left out."""
    head = frame.iloc[:_MOST_ROWS, :_MOST_COLUMNS]
    counted = isinstance(frame.index, pd.RangeIndex) and frame.index.name is None
    columns = [clean(name) for name in head.columns]
    values: list[list[Any]] = [head.iloc[:, position].tolist() for position in range(head.shape[1])]
    numeric = [
        position
        for position in range(head.shape[1])
        if pd.api.types.is_numeric_dtype(head.dtypes.iloc[position])
    ]
    if not counted:
        names = [name for name in frame.index.names if name is not None]
        columns = [", ".join(map(clean, names)), *columns]
        values = [head.index.tolist(), *values]
        numeric = [position + 1 for position in numeric]
    rows = [[cell(one) for one in row] for row in zip(*values, strict=True)]
    blocks: list[Grid | Text] = [grid(caption, columns, rows, numeric)]
    if head.shape != frame.shape:
        text = f"The first {head.shape[0]} of {frame.shape[0]} rows and {head.shape[1]} of {frame.shape[1]} columns are shown."
        blocks.append(Text(text, small=True))
    return blocks


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
