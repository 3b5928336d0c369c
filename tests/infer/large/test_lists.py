"""Lists among many items: what EP finds without a matrix of them is what it finds with one."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.diagnostics import leave_one_out
from relpref.errors import UnsupportedProgramError
from relpref.infer import EP, Laplace
from relpref.infer.large import fit as large_fit
from relpref.infer.large.sparse_ep import fit as sparse_ep
from relpref.models import preference_gp, xpgp

ITEMS = 40
FIXED = {"cites_amplitude": 0.8, "cites_range": 0.7, "individual_amplitude": 0.6}


def make(number: int, items: int = ITEMS, seed: int = 0) -> PreferenceData:
    """Orders, choices, ties, best and worst of four or fewer, pairs, and a ring of links."""
    rng, rows = np.random.default_rng(seed), []
    labels = [f"i{at}" for at in range(items)]
    for at in range(number):
        places = [(1, 2, 3, 4), (1, 2, 2, 2), (1, 2, 2, 3), (1, 1, 2), (1, 2)][at % 5]
        chosen = rng.choice(items, len(places), replace=False)
        rows += [(at, labels[item], place) for item, place in zip(chosen, places, strict=True)]
    answers = pd.DataFrame(rows, columns=["list", "item", "place"])
    ring = pd.DataFrame({"source": labels, "target": [*labels[1:], labels[0]]})
    return PreferenceData.from_tables(labels, answers, {"cites": ring})


def fit(data: PreferenceData, structure: Any, **options: Any) -> Any:
    options = {"fixed": FIXED, "tol": 1e-10, **options}
    return EP(xpgp, structure=structure, **options).run(0, data)


def agree(one: Any, other: Any) -> None:
    assert one.mean() == pytest.approx(other.mean(), abs=1e-8)
    assert one.covariance() == pytest.approx(other.covariance(), abs=1e-8)
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-8)


@pytest.mark.parametrize(("number", "space"), [(2, "observation"), (40, "latent")])
def test_items_of_answers_alone(number: int, space: str) -> None:
    data = make(number)
    found = fit(data, "sparse")
    assert found.info["space"] == space
    agree(found, fit(data, "dense"))


def test_by_a_sparse_precision(monkeypatch: pytest.MonkeyPatch, reloaded: Any) -> None:
    data = make(40)
    monkeypatch.setattr(large_fit, "MAX_REDUCED_ITEMS", 0)
    monkeypatch.setattr(large_fit, "_TOLERANCE", 1e-10)
    found, dense = fit(data, "sparse"), fit(data, "dense")
    assert found.info["variances"] == "factorised"
    agree(found, dense)
    agree(reloaded(found), dense)
    scores = [leave_one_out(one).table["log_score"].to_numpy() for one in (found, dense)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_by_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of four standard errors."""
    data = make(60)
    monkeypatch.setattr(large_fit, "MAX_REDUCED_ITEMS", 0)
    monkeypatch.setattr(
        large_fit, "fit_sparse", lambda *args, **options: sparse_ep(*args, sampled=True, **options)
    )
    found, dense = fit(data, "sparse"), fit(data, "dense")
    assert found.info["variances"] == "sampled"
    assert np.abs(found.mean() - dense.mean()).max() < min(4 * found.info["mean_error"], 0.05)
    assert abs(found.log_evidence - dense.log_evidence) < 4 * found.info["log_evidence_error"] < 4


def test_a_search_takes_lists_whole() -> None:
    data = make(15)
    fixed = {name: value for name, value in FIXED.items() if name != "cites_range"}
    options: dict[str, Any] = {"fixed": fixed, "hyperparameters": "maximize", "tol": 1e-6}
    found, dense = fit(data, "sparse", **options), fit(data, "dense", **options)
    assert found.info["searched_answers"] == data.num_answers
    assert found.log_evidence == pytest.approx(dense.log_evidence, abs=0.05)


def test_laplace_is_refused() -> None:
    with pytest.raises(UnsupportedProgramError, match="fit with EP"):
        Laplace(xpgp, structure="sparse", fixed=FIXED).run(0, make(10))


@pytest.mark.slow
def test_three_thousand_choices_among_five_thousand_items() -> None:
    rng = np.random.default_rng(0)
    utility = rng.normal(size=5000)
    chosen = np.argsort(rng.random((3000, 5000)), axis=1)[:, :4]
    seen = utility[chosen] + np.sqrt(0.5) * rng.normal(size=chosen.shape)
    first = np.argmax(seen, axis=1)
    answers = pd.DataFrame(
        {
            "list": np.repeat(np.arange(3000), 4),
            "item": chosen.ravel(),
            "place": np.where(np.arange(4) == first[:, None], 1, 2).ravel(),
        }
    )
    data = PreferenceData.from_tables(list(range(5000)), answers)
    with pytest.warns(
        UserWarning, match=r"groups of items are tied together by no comparison"
    ):  # some are in no list
        found: Any = EP(preference_gp, fixed={"individual_amplitude": 1.0}).run(0, data)
    assert found.info["structure"] == "sparse"
    assert np.corrcoef(found.mean(), utility)[0, 1] > 0.5
