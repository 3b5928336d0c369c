"""SVG pictures that come from the caller: checked, and made fit to stand beside others."""

import re
from xml.etree import ElementTree

from markupsafe import escape

from relpref.data.messages import shown
from relpref.errors import DataError
from relpref.report.svg import prefixed

_FORBIDDEN = ("script", "foreignobject", "iframe", "object", "embed", "audio", "video", "handler", "listener")
_ADDRESS = re.compile(r"url\(\s*['\"]?(?!#|data:)|@import|expression\(", re.IGNORECASE)


def foreign(figure: str, name: str, title: str) -> tuple[str, bool]:
    """Check a picture.

    Parameters
    ----------
    figure : str
        SVG, with or without an XML header.
    name : str
        Put before its ids, which must be unique on the page.
    title : str
        What it shows, if it does not say so itself.

    Returns
    -------
    svg : str
        The picture, without header and metadata.
    own_colours : bool
        Whether it has colours of its own, as against those of the page.

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
    body = figure[start : end + len("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    _check(body)
    own = 'class="plot' not in body[: body.index(">")]
    opening, _, rest = prefixed(body, name).partition(">")
    if "role=" not in opening:
        opening += f' role="img" aria-label="{escape(title)}"'
    return f"{opening}>{rest}", own


def _check(body: str) -> None:
    declared = body
    for prefix in ("xlink",):  # HTML knows it without a declaration
        if f"xmlns:{prefix}" not in declared:
            declared = declared.replace("<svg", f'<svg xmlns:{prefix}="http://www.w3.org/1999/xlink"', 1)
    try:
        root = ElementTree.fromstring(declared)
    except ElementTree.ParseError as error:
        raise DataError(
            f"figure: the SVG is not well formed ({error}); give the text of one picture"
        ) from None
    for element in root.iter():
        tag = str(element.tag).rpartition("}")[2].lower()
        if tag in _FORBIDDEN:
            raise DataError(f"figure: the SVG holds a <{tag}>; a report has no active content: remove it")
        for attribute, value in element.attrib.items():
            key = attribute.rpartition("}")[2].lower()
            if key.startswith("on") or "javascript:" in value.lower():
                raise DataError(
                    f"figure: the SVG has the attribute {key}={shown(value)}; a report has no scripts: remove it"
                )
            if key in ("href", "src") and not value.startswith(("#", "data:image/")):
                raise DataError(
                    f"figure: the SVG refers to {shown(value)}; a report loads nothing: put the content into the picture"
                )
            if _ADDRESS.search(value):
                raise DataError(
                    f"figure: the SVG refers to an address in {shown(value)}; a report loads nothing: remove it"
                )
        if _ADDRESS.search(element.text or "") and tag == "style":
            raise DataError("figure: the SVG's style refers to an address; a report loads nothing: remove it")
