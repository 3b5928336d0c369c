"""Pictures of the page: one style of matplotlib, and SVG that is checked and made fit to stand beside others.

Each picture is drawn twice, for a screen as wide as a page and for one as narrow as a phone; the style sheet shows the one that fits.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from markupsafe import escape
from numpy.typing import ArrayLike, NDArray

from relpref.data.arrays import shown
from relpref.errors import DataError
from relpref.posterior.gaussian import Floats
from relpref.report.blocks import Picture, fixed, shorten, signed_percent

# Matplotlib draws with these colors; on the page each becomes a variable of the style sheet, so that a picture follows
# the reader into the dark.
INK, MUTED, FAINT, ACCENT, AGAINST = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {INK: "--ink", MUTED: "--muted", FAINT: "--line", ACCENT: "--accent", AGAINST: "--against"}
_TOKEN = re.compile(r"@@(\d+)@@")
_STYLE = {
    "svg.fonttype": "none",  # real text: searchable, readable aloud, in the reader's own font
    "svg.hashsalt": "relpref",
    **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), MUTED),
    "axes.labelpad": 8.0,
    "font.size": 12.0,
}


class Canvas:
    """A matplotlib figure of so many points, and the words on it."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        self._size = (width, height)
        self._words: list[tuple[str, str]] = []
        self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        FigureCanvasSVG(self.figure)

    def axes(self, left: float, bottom: float, across: float, up: float, *, rows: bool = True) -> Any:
        """Axes in a rectangle in points; of ``rows`` the caller writes the names himself."""
        width, height = self._size
        axes = self.figure.add_axes((left / width, bottom / height, across / width, up / height))
        axes.tick_params(length=4)
        axes.patch.set_visible(False)
        if rows:
            axes.set_yticks([])
        return axes

    def words(self, text: str, title: str | None = None) -> str:
        """A token to draw in place of ``text``, which matplotlib never sees: it would take $x$ for mathematics, and warn for missing letters.

        Give the alignment explicitly; the token is not as wide as the words.
        """
        self._words.append((text, title or text))
        return f"@@{len(self._words) - 1}@@"

    def svg(self, name: str, title: str, description: str, *, narrow: bool = False) -> str:
        """The picture; ``name`` begins its ids and is unique on the page, title and description are for those who cannot see it."""
        buffer = StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self.figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
        body = buffer.getvalue()
        body = _cleaned(body[body.index(">", body.index("<svg")) + 1 :], name)
        body = re.sub(r" ?font-family:[^;\"]*;", "", body)
        body = re.sub(r"font: (?:[^;\"']*? )?([\d.]+px) [^;\"]*", r"font-size: \1", body)
        body = re.sub(r' transform="rotate\(-?0 [^"]*"', "", body)
        for color, variable in _VARIABLES.items():
            body = body.replace(color, f"var({variable})")
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


def _cleaned(body: str, name: str) -> str:
    """SVG without comments and metadata, whose ids are unique on the page."""
    body = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'(\sid=["\']|href=["\']#|url\([\'"]?#)', rf"\g<1>{name}-", body)

    def each(attribute: re.Match[str]) -> str:
        return attribute[1] + " ".join(f"{name}-{one}" for one in attribute[2].split())

    return re.sub(r'(aria-(?:labelledby|describedby)=")([^"]*)', each, body)


_FORBIDDEN = ("script", "foreignobject", "iframe", "object", "embed", "audio", "video", "handler", "listener")
_ADDRESS = re.compile(r"url\(\s*['\"]?(?!#|data:)|@import|expression\(", re.IGNORECASE)


def foreign(figure: str, name: str, title: str) -> Picture:
    """A picture from the caller, checked; ``name`` is put before its ids, ``title`` says what it shows if it does not say so itself.

    Raises
    ------
    DataError
        If it is not one SVG picture, or it holds scripts or addresses.
    """
    start, end = figure.find("<svg"), figure.rfind("</svg>")
    if start < 0 or end < 0:
        raise DataError(
            f"figure: {shown(figure)} is not SVG; give the text of one picture, from <svg to </svg>"
        )
    body = _cleaned(figure[start : end + len("</svg>")], name)
    _check(body)
    opening, _, rest = body.partition(">")
    own = 'class="plot' not in opening
    if "role=" not in opening:
        opening += f' role="img" aria-label="{escape(title)}"'
    return Picture(f"{opening}>{rest}", own_colors=own)


