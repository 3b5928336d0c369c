import gzip
import io
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relpref.data import PreferenceData, Rankings, Relation, read_table
from relpref.data.relation import read_matrix
from relpref.data_loaders.edges import read_edges
from relpref.errors import DataError, StorageError, UnknownLabelError
from relpref.files import made, replaced

ITEMS = "name,size,heavy\nNA,1.5,True\n007,2,False\nnull,-3e1,True\n"
COMPARISONS = "winner,loser,count\nNA,007,2\nnull,NA,1\n"
LINKS = "source,target,weight\nNA,007,1.5\n007,null,2\n"


@pytest.fixture
def folder(tmp_path: Any) -> Any:
    (tmp_path / "relations").mkdir()
    (tmp_path / "entities.csv").write_text(ITEMS)
    (tmp_path / "comparisons.csv").write_text(COMPARISONS)
    (tmp_path / "relations" / "cites.csv").write_text(LINKS)
    return tmp_path


def test_folder(folder: Any) -> None:
    (folder / "relations" / ".DS_Store").write_bytes(b"\0")
    (folder / "relations" / "._cites.csv").write_bytes(b"\0")
    (folder / "README.txt").write_text("notes")
    data = PreferenceData.from_folder(folder)
    assert data.labels == ("NA", "007", "null")
    assert data.attribute_names == ("size", "heavy")
    np.testing.assert_array_equal(data.attributes, [[1.5, 1], [2, 0], [-30, 1]])
    assert data.num_answers == 3
    assert data.relations["cites"].weight.tolist() == [1.5, 2.0]
    assert PreferenceData.from_folder(str(folder)).describe() == data.describe()


def test_folder_without_relations(folder: Any) -> None:
    (folder / "relations" / "cites.csv").unlink()
    assert not PreferenceData.from_folder(folder).relations
    (folder / "relations").rmdir()
    assert not PreferenceData.from_folder(folder).relations


def test_numbers_are_read_exactly(folder: Any) -> None:
    numbers = ["0.1", "2.2250738585072014e-308", "9007199254740993"]
    rows = "".join(
        f"{label},{number}\n" for label, number in zip(["NA", "007", "null"], numbers, strict=True)
    )
    (folder / "entities.csv").write_text("name,x\n" + rows)
    assert PreferenceData.from_folder(folder).attributes[:, 0].tolist() == [
        float(number) for number in numbers
    ]


def test_byte_order_mark_quotes_blank_lines_and_line_ends(folder: Any) -> None:
    text = '\ufeff"name","size"\r\n"a, ""b""\nc",1\r\n\r\nx,2\r\n'
    (folder / "entities.csv").write_bytes(text.encode())
    (folder / "comparisons.csv").write_text('winner,loser\n"a, ""b""\nc",x\n')
    (folder / "relations" / "cites.csv").unlink()
    data = PreferenceData.from_folder(folder)
    assert data.labels == ('a, "b"\nc', "x")
    assert data.attribute_names == ("size",)


