"""Effects of attributes: against finite differences, explicit sums, least squares, and simulation."""

import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom

import relpref
from relpref.data import PreferenceData
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import EP
from relpref.kernels import (
    Matern32,
    Matern52,
    Precomputed,
    SquaredExponential,
)
from relpref.kernels.attribute import Stationary
from relpref.linalg import Dense
from relpref.models import xpgp
from relpref.report.blocks import significant

FIXED = {"attributes_amplitude": 1.3, "attributes_lengthscale": np.array([0.9, 1.6])}


@jax.tree_util.register_static
@dataclass(frozen=True, kw_only=True)
class RationalQuadratic(Stationary):
    """A kernel from outside, whose derivatives are found by JAX."""

    def correlation(self, squared: Any) -> Any:
        return 1 / (1 + squared / 2)


@jax.tree_util.register_static
@dataclass(frozen=True)
class WithoutDerivative:
    """A kernel that gives a matrix and nothing else."""

    def parameters(self, number: int) -> dict[str, Any]:
        return {}

    def __call__(self, attributes: Any) -> Dense:
        gaps = jnp.abs(attributes[:, None] - attributes[None]).sum(axis=2)
        return Dense(jnp.exp(-gaps))


def items_of(number: int = 12, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"x": 3 + 2 * rng.normal(size=number), "y": rng.normal(size=number)},
        index=[f"i{at}" for at in range(number)],
    )


def answers_of(utility: Any, number: int, seed: int = 1) -> pd.DataFrame:
    """Answers of people whose noise has sd 1."""
    rng = np.random.default_rng(seed)
    labels, size = np.asarray(utility.index), len(utility)
    first = rng.integers(0, size, number)
    second = (first + rng.integers(1, size, number)) % size
    values = utility.to_numpy()
    won = values[first] - values[second] + rng.normal(size=number) > 0
    ends = np.where(won, [first, second], [second, first])
    return pd.DataFrame(labels[ends].T, columns=["winner", "loser"])


def fitted(items: pd.DataFrame, kernel: Any, fixed: Any = FIXED, **options: Any) -> Any:
    answers = answers_of(items["x"] / 2 - items["y"] ** 2, 60)
    program = {"attribute_kernel": kernel, "individual": False, **options}
    return relpref.fit(items, answers, fixed=fixed, check=False, **program)


@pytest.mark.filterwarnings("ignore:.*were compared, but the prior has one utility for both")
@pytest.mark.parametrize(
    ("kernel", "step", "tolerance"),
    [
        (Matern52(), 1e-4, 1e-5),
        (Matern32(), 1e-5, 1e-3),  # the difference of a function of one derivative errs by O(h)
        (RationalQuadratic(), 1e-4, 1e-5),
    ],
)
def test_finite_differences_of_predictions(kernel: Any, step: float, tolerance: float) -> None:
    items = items_of()
    items.iloc[3] = items.iloc[4]  # equal items are at distance 0, too
    posterior = fitted(items, kernel)
    effects = posterior.attribute_effects()
    assert effects["change"].tolist() == ["one sd", "one sd"]
    for name in items:
        sd, effect = items[name].std(ddof=0), effects.loc[name]
        assert effect["unit"] == pytest.approx(sd)
        up, down = (items.assign(**{name: items[name] + sign * step * sd}) for sign in (1, -1))
        moved = pd.concat([up.rename("{}+".format), down.rename("{}-".format)])
        belief = posterior.extend(moved).belief
        size = len(items)
        row = np.repeat([0.0, 1.0, -1.0], size)[None] / (2 * step * size)
        slope = belief.project(row)
        assert effect["mean"] == pytest.approx(slope.mean()[0], abs=tolerance)
        assert effect["sd"] == pytest.approx(slope.sd()[0], rel=10 * tolerance)
        ends = np.concatenate(slope.interval(0.9))
        assert_allclose(effect[["lower", "upper"]].astype(float), ends, atol=20 * tolerance)


