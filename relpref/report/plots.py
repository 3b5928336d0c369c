"""Pictures of a page: a style of matplotlib, and SVG that is checked before it is embedded."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from markupsafe import escape
from scipy.special import betaincinv

from relpref.data.arrays import shown
from relpref.errors import DataError
from relpref.posterior.gaussian import Floats
from relpref.posterior.names import distinct, shorten
from relpref.posterior.plots import ROW, Colors, draw_curve, draw_forest
from relpref.report.blocks import Picture

# Matplotlib draws with these colors; on the page each becomes a variable of the style sheet, so
# that pictures adapt to the dark mode.
COLORS = Colors("#010101", "#020202", "#030303", "#040404")
INK, MUTED, FAINT, ACCENT = COLORS
_VARIABLES = dict(zip(COLORS, ("--ink", "--muted", "--line", "--accent"), strict=True))
_TOKEN = re.compile(r"@@(\d+)@@")
_STYLE = {
    "svg.fonttype": "none",  # searchable text in the reader's font, for screen readers, too
    "svg.hashsalt": "relpref",
    **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), MUTED),
    "axes.labelpad": 8.0,
    "font.size": 12.0,
}


class Canvas:
    """Matplotlib figure of a size in points, and the words on it."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        self._size = (width, height)
        self._words: list[tuple[str, str]] = []
        self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        FigureCanvasSVG(self.figure)

    def axes(self, left: float, bottom: float, across: float, up: float) -> Any:
        """Add axes in a rectangle, in points."""
        width, height = self._size
        axes = self.figure.add_axes((left / width, bottom / height, across / width, up / height))
        axes.tick_params(length=4)
        axes.patch.set_visible(False)
        return axes

    def words(self, text: str, title: str | None = None) -> str:
        """Return a token to draw in place of ``text``; ``title`` is the full text.

        Matplotlib does not see the text: it would take $x$ for mathematics, and warn of missing
        letters. Set the alignment explicitly, because the token is not as wide as the text.
        """
        self._words.append((text, title or text))
        return f"@@{len(self._words) - 1}@@"

    def svg(self, name: str, title: str, description: str, *, kind: str = "") -> str:
        """SVG of the figure.

        Parameters
        ----------
        name : str
            Prefix of its ids, unique on the page.
        title, description : str
            Text for readers who cannot see the picture.
        kind : str
            Further class in the style sheet.
        """
        buffer = StringIO()
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self.figure.savefig(buffer, format="svg", metadata=metadata, transparent=True)
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
            f'<svg class="plot{kind}" preserveAspectRatio="xMinYMin" viewBox="0 0 {width:g} '
            f'{height:g}" role="img" aria-labelledby="{name}-title {name}-text" '
            f'style="--width: {width:g}px" xmlns="http://www.w3.org/2000/svg" '
            'xmlns:xlink="http://www.w3.org/1999/xlink">\n'
            f' <title id="{name}-title">{escape(title)}</title>\n'
            f' <desc id="{name}-text">{escape(description)}</desc>{body}'
        )

    def _word(self, token: re.Match[str]) -> str:
        text, title = self._words[int(token[1])]
        return f"{escape(text)}<title>{escape(title)}</title>" if text != title else escape(text)


@contextmanager
def canvas(width: float, height: float) -> Iterator[Canvas]:
    """Canvas in the style of the page, independent of the user's style of matplotlib."""
    import matplotlib.style

    with matplotlib.style.context(["default", _STYLE], after_reset=True):
        yield Canvas(width, height)


def _cleaned(body: str, name: str) -> str:
    """SVG without comments and metadata, with a prefix before its ids."""
    body = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'(\sid=["\']|href=["\']#|url\([\'"]?#)', rf"\g<1>{name}-", body)

    def each(attribute: re.Match[str]) -> str:
        return attribute[1] + " ".join(f"{name}-{word}" for word in attribute[2].split())

    return re.sub(r'(aria-(?:labelledby|describedby)=")([^"]*)', each, body)


_FORBIDDEN = (
    "script",
    "foreignobject",
    "iframe",
    "object",
    "embed",
    "audio",
    "video",
    "handler",
    "listener",
)
_ADDRESS = re.compile(r"url\(\s*['\"]?(?!#|data:)|@import|expression\(", re.IGNORECASE)


def foreign(figure: str, name: str, title: str) -> Picture:
    """Check a user's picture; ``name`` is the prefix of its ids, ``title`` its default label.

    Raises
    ------
    DataError
        If it is not an SVG picture, or has scripts or addresses.
    """
    start, end = figure.find("<svg"), figure.rfind("</svg>")
    if start < 0 or end < 0:
        raise DataError(
            f"figure: {shown(figure)} is not SVG; give the text of one picture, from <svg to </svg>"
        )
    body = _cleaned(figure[start : end + len("</svg>")], name)
    _check(body)
    opening, _, rest = body.partition(">")
    own_colors = 'class="plot' not in opening
    if "role=" not in opening:
        opening += f' role="img" aria-label="{escape(title)}"'
    return Picture(f"{opening}>{rest}", own_colors=own_colors)


def _check(body: str) -> None:
    """Raise a DataError for active content and addresses in SVG."""
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
                trouble = (
                    f"has the attribute {key}={shown(value)}; a report has no scripts: remove it"
                )
            elif key in ("href", "src") and not value.startswith(("#", "data:image/")):
                trouble = (
                    f"refers to {shown(value)}; a report loads nothing: put the content into the "
                    "picture"
                )
            elif _ADDRESS.search(value):
                trouble = (
                    f"refers to an address in {shown(value)}; a report loads nothing: remove it"
                )
        if trouble:
            raise DataError(f"figure: the SVG {trouble}")


