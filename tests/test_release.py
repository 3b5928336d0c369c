"""What a release needs: pages for contributors, addresses, workflows, documentation by version."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
floors = runpy.run_path(str(ROOT / "tools" / "lowest.py"))["floors"]


def test_pages_are_there_and_no_address_is_made_up() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    for page in ("CODE_OF_CONDUCT.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        assert (ROOT / page).is_file() and page in included
    urls = PROJECT["project"].get("urls", {})
    assert not urls or {"Homepage", "Documentation", "Source", "Issues"} <= urls.keys()
    assert not [url for url in urls.values() if re.search(r"\bexample\.|localhost", url)]


def test_the_package_needs_no_link() -> None:
    """Links become text files on Windows."""
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]
    packed = (*targets["wheel"]["packages"], *targets["sdist"]["only-include"])
    paths = [ROOT / name for name in packed if (ROOT / name).exists()]
    assert ROOT / "relpref" in paths
    assert not [path for top in paths for path in (top, *top.rglob("*")) if path.is_symlink()]


@pytest.mark.skipif(not (ROOT / "conda").exists(), reason="an sdist has no recipe")
def test_the_conda_recipe_has_the_lower_bounds_of_the_package() -> None:
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    bounds = dict(re.findall(r"(?m)^    - ([\w-]+) >=([\d.]+)", recipe.partition("  run:")[2]))
    bounds["matplotlib"] = bounds.pop("matplotlib-base")
    project = PROJECT["project"]
    assert f">={bounds.pop('python')}" == project["requires-python"]
    extras: dict[str, list[str]] = {name: [] for name in project["optional-dependencies"]}
    assert bounds == floors(project | {"optional-dependencies": extras})
    assert f'version: "{project["version"]}"' in recipe


@pytest.mark.skipif(not (ROOT / ".github").exists(), reason="an sdist has no workflows")
def test_workflows_run_what_runs_here() -> None:
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    assert "run: bash .ci/run" in text and (ROOT / ".ci/run").is_file()
    text = (ROOT / ".github/workflows/docs.yml").read_text(encoding="utf-8")
    assert "make docs-site SITE=site" in text
    assert "\ndocs-site: docs" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_documentation_of_each_version_is_kept(tmp_path: Path) -> None:
    add = runpy.run_path(str(ROOT / "tools" / "docs_site.py"))["add"]
    pages, site = tmp_path / "html", tmp_path / "site"
    pages.mkdir()
    for version in ("0.9", "0.10", "1.0rc1", "1.0", "0.10"):
        (pages / "index.html").write_text(f"pages of {version}")
        add(pages, site, version)
    listed = (site / "index.html").read_text(encoding="utf-8")
    places = [listed.index(f'"{name}/index.html"') for name in ("1.0", "1.0rc1", "0.10", "0.9")]
    assert places == sorted(places) and listed.count("<li>") == 4
    assert (site / "0.9" / "index.html").read_text() == "pages of 0.9"
