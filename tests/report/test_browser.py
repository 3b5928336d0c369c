"""The page in a browser: nothing is asked of a network, nothing is cut off, at any width and in
either scheme.
"""

from pathlib import Path
from typing import Any

import pytest

from relpref.report import write

pytestmark = pytest.mark.slow

# Words of a picture that reach over its edge, and headings and paragraphs wider than the window.
CUT_OFF = """() => [...document.querySelectorAll('svg')].filter(e => e.getClientRects().length).flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => {
    const r = t.getBoundingClientRect();
    return r.left < box.left - 1 || r.right > box.right + 1 || r.bottom > box.bottom + 1;
  }).map(t => t.textContent);
})"""
# Tables that are wider than their place; and what is folded and does not show.
SCROLLING = """() => [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.getAttribute('aria-label'))"""
HIDDEN = """() => [...document.querySelectorAll('details > :not(summary)')].filter(e => !e.checkVisibility())
  .map(e => e.textContent)"""


@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_every_window(
    tmp_path: Path, make: Any, tables: Any, browser: Any, width: int, scheme: str
) -> None:
    labels = [f"a rather long label {row}" for row in range(12)]
    report = write(make(tables(labels)), tmp_path / "report.html", relations_evidence=False)
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    assert asked == [report.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(CUT_OFF) == []
    shown = page.evaluate(
        "[...document.querySelectorAll('svg')].filter(e => e.checkVisibility()).length"
    )
    assert shown == 1  # of the forest one variant; the other pictures are folded
    page.emulate_media(media="print")
    assert page.evaluate(HIDDEN) == []
    page.emulate_media(media="screen")
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(SCROLLING) == []
    page.close()
