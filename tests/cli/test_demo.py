import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

from relpref.cli import demo
from relpref.cli.demo import ALONE, RELATION, SHUFFLED, Outcome
from relpref.data_loaders import ModeChoice, load_modechoice
from relpref.infer import EP
from relpref.kernels import SquaredExponential
from relpref.models import xpgp


def few(number: int) -> ModeChoice:
    """The first travelers only."""
    choices = load_modechoice()
    kept = set(choices.traveler[choices.traveler.isin(choices.travelers.index[:number])].index)
    return replace(
        choices,
        items=choices.items[choices.items.index.isin(kept)],
        answers=choices.answers[choices.answers["winner"].isin(kept)],
        relations={name: links[links.isin(kept).all(axis=1)] for name, links in choices.relations.items()},
        traveler=choices.traveler[choices.traveler.index.isin(kept)],
        mode=choices.mode[choices.mode.index.isin(kept)],
        travelers=choices.travelers.iloc[:number],
    )


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(demo, "load_modechoice", lambda: few(40))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_held_out_answers_are_not_learned_from() -> None:
    experiment = demo.prepare(3)
    assert len(experiment.held_out) == 3 * round(210 / 4)
    assert len(experiment.learned) + len(experiment.held_out) == 630
    learned, held_out = (
        set(experiment.choices.traveler.loc[table["winner"]])
        for table in (experiment.learned, experiment.held_out)
    )
    assert not learned & held_out
    for data in experiment.data.values():
        assert data.num_items == 840  # those held out are there, too
        assert data.num_answers == len(experiment.learned)
        winners = [str(data.labels[row]) for row in data.winner]
        assert {label.partition(":")[0] for label in winners} == learned
    assert set(demo.prepare(4).held_out["winner"]) != set(experiment.held_out["winner"])


def test_the_control_has_the_same_graph_with_other_nodes() -> None:
    data = demo.prepare().data
    real, shuffled = data[RELATION].relations["mode"], data[SHUFFLED].relations["mode"]
    assert real.num_edges == shuffled.num_edges
    assert sorted(real.degree) == sorted(shuffled.degree)
    np.testing.assert_allclose(real.spectrum.eigenvalues, shuffled.spectrum.eigenvalues, atol=1e-9)
    assert not np.array_equal(real.source, shuffled.source)


def test_demo(small: Path, ask: Any, snapshot: Any) -> None:
    said = ask("demo")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert len(lines) < 30 and max(map(len, lines)) <= 110
    assert lines[-2].startswith("Answer some questions yourself: relpref ask demo")
    assert lines[-1] == "The report is in demo/report.html"
    assert any(line.startswith("Read: 160 items, 3 attributes, 90 answers") for line in lines)
    assert "±: one standard error, over travelers" in said.out.replace("\n", " ")
    page = (small / "demo/report.html").read_text(encoding="utf-8")
    assert "What the relation adds" in page and "Mode by mode" in page

    first = snapshot(small)
    found = json.loads(ask("demo", "--json").out)  # an earlier demo is replaced
    assert snapshot(small) == first
    assert found["held_out"]["travellers"] == 10
    alone, real, shuffled = found["models"]
    assert (alone["model"], real["model"], shuffled["model"]) == (ALONE, RELATION, SHUFFLED)
    assert alone["gain"] == alone["gain_se"] == 0
    assert list(alone["hyperparameters"]) == [
        "attributes_amplitude",
        "attributes_lengthscale",
        "individual_amplitude",
    ]
    assert "mode_range" in real["hyperparameters"]
    assert real["gain"] == pytest.approx(alone["log_loss"] - real["log_loss"])
    assert 0 < real["gain_se"] and 0.1 < real["log_loss"] < 2
    assert f"{real['gain']:+.3f} ± {real['gain_se']:.3f}" in said.out
    assert {row["mode"] for row in found["modes"]} == {"air", "train", "bus", "car"}
    assert sum(row["mean"] for row in found["modes"]) == pytest.approx(0, abs=1e-9)

    ranked = json.loads(ask("rank", "demo", "--json", "--top", 3).out)
    assert ranked["entities"] == 160
    assert ask("prefer", "demo", "t001:train", "t001:car").code == 0


def test_demo_replaces_nothing_but_a_demo(small: Path, made: Path, ask: Any, snapshot: Any) -> None:
    before = snapshot(made)
    said = ask("demo", "--out", made / "run")
    assert (said.code, said.out) == (2, "")
    assert "there is a run already; the demo does not replace it" in said.err
    assert snapshot(made) == before


