"""People who are new to a run whose answers name their raters: in the loop and on the page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.ask.learning import up_to_date
from relpref.ask.loop import Loop
from relpref.runs import load_run

# The answers of one rater alone need not connect all items, and are not those that hyperparameters
# were found by.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*tied together by no comparison"),
    pytest.mark.filterwarnings("ignore:only .* weighted hyperparameters are effective"),
]
PAIRS = ["ab", "bc", "cd", "de", "ef", "fg", "ab", "gf"]


@pytest.fixture(scope="module")
def made(fit: Any) -> Any:
    table = pd.DataFrame(map(list, PAIRS), columns=["winner", "loser"])
    table["tie"], table["rater"] = [False, False, True, False] * 2, ["ann", "bob"] * 4
    held = {"individual_amplitude": 1, "tie_margin": 0.3, "rater_margin_spread": 0.3}
    held |= {"rater_noise": 1, "rater_spread": 0.3}
    return fit("", table.to_csv(index=False), "--margins rater", **held)


@pytest.fixture
def loop(run: Path) -> Iterator[Loop]:
    with Loop.open(run) as found:
        yield found


def answer(loop: Loop, outcome: str, rater: str = "new") -> None:
    question = loop.question(rater)
    assert question is not None and loop.why(question)
    loop.answer(question.id, outcome, rater)
    assert not loop.trouble


def test_somebody_new_is_asked_on_and_on(loop: Loop, run: Path, tmp_path: Path) -> None:
    before = loop.posterior
    for outcome in ("first", "tie", "second"):
        answer(loop, outcome)
    answer(loop, "first", "newer")
    assert loop.posterior.data.comparisons.raters == ("ann", "bob", "new", "newer")
    assert loop.posterior.hyperparameter_draws["rater_margin"].shape[1:] == (4,)
    assert loop.posterior.prefer("a", "g", rater="new").equals(loop.posterior.prefer("a", "g"))
    assert loop.progress("new").answers == 3 and len(loop.own_answers("new")) == 3
    assert loop.own_ranking("new") is not None and len(loop.questions("new", 2)) == 2
    assert loop.undo("new") is not None and loop.undo("newer") is not None
    while loop.undo("new") is not None:
        pass
    np.testing.assert_allclose(loop.posterior.mean(), before.mean(), atol=0.02)
    answer(loop, "first")
    assert loop.export_answers(tmp_path / "all.csv") == 9
    known, number = up_to_date(load_run(run))
    assert number == 1 and known.data.comparisons.raters[-1] == "new"
    assert loop.refine() and not loop.trouble
    loop.close()
    with Loop.open(run) as again:
        answer(again, "second")
        answer(again, "tie", "newest")
        assert again.posterior.data.num_answers == 11 and again.question("new") is not None
