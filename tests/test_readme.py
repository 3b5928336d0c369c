"""The Python blocks of the README run as they stand, one after the other."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_readme_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks()):
        script = tmp_path / f"block_{number}.py"
        script.write_text(block, encoding="utf-8")
        names = runpy.run_path(str(script), init_globals=names)
    assert (tmp_path / "run.nc").stat().st_size > 1000
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "gesha" in page


def test_readme_has_no_placeholder_left() -> None:
    assert "@@" not in README.read_text(encoding="utf-8")