def test_lines_of_the_file_are_named(folder: Any) -> None:
    (folder / "comparisons.csv").write_text(
        'winner,loser,count\n\n"NA",\n007,1\n'.replace('"NA",\n', '"NA",007,1\n')
    )
    with pytest.raises(
        DataError, match=r"comparisons\.csv, line 4: 2 cells where the header has 3"
    ):
        PreferenceData.from_folder(folder)
    (folder / "comparisons.csv").write_text("winner,loser\n\nNA,007\n008,NA\n")
    with pytest.raises(
        UnknownLabelError, match=r"comparisons\.csv, line 4, column 'winner': '008' is not .*'007'"
    ):
        PreferenceData.from_folder(folder)
    (folder / "comparisons.csv").write_text(COMPARISONS)
    (folder / "relations" / "cites.csv").write_text("source,target,weight\nNA,007,1\n007,null,x\n")
    with pytest.raises(
        DataError,
        match=r"relation 'cites' \(.*cites\.csv\), line 3, column 'weight': 'x' is not a number",
    ):
        PreferenceData.from_folder(folder)
    (folder / "entities.csv").write_text("name,size\nNA,1\n007,\n")
    (folder / "entities.csv").write_text("name,size\nNA,1\n007,\nx,many\ny,2\n")
    with pytest.raises(
        DataError,
        match=r"entities\.csv, line 4 \(label 'x'\), column 'size': 'many' is not a number",
    ):
        PreferenceData.from_folder(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n\n\r\n", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"name,size\n", "no rows"),
        (b"name,size\na\n", "line 2: 1 cell where the header has 2"),
        (b"name,size\na,1,2\n", "line 2: 3 cells where the header has 2"),
        (
            b'name,size\nb,2\n"a,1\nc,3\n',
            "line 3: the row that begins here is not valid CSV .*not closed",
        ),
        (b'name,size\n"a"b,1\n', "line 2: the row that begins here is not valid CSV"),
        (b"name,size\na,\x001\n", "there is a zero byte at offset 12"),
        (b"name,size\n\xe9,1\n\xc3\xa9,1\n", "some cells are UTF-8, but not 'é'"),
        (b"\xef\xbb\xbfname,size\n\xe9,1\n", "the byte 0xe9 at offset 13 is not utf-8"),
        ("name,size\na,1\n".encode("utf-16-le"), "encoding='utf-16-le'"),
        (b"name,size,size\na,1,2\n", "the column 'size' occurs twice"),
        (b"name,size\n,1\n", "line 2, column 'name': the label is empty"),
        (b"name,size\na,inf\n", "'inf' is not finite"),
        (b"name,size\na,True\nb,2\n", "'True' is not a number"),
        (b"name,size\na,1_5\nb,2\nc,3\n", "'1_5' is not a number"),
        (b"name,size\na,big\nb,2\nc,3\n", "'big' is not a number; encode the column"),
        (
            b"name,size\na,1\nb,2\na,3\n",
            r"line 4 \(label 'a'\): the label 'a' was already used at .*line 2",
        ),
        (
            ("name," + ",".join(f"x{k}" for k in range(5001))).encode(),
            "5,002 columns are more than the limit of 5001",
        ),
        (b"name,size\na," + b"9" * 200_000 + b"\n", "field larger than field limit"),
    ],
)
def test_damaged_files_are_refused(folder: Any, content: Any, message: Any) -> None:
    (folder / "entities.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"entities\.csv.*" + message):
        PreferenceData.from_folder(folder)


def test_unnamed_index_column(folder: Any) -> None:
    (folder / "comparisons.csv").write_text(",winner,loser\n0,NA,007\n")
    assert "answers: the column '' is not used" in PreferenceData.from_folder(folder).notes
    # The index of the items, saved without a name, is what is wanted.
    (folder / "comparisons.csv").write_text(COMPARISONS)
    (folder / "entities.csv").write_text(ITEMS.removeprefix("name"))
    assert PreferenceData.from_folder(folder).labels == ("NA", "007", "null")


def test_missing_files(folder: Any, tmp_path: Any) -> None:
    with pytest.raises(DataError, match="no such folder"):
        PreferenceData.from_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="this is a file, not a folder"):
        PreferenceData.from_folder(folder / "entities.csv")
    with pytest.raises(DataError, match="no such file"):
        read_table(folder / "nothing.csv")
    with pytest.raises(DataError, match="cannot be read"):
        read_table("zero\0byte.csv")
    (folder / "inside.csv").mkdir()
    with pytest.raises(DataError, match="this is a directory"):
        read_table(folder / "inside.csv")
    (folder / "comparisons.csv").unlink()
    with pytest.raises(DataError, match="no answers.csv"):
        PreferenceData.from_folder(folder)


