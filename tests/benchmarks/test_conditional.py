"""The experiments on conditional ranking: resumption, judges and tables, on small versions of
them.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from benchmarks.reproduce import suite
from benchmarks.reproduce.conditional import digits, early_stopping, games, newsgroups, scaling
from benchmarks.reproduce.conditional.__main__ import SUITE
from benchmarks.reproduce.conditional.experiments import EXPERIMENTS
from benchmarks.reproduce.rows import Rows
from relpref.data_loaders import RockPaperScissors, play_rock_paper_scissors
from relpref.rls import ConditionalRanker, per_node, ranking_error


def test_finished_pieces_are_not_computed_again(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["rock-paper-scissors"]
    kept = Rows(tmp_path / "rows.csv", experiment.key)
    assert experiment.left(kept.rows, quick=True) == experiment.parts(True)
    kept.add(
        [{"weight": 10, "repetition": 3, "method": name, "error": 0.1} for name in games.METHODS]
    )
    again = Rows(tmp_path / "rows.csv", experiment.key)
    left = experiment.left(again.rows, quick=True)
    assert (10, 3) not in left and len(left) == len(experiment.parts(True)) - 1
    again.add([{"weight": 10, "repetition": 3, "method": "RLS", "error": 0.2}])
    assert len(again.rows) == len(games.METHODS)
    assert again.rows.set_index("method")["error"]["RLS"] == 0.2


def test_every_method_learns_the_game() -> None:
    drawn = play_rock_paper_scissors(100, seed=1)
    relation = drawn.test_relation.to_numpy()
    errors = {
        name: per_node(ranking_error, relation, method(drawn)).mean
        for name, method in games.METHODS.items()
    }
    assert max(errors.values()) < 0.02, errors
    # Every game is there in both directions, so that regression is reciprocal by itself (Pahikkala
    # et al. 2013, Prop. 4.7).
    plain, reciprocal = (games.METHODS[name](drawn) for name in ("RLS", "RLS, reciprocal"))
    assert_allclose(plain, reciprocal, atol=1e-3 * np.abs(plain).max())


def test_the_ranking_svm_separates_what_can_be_separated() -> None:
    # Players of one move each: whatever beats scissors beats all of them, so every training pair
    # can be ordered.
    moves = ["rock", "paper", "scissors"]
    players = pd.DataFrame(np.eye(3), moves, moves)
    played = pd.DataFrame({"source": moves, "target": np.roll(moves, 1), "value": 1.0})
    drawn = RockPaperScissors(players, played, players, players)
    for name in ("ranking SVM", "ranking SVM, reciprocal"):
        scores = games.METHODS[name](drawn)
        for move in range(3):
            assert scores[move, move - 1] > scores[move, move - 2]


def test_a_table_of_games_names_the_better_one() -> None:
    rows = [
        {
            "weight": weight,
            "repetition": repetition,
            "method": name,
            "error": 0.1 + 0.01 * at + 1e-4 * repetition * at,
        }
        for weight in games.WEIGHTS
        for repetition in range(8)
        for at, name in enumerate(games.METHODS)
    ]
    text = games.markdown(pd.DataFrame(rows))
    assert (
        "| 10 | RankRLS | 0.1207 |" in text
        and "worse, p = 0.0078" in text
        and "8 repetitions" in text
    )


def test_halves_cover_all_groups() -> None:
    for groups in (newsgroups.SET_1, newsgroups.SET_2):
        for trained, held_out in newsgroups.halves(groups):
            assert sorted([*trained, *held_out]) == sorted(groups) and len(trained) >= 2 <= len(
                held_out
            )


def test_an_experiment_prints_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(games, "QUICK_REPETITIONS", 2)
    arguments = ["x", "rock-paper-scissors", "--quick", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    assert SUITE.main() == 0
    printed = capsys.readouterr().out
    assert "2 repetitions of each" in printed and "| 100 | RankRLS |" in printed

    def refuse(item: suite.Item) -> None:
        raise AssertionError(item)

    monkeypatch.setattr(suite, "compute", refuse)
    assert SUITE.main() == 0  # nothing is left


def run_small(name: str, folder: Path) -> pd.DataFrame:
    """All pieces of the small version of an experiment, with its table and figure."""
    experiment = EXPERIMENTS[name]
    rows = Rows(folder / "rows.csv", experiment.key)
    for part in experiment.parts(True):
        rows.add(suite.compute(suite.Item(SUITE, name, part, True)))
    assert not experiment.left(rows.rows, quick=True)
    assert "ranking" in experiment.markdown(rows.rows)
    assert suite.draw(experiment, rows, folder / name) is None or (folder / f"{name}.svg").exists()
    return rows.rows


def test_errors_that_rounding_decides_are_ranges() -> None:
    """Three rows of the table moved by a third when it was made again."""
    runs = early_stopping.SOLVERS, early_stopping.LOSSES, early_stopping.EDGES
    rows = pd.MultiIndex.from_product(
        [*runs, [5, 10, 20, 40], [0, 1]], names=early_stopping.EXPERIMENT.key
    ).to_frame(index=False)
    moved = (rows["solver"] == "conjugate gradients") & (rows["iteration"] == 20)
    rows["error"] = 0.25 + rows["order"] * np.where(moved, 0.1, 1e-4)
    rows[[*early_stopping.RESIDUALS]] = 0.5
    text = early_stopping.markdown(rows)
    assert text.count("| 0.250 | 0.250 to 0.350 | 0.250 to 0.250 |") == 4
    assert text.count("| 0.250 | 0.250 | 0.250 | 0.50 |") == 8


@pytest.mark.parametrize("symmetry", early_stopping.EDGES)
@pytest.mark.parametrize("loss", early_stopping.LOSSES)
def test_bicgstab_stabilizes_conjugate_gradients(loss: str, symmetry: str) -> None:
    drawn = np.random.default_rng(0).standard_normal((2, 9, 9))
    kernel, relation = drawn @ drawn.mT
    system = early_stopping.System(
        newsgroups.Task(kernel, kernel, kernel, relation, relation), loss, symmetry
    )
    scores = []
    system.stabilized(1, lambda _, dual: scores.append(system.product(dual)))
    problem = ConditionalRanker("precomputed", loss=loss, symmetry=symmetry).problem(
        kernel, relation
    )
    expected = system.centred(system.product(problem.iterate(0.0, max_iterations=1)[1].solution))
    residual = system.labels - expected
    image = system.product(residual)
    expected += np.vdot(image, residual) / np.vdot(image, image) * image
    assert_allclose(scores, [expected])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["newsgroups", "early-stopping"])
def test_newsgroups_are_ranked_better_than_by_chance(
    name: str, real_data: Path, tmp_path: Path
) -> None:
    errors = run_small(name, tmp_path)["error"]
    assert errors.between(0, 1).all() and errors.mean() < 0.4


def test_drugs_and_targets(real_data: Path, tmp_path: Path) -> None:
    found = run_small("drug-target", tmp_path).set_index(["setting", "loss", "regularization"])[
        "auc"
    ]
    assert found.drop("1, control", level="setting").between(0.5, 1).all()
    assert found["1", "regression", 1.0] > found["4", "regression", 1.0] > 0.7
    # Comparing predictions of different models orders backwards.
    assert (found["1, control"] < found["1"]).all()


def test_digits_that_are_known_are_found_better_than_by_the_kernel_alone(tmp_path: Path) -> None:
    errors = run_small("digits", tmp_path).set_index(["test", "method"])["error"]
    assert errors["known digits", "ranking"] < errors["known digits", digits.CONTROL]


def test_times_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "QUICK_SIZES", (20, 30))
    monkeypatch.setattr(scaling, "LARGEST", {"ranking SVM": 20})
    rows = run_small("scaling", tmp_path).set_index(["size", "method"])["seconds"]
    assert (rows > 0).all() and (20, "ranking SVM") in rows and (30, "ranking SVM") not in rows
