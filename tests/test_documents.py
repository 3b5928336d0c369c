"""The Python blocks of the README and of the pages in docs, and the examples of the reference, run."""

import doctest
import importlib.util
import pkgutil
import re
import runpy
import warnings
from inspect import getdoc, signature
from pathlib import Path
from typing import Any

import pytest

import relpref
from relpref import registry
from relpref.infer import EP, Laplace
from relpref.models import xpgp
from relpref.options import OPTIONS

ROOT = Path(__file__).parents[1]
README, PAGES = ROOT / "README.md", sorted((ROOT / "docs").glob("*.md"))
NAMES = re.findall(r"(?m)^   (relpref\.[\w.]+)$", (ROOT / "docs/api.md").read_text("utf-8"))
SLOW = {"relpref.diagnostics.check", "relpref.diagnostics.calibrate"}


def run_blocks(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {}
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(
        r"```(?:python|{code-cell} python)\n(?::tags:[^\n]*\n)?(.*?)```", text, flags=re.DOTALL
    )
    for number, block in enumerate(blocks):
        needed = re.match(r"# needs (\w+)\n", block)
        if needed and not importlib.util.find_spec(needed[1]):
            continue
        script = folder / f"block_{number}.py"
        script.write_text(block, encoding="utf-8")
        with warnings.catch_warnings():
            if needed:
                warnings.simplefilter("ignore")  # those of other packages
            names = runpy.run_path(str(script), init_globals=names)


@pytest.mark.slow
def test_readme_snippets_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(README, tmp_path)
    expected = re.findall(r"```text\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert capsys.readouterr().out == "".join(expected)
    assert "Argentina" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert "make test" in text  # what .ci/run calls


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(
        registry, "_added", {kind: {} for kind in registry.KINDS}
    )  # pages register things
    run_blocks(page, tmp_path)


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.stem)
def test_no_placeholder_is_left(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "@@" not in text
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.stem)
def test_code_is_at_most_88_columns_wide(page: Path) -> None:
    parts = re.split(r"(?m)^```(.*)$", page.read_text("utf-8"))
    for kind, block in zip(parts[1::4], parts[2::4], strict=True):
        if not kind.startswith("{") or "code" in kind:
            assert max(map(len, block.splitlines())) <= 88


def test_reference_lists_every_public_name_once() -> None:
    values = {name: pkgutil.resolve_name(name) for name in NAMES}
    assert len(set(map(id, values.values()))) == len(NAMES)
    assert {f"relpref.{name}" for name in relpref.__all__ if not name.startswith("_")} <= set(NAMES)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NAMES]
)
def test_examples_of_the_reference_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_added", {kind: {} for kind in registry.KINDS})
    examples = pkgutil.resolve_name(name).__doc__.partition("Examples\n")[2]
    test = doctest.DocTestParser().get_doctest(examples, {}, name, None, None)
    assert test.examples
    report: list[str] = []
    assert not doctest.DocTestRunner().run(test, out=report.append).failed, "".join(report)


@pytest.mark.parametrize("engine", [EP, Laplace])
def test_engines_document_their_parameters(engine: Any) -> None:
    parameters = engine.__doc__.partition("\n\nParameters\n")[2]
    named = re.findall(r"^(\w+(?:, \w+)*) :", parameters, flags=re.MULTILINE)
    assert {name for line in named for name in line.split(", ")} >= {
        *engine(xpgp).options,
        "program",
        "fixed",
    }


def test_fit_documents_the_options_of_engine_and_model() -> None:
    document = getdoc(relpref.fit) or ""
    others = document.partition("Other Parameters\n")[2].partition("Examples\n")[0]
    named = re.findall(r"^(\w+(?:, \w+)*) :", others, flags=re.MULTILINE)
    programs = [*signature(xpgp).parameters][1:]
    expected = {*EP(xpgp).options, "fixed", *programs, *OPTIONS}
    assert {name for line in named for name in line.split(", ")} == expected
    for name in ("restarts", "space", "structure", "check", "throw", "hyperparameters"):
        default = EP(xpgp).options[name]
        assert re.search(rf"^{name} : .*, default .*{default}", others, re.MULTILINE)
