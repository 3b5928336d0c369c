"""Asks people: chooses questions, keeps every answer, and learns from it at once."""

import fcntl
import os
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd

from relpref.ask.items import Item, item, read_items
from relpref.ask.store import (
    AnswerStore,
    Changes,
    Question,
    export_answers,
    import_answers,
    write_answers,
)
from relpref.data.arrays import counted, shown
from relpref.errors import DataError, InferenceError, RelprefError, StorageError, UnsupportedProgramError
from relpref.explore.choose import next_pairs, score_of
from relpref.explore.scores import DEFAULT
from relpref.explore.stopping import GOAL, Worth, check_goal, check_top, why, worth
from relpref.files import file_digest, replaced
from relpref.infer import Posterior, UtilityPosterior
from relpref.runs import ANSWERS, POSTERIOR, RECORD, Run, load_run, read_record, record_text

_MANY = 25  # more answers than that are learnt at once, by a full update: equal ones are one row, and as many changes


def learnt(posterior: UtilityPosterior, changes: Changes, *, quick: bool = False) -> UtilityPosterior:
    """The posterior after changes of the answers; ``quick``: by rank-one changes, where there are few and the posterior allows it.

    Quick changes depend a little on their order, so they are made one by one, as in a process that saw them come.
    """
    if changes.steps.empty:
        return posterior
    if quick and changes.steps["count"].sum() <= _MANY:
        try:
            found = posterior
            for row, change in enumerate(changes.steps["change"]):
                table = _for_model(changes.steps.iloc[[row]], found)
                more, fewer = (table, None) if change > 0 else (None, table)
                found = found.update(more, withdraw=fewer, quick=True)
            return found
        except (UnsupportedProgramError, InferenceError):  # a mixture, or rounding: then in full
            pass
    added, withdrawn = (_for_model(table, posterior) for table in (changes.added, changes.withdrawn))
    if added is None and withdrawn is None:
        return posterior
    return posterior.update(added, withdraw=withdrawn, hyperparameters="schedule")


def up_to_date(run: Run) -> tuple[UtilityPosterior, int]:
    """The posterior of a run with the answers that its store knows and its file does not, and how many these are.

    Raises
    ------
    StorageError
        If the answers cannot be read, or are those of another run.
    """
    posterior = run.posterior
    assert isinstance(posterior, UtilityPosterior)
    check_known(run)
    store = AnswerStore.read(run.folder / ANSWERS)
    if store is None:
        return posterior, 0
    with store:
        changes = store.changes(known_version(run, store))
    return learnt(posterior, changes), len(changes)


def askable(run: Run) -> UtilityPosterior:
    """The posterior of a run, if it can learn from answers that come one by one."""
    posterior = run.posterior
    if not isinstance(posterior, UtilityPosterior):
        raise DataError(
            f"{run.folder}: this run does not rank entities, so there is nothing to ask about them"
        )
    known = posterior.data.comparisons
    for column, what in (("strength", known.strength), ("probability", known.probability)):
        if what is not None:
            raise DataError(
                f"{run.folder}: the run was fitted on answers with the column {column!r}, and a question here is answered by one of two, "
                "or a tie; fit winners alone"
            )
    if posterior.origin is None or not posterior.origin.engine:
        raise DataError(
            f"{run.folder}: the posterior does not know its program, so that it cannot learn from answers; fit with relpref fit"
        )
    return posterior


def knows_ties(posterior: UtilityPosterior) -> bool:
    """Whether the answer model has a place for ties."""
    return "tie" in getattr(posterior.likelihood, "columns", ())


def lost(run: Run) -> bool:
    """Whether a run knows of answers whose file is gone, or empty."""
    if not run.metadata.get("answers"):
        return False
    store = AnswerStore.read(run.folder / ANSWERS)
    if store is not None:
        store.close()
    return store is None


