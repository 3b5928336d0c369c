"""Answers predicted without them, against fits that did not have them."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_ndtr, logsumexp

import relpref
from relpref.data import PreferenceData
from relpref.diagnostics import compare, influence, k_fold, leave_one_out, raters
from relpref.errors import DataError, StorageError, UnsupportedProgramError
from relpref.infer import EP, InferenceWarning, Laplace, UtilityPosterior, from_samples
from relpref.kernels import SquaredExponential
from relpref.likelihoods import Logistic
from relpref.models import preference_gp, xpgp

LABELS = list("abcdef")
smooth_gp = partial(preference_gp, attribute_kernel=SquaredExponential())
HYPERPARAMETERS: dict[str, Any] = {
    "attributes_amplitude": 1.2,
    "attributes_lengthscale": [1.0],
    "individual_amplitude": 0.3,
}
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)


def table(kind: str, rows: int = 12) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    first = rng.integers(6, size=rows)
    second = (first + rng.integers(1, 6, size=rows)) % 6
    ends = np.array(LABELS)[np.stack([first, second], axis=1)]
    if kind == "probability":
        reports = pd.DataFrame(ends, columns=["first", "second"])
        return reports.assign(probability=rng.uniform(0.1, 0.9, size=rows))
    answers = pd.DataFrame(ends, columns=["winner", "loser"])
    answers["count"] = rng.integers(1, 4, size=rows)
    if kind == "everything":
        answers["rater"] = rng.choice(["x", "y", "z"], rows)
        answers["shown_first"] = ends[np.arange(rows), rng.integers(2, size=rows)]
        answers["tie"] = rng.uniform(size=rows) < 0.3
        answers["strength"] = np.where(answers["tie"], 0, rng.integers(1, 3, size=rows))
    return answers


ITEMS = pd.DataFrame({"size": [1.5, 0.3, -1.0, 0.9, -0.2, -1.5]}, index=LABELS)


def fitted(kind: str, engine: Any = EP) -> UtilityPosterior:
    """At hyperparameters that are given; those that only some columns need are at their maximum."""
    data = PreferenceData.from_tables(ITEMS, table(kind))
    likelihood = {"likelihood": Logistic()} if kind == "logistic" else {}
    fit = engine(smooth_gp, fixed=HYPERPARAMETERS, hyperparameters="maximize", check=False)
    posterior: UtilityPosterior = fit.run(0, data, **likelihood)
    return posterior


@pytest.fixture(scope="module")
def posterior() -> UtilityPosterior:
    return fitted("plain")


def without(posterior: Any, row: int) -> Any:
    """Fitted again without one of the answers of a row, at the same hyperparameters."""
    origin, data = posterior.origin, posterior.data
    count = np.array(data.count)
    count[row] -= 1
    fewer = replace(data.comparisons, count=count).selected(np.flatnonzero(count), data.labels)
    smaller = origin.with_argument(data, replace(data, comparisons=fewer))
    engine = origin.engine.changed(fixed=posterior.hyperparameters)
    return engine.run(0, *smaller.args, **smaller.kwargs)


def log_probability(posterior: UtilityPosterior, of: UtilityPosterior, row: int) -> float:
    """Of the answer in a row of another posterior's data, by quadrature over the gap."""
    answers, model = of.data.comparisons, of.likelihood
    ends = answers.winner[row : row + 1], answers.loser[row : row + 1]
    margins = posterior.belief.differences(*ends)
    parameters = {name: posterior.hyperparameters[name] for name in model.parameters(answers)}
    with jax.enable_x64(True):
        columns: dict[str, Any] = {
            name: np.repeat(column[row], len(NODES)) for name, column in answers.columns.items()
        }
        same = replace(answers, **columns)
        gaps = jnp.asarray(margins.mean[0] + margins.sd[0] * NODES)
        likelihood = model(gaps, same, **{name: jnp.asarray(v) for name, v in parameters.items()})
        log_prob = np.asarray(likelihood.log_prob(model.value(same)))
    return float(np.log(WEIGHTS @ np.exp(log_prob) / WEIGHTS.sum()))


