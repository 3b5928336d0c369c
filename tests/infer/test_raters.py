"""Raters whose noise is averaged over: against integration, and the truth of simulated data."""

from functools import cache
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import special, stats

import relpref
from benchmarks.combinations import fit
from relpref import PreferenceData
from relpref.errors import DataError, InferenceError
from relpref.infer import EP, Laplace
from relpref.infer.members import Members, means, quantiles, strata
from relpref.infer.plates import _LOG_SCALES, _scale, prepare_plates
from relpref.infer.program import Program
from relpref.kernels import Precomputed
from relpref.likelihoods import Probit
from relpref.models import preference_gp

COVARIANCE = np.array([[1.5, 0.3, -0.2], [0.3, 1.0, 0.4], [-0.2, 0.4, 2.0]])
TABLE = pd.DataFrame(
    {"winner": list("abacbcbaacba"), "loser": list("bccacbacbacc"), "rater": list("xxxxyyyyzxxy")}
)
SPREAD = 0.8
KNOWN = {"attributes_amplitude": 1.2, "rater_spread": SPREAD}
OPTIONS: Any = {"attribute_kernel": Precomputed(COVARIANCE), "individual": False}
MEDIAN = 0.75 * stats.halfnorm.median()  # of the prior of the spread


@cache
def data(**columns: Any) -> PreferenceData:
    return PreferenceData.from_tables(pd.DataFrame({"one": [0.0, 1, 2]}, index=list("abc")), TABLE)


def simulated(
    seed: int,
    answers: int,
    spread: float,
    raters: int = 60,
    items: int = 30,
    amplitude: float = 1.0,
) -> Any:
    """Utilities, noise by rater, and a table of answers."""
    rng = np.random.default_rng(seed)
    utility, noise = amplitude * rng.normal(size=items), np.exp(spread * rng.normal(size=raters))
    first = rng.integers(items, size=answers)
    second = (first + rng.integers(1, items, answers)) % items
    rater = rng.integers(raters, size=answers)
    seen = utility[first] - utility[second] + noise[rater] * rng.normal(size=answers)
    winner, loser = np.where(seen > 0, [first, second], [second, first])
    return utility, noise, pd.DataFrame({"winner": winner, "loser": loser, "rater": rater})


@pytest.mark.parametrize(
    ("pairs", "lapse"),
    [
        # Sds were .80 to .86, and .88 to 1.01, of the exact ones: utilities depend on the noise of
        # raters, and few points of the hyperparameters lie where posteriors are wide.
        (["31 13 14 02 01 30", "12 40 30 41 20 12 12 21 10 31 43", "14 34 03 12 10 31 41"], True),
        (["30 30 01 01", "21 21 23 21", "32 20 01 10 02 03 21"], False),
    ],
)
def test_few_answers_against_weighted_draws_of_the_prior(pairs: list[str], lapse: bool) -> None:
    rows = [(*pair, rater) for rater, line in enumerate(pairs) for pair in line.split()]
    table = pd.DataFrame(rows, columns=["winner", "loser", "rater"])
    posterior = relpref.fit(answers=table, likelihood=Probit(lapse=lapse))
    rng, number = np.random.default_rng(0), 400_000
    items = [posterior.data.labels.index(label) for label in "01234"[: posterior.data.num_items]]
    utility = 2 * rng.normal(size=(number, 1)) * rng.normal(size=(number, len(items)))
    noise = np.exp(0.75 * rng.normal(size=(number, 1)) * rng.normal(size=(number, 3)))
    lapses = rng.beta(1, 19, number) if lapse else np.zeros(number)
    log_likelihood = np.zeros(number)
    for winner, loser, rater in table.astype(int).itertuples(index=False):
        gap = utility[:, winner] - utility[:, loser]
        chance = special.ndtr(gap / noise[:, rater])
        log_likelihood += np.log(np.maximum(chance + lapses * (0.5 - chance), 1e-300))
    weights = special.softmax(log_likelihood)
    assert 1 / np.sum(weights**2) > 8000  # sds within .02
    first, second = np.triu_indices(len(items), 1)
    gaps = utility[:, first] - utility[:, second]
    mean = weights @ gaps
    sd = np.sqrt(weights @ np.square(gaps - mean))
    covariance = np.asarray(posterior.covariance())[np.ix_(items, items)]
    variance = np.diag(covariance)[first] + np.diag(covariance)[second]
    assert_allclose(np.sqrt(variance - 2 * covariance[first, second]) / sd, 1, atol=0.07)
    center = np.asarray(posterior.mean())[items]
    assert_allclose(center[first] - center[second], mean, atol=0.07 * sd.min())
    assert abs(posterior.log_evidence - special.logsumexp(log_likelihood) + np.log(number)) < 0.1


