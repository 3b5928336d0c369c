"""Quick updates where answers have covariates and groups, against full ones."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.infer import EP, Laplace
from relpref.models import preference_gp
from relpref.posterior.quick import settled

ITEMS = [f"i{row}" for row in range(8)]
FIXED = {"individual_amplitude": 1.0, "effect_scale": 0.7, "group_sd": 0.9}


def votes(number: int, seed: int) -> pd.DataFrame:
    """One to three on each question, which has two or three items."""
    rng, rows = np.random.default_rng(seed), []
    for question in range(number):
        few = rng.choice(8, 3, replace=False)
        for _ in range(rng.integers(1, 4)):
            first, second = rng.choice(few, 2, replace=False)
            home = [None, f"i{first}", f"i{second}"][rng.integers(3)]
            lengths = rng.uniform(20, 90, 2)
            named = question if question % 4 else None
            rows.append((f"i{min(first, second)}", f"i{max(first, second)}", named, home, *lengths))
    return pd.DataFrame(
        rows, columns=["winner", "loser", "group", "home", "length_winner", "length_loser"]
    )


def fit(engine: Any = EP, fixed: Any = FIXED, **options: Any) -> Any:
    items = pd.DataFrame(index=pd.Index(ITEMS, name="item"))
    data = PreferenceData.from_tables(items, votes(14, 0), covariates=["home", "length"])
    return engine(preference_gp, fixed=fixed, check=False, **options).run(0, data)


@pytest.fixture(scope="module")
def posterior() -> Any:
    return fit()


def new(
    winner: str, loser: str, group: Any = "new", home: Any = None, length: float = 50.0
) -> pd.DataFrame:
    columns = {"winner": [winner], "loser": [loser], "group": [group], "home": [home]}
    return pd.DataFrame({**columns, "length_winner": [length], "length_loser": [50.0]})


def off(one: Any, other: Any) -> float:
    """Largest difference of means of effects and centered utilities, in sds, or of their sds,
    relative.
    """
    both = [
        np.concatenate([each.effects[["mean", "sd"]], each.reported()]) for each in (one, other)
    ]
    return float(np.abs((both[0] - both[1]) / both[1][:, 1:]).max())


def estimate(posterior: Any, effects: int = 0) -> float:
    """The error of a posterior of one Gaussian, by one more sweep."""
    known = {name: np.asarray(value)[None] for name, value in posterior.hyperparameters.items()}
    sites = np.stack([posterior.sites[name] for name in ("precision", "shift")])[:, None]
    given = posterior.data.comparisons, sites, posterior.full
    return settled(posterior.likelihood, known, *given, effects=effects)[2]


@pytest.mark.parametrize(
    "answer",
    [new("i5", "i1", home="i1"), new("i5", "i1", None, "i5", 150.0)],
    ids=["home", "long"],
)
def test_one_answer_is_near_the_full_update_and_undone_nearly(
    answer: pd.DataFrame, posterior: Any
) -> None:
    quickly, full = posterior.update(answer, quick=np.inf), posterior.update(answer)
    assert quickly.quick_answers == 1
    assert off(quickly, full) < 0.15 * off(posterior, full)
    back = quickly.update(withdraw=answer, quick=np.inf)
    assert back.quick_answers == 2 and off(back, posterior) < 0.02
    assert off(quickly.update(), full) < 1e-5


def test_the_error_is_estimated(posterior: Any) -> None:
    assert estimate(posterior, effects=2) < 1e-5
    found = posterior
    for at, answer in enumerate(
        (new("i7", "i0"), new("i7", "i1", None), new("i6", "i0", "other", "i0", 90.0))
    ):
        found = found.update(answer, quick=np.inf)
        error = off(found, found.update())
        assert 0.5 * error < found.info["quick_error"] < 4 * error, at
    assert error > 0.01  # or nothing was estimated
    assert found.update(new("i7", "i2", "more"), quick=1e-6).quick_answers == 0


def test_answers_of_one_group_are_learned_in_full(posterior: Any) -> None:
    found = posterior.update(new("i5", "i1", "x"), quick=np.inf)
    assert found.quick_answers == 1
    again = found.update(new("i1", "i5", "x"), quick=np.inf)
    assert again.quick_answers == 0 and off(again, again.update()) < 1e-5
    assert again.update(withdraw=new("i1", "i5", "x"), quick=np.inf).quick_answers == 0
    two = new("i5", "i1", "x").assign(count=2)
    assert posterior.update(two, quick=np.inf).quick_answers == 0


def test_groups_by_laplace_and_mixtures() -> None:
    laplace = fit(Laplace)
    answer = new("i5", "i1", home="i1")
    quickly, full = laplace.update(answer, quick=np.inf), laplace.update(answer)
    assert quickly.quick_answers == 1 and off(quickly, full) < 0.3 * off(laplace, full)
    mixture = fit(fixed={"individual_amplitude": 1.0})
    assert len(mixture.belief.weights) > 1
    quickly, full = mixture.update(answer, quick=np.inf), mixture.update(answer)
    assert quickly.quick_answers == 1 and off(quickly, full) < 0.15 * off(mixture, full)
    assert quickly.log_evidence == pytest.approx(full.log_evidence, abs=0.05)
    np.testing.assert_allclose(quickly.belief.weights, full.belief.weights, atol=0.01)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_pair_beside_lists(grouped: bool) -> None:
    rng = np.random.default_rng(3)
    rows: list[tuple[Any, ...]] = []
    for number in range(8):
        few = rng.permutation(8)[: 3 + number % 3]
        judge = ("ann", "ben")[number % 2]
        rows += [
            (number, f"i{item}", place, number // 3, judge) for place, item in enumerate(few, 1)
        ]
    rows += [(99, "i0", 1, None, "ann"), (99, "i3", 2, None, "ann")]
    table = pd.DataFrame(rows, columns=["list", "item", "place", "group", "rater"])
    fixed = {"individual_amplitude": 1.0, "rater_noise": 1.0, "rater_spread": 0.3}
    if grouped:
        fixed["group_sd"] = 0.8
    else:
        table = table.drop(columns="group")
    items = pd.DataFrame(index=pd.Index(ITEMS, name="item"))
    engine = EP(preference_gp, fixed=fixed, check=False)
    posterior: Any = engine.run(0, PreferenceData.from_tables(items, table))
    assert estimate(posterior) < 1e-5
    answer = pd.DataFrame({"winner": ["i6"], "loser": ["i2"], "rater": ["ben"]})
    answer = answer.assign(group="new") if grouped else answer
    quickly, full = posterior.update(answer, quick=np.inf), posterior.update(answer)
    assert quickly.quick_answers == 1
    error, moved = off(quickly, full), off(posterior, full)
    assert error < 0.2 * moved and 0.4 * error < quickly.info["quick_error"] < 4 * error
    back = quickly.update(withdraw=answer, quick=np.inf)
    assert back.quick_answers == 2 and off(back, posterior) < 0.02
    more = table.iloc[:3]
    assert posterior.update(more, quick=np.inf).quick_answers == 0