def check_against_refits(posterior: UtilityPosterior, within: float) -> None:
    found = leave_one_out(posterior)
    assert len(found.table) == posterior.data.num_comparisons
    for row in range(len(found.table)):
        truth = log_probability(without(posterior, row), posterior, row)
        assert found.table["log_score"][row] == pytest.approx(truth, abs=within)


def test_leaving_out_is_fitting_again(posterior: UtilityPosterior) -> None:
    check_against_refits(posterior, 0.02)


def test_no_component_outweighs_all_others() -> None:
    """A component with very little noise of a rater found an answer impossible."""
    rng, names = np.random.default_rng(1), np.array(list("abcdefghijkl"))
    utility = rng.normal(size=12)
    first, second = np.array([rng.choice(12, 2, replace=False) for _ in range(60)]).T
    won = utility[first] - utility[second] + rng.normal(size=60) > 0
    answers = pd.DataFrame({"first": names[first], "second": names[second]})
    answers["winner"] = np.where(won, answers["first"], answers["second"])
    answers.loc[::7, "winner"] = "tie"
    answers["rater"] = np.array(["x", "y", "z"])[rng.integers(0, 3, 60)]
    items = pd.DataFrame({"size": utility + rng.normal(size=(12, 3))[:, 0]}, names)
    answer, table = answers.loc[45], leave_one_out(relpref.fit(items, answers)).table
    won = (table["winner"] == answer["winner"]) & (table["loser"] == answer["first"])
    alone = table.loc[won & (table["rater"] == answer["rater"]) & ~table["tie"], "probability"]
    question = [(answer["winner"], answer["first"])]
    refit = relpref.fit(items, answers.drop(index=45)).prefer(question, rater=answer["rater"])
    assert alone.item() == pytest.approx(refit["probability"][0], abs=0.05)
    assert table["log_score"].min() > -4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "everything", "probability", "logistic"])
@pytest.mark.parametrize("engine", [EP, Laplace])
def test_leaving_out_is_fitting_again_with_other_answers(kind: str, engine: Any) -> None:
    # Gaussian answers are exact, but for the flat directions of the iterations.
    check_against_refits(fitted(kind, engine), 1e-6 if kind == "probability" else 0.02)


@pytest.mark.slow
def test_draws_are_reweighted_as_arviz_does(posterior: UtilityPosterior) -> None:
    draws = {"utility": posterior.sample(400, rng_key=1)}
    for name, value in HYPERPARAMETERS.items():
        draws[name] = np.repeat(np.asarray(value)[None], 400, axis=0)
    sampled = from_samples(draws, smooth_gp, posterior.data)
    found = leave_one_out(sampled)
    loo: Any = pytest.importorskip("arviz_stats").loo
    theirs = loo(sampled.to_datatree(), pointwise=True, reff=1.0)  # of single answers
    each = np.repeat(np.arange(len(found.table)), posterior.data.count)
    assert_allclose(found.table["log_score"][each], np.asarray(theirs.elpd_i), rtol=1e-8)
    assert_allclose(found.table["k_hat"][each], np.asarray(theirs.pareto_k), rtol=1e-8)
    assert found.elpd == pytest.approx(theirs.elpd)
    assert found.elpd_se == pytest.approx(
        theirs.se, rel=0.02
    )  # theirs divides by the number of answers, not by one less
    assert_allclose(found.table["p_first"] + found.table["p_second"], 1)
    assert_allclose(found.table["p_first"], found.table["probability"])
    # These draws are of the same Gaussian, whose other sites EP would not leave as they are.
    assert (
        np.abs(found.table["log_score"] - leave_one_out(posterior).table["log_score"]).max() < 0.15
    )