def check_known(run: Run) -> None:
    """Refuse a run that knows of answers which are gone."""
    if lost(run):
        raise StorageError(
            f"{run.folder / ANSWERS}: the file is gone or empty, and with it who answered what, and when; put it back (with the file that "
            f"ends in -wal, if there is one), or go on without it: relpref ask {quote(str(run.folder))} --export answers.csv writes the "
            "answers that the posterior knows, for relpref fit into a new folder"
        )


def export_known(run: Run, path: str | os.PathLike[str]) -> int:
    """Write the answers that the posterior of a run knows, with the columns that its model looks at; returns how many.

    For a run whose store is lost: what was answered later, when, and by whom where the model does not look at raters, is not known.
    """
    data = askable(run).data
    write_answers(data.comparisons.table(data.entities), path)
    return data.num_answers


def known_version(run: Run, store: AnswerStore) -> int:
    """Which answers the posterior of a run knows."""
    known = run.metadata.get("answers")
    if not known:
        return store.fitted
    if known["store"] != store.identity:
        raise StorageError(
            f"{store.path}: these are not the answers that the run knows; put the file back that was here before{_without(run)}"
        )
    if known["version"] > store.version:
        raise StorageError(
            f"{store.path}: the file ends at answer {store.version}, and the run knows {known['version']}: it is an older copy; put "
            f"the newest back{_without(run)}"
        )
    return int(known["version"])


def _without(run: Run) -> str:
    """How to go on where nobody has a copy."""
    return (
        f" (without a copy: move the file out of the folder; relpref ask {quote(str(run.folder))} --export answers.csv then writes the "
        "answers that the posterior knows)"
    )


def _for_model(table: pd.DataFrame, posterior: UtilityPosterior) -> pd.DataFrame | None:
    """Answers as the model of the run looks at them."""
    if not len(table):
        return None
    known = posterior.data.comparisons
    columns = ["winner", "loser", "count"]
    if known.tie is not None or table["tie"].any():
        columns.append("tie")
    columns += [name for name in ("rater", "shown_first") if getattr(known, name) is not None]
    return table[columns]


# While it works, questions come later: it rests longer than it worked, and then until nobody answers.
_SHARE = 4.0  # rest, in lengths of the last refinement
_LEAST, _MOST = 1.0, 60.0  # seconds of rest
_QUIET = 2.0  # seconds without an answer, for which it waits no longer than it has rested
_SOON = 0.5  # seconds that nobody minds to wait at the end


class Unfinished(KeyboardInterrupt):
    """Interrupted while the last refinement was at work; its thread is inside compiled code and ends when that returns."""


class Refines(Protocol):
    """What is refined."""

    def refine(self) -> bool:
        """Bring the posterior to that of a full fit, and publish it."""
        ...


