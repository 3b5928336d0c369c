"""Prose is plain: phrases that the documentation avoids, each with what to write instead."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLAIN = {
    r"one can send": "shareable",
    r"(?<![.\w])[Ee]verybody else": "otherwise",
    r"[Ww]hat trust costs": "cost of the diagnostics",
    r"\btells? (?:it )?most\b": "is the most informative",
    r"\banew\b": "again; refit, rebuild, recompute",
    r"answer of it warns": "every method warns",
    r"who resembles whom": "similarity",
    r"[Nn]obody knows": "is unknown",
    r"\b[Ww]hoever\b": "a person who, the caller; or the passive",
    r"\bhands? out\b": "return",
    r"\blearnt\b": "learned",
    r"\bof so many\b": "of this many; or the number",
    r"(?<!\w)nothing but\b": "only",
    r"\bbut for (?:rounding|a constant|the|that)\b": "up to, except for",
    r"\bof one's own\b": "your own, custom",
    r"\bfor ever\b": "without end; hang",
    r"\b(?:can|may|to|could) be believed\b": "is reliable, is calibrated",
    r"\bc[oa]mes? about\b": "origin, model",
    r"\bin silence\b|\bwithout a word\b": "without a message",
    r"[Pp]eople tire\b": "people cannot answer them",
    r"\bin vain\b": "for nothing",
    r"\bwherever\b": "where, if",
    r"(?<!\w)[Ss]omebody\b": "a person",
    r"\bat (?:their|its) word\b": "is calibrated",
    r"\bprophet\b": "perfect",
}


def prose() -> list[Path]:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    pages = re.compile(r"(?:[A-Z]+|docs/\w+)\.md|(?:relpref|tutorials)/.*\.(?:py|html|j2|js)")
    # The changelog names what earlier versions were called.
    return [
        ROOT / name
        for name in tracked.splitlines()
        if pages.fullmatch(name) and name != "CHANGELOG.md"
    ]


@pytest.fixture(scope="module")
def lines() -> list[tuple[str, str]]:
    return [
        (f"{file.relative_to(ROOT)}:{number}", line)
        for file in prose()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    ]


def test_all_prose_is_read(lines: list[tuple[str, str]]) -> None:
    files = {place.rpartition(":")[0] for place, _ in lines}
    assert {"docs/howto.md", "relpref/infer/engine.py", "tutorials/quickstart.py"} <= files


@pytest.mark.parametrize("phrase", PLAIN)
def test_words_are_plain(phrase: str, lines: list[tuple[str, str]]) -> None:
    found = [f"{place}: {line.strip()}" for place, line in lines if re.search(phrase, line)]
    assert not found, f"write {PLAIN[phrase]!r} instead:\n" + "\n".join(found)
