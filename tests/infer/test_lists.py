"""Lists from tables to posteriors: updated, saved, refused, and under a sampler."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.diagnostics import calibrate, check
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import EP, Laplace
from relpref.likelihoods import Logistic, Probit
from relpref.models import preference_gp

ITEMS = [f"i{at}" for at in range(8)]
FIXED = {"individual_amplitude": 1.0}


def composed(number: int, seed: int) -> pd.DataFrame:
    """Orders of four, and choices among them."""
    rng = np.random.default_rng(seed)
    utility, rows = rng.normal(size=len(ITEMS)), []
    for at in range(number):
        items = rng.choice(len(ITEMS), 4, replace=False)
        order = items[np.argsort(-(utility[items] + np.sqrt(0.5) * rng.normal(size=4)))]
        rows += [
            (at, ITEMS[item], 1 + min(place, 1 + 2 * (at % 2))) for place, item in enumerate(order)
        ]
    return pd.DataFrame(rows, columns=["list", "item", "place"])


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    return PreferenceData.from_tables(ITEMS, composed(10, 1))


def fit(data: PreferenceData, program: Any = preference_gp, **options: Any) -> Any:
    return EP(program, **{"fixed": FIXED, "check": False, **options}).run(0, data)


def test_updates_are_fits(data: PreferenceData, reloaded: Any) -> None:
    before, more = fit(data), composed(3, 2)
    after = before.update(more)
    both = pd.concat([composed(10, 1), more.assign(list=more["list"] + 100)])
    anew = fit(PreferenceData.from_tables(ITEMS, both))
    quick = before.update(more, quick=True)
    for one in (after, quick):
        assert one.log_evidence == pytest.approx(anew.log_evidence, abs=1e-6)
        assert one.mean(site="utility") == pytest.approx(anew.mean(site="utility"), abs=1e-6)
    back = after.update(withdraw=more)
    assert back.log_evidence == pytest.approx(before.log_evidence, abs=1e-6)
    again = reloaded(before)
    assert again.data.comparisons.columns.keys() == data.comparisons.columns.keys()
    assert again.update(more).log_evidence == pytest.approx(after.log_evidence, abs=1e-6)


def test_refused(data: PreferenceData) -> None:
    remedy = r"Laplace has no lists with Gaussian noise \(Thurstone\): fit with EP"
    for engine in (Laplace(preference_gp), Laplace(preference_gp, hyperparameters="em")):
        with pytest.raises(UnsupportedProgramError, match=remedy):
            engine.run(0, data)
    with pytest.raises(UnsupportedProgramError, match="Plackett and Luce"):
        EP(preference_gp, fixed=FIXED).run(0, data, likelihood=Logistic())
    with pytest.raises(DataError, match="lapse=True is for single answers"):
        EP(preference_gp, fixed=FIXED).run(0, data, likelihood=Probit(lapse=True))


@pytest.mark.slow
def test_nuts_agrees(data: PreferenceData) -> None:
    found = check(fit(data), draws=2000)
    assert found.verdict == "agrees", found.sentence


@pytest.mark.slow
def test_calibrated(data: PreferenceData) -> None:
    """Lists are drawn with the noise that their pairs share; independent ones would not be."""
    found = calibrate(preference_gp, data, fixed=FIXED, simulations=1000)
    assert found.p_value() > 1e-3
