"""Add built documentation to the site of all versions.

    python tools/docs_site.py docs/_build/html site

The pages go into the folder of their version, which is replaced, and index.html lists all versions,
the newest first.
"""

import html
import re
import shutil
import sys
from pathlib import Path

PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>relpref: all versions</title></head>
<body>
<h1>relpref: all versions</h1>
<ul>
{}
</ul>
</body>
</html>
"""


def add(pages: Path, site: Path, version: str) -> None:
    """Copy pages into the folder of a version, and write the list of versions."""
    target = site / version
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(pages, target)
    versions = (path.parent.name for path in site.glob("*/index.html"))
    entries = (
        f'<li><a href="{name}/index.html">{name}</a></li>'
        for name in map(html.escape, sorted(versions, key=order, reverse=True))
    )
    (site / "index.html").write_text(PAGE.format("\n".join(entries)), encoding="utf-8")


def order(version: str) -> tuple[list[int], bool, str]:
    """Sort key of a version: its numbers, and a final version after what came before it."""
    numbers = re.match(r"[\d.]*", version)
    assert numbers is not None  # it may be empty
    rest = version[numbers.end() :]
    return [int(part) for part in re.findall(r"\d+", numbers[0])], not rest, rest


if __name__ == "__main__":
    import relpref

    add(Path(sys.argv[1]), Path(sys.argv[2]), relpref.__version__)
