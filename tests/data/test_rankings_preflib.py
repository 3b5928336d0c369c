"""PrefLib's four formats."""

from pathlib import Path

import numpy as np
import pytest

from relpref import Rankings
from relpref.errors import DataError

TOI = """# FILE NAME: small.toi
# DATA TYPE: toi
# NUMBER ALTERNATIVES: 4
# NUMBER VOTERS: 4
# NUMBER UNIQUE ORDERS: 3
# ALTERNATIVE NAME 1: Ann: the first
# ALTERNATIVE NAME 2: Bob
# ALTERNATIVE NAME 3: Cid
# ALTERNATIVE NAME 4: Dee
2: 2,{1,3}
1: {4,1} , 3 , 2
1: 3
"""


def write(folder: Path, text: str, name: str = "small.toi") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_the_meaning_of_incomplete_orders_is_asked(tmp_path: Path) -> None:
    file = write(tmp_path, TOI)
    with pytest.raises(DataError, match="incomplete='top-k'.*incomplete='subset'"):
        Rankings.from_preflib(file)
    with pytest.raises(DataError, match="incomplete is 'bottom'"):
        Rankings.from_preflib(file, incomplete="bottom")  # type: ignore[arg-type]
    subset = Rankings.from_preflib(file, incomplete="subset")
    assert subset.items.labels == ("Ann: the first", "Bob", "Cid", "Dee")
    np.testing.assert_array_equal(
        subset.positions, [[1, 0, 1, -1], [1, 0, 1, -1], [0, 2, 1, 0], [-1, -1, 0, -1]]
    )
    top = Rankings.from_preflib(file, incomplete="top-k")
    np.testing.assert_array_equal(
        top.positions, [[1, 0, 1, 2], [1, 0, 1, 2], [0, 2, 1, 0], [1, 1, 0, 1]]
    )
    assert top.kinds == ("exhaustive", "exhaustive", "exhaustive", "top-k")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "2: 2,{1,3}",
            "2: 2,{1,3",
            r"line 10: '2: 2,\{1,3' is not an order; expected .* as in '3: 1,2,\{3,4\}'",
        ),
        ("2: 2,{1,3}", "two: 2,{1,3}", "line 10: .* is not an order"),
        ("2: 2,{1,3}", "0: 2,{1,3}", "line 10: .* is not an order"),
        ("2: 2,{1,3}", "2: {1 2,3}", "line 10: .* is not an order"),
        ("2: 2,{1,3}", "²: 2,{1,3}", "line 10: .* is not an order"),
        ("ALTERNATIVES: 4", "ALTERNATIVES: ²", "4 names .* the NUMBER ALTERNATIVES is ²"),
        (
            "ALTERNATIVES: 4",
            "ALTERNATIVES: 3",
            "there are 4 names of alternatives where the NUMBER ALTERNATIVES is 3",
        ),
        ("2: 2,{1,3}", "2:", "line 10: .* is not an order"),
        ("2: 2,{1,3}", "2: 2,{1,5}", "line 10: there is no alternative 5, only 1 to 4"),
        ("2: 2,{1,3}", "2: 2,{1,2}", "line 10: the alternative 2 is in the order twice"),
        ("2: 2,{1,3}\n", "", "orders of 2 voters where the metadata promise 4"),
        ("TYPE: toi", "TYPE: soi", r"line 10: \{1,3\} is a tie"),
        (
            "TYPE: toi",
            "TYPE: toc",
            "line 10: the alternative 4 is missing in a file of complete orders",
        ),
        ("TYPE: toi", "TYPE: cat", "its data type is 'cat'"),
        ("# ALTERNATIVE NAME 3: Cid\n", "", "there are 3 names"),
        ("NAME 3: Cid", "NAME 3: Bob", "the label 'Bob' was already used"),
        ("# NUMBER ALTERNATIVES: 4\n", "", "the NUMBER ALTERNATIVES is missing"),
        ("NAME 3: Cid", "NAME 3:", "lack the ALTERNATIVE NAME 3"),
        ("# FILE NAME", "4\n# FILE NAME", "files from before September 2022"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TOI
    with pytest.raises(DataError, match=message):
        Rankings.from_preflib(write(tmp_path, TOI.replace(old, new, 1)), incomplete="subset")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        Rankings.from_preflib(tmp_path / "none.soc")
    (tmp_path / "binary.soc").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        Rankings.from_preflib(tmp_path / "binary.soc")
    with pytest.raises(DataError, match="no orders in it"):
        Rankings.from_preflib(
            write(tmp_path, TOI[: TOI.index("2: 2")], "small.soc"), incomplete="top-k"
        )