def test_against_integration(on_a_grid: Any) -> None:
    """Over three utilities and the noise of three raters."""
    found: Any = EP(preference_gp, fixed=KNOWN).run(0, data(), **OPTIONS)
    nodes = np.linspace(-5, 5, 41)
    density = stats.norm.pdf(nodes) * (nodes[1] - nodes[0])
    answers: Any = data().comparisons
    about = []

    def log_likelihood(utility: Any) -> Any:
        total = 0.0
        for rater in range(3):
            rows = np.flatnonzero(answers.rater == rater)
            gaps = utility[:, answers.winner[rows]] - utility[:, answers.loser[rows]]
            scaled = gaps[None] / np.exp(SPREAD * nodes)[:, None, None]
            joint = np.log(density)[:, None] + special.log_ndtr(scaled) @ answers.count[rows]
            total = total + special.logsumexp(joint, axis=0)
            about.append(joint - special.logsumexp(joint, axis=0))
        return total

    axis = np.linspace(-5.5, 5.5, 31)
    utility, weight, mean, sd, log_evidence = on_a_grid(1.44 * COVARIANCE, log_likelihood, axis)
    assert abs(found.log_evidence - log_evidence) <= 0.2
    assert_allclose(found.mean(), mean, rtol=0, atol=0.01 * sd.max())
    assert_allclose(found.sd(), sd, rtol=0.01)
    noise = np.log(found.hyperparameter_draws["rater_noise"]) / SPREAD
    assert found.info["averaged"] == ["rater_noise"]
    assert "held" not in found.info
    for rater in range(3):
        marginal = np.exp(about[rater]) @ weight
        middle = marginal @ nodes
        spread = np.sqrt(marginal @ (nodes - middle) ** 2)
        weights = found.belief.weights
        center = weights @ noise[:, rater]
        assert abs(center - middle) <= 0.1
        found_spread = np.sqrt(weights @ (noise[:, rater] - center) ** 2)
        assert_allclose(found_spread, spread, rtol=0.1)
        gap = utility[:, 0] - utility[:, 1]
        by_node = weight * np.exp(about[rater])
        expected = np.sum(by_node * special.ndtr(gap[None] / np.exp(SPREAD * nodes)[:, None]))
        asked = found.prefer("a", "b", rater="xyz"[rater])["probability"][0]
        assert abs(asked - expected) <= 0.01
    unchecked, checked = (
        EP(preference_gp, fixed=KNOWN, hyperparameters="maximize", check=check)
        for check in (False, True)
    )
    one: Any = unchecked.run(0, data(), **OPTIONS)
    assert one.log_evidence == pytest.approx(found.log_evidence, abs=1e-6)
    # One component, whose noises are at their means, is put right for all that they may be.
    one = checked.run(0, data(), **OPTIONS)
    assert abs(one.log_evidence - log_evidence) <= 0.02
    assert_allclose(one.mean(), mean, rtol=0, atol=0.03 * sd.max())
    assert_allclose(one.sd(), sd, rtol=0.03)
    assert one.hyperparameters["rater_noise"].shape == (3,) and not one.hyperparameter_draws
    # An update averages over them again: it is the fit to all answers.
    more = pd.DataFrame({"winner": ["a", "c"], "loser": ["b", "a"], "rater": ["x", "z"]})
    for before in (one, found):
        updated = before.update(more)
        again: Any = before.origin.engine.run(0, updated.data, **OPTIONS)
        assert_allclose(updated.sd(), again.sd(), rtol=1e-4)
        assert_allclose(updated.mean(), again.mean(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        (EP, {"hyperparameters": "em"}),
        (EP, {"hyperparameters": "maximize", "fixed": {"rater_noise": [0.5, 1.0, 2.0]}}),
    ],
    ids=["em", "known"],
)
def test_where_no_scale_of_raters_is_learned_it_is_known(engine: Any, options: Any) -> None:
    found: Any = engine(preference_gp, **options).run(0, data(), **OPTIONS)
    assert found.hyperparameters["rater_spread"] == pytest.approx(MEDIAN, rel=1e-3)
    assert found.hyperparameters["rater_noise"].shape == (3,) and "averaged" not in found.info


@pytest.mark.parametrize(
    ("engine", "options"), [(EP, {}), (Laplace, {}), (EP, {"space": "observation"})]
)
def test_the_spread_of_raters_is_found(engine: Any, options: Any) -> None:
    engine = engine(preference_gp, hyperparameters="maximize", **options)
    for spread, low, high in ((0.8, 0.5, 1.2), (0.0, 0.0, 0.3))[: 1 if options else 2]:
        few: Any = {"answers": 400, "raters": 20} if options else {"answers": 1500}
        utility, noise, table = simulated(1, spread=spread, **few)
        found: Any = engine.run(0, PreferenceData.from_tables(pd.DataFrame(index=range(30)), table))
        assert low <= found.hyperparameters["rater_spread"] <= high
        assert ("averaged" in found.info) == (engine.name == "EP" and not options)
        assert np.corrcoef(found.mean(), utility)[0, 1] > 0.9
        if spread:
            of = np.log(noise[list(found.data.comparisons.raters)])
            assert np.corrcoef(np.log(found.hyperparameters["rater_noise"]), of)[0, 1] > 0.6


