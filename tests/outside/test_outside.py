"""A package outside of relpref plugs in by `relpref.register` alone, and nothing says anything
false about it.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal
from outside_package import (
    ExpectedRegret,
    HeavyTailed,
    PatientEP,
    RationalQuadratic,
    StudentComparison,
    log_student,
    register,
)

import relpref
from relpref import PreferenceData, registry, report
from relpref.cli.entry import main
from relpref.diagnostics import certify, leave_one_out
from relpref.errors import DataError
from relpref.explore import forecast, next_pairs
from relpref.infer import EP, UtilityPosterior
from relpref.models import xpgp

ITEMS = list("abcde")
FIXED = {"attributes_amplitude": 1.5, "attributes_lengthscale": 1.0, "individual_amplitude": 0.5}
MODULE = Path(__file__).with_name("outside_package.py")
PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", {kind: {} for kind in registry.KINDS})
    # Tables of what answers of this model say have 640 cells in place of 10,240, each of which is a
    # quadrature by JAX; how near they are is not the matter here.
    monkeypatch.setattr(forecast, "_ROWS", 40)
    monkeypatch.setattr(forecast, "_COLUMNS", 16)


def data() -> PreferenceData:
    rng = np.random.default_rng(2)
    items = pd.DataFrame({"x": np.linspace(-2, 2, len(ITEMS))}, index=ITEMS)
    pairs = np.array([rng.choice(len(ITEMS), 2, replace=False) for _ in range(12)])
    right = (
        items["x"].to_numpy()[pairs[:, 0]] + rng.standard_t(4, 12)
        > items["x"].to_numpy()[pairs[:, 1]]
    )
    ends = np.where(right[:, None], pairs, pairs[:, ::-1])
    winners = pd.DataFrame(
        {"winner": [ITEMS[i] for i in ends[:, 0]], "loser": [ITEMS[i] for i in ends[:, 1]]}
    )
    return PreferenceData.from_tables(items, winners)


@pytest.fixture(scope="module")
def posterior() -> UtilityPosterior:
    engine = PatientEP(xpgp, fixed=FIXED)
    keywords = {"likelihood": HeavyTailed(), "attribute_kernel": RationalQuadratic(power=2.0)}
    found = engine.run(0, data(), **keywords)
    assert isinstance(found, UtilityPosterior)
    return found


def text_of(path: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", path.read_text("utf-8")))


def test_the_likelihood_is_students(posterior: UtilityPosterior) -> None:
    z = np.array([-1e4, -30.0, -2.0, -0.1, 0.0, 0.3, 5.0, 1e3])
    tilted = jax.jit(lambda *given: StudentComparison(jnp.zeros(1)).tilted(*given))
    with jax.enable_x64(True):
        assert_allclose(jax.jit(log_student)(z), scipy.stats.t(4).logcdf(z), rtol=1e-9, atol=1e-15)
        moments = tilted(np.ones(1), np.array([0.7]), np.array([2.0]))
    grid = np.linspace(-12, 13, 200_001)
    weights = scipy.stats.norm(0.7, np.sqrt(2.0)).pdf(grid) * scipy.stats.t(4).cdf(grid)
    assert_allclose(np.exp(moments.log_normalizer[0]), np.trapezoid(weights, grid), rtol=1e-7)


def test_it_is_fitted_and_certified(posterior: UtilityPosterior) -> None:
    assert posterior.converged and posterior.engine == "PatientEP"
    assert posterior.ranking()["mean"].corr(pd.Series(np.arange(5.0), index=ITEMS)) > 0.5
    assert certify(posterior).verdict == "good"
    assert np.all(leave_one_out(posterior).table["probability"].between(0, 1))


def test_it_is_asked(posterior: UtilityPosterior) -> None:
    with pytest.raises(DataError, match="expected_regret"):
        next_pairs(posterior, score="expected_regret")
    register()
    chosen = next_pairs(posterior, 2, score="expected_regret")
    direct = next_pairs(posterior, 2, score=ExpectedRegret())
    pd.testing.assert_frame_equal(chosen, direct)
    first = chosen.iloc[0]
    mean, sd = first["gap_mean"], first["gap_sd"]
    lost = np.maximum(
        -np.sign(mean) * scipy.stats.norm(mean, sd).ppf((np.arange(100_000) + 0.5) / 100_000), 0
    ).mean()
    assert first["score"] == pytest.approx(lost, rel=1e-3)


def test_all_that_it_computes_is_compiled(
    posterior: UtilityPosterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operation by operation, an answer took a minute of work."""
    standard, traced = StudentComparison.standard, []

    def recorded(self: Any, value: Any, mean: Any, variance: Any) -> Any:
        traced.append(isinstance(mean, jax.core.Tracer))
        return standard(self, value, mean, variance)

    monkeypatch.setattr(StudentComparison, "standard", recorded)
    answer = pd.DataFrame({"winner": ["a"], "loser": ["c"]})
    updated = posterior.update(answer, quick=True)
    assert updated.quick_answers == 1
    next_pairs(updated, 1)
    updated.prefer([("a", "b")])
    leave_one_out(updated.update())
    assert all(traced)