def _check(body: str) -> None:
    if "xmlns:xlink" not in body:  # HTML knows it without a declaration
        body = body.replace("<svg", '<svg xmlns:xlink="http://www.w3.org/1999/xlink"', 1)
    try:
        root = ElementTree.fromstring(body)
    except ElementTree.ParseError as error:
        raise DataError(
            f"figure: the SVG is not well formed ({error}); give the text of one picture"
        ) from None
    for element in root.iter():
        tag = str(element.tag).rpartition("}")[2].lower()
        trouble = ""
        if tag in _FORBIDDEN:
            trouble = f"holds a <{tag}>; a report has no active content: remove it"
        elif tag == "style" and _ADDRESS.search(element.text or ""):
            trouble = "has a style that refers to an address; a report loads nothing: remove it"
        for attribute, value in element.attrib.items():
            key = attribute.rpartition("}")[2].lower()
            if key.startswith("on") or "javascript:" in value.lower():
                trouble = f"has the attribute {key}={shown(value)}; a report has no scripts: remove it"
            elif key in ("href", "src") and not value.startswith(("#", "data:image/")):
                trouble = (
                    f"refers to {shown(value)}; a report loads nothing: put the content into the picture"
                )
            elif _ADDRESS.search(value):
                trouble = f"refers to an address in {shown(value)}; a report loads nothing: remove it"
        if trouble:
            raise DataError(f"figure: the SVG {trouble}")


@dataclass(frozen=True)
class Shape:
    """How wide a picture is, and how long its names may be."""

    width: float
    longest_name: int
    narrow: bool


WIDE, NARROW = Shape(680.0, 30, False), Shape(360.0, 16, True)
_LETTER = 6.9  # mean width of a letter, in points, at the size of the row names
_BOTTOM = 46.0  # room for the numbers and the words under the axis
_ROW, _BAR, _DENSITY = 22.0, 30.0, 74.0  # heights
_MOST_ANSWERS = 1000  # in a picture of calibration; of more, so many evenly spread over the probabilities
_BAND_DRAWS = 400


def both(draw: Callable[..., str], name: str, *args: Any, **keywords: Any) -> Picture:
    """A picture in both shapes."""
    wide, narrow = (draw(*args, f"{name}{shape.width:.0f}", shape, **keywords) for shape in (WIDE, NARROW))
    return Picture(wide, narrow)


def _margin(names: Sequence[str]) -> float:
    """Room for names, wide letters included."""
    letters = [sum(1.75 if ord(letter) > 0x2E80 else 1.0 for letter in text) for text in names]
    return 14 + _LETTER * max(letters, default=0.0)


_AT_LEFT: dict[str, Any] = {"ha": "right", "va": "center_baseline", "fontsize": 12, "clip_on": False}


def bars(names: Sequence[str], values: ArrayLike, name: str, shape: Shape, *, description: str) -> str:
    """Shares as horizontal bars, each with its number."""
    shares: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    short = [shorten(text, shape.longest_name) for text in names]
    left, up = _margin(short) + 10, len(names) * _BAR
    across = shape.width - left - 60
    low, high = min(0.0, float(shares.min())), max(1.0, float(shares.max()))
    with canvas(shape.width, up + _BOTTOM + 6) as drawing:
        axes = drawing.axes(left, _BOTTOM, across, up)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(low, high)
        axes.locator_params(axis="x", nbins=4 if shape.narrow else 7)
        colors = [ACCENT if share >= 0 else AGAINST for share in shares]
        axes.barh(range(len(names)), shares, height=0.56, color=colors)
        axes.axvline(0, color=MUTED, linewidth=1)
        for row, (text, title, share) in enumerate(zip(short, names, shares, strict=True)):
            word = drawing.words(text, title)
            axes.text(-10 / across, row, word, transform=axes.get_yaxis_transform(), color=INK, **_AT_LEFT)
            beyond = max(float(share), 0.0) + 8 / across * (high - low)
            number = drawing.words(signed_percent(share))
            axes.text(beyond, row, number, color=INK, **_AT_LEFT | {"ha": "left"})
        ticks = [tick for tick in axes.get_xticks() if low - 1e-9 <= tick <= high + 1e-9]
        axes.set_xticks(ticks, [f"{fixed(100 * tick, 0)}%" for tick in ticks])
        axes.set_xlabel(drawing.words(f"share of the spread{'' if shape.narrow else ' between the items'}"))
        return drawing.svg(name, "What the utilities rest on", description, narrow=shape.narrow)