def test_a_scale_is_the_median_of_its_posterior() -> None:
    """Entries whose likelihood is Gaussian, by the density of all of them together."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(6, 6))
    curvature, observed = root @ root.T + 0.1 * np.eye(6), rng.normal(0, 0.7, 6)
    with jax.enable_x64(True):
        program = prepare_plates(Program.of(preference_gp, (data(),), OPTIONS), False)
        assert program.scales == (("rater_noise", "rater_spread"),)
        scale = _scale(program, "rater_spread", curvature, curvature @ observed)
    scales, noise = np.exp(_LOG_SCALES), np.linalg.inv(curvature)
    log_density = [
        stats.multivariate_normal(cov=s**2 * np.eye(6) + noise).logpdf(observed) for s in scales
    ]
    log_density = log_density + stats.halfnorm(scale=0.75).logpdf(scales) + np.log(scales)
    below = np.cumsum(np.exp(log_density - np.max(log_density)))
    assert scale == pytest.approx(scales[np.searchsorted(below, 0.5 * below[-1])], rel=0.02)


def test_entries_at_their_maximum_are_as_uncertain_as_averaged_ones() -> None:
    """Draws of noise around the maximum beside those by the average over raters."""
    answers = PreferenceData.from_tables(
        pd.DataFrame(index=range(10)), simulated(1, 400, 0.8, raters=4, items=10)[2]
    )
    means, sds = [], []
    for engine in (EP(preference_gp), Laplace(preference_gp)):
        posterior: Any = engine.run(0, answers)
        noise = np.log(posterior.hyperparameter_draws["rater_noise"])
        noise -= noise.mean(axis=1, keepdims=True)  # what raters share, utilities have, too
        means.append(posterior.belief.weights @ noise)
        squares = np.square(noise - means[-1])
        sds.append(np.sqrt(posterior.belief.weights @ squares))
    assert_allclose(means[1], means[0], atol=0.5 * np.min(sds[0]))
    assert_allclose(sds[1], sds[0], rtol=0.35)


def test_groups_are_learned_beside_raters() -> None:
    """Whether or not raters are averaged over."""
    given = data().with_comparisons(TABLE.assign(group=list("112233445566")))
    for engine, averaged in ((EP, True), (Laplace, False)):
        found: Any = engine(preference_gp, hyperparameters="maximize").run(0, given, **OPTIONS)
        assert ("averaged" in found.info) == averaged
        assert found.hyperparameters["rater_spread"] != pytest.approx(MEDIAN, rel=1e-3)
        assert found.hyperparameters["group_sd"] != pytest.approx(stats.halfnorm.median(), rel=1e-3)


def test_raters_of_lists_are_not_averaged_over() -> None:
    """Lists, whose noise is among that of the utilities."""
    orders = pd.DataFrame(
        {
            "rater": list("xxxyyyxxx"),
            "list": np.repeat([0, 1, 2], 3),
            "item": list("abcbcacba"),
            "place": [1, 2, 3] * 3,
        }
    )
    items = pd.DataFrame({"one": [0.0, 1, 2]}, index=list("abc"))
    listed: Any = EP(preference_gp, hyperparameters="maximize").run(
        0, PreferenceData.from_tables(items, orders), **OPTIONS
    )
    assert listed.hyperparameters["rater_spread"] == pytest.approx(MEDIAN, rel=1e-3)


def test_points_and_quantiles() -> None:
    rng = np.random.default_rng(3)
    weights = rng.dirichlet(np.ones(40))
    places = strata(weights, 7, rng)
    assert_allclose(weights @ places, 0.5, atol=1e-12)
    assert_allclose(weights @ (places - 0.5) ** 2, 1 / 12, atol=0.002)
    row = np.repeat([0, 1], [500, 10])
    members = Members.of(("one",), 2, row, np.ones(510))
    nodes, log_weights = members.nodes
    assert members.steps == 4 and np.exp(log_weights).sum() == pytest.approx(1)
    sharp = stats.norm.pdf(nodes, 0.7, 0.4)
    known = np.column_stack([sharp / sharp.sum(), np.exp(log_weights)])
    assert_allclose(means(members, known), [[0.7, 0.0]], atol=1e-6)
    places = stats.norm.ppf([0.1, 0.5, 0.9], 0.7, 0.4)
    for p, place in zip((0.1, 0.5, 0.9), places, strict=True):
        found, log_ratio = quantiles(members, known, np.full((1, 2), p))
        assert found[0, 0] == pytest.approx(place, abs=0.002)
        expected = stats.norm.logpdf(place) - stats.norm.logpdf(place, 0.7, 0.4)
        assert log_ratio == pytest.approx(expected, abs=0.02)


def test_quantiles_of_two_sites_hang_together() -> None:
    members = Members.of(("one", "other"), 1, np.zeros(2, int), np.full(2, 50.0))
    grid, _ = members.nodes
    known = stats.multivariate_normal([0.2, -0.1], [[0.4, -0.2], [-0.2, 0.3]]).pdf(grid)[:, None]
    rng = np.random.default_rng(1)
    found = np.array(
        [quantiles(members, known / known.sum(), rng.uniform(size=(2, 1)))[0] for _ in range(1000)]
    )
    assert_allclose(np.cov(found[:, :, 0].T), [[0.4, -0.2], [-0.2, 0.3]], atol=0.05)


@pytest.mark.slow
def test_tie_margins_of_raters() -> None:
    rng = np.random.default_rng(5)
    utility, margin = rng.normal(size=10), 0.6 * np.exp(0.8 * rng.normal(size=25))
    first, rater = rng.integers(10, size=800), rng.integers(25, size=800)
    second = (first + rng.integers(1, 10, 800)) % 10
    seen = utility[first] - utility[second] + rng.normal(size=800)
    winner, loser = np.where(seen > 0, [first, second], [second, first])
    table = pd.DataFrame(
        {"winner": winner, "loser": loser, "rater": rater, "tie": np.abs(seen) < margin[rater]}
    )
    data = PreferenceData.from_tables(pd.DataFrame(index=range(10)), table)
    engine = EP(preference_gp, hyperparameters="maximize")
    own: Any = engine.run(0, data, likelihood=Probit(margins="rater"))
    common: Any = engine.run(0, data)
    assert own.log_evidence > common.log_evidence + 10
    assert own.info["averaged"] == ["rater_noise", "rater_margin"]
    found = own.hyperparameters
    assert 0.45 < found["rater_margin_spread"] < 1.2 and found["rater_spread"] < 0.5
    of = np.log(margin[list(data.comparisons.raters)])
    assert np.corrcoef(np.log(found["rater_margin"]), of)[0, 1] > 0.8
    careful, careless = np.argsort(found["rater_margin"])[[0, -1]]
    names = data.comparisons.raters
    asked = own.prefer([(0, 1)] * 3, rater=[names[careful], None, names[careless]])["tie"]
    assert asked.is_monotonic_increasing


def test_tie_margins_of_raters_need_ties_and_raters() -> None:
    with pytest.raises(DataError, match="margins is 'item'; it is 'common' or 'rater'"):
        Probit(margins="item")  # type: ignore[arg-type]
    match = r"Probit\(margins='rater'\) is for answers with the column 'tie', which is missing"
    with pytest.raises(DataError, match=match):
        EP(preference_gp).run(0, data(), likelihood=Probit(margins="rater"), **OPTIONS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The posterior is not checked")  # some 6 % of these
def test_intervals_cover_and_the_spread_is_calibrated() -> None:
    """Everything drawn from its prior: 12 items, 20 raters, 150 answers; errors of shares are 0.012
    to 0.03.
    """
    gaps, noises, ranks = [], [], []
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        spread, amplitude = abs(0.75 * rng.normal()), abs(2 * rng.normal())
        utility, noise, table = simulated(
            seed, 150, spread, raters=20, items=12, amplitude=amplitude
        )
        data = PreferenceData.from_tables(pd.DataFrame(index=range(12)), table)
        found: Any = EP(preference_gp, throw=False).run(seed, data)
        draws, weights = found.hyperparameter_draws, found.belief.weights
        ranks.append(weights @ (draws["rater_spread"] < spread))
        own = noise[list(data.comparisons.raters)]
        noises.append(weights @ (draws["rater_noise"] < own)[:, 0])
        utilities = found.sample(2000)
        gaps.append(np.mean(utilities[:, 0] - utilities[:, 1] < utility[0] - utility[1]))
    shares = [
        np.mean((np.array(each) > 0.1) & (np.array(each) < 0.9)) for each in (gaps, noises, ranks)
    ]
    assert_allclose(shares, 0.8, atol=0.045)


@pytest.mark.slow
def test_a_search_to_next_to_no_noise_ends() -> None:
    """Equal reports of three raters say that the raters are exact; rounding then shows.

    Whether it lets the search converge differs between machines.
    """
    words = "rater", "group", "shown_first", "covariate", "count", "probability", "maximize"
    try:
        result = fit(words)["result"]
    except InferenceError as error:
        result = error.result.name
    assert result in ("converged", "hyperparameters_not_converged")