class Refiner:
    """One thread that refines at the start, after answers (once for all that came meanwhile), and at the end.

    Parameters
    ----------
    loop : Loop
    """

    def __init__(self, loop: Refines) -> None:
        self._loop = loop
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="relpref-refine")

    def start(self) -> None:
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something new."""
        self._wake.set()

    def close(self, waiting: Callable[[], object] = lambda: None) -> None:
        """Refine what is left, and end.

        Parameters
        ----------
        waiting : callable
            Called once where that takes longer than a moment.

        Raises
        ------
        Unfinished
            If it is interrupted meanwhile.
        """
        self._ending.set()
        self._wake.set()
        try:
            self._thread.join(_SOON)
            if self._thread.is_alive():
                waiting()
            while self._thread.is_alive():
                self._thread.join(
                    _SOON
                )  # again and again, because not every Python hears an interrupt in there
        except KeyboardInterrupt:
            raise Unfinished from None

    def _work(self) -> None:
        ending, rest = False, 0.0
        while not ending:
            self._wake.wait()
            self._until_quiet(rest)
            self._wake.clear()
            ending = self._ending.is_set()  # before the last refinement, which then knows every answer
            began = monotonic()
            try:
                self._loop.refine()
            except Exception as error:  # noqa: BLE001 - answers are safe without it, and the next ones may mend it
                said = " ".join(str(error).split())
                print(f"relpref: the ranking was not refined: {said}", file=sys.stderr, flush=True)
            rest = min(max(_SHARE * (monotonic() - began), _LEAST), _MOST)
            self._ending.wait(rest)

    def _until_quiet(self, longest: float) -> None:
        """Wait until nobody has answered for a moment, but no longer than that."""
        until = monotonic() + longest
        while (left := until - monotonic()) > 0 and not self._ending.is_set():
            self._wake.clear()
            if self._ending.wait(min(_QUIET, left)) or not self._wake.is_set():
                return


def publish(
    folder: Path, record: Mapping[str, Any], posterior: Posterior, store: AnswerStore, version: int
) -> bool:
    """Put the posterior of later answers in place of that of a run, in one step.

    Parameters
    ----------
    folder : path
        Of the run.
    record : mapping
        Of the run, when it was opened.
    posterior : Posterior
    store : AnswerStore
    version : int
        Of the answers that the posterior knows.

    Returns
    -------
    bool
        False if another process has published a later one already.

    Raises
    ------
    StorageError
        If something cannot be written, or another run has taken the place of this one; what is there is as it was then.
    """
    with _alone(folder):
        opened, record = record, read_record(folder)
        _check_same(folder, opened, record, store)
        known = record.get("answers") or {"version": -1}
        if known["version"] >= version:
            return False
        # Half-written files of processes that were killed: only who holds the lock writes such ones. First, to make room for the new.
        for name in (RECORD, "posterior-*.nc"):
            for part in folder.glob(f".{name}.*.part"):
                with suppress(OSError):
                    part.unlink()
        file = folder / f"posterior-{version}.nc"
        posterior.save(file)
        record["posterior"] = {"file": file.name, "sha256": file_digest(file)}
        record["answers"] = {"file": ANSWERS, "store": store.identity, "version": version}
        try:
            with replaced(folder / RECORD) as part:
                part.write_text(record_text(record), encoding="utf-8")
                _check_same(folder, opened, read_record(folder), store)
        except StorageError:
            file.unlink(missing_ok=True)
            raise
        # The one before, and what processes left that were killed between these lines.
        for old in (folder / POSTERIOR, *folder.glob("posterior-*.nc")):
            if old != file:
                old.unlink(missing_ok=True)
    return True


def _check_same(
    folder: Path, opened: Mapping[str, Any], record: Mapping[str, Any], store: AnswerStore
) -> None:
    """Refuse a folder in which there is another run now."""
    changes = ("posterior", "answers")  # what is published
    first, second = ({k: v for k, v in one.items() if k not in changes} for one in (opened, record))
    if not store.in_place or first != second:
        raise StorageError(
            f"{folder}: this is another run than the one that was opened, which was moved, replaced or deleted meanwhile; nothing was "
            "published into it"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process at a time; the lock ends with the process, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


LONGEST_NAME = 80


def rater_name(given: Any) -> str:
    """A rater's name as it is kept: white space is one space, characters are composed (NFC).

    Parameters
    ----------
    given : str

    Raises
    ------
    DataError
        If it is empty, longer than 80 characters, or holds characters that nobody sees.
    """
    if isinstance(given, str):
        name = unicodedata.normalize("NFC", " ".join(given.split()))
        if 0 < len(name) <= LONGEST_NAME and name.isprintable():
            return name
    raise DataError(
        f"rater is {shown(given)}; give a name of 1 to {LONGEST_NAME} characters, all of which can be seen, such as 'ann'"
    )


_INTERVALS = 100  # of more entities than a matrix has room for, those that get intervals in a ranking
_OLD = 5  # answers and skips after which it is said how old an outlook is


@dataclass(frozen=True)
class Progress:
    """How far it has come.

    Attributes
    ----------
    answers, skips : int
        Of this rater.
    everyone : int
        Answers to questions, by all raters.
    given : int
        Answers that came otherwise: the run was fitted on them, or they were imported.
    version : int
        Of the answers that the posterior knows.
    worth : Worth or None
        Whether enough is known and what further answers are worth; None before the first refinement.
    since : int
        Answers, skips and withdrawals that came after `worth` was found.
    """

    answers: int
    skips: int
    everyone: int
    given: int
    version: int
    worth: Worth | None
    since: int = 0

    @property
    def enough(self) -> bool:
        """Whether the goal is reached, by an estimate that knows all answers but a few."""
        return self.worth is not None and self.since <= _OLD and self.worth.enough()

    @property
    def outlook(self) -> str:
        """Whether enough is known and how many answers are missing, as every place shows it; empty before that is known.

        Of an old estimate it says when that was found, and gives no advice.
        """
        if self.worth is None:
            return ""
        if self.since <= _OLD:
            return self.worth.sentence
        said = self.worth.finding
        return f"Before the last {self.since} answers and skips: {said[0].lower()}{said[1:]}."


class Loop:
    """Questions and answers about one run; `open` makes one. Several threads may use it, and several processes one each.

    Attributes
    ----------
    posterior : UtilityPosterior
    version : int
        Of the answers that the posterior knows.
    trouble : str
        Why it does not know the last ones, for who answers; empty where it does.
    """

    def __init__(
        self,
        store: AnswerStore,
        posterior: UtilityPosterior,
        version: int,
        *,
        run: Run | None = None,
        score: Any = None,
        seed: int = 0,
        ties: bool = True,
        goal: float = GOAL,
        top: int | None = None,
        **limits: Any,
    ) -> None:
        self.posterior, self.version = posterior, version
        self._goal: dict[str, Any] = {"goal": check_goal(goal), "top": top}
        self.folder = None if run is None else run.folder
        self._record: Mapping[str, Any] = {} if run is None else run.metadata
        self.score = score_of(DEFAULT if score is None else score)
        self._store, self._seed, self._limits = store, seed, limits
        self._ties = ties
        self._settled = posterior  # the last one that was fitted in full
        self.trouble = ""
        self._tried = version  # the last that the posterior was to learn
        self._unlearnt: list[tuple[Any, Any]] = []  # pairs that were answered after `version`
        self._worth: tuple[Worth, int] | None = None  # and the version that it was found for
        self._ranked: tuple[UtilityPosterior, float, pd.DataFrame] | None = None
        self._images, self._items = store.items()
        self._lock = threading.RLock()  # the store and the posterior, for the length of one step
        self._refining = threading.Lock()

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        score: Any = None,
        seed: int = 0,
        ties: bool = True,
        goal: float = GOAL,
        top: int | None = None,
        show: str | os.PathLike[str] | None = None,
        entities: Sequence[Any] | None = None,
        most_appearances: int | None = None,
        hardest: float | None = None,
        repeats: int = 0,
    ) -> "Loop":
        """Go on with a run where its answers ended.

        Parameters
        ----------
        folder : path
            What ``relpref fit`` wrote. Its ``answers.sqlite`` is made if there is none, with the answers that the run was fitted on.
        score : str or Score, optional
            How questions are chosen, see `relpref.explore.next_pairs`.
        seed : int
            Breaks ties between questions, and says which of two is shown on the left.
        ties : bool
            Whether "equally good" is an answer.
        goal, top
            When enough is known, see `relpref.explore.worth`.
        show : path, optional
            Table of what is shown of the entities, see `read_items`; kept in the store.
        entities, most_appearances, hardest, repeats
            What may be asked, see `relpref.explore.next_pairs`.

        Raises
        ------
        StorageError
            If the run or its answers cannot be read or written.
        DataError
            If the run does not rank entities, or its answers are of a kind that cannot be asked for one by one.
        """
        run = load_run(folder)
        posterior = askable(run)
        data = posterior.data
        check_known(run)
        check_top(top, data.num_entities)
        tables = run.metadata.get("tables", ())
        store = AnswerStore.open(
            run.folder / ANSWERS,
            data.entities,
            data.comparisons.table(data.entities),
            files={t["sha256"]: t["given"] for t in tables if t["file"].startswith("data/comparisons")},
        )
        try:
            version = known_version(run, store)
            if show is not None:
                store.keep_items(*read_items(show, data.entities))
            limits = {
                "entities": entities,
                "most_appearances": most_appearances,
                "hardest": hardest,
                "repeats": repeats,
            }
            found = cls(
                store,
                posterior,
                version,
                run=run,
                score=score,
                seed=seed,
                ties=ties,
                goal=goal,
                top=top,
                **limits,
            )
            found._follow()
        except BaseException:
            store.close()
            raise
        return found

    def close(self) -> None:
        """Close the store. Nothing else is to be done: every answer is on the disk already."""
        with self._refining, self._lock:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ties(self) -> bool:
        """Whether "equally good" is an answer."""
        return self._ties and knows_ties(self.posterior)

    def question(self, rater: str) -> Question | None:
        """The rater's open question, or a new one.

        Parameters
        ----------
        rater : str
            See `relpref.ask.loop.rater_name`.

        Returns
        -------
        Question or None
            Stored before it is returned, so that it is the same until it is answered or skipped, also after a restart. None if there
            is nothing left to ask.
        """
        rater = rater_name(rater)
        with self._lock:
            self._follow()
            found = self._store.question(rater)
            while found is None:
                chosen = self._chosen(rater)
                if chosen is None:
                    return None
                found = self._store.ask(rater, *chosen[:3], self.version, shared=chosen[3])
            return found

    def answer(self, question_id: str, outcome: str, rater: str) -> None:
        """Answer an open question: on the disk when this returns, and the posterior has learnt from it.

        Parameters
        ----------
        question_id : str
        outcome : {"first", "second", "tie"}
            Which of the question's ``first`` and ``second`` is preferred, wherever they are shown.
        rater : str

        Raises
        ------
        DataError
            If that question is not open for this rater; nothing is recorded.
        StorageError
            If it cannot be written, or the folder of the run was moved, replaced or deleted; nothing is recorded. In the second case the
            message names a file with all answers until then.
        """
        if outcome == "tie" and not self.ties:
            raise DataError(
                "outcome is 'tie', which is no answer here; say 'first' or 'second', or skip the question"
            )
        with self._lock:
            self._store.answer(question_id, outcome, rater_name(rater))
            self._follow()

    def skip(self, question_id: str, rater: str) -> None:
        """Leave an open question; this rater is not asked about this pair again. Raises as `answer`."""
        with self._lock:
            self._store.skip(question_id, rater_name(rater))
            self._follow()

    def undo(self, rater: str) -> Question | None:
        """Withdraw the rater's last answer or skip, and ask its question again; None if there is none."""
        rater = rater_name(rater)
        with self._lock:
            found = self._store.undo(rater, self.version)
            self._follow()
            return found

    def refine(self) -> bool:
        """Fit in full what came by quick updates, and publish the result into the folder of the run.

        Answers may come meanwhile; they are put on top. Hyperparameters are fitted again when they are due.

        Returns
        -------
        bool
            Whether there was anything to do.
        """
        with self._refining:
            with self._lock:
                self._follow()
                posterior, version = self.posterior, self.version
            new = posterior is not self._settled
            if new:
                posterior = posterior.update(hyperparameters="schedule")
                with self._lock:
                    self._settled = self.posterior = posterior
                    self.version = self._tried = version
                    self._follow()
                if self.folder is not None:
                    publish(self.folder, self._record, posterior, self._store, version)
            if new or self._worth is None:
                self._worth = worth(posterior, score=self.score, **self._goal, **self._limits), version
            return new

    def ranking(self, interval: float = 0.9) -> pd.DataFrame:
        """The entities, best first, each against the average of all; without ranks, which need draws.

        Parameters
        ----------
        interval : float
            Probability of the intervals.

        Returns
        -------
        DataFrame
            By entity: ``mean``, ``sd``, ``lower``, ``upper``; of too many entities for a matrix the last three for the first 100 alone.
        """
        posterior = self.posterior
        if self._ranked is None or self._ranked[:2] != (posterior, interval):
            self._ranked = posterior, interval, posterior.ranking(interval, ranks=False, top=_INTERVALS)
        return self._ranked[2]

    def progress(self, rater: str) -> Progress:
        """How far a rater, and all of them, have come."""
        with self._lock:
            counts = self._store.counts(rater_name(rater))
            version = self.version
            value, found = self._worth or (None, version)
        counts.pop("questions")
        return Progress(**counts, version=version, worth=value, since=version - found)

    def export_answers(self, path: str | os.PathLike[str]) -> int:
        """Write the answers as a table; returns how many. See `relpref.ask.store`."""
        with self._lock:
            self._follow()
            return export_answers(self._store, self.posterior.data, path)

    def import_answers(self, path: str | os.PathLike[str]) -> int:
        """Add the answers of a table, all or none; returns how many. See `relpref.ask.store`."""
        with self._lock:
            number = import_answers(self._store, self.posterior.data, path)
            self._follow()
            return number

    def nothing_left(self, rater: str) -> str:
        """Why there is no question for a rater: how many pairs were answered, and what leaves the others out."""
        known = self.posterior.data.comparisons
        ends = np.sort(np.stack([known.winner, known.loser]), axis=0)
        answered, number = np.unique(ends, axis=1).shape[1], self.posterior.data.num_entities
        pairs = number * (number - 1) // 2
        said = f"{answered} of {counted(pairs, 'pair')} {'has' if pairs == 1 else 'have'} been answered"
        if answered == pairs:
            return f"{said}, by all together."
        limits, reasons = self._limits, []
        if limits.get("entities") is not None:
            reasons.append("only some entities are asked about")
        if (most := limits.get("most_appearances")) is not None:
            reasons.append(f"an entity that was in {counted(most, 'answer')} is not asked about again")
        if (hardest := limits.get("hardest")) is not None:
            reasons.append(f"pairs whose probability is nearer than {hardest:g} to one half are too hard")
        skipped = len({frozenset(pair) for pair in self._store.avoided(rater_name(rater))[0]})
        if skipped:
            reasons.append(f"you skipped {skipped}")
        return f"{said}; the others are left out: {'; '.join(reasons) or 'no answer to them would tell anything'}."

    def why(self, question: Question) -> str:
        """Why this question, in a sentence or two."""
        return why(self.posterior, question.first, question.second, self.score)

    def item(self, label: Any) -> Item:
        """What is shown of an entity."""
        return item(label, self.posterior.data, self._images, self._items)

    def _chosen(self, rater: str) -> tuple[Any, Any, Any, bool] | None:
        """The next question: its pair, which of them is on the left, and whether others have it open."""
        skipped, others = self._store.avoided(rater)
        skipped += self._unlearnt
        # The same store, seed and posterior give the same question.
        rng = np.random.default_rng([self._seed, self._store.counts(rater)["questions"]])
        key = int(rng.integers(2**31))
        known = self.posterior.data.comparisons.raters
        for avoid, shared in ((skipped + others, False), (skipped, True)):
            table = next_pairs(
                self.posterior,
                score=self.score,
                rater=rater if rater in known else None,
                avoid=avoid,
                key=key,
                **self._limits,
            )
            if len(table):
                first, second = table["first"].iloc[0], table["second"].iloc[0]
                return first, second, first if rng.random() < 0.5 else second, shared
            if not others:
                break
        return None

    def _follow(self) -> None:
        """Learn what other processes, or this one, have stored meanwhile.

        If that fails, the posterior stays as it is, and asking goes on: the answers are on the disk, and the next ones may mend it.
        """
        changes = self._store.changes(self.version)
        if changes.version in (self.version, self._tried):
            return
        self._tried = changes.version
        try:
            self.posterior = learnt(self.posterior, changes, quick=True)
        except RelprefError as error:
            self.trouble = f"Every answer is kept, but the ranking does not know the last ones yet: {error}"
            added = changes.added
            self._unlearnt = list(zip(added["winner"], added["loser"], strict=True))
        else:
            self.version, self.trouble, self._unlearnt = changes.version, "", []
