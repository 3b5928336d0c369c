"""20 Newsgroups: messages, and a relation between them that knows three levels (Lang 1995; Pahikkala et al. 2010, section 6.2)."""

import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data.arrays import counted, listed, nearest, shown
from relpref.data_loaders.registry import find
from relpref.errors import DataError
from relpref.limits import MAX_MESSAGE_BYTES

ARCHIVE = "20news-bydate.tar.gz"
# The two groups of newsgroups of Pahikkala et al. 2010: no group is in both.
SET_1 = ("rec.autos", "rec.sport.baseball", "comp.sys.ibm.pc.hardware", "comp.windows.x")
SET_2 = (
    "rec.motorcycles",
    "rec.sport.hockey",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.mac.hardware",
)
# Which groups are similar is our choice; the paper names the two of rec.sport only.
SIMILAR = (r"comp\..*", r"rec\.sport\..*", r"rec\.(autos|motorcycles)")
SAME_GROUP, SIMILAR_GROUP, OTHER_GROUP = 1.0, 0.5, 0.0
_PARTS = {"20news-bydate-train": "train", "20news-bydate-test": "test"}


@dataclass(frozen=True, eq=False)
class Newsgroups:
    """Messages by label, such as ``rec.autos/101551``.

    Attributes
    ----------
    texts, groups, parts : Series
        What was written, in which group, and in which part of the archive (``train`` or ``test``,
        by date).
    """

    texts: pd.Series
    groups: pd.Series
    parts: pd.Series

    def sample(self, size: int, seed: int = 0) -> Self:
        """Draw some of the messages, in the order they have."""
        if not 1 <= size <= len(self.texts):
            raise DataError(f"size is {size}; there are {counted(len(self.texts), 'message')}")
        return self.take(np.sort(np.random.default_rng(seed).permutation(len(self.texts))[:size]))

    def of(self, groups: Sequence[str]) -> Self:
        """The messages of some of the groups."""
        return self.take(np.flatnonzero(self.groups.isin(list(groups))))

    def take(self, positions: NDArray[np.int64]) -> Self:
        """The messages at some positions."""
        return type(self)(
            *(column.iloc[positions] for column in (self.texts, self.groups, self.parts))
        )


@dataclass(frozen=True, eq=False)
class NewsgroupsRelation:
    """Messages as nodes with features, and the relation between any two of them.

    Attributes
    ----------
    words : sparse array of float64, shape (n, d)
        How often a message has each word, scaled to unit Euclidean length; a message without any
        known word is a row of zeros.
    labels : Index
        Of the messages.
    names : array of str, shape (d,)
        The words.
    values : array of float64, shape (n, n)
        1 for two messages of the same group, 0.5 for similar groups, 0 for others (see
        `similarity`).
    """

    words: Any
    labels: pd.Index
    names: NDArray[Any]
    values: NDArray[np.float64]

    @property
    def relation(self) -> pd.DataFrame:
        """The values with their labels."""
        return pd.DataFrame(self.values, index=self.labels, columns=self.labels)


