from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from relpref.data import PreferenceData

ABCD = list("abcd")
FIXED = {"next_amplitude": 1.0, "next_range": 1.0}


def bare(links: Any, answers: Any = ("ab", "cd")) -> PreferenceData:
    """Four items without attributes, two answers, three links."""
    edges = pd.DataFrame({"source": [s for s, _ in links], "target": [t for _, t in links]})
    table = pd.DataFrame({"winner": [w for w, _ in answers], "loser": [x for _, x in answers]})
    return PreferenceData.from_tables(ABCD, table, {"next": edges})


def test_nothing_ties_them_together(fit: Any) -> None:
    with pytest.warns(
        UserWarning, match="2 groups.*no comparison, relation or attribute"
    ) as caught:
        posterior = fit(bare(["ab", "cd"]), FIXED)
    assert "2 groups" in posterior.info["groups"]
    # The warning points at the caller.
    assert not caught[0].filename.endswith(("assemble.py", "ep.py"))


@pytest.mark.parametrize(
    ("links", "answers"),
    [(["ab", "bc"], ["ab", "cd"]), (["ab", "cd"], ["ab", "bc"]), (["ad", "bc"], ["ab", "cd"])],
)
def test_answers_or_links_tie_them_together(links: Any, answers: Any, fit: Any) -> None:
    assert "groups" not in fit(bare(links, answers), FIXED).info


def test_attributes_tie_them_together(make_data: Callable[..., PreferenceData], fit: Any) -> None:
    """Two groups of six: one line in the info, no warning."""
    inside = [(i, j) for i in range(12) for j in range(12) if i != j and (i < 6) == (j < 6)]
    links = [(i, j) for i, j in inside if i < j][::2][:14]
    posterior = fit(make_data(pairs=inside[::2], links=links))
    assert (
        posterior.info["groups"] == "2 groups of items are tied together by their attributes alone"
    )
