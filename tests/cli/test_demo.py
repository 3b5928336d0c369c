import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relpref
from relpref.cli import demo
from relpref.cli.demo import ALONE, NAME, RELATION, SHUFFLED, Outcome, Season
from relpref.data_loaders import football
from relpref.diagnostics import certify

SOME = (
    "Argentina",
    "Bolivia",
    "Brazil",
    "Chile",
    "Colombia",
    "Ecuador",
    "France",
    "Germany",
    "Italy",
    "Spain",
)
READ = demo.read


def few() -> Season:
    """The matches of ten teams of two confederations."""
    season = READ()
    matches = season.matches
    kept = matches["home_team"].isin(SOME) & matches["away_team"].isin(SOME)
    return Season(matches[kept], season.confederation[list(SOME)], season.later[kept])


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(demo, "read", few)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return demo.fit(few())


def test_later_matches_are_not_learned_from(outcome: Outcome) -> None:
    season = outcome.season
    assert 0 < season.later.sum() < len(season.matches)
    for posterior in outcome.earlier.values():
        assert posterior.data.num_answers == (~season.later).sum()
        assert posterior.data.labels == SOME  # those without an earlier match, too
    assert outcome.posterior.data.num_answers == len(season.matches)
    assert season.matches[season.later]["date"].min() >= pd.Timestamp("2025-09-01")
    assert season.matches[~season.later]["date"].max() < pd.Timestamp("2025-09-01")


def test_the_control_has_the_same_confederations_of_other_teams() -> None:
    season = demo.read()
    shuffled = season.shuffled(0)
    assert shuffled.index.equals(season.confederation.index)
    assert shuffled.value_counts().to_dict() == season.confederation.value_counts().to_dict()
    assert (shuffled != season.confederation).mean() > 0.5
    assert not shuffled.equals(season.shuffled(1))


def test_losses_are_those_of_what_happened() -> None:
    matches = pd.DataFrame(
        {
            "home_team": list("abc"),
            "away_team": list("bca"),
            "home_score": [2, 1, 0],
            "away_score": [0, 1, 3],
            "neutral": [False, True, False],
        }
    )
    season = Season(matches, pd.Series(dtype=str), pd.Series([True] * 3))

    class Fixed:
        log_evidence = -1.0

        def __init__(self, won: list[float], drawn: list[float]) -> None:
            self.chances = pd.DataFrame({"probability": won, "tie": drawn})

        def prefer(self, pairs: Any, shown_first: Any) -> pd.DataFrame:
            assert pairs == [("a", "b"), ("b", "c"), ("c", "a")]
            assert shown_first == ["a", None, "c"]
            return self.chances

    models: Any = {
        ALONE: Fixed([0.5] * 3, [0.2] * 3),
        RELATION: Fixed([0.8, 0.3, 0.1], [0.1, 0.5, 0.1]),
    }
    table = Outcome(season, models[RELATION], models).models
    alone, real = -np.log([0.5, 0.2, 0.3]), -np.log([0.8, 0.5, 0.8])
    np.testing.assert_allclose(table["log_loss"], [alone.mean(), real.mean()])
    assert table.loc[RELATION, "gain"] == pytest.approx((alone - real).mean())
    assert table.loc[RELATION, "gain_se"] == pytest.approx((alone - real).std(ddof=1) / np.sqrt(3))


def test_demo(
    small: Path, outcome: Outcome, ask: Any, snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "fit", lambda season, seed, progress_bar: outcome)
    said = ask("demo")
    lines = said.splitlines()
    assert len(lines) < 35 and max(map(len, lines)) <= 100
    assert lines[0].startswith("61 matches of 10 national football teams, June 2023 to July 2026")
    assert lines[-1] == "The report is in demo/report.html"
    for label in (
        "Average strength",
        "Tiers",
        "Tomorrow's match",
        "Few matches, wide interval",
        "Most informative next match",
    ):
        assert any(line.startswith(f"{label}: ") for line in lines)
    page = (small / "demo/report.html").read_text(encoding="utf-8")
    assert "What the confederations add" in page and "In short" in page

    first = snapshot(small)
    found = json.loads(ask("demo -o json"))  # an earlier demo is replaced
    assert snapshot(small) == first
    alone, real, shuffled = found["models"]
    assert (alone["model"], real["model"], shuffled["model"]) == (ALONE, RELATION, SHUFFLED)
    assert alone["gain"] == alone["gain_se"] == 0
    assert real["gain"] == pytest.approx(alone["log_loss"] - real["log_loss"])
    assert f"{real['gain']:+.3f} ± {real['gain_se']:.3f}" in said
    assert set(found["hyperparameters"]) == {
        "confederation_amplitude",
        "individual_amplitude",
        "position_bias",
        "tie_margin",
    }
    ranked = json.loads(ask("rank demo -o json --top 3"))
    assert [row["item"] for row in ranked["ranking"]] == [
        row["team"] for row in found["ranking"][:3]
    ]
    ask("prefer demo Spain Argentina")
    again = relpref.PreferenceData.from_folder(small / "demo" / "data")
    assert again.num_answers == 61 and list(again.relations) == [NAME]


def test_demo_replaces_nothing_but_a_demo(
    small: Path, made: Path, refused: Any, snapshot: Any
) -> None:
    before = snapshot(made)
    assert "there is a run already; the demo does not replace it" in refused(
        "demo --out", made / "run"
    )
    assert snapshot(made) == before


def test_tiers_in_words() -> None:
    teams = pd.Index([f"team {number}" for number in range(20)])
    table = pd.DataFrame({"tier": np.repeat([1, 2], [12, 8])}, index=teams)
    words = demo.tiers_in_words(table)
    assert words.startswith("2 tiers; team 0 cannot be told apart from 11 of the 19 others (95%")
    alone = table.assign(tier=np.repeat([1, 2], [1, 19]))
    assert "team 0 cannot be told apart from none of the others" in demo.tiers_in_words(alone)


def test_an_amplitude_held_at_nothing_is_no_relation(outcome: Outcome) -> None:
    season, held = outcome.season, outcome.earlier[ALONE]
    answers = football.answers(season.matches[~season.later])
    left_out = relpref.fit(list(SOME), answers, hyperparameters="maximize")
    assert held.log_evidence == pytest.approx(left_out.log_evidence, abs=0.3)
    np.testing.assert_allclose(held.mean(), left_out.mean(), atol=0.05)


@pytest.mark.slow
def test_the_whole_demo() -> None:
    outcome = demo.fit(demo.read())
    models = outcome.models
    # Figures of an independent script, whose kernel of the relation was another one (-2396.9).
    assert models["log_evidence"].tolist() == pytest.approx([-2426.8, -2397.4, -2427.4], abs=0.2)
    assert models["log_loss"].tolist() == pytest.approx([0.8736, 0.8584, 0.8735], abs=2e-3)
    assert outcome.ranking.index[:2].tolist() == ["Spain", "Argentina"]
    assert certify(outcome.posterior).verdict == "good"
