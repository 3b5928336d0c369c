"""What answers bring that a fit has not seen: a rater, a group, a strength or an item, where
hyperparameters are averaged over.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from pandas.testing import assert_frame_equal

import relpref
from relpref import diagnostics, explore
from relpref.likelihoods import Probit

PAIRS = ["ab", "bc", "ac", "cd", "ad", "bd", "ab", "dc"]
# Columns of the answers so far, and of the new one; some scales are held, for fewer values of the
# others.
NEW: dict[str, tuple[dict[str, list[Any]], dict[str, Any], dict[str, Any]]] = {
    "margins": (
        {"tie": [True, False]},
        {"tie": True},
        {
            "likelihood": Probit(margins="rater"),
            "fixed": {"tie_margin": 0.5, "rater_margin_spread": 0.3},
        },
    ),
    "strengths and groups": (
        {"strength": [1, 1, 2], "group": list("ghij")},
        {"strength": 3, "group": "new"},
        {"fixed": {"group_sd": 0.5}},
    ),
}
ASK = [("a", "b"), ("a", "c"), ("b", "d")]


class Case(NamedTuple):
    """A posterior before an answer by somebody new, after it, after it from a file, and after a full
    update.
    """

    before: Any
    quick: Any
    stored: Any
    full: Any
    answer: pd.DataFrame


@pytest.fixture(scope="module", params=list(NEW))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A new rater in each, and a new tie, strength or group."""
    columns, new, options = NEW[request.param]
    options["fixed"] |= {"individual_amplitude": 1.0}
    table = pd.DataFrame(map(list, PAIRS), columns=["winner", "loser"])
    for name, cells in ({"rater": ["ann", "bob"]} | columns).items():
        table[name] = [cells[row % len(cells)] for row in range(len(table))]
    answer = pd.DataFrame([{"winner": "a", "loser": "d", "rater": "new", **new}])
    before = relpref.fit(answers=table, check=False, **options)
    quick = before.update(answer, quick=10.0)
    assert quick.quick_answers == 1 and quick.hyperparameter_draws
    file = tmp_path_factory.mktemp("newcomers") / "quick.nc"
    quick.save(file)
    return Case(before, quick, relpref.load(file), quick.update(), answer)


def test_vectors_of_hyperparameters_grow_in_every_draw(case: Case) -> None:
    grown = 0
    for name, draws in case.before.hyperparameter_draws.items():
        after, value = case.quick.hyperparameter_draws[name], case.quick.hyperparameters[name]
        assert after.shape[1:] == np.shape(value)
        assert_array_equal(after[tuple(map(slice, draws.shape))], draws)
        assert_allclose(value, np.tensordot(case.quick.belief.weights, after, axes=1))
        grown += after.shape != draws.shape
        if name.startswith("rater_") and after.ndim == 2:
            assert_allclose(after[:, -1], 1.0)  # the median of its prior
    assert grown


def test_a_rater_who_is_new_is_a_typical_one(case: Case) -> None:
    for posterior in case.quick, case.stored:
        new, typical = (posterior.prefer(ASK, rater=rater) for rater in ("new", None))
        assert_frame_equal(new, typical)
        mixed = posterior.prefer(ASK, rater=["new", None, "bob"])
        assert_frame_equal(mixed[:2], new[:2])
        assert mixed["probability"][2] != new["probability"][2]
        about = posterior.subset(["a", "b", "c", "d"])
        assert_frame_equal(about.prefer(ASK, rater="new"), new)
    # A full update averages over the noise of the new rater, too, whose answer is known then.
    new, typical = (case.full.prefer(ASK, rater=rater) for rater in ("new", None))
    assert np.all(new["probability"] != typical["probability"])


LATER: list[Callable[[Any], Any]] = [
    lambda found: found.ranking(rng_key=0),
    lambda found: found.choose(["a", "b", "c"], rng_key=0),
    lambda found: found.sample(7, rng_key=0),
    lambda found: found.summary(),
    lambda found: found.to_datatree(50, rng_key=0)["posterior"]["rater_noise"].to_numpy(),
    lambda found: explore.next_pairs(found, 2, rater="new", rng_key=0),
    lambda found: explore.next_choices(found, 3, rng_key=0),
    lambda found: vars(explore.expected_gain(found, rater="new", rng_key=0)),
]


def test_every_later_question_is_answered_and_alike_from_a_file(case: Case) -> None:
    for question in LATER:
        one, other = question(case.quick), question(case.stored)
        if isinstance(one, pd.DataFrame):
            assert_frame_equal(one, other)
        else:
            assert_equal(one, other)


def test_answers_come_and_go_after_that(case: Case) -> None:
    answer = case.answer
    newer = answer.assign(**{name: "newer" for name in ("rater", "group") if name in answer})
    for found in case.quick, case.stored:
        more = found.update(newer, quick=10.0)
        full = found.update(newer)
        for posterior in more, full:
            assert posterior.data.comparisons.raters == ("ann", "bob", "new", "newer")
            assert posterior.hyperparameter_draws["rater_noise"].shape[1:] == (4,)
        assert_frame_equal(more.prefer(ASK, rater="newer"), more.prefer(ASK))
        assert_allclose(full.mean(), more.mean(), atol=0.5 * full.sd().min())
        back = more.update(withdraw=newer, quick=10.0).update(withdraw=answer, quick=10.0)
        # Sweeps over the other answers end before they have settled to rounding.
        assert_allclose(back.mean(), case.before.mean(), atol=0.01 * full.sd().min())
        assert_allclose(back.belief.weights, case.before.belief.weights, atol=5e-3)
        with pytest.warns(UserWarning, match="tied together by no comparison"):
            larger = found.extend(["e"])
        assert larger.info["averaged"] == found.info["averaged"]  # updates average again
        assert len(larger.ranking(rng_key=0)) == 5
        assert_frame_equal(larger.prefer(ASK, rater="new"), larger.prefer(ASK))


def test_what_rests_on_sites_follows_a_full_update(case: Case) -> None:
    full = case.full
    assert full.explain()["mean"].sum() == pytest.approx(0.0, abs=1e-12)
    scores = diagnostics.leave_one_out(full)
    assert np.isfinite(scores.log_scores).all() and scores.forecasts is not None
    assert diagnostics.raters(full).index.isin(["ann", "bob", "new"]).all()
    if full.data.comparisons.group is None:
        assert "new" in set(diagnostics.influence(full)["rater"])


@pytest.mark.slow
def test_reports_certificates_and_fits_know_newcomers(case: Case, tmp_path: Path) -> None:
    for found in case.quick, case.stored:
        found.report(tmp_path / "report.html")
        assert "new" in (tmp_path / "report.html").read_text()
        assert found.reweighted(2000, rng_key=0).data.comparisons.raters[-1] == "new"
        diagnostics.certify(found, num_samples=2000)
        again = found.update(case.answer.assign(rater="newer"), hyperparameters="refit")
        assert again.hyperparameters["rater_noise"].shape == (4,)
