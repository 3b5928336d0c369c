"""The chapters that the diagnostics fill: how far to trust, what surprises, what to ask next."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.diagnostics import Certificate, HeldOut, leave_one_out
from relpref.explore import ExpectedGain
from relpref.infer import EP, UtilityPosterior
from relpref.models import xpgp
from relpref.report.page import render
from relpref.report.trust import Checked, favorites


def held_out(chances: Any, outcome: Any, count: Any = None, *, paired: bool = True) -> HeldOut:
    chances, outcome = np.asarray(chances, dtype=float), np.asarray(outcome)
    probability = chances[np.arange(len(outcome)), outcome]
    table = pd.DataFrame({"probability": probability, "log_score": np.log(probability)})
    if count is not None:
        table["count"] = count
    return HeldOut(table, "leave-one-out", ("one note",), chances, outcome, paired)


@pytest.fixture
def prose(
    without_pictures: None, without_diagnostics: None, monkeypatch: pytest.MonkeyPatch, prose: Any
) -> Callable[..., str]:
    """The words of a page, with answers of diagnostics given by name."""

    def words(posterior: UtilityPosterior, **found: Any) -> str:
        for name, value in found.items():
            where = "subject" if name in ("next_pairs", "expected_gain") else "trust"
            monkeypatch.setattr(
                f"relpref.report.{where}.{name}", lambda *_, value=value, **__: value
            )
        return str(prose(posterior))

    return words


def test_favourites_count_every_answer_once() -> None:
    """Exchanging the two of a pair changes nothing; a tie is no hit; repeated answers are
    repeated.
    """
    held = held_out([[0.7, 0.1, 0.2], [0.2, 0.1, 0.7], [0.3, 0.4, 0.3]], [0, 0, 1], [2, 1, 1])
    found = favorites(held)
    assert found is not None
    predicted, right = found
    np.testing.assert_allclose(predicted, [0.7, 0.7, 0.7, 0.3])
    assert right.tolist() == [1, 1, 0, 0]
    swapped = favorites(held_out(held.chances[:, ::-1], 2 - held.outcome, [2, 1, 1]))
    assert swapped is not None
    np.testing.assert_array_equal(swapped[1], right)


@pytest.mark.parametrize(
    ("share", "words"), [(0.8, "are calibrated"), (0.5, "overconfident"), (1.0, "underconfident")]
)
def test_calibration_in_words(make: Any, prose: Any, share: float, words: str) -> None:
    number = 100
    outcome = np.where(np.arange(number) < share * number, 0, 2)
    text = prose(make(), leave_one_out=held_out(np.tile([0.8, 0.0, 0.2], (number, 1)), outcome))
    assert "come true in 80% ± 4% of the cases" in text and words in text
    assert f"they did in {100 * share:.0f}%" in text or share == 1
    assert "one note." in text and "Log loss" in text


def test_few_answers_have_no_picture(make: Any, prose: Any) -> None:
    held = held_out([[0.6, 0, 0.4]] * 5, [0] * 5)
    assert "5 answers are too few to say" in prose(make(), leave_one_out=held)


def test_certificate_and_raters(make: Any, prose: Any) -> None:
    table = pd.DataFrame(
        {"winner": list("abca"), "loser": list("bcdb"), "rater": ["ann", "<i>", "ann", "ann"]}
    )
    data = make().data.with_comparisons(table)
    raters = pd.DataFrame(
        {
            "answers": [3, 1],
            "log_loss": [0.4, 2.0],
            "expected": [0.5, 0.6],
            "sd": 0.1,
            "z": [-1.0, 14.0],
            "at_odds": [False, True],
        },
        index=pd.Index(["ann", "<i>"], name="rater"),
    )
    held = held_out([[0.6, 0, 0.4]] * 4, [0] * 4)
    text = prose(
        make(data),
        leave_one_out=held,
        raters=raters,
        certify=Certificate("good", "EP is certified"),
    )
    assert "EP is certified." in text
    assert "<i> is at odds with the others, more than chance explains." in text
    assert "at odds with the rest" in text and "as expected" in text


def test_certificates_in_plain_words(make: Any, prose: Any) -> None:
    table = pd.DataFrame({"shift": [0.02, -0.06], "sd_ratio": [0.97, 1.04]})
    weights: dict[str, Any] = {"k_hat": 0.3, "ess": 2000.0, "num_samples": 4000, "table": table}
    good = prose(make(), certify=Certificate("good", "k-hat 0.3", **weights))
    assert (
        "The approximation is accurate: no mean is off by more than 0.06 of a standard deviation, "
        "and intervals are 0.97 to "
        "1.04 times as wide as they should be. The check in detail k-hat 0.3."
    ) in good
    assert "was kept" not in good
    info = {**make().info, "held": ["attributes_lengthscale"]}
    held = prose(make(info=info), certify=Certificate("good", "k-hat 0.3", **weights))
    assert "That is at the values near which attributes_lengthscale was kept: where other" in held
    wrong = dict(
        weights, table=table.assign(shift=[0.02, -0.6], shift_error=0.01, sd_ratio_error=0.01)
    )
    text = prose(make(), certify=Certificate("doubtful", "k-hat 0.3", **wrong))
    assert "The approximation is not accurate: a mean is off by 0.60" in text
    assert "The intervals are not accurate; see “How far to trust it”." in text
    exact = prose(
        make(), certify=Certificate("exact", "Every draw has the same weight", num_samples=4000)
    )
    assert "Nothing was approximated: the result is exact" in exact and "Every draw" not in exact
    assert "There are no answers." in prose(
        make(), certify=Certificate("exact", "There are no answers")
    )


ERRORS = pd.DataFrame(
    {"shift": [0.05], "shift_error": 0.03, "sd_ratio": 1.02, "sd_ratio_error": 0.03}
)
UNDECIDED = {
    "No error of the approximation was found": Certificate(
        "undecided", "k-hat 0.5", k_hat=0.5, num_samples=4000, table=ERRORS
    ),
    "The accuracy of the approximation could not be determined": Certificate(
        "failed", "k-hat 8", k_hat=8.0, num_samples=4000
    ),
    "could not be determined": Certificate("undecided", "lists in groups"),
}


@pytest.mark.parametrize("words", UNDECIDED)
def test_what_is_undecided_is_folded(make: Any, read: Any, monkeypatch: Any, words: str) -> None:
    """One plain sentence in the chapter on trust, its details folded once more, and nothing of it
    on the front.
    """
    monkeypatch.setattr("relpref.report.trust.certify", lambda *_: UNDECIDED[words])
    page = render(make(), relations_evidence=False)
    front, _, details = page.partition('<div class="details"')
    for text in ("approximation", "accurate", "k-hat", "relpref check"):
        assert text not in front
    assert words in details
    plain, _, folded = details.partition('<details class="small">')
    assert "k-hat" not in plain and UNDECIDED[words].sentence in folded
    assert read(page).all("details").count({"class": "small"}) == 1


def test_hyperparameters_that_were_drawn_too_few_times(make: Any, prose: Any) -> None:
    failed = Certificate("failed", "R-hat 1.3", k_hat=0.3, num_samples=4000, table=ERRORS)
    text = prose(make(), certify=failed)
    assert "There are too few draws of the hyperparameters for a reliable result." in text
    assert (
        "not accurate" not in text and "too few or do not agree" in text.partition("All places")[0]
    )


def test_surprises(make: Any, prose: Any) -> None:
    data = make().data
    answers = data.comparisons.table(data.labels).head(4)
    answers["count"] = [1, 3, 1, 1]
    held = held_out(
        [[0.6, 0, 0.4], [0.03, 0, 0.97], [0.9, 0, 0.1], [0.2, 0, 0.8]], [0] * 4, [1, 3, 1, 1]
    )
    table = answers.assign(shift=[0.0, -0.8, 0.0, 0.3], item=["a", "a", "a", "b"])
    table = table.join(held.table[["probability", "log_score"]]).sort_values("log_score")
    text = prose(make(), leave_one_out=held, influence=table)
    # Outcomes with 3% (three times), 10% and 20% are under the bound: 0.39.
    assert (
        "Of 6 answers, 4 had a probability under 25% by all the others; about 0 would be expected"
        in text
    )
    first = answers.iloc[1]
    assert f"{first['winner']} over {first['loser']} 3 3% moves a by 0.80" in text
    assert "moves b by −0.30" in text and "strong" not in text.partition("Surprising answers 3")[2]


def test_surprises_among_ties_and_strengths(make: Any, prose: Any) -> None:
    """A tie and a side count, whatever the strength: of outcomes under the bound each is expected
    as often as it is probable.
    """
    table = pd.DataFrame(
        {
            "winner": list("abc"),
            "loser": list("bcd"),
            "tie": [False, True, False],
            "strength": [2, None, 1],
        }
    )
    data = make().data.with_comparisons(pd.concat([table] * 10))
    answers = data.comparisons.table(data.labels)
    strong = answers["strength"].fillna(0).argmax()
    chances = np.tile([0.65, 0.20, 0.15], (3, 1))
    held = held_out(chances, np.where(answers["tie"], 1, 0), answers["count"].to_numpy())
    log_score = np.where(np.arange(3) == strong, np.log(0.01), np.log(held.table["probability"]))
    table = answers.assign(
        log_score=log_score, probability=np.exp(log_score), shift=0.1, item="a"
    ).sort_values("log_score")
    text = prose(make(data), leave_one_out=held, influence=table)
    # The strong answer favours a side of 65% and surprises nobody; 30 · (0.20 + 0.15) = 10.5, 10 in
    # even rounding.
    assert (
        "Of 30 answers, 10 had a probability under 25% by all the others; about 10 would be "
        "expected" in text
    )
    assert "b equal to c 10 20% moves" in text and "over b" not in text
    assert "of this preference, however strong" in text


def test_surprises_among_reported_probabilities(make: Any, prose: Any) -> None:
    answers = pd.DataFrame(
        {"first": list("abc"), "second": list("bcd"), "probability": [0.8, 0.5, 0.125]}
    )
    data = make().data.with_comparisons(answers)
    table = answers.rename(columns={"probability": "reported"}).assign(
        probability=[1.7, 0.2, 0.04], log_score=np.log([1.7, 0.2, 0.04]), shift=0.1, item="a"
    )
    held = held_out(np.full((3, 3), np.nan), [0, 0, 0])
    held = replace(
        held, outcome=np.full(3, -1), table=held.table.assign(log_score=table["log_score"])
    )
    text = prose(make(data), leave_one_out=held, influence=table.sort_values("log_score"))
    assert "Answer Density Weight c over d with 12.5% 0.04 moves a by −0.10" in text
    assert "Density: predictive density" in text and "Probability: of" not in text


def test_right_to_left_names_keep_winner_and_loser(make: Any, prose: Any, tables: Any) -> None:
    """A cell that takes its direction from its first letter would show the loser first."""
    data = tables([*"שדגכעיח", "last"])
    table = data.comparisons.table(data.labels).head(1)
    table = table.assign(probability=0.03, log_score=np.log(0.03), shift=-0.8, item="ש")
    posterior = make(data)
    prose(posterior, leave_one_out=held_out([[0.03, 0, 0.97]], [0]), influence=table)
    page = render(posterior, relations_evidence=False)
    one, other = table.iloc[0][["winner", "loser"]]
    assert f'<bdi dir="ltr">\u2068{one}\u2069 over \u2068{other}\u2069</bdi>' in page
    assert f"<bdi>{one}</bdi>" in page


def test_next_questions(make: Any, prose: Any) -> None:
    pairs = pd.DataFrame([{"first": "a", "second": "h", "probability": 0.99}])
    pairs = pairs.assign(score=0.1, gap_mean=-0.2, gap_sd=0.5)
    certain = prose(make(), next_pairs=pairs, expected_gain=ExpectedGain(10, 0.2, 0.1))
    assert "almost certain; no other question would tell more" in certain
    none = prose(make(), next_pairs=pairs.head(0), expected_gain=ExpectedGain(0, 0.2, 0.2))
    assert "no new pair is left" in none and "The most informative" not in none


@pytest.mark.filterwarnings("ignore::relpref.infer.InferenceWarning")
def test_what_is_not_known_says_why(make: Any, prose: Any) -> None:
    text = prose(make())
    assert "No answers were left out and predicted: it was made by hand." in text
    assert "The approximation was not certified: it was made by hand." in text
    bad = prose(make(info={**make().info, "result": "max_iterations"}))
    assert "No answers were left out and predicted: the computation did not converge." in bad
    assert "What to ask next" not in bad


def test_items_of_which_the_answers_say_little(
    make: Any, prose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior = make()
    sd = posterior.belief.centred().sd()
    prior = np.where(np.arange(8) == 2, 1.05, 3.0) * sd
    monkeypatch.setattr("relpref.report.trust.Checked.prior_sd", prior)
    assert "The answers say little about c: over 90% of the prior uncertainty" in prose(posterior)


def test_densities_are_no_probabilities(make: Any, prose: Any) -> None:
    table = pd.DataFrame({"probability": [2.0, 3.0], "log_score": np.log([2.0, 3.0])})
    held = HeldOut(table, "leave-one-out", (), np.full((2, 3), np.nan), np.full(2, -1))
    text = prose(make(), leave_one_out=held)
    assert "Log density 0.896" in text and "no value of guessing" in text
    assert "Log loss" not in text and "perfect" not in text


def test_ties_in_accuracy_and_among_favorites(make: Any, prose: Any) -> None:
    held = held_out([[0.6, 0.2, 0.2]] * 40, [0] * 30 + [1] * 10)
    text = prose(make(), leave_one_out=held)
    assert "ties aside" in text and "a tie counts as a favorite that failed" in text
    without = prose(make(), leave_one_out=held_out([[0.6, 0, 0.4]] * 40, [0] * 40))
    assert "ties aside" not in without and "a tie counts" not in without


def test_lists_have_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relpref.report.trust.leave_one_out", leave_one_out)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(list("abcd"))[:3] for _ in range(6)]
    table = pd.DataFrame(
        [
            (k, item, place + 1)
            for k, order in enumerate(orders)
            for place, item in enumerate(order)
        ],
        columns=["list", "item", "place"],
    )
    data = PreferenceData.from_tables(answers=table)
    posterior = EP(xpgp, fixed={"individual_amplitude": 1.0}, check=False).run(0, data)
    assert Checked(posterior).facts()["density"] is False


@pytest.mark.parametrize(
    ("lists", "shown", "number"), [(4, 3, 4000), (100, 8, None), (20, 4, None), (40, 6, 678)]
)
def test_long_lists_are_certified_by_fewer_draws_or_not_at_all(
    make: Any, monkeypatch: pytest.MonkeyPatch, lists: int, shown: int, number: int | None
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("relpref.report.trust.certify", lambda _, number: asked.append(number))
    rng = np.random.default_rng(0)
    orders = [rng.permutation(list("abcdefgh"))[:shown] for _ in range(lists)]
    middle = [2] * (shown - 2)
    places = {3: [1, 2, 3], 4: [1, *middle, 3], 6: [*range(1, 7)], 8: [1, *middle, 3]}[shown]
    columns = ["list", "item", "place"]
    rows = [(k, *row) for k, order in enumerate(orders) for row in zip(order, places, strict=True)]
    table = pd.DataFrame(rows, columns=columns)
    checked = Checked(make(PreferenceData.from_tables(answers=table)))
    assert checked.certificate is None
    assert asked == ([number] if number else [])
    assert number or "lists that takes long; relpref check" in checked.why["certificate"]
