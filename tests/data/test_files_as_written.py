"""Files as spreadsheets, R, pandas and web sites write them: read right, or refused with what to do."""

import gzip
import json
import random
import sys
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relpref.data import PreferenceData, Relation, read_table
from relpref.errors import DataError

PLAIN = "winner,loser,weight\ntea,coffee,1.5\ncoffee,water,2\nwater,tea,0.75\n"
UMLAUTS = "winner;loser;weight\r\nTee;Müsli;1,5\r\nMüsli;Weißbier;2\r\nWeißbier;Tee;0,75\r\n"
RECORDS = pd.read_csv(pd.io.common.StringIO(PLAIN)).to_dict("records")
NUMBERED = PLAIN.replace("\n", "\n{}", 3).replace("winner", "{}winner")
SOC = """# FILE NAME: 1.soc
# DATA TYPE: soc
# NUMBER ALTERNATIVES: 3
# NUMBER VOTERS: 3
# ALTERNATIVE NAME 1: tea
# ALTERNATIVE NAME 2: coffee
# ALTERNATIVE NAME 3: water
2: 1,2,3
1: 3,1,2
"""


def r_table(separator: str, *, quoted: bool = False) -> str:
    """Write the table as write.table does: the header has no name for the row names."""
    quote = '"{}"'.format if quoted else str
    rows = [["winner", "loser"], ["1", "tea", "coffee"], ["2", "coffee", "New York"]]
    return "".join(separator.join(map(quote, row)) + "\n" for row in rows)


def write(file: Path, content: str | bytes, encoding: str = "utf-8") -> Path:
    file.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return file


# Name of the file, its content, and a part of the notes.
WEIGHTED: dict[str, tuple[str, Any, str]] = {
    "commas": ("a.csv", PLAIN, ""),
    "another ending": ("a.data", PLAIN, ""),
    "no ending": ("a", PLAIN, ""),
    "semicolons": ("a.csv", PLAIN.replace(",", ";"), "separated by semicolons"),
    "tabs": ("a.txt", PLAIN.replace(",", "\t"), "separated by tabs"),
    "bars": ("a.tsv", PLAIN.replace(",", "|"), "separated by vertical bars"),
    "byte order mark": ("a.csv", "\ufeff" + PLAIN, ""),
    "UTF-16": ("a.txt", PLAIN.replace(",", "\t").encode("utf-16"), "separated by tabs"),
    "UTF-32": ("a.txt", PLAIN.encode("utf-32"), ""),
    "old Mac": ("a.csv", PLAIN.replace("\n", "\r"), ""),
    "Windows": ("a.csv", PLAIN.replace("\n", "\r\n"), ""),
    "compressed": ("a.csv.gz", gzip.compress(PLAIN.encode()), ""),
    "compressed, by content": ("a.csv", gzip.compress(PLAIN.encode()), ""),
    "index of pandas": ("a.csv", NUMBERED.format(",", "0,", "1,", "2,"), "column '' is not used"),
    "write.csv of R": ("a.csv", NUMBERED.format('"",', '"1",', '"2",', '"3",'), "'' is not used"),
    "separators at the end": ("a.csv", PLAIN.replace("\n", ",\n"), ""),
    "separators at the end of rows": (
        "a.csv",
        PLAIN.replace("\n", ",\n").replace(",\n", "\n", 1),
        "",
    ),
    "repeated names": (
        "a.csv",
        PLAIN.replace("\n", ",x,y\n").replace("x,y", "note,note", 1),
        "'note', 'note (column 5)' are not used",
    ),
    "empty rows": ("a.csv", PLAIN.replace("\n", "\n,,\n") + "\n\n,,\n,,", ""),
    "decimal commas in quotes": (
        "a.csv",
        PLAIN.replace("1.5", '"1,5"').replace("0.75", '"0,75"'),
        "decimal commas",
    ),
    "decimal commas of spreadsheets": (
        "a.csv",
        PLAIN.replace(",", ";").replace(".", ","),
        "decimal",
    ),
    "JSON": ("a.json", json.dumps(RECORDS), ""),
    "JSON lines": ("a.jsonl", "".join(json.dumps(row) + "\n" for row in RECORDS), ""),
    "JSON lines under another name": ("a.json", "\n".join(map(json.dumps, RECORDS)), ""),
    "JSON by column": ("a.json", pd.DataFrame(RECORDS).to_json(), ""),
    "JSON of lists": ("a.json", json.dumps(pd.DataFrame(RECORDS).to_dict("list")), ""),
    "JSON with nested parts": (
        "a.json",
        json.dumps([{**row, "turns": [{"text": "a"}]} for row in RECORDS]),
        "lists and objects are not used: 'turns'",
    ),
}


