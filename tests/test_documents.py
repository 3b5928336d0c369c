"""The Python blocks of the README and of the pages in docs run as they stand."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from relpref import registry

ROOT = Path(__file__).parents[1]
README, PAGES = ROOT / "README.md", sorted((ROOT / "docs").glob("*.md"))


def run_blocks(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for number, block in enumerate(blocks):
        script = folder / f"block_{number}.py"
        script.write_text(block, encoding="utf-8")
        names = runpy.run_path(str(script), init_globals=names)


@pytest.mark.slow
def test_readme_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(README, tmp_path)
    assert (tmp_path / "run.nc").stat().st_size > 1000
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "gesha" in page


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_added", {kind: {} for kind in registry.KINDS})  # pages register things
    run_blocks(page, tmp_path)


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.stem)
def test_no_placeholder_is_left(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "@@" not in text
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (page.parent / link).exists(), link
