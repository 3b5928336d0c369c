"""The items' own parts: what attributes and relations do not say."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from numpyro import handlers

from relpref.data import PreferenceData, Relation
from relpref.diagnostics import calibrate, certify, check
from relpref.errors import DataError
from relpref.infer import EP, Laplace
from relpref.infer.large import fit as large_fit
from relpref.kernels import Precomputed
from relpref.models import preference_gp, xpgp
from relpref.report import write

LABELS = [f"e{row}" for row in range(10)]
AMPLITUDE = 1.3
FIXED = {"attributes_amplitude": 1.0, "attributes_lengthscale": 1.0, "attributes_linear_share": 0.5}
OWN = {"individual_amplitude": AMPLITUDE}


def answers(seed: int = 0, number: int = 24) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    utility = np.linspace(2, -2, len(LABELS))
    first = np.resize(np.arange(len(LABELS)), number)
    second = (first + rng.integers(1, len(LABELS), number)) % len(LABELS)
    wins = utility[first] - utility[second] + rng.standard_normal(number) > 0
    ends = np.where(wins, [first, second], [second, first])
    names = np.array(LABELS)
    return pd.DataFrame({"winner": names[ends[0]], "loser": names[ends[1]]})


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    return PreferenceData.from_tables(LABELS, answers())


def fit(data: PreferenceData, **options: Any) -> Any:
    options = {"fixed": {"individual_amplitude": AMPLITUDE}, **options}
    return EP(xpgp, **options).run(0, data)


@pytest.fixture(scope="module")
def posterior(data: PreferenceData) -> Any:
    return fit(data)


def prior_of_amplitude(program: Any, data: PreferenceData, **options: Any) -> float:
    """Scale of the prior of the items' own amplitude; all sites have values, so none is drawn."""
    values = {**FIXED, **OWN, "utility": np.zeros(data.num_items)}
    seeded = handlers.seed(handlers.substitute(program, data=values), rng_seed=0)
    prior = handlers.trace(seeded).get_trace(data, **options)["individual_amplitude"]["fn"]
    return float(prior.scale)


def twins(count: int = 50) -> PreferenceData:
    """Two items of equal attributes, one of which won all answers about the two."""
    items = pd.DataFrame({"x": [1.0, 1.0, 0.0, 2.0]}, index=list("abcd"))
    table = pd.DataFrame({"winner": ["a", "c"], "loser": ["b", "d"], "count": [count, 1]})
    return PreferenceData.from_tables(items, table)


def test_items_of_equal_attributes_are_told_apart() -> None:
    found: Any = EP(xpgp, hyperparameters="maximize").run(0, twins())
    row = found.prefer([("a", "b")]).iloc[0]
    assert row["probability"] > 0.85 and row["p_better"] > 0.95 and row["gap_sd"] > 0.1


@pytest.mark.parametrize("program", [xpgp, preference_gp])
def test_its_prior_is_wider_where_there_is_nothing_else(program: Any, data: PreferenceData) -> None:
    assert prior_of_amplitude(program, data) == 2.0
    assert prior_of_amplitude(program, twins()) == 1.0
    with pytest.raises(DataError, match=f"{program.__name__} with individual=False"):
        prior_of_amplitude(program, data, individual=False)


@pytest.mark.parametrize("engine", [EP, Laplace])
def test_labels_alone_are_thurstones_model(engine: Any, data: PreferenceData) -> None:
    """A covariance amplitude² I, given as a matrix, is the same model."""
    found, given = (
        engine(preference_gp, fixed={f"{part}_amplitude": AMPLITUDE}).run(0, data, **options)
        for part, options in (
            ("individual", {}),
            ("attributes", {"attribute_kernel": Precomputed(np.eye(10)), "individual": False}),
        )
    )
    assert_allclose(found.mean(), given.mean(), atol=1e-9)
    assert_allclose(found.covariance(), given.covariance(), atol=1e-9)
    assert found.log_evidence == pytest.approx(given.log_evidence, abs=1e-9)
    assert list(found.explain().columns) == ["individual", "mean", "share_individual"]


def test_a_table_of_answers_is_enough(posterior: Any, data: PreferenceData) -> None:
    alone = PreferenceData.from_tables(answers=answers())
    met = list(dict.fromkeys(answers().to_numpy().ravel()))
    assert list(alone.labels) == met  # in the order of the rows
    ours = fit(alone).ranking(ranks=False)
    pd.testing.assert_frame_equal(
        ours.sort_index(), posterior.ranking(ranks=False).sort_index(), atol=1e-8
    )


