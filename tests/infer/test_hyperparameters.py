from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import stats

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.infer import EP, Laplace
from relpref.models import preference_gp, xpgp


def log_prior(values: dict[str, Any], data: PreferenceData) -> float:
    """Density of the default priors on the log scale, of the share on the scale of its log odds."""
    scales = {"next_amplitude": 1.0, "individual_amplitude": 1.0}
    amplitudes = np.array([values[name] for name in scales])
    total = np.sum(
        stats.halfnorm.logpdf(amplitudes, scale=list(scales.values())) + np.log(amplitudes)
    )
    total += np.sum(
        stats.norm.logpdf(np.log(values["attributes_lengthscale"]), 0.5 * np.log(2), 1.0)
    )
    amplitude, share = values["attributes_amplitude"], values["attributes_linear_share"]
    total += stats.rayleigh.logpdf(amplitude, scale=2.0) + np.log(amplitude)
    total += stats.beta.logpdf(share, 2, 1) + np.log(share * (1 - share))
    median = np.sqrt(10 / data.relations["next"].mean_degree)
    return float(total + stats.norm.logpdf(np.log(values["next_range"]), np.log(median), 1.0))


def changed(name: str, value: Any, factor: Any) -> Any:
    """A hyperparameter times a factor; of a share the odds."""
    if not name.endswith("_share"):
        return value * factor
    odds = value / (1 - value) * factor
    return odds / (1 + odds)


def test_they_maximise_evidence_and_prior(maximised: Any, data: PreferenceData, fit: Any) -> None:
    found = maximised.hyperparameters
    assert maximised.info["result"] == "converged"
    assert abs(maximised.info["log_prior"] - log_prior(found, data)) <= 1e-9
    assert abs(maximised.log_evidence - fit(data, found).log_evidence) <= 1e-9

    def objective(values: dict[str, Any]) -> float:
        return float(fit(data, values, tol=1e-10).log_evidence) + log_prior(values, data)

    for name, value in found.items():
        for entry in np.ndindex(np.shape(value)):
            ends = []
            for factor in (np.exp(1e-4), np.exp(-1e-4)):
                moved = np.array(value)
                moved[entry] = changed(name, moved[entry], factor)
                ends.append(objective({**found, name: moved}))
            assert abs(ends[0] - ends[1]) / 2e-4 <= 1e-2, (name, entry)
    rng = np.random.default_rng(0)
    best = objective(found)
    for _ in range(4):
        assert (
            objective(
                {
                    n: changed(n, v, np.exp(0.3 * rng.standard_normal(np.shape(v))))
                    for n, v in found.items()
                }
            )
            < best
        )


def test_restarts_do_not_make_it_worse(maximised: Any, data: PreferenceData) -> None:
    several = EP(xpgp, hyperparameters="maximize", restarts=3).run(
        0, data
    )  # a seed is as good as a key

    def objective(posterior: Any) -> float:
        return float(posterior.log_evidence + posterior.info["log_prior"])

    assert objective(several) >= objective(maximised) - 1e-6


def test_some_may_be_fixed(data: PreferenceData) -> None:
    fixed = {"attributes_lengthscale": 1.5}
    found = EP(preference_gp, fixed=fixed).run(0, data)
    assert_array_equal(found.hyperparameters["attributes_lengthscale"], [1.5, 1.5])
    assert set(found.hyperparameters) == {
        "attributes_lengthscale",
        "attributes_amplitude",
        "attributes_linear_share",
        "individual_amplitude",
    }
    assert found.info["gradient_norm"] <= 1e-2
    assert found.info["result"] == "converged"


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"atributes_amplitude": 1.0}, "'atributes_amplitude'.*attributes_amplitude"),
        ({"answer": 1.0}, "'answer'"),
        ({"attributes_amplitude": np.nan}, "must be finite"),
        ({"attributes_amplitude": -1.0}, "outside the site's support"),
        ({"attributes_lengthscale": [1.0, 2.0, 3.0]}, r"shape \(3,\); the site has shape \(2,\)"),
    ],
)
def test_fixed_values_that_do_not_fit(
    fixed: Any, message: str, fit: Any, data: PreferenceData
) -> None:
    with pytest.raises(DataError, match=message):
        fit(data, fixed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hyperparameters": "guess"}, "'guess'"),
        ({"space": "dual"}, "'dual'"),
        ({"restarts": 0}, "restarts is 0"),
        ({"max_sweeps": 0}, "max_sweeps is 0"),
        ({"max_evaluations": -1}, "max_evaluations is -1"),
        ({"tol": 0.0}, "tol is 0.0"),
        ({"tol": 1.0}, "tol is 1.0"),
        ({"hyperparameters": "nuts", "draws": 7}, "draws is 7"),
        ({"hyperparameters": "nuts", "warmup": 0}, "warmup is 0"),
    ],
)
def test_options_that_mean_nothing(options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        EP(preference_gp, **options)


def test_a_program_must_be_callable() -> None:
    program: Any = "xpgp"
    with pytest.raises(DataError, match="relpref.models.xpgp"):
        EP(program)


@pytest.mark.parametrize("hyperparameters", ["maximize", "integrate"])
def test_searches_among_very_many_items_start_at_the_optimum_of_some(
    hyperparameters: Any, data: PreferenceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EP(xpgp, hyperparameters=hyperparameters, check=False)
    plain = engine.run(0, data, progress_bar=False)
    monkeypatch.setattr("relpref.infer.engine._VERY_MANY", data.num_items)
    monkeypatch.setattr("relpref.infer.engine._SOME", data.num_items - 4)
    near = engine.run(0, data, progress_bar=False)
    assert near.info["evaluations"] < plain.info["evaluations"]
    assert near.log_evidence == pytest.approx(plain.log_evidence, abs=0.02)
    assert near.mean() == pytest.approx(plain.mean(), abs=0.02 * plain.sd().max())
    # Where scales of raters are learned, the search has other hyperparameters.
    raters = pd.Series(list("abc") * 50)[: len(data.comparisons)]
    table = data.to_tables()[1].assign(rater=raters)
    by_raters = Laplace(xpgp, hyperparameters=hyperparameters, throw=False)
    assert by_raters.run(0, data.with_comparisons(table), progress_bar=False).mean().shape