@pytest.mark.parametrize("counts", [(10, 0), (2, 0), (10, 2), (300, 40)])
def test_one_of_equal_answers_against_integration(counts: tuple[int, int]) -> None:
    """Of two items, whose gap has the prior variance 8."""
    answers = [("a", "b", counts[0]), ("b", "a", counts[1])]
    rows = pd.DataFrame(answers, columns=["winner", "loser", "count"]).query("count > 0")
    data = PreferenceData.from_tables(["a", "b"], rows)
    posterior: Any = EP(xpgp, fixed={"individual_amplitude": 2.0}).run(0, data)
    held_out = leave_one_out(posterior)
    found = held_out.table
    gap = np.linspace(-40, 40, 400_001)
    for row, score in enumerate(found["log_score"]):
        sign = 1 if found["winner"][row] == "a" else -1
        log = -(gap**2) / 16 + counts[0] * log_ndtr(gap) + counts[1] * log_ndtr(-gap)
        exact = logsumexp(log) - logsumexp(log - log_ndtr(sign * gap))
        assert score == pytest.approx(exact, abs=1e-6 if counts[1] == 0 else 0.05)
        assert found["probability"][row] == pytest.approx(found["p_first"][row], rel=1e-12)
    assert_allclose(found["p_first"] + found["p_second"], 1.0, rtol=1e-12)
    assert held_out.summary()["baseline"]["log_loss"] == pytest.approx(np.log(2))


def test_what_moves_is_what_moves_without_the_answer(posterior: UtilityPosterior) -> None:
    found = influence(posterior)
    assert found["log_score"].is_monotonic_increasing
    sd = posterior.belief.centred().sd()
    for row in found.index[[0, 3, -1]]:
        smaller = without(posterior, row)
        moved = (smaller.belief.centred().mean() - posterior.belief.centred().mean()) / sd
        at = LABELS.index(found["item"][row])
        assert found["shift"][row] == pytest.approx(moved[at], abs=0.03)
        assert abs(moved[at]) >= np.abs(moved).max() - 0.02


def test_repeated_answers_leave_together(posterior: Any) -> None:
    answers = posterior.data.comparisons.table(LABELS)
    pairs = [frozenset(pair) for pair in zip(answers["winner"], answers["loser"], strict=True)]
    assert len(set(pairs)) < len(pairs)  # some were compared with both outcomes
    table = k_fold(posterior, folds=len(set(pairs))).table
    twice = [row for row, pair in enumerate(pairs) if pairs.count(pair) > 1]
    assert table["p_first"][twice].sum() == pytest.approx(len(twice) / 2)
    row = next(row for row in range(len(pairs)) if row not in twice)
    others = posterior.data.select_comparisons(np.delete(np.arange(len(pairs)), row))
    smaller = posterior.origin.engine.changed().run(0, others)
    chance = smaller.prefer(table.loc[[row], ["winner", "loser"]])["probability"][0]
    assert table["probability"][row] == pytest.approx(chance)
    with pytest.raises(DataError, match="7 pairs cannot make 10 folds"):
        k_fold(posterior, folds=10)


def test_finished_folds_are_kept(posterior: UtilityPosterior, tmp_path: Path) -> None:
    def fold() -> pd.DataFrame:
        return k_fold(posterior, 3, by="answer", folder=tmp_path).table

    whole = fold()
    (file,) = tmp_path.iterdir()
    first, *lines = file.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    file.write_bytes(first + lines[2] + lines[0] + lines[1][:50])  # interrupted, in another order
    pd.testing.assert_frame_equal(fold(), whole, check_exact=True)
    assert file.read_bytes() == first + lines[2] + lines[0] + lines[1]
    assert k_fold(posterior, 4, by="answer", folder=tmp_path).method.startswith("4 folds")
    assert len(list(tmp_path.iterdir())) == 2
    file.write_bytes(first + lines[2] + b"{]\n" + lines[1])
    with pytest.raises(StorageError, match=f"{file.name}: line 3 is damaged"):
        fold()


