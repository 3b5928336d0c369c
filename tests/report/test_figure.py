import io
from typing import Any

import pytest

from relpref.errors import DataError
from relpref.infer import UtilityPosterior
from relpref.report import Section
from relpref.report.page import render
from relpref.report.plots import canvas

pytestmark = pytest.mark.usefixtures("without_pictures")
PLAIN = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1">{}</svg>'


def page(posterior: UtilityPosterior, figure: str) -> str:
    return render(
        posterior, sections=[Section("Picture <1>", figure=figure)] * 2, relations_evidence=False
    )


def test_a_figure_from_matplotlib(posterior: UtilityPosterior, read: Any) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([1, 2, 1], marker="o")
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    found = read(page(posterior, buffer.getvalue()))
    labels = [attributes.get("aria-label") for attributes in found.all("svg")]
    assert labels.count("Picture <1>") == 2
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {a["xlink:href"] for a in found.all("use")} <= {f"#{one}" for one in ids}
    assert "DOCTYPE svg" not in found.source and "<metadata>" not in found.source
    assert ["scroll panel"] * 2 == [
        box["class"] for box in found.all("div") if box.get("aria-label") == "Picture <1>"
    ]


def test_a_figure_in_the_pages_colours(posterior: UtilityPosterior, read: Any) -> None:
    with canvas(200, 100) as drawing:
        drawing.figure.add_axes((0.2, 0.2, 0.7, 0.7)).set_title(drawing.words("a$b"))
        own = drawing.svg("own", "Own", "A picture")
    found = read(page(posterior, own))
    assert ["scroll"] * 2 == [
        box["class"] for box in found.all("div") if box.get("aria-label") == "Picture <1>"
    ]
    assert "extra1-own-title extra1-own-text" in {
        one.get("aria-labelledby") for one in found.all("svg")
    }
    assert "a$b" in found.text("text")


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ("a picture", "is not SVG"),
        (PLAIN.format("<g>"), "not well formed"),
        (PLAIN.format("<script>alert(1)</script>"), "<script>"),
        (PLAIN.format("<foreignObject/>"), "<foreignobject>"),
        (PLAIN.format('<g onload="alert(1)"/>'), "onload"),
        (PLAIN.format('<a href="javascript:alert(1)"/>'), "javascript"),
        (PLAIN.format('<image href="https://example.org/a.png"/>'), r"example\.org"),
        (PLAIN.format('<use xlink:href="other.svg#a"/>'), r"other\.svg"),
        (PLAIN.format('<g style="fill: url(https://example.org)"/>'), "address"),
        (PLAIN.format("<style>@import 'https://example.org'</style>"), "style"),
    ],
)
def test_figures_that_are_refused(posterior: UtilityPosterior, figure: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        page(posterior, figure)
