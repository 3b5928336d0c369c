"""Matplotlib figures as inline SVG: equal bytes for equal content, in the page's own letters and colours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from typing import Any

from markupsafe import escape

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