@pytest.mark.parametrize("what", WEIGHTED)
def test_answers_of_every_file(tmp_path: Path, what: str) -> None:
    name, content, note = WEIGHTED[what]
    data = PreferenceData.from_tables(answers=write(tmp_path / name, content))
    assert data.to_tables()[1].to_dict("list") == {
        "winner": ["tea", "coffee", "water"],
        "loser": ["coffee", "water", "tea"],
        "count": [1, 1, 1],
        "weight": [1.5, 2.0, 0.75],
    }
    assert note in str(data.notes) and ("file" not in str(data.notes) or note), data.notes


@pytest.mark.parametrize(("separator", "quoted"), [("\t", False), (" ", True), ("\t", True)])
def test_row_names_of_r(tmp_path: Path, separator: str, quoted: bool) -> None:
    file = write(tmp_path / "a.txt", r_table(separator, quoted=quoted))
    data = PreferenceData.from_tables(answers=file)
    assert data.labels == ("tea", "coffee", "New York")
    assert "answers: the header has no name for the first column, as in files of R" in data.notes


def test_row_names_label_items_or_number_them(tmp_path: Path) -> None:
    named = write(tmp_path / "a.txt", "size\tnew\ntea\t1\t0\ncoffee\t2\t1\n")
    assert PreferenceData.from_tables(named).labels == ("tea", "coffee")
    numbered = write(tmp_path / "a.csv", '"","name","size"\n"1","tea",1\n"2","coffee",2\n')
    data = PreferenceData.from_tables(numbered, [("tea", "coffee")])
    assert data.attribute_names == ("size",)
    assert "items: the first column numbers the rows, and is not used" in data.notes
    assert PreferenceData.from_tables(numbered).labels == ("tea", "coffee")
    assert PreferenceData.from_tables(numbered, [("1", "2")]).labels == ("1", "2")
    sizes = write(tmp_path / "b.csv", ",size\n0,5\n1,6\n")
    assert PreferenceData.from_tables(sizes).labels == ("0", "1")