def test_models_are_compared_answer_by_answer(posterior: UtilityPosterior) -> None:
    held_out = leave_one_out(posterior)
    other = replace(
        held_out, table=held_out.table.assign(log_score=held_out.table["log_score"] - 0.1)
    )
    found = compare({"worse": other, "ours": posterior})
    assert list(found.index) == ["ours", "worse"]
    assert found["difference"]["worse"] == pytest.approx(-0.1 * held_out.num_answers)
    assert found["difference_se"]["worse"] == pytest.approx(0, abs=1e-9)
    assert found["log_evidence"]["ours"] == posterior.log_evidence
    turned = replace(held_out, table=held_out.table.assign(winner=held_out.table["loser"]))
    with pytest.raises(DataError, match="row 0 of the answers of 'ours' is winner=a, loser=f"):
        compare({"ours": posterior, "turned": turned})
    with pytest.raises(DataError, match="compare has 1 model"):
        compare({"ours": posterior})
    assert set(relpref.compare(posterior, held_out).index) == {"model 1", "model 2"}
    assert set(compare({"ours": posterior}, held_out).index) == {"ours", "model 2"}
    both: Any = [posterior, held_out]
    with pytest.raises(
        DataError, match="'model 1' is a list; give posteriors .* compare\\(p, q\\)"
    ):
        compare(both)


def test_models_with_and_without_circumstances_of_the_answers() -> None:
    """The same answers, with and without the side at home and the rater."""
    ends = {"winner": [*"abbac"], "loser": [*"bccba"]}
    table = pd.DataFrame({**ends, "home": [*"abcba"], "rater": [*"xxyyy"]})
    held: Any = {"individual_amplitude": 1.0, "effect_scale": 1.0, "rater_spread": 0.3}
    fit = partial(relpref.fit, hyperparameters="maximize", check=False)
    plain = fit(answers=table[["winner", "loser"]], fixed={"individual_amplitude": 1.0})
    full = fit(answers=table, covariates=["home"], fixed=held)
    assert len(leave_one_out(plain).table) == 3 and len(leave_one_out(full).table) == 5
    found = compare({"plain": plain, "full": full})
    scores = {}
    for name, posterior in {"plain": plain, "full": full}.items():
        held_out = leave_one_out(posterior).table
        rows = held_out.loc[held_out.index.repeat(held_out["count"])]
        scores[name] = rows.sort_values(["winner", "loser"], kind="stable")["log_score"].to_numpy()
        assert found["elpd"][name] == pytest.approx(scores[name].sum())
    last = found.index[1]
    gap = scores[last] - scores[found.index[0]]
    assert found["difference"][last] == pytest.approx(gap.sum())
    assert found["difference_se"][last] == pytest.approx(gap.std(ddof=1) * 5**0.5)
    tied = table.assign(tie=[0, 0, 0, 0, 1])[["winner", "loser", "tie"]]
    other = fit(answers=tied, fixed={"individual_amplitude": 1.0, "tie_margin": 0.3})
    with pytest.raises(DataError, match="have the columns .*compare models of the same answers"):
        compare(full, other)


def drawn(number: int) -> Any:
    """Draws of the prior, of reported probabilities."""
    columns = {"first": [*"abc"], "second": [*"bcd"], "probability": [0.9, 0.6, 0.2]}
    data = PreferenceData.from_tables(ITEMS, pd.DataFrame(columns))
    draws: dict[str, Any] = {"utility": np.random.default_rng(0).normal(size=(number, 6))}
    for name, value in {**HYPERPARAMETERS, "soft_noise": 1.0}.items():
        draws[name] = np.repeat(np.asarray(value)[None], number, axis=0)
    return from_samples(draws, smooth_gp, data)


def test_what_was_reported_stays_in_the_table() -> None:
    posterior = drawn(30)
    held_out = leave_one_out(posterior)
    for found in (held_out.table, influence(posterior).sort_index()):
        assert found["reported"].tolist() == [0.9, 0.6, 0.2]
        assert_allclose(found["probability"], np.exp(found["log_score"]))
    other = replace(held_out, table=held_out.table.assign(reported=[0.9, 0.7, 0.2]))
    with pytest.raises(
        DataError, match=r"row 1 .* reported=0\.6.* reported=0\.7.*; compare models of the same"
    ):
        compare({"one": held_out, "other": other})
    for ask in (leave_one_out, influence):
        with pytest.raises(
            DataError, match="has 24 draws, too few to be reweighted; draw at least 25"
        ):
            ask(drawn(24))