def test_a_table_in_two_formats_is_refused(folder: Any) -> None:
    pd.DataFrame({"source": ["NA"], "target": ["007"]}).to_parquet(
        folder / "relations" / "cites.parquet"
    )
    with pytest.raises(DataError, match="the relation 'cites' is also in cites.csv"):
        PreferenceData.from_folder(folder)
    (folder / "relations" / "cites.parquet").unlink()
    (folder / "entities.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="there is entities.csv and entities.parquet"):
        PreferenceData.from_folder(folder)


def test_relations_that_is_a_file(folder: Any) -> None:
    (folder / "relations" / "cites.csv").unlink()
    (folder / "relations").rmdir()
    (folder / "relations").write_text("")
    with pytest.raises(DataError, match="relations: this is a file"):
        PreferenceData.from_folder(folder)


def test_file_name_that_cannot_name_a_relation(folder: Any) -> None:
    (folder / "relations" / "cites.csv").rename(folder / "relations" / "my  links.csv")
    with pytest.raises(DataError, match="'my  links' cannot be the name of a relation"):
        PreferenceData.from_folder(folder)


@pytest.mark.parametrize("indexed", [True, False])
def test_parquet_keeps_types(tmp_path: Any, indexed: Any) -> None:
    items = pd.DataFrame({"name": [1, 2], "size": [0.5, 1.5]})
    (items.set_index("name") if indexed else items).to_parquet(tmp_path / "entities.parquet")
    pd.DataFrame({"winner": [1], "loser": [2], "count": [3]}).to_parquet(
        tmp_path / "comparisons.parquet"
    )
    data = PreferenceData.from_folder(tmp_path)
    assert data.labels == (1, 2)
    assert data.attribute_names == ("size",)
    assert data.num_answers == 3


def test_damaged_parquet(tmp_path: Any) -> None:
    file = tmp_path / "table.parquet"
    file.write_text("winner,loser\na,b\n")
    with pytest.raises(DataError, match=r"table\.parquet: this is not a readable Parquet file"):
        read_table(file)
    pd.DataFrame({"x": range(3), "y": range(3)}).to_parquet(file)
    with pytest.raises(DataError, match="2 columns are more than the limit of 1"):
        read_table(file, max_columns=1)


def test_a_parquet_file_with_a_flipped_bit_is_read_or_refused(tmp_path: Path) -> None:
    file, labels = tmp_path / "table.parquet", [f"é{row}" for row in range(40)]
    pd.DataFrame({"source": labels, "target": labels[::-1]}).to_parquet(file, compression="none")
    content, rng, refused = file.read_bytes(), random.Random(2), 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        try:
            data = PreferenceData.from_tables(
                labels, [labels[:2]], {"links": Relation(file, "undirected")}
            )
            assert data.num_items == 40
        except DataError as error:
            refused += 1
            assert "table.parquet" in str(error)
    assert refused > 100


def test_a_parquet_file_that_says_more_than_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "table.parquet"
    pd.DataFrame({"source": ["a"], "target": ["b"]}).to_parquet(
        file, compression="none", use_dictionary=False
    )
    content = file.read_bytes()
    assert content.count(b"\x01\x00\x00\x00a") == 1
    file.write_bytes(content.replace(b"\x01\x00\x00\x00a", b"\x01\x00\x00\x00\xe9"))  # not UTF-8
    with pytest.raises(DataError, match=r"table\.parquet: the Parquet file is damaged"):
        read_table(file)


def test_parquet_without_pyarrow(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    file = tmp_path / "table.parquet"
    file.write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"pip install 'relpref\[parquet\]'"):
        read_table(file)


def test_a_table_that_was_read_can_stand_for_a_frame(folder: Any) -> None:
    data = PreferenceData.from_folder(folder)
    (folder / "more.csv").write_text("winner,loser\n007,null\n")
    assert data.with_comparisons(read_table(folder / "more.csv")).num_answers == 1
    (folder / "new.csv").write_text("name,heavy,size\nx,0,1\n")
    (folder / "links.csv").write_text("source,target\nx,NA\n")
    larger = data.extend(
        read_table(folder / "new.csv"), {"cites": read_table(folder / "links.csv")}
    )
    assert larger.attributes[-1].tolist() == [1.0, 0.0]


# Fuzzing: whatever the bytes, the answer is data or a DataError.

# Fmt: skip.
PIECES = [
    b"",
    b",",
    b"\n",
    b"\r",
    b'"',
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"nan",
    b"inf",
    b"1e999",
    b"-1",
    b"0",
    b"NA",
    b" ",
    b"_",
    b"\xd9\xa1",
]


@st.composite
def mutations(draw: Any, originals: Any) -> Any:
    name = draw(st.sampled_from(sorted(originals)))
    content = originals[name]
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 12)))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.binary(max_size=4)))
        content = content[:start] + piece + content[end:]
    return name, content