def test_western_text_is_read_with_a_note(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", UMLAUTS, "cp1252")
    data = PreferenceData.from_tables(answers=file)
    assert data.labels == ("Tee", "Müsli", "Weißbier")
    assert data.notes[0] == (
        "answers: the file is not UTF-8, and is read as cp1252: 'Müsli', 'Weißbier'; if these are "
        "wrong, name its encoding in encoding="
    )


def test_an_encoding_is_that_of_all_files(tmp_path: Path) -> None:
    answers = write(tmp_path / "a.csv", "winner,loser\nЧай,Кофе\n", "cp1251")
    items = write(tmp_path / "i.csv", "name\nЧай\nКофе\n", "cp1251")
    links = write(tmp_path / "l.csv", "source,target\nЧай,Кофе\n", "cp1251")
    for relation in (links, Relation(str(links))):
        data = PreferenceData.from_files(items, answers, {"near": relation}, encoding="cp1251")
        assert data.labels == ("Чай", "Кофе") and data.relations["near"].num_edges == 1
    with pytest.raises(DataError, match=r"a\.csv: the byte 0xd7 at offset 13 is not utf-8"):
        PreferenceData.from_files(None, answers, encoding="utf-8")
    with pytest.raises(DataError, match="Python knows no encoding 'cp9'"):
        PreferenceData.from_files(None, answers, encoding="cp9")


def test_excel(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    file, frame = tmp_path / "a.xlsx", pd.DataFrame(RECORDS)
    with pd.ExcelWriter(file) as book:
        frame.to_excel(book, sheet_name="Votes", index=False, startrow=2, startcol=1)
        frame.to_excel(book, sheet_name="Notes")
    data = PreferenceData.from_tables(answers=file)
    assert data.to_tables()[1]["weight"].tolist() == [1.5, 2.0, 0.75]
    note = "answers: the sheet 'Votes' was read, and not 'Notes': sheet='Notes' (--sheet Notes)"
    assert note in data.notes
    frame[:2].to_excel(tmp_path / "b.xlsx", sheet_name="Votes of 2026", index=False)
    assert PreferenceData.from_tables(answers=file, sheet="Notes").num_answers == 3
    with pytest.raises(DataError, match="no sheet 'Vots' among 'Votes', 'Notes'"):
        PreferenceData.from_tables(answers=file, sheet="Vots")
    with pytest.raises(DataError, match="no Excel file"):
        PreferenceData.from_tables(answers=write(tmp_path / "a.csv", PLAIN), sheet="Notes")
    frame.assign(loser=["coffee", "water", None]).to_excel(file, index=False)
    data = PreferenceData.from_tables(answers=file)
    assert data.labels == ("tea", "coffee", "water") and data.num_answers == 2
    assert "left out: 1 row without an item" in str(data.notes)
    frame.assign(rater=["ann", "bob", None]).to_excel(file, index=False)
    with pytest.raises(DataError, match=r"a\.xlsx, line 4, column 'rater': the rater is blank"):
        PreferenceData.from_tables(answers=file)
    with pd.ExcelWriter(file) as book:
        frame.to_excel(book, index=False, startrow=3)
        book.sheets["Sheet1"]["A1"] = "Votes of the club"
    data = PreferenceData.from_tables(answers=file)
    assert data.num_answers == 3 and "the header is in row 4" in str(data.notes)
    drinks = pd.DataFrame(
        {"drink": ["tea", "coffee"], "price": ["2,5", "3,20"], "code": ["1,234", "5,678"]}
    )
    drinks.to_excel(file, index=False)
    read = read_table(file).frame
    assert read["price"].tolist() == [2.5, 3.2] and read["code"].tolist() == ["1,234", "5,678"]
    with pd.ExcelWriter(file) as book:
        drinks.to_excel(book, sheet_name="A")
        frame.to_excel(book, sheet_name="B")
    with pytest.raises(DataError, match="; the sheet 'A' was read, and not 'B'"):
        PreferenceData.from_tables(answers=file)
    pd.DataFrame().to_excel(file)
    with pytest.raises(DataError, match="the file is empty|no rows"):
        PreferenceData.from_tables(answers=file)


def test_excel_without_openpyxl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "")
    with pytest.raises(DataError, match=r"pip install 'relpref\[excel\]'"):
        read_table(tmp_path / "a.xlsx")


def test_preflib(tmp_path: Path) -> None:
    file = write(tmp_path / "a.soc", SOC)
    data = PreferenceData.from_tables(answers=file)
    assert data.num_answers == 6 and data.labels == ("tea", "coffee", "water")
    assert PreferenceData.from_tables(answers=str(file)).num_answers == 6
    with pytest.raises(DataError, match="--incomplete"):
        PreferenceData.from_tables(answers=write(tmp_path / "a.soi", SOC.replace("soc", "soi")))


def test_large_whole_numbers_stay_exact(tmp_path: Path) -> None:
    rows = [{"winner": 2**53 + 1, "loser": 2**53, "n": None}, {"winner": 2**90, "loser": 2**53}]
    data = PreferenceData.from_tables(answers=write(tmp_path / "a.json", json.dumps(rows)))
    assert data.labels == (2**53 + 1, 2**53, 2**90)
    gaps = [{"winner": "a", "loser": "b", "group": 2**53 + 1}, {"winner": "b", "loser": "a"}]
    table = read_table(write(tmp_path / "b.json", json.dumps(gaps)))
    assert table.frame["group"].tolist() == [2**53 + 1, None]


REFUSED: dict[str, tuple[str, Any, str]] = {
    "two separators": ("a.csv", "winner,x;loser\na,b;c\n", "parted by commas or by semicolons"),
    "unquoted decimal commas": ("a.csv", PLAIN.replace(".", ","), "line 3: 3 cells where|4 cells"),
    "a title": ("a.csv", f"Results\n\n{PLAIN}", "line 3: 3 cells .* above the header"),
    "a header in a comment": ("a.csv", "# winner,loser\na,b\nb,c\n", "may hold the names"),
    "two tables in JSON": (
        "a.json",
        '{"a": [{"winner": "x", "loser": "y"}], "b": [{"winner": "y", "loser": "x"}]}',
        "hold lists or objects",
    ),
    "a page": ("a.xls", "<html><table></table></html>", "begins with a page"),
    "old Excel": ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", r"save it as \.xlsx or CSV"),
    "no Excel": ("a.xlsx", PLAIN, "not a readable Excel file"),
    "zero bytes": ("a.csv", PLAIN.replace("tea", "t\0ea"), "zero byte at offset 21"),
    "UTF-16 without a mark": ("a.csv", PLAIN.encode("utf-16-le"), "encoding='utf-16-le'"),
    "damaged UTF-8": ("a.csv", b"winner,loser\n\xc3\xa9,b\n\xe9,c\n", "not 'é' .as cp1252"),
    "only a header": ("a.csv", "winner,loser\n", "no rows"),
    "two columns of one name": ("a.csv", "winner,loser,winner\na,b,c\n", "'winner' occurs twice"),
    "two outcomes of one name": (
        "a.csv",
        "team1,team2,vote,vote\na,b,a,b\n",
        "'vote' occurs twice",
    ),
    "thousands or decimals": (
        "a.csv",
        "winner;loser;weight\na;b;1.234\nb;c;2.500\n",
        "line 2, column 'weight': '1.234': the mark may be decimal or between thousands",
    ),
    "both marks": ("a.csv", "winner;loser;weight\na;b;1,5\nb;c;1.5\n", "'1,5': the mark"),
    "points among decimal commas": (
        "a.csv",
        "winner;loser;weight\na;b;1,5\nb;c;1.500\n",
        "'1.500': the mark may be",
    ),
    "broken JSON": ("a.json", '[{"winner": "a"},\n {"winner" "b"}]', "not valid JSON .* line 2"),
    "nested JSON": ("a.json", '[{"match": {"winner": "a"}}]', "'match' hold lists or objects"),
    "JSON that is no table": ("a.json", '{"a": {"x": 1}, "b": {"x": 2}}', "this JSON is no table"),
    "a number": ("a.json", "3", "this JSON is no table"),
    "deep JSON": ("a.json", "[" * 100_000, "not valid JSON"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_can_be_read_in_two_ways_or_in_none_are_refused(
    tmp_path: Path, what: str
) -> None:
    name, content, reason = REFUSED[what]
    with pytest.raises(DataError, match=reason) as caught:
        PreferenceData.from_tables(answers=write(tmp_path / name, content))
    assert len(str(caught.value)) < 600


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    rng, refused = random.Random(3), 0
    spaces = ("a.txt", r_table(" ", quoted=True), "")
    pieces = [
        b"",
        b",",
        b";",
        b"\t",
        b"\n",
        b'"',
        b"\xff",
        b"{",
        b"]",
        b"null",
        b"1e999",
        b"#",
        b" ",
    ]
    for name, content, _ in [*WEIGHTED.values(), *REFUSED.values(), spaces] * 12:
        damaged = bytearray(content if isinstance(content, bytes) else content.encode())
        for _ in range(rng.randrange(1, 5)):
            start = rng.randrange(len(damaged) + 1)
            damaged[start : start + rng.randrange(8)] = rng.choice(pieces)
        try:
            PreferenceData.from_tables(answers=write(tmp_path / name, bytes(damaged)))
        except DataError as error:
            refused += 1
            assert len(str(error)) < 1500
    assert 200 < refused < 600


def test_archives_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", PLAIN)
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as archive:
        archive.writestr("content.xml", "<x/>")
    with pytest.raises(DataError, match="an archive of 'a.csv'; unpack it, and give a file of it"):
        read_table(tmp_path / "a.zip")
    with pytest.raises(DataError, match=r"an OpenDocument table .*save it as \.xlsx or CSV"):
        read_table(tmp_path / "a.ods")


@pytest.mark.parametrize("above", ["# exported, 2024\n", "sep=,\r\n", "#\n# two\n\n"])
def test_comments_above_a_header_are_no_rows(tmp_path: Path, above: str) -> None:
    table = read_table(write(tmp_path / "a.csv", f"{above}{PLAIN}"))
    assert table.frame.equals(read_table(write(tmp_path / "b.csv", PLAIN)).frame)
    assert table.place(0).endswith(f"line {above.count(chr(10)) + 2}")


def test_the_only_list_of_rows_in_an_object_is_the_table(tmp_path: Path) -> None:
    rows = [{"winner": "a", "loser": "b"}, {"winner": "b", "loser": "c"}]
    text = json.dumps({"date": "2024", "tags": ["x"], "data": rows})
    data = PreferenceData.from_tables(answers=write(tmp_path / "a.json", text))
    assert data.labels == ("a", "b", "c")
    assert data.notes == ("answers: of the object, only 'data' was read",)


@pytest.mark.parametrize(
    ("dates", "days"),
    [
        (["01.02.2020", "13.02.2020"], 12),
        (["1/2/2020", "2/13/2020"], 42),
        (["13/2/2020", "1/2/2020"], 12),
        (["2020/02/01", "2020/02/13"], 12),
        (["01.02.2020 12:00", "02.02.2020 00:00"], 0.5),
        (["2020-02-01", "2020-02-13T00:00"], 12),
        (["05/05/2020", "06/06/2020"], 32),
    ],
)
def test_dates(tmp_path: Path, dates: list[str], days: float) -> None:
    table = pd.DataFrame({"name": ["a", "b"], "day": dates})
    table.to_csv(tmp_path / "a.csv", index=False)
    for items in (tmp_path / "a.csv", table.set_index("name")):
        data = PreferenceData.from_tables(items)
        assert "items: 'day' holds dates, which are read as years" in data.notes
        assert abs(float(data.attributes[1, 0] - data.attributes[0, 0])) == pytest.approx(
            days / 365.2425
        )


@pytest.mark.parametrize(
    ("dates", "reason"),
    [
        ("01/02/2020 03/04/2020", "may be the day or the month first"),
        ("01.02.2020 02/13/2020", "in no one order"),
        ("2020-01-01 13.02.2020", "in no one order"),
        ("01.02.20 02.03.20", "in no one order"),
        ("31.02.2020 01.03.2020", "in no one order"),
    ],
)
def test_dates_with_two_readings_or_none(tmp_path: Path, dates: str, reason: str) -> None:
    first, second = dates.split()
    file = write(tmp_path / "a.csv", f"name,day\na,{first}\nb,{second}\n")
    with pytest.raises(DataError, match=f"line 2 .*column 'day': .*{reason}"):
        PreferenceData.from_tables(file)


def test_versions_are_no_dates(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "name,version\na,3.11.2\nb,3.11.4\nc,3.11.2\n")
    assert PreferenceData.from_tables(file).attribute_names == ("version=3.11.4",)


def test_decimal_commas_of_frames_are_no_categories() -> None:
    table = pd.DataFrame({"x": ["1,5", "2,5", "1,5"]}, index=["a", "b", "c"])
    with pytest.raises(DataError, match="'1,5' is not a number; convert the column"):
        PreferenceData.from_tables(table)