def test_it_is_saved_and_loaded(posterior: UtilityPosterior, tmp_path: Path, reloaded: Any) -> None:
    with pytest.raises(relpref.errors.StorageError, match=r"register\('(kernel|likelihood)'"):
        posterior.save(tmp_path / "unknown.nc")
    register()
    again = reloaded(posterior)
    assert again.likelihood == HeavyTailed()
    assert again.origin.keywords["attribute_kernel"] == RationalQuadratic(power=2.0)
    assert_array_equal(again.mean(), posterior.mean())
    later = again.update(pd.DataFrame({"winner": ["a"], "loser": ["e"]}))
    assert later.engine == "PatientEP" and later.data.num_answers == 13


class Silent(HeavyTailed):
    """Says nothing of itself."""

    describe: Any = None


@pytest.mark.slow
def test_what_does_not_describe_itself_is_named(
    posterior: UtilityPosterior, tmp_path: Path
) -> None:
    quiet = replace(posterior, likelihood=Silent())
    text = text_of(report.write(quiet, tmp_path / "report.html", relations_evidence=False))
    assert "Silent does not describe itself." in text and "Φ" not in text


def own_program(data: Any) -> None:
    xpgp(data, likelihood=HeavyTailed())


@pytest.mark.slow
def test_the_likelihood_of_a_program_of_ones_own_is_not_guessed(tmp_path: Path) -> None:
    own = EP(own_program, fixed=FIXED).run(0, data())
    text = text_of(report.write(own, tmp_path / "own.html", relations_evidence=False))
    assert "is up to the program own_program" in text and "Φ" not in text and "wins 84%" not in text
    assert "squared-exponential" not in text


def test_the_command_line_finds_it_and_its_report_says_what_it_says_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    about = tmp_path / "outside_package-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-package\nVersion: 1\n")
    points = re.search(
        r"\[project.entry-points.relpref\]\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    assert points is not None
    (about / "entry_points.txt").write_text("[relpref]\n" + points[1].replace('"', ""))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    items, answers, _ = data().to_tables()
    items.to_csv("entities.csv", index_label="name")
    answers.to_csv("comparisons.csv", index=False)
    chosen = [
        "--likelihood",
        "HeavyTailed",
        "--attribute-kernel",
        "RationalQuadratic",
        "--engine",
        "PatientEP",
    ]
    fixed = [f"--fixed={name}={value}" for name, value in FIXED.items()]
    folder = ["--folder", ".", "--out", "run", "--hyperparameters", "maximize", "--verbose"]
    assert main(["fit", *folder, *chosen, *fixed]) == 0, capsys.readouterr().err
    assert "Fitted by PatientEP" in capsys.readouterr().out
    assert main(["report", "run"]) == 0, capsys.readouterr().err
    text = text_of(tmp_path / "run" / "report.html").replace("&#39;", "'")
    for words in (
        "that Student's t distribution with four degrees of freedom gives",
        "K. L. Lange, R. J. A. Little and J. M. G. Taylor (1989)",
        "The rational quadratic kernel with α = 1 mixes smooth functions",
        "Its sweeps went on to a tolerance of 1e-12.",
        "Expected regret",
        "Taking ",
        "items far apart typically differ by 2.12",
        "correlation 0.67 one standard deviation apart",
    ):
        assert words in text, words
    assert "Φ" not in text and "wins 84%" not in text and "squared-exponential" not in text
    assert main(["fit", *folder, "--force", "--likelihood", "Unheard"]) == 2
    assert "use probit, logistic or heavy-tailed" in capsys.readouterr().err


def test_the_page_shows_this_package() -> None:
    """The worked examples of docs/extending.md are the code that is tested here."""
    module = MODULE.read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    parts = re.split(
        r"^# (?:likelihood|kernel|score|engine|chapter|register)\n", module, flags=re.MULTILINE
    )[1:-1]
    assert len(parts) == 5
    for part in parts:
        assert any(part.strip() in block for block in blocks), part[:200]