def check_mutation(folder: Any, originals: Any, name: Any, content: Any) -> None:
    for file, original in originals.items():
        (folder / file).write_bytes(content if file == name else original)
    try:
        data = PreferenceData.from_folder(folder)
    except DataError as error:
        assert len(str(error)) < 1500
    else:
        assert np.isfinite(data.standardized_attributes()).all()
        assert (data.count > 0).all()


CSV = {
    "entities.csv": ITEMS.encode(),
    "comparisons.csv": COMPARISONS.encode(),
    "relations/cites.csv": LINKS.encode(),
}


@settings(
    max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(mutation=mutations(CSV))
def test_mutated_csv_gives_data_or_a_data_error(folder: Any, mutation: Any) -> None:
    check_mutation(folder, CSV, *mutation)


def parquet_bytes(frame: Any) -> Any:
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    return buffer.getvalue()


PARQUET = {
    "entities.parquet": parquet_bytes(pd.DataFrame({"name": ["a", "b"], "x": [1.0, 2.0]})),
    "comparisons.parquet": parquet_bytes(pd.DataFrame({"winner": ["a"], "loser": ["b"]})),
}


@settings(
    max_examples=100, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(mutation=mutations(PARQUET))
def test_mutated_parquet_gives_data_or_a_data_error(tmp_path: Any, mutation: Any) -> None:
    check_mutation(tmp_path, PARQUET, *mutation)


def _bomb(file: Any) -> Any:
    """A file that becomes a hundred times as large or more, 20 MB, in the form that its name
    says.
    """
    if file.name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
        pd.DataFrame({"a": np.zeros(2_500_000)}).to_parquet(file)
    elif file.name.endswith(".npz"):
        np.savez_compressed(file, row=np.zeros(2_500_000), allow_pickle=False)
    else:
        head = (
            b"%%MatrixMarket matrix coordinate real general\n9 9 9\n"
            if ".mtx" in file.name
            else b"a,b\n"
        )
        line = b"1 1 1\n" if ".mtx" in file.name else b"1,2\n"
        with gzip.open(file, "wb") as stream:
            stream.write(head)
            for _ in range(20):
                stream.write(line * (1_000_000 // len(line)))
    assert file.stat().st_size < 500_000
    return file


@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.mtx.gz", "bomb.npz", "bomb.parquet"])
def test_what_becomes_too_large_is_refused(tmp_path: Any, monkeypatch: Any, name: str) -> None:
    file = _bomb(tmp_path / name)
    read: Any = read_matrix if name.endswith((".mtx.gz", ".npz")) else read_table
    monkeypatch.setenv("RELPREF_MAX_DECOMPRESSED", "0.01")
    with pytest.raises(DataError, match=r"bomb.*more than 0\.01 GB.*RELPREF_MAX_DECOMPRESSED"):
        read(file)
    monkeypatch.setenv("RELPREF_MAX_DECOMPRESSED", "lots")
    with pytest.raises(
        DataError, match="RELPREF_MAX_DECOMPRESSED is 'lots'; it is a number of gigabytes"
    ):
        read(file)


def test_what_is_meant_to_be_large_is_read(tmp_path: Any, monkeypatch: Any) -> None:
    file = tmp_path / "t.csv.gz"
    with gzip.open(file, "wb") as stream:
        stream.write(b"a\n" + b"1\n" * 6000)
    monkeypatch.setenv("RELPREF_MAX_DECOMPRESSED", "0.00001")
    with pytest.raises(DataError, match="the limit"):
        read_table(file)
    monkeypatch.setenv("RELPREF_MAX_DECOMPRESSED", "1")
    assert len(read_table(file).frame) == 6000


@pytest.mark.parametrize(
    "read",
    [read_edges, read_table, read_matrix, Rankings.from_preflib],
    ids=lambda read: read.__name__,
)
@pytest.mark.parametrize("ending", [".csv", ".mtx", ".soc"])
def test_no_name_of_a_file(tmp_path: Any, read: Any, ending: str) -> None:
    with pytest.raises(DataError):
        read(f"{tmp_path}/a\0b{ending}")


def test_no_name_to_write_to(tmp_path: Any) -> None:
    with pytest.raises(StorageError, match="null"), replaced(f"{tmp_path}/a\0b"):
        raise AssertionError
    with pytest.raises(StorageError, match="null"):
        made(f"{tmp_path}/a\0b")