def test_relations_name_items_too() -> None:
    links = pd.DataFrame({"source": ["e0", "new"], "target": ["other", "e1"]})
    owners = pd.DataFrame({"source": ["e1", "owned"], "target": ["x", "x"]})
    relations = {"near": links, "owner": Relation(owners, kind="bipartite")}
    found = PreferenceData.from_tables(answers=answers(), relations=relations)
    assert set(found.labels) == {*LABELS, "new", "other", "owned"}
    assert found.relations["near"].num_edges == 2 and found.relations["owner"].num_edges == 1
    import scipy.sparse

    with pytest.raises(DataError, match="'near': a matrix names no items; give items"):
        PreferenceData.from_tables(
            answers=answers(), relations={"near": scipy.sparse.eye_array(10)}
        )
    with pytest.raises(DataError, match="items: there are none; give items, or answers"):
        PreferenceData.from_tables()
    with pytest.raises(DataError, match='"individual" stands for the items themselves; rename'):
        PreferenceData.from_tables(answers=answers(), relations={"individual": links})


def test_newcomers_get_its_prior_variance_and_no_covariance(posterior: Any) -> None:
    with pytest.warns(UserWarning, match="3 groups of items are tied together by no comparison"):
        larger = posterior.extend(["new", "newer"])
    covariance = larger.covariance()
    assert_allclose(covariance[10:, 10:], AMPLITUDE**2 * np.eye(2), atol=1e-12)
    assert_allclose(covariance[10:, :10], 0.0, atol=1e-12)
    assert_allclose(larger.mean()[10:], 0.0, atol=1e-12)
    assert_allclose(covariance[:10, :10], posterior.covariance(), atol=1e-8)


@pytest.mark.parametrize("most_touched", [8000, 3])
def test_it_is_a_diagonal_where_there_are_no_matrices(
    most_touched: int, posterior: Any, data: PreferenceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both fits: by the items that answers are about, and with a sparse precision."""
    monkeypatch.setattr(large_fit, "MAX_REDUCED_ITEMS", most_touched)
    found = fit(data, structure="sparse")
    assert (found.info["space"] == "sparse") == (most_touched == 3)
    assert_allclose(found.mean(), posterior.mean(), atol=1e-5)
    assert_allclose(found.covariance(), posterior.covariance(), atol=1e-5)
    with pytest.warns(UserWarning, match="2 groups"):
        larger = found.extend(["new"])
    assert larger.subset(["new", "e0"]).covariance()[1, 1] == pytest.approx(AMPLITUDE**2, abs=1e-6)
    some = found.subset(["e1", "e2", "e3"])
    assert_allclose(some.explain()["individual"], some.explain()["mean"], atol=1e-9)


@pytest.mark.slow
def test_it_is_calibrated_and_certified(posterior: Any, data: PreferenceData) -> None:
    assert calibrate(xpgp, data, simulations=200).verdict() == "calibrated"
    assert certify(posterior).verdict == "good"
    assert check(posterior).ok


def test_one_warning_names_a_pair_that_no_answer_tells_apart() -> None:
    with pytest.warns(
        UserWarning, match="'a' and 'b' were compared, but the prior has one utility"
    ) as told:
        found: Any = EP(xpgp, fixed=FIXED).run(0, twins(3), individual=False)
    assert len(told) == 1 and "individual=False" in found.info["equal_priors"]
    assert found.prefer([("a", "b")])["gap_sd"][0] == pytest.approx(0.0, abs=1e-6)
    assert "equal_priors" not in EP(xpgp, fixed=FIXED | OWN).run(0, twins(3)).info
    with pytest.warns(UserWarning, match="'a' and 'b' were compared"):
        EP(xpgp, fixed=FIXED, structure="sparse").run(0, twins(3), individual=False)


@pytest.mark.parametrize("structure", ["dense", "sparse"])
def test_explain_says_what_cannot_be_told_apart(
    structure: Any, tmp_path: Path, reloaded: Any
) -> None:
    links = pd.DataFrame({"source": LABELS[:-1], "target": LABELS[1:]})
    data = PreferenceData.from_tables(LABELS, answers(), {"near": links})
    known = {"near_amplitude": 1.0, "individual_amplitude": 0.7}
    short, far = (
        fit(data, fixed=known | {"near_range": reach}, structure=structure) for reach in (0.3, 2.0)
    )
    assert short.info["alike_parts"] == [["individual", "near"]] and "alike_parts" not in far.info
    far.explain()
    with pytest.warns(UserWarning, match="cannot tell the parts 'individual' and 'near' apart"):
        short.explain()
    again = reloaded(short)
    with pytest.warns(UserWarning, match="only their sum is known"):
        again.explain()
    write(short, tmp_path / "short.html")
    text = (tmp_path / "short.html").read_text()
    assert "cannot tell the items themselves from the relation near" in re.sub(r"<[^>]+>", "", text)
