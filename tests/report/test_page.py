import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.errors import DataError, StorageError
from relpref.infer import UtilityPosterior
from relpref.posterior.base import Posterior
from relpref.report import Section, write
from relpref.report.page import render


def page(posterior: Posterior, **options: Any) -> str:
    return render(posterior, **({"relations_evidence": False} | options))


@pytest.mark.usefixtures("without_pictures")
def test_writes_one_file(tmp_path: Path, posterior: UtilityPosterior) -> None:
    path = tmp_path / "report.html"
    assert write(posterior, str(path), relations_evidence=False) == path
    assert os.listdir(tmp_path) == ["report.html"]
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_loads_nothing_and_runs_nothing(posterior: UtilityPosterior, read: Any) -> None:
    found = read(page(posterior))
    harmful = "script link img iframe object embed form base image foreignobject"
    for tag, attributes in found.tags:
        assert tag not in harmful.split()
        for name, value in attributes.items():
            assert not name.startswith("on") and name != "src"
            if name in ("href", "xlink:href"):
                assert value is not None and value.startswith("#")
            assert name.startswith("xmlns") or "://" not in (value or "")
    assert "url(" not in found.source.replace("url(#", "")
    assert "@import" not in found.source and "DejaVu" not in found.source
    (policy,) = [
        a["content"] for a in found.all("meta") if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_accessible(posterior: UtilityPosterior, read: Any) -> None:
    section = Section("More", table=pd.DataFrame({"x": [1.0]}, index=["row"]))
    found = read(page(posterior, sections=[section]))
    assert found.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and set(levels[1:]) == {2}
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in found.tags:
        for name in ("aria-labelledby", "href", "xlink:href"):
            targets = (attributes.get(name) or "").replace("#", "").split()
            assert set(targets) <= set(ids)
    pictures = found.all("svg")
    assert len(pictures) == 2 and len(found.all("details")) == 10
    assert all(p["role"] == "img" and p["aria-labelledby"] for p in pictures)
    assert all(header.get("scope") in ("col", "row") for header in found.all("th"))
    assert all(box.get("aria-label") for box in found.all("div") if "tabindex" in box)


def test_same_input_same_bytes(tmp_path: Path, make: Any) -> None:
    first = write(make(), tmp_path / "a.html", relations_evidence=False).read_bytes()
    helpers = Path(__file__).with_name("conftest.py")
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('helpers', {str(helpers)!r})\n"
        "helpers = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(helpers)\n"
        "import relpref.report, unittest.mock\n"
        "assert not {'matplotlib', 'jinja2'} & set(sys.modules)\n"
        "helpers.refuse_diagnostics(lambda name, new: unittest.mock.patch(name, new).start())\n"
        "relpref.report.write(helpers.make_posterior(), sys.argv[1], relations_evidence=False)\n"
        "from matplotlib import pyplot\n"
        "assert not pyplot.get_fignums()\n"
    )
    other = tmp_path / "b.html"
    environment = os.environ | {
        "PYTHONHASHSEED": "12",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(other)], check=True, env=environment
    )
    assert other.read_bytes() == first


def test_the_users_plot_style_does_not_matter(posterior: UtilityPosterior) -> None:
    import matplotlib

    first = page(posterior)
    changed = {
        "font.size": 30.0,
        "lines.linewidth": 9.0,
        "svg.fonttype": "path",
        "axes.grid": True,
        "text.usetex": True,
    }
    with matplotlib.rc_context(changed):
        assert page(posterior) == first
        assert matplotlib.rcParams["font.size"] == 30.0


@pytest.mark.usefixtures("without_pictures")
def test_the_earlier_file_survives(
    tmp_path: Path, posterior: UtilityPosterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("earlier")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StorageError, match="No space left"):
        write(posterior, path, relations_evidence=False)
    assert os.listdir(tmp_path) == ["report.html"] and path.read_text() == "earlier"


@pytest.mark.usefixtures("without_pictures")
def test_banner_where_not_converged(tmp_path: Path, make: Any, read: Any) -> None:
    bad = make(info={**make().info, "result": "max_iterations"})
    found = read(write(bad, tmp_path / "bad.html", relations_evidence=True).read_text("utf-8"))
    assert {"class": "banner"} in found.all("p")
    assert "did not converge (max iterations)" in found.prose and "Raise max_sweeps" in found.prose
    assert "the fit itself did not converge" in found.prose
    assert {"class": "banner"} not in read(page(make())).all("p")


@pytest.mark.usefixtures("without_pictures")
def test_plain_posterior(make: Any, read: Any) -> None:
    full = make()
    fields = ("belief", "parts", "hyperparameters", "log_evidence", "info", "sites", "key")
    posterior = Posterior(
        **{name: getattr(full, name) for name in fields},
        slices={"w": slice(0, 5), "b": slice(5, 8)},
    )
    found = read(page(posterior, relations_evidence=True))
    assert found.text("h2") == [
        "Posterior",
        "How far to trust it",
        "Hyperparameters",
        "How the computation went",
        "Methods",
        "Versions",
    ]
    assert found.text("caption")[:2] == ["Site w: 5 values", "Site b: 3 values"]


@pytest.mark.usefixtures("without_pictures")
def test_sections_come_first(posterior: UtilityPosterior, read: Any) -> None:
    table = pd.DataFrame(
        {"model": ["xpgp", "attributes"], "accuracy": [0.81234, np.nan], "n": [10, 20000]}
    )
    text = "First. <script>alert(1)</script>"
    one = Section("Held out <answers>", [text, "Second."], table, note="Five folds.")
    found = read(page(posterior, sections=[one, Section("Two")]))
    assert found.text("h2")[:4] == ["Ranking", "Held out <answers>", "Two", "What drives it"]
    assert text in found.text("p") and "Five folds." in found.text("p")
    cells = found.text("bdi")
    assert cells[:6] == ["xpgp", "0.812", "10", "attributes", "–", "20000"]


@pytest.mark.usefixtures("without_pictures")
def test_large_tables_are_cut(posterior: UtilityPosterior, read: Any) -> None:
    table = pd.DataFrame(
        np.zeros((300, 40)), index=pd.MultiIndex.from_product([range(3), range(100)])
    )
    assert "The first 200 of 300 rows and 30 of 40 columns are shown." in read(
        page(posterior, sections=[Section("Much", table=table)])
    ).text("p")


def test_sections_of_another_type(posterior: UtilityPosterior) -> None:
    with pytest.raises(
        DataError, match=r"sections: got a str; each must be a relpref\.report\.Section"
    ):
        page(posterior, sections=["text"])


def test_contrast() -> None:
    """Text meets AA (4.5 : 1) on the paper of either scheme."""
    from importlib.resources import files

    css = files("relpref.report").joinpath("templates/report.css").read_text("utf-8")
    schemes = re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)
    assert len(schemes) == 3  # light, dark, print

    def luminance(colour: str) -> float:
        channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    for scheme in schemes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", scheme))
        for ink, paper in [(i, "paper") for i in ("ink", "muted", "accent", "against")] + [
            ("ink", "warn-paper")
        ]:
            light, dark = sorted((luminance(colours[ink]), luminance(colours[paper])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)
