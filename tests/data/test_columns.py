"""The schema of answers: a column that is added to it, and the one order of rows."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

import relpref
from relpref.data import PreferenceData
from relpref.data.columns import COLUMNS
from relpref.data.comparisons import changed

# The whole change that a new column takes: a line of the schema, its array, its part in the noise.
COLUMN = """        Column(
            "confidence",
            np.float64,
            lambda rows: (
                lambda x: rows.table.refuse("confidence", (x <= 0) | (x > 1), " is no confidence") or x
            )(rows.table.numbers("confidence", "write 1")),
            absent=1,
        ),
"""
SCALE = """        if answers.confidence is not None:
            scale = scale / answers.confidence
"""
CONFIDENCE = {
    "data/columns.py": ('        Column("weight", np.float64, _weights, absent=1),\n', COLUMN),
    "data/comparisons.py": (
        "    weight: Floats | None = None\n",
        "    confidence: Floats | None = None\n",
    ),
    "likelihoods/answers.py": (
        '        scale = 1.0 if answers.rater is None else parameters["rater_noise"][answers.rater]\n',
        SCALE,
    ),
}
USE = """
import pandas as pd, pytest, sys
import relpref
from relpref import PreferenceData
from relpref.ask.tables import _SHARED
from relpref.errors import DataError
from relpref.infer import EP
from relpref.models import preference_gp

items = list("abcd")
votes = pd.DataFrame({"winner": list("aabc"), "loser": list("bbcd"), "confidence": [1, 0.5, 0.5, 1]})
with pytest.raises(DataError, match="row 1.*column 'confidence': 2 is no confidence"):
    PreferenceData.from_tables(items, votes.assign(confidence=[1, 2, 1, 1]))
data = PreferenceData.from_tables(items, votes)
assert data.comparisons.confidence.tolist() == [0.5, 1, 0.5, 1] and data.count.tolist() == [1] * 4
again = PreferenceData.from_tables(items, data.to_tables()[1])
assert again.comparisons.confidence.tolist() == data.comparisons.confidence.tolist()
orders = pd.DataFrame({"list": 1, "item": items, "place": [1, 2, 3, 4], "confidence": 0.25})
lists = PreferenceData.from_tables(items, orders)
assert PreferenceData.from_tables(items, lists.to_tables()[1]).comparisons.confidence.tolist() == [0.25] * 3

def fit(data):
    return EP(preference_gp, fixed={"individual_amplitude": 1.0}).run(0, data, progress_bar=False)

posterior, sure = fit(data), fit(PreferenceData.from_tables(items, votes.assign(confidence=1)))
plain = fit(PreferenceData.from_tables(items, votes.drop(columns="confidence")))
assert sure.mean() == pytest.approx(plain.mean(), abs=1e-9)
assert posterior.mean()[0] < plain.mean()[0] - 0.01
posterior.save(sys.argv[1])
loaded = relpref.load(sys.argv[1])
assert loaded.data.comparisons.confidence.tolist() == [0.5, 1, 0.5, 1]
joined = loaded.update(votes[["winner", "loser"]].head(1))
assert joined.data.comparisons.confidence.tolist() == [0.5, 1, 0.5, 1] and joined.data.count[1] == 2
assert 0.5 < loaded.prefer([("a", "b")])["probability"][0] < 1
assert _SHARED["confidence"] == 1
"""


def test_a_new_column_touches_three_files(tmp_path: Path) -> None:
    """A confidence, a number in (0, 1], is read, refused, merged, written, fitted, saved, joined,
    predicted, and known to questions.
    """
    package = Path(relpref.__file__).parent
    shutil.copytree(package, tmp_path / "relpref", ignore=shutil.ignore_patterns("__pycache__"))
    assert len(CONFIDENCE) <= 3
    for name, (before, line) in CONFIDENCE.items():
        file = tmp_path / "relpref" / name
        text = file.read_text()
        assert text.count(before) == 1
        file.write_text(text.replace(before, before + line))
    run = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path / "saved.nc")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]


ROW = st.tuples(
    st.sampled_from(["ab", "ba", "bc", "ca"]),
    st.booleans(),
    st.sampled_from([1, 2]),
    st.sampled_from(["x", "y"]),
    st.sampled_from([0, 1, None]),
    st.sampled_from(["p", "q", None]),
    st.sampled_from([0.5, 1.0]),
    st.sampled_from([0.0, 1.0]),
    st.integers(1, 3),
)


def brute_force(rows: list[Any]) -> list[tuple[Any, ...]]:
    """The answers in the order of the schema, the count last."""
    counts: dict[tuple[Any, ...], int] = {}
    for pair, tie, grade, by, at, group, weight, length, count in rows:
        ends = sorted(pair) if tie else list(pair)  # a tie names the earlier item first
        first = 0 if at is None else 1 if pair[at] == ends[0] else -1
        difference = (length - 0.5) * (1 if ends == list(pair) else -1)
        places = ["xy".index(by), first, -1 if group is None else "pq".index(group)]
        key = (*map("abc".index, ends), tie, 0 if tie else grade, *places, difference, weight)
        counts[key] = counts.get(key, 0) + count
    return sorted((*key, count) for key, count in counts.items())


def entries(answers: Any) -> list[tuple[Any, ...]]:
    """The answers of data, with what is absent filled in."""
    order = [name for name in COLUMNS if name not in ("list", "probability", "count")]
    order.append("count")
    columns = [getattr(answers, name) for name in order]
    filled = [
        np.full(len(answers.winner), COLUMNS[name].absent) if column is None else np.ravel(column)
        for name, column in zip(order, columns, strict=True)
    ]
    return list(zip(*(column.tolist() for column in filled), strict=True))


@settings(deadline=None, max_examples=25)
@given(st.lists(ROW, min_size=2, max_size=12), st.integers(1, 11), st.randoms())
def test_rows_have_the_order_of_the_schema(rows: Any, split: int, random: Any) -> None:
    """Whether they are read, joined or taken back."""
    known = pd.DataFrame({"winner": ["a", "a"], "loser": ["b", "c"], "rater": ["x", "y"]})
    known = known.assign(group=["p", "q"], length_winner=1.0, length_loser=0.0)
    start = PreferenceData.from_tables(list("abc"), known, covariates=["length"])

    def read(rows: list[Any]) -> Any:
        cells = [
            (*pair, tie, None if tie else grade, by, None if at is None else pair[at], *rest)
            for pair, tie, grade, by, at, *rest in random.sample(rows, len(rows))
        ]
        names = ["winner", "loser", "tie", "strength", "rater", "shown_first", "group", "weight"]
        table = pd.DataFrame(cells, columns=[*names, "length_winner", "count"])
        table = table.assign(length_loser=0.5)
        return start.with_comparisons(table).comparisons

    assert entries(read(rows)) == brute_force(rows)
    first, second = rows[: min(split, len(rows) - 1)], rows[min(split, len(rows) - 1) :]
    joined = changed(read(first), read(second), "abc", withdraw=False).answers
    assert entries(joined) == brute_force(rows)
    back = changed(joined, read(second), "abc", withdraw=True).answers
    assert entries(back) == brute_force(first)
