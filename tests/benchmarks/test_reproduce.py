"""The parts of the experiments: a wrong judge or a wrong resumption would make every table of
theirs wrong.
"""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score

from benchmarks.reproduce import __main__ as command
from benchmarks.reproduce import models, results, svm, work
from benchmarks.reproduce.kernel import SquaredExponentialOfDistances
from benchmarks.reproduce.problem import Problem, distances, quality
from benchmarks.reproduce.protocol import Protocol, Source
from benchmarks.reproduce.rows import Row
from relpref import PreferenceData
from relpref.data_loaders.letor import pairs_of
from relpref.errors import InferenceError
from relpref.kernels import SquaredExponential

SIZE = 12


def toy(source: Source, query: int) -> dict[str, Problem]:
    """Twelve documents on a line, the more relevant the further right, with exceptions, and a chain
    of links.
    """
    labels = [f"d{number}" for number in range(SIZE)]
    values = np.linspace(-1, 1, SIZE)[:, None] + 0.01 * query
    relevance = pd.Series([0, 0, 1, 0, 1, 0, 2, 1, 2, 1, 2, 2], index=labels)
    chain = pd.DataFrame({"source": labels[:-1], "target": labels[1:]})
    data = PreferenceData.from_tables(
        pd.DataFrame({"x": values[:, 0]}, index=labels), pairs_of(relevance), {"next": chain}
    )
    return {"toy": Problem(data, distances(values))}


TOY = Protocol("toy", "A toy", (6, 10), toy, queries=2, reruns=3)


def test_quality_is_that_of_pairs_in_both_orders() -> None:
    scores = np.array([0.3, -0.1, 0.0, 2.0, 0.3, -0.3, 0.0])
    both = np.concatenate([scores, -scores])
    true = np.repeat([1, 0], scores.size)
    found = quality(scores)
    assert found.auc == pytest.approx(roc_auc_score(true, both))
    assert found.error == pytest.approx(3 / 7)
    assert np.isnan(quality(np.array([np.nan, 1.0])).error)


def test_known_and_remaining_pairs_are_all_pairs() -> None:
    problem = toy(Source(), 0)["toy"]
    known, remaining = problem.draw(10, (1, 2))
    assert len(known) == 10
    assert sorted([*known, *remaining]) == list(range(problem.data.num_comparisons))
    assert np.array_equal(problem.draw(10, (1, 2))[0], known)
    assert not np.array_equal(problem.draw(10, (1, 3))[0], known)


def test_a_shuffled_problem_keeps_everything_but_the_place_of_the_graph() -> None:
    problem = toy(Source(), 0)["toy"]
    other = problem.shuffled
    assert other.data.labels == problem.data.labels
    assert np.array_equal(other.data.winner, problem.data.winner)
    graph, moved = (one.data.relations["next"].adjacency().toarray() for one in (problem, other))
    assert not np.array_equal(graph, moved)
    assert_allclose(np.linalg.eigvalsh(moved), np.linalg.eigvalsh(graph), atol=1e-12)


def test_the_kernel_of_distances_is_the_packages_own() -> None:
    values = np.random.default_rng(0).standard_normal((9, 3)) * [1, 5, 0.2]
    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    with jax.enable_x64(True):
        attributes = jax.numpy.asarray(standard)
        ours = SquaredExponentialOfDistances(distances(standard))(
            attributes, lengthscale=jax.numpy.asarray(0.7)
        )
        theirs = SquaredExponential(shared_lengthscale=True)(
            attributes, lengthscale=0.7 * np.sqrt(3)
        )
        assert_allclose(ours.dense(), theirs.dense(), atol=1e-12)


def test_the_ranking_svm_learns_an_order_and_does_not_mind_swapped_columns() -> None:
    problem = toy(Source(), 0)["toy"]
    pairs = np.stack([problem.data.winner, problem.data.loser], axis=1)
    known = np.random.default_rng(0).permutation(pairs)[:20]
    scores = svm.fit(problem.distances, known)
    assert np.mean(scores[pairs[:, 0]] > scores[pairs[:, 1]]) > 0.8
    assert_allclose(svm.fit(problem.distances, known[:, ::-1]), -scores, atol=1e-6)