def test_explicit_sums_over_the_hyperparameters() -> None:
    """Each component is the regression of the mean slope on the utilities, in plain loops."""
    items = items_of(7)
    answers = answers_of(items["x"] / 2 - items["y"] ** 2, 30)
    posterior: Any = relpref.fit(items, answers, check=False)
    draws, belief = posterior.hyperparameter_draws, posterior.belief
    assert len(belief.weights) > 3
    z = ((items - items.mean()) / items.std(ddof=0)).to_numpy()
    n, means, variances = len(z), [], []
    for at in range(len(belief.weights)):
        values = {**posterior.hyperparameters, **{name: draws[name][at] for name in draws}}
        length, share = values["attributes_lengthscale"], values["attributes_linear_share"]
        weight = length**-2.0 / np.sum(length**-2.0)
        prior, cross, own = np.zeros((n, n)), np.zeros(n), 0.0
        for i in range(n):
            for j in range(n):
                gap = (z[i] - z[j]) / length
                smooth = np.exp(-0.5 * gap @ gap)
                prior[i, j] = (1 - share) * smooth + share * (weight * z[i]) @ z[j]
                slope = -gap[0] / length[0] * smooth
                cross[j] += ((1 - share) * slope + share * weight[0] * z[j, 0]) / n
                bend = (1 - gap[0] ** 2) / length[0] ** 2 * smooth
                own += ((1 - share) * bend + share * weight[0]) / n**2
        square = values["attributes_amplitude"] ** 2
        total = square * prior + values["individual_amplitude"] ** 2 * np.eye(n)
        gain = np.linalg.solve(total, square * cross)
        means.append(gain @ belief.locations[at])
        left = square * own - square * cross @ gain
        variances.append(left + gain @ belief.scales[at] @ gain)
    mean = belief.weights @ np.array(means)
    spread = belief.weights @ (np.array(variances) + np.square(np.array(means) - mean))
    effect = posterior.attribute_effects().loc["x"]
    assert effect["mean"] == pytest.approx(mean, abs=1e-8)
    assert effect["sd"] == pytest.approx(np.sqrt(spread), rel=1e-6)
    assert effect["lower"] < effect["mean"] < effect["upper"]


