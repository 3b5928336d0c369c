"""The page of more items than a matrix has room for."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.infer import EP, UtilityPosterior
from relpref.infer.large import problem as answered
from relpref.models import xpgp
from relpref.report import utilities
from relpref.report.page import render

N = 40


@pytest.fixture(scope="module")
def posterior() -> UtilityPosterior:
    rng = np.random.default_rng(4)
    labels = np.array([f"e{row}" for row in range(N)])
    items = pd.DataFrame({"x": rng.standard_normal(N)}, index=labels)
    links = pd.DataFrame({"source": labels, "target": np.roll(labels, -1)})
    first = rng.integers(0, N, 24)
    second = (first + rng.integers(1, N, 24)) % N
    answers = pd.DataFrame({"winner": labels[first], "loser": labels[second]})
    data = PreferenceData.from_tables(items, answers, {"cites": links})
    names = ("attributes_amplitude", "attributes_lengthscale", "cites_amplitude", "cites_range")
    found = EP(
        xpgp,
        fixed=dict.fromkeys(names, 1.0) | {"attributes_linear_share": 0.5},
        structure="sparse",
    ).run(0, data)
    assert isinstance(found, UtilityPosterior)
    return found


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show some of the items alone."""
    for name, number in (("_BEST", 8), ("_UNCERTAIN", 4), ("_CANDIDATES", 15)):
        monkeypatch.setattr(utilities, name, number)


@pytest.mark.parametrize("space", ["sparse", "sparse entity"])
def test_a_sparse_precision_is_named_by_what_it_says_of_its_errors(
    posterior: UtilityPosterior, space: str
) -> None:
    """Earlier versions named the space otherwise, and what they saved still opens."""
    errors = dict.fromkeys(("gap_sd_error", "mean_error", "log_evidence_error"), 0.01)
    said = answered.approximations(
        replace(posterior, info={**posterior.info, **errors, "space": space})
    )
    assert "by the sparse precision of their posterior" in said[0] and "0.01" in said[1]


def plain(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>|[\u2066-\u2069]", " ", page))


@pytest.mark.usefixtures("few")
def test_it_shows_the_best_as_the_ranking_does(posterior: UtilityPosterior) -> None:
    page = render(posterior)
    text = plain(page)
    assert re.search(r"Shown are (9|1[0-2]) of them: the 8 with the highest utilities", text)
    assert "less the average of all 40" in text and "The structure is sparse" in text
    assert re.search(r"Keep in mind .*?\d+ items were never compared\.", text)
    assert (
        "No answers were left out and predicted: it was made by hand" in text
    )  # the diagnostics were asked
    best = posterior.ranking(top=8).iloc[:8]
    rows = re.findall(
        r'<tr><td class="number"><bdi>(\d+)</bdi></td><th scope="row"><bdi>(e\d+)</bdi></th>'
        r'<td class="number"><bdi>([^<]+)</bdi></td><td class="extra number"><bdi>([^<]+)</bdi>',
        page,
    )
    shown = {label: (place, middle, ends) for place, label, middle, ends in rows if " to " in ends}
    for place, (label, row) in enumerate(best.iterrows(), start=1):
        said = tuple(f"{row[name]:.2f}".replace("-", "−") for name in ("mean", "lower", "upper"))
        assert shown[str(label)] == (str(place), said[0], f"{said[1]} to {said[2]}")
    assert render(posterior) == page


@pytest.mark.usefixtures("few")
def test_too_many_answers_are_not_left_out(
    posterior: UtilityPosterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answered, "MAX_ITEMS_OF_ANSWERS", 5)
    text = plain(render(posterior))
    assert (
        "Answers were not left out and predicted, nor searched for surprises: answers are about"
        in text
    )
    assert "never compared" in text