def forest(
    lines: pd.DataFrame, name: str, shape: Shape, *, description: str, quantity: str, measured: str
) -> str:
    """Values with intervals, best at the top, a gap in the places drawn as one; columns name, place, mean, lower and upper."""
    place, full = lines["place"].tolist(), lines["name"].tolist()
    gaps = [row for row in range(1, len(lines)) if place[row] > place[row - 1] + 1]
    heights = [float(row) + sum(row >= gap for gap in gaps) for row in range(len(lines))]
    rows = len(lines) + len(gaps)
    names = [shorten(text, shape.longest_name) for text in full]
    hidden = [f"… {place[gap] - place[gap - 1] - 1} not shown" for gap in gaps]
    places = 9 + _LETTER * max(len(str(number)) for number in place)
    left = _margin([*names, *hidden]) + places
    across, up = shape.width - left - 14, rows * _ROW
    low, high = min(0.0, lines["lower"].min()), max(0.0, lines["upper"].max())
    room = 0.03 * (high - low) or 1.0
    with canvas(shape.width, up + _BOTTOM + 6) as drawing:
        axes = drawing.axes(left, _BOTTOM, across, up)
        axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (2, 3)))
        axes.hlines(heights, lines["lower"], lines["upper"], color=ACCENT, linewidth=2.2)
        axes.plot(lines["mean"], heights, "o", color=ACCENT, markersize=7)
        axes.set_ylim(rows - 0.5, -0.5)
        axes.set_xlim(low - room, high + room)
        axes.locator_params(axis="x", nbins=5 if shape.narrow else 9)
        here = _AT_LEFT | {"transform": axes.get_yaxis_transform()}
        for number, text, y, short in zip(place, full, heights, names, strict=True):
            axes.text(-(10 + places) / across, y, drawing.words(short, text), color=INK, **here)
            axes.text(-10 / across, y, str(number), color=MUTED, **here)
        for gap, words in zip(gaps, hidden, strict=True):
            axes.axhline(heights[gap] - 1, color=FAINT, linewidth=1)
            axes.text(-(10 + places) / across, heights[gap] - 1, drawing.words(words), color=MUTED, **here)
        axes.set_xlabel(drawing.words(f"{quantity}{'' if shape.narrow else measured}, with 90% intervals"))
        title = {"utility": "Utilities", "score": "Scores"}[quantity]
        return drawing.svg(name, f"{title} with intervals", description, narrow=shape.narrow)


def calibration(predicted: Floats, observed: Floats, name: str, shape: Shape, *, seed: int) -> str:
    """How often came true what was predicted with each probability, as an isotonic regression of the outcomes.

    The line lies in the 90% band if the probabilities are right (Dimitriadis, Gneiting & Jordan 2021); ``seed`` is for the band.
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(predicted, kind="stable")
    if len(order) > _MOST_ANSWERS:
        order = order[np.linspace(0, len(order) - 1, _MOST_ANSWERS).round().astype(int)]
    right, seen = predicted[order], observed[order]
    # Outcomes as they would be if the probabilities were right; stratified, so that their mean is the probability itself.
    levels = np.tile((np.arange(_BAND_DRAWS) + 0.5) / _BAND_DRAWS, (len(order), 1))
    outcomes = (np.random.default_rng(seed).permuted(levels, axis=1).T < right).astype(float)
    # Answers that were given the same probability are one point.
    points, start, count = np.unique(right, return_index=True, return_counts=True)

    def line(values: Floats) -> Floats:
        return np.asarray(isotonic_regression(np.add.reduceat(values, start) / count, weights=count).x)

    low, high = np.quantile([line(one) for one in outcomes], [0.05, 0.95], axis=0)
    description = (
        "A line that says how often the favorite came true, by the probability that it was given; a dashed diagonal, on which the "
        "line lies if the probabilities are right; and a band around it for chance."
    )
    side = min(shape.width - 70, 330.0)
    with canvas(shape.width, side + _BOTTOM + 10) as drawing:
        axes = drawing.axes(56, _BOTTOM, side, side, rows=False)
        axes.fill_between(points, low, high, color=ACCENT, alpha=0.2, linewidth=0)
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--")
        axes.plot(points, line(seen), color=ACCENT, linewidth=2)
        axes.set_xlim(np.floor(10 * right[0]) / 10, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel(drawing.words("predicted probability"))
        axes.set_ylabel(drawing.words("share that came true"))
        return drawing.svg(name, "Calibration", description, narrow=shape.narrow)


def densities(draws: Mapping[str, Floats], name: str, shape: Shape) -> str:
    """One density under another, with a 90% interval and a dot at the mean."""
    import arviz_stats.base

    array_stats: Any = arviz_stats.base.array_stats  # type: ignore[attr-defined]
    short = [shorten(text, shape.longest_name) for text in draws]
    left = _margin(short) + 10
    across = shape.width - left - 14
    description = (
        "A density for each hyperparameter, with a dot at its mean and a line for its 90% interval; the table below holds the "
        "numbers."
    )
    with canvas(shape.width, len(short) * _DENSITY + 10) as drawing:
        for row, (shown_name, (full, values)) in enumerate(zip(short, draws.items(), strict=True)):
            bottom = (len(short) - 1 - row) * _DENSITY + 26
            axes = drawing.axes(left, bottom, across, _DENSITY - 34)
            points, density, _ = array_stats.kde(np.asarray(values, dtype=np.float64))
            axes.plot(points, density, color=ACCENT, linewidth=1.5)
            axes.plot(np.quantile(values, [0.05, 0.95]), [0, 0], color=ACCENT, linewidth=3)
            axes.plot([np.mean(values)], [0], "o", color=ACCENT, markersize=6, clip_on=False)
            axes.locator_params(axis="x", nbins=5 if shape.narrow else 8)
            word = drawing.words(shown_name, full)
            axes.text(-10 / across, 0.3, word, transform=axes.transAxes, color=INK, **_AT_LEFT)
        return drawing.svg(name, "Posterior of the hyperparameters", description, narrow=shape.narrow)
