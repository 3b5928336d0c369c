"""Files that are read in pieces: the same data, the same words about what is wrong, at every
seam.
"""

import csv
import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relpref import limits as memory
from relpref.data import PreferenceData, Relation, labels, read_table, table_files
from relpref.data.relation import read_matrix
from relpref.data.tables import read_pieces
from relpref.errors import DataError, UnknownLabelError

LABELS = [f"n{k}" for k in range(40)]
CELLS = st.sampled_from(["a", "", "7", "é", "x y", "1.5", 'q"', "a,b", "two\nlines", "\r", " "])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Pieces of a few bytes and rows."""

    def make(size: int) -> None:
        monkeypatch.setattr(table_files, "MAX_CELLS_AT_ONCE", size)
        monkeypatch.setattr(table_files, "MAX_ROWS_AT_ONCE", size)
        monkeypatch.setattr(table_files, "_BLOCK", size)
        monkeypatch.setattr(labels, "MANY", 1)

    return make


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """Links of 40 items, some loops, repeated ones and both directions, on 301 lines; line k + 2
    holds link k.
    """
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.integers(40, size=(300, 2)), columns=["source", "target"])
    frame["weight"] = 1.0 + (frame["source"] + frame["target"]) % 3
    frame.iloc[5] = [1, 2, 0.0]
    for end in ("source", "target"):
        frame[end] = frame[end].map(LABELS.__getitem__)
    file = tmp_path / "links.csv"
    frame.to_csv(file, index=False)
    return file


def data_of(relation: Any) -> PreferenceData:
    return PreferenceData.from_tables(LABELS, relations={"links": relation})


def assert_same(one: PreferenceData, other: PreferenceData) -> None:
    assert one.notes == other.notes and list(one.relations) == list(other.relations)
    for name, graph in one.relations.items():
        for part in ("source", "target", "weight"):
            np.testing.assert_array_equal(
                getattr(graph, part), getattr(other.relations[name], part)
            )


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DataError as error:
        return str(error)


def whole_and_lines(pieces: Any) -> Any:
    found = list(pieces)
    rows = [row for table in found for row in table.frame.to_numpy().tolist()]
    places = [table.place(row) for table in found for row in range(len(table.frame))]
    return list(found[0].frame.columns), rows, places


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=12),
    end=st.sampled_from(["\n", "\r\n"]),
    quoted=st.booleans(),
    broken=st.sampled_from(["", "\n", "\n\n", "one\n", "a,b,c\n", '"', "\xe9"]),
    at=st.integers(0, 200),
    size=st.integers(1, 40),
)
def test_pieces_are_what_the_whole_is(
    tmp_path: Path, rows: Any, end: str, quoted: bool, broken: str, at: int, size: int
) -> None:
    text = io.StringIO()
    style: Any = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator=end, quoting=style).writerows([["h", "k"], *rows])
    content = text.getvalue().encode()
    content = content[:at] + broken.encode("latin-1") + content[at:]
    file = tmp_path / "table.csv"
    file.write_bytes(content)
    whole = outcome(lambda: whole_and_lines([read_table(file)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "MAX_CELLS_AT_ONCE", size)
        patch.setattr(table_files, "_SAMPLE", size)
        assert outcome(lambda: whole_and_lines(read_pieces(file))) == whole
        assert outcome(lambda: whole_and_lines([read_table(file)])) == whole
    if not broken:
        # Against the reader of the standard library, all at once.
        lines = io.StringIO(content.decode(), newline="")
        reader = csv.reader(lines, strict=True, skipinitialspace=True)
        expected = [row for row in reader if any(row)]
        assert [whole[0], *whole[1]] == expected


@pytest.mark.parametrize("size", [7, 10_000])
@pytest.mark.parametrize("kind", [None, "directed", "bipartite"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_edges_of_files(
    links: Path, small: Callable[[int], None], size: int, kind: Any, ending: str, tmp_path: Path
) -> None:
    table = pd.read_csv(links)
    if kind == "bipartite":
        table["target"] = "tag " + table["target"]
    file = tmp_path / f"edges{ending}"
    if ending == ".parquet":
        table.to_parquet(file, index=False)
    else:
        table.to_csv(file, index=False)
    small(size)
    assert_same(data_of(Relation(file, kind)), data_of(Relation(table, kind)))
    assert_same(data_of(Relation(str(file), kind)), data_of(Relation(table, kind)))


def test_a_wrong_line_far_down_is_named(links: Path, small: Callable[[int], None]) -> None:
    small(50)
    right = links.read_text().splitlines()

    def refused(number: int, line: str, kind: type[DataError] = DataError) -> str:
        links.write_text("\n".join([*right[: number - 1], line, *right[number:]]))
        with pytest.raises(kind) as caught:
            data_of(links)
        assert f"links.csv), line {number}" in str(
            caught.value
        ) or f"links.csv, line {number}" in str(caught.value)
        return str(caught.value)

    assert "'n40' is not the label of an item; nearest: 'n4'" in refused(
        201, "n1,n40,1", UnknownLabelError
    )
    assert "2 cells where the header has 3" in refused(202, "n1,n2")
    assert "'heavy' is not a number" in refused(203, "n1,n2,heavy")
    assert "column 'weight': the value is missing" in refused(204, "n1,n2,")
    assert "weight -1.0 is negative" in refused(205, "n1,n2,-1")
    assert "line 206: the row that begins here is not valid CSV" in refused(206, 'n1,"n2,1')
    # Line 7 has the weight 0, so that the first of the two is the other one.
    refused(299, f"{right[20].rpartition(',')[0]},9")


def test_true_is_no_number_among_numbers(tmp_path: Path, small: Callable[[int], None]) -> None:
    file = tmp_path / "entities.csv"
    small(8)
    file.write_text(
        "name,x\n" + "".join(f"{label},{k % 2 == 0}\n" for k, label in enumerate(LABELS))
    )
    np.testing.assert_array_equal(
        PreferenceData.from_files(file).attributes[:, 0], np.arange(40) % 2 == 0
    )
    for cells, line in ((["True"] * 39 + ["2"], 2), (["2"] * 39 + ["True"], 41)):
        rows = zip(LABELS, cells, strict=True)
        file.write_text("name,x\n" + "".join(f"{label},{cell}\n" for label, cell in rows))
        with pytest.raises(DataError, match=rf"csv, line {line} \(label .*'True' is not a number"):
            PreferenceData.from_files(file)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_items_in_pieces(tmp_path: Path, small: Callable[[int], None], ending: str) -> None:
    table = pd.DataFrame(
        {"x": np.linspace(0, 1, 40), "y": np.arange(40)}, index=pd.Index(LABELS, name="name")
    )
    file = tmp_path / f"items{ending}"
    table.to_parquet(file) if ending == ".parquet" else table.to_csv(file)
    small(16)
    data, expected = PreferenceData.from_files(file), PreferenceData.from_tables(table)
    assert data.labels == expected.labels and data.attribute_names == expected.attribute_names
    np.testing.assert_array_equal(data.attributes, expected.attributes)


def test_a_label_that_comes_again_in_another_piece(
    tmp_path: Path, small: Callable[[int], None]
) -> None:
    file = tmp_path / "entities.csv"
    file.write_text("name\n" + "\n".join([*LABELS, "n3"]) + "\n")
    small(16)
    with pytest.raises(DataError, match=r"line 42 \(label 'n3'\).*already used at .*line 5"):
        PreferenceData.from_files(file)


def test_a_compressed_file_that_was_cut_off(links: Path, small: Callable[[int], None]) -> None:
    content = gzip.compress(links.read_bytes())
    file = links.with_name("links.csv.gz")
    small(64)
    for damaged in (content[: len(content) // 2], content[:-12]):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"links\.csv\.gz: the file cannot be read to its end"):
            data_of(file)


@pytest.mark.parametrize("rows", [0, 5])
def test_parquet_rows_are_numbered_through(
    tmp_path: Path, small: Callable[[int], None], rows: int
) -> None:
    file = tmp_path / "links.parquet"
    table = pd.DataFrame(
        {"source": ["n1"] * rows, "target": ["n2"] * (rows - 1) + ["m"] * (rows > 0)}
    )
    table.to_parquet(file)
    small(2)
    with pytest.raises(
        DataError,
        match=r"parquet\), row 4 \(index label 4\), column 'target': 'm'" if rows else "no rows",
    ):
        data_of(file)


@pytest.fixture
def matrix() -> Any:
    rng = np.random.default_rng(5)
    upper = np.triu(np.where(rng.random((40, 40)) < 0.1, rng.uniform(0.1, 1, (40, 40)), 0), k=1)
    return scipy.sparse.coo_array(upper + upper.T)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("ending", [".mtx", ".mtx.gz", ".npz"])
def test_matrices_of_files(tmp_path: Path, matrix: Any, ending: str, symmetric: bool) -> None:
    if not symmetric:
        matrix = scipy.sparse.coo_array(scipy.sparse.triu(matrix))
    given = matrix if symmetric else Relation(matrix, "directed")
    file = tmp_path / f"links{ending}"
    if ending == ".npz":
        scipy.sparse.save_npz(file, matrix)
    elif ending == ".mtx":
        scipy.io.mmwrite(file, matrix)
    else:
        buffer = io.BytesIO()
        scipy.io.mmwrite(buffer, matrix)
        file.write_bytes(gzip.compress(buffer.getvalue()))
    assert_same(data_of(file if symmetric else Relation(file, "directed")), data_of(given))


def test_matrices_that_cannot_be_used(tmp_path: Path, matrix: Any, monkeypatch: Any) -> None:
    file = tmp_path / "links.mtx"
    with pytest.raises(DataError, match=r"links\.mtx: there is no such file"):
        data_of(file)
    scipy.io.mmwrite(file, scipy.sparse.coo_array((3, 3)))
    with pytest.raises(
        DataError, match=r"relation 'links' \(.*links\.mtx\): the matrix has the shape \(3, 3\)"
    ):
        data_of(file)
    scipy.io.mmwrite(file, np.ones((40, 40)))
    with pytest.raises(DataError, match=r"links\.mtx: the matrix is dense"):
        data_of(file)
    scipy.io.mmwrite(file, matrix)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"links\.mtx: this is not a readable sparse matrix"):
        data_of(file)
    file.write_bytes(content)
    monkeypatch.setattr(memory, "available_memory", lambda: 1000.0)
    with pytest.raises(DataError, match=r"links\.mtx: a matrix of \d+ entries needs"):
        data_of(file)
    archive = tmp_path / "links.npz"
    for content in (b"", b"PK\x03\x04 and then nothing"):
        archive.write_bytes(content)
        with pytest.raises(DataError, match=r"links\.npz: this is not a readable sparse matrix"):
            data_of(archive)
    np.savez(archive, format="csr", data=np.array([None]))  # would have to be unpickled
    with pytest.raises(DataError, match=r"links\.npz: this is not a readable sparse matrix"):
        data_of(archive)


def test_a_folder_may_hold_all_forms(tmp_path: Path, links: Path, matrix: Any) -> None:
    (tmp_path / "relations").mkdir()
    (tmp_path / "entities.csv.gz").write_bytes(
        gzip.compress(("name\n" + "\n".join(LABELS)).encode())
    )
    (tmp_path / "comparisons.csv").write_text("winner,loser\nn1,n2\n")
    (tmp_path / "relations" / "cites.directed.csv.gz").write_bytes(
        gzip.compress(links.read_bytes())
    )
    scipy.sparse.save_npz(tmp_path / "relations" / "near.npz", matrix)
    scipy.io.mmwrite(tmp_path / "relations" / "far.mtx", matrix)
    data = PreferenceData.from_folder(tmp_path)
    assert list(data.relations) == ["cites_linking", "cites_linked", "far", "near"]
    np.testing.assert_array_equal(
        data.relations["far"].weight, data_of(matrix).relations["links"].weight
    )
    scipy.sparse.save_npz(tmp_path / "relations" / "far.npz", matrix)
    with pytest.raises(DataError, match=r"the relation 'far' is also in far\.mtx"):
        PreferenceData.from_folder(tmp_path)


def test_links_that_do_not_fit_are_refused(links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 1000.0)
    with pytest.raises(
        DataError, match=r"relation 'links': sorting 300 links needs 0\.00 GB of memory"
    ):
        data_of(links)


def test_an_interrupted_read_leaves_no_open_file(links: Path, small: Callable[[int], None]) -> None:
    small(20)
    pieces = read_pieces(links)
    assert len(next(pieces).frame) > 0
    pieces.close()  # type: ignore[attr-defined]
    assert list(pieces) == []


ENTRIES = "%%MatrixMarket matrix coordinate {} general\n% a comment\n3 3 2\n"
# Files that ended the process, or whose entries were misread: what comes after the header, and what
# is said.
DAMAGED = {
    "a field more, last line not ended": (
        "pattern",
        "1 2 7\n2 3 7",
        "line 4 has 3 fields where 2 belong",
    ),
    "last line not ended": ("pattern", "1 2\n2 3 ", "line 5, the last, is not ended"),
    "cut inside an entry": ("real", "1 2 1.0\n2 3", "line 5 has 2 fields where 3 belong"),
    "a field less": ("complex", "1 2 1.0\n2 3 1.0\n", "line 4 has 3 fields where 4 belong"),
    "entries in one line": ("real", "1 2 1.0 2 3 1.0\n", "line 4 has 6 fields where 3 belong"),
    "a zero byte": ("real", "1 2 1.0\0\n2 3 1.0\n", "bytes that are no text"),
    "an index out of range": ("real", "1 2 1.0\n2 30000 1.0\n", "out of bounds"),
}


@pytest.mark.parametrize("ending", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_matrix_files(what: str, ending: str, tmp_path: Path) -> None:
    kind, entries, said = DAMAGED[what]
    content = (ENTRIES.format(kind) + entries).encode()
    file = tmp_path / f"links{ending}"
    file.write_bytes(gzip.compress(content) if ending == ".mtx.gz" else content)
    with pytest.raises(DataError, match=f"not a readable sparse matrix .*{said}"):
        read_matrix(file)


@pytest.mark.parametrize("entries", ["1 2 1.0\n\n2 3 2.0", "1 2 1.0\r\n2\t3  2.0\r\n"])
def test_lines_as_other_programs_write_them(entries: str, tmp_path: Path) -> None:
    (tmp_path / "links.mtx").write_bytes((ENTRIES.format("real") + entries).encode())
    np.testing.assert_array_equal(
        read_matrix(tmp_path / "links.mtx").toarray(), [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    )


def test_lines_are_counted_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relpref.data.relation._BLOCK", 16)
    lines = [f"{row + 1} {row + 2} 1.5" for row in range(9)]
    header = "%%MatrixMarket matrix coordinate real general\n10 10 9\n"
    file = tmp_path / "links.mtx"
    file.write_text(header + "\n".join(lines))
    assert read_matrix(file).nnz == 9
    file.write_text(header + "\n".join([*lines[:7], "8 9", lines[8]]))
    with pytest.raises(DataError, match="line 10 has 2 fields"):
        read_matrix(file)
    file.write_text(header + " " * 99)
    with pytest.raises(DataError, match="line 3 is longer than any"):
        read_matrix(file)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("damage", ["index", "pointer", "negative"])
def test_archives_whose_indices_lead_out(form: str, damage: str, tmp_path: Path) -> None:
    matrix = scipy.sparse.random_array(
        (6, 6), density=0.4, rng=np.random.default_rng(0), format=form
    )
    file = tmp_path / "links.npz"
    scipy.sparse.save_npz(file, matrix)
    with np.load(file) as stored:
        arrays = dict(stored)
    name = {"index": "indices", "pointer": "indptr", "negative": "indices"}[damage]
    name = name if form != "coo" else "row"
    arrays[name][-1] = -5 if damage == "negative" else 2**30
    np.savez(file, **arrays)
    with pytest.raises(DataError, match=r"links\.npz: this is not a readable sparse matrix"):
        read_matrix(file)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(
    "pointers",
    [[0, 4, 0, 0, 0, 0], [0, 1000, 4, 5, 6, 8], [1, 2, 4, 5, 6, 8], [0, 1, 2, 3, 4, 5], [0, 8], []],
)
def test_archives_whose_pointers_are_damaged(
    form: str, pointers: list[int], tmp_path: Path
) -> None:
    matrix = scipy.sparse.coo_array(np.diag([1.0] * 4, 1) + np.diag([1.0] * 4, -1)).asformat(form)
    file = tmp_path / "links.npz"
    scipy.sparse.save_npz(file, matrix)
    assert (read_matrix(file) != matrix).nnz == 0
    with np.load(file) as stored:
        arrays = dict(stored)
    np.savez(file, **arrays | {"indptr": np.array(pointers, dtype=np.int32)})
    with pytest.raises(DataError, match=r"links\.npz: this is not a readable sparse matrix"):
        read_matrix(file)
