"""What the next answer tells where answers have groups and covariates, against a fit with each of
the answers that it may be.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.explore import next_pairs
from relpref.explore.choose import answers_of
from relpref.infer import EP
from relpref.models import xpgp

LABELS = [f"e{row}" for row in range(6)]


@pytest.fixture(scope="module")
def posterior() -> Any:
    """Three votes on each of a few pairs, most of them by those at home."""
    rng = np.random.default_rng(4)
    rows = []
    for question in range(10):
        first, second = rng.choice(LABELS, 2, replace=False)
        for _ in range(3):
            home = (first, second, None)[rng.integers(3)]
            winner, loser = (first, second) if rng.random() < 0.7 else (second, first)
            rows.append((winner, loser, question, home))
    answers = pd.DataFrame(rows, columns=["winner", "loser", "group", "home"])
    items = pd.DataFrame({"x": rng.standard_normal(6)}, index=LABELS)
    data = PreferenceData.from_tables(items, answers, covariates=["home"])
    amplitudes = {
        "attributes_amplitude": 1.0,
        "attributes_lengthscale": 1.0,
        "attributes_linear_share": 0.5,
        "individual_amplitude": 0.6,
    }
    fixed = amplitudes | {"group_sd": 1.2, "effect_scale": 0.5}
    return EP(xpgp, fixed=fixed, check=False).run(0, data)


def test_the_next_answer_is_of_a_new_group_and_of_equal_sides(posterior: Any) -> None:
    table = next_pairs(posterior, score="bald", repeats=99, rng_key=0)
    pair = (table["first"][0], table["second"][0])
    ends = [posterior.data.index([label]) for label in pair]
    before, information, left = posterior.belief.differences(*ends), 0.0, 0.0
    probability = posterior.prefer([pair])["probability"][0]
    assert table["probability"][0] == probability
    for (winner, loser), chance in ((pair, probability), (pair[::-1], 1 - probability)):
        answer = pd.DataFrame([{"winner": winner, "loser": loser, "group": "new", "home": None}])
        after = posterior.update(answer).belief.differences(*ends)
        moved, shrunk = (after.mean[0] - before.mean[0]) / before.sd[0], after.sd[0] / before.sd[0]
        # On average over the answers what is told is how far, by Kullback and Leibler, the
        # posterior is from the one before.
        information += chance * 0.5 * (shrunk**2 + moved**2 - 1 - 2 * np.log(shrunk))
        left += chance * after.sd[0] ** 2
    assert table["score"][0] == pytest.approx(information, rel=0.03)
    shrinkage = answers_of(posterior).forecast(before.mean, np.square(before.sd)).shrinkage[0]
    assert shrinkage * before.sd[0] ** 4 == pytest.approx(before.sd[0] ** 2 - left, rel=0.03)
