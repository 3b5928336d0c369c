import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

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
    found = newsgroups.load(folder=write(MESSAGES))
    assert list(found.texts.index) == ["rec.autos/7", "rec.autos/9", "rec.motorcycles/8", "sci.med/1"]
    assert "caf\u00e9" in found.texts["rec.autos/9"]
    assert found.parts["rec.autos/9"] == "test" and found.groups["rec.autos/9"] == "rec.autos"
    assert list(newsgroups.load(["sci.med"], folder=write(MESSAGES)).texts.index) == ["sci.med/1"]
    assert list(found.of(["rec.autos"]).groups) == ["rec.autos"] * 2
    assert len(found.sample(3).texts) == 3
    with pytest.raises(DataError, match="size is 5; there are 4 messages"):
        found.sample(5)


def test_the_relation_knows_three_levels(write: Write) -> None:
    relation = newsgroups.newsgroups_relation(newsgroups.load(folder=write(MESSAGES)), rarest=1).relation
    assert relation.loc["rec.autos/7", ["rec.autos/9", "rec.motorcycles/8", "sci.med/1"]].tolist() == [
        1,
        0.5,
        0,
    ]
    assert (np.diag(relation) == 1).all() and relation.equals(relation.T)
    groups = [*newsgroups.SET_1, *newsgroups.SET_2, "sci.med", "sci.space"]
    levels = newsgroups.similarity(groups)
    brothers = dict(zip(groups, (levels == 0.5).sum(axis=1), strict=True))
    assert brothers == {
        "rec.autos": 1,
        "rec.motorcycles": 1,
        "rec.sport.baseball": 1,
        "rec.sport.hockey": 1,
        "sci.med": 0,
        "sci.space": 0,
    } | dict.fromkeys([name for name in groups if name.startswith("comp.")], 4)
    np.testing.assert_array_equal(newsgroups.similarity(groups[:2], groups[4:]), levels[:2, 4:])


def test_words_are_counted_and_scaled(write: Write) -> None:
    messages = newsgroups.load(folder=write(MESSAGES))
    found = newsgroups.newsgroups_relation(messages.of(["rec.autos"]), rarest=1)
    words = found.words.toarray()
    # The first message: subject, brakes twice, the three times, car twice, and once.
    counts = {"subject": 1, "brakes": 2, "the": 3, "car": 2, "and": 1}
    expected = np.array([counts.get(name, 0) for name in found.names]) / np.sqrt(19)
    np.testing.assert_allclose(words[0], expected)
    np.testing.assert_allclose(np.linalg.norm(words, axis=1), 1)
    new = newsgroups.newsgroups_relation(messages.of(["sci.med"]), words=found)
    assert list(new.names) == list(found.names) and new.words.shape == (1, len(found.names))
    assert new.words.toarray()[0, list(found.names).index("subject")] == 1.0  # the only word that is known
    with pytest.raises(DataError, match="no word is in 3 of 2 messages"):
        newsgroups.newsgroups_relation(messages.of(["rec.autos"]))


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
        (odd("20news-bydate-train/rec.autos/3", size=5_000_000), "has 5000000 bytes, more than any message"),
        (odd("20news-bydate-test/rec.autos/7"), "the message rec.autos/7 is in it twice"),
    ],
)
def test_odd_members_are_refused(write: Write, tmp_path: Path, member: tarfile.TarInfo, reason: str) -> None:
    folder = write(MESSAGES, member)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=reason):
        newsgroups.load(folder=folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_damaged_and_missing_archives(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(MESSAGES)
    with pytest.raises(DataError, match=r"no newsgroup 'rec\.auto' in it; did you mean 'rec\.autos'"):
        newsgroups.load(["rec.auto"], folder)
    archive = folder / newsgroups.ARCHIVE
    content = archive.read_bytes()
    for damaged in (content[: len(content) // 2], b"nothing of the kind", b""):
        archive.write_bytes(damaged)
        with pytest.raises(DataError, match="the archive cannot be read"):
            newsgroups.load(folder=folder)
    archive.unlink()
    with pytest.raises(DataError, match="the archive cannot be read"):
        newsgroups.load(folder=folder)
    monkeypatch.setenv("RELPREF_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"20newsgroups: there is no such folder.*qwone\.com"):
        newsgroups.load()


def test_twenty_newsgroups(real_data: Path) -> None:
    found = newsgroups.load([*newsgroups.SET_1, *newsgroups.SET_2])
    # As published for the version by date; together the two sets of the paper have "approximately 4000 and 5000 nodes".
    assert len(found.of(newsgroups.SET_1).texts) == 3954 and len(found.of(newsgroups.SET_2).texts) == 4916
    assert (found.parts == "train").sum() == 5325
    relation = newsgroups.newsgroups_relation(found.sample(200))
    assert relation.words.shape[0] == 200 and set(np.unique(relation.values)) == {0.0, 0.5, 1.0}