def rows_of(errors: dict[str, list[list[float]]]) -> pd.DataFrame:
    """Rows of one size from errors by model, query and rerun."""
    return pd.DataFrame(
        [
            ("toy", "toy", query, 6, rerun, model, error, 1 - error, "converged")
            for model, queries in errors.items()
            for query, reruns in enumerate(queries)
            for rerun, error in enumerate(reruns)
        ],
        columns=[*work.KEY, "error", "auc", "result"],
    )


def test_summary() -> None:
    rng = np.random.default_rng(0)
    baseline = rng.uniform(0.2, 0.4, (10, 3))
    better = baseline * rng.uniform(0.4, 0.6, (10, 3))
    errors = {"pgp": baseline, "xpgp_laplacian": better, "xpgp_shuffled": 2 * better}
    lines = results.summary(rows_of({name: mine.tolist() for name, mine in errors.items()}))
    assert list(lines["model"]) == list(errors)
    first, second, control = lines.to_dict("records")
    assert first["error"] == pytest.approx(baseline.mean())
    assert second["control_saved"] == pytest.approx(0.5)
    assert np.isnan(first["saved"]) and np.isnan(control["control_saved"])
    assert second["saved"] == pytest.approx(1 - better.mean() / baseline.mean())
    assert second["signed_rank"] == pytest.approx(2 / 2**10)  # all ten queries agree
    assert second["rank_sum"] < 1e-4
    text = results.markdown(lines)
    assert f"{baseline.mean():.3f} ± {baseline.std(ddof=1):.3f}" in text and "< 0.0001" in text


def test_only_what_is_missing_is_computed(tmp_path: Path) -> None:
    kept = results.Results(tmp_path / "rows.csv")
    assert kept.done() == set()
    assert [item.reruns for item in work.items(TOY, Source(), set())] == [(0, 1, 2)] * 4
    complete = rows_of({model: [[0.1, 0.2]] for model in models.MODELS})
    kept.add(complete.to_dict("records"))
    kept.add(
        rows_of({"pgp": [[0.1], [0.3]]}).to_dict("records")
    )  # of the second query one model only
    again = results.Results(tmp_path / "rows.csv")
    assert again.done() == {("toy", 0, 6, 0), ("toy", 0, 6, 1)}
    left = {
        (item.query, item.size): item.reruns for item in work.items(TOY, Source(), again.done())
    }
    assert left == {(0, 6): (2,), (1, 6): (0, 1, 2), (0, 10): (0, 1, 2), (1, 10): (0, 1, 2)}
    assert len(again.rows) == 2 * len(models.MODELS) + 1


@pytest.fixture
def toy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: models.MODELS[name] for name in ("pgp", "svm")}
    for module in (models, results, work):
        monkeypatch.setattr(module, "MODELS", few)
    for module in (work, command):
        monkeypatch.setattr(module, "PROTOCOLS", {"toy": TOY})


@pytest.mark.usefixtures("toy_only")
def test_the_command_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    computed: list[work.Item] = []

    def compute(item: work.Item) -> list[Row]:
        computed.append(item)
        if len(computed) == 2:
            raise InferenceError("stopped by the test", None)
        return work.compute(item)

    one = replace(TOY, sizes=(6,))
    monkeypatch.setattr(command, "PROTOCOLS", {"toy": one})
    monkeypatch.setattr(command, "compute", compute)
    monkeypatch.setattr("sys.argv", ["reproduce", "toy", "--out", str(tmp_path)])
    assert command.main() == 2
    assert "stopped by the test" in capsys.readouterr().err
    assert command.main() == 0
    assert [(item.query, len(item.reruns)) for item in computed] == [(0, 3), (1, 3), (1, 3)]
    assert command.main() == 0
    assert len(computed) == 3

    rows = pd.read_csv(tmp_path / "toy.csv")
    assert len(rows) == 2 * 3 * 2 and (rows["result"] == "converged").all()
    assert rows["error"].between(0, 0.5).all()
    assert (tmp_path / "toy.svg").exists() and (tmp_path / "toy_summary.csv").exists()
    assert "| toy | 6 | PGP |" in capsys.readouterr().out