def test_standard_errors_are_over_travellers() -> None:
    experiment = demo.prepare()
    rng = np.random.default_rng(0)

    class Fixed:
        log_evidence = -1.0

        def __init__(self) -> None:
            self.probability = rng.uniform(0.1, 0.9, len(experiment.held_out))

        def prefer(self, pairs: Any) -> pd.DataFrame:
            expected = zip(experiment.held_out["winner"], experiment.held_out["loser"], strict=True)
            assert list(pairs) == list(expected)
            return pd.DataFrame({"probability": self.probability})

    fixed: Any = {ALONE: Fixed(), RELATION: Fixed(), SHUFFLED: Fixed()}
    table = Outcome(experiment, fixed).table()
    loss = {name: -np.log(model.probability) for name, model in fixed.items()}
    # The rows of one traveler lie next to each other.
    gain = (loss[ALONE] - loss[RELATION]).reshape(-1, 3).mean(axis=1)
    assert table.loc[RELATION, "log_loss"] == pytest.approx(loss[RELATION].mean())
    assert table.loc[RELATION, "gain"] == pytest.approx(gain.mean())
    assert table.loc[RELATION, "gain_se"] == pytest.approx(gain.std(ddof=1) / np.sqrt(gain.size))


class Told:
    """An outcome with a table of one's own."""

    def __init__(self, real: float, control: float, evidence: tuple[float, float, float]) -> None:
        self._table = pd.DataFrame(
            {
                "log_loss": 0.6,
                "gain": [0.0, real, control],
                "gain_se": [0.0, 0.01, 0.01],
                "log_evidence": list(evidence),
            },
            index=[ALONE, RELATION, SHUFFLED],
        )

    def table(self) -> pd.DataFrame:
        return self._table


@pytest.mark.parametrize(
    ("real", "control", "expected"),
    [
        (
            0.05,
            0.001,
            "relation saves 0.050 ± 0.010 nats a comparison, more than chance explains. Shuffled, it saves",
        ),
        (0.015, -0.015, "which may well be chance. Shuffled, it costs 0.015 ± 0.010"),
        (-0.05, 0.0, "the relation costs 0.050 ± 0.010 nats a comparison, more than chance explains."),
        (0.005, 0.0, "0.005 ± 0.010 nats a comparison, which is nothing."),
        (
            0.05,
            0.05,
            "But shuffled, it saves 0.050 ± 0.010 nats a comparison, more than chance explains: whatever",
        ),
    ],
)
def test_whatever_is_true_is_said_of_predictions(real: float, control: float, expected: str) -> None:
    told: Any = Told(real, control, (0.0, 0.0, 0.0))
    assert expected in demo.predictions(told)


@pytest.mark.parametrize(
    ("found", "expected", "artefact"),
    [
        ((-300.0, -200.0, -210.0), "+100.0 nats by the relation, +90.0 by the shuffled one", True),
        ((-300.0, -280.0, -299.0), "Who resembles whom: +19.0 nats.", False),
        ((-300.0, -301.0, -299.0), "Who resembles whom: -2.0 nats.", True),
    ],
)
def test_whatever_is_true_is_said_of_the_evidence(found: Any, expected: str, artefact: bool) -> None:
    told: Any = Told(0.0, 0.0, found)
    said = demo.evidence(told)
    assert expected in said
    assert ("does not tell the two apart" in said) == artefact


@pytest.mark.slow
def test_the_whole_demo(tmp_path: Path, ask: Any) -> None:
    found = json.loads(ask("demo", "--out", tmp_path / "demo", "--json").out)
    losses = {row["model"]: row["log_loss"] for row in found["models"]}
    assert losses[RELATION] < losses[ALONE] < losses[SHUFFLED] < np.log(2)
    evidence = {row["model"]: row["log_evidence"] for row in found["models"]}
    assert evidence[RELATION] > evidence[SHUFFLED] > evidence[ALONE]


@pytest.mark.slow
def test_an_amplitude_held_at_nothing_is_no_relation() -> None:
    experiment = demo.prepare()
    data = experiment.data[RELATION]
    alone = replace(experiment, data={ALONE: data})
    held = demo.fit(alone).posteriors[ALONE]
    left_out = EP(xpgp).run(
        jax.random.key(0),
        data.without_relation("mode"),
        attribute_kernel=SquaredExponential(shared_lengthscale=True),
    )
    assert held.log_evidence == pytest.approx(left_out.log_evidence, abs=1e-2)
    np.testing.assert_allclose(held.mean(), left_out.mean(), atol=1e-2)
    np.testing.assert_allclose(held.sd(), left_out.sd(), rtol=1e-2)
