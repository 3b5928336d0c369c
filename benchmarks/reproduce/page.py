"""Puts a table and its figure into a page, between two marks."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from relpref.errors import DataError
from relpref.files import replaced


def fill(page: Path, name: str, title: str, content: str, figure: Path | None) -> None:
    """Replace what stands between ``<!-- table: NAME -->`` and ``<!-- end: NAME -->``; a figure
    goes beside the page.

    Raises
    ------
    DataError
        If the page does not have the two marks, once each.
    """
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- table: {name} -->", f"<!-- end: {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise DataError(f"{page}: needs the two lines {begin} and {end}, in this order, once each")
    block = f"{begin}\n{content}\n{end}"
    if figure is not None:
        picture = page.with_name(f"{page.stem}-{figure.name}")
        block = f"{begin}\n{content}\n\n![{title}]({picture.name})\n{end}"
        with replaced(picture) as part:
            shutil.copyfile(figure, part)
    text = re.sub(re.escape(begin) + ".*" + re.escape(end), lambda _: block, text, flags=re.DOTALL)
    with replaced(page) as part:
        part.write_text(text, encoding="utf-8")