@dataclass(frozen=True)
class Shape:
    """Width of a picture and length of its names; ``kind`` is its class in the style sheet."""

    width: float
    longest_name: int
    kind: str


WIDE, NARROW = Shape(680.0, 30, " wide"), Shape(360.0, 16, " narrow")
_SINGLE = 400.0  # width of pictures that are the same on every screen
_LETTER = 6.9  # mean width of a letter, in points, at the size of the row names
_TICK = 40.0  # least width of a number under the axis
_BOTTOM = 46.0  # height of the numbers and the words under the axis


def _margin(names: Sequence[str]) -> float:
    """Width of the longest name, in points."""
    letters = [sum(1.75 if ord(letter) > 0x2E80 else 1.0 for letter in text) for text in names]
    return 14 + _LETTER * max(letters, default=0.0)


def forest(
    name: str,
    lines: pd.DataFrame,
    tiers: Sequence[int],
    *,
    title: str,
    description: str,
    label: str,
) -> Picture:
    """Picture of values with intervals, best at the top, in two widths.

    The style sheet shows the one that fits the screen. ``lines`` has the columns name, mean, lower,
    upper, and optionally note, the text at the right.
    """

    def draw(shape: Shape) -> str:
        places = [f"{place}" for place in range(1, len(lines) + 1)]
        short = distinct(lines["name"], shape.longest_name)
        margin = 10 + _LETTER * len(places[-1])
        left, right = _margin(short) + margin, 46.0 if "note" in lines else 14.0
        across, up = shape.width - left - right, len(lines) * ROW
        with canvas(shape.width, up + _BOTTOM + 6) as drawing:
            axes = drawing.axes(left, _BOTTOM, across, up)
            draw_forest(axes, lines, places, tiers, COLORS)
            axes.tick_params(axis="y", labelcolor=MUTED)
            axes.locator_params(axis="x", nbins=int(np.clip(across / _TICK, 2, 9)))
            here: dict[str, Any] = {
                "transform": axes.get_yaxis_transform(),
                "va": "center_baseline",
            }
            for row, (text, full) in enumerate(zip(short, lines["name"], strict=True)):
                axes.text(
                    -margin / across, row, drawing.words(text, full), color=INK, ha="right", **here
                )
            for row, text in enumerate(lines.get("note", ())):
                axes.text(1 + 8 / across, row, drawing.words(text), color=MUTED, **here)
            axes.set_xlabel(drawing.words(label))
            return drawing.svg(f"{name}{shape.width:.0f}", title, description, kind=shape.kind)

    return Picture(draw(WIDE), draw(NARROW))


def curves(tables: Sequence[pd.DataFrame], name: str) -> Picture:
    """Picture of partial effects, two in a row, all of one scale."""
    left, across, up, row = 40.0, 160.0, 110.0, 165.0
    low = min(table["lower"].min() for table in tables)
    high = max(table["upper"].max() for table in tables)
    rows = -(-len(tables) // 2)
    description = (
        "For each attribute a line: the utility by its value, with a band for the 90% interval."
    )
    with canvas(_SINGLE, rows * row) as drawing:
        for at, table in enumerate(tables):
            side, bottom = at % 2, (rows - 1 - at // 2) * row + _BOTTOM
            axes = drawing.axes(left + side * (across + 28), bottom, across, up)
            draw_curve(axes, table, COLORS)
            axes.set_ylim(low, high)
            axes.locator_params(nbins=4)
            if side:
                axes.set_yticklabels([])
            title = str(table.index.name)
            axes.set_xlabel(drawing.words(shorten(title, 20), title))
        return Picture(drawing.svg(name, "Partial effects", description))


_BIN, _MOST_BINS = 20, 10  # least answers of a dot, most dots


def reliability(predicted: Floats, right: Floats, name: str) -> Picture:
    """Reliability diagram: a dot with a 90% interval for each of equal groups of answers."""
    order = np.argsort(predicted, kind="stable")
    bins = np.array_split(order, int(np.clip(len(order) // _BIN, 1, _MOST_BINS)))
    total = np.array([len(rows) for rows in bins])
    hits = np.array([right[rows].sum() for rows in bins])
    across = np.array([predicted[rows].mean() for rows in bins])
    # Quantiles of the posterior of a share under Jeffreys' prior.
    low, high = (betaincinv(hits + 0.5, total - hits + 0.5, tail) for tail in (0.05, 0.95))
    start = max(0.0, np.floor(10 * min(across.min(), low.min())) / 10)
    description = (
        "A dot for every tenth of the answers: across, the probability of the favorite; up, the "
        "share that came true, with a 90% interval. On the dashed diagonal the two agree."
    )
    side = 300.0
    with canvas(_SINGLE, side + _BOTTOM + 10) as drawing:
        axes = drawing.axes(56, _BOTTOM, side, side)
        axes.plot([start, 1], [start, 1], color=MUTED, linewidth=1, linestyle="--")
        axes.vlines(across, low, high, color=ACCENT, linewidth=2.2)
        axes.plot(across, hits / total, "o", color=ACCENT, markersize=7)
        axes.set(xlim=(start, 1), ylim=(start, 1.02))
        axes.locator_params(nbins=6)
        axes.set_xlabel(drawing.words("predicted probability"))
        axes.set_ylabel(drawing.words("share that came true"))
        return Picture(drawing.svg(name, "Reliability", description))