def test_models_are_compared_whatever_the_order_of_their_items() -> None:
    answers = pd.DataFrame(
        {
            "winner": ["tea", "coffee", "milk", "tea"],
            "loser": ["coffee", "water", "tea", "milk"],
            "tie": [0, 0, 1, 0],
            "price_winner": [1.0, 2.0, 3.0, 5.0],
            "price_loser": [2.0, 1.0, 5.0, 1.0],
        }
    )
    fixed = {"individual_amplitude": 1.0, "tie_margin": 0.3, "effect_scale": 1.0}
    fit = partial(relpref.fit, answers=answers, covariates=["price"], fixed=fixed, check=False)
    models = {"one": fit(), "other": fit(items=["water", "milk", "coffee", "tea"])}
    table = compare(models)
    assert_allclose(table[["difference", "difference_se"]], 0.0, atol=1e-3)


def test_equal_raters_are_not_at_odds() -> None:
    """The most suspect of 8 equal raters has a p-value of .0007 here, below a hundredth divided by
    8. Of such tables 1 in 100 has anybody at odds."""
    rng = np.random.default_rng(143)
    utility, names = 1.5 * rng.normal(size=10), np.array([f"i{row}" for row in range(10)])
    first = rng.integers(10, size=200)
    second = (first + rng.integers(1, 10, size=200)) % 10
    wins = utility[first] - utility[second] + rng.normal(size=200) > 0
    ends = np.where(wins, [first, second], [second, first])
    answers = pd.DataFrame(names[ends].T, columns=["winner", "loser"])
    answers["rater"] = np.repeat(np.arange(8), 25)
    found = raters(relpref.fit(answers=answers))
    assert found["p_value"].min() < 0.01 / 8
    assert not found["at_odds"].any()
    # If this rater prefers what is worse, the verdict is right, and is about nobody else.
    contrary, sides = answers["rater"] == 0, ["winner", "loser"]
    answers.loc[contrary, sides] = answers.loc[contrary, sides[::-1]].to_numpy()
    found = raters(relpref.fit(answers=answers, hyperparameters="maximize", check=False))
    assert found.index[found["at_odds"]].tolist() == [0]
    assert found["noise"].idxmax() == 0 and found["answers"].sum() == 200


@pytest.mark.parametrize(
    ("changes", "ask", "message"),
    [
        ({"origin": None}, leave_one_out, "does not know its program"),
        ({"origin": None}, k_fold, "does not know its program or its engine"),
        ({"sites": {}}, leave_one_out, "kept no sites"),
        ({"info": {"engine": "EP", "result": "nonfinite"}}, leave_one_out, "gave no numbers"),
        ({}, lambda posterior: k_fold(posterior, 1), "folds is 1"),
        ({}, lambda posterior: k_fold(posterior, 2, by="rater"), "by is 'rater', but answers"),
        ({}, lambda posterior: k_fold(posterior, 2, by="list"), "by is 'list'; it is 'pair'"),  # type: ignore[arg-type]
        ({}, raters, "column rater"),
        ({}, lambda posterior: raters(posterior, false_alarms=2), "false_alarms is 2"),
        ({}, lambda p: leave_one_out(p.update([("c", "d")], quick=True)), r"update\(\) first"),
    ],
)
def test_refusals(posterior: UtilityPosterior, changes: Any, ask: Any, message: str) -> None:
    with pytest.raises((DataError, UnsupportedProgramError), match=message):
        ask(replace(posterior, **changes))


def test_a_posterior_from_a_file_knows_as_much(posterior: UtilityPosterior, reloaded: Any) -> None:
    loaded = reloaded(posterior)
    pd.testing.assert_frame_equal(influence(loaded), influence(posterior))


def test_one_that_did_not_converge_warns(posterior: UtilityPosterior) -> None:
    hasty = replace(posterior, info={**posterior.info, "result": "max_iterations"})
    with pytest.warns(InferenceWarning, match="max_iterations"):
        leave_one_out(hasty)