def test_of_a_plane_the_effects_are_its_slopes(reloaded: Any) -> None:
    """Also beside relations, covariates, groups and the items themselves, and from a file."""
    items = items_of(14)
    answers = answers_of(items["x"] / 2 + items["y"], 80)
    home = np.where(np.arange(80) % 3, answers["winner"], answers["loser"])
    answers = answers.assign(home=home, group=np.arange(80) // 4)
    links = pd.DataFrame({"source": items.index[:-1], "target": items.index[1:]})
    options: dict[str, Any] = {"attribute_kernel": "linear", "covariates": ["home"]}
    posterior: Any = relpref.fit(
        items, answers, {"near": links}, hyperparameters="maximize", check=False, **options
    )
    part = posterior.explain()["attributes"]
    z = (items - items.mean()) / items.std(ddof=0)
    slopes = np.linalg.lstsq(z.to_numpy(), part.to_numpy(), rcond=None)[0]
    effects = posterior.attribute_effects()
    assert_allclose(effects["mean"], slopes, atol=1e-7)
    again = reloaded(posterior)
    pd.testing.assert_frame_equal(again.attribute_effects(), effects)


def test_the_plane_that_fits_best_where_a_kernel_has_no_derivative() -> None:
    items = items_of(14).assign(flag=[0, 1] * 7)
    fixed = {"attributes_amplitude": 1.0}
    posterior = fitted(items, WithoutDerivative(), fixed, individual=True, hyperparameters="em")
    effects = posterior.attribute_effects()
    changes = ["one sd, least squares"] * 2 + ["switch, least squares"]
    assert effects["change"].tolist() == changes
    design = (items - items.mean()) / items.std(ddof=0)
    design["flag"] = items["flag"] - 0.5
    part = posterior.explain()["attributes"]
    slopes = np.linalg.lstsq(design.to_numpy(), part.to_numpy(), rcond=None)[0]
    assert_allclose(effects["mean"], slopes, atol=1e-7)
    assert np.all(effects["sd"] > 0) and "bent" not in set(effects["shape"])
    with pytest.raises(DataError, match="WithoutDerivative has no method cross"):
        posterior.partial_effect("x")


def test_levels_are_switched() -> None:
    items = items_of(9).assign(kind=list("uvwuvwuvw"), organic=[0, 1, 1, 0, 1, 0, 0, 0, 1])
    length = np.array([0.9, 1.6, 1.1, 0.8, 1.3, 1.2])
    posterior = fitted(items, Matern52(), FIXED | {"attributes_lengthscale": length})
    effects = posterior.attribute_effects()
    names = ["x", "y", "kind=u", "kind=v", "kind=w", "organic"]
    assert effects.index.tolist() == names and effects.index.name == "attribute"
    assert effects["change"].tolist() == ["one sd"] * 2 + ["switch"] * 4
    size = len(items)
    columns: dict[str, list[Any]] = {"kind": list("uvw"), "organic": [0, 1]}
    for column, levels in columns.items():
        moved = [items.assign(**{column: level}).rename(f"{{}}{level}".format) for level in levels]
        belief = posterior.extend(pd.concat(moved)).belief
        for at, level in enumerate(levels):
            against = np.full(len(levels), -1 / (len(levels) - 1))
            against[at] = 1.0
            row = np.concatenate([np.zeros(size), np.repeat(against, size)])[None] / size
            name = f"kind={level}" if column == "kind" else "organic"
            if level == 0:
                continue
            change = belief.project(row)
            assert effects.loc[name, "mean"] == pytest.approx(change.mean()[0], abs=1e-6)
            assert effects.loc[name, "sd"] == pytest.approx(change.sd()[0], rel=1e-5)


def test_a_partial_effect_is_a_mean_of_predictions() -> None:
    items = items_of()
    posterior = fitted(items, SquaredExponential())
    curve = posterior.partial_effect("y")
    assert curve.index.name == "y" and len(curve) == 11
    assert curve.index[0] == items["y"].min() and curve.index[-1] == items["y"].max()
    moved = [
        items.assign(y=value).rename(f"{{}} {at}".format) for at, value in enumerate(curve.index)
    ]
    belief = posterior.extend(pd.concat(moved)).belief
    size, grid = len(items), len(curve)
    rows = np.repeat(np.eye(grid) - 1 / grid, size, axis=1) / size
    expected = belief.project(np.concatenate([np.zeros((grid, size)), rows], axis=1))
    assert_allclose(curve["mean"], expected.mean(), atol=1e-6)
    assert_allclose(curve["sd"], expected.sd(), rtol=1e-4)
    with pytest.raises(DataError, match="there is no attribute 'z'"):
        posterior.partial_effect("z")


@pytest.fixture(scope="module")
def bent() -> Any:
    """One attribute raises the utility, one does so up to its mean, and one does nothing."""
    items = items_of(40, seed=3).assign(noise=np.random.default_rng(4).normal(size=40))
    utility = 0.5 * items["x"] - 1.5 * (items["y"] - items["y"].mean()) ** 2
    answers = answers_of(utility, 400)
    answers["home"] = np.where(np.arange(400) % 2, answers["winner"], answers["loser"])
    return relpref.fit(items, answers, covariates=["home"], hyperparameters="maximize", check=False)


def test_bent_is_not_nothing(bent: Any) -> None:
    effects = bent.attribute_effects()
    assert effects["shape"].to_dict() == {"x": "up", "y": "bent", "noise": "unclear"}
    assert effects.loc["x", "p_positive"] > 0.99 and effects.loc["x", "lower"] > 0
    narrow = bent.attribute_effects(interval=0.5)
    assert np.all(narrow["lower"] > effects["lower"])
    assert_array_equal(narrow["mean"], effects["mean"])


def test_draws_give_nearly_the_same() -> None:
    posterior = fitted(items_of(), SquaredExponential())
    drawn = posterior.reweighted(4000, rng_key=0)
    exact, near = posterior.attribute_effects(), drawn.attribute_effects()
    # EP and the exact posterior differ by a few hundredths of an sd, and so do 1000 draws.
    assert np.all(np.abs(near["mean"] - exact["mean"]) < 0.25 * exact["sd"])
    assert_allclose(near["sd"], exact["sd"], rtol=0.1)


def test_the_first_page_of_the_report_has_the_effects(bent: Any, tmp_path: Any) -> None:
    effects = bent.attribute_effects()
    page = bent.report(tmp_path / "page.html").read_text(encoding="utf-8")
    front = page[: page.index("<details")]
    assert "Effects of covariates" in front and "Partial effects" in front
    text = " ".join(re.sub("<[^>]*>", " ", front).split())
    for name, shape in {"x": "raises", "y": "bent"}.items():
        mean, lower, upper, unit = effects.loc[name, ["mean", "lower", "upper", "unit"]]
        row = (
            f"{name} {mean:+.2f} {lower:+.2f} to {upper:+.2f} {shape} one sd ({significant(unit)})"
        )
        assert row.replace("-", "−") in text
    axes = bent.plot_effect("y")
    assert axes.get_xlabel() == "y" and len(axes.get_lines()) == 2
    pyplot.close(axes.figure)


def test_what_has_no_effects() -> None:
    items = items_of()
    alone = relpref.fit(answers=answers_of(items["x"], 30), fixed={"individual_amplitude": 1.0})
    assert alone.attribute_effects().empty
    some = fitted(items, SquaredExponential()).subset(["i0", "i1", "i2"])
    with pytest.raises(UnsupportedProgramError, match="prior covariance matrix of all items"):
        some.attribute_effects()
    with pytest.raises(DataError, match="have no attributes"):
        fitted(items, Precomputed(np.eye(12)), {}).attribute_effects()


def test_intervals_hold_the_truth() -> None:
    """Functions are drawn by Fourier features, whose mean slopes are known.

    The number of 90 % intervals that hold the truth is binomial; both tails together have a
    probability of 1 in 1000 for each of the two attributes.
    """
    repeats, features, size = 60, 500, 15
    rng = np.random.default_rng(7)
    kernel, hits = SquaredExponential(), np.zeros(2)
    length, amplitude = np.asarray(FIXED["attributes_lengthscale"]), 1.3
    engine = EP(xpgp, fixed=FIXED)
    for repeat in range(repeats):
        items = items_of(size, seed=100 + repeat)
        z = ((items - items.mean()) / items.std(ddof=0)).to_numpy()
        frequency = rng.normal(size=(features, 2)) / length
        phase = rng.uniform(0, 2 * np.pi, features)
        weight = amplitude * np.sqrt(2 / features) * rng.normal(size=features)
        angle = z @ frequency.T + phase
        utility = pd.Series(np.cos(angle) @ weight, index=items.index)
        slope = (-(np.sin(angle) * weight) @ frequency).mean(axis=0)
        data = PreferenceData.from_tables(items, answers_of(utility, 40, seed=200 + repeat))
        posterior: Any = engine.run(0, data, attribute_kernel=kernel, individual=False)
        effects = posterior.attribute_effects()
        hits += (effects["lower"].to_numpy() < slope) & (slope < effects["upper"].to_numpy())
    low, high = binom.ppf([0.0005, 0.9995], repeats, 0.9)
    assert np.all((low <= hits) & (hits <= high)), hits
