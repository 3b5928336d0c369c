"""The messages that docs/troubleshooting.md explains are those of the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE, flags=re.MULTILINE)


def texts() -> str:
    """Every text of the code, with … for what is filled in."""
    found = []
    for file in sorted((ROOT / "relpref").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                ]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


@pytest.fixture(scope="module")
def code() -> str:
    return texts()


def test_messages_are_quoted() -> None:
    assert len(QUOTED) > 30
    assert len(set(QUOTED)) == len(QUOTED)


@pytest.mark.parametrize("message", QUOTED)
def test_quoted_message_exists(message: str, code: str) -> None:
    pattern = ".*".join(map(re.escape, message.split("…")))
    assert re.search(pattern, code), f"no message of relpref contains {message!r}; correct the page"