def load(
    groups: Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Newsgroups:
    """Read messages from the archive ``20news-bydate.tar.gz``.

    Nothing is unpacked to the disk. A member of the archive that is not a file
    ``20news-bydate-train/GROUP/NUMBER`` (or ``-test``) is refused, folders apart.

    Parameters
    ----------
    groups : sequence of str, optional
        Newsgroups, such as `SET_1`; by default all twenty.
    folder : path, optional
        That holds the archive; ``$RELPREF_DATA/20newsgroups`` by default.

    Returns
    -------
    Newsgroups
        Sorted by label, as in the archive (the collection keeps ``From`` and ``Subject``, not the
        headers that name the group).

    Raises
    ------
    DataError
        If the archive is missing, damaged or holds something else, or there is no such group in it.
    """
    file = find("20newsgroups", folder) / ARCHIVE
    wanted = None if groups is None else set(groups)
    messages: dict[str, tuple[str, str, str]] = {}
    there: set[str] = set()
    for part, group, number, content in _messages(file, wanted):
        there.add(group)
        label = f"{group}/{number}"
        if label in messages:
            raise DataError(
                f"{file}: the message {label} is in it twice; give the archive as distributed"
            )
        if content is not None:
            messages[label] = (content.decode("latin-1"), group, part)
    for group in groups or ():
        if group not in there:
            meant = f"; did you mean {listed(nearest(group, there))}?" if there else ""
            raise DataError(f"{file}: there is no newsgroup {shown(group)} in it{meant}")
    if not messages:
        raise DataError(
            f"{file}: there are no messages in it; give the archive as it is distributed"
        )
    index = pd.Index(sorted(messages), name="message")
    columns = zip(*(messages[label] for label in index), strict=True)
    text, group_of, part_of = (pd.Series(column, index=index) for column in columns)
    return Newsgroups(text.rename("text"), group_of.rename("group"), part_of.rename("part"))


def similarity(groups: Sequence[str], others: Sequence[str] | None = None) -> NDArray[np.float64]:
    """The relation of messages, by their groups: 1 for the same, 0.5 for similar ones, 0 for others.

    Parameters
    ----------
    groups, others : sequence of str
        One for each message; ``others`` are ``groups`` by default.

    Notes
    -----
    Similar are two groups of ``comp.*``, two of ``rec.sport.*``, and ``rec.autos`` and
    ``rec.motorcycles``; no others.
    """
    left, right = pd.Index(groups), pd.Index(groups if others is None else others)
    names = left.append(right).unique()
    topics = [
        next((topic for topic in SIMILAR if re.fullmatch(topic, name)), name) for name in names
    ]
    same = np.equal.outer(names.to_numpy(), names.to_numpy())
    alike = np.equal.outer(np.array(topics), np.array(topics))
    levels = np.where(same, SAME_GROUP, np.where(alike, SIMILAR_GROUP, OTHER_GROUP))
    return np.asarray(levels[np.ix_(names.get_indexer(left), names.get_indexer(right))])


def newsgroups_relation(
    messages: Newsgroups, *, words: NewsgroupsRelation | None = None, rarest: int = 3
) -> NewsgroupsRelation:
    """Features and relation of messages.

    Parameters
    ----------
    messages : Newsgroups
    words : NewsgroupsRelation, optional
        Count the words of this relation: that of the known messages, where ``messages`` are new
        ones.
    rarest : int
        Otherwise count every word that is in at least so many of these messages. A word is a run of
        two or more letters, digits and underscores, in lower case; nothing is left out as too
        common (scikit-learn's ``TfidfVectorizer`` with ``min_df=rarest``, ``use_idf=False``,
        ``norm="l2"``).

    Raises
    ------
    DataError
        If no word is frequent enough.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    rule = {"min_df": rarest} if words is None else {"vocabulary": words.names}
    vectorizer = TfidfVectorizer(use_idf=False, norm="l2", **rule)
    try:
        counts = vectorizer.fit_transform(messages.texts)
    except ValueError:
        raise DataError(
            f"no word is in {rarest} of {len(messages.texts)} messages; give more"
        ) from None
    return NewsgroupsRelation(
        words=counts,
        labels=messages.texts.index,
        names=vectorizer.get_feature_names_out(),
        values=similarity(messages.groups.to_list()),
    )


def _messages(file: Path, wanted: set[str] | None) -> Iterator[tuple[str, str, str, bytes | None]]:
    """Part, group, number and content of each message; None for the content of groups that are not wanted."""
    try:
        with tarfile.open(file, "r:gz") as archive:
            for member in archive:
                if member.isdir():
                    continue
                pieces = member.name.split("/")
                if not member.isreg() or len(pieces) != 3 or pieces[0] not in _PARTS:
                    raise DataError(
                        f"{file}: {shown(member.name)} is not a message "
                        f"{'/'.join([*_PARTS][:1])}/GROUP/NUMBER; "
                        "give the archive as it is distributed"
                    )
                if member.size > MAX_MESSAGE_BYTES:
                    raise DataError(
                        f"{file}: {shown(member.name)} has {member.size} bytes, more than any "
                        "message; "
                        "give the archive as it is distributed"
                    )
                stream = (
                    archive.extractfile(member) if wanted is None or pieces[1] in wanted else None
                )
                yield (
                    _PARTS[pieces[0]],
                    pieces[1],
                    pieces[2],
                    None if stream is None else stream.read(),
                )
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{file}: the archive cannot be read ({reason}); put {ARCHIVE} there"
        ) from None
