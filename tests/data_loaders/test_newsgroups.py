import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.reproduce.conditional.newsgroups import SET_1, SET_2
from relpref.data_loaders import newsgroups
from relpref.errors import DataError

MESSAGES = {
    "20news-bydate-train/rec.autos/7": b"Subject: brakes\n\nThe car, the car and the brakes.\n",
    "20news-bydate-test/rec.autos/9": b"Subject: tyres\n\nA car caf\xe9.\n",
    "20news-bydate-train/rec.motorcycles/8": b"Subject: car\n\nNot a car.\n",
    "20news-bydate-train/sci.med/1": b"Subject: pills\n\nTwo pills.\n",
}
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write an archive of messages and of members made by hand; the folder that holds it."""

    def written(messages: dict[str, bytes], *others: tarfile.TarInfo) -> Path:
        with tarfile.open(tmp_path / newsgroups.ARCHIVE, "w:gz") as archive:
            folder = tarfile.TarInfo("20news-bydate-train/rec.autos")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
            for name, content in messages.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            for member in others:
                archive.addfile(member, io.BytesIO(b"x" * member.size))
        return tmp_path

    return written


def test_an_archive_of_four_messages(write: Write) -> None:
    table = newsgroups.load(folder=write(MESSAGES))
    assert list(table.index) == ["rec.autos/7", "rec.autos/9", "rec.motorcycles/8", "sci.med/1"]
    assert "caf\u00e9" in table.loc["rec.autos/9", "text"]
    assert table.loc["rec.autos/9", ["group", "part"]].tolist() == ["rec.autos", "test"]
    assert list(newsgroups.load(["sci.med"], folder=write(MESSAGES)).index) == ["sci.med/1"]


def odd(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    member.linkname = "/etc/passwd"
    return member


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (odd("../../home/1"), r"'../../home/1' is not a message 20news-bydate-train/GROUP/NUMBER"),
        (odd("20news-bydate-train/rec.autos/x/y"), "is not a message"),
        (odd("20news-bydate-train/rec.autos/3", tarfile.SYMTYPE), "is not a message"),
        (odd("20news-bydate-train/rec.autos/3", tarfile.FIFOTYPE), "is not a message"),
        (
            odd("20news-bydate-train/rec.autos/3", size=5_000_000),
            "has 5000000 bytes, more than any message",
        ),
        (odd("20news-bydate-test/rec.autos/7"), "the message rec.autos/7 is in it twice"),
    ],
)
def test_odd_members_are_refused(
    write: Write, tmp_path: Path, member: tarfile.TarInfo, reason: str
) -> None:
    folder = write(MESSAGES, member)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=reason):
        newsgroups.load(folder=folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_damaged_and_missing_archives(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(MESSAGES)
    with pytest.raises(
        DataError, match=r"no newsgroup 'rec\.auto' in it; did you mean 'rec\.autos'"
    ):
        newsgroups.load(["rec.auto"], folder)
    archive = folder / newsgroups.ARCHIVE
    content = archive.read_bytes()
    for damaged in (content[: len(content) // 2], b"nothing of the kind", b""):
        archive.write_bytes(damaged)
        with pytest.raises(DataError, match="the archive cannot be read"):
            newsgroups.load(folder=folder)
    archive.unlink()
    with pytest.raises(DataError, match=r"tar\.gz: there is no such file.*qwone\.com"):
        newsgroups.load(folder=folder)
    monkeypatch.setenv("RELPREF_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"20newsgroups: there is no such folder.*qwone\.com"):
        newsgroups.load()


def test_twenty_newsgroups(real_data: Path) -> None:
    table = newsgroups.load([*SET_1, *SET_2])
    # As published for the version by date; together the two sets of the paper have "approximately
    # 4000 and 5000 nodes".
    assert table["group"].isin(SET_1).sum() == 3954 and table["group"].isin(SET_2).sum() == 4916
    assert (table["part"] == "train").sum() == 5325
