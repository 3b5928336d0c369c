"""Asks people: chooses questions, keeps every answer, and learns from it at once."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from relpref.ask.items import Item, item, read_items
from relpref.ask.learning import askable, check_known, known_version, learned, publish, without_others
from relpref.ask.store import AnswerStore, Question, rater_name
from relpref.ask.tables import answers_table, export_answers, import_answers
from relpref.data.arrays import counted, shown
from relpref.errors import DataError, RelprefError
from relpref.explore.choose import Limits, next_pairs, score_of
from relpref.explore.scores import DEFAULT
from relpref.explore.stopping import GOAL, ExpectedGain, check_goal, check_top, expected_gain, rounded, why
from relpref.infer import UtilityPosterior
from relpref.limits import MAX_INTERVALS, MAX_PROMPT_LENGTH
from relpref.runs import ANSWERS, Run, load_run

PROMPT = "Which of the two do you prefer?"
_OLD = 5  # answers and skips after which it is said how old an outlook is


def _line(name: str, text: str) -> str:
    """What can stand above the questions: one line of text that can be seen."""
    line = " ".join(text.split())
    if not (line.isprintable() and 0 < len(line) <= MAX_PROMPT_LENGTH):
        raise DataError(
            f"{name} is {shown(text)}; give 1 to {MAX_PROMPT_LENGTH} characters, all of which can be seen"
        )
    return line


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
    worth : ExpectedGain or None
        Whether enough is known and what further answers are worth; None before the first refinement.
    since : int
        Answers, skips and withdrawals that came after `worth` was found.
    """

    answers: int
    skips: int
    everyone: int
    given: int
    version: int
    worth: ExpectedGain | None
    since: int = 0

    @property
    def enough(self) -> bool:
        """Whether the goal is reached, by an estimate that knows all answers but a few."""
        return self.worth is not None and self.since <= _OLD and self.worth.enough()

    @property
    def remaining(self) -> int | None:
        """About how many more answers reach the goal, to one digit and a half; None where nobody can say or they will not."""
        if self.worth is None or self.worth.missing is None:
            return None
        missing = self.worth.missing - self.since
        return rounded(missing) if missing > 0 else 0

    @property
    def outlook(self) -> str:
        """Whether enough is known and how many answers are missing; of an old estimate when it was found, and no advice."""
        if self.worth is None:
            return ""
        if self.since <= _OLD:
            return self.worth.sentence
        said = self.worth.finding
        return f"Before the last {self.since} answers and skips: {said[0].lower()}{said[1:]}."


class Loop:
    """Questions and answers about one run; made by `open`. Several threads may use it, and several processes one each.

    Parameters
    ----------
    score : str or Score, optional
        How questions are chosen, see `relpref.explore.next_pairs`.
    seed : int
        Breaks ties between questions, and says which of two is shown on the left.
    ties : bool
        Whether "equally good" is an answer.
    goal, top
        When enough is known, see `relpref.explore.expected_gain`.
    **limits
        What may be asked: ``items``, ``most_appearances``, ``hardest``, ``repeats``, see `relpref.explore.next_pairs`.

    Attributes
    ----------
    title, prompt : str
        What is asked about, and the question; see `open`.
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
        words = store.words()
        self.title = words.get("title", "Questions" if run is None else run.folder.absolute().name)
        self.prompt = words.get("prompt", PROMPT)
        self._record: Mapping[str, Any] = {} if run is None else run.metadata
        self.score = score_of(DEFAULT if score is None else score)
        Limits(**limits)  # refuses what cannot be meant
        self._store, self._seed, self._ties, self._limits = store, seed, ties, limits
        self._settled = posterior  # the last one that was fitted in full
        self.trouble = ""
        self._tried = version  # the last that the posterior was to learn
        self._unlearnt: list[tuple[Any, Any]] = []  # pairs that were answered after `version`
        self._worth: tuple[ExpectedGain, int] | None = None  # and the version that it was found for
        self._ranked: tuple[UtilityPosterior, float, pd.DataFrame] | None = None
        self._own: dict[str, tuple[int, pd.DataFrame]] = {}  # of a rater: the version, and the ranking
        self._images, self._items = store.items()
        self._lock = threading.RLock()  # the store and the posterior, for the length of one step
        self._refining = threading.Lock()

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        show: str | os.PathLike[str] | None = None,
        title: str | None = None,
        prompt: str | None = None,
        **options: Any,
    ) -> "Loop":
        """Go on with a run where its answers ended.

        Parameters
        ----------
        folder : path
            What ``relpref fit`` wrote. Its ``answers.sqlite`` is made if there is none, with the answers that the run was fitted on.
        show : path, optional
            Table of what is shown of the items; kept in the store. The first column is the label; ``text``, ``image`` (a file,
            relative to the table's folder) and ``link`` are known by name, every other column is shown as an attribute.
        title, prompt : str, optional
            What stands above the questions, and the question that each of them is, such as "Which would you rather drink?"; kept in the
            store. By default the name of the folder, and "Which of the two do you prefer?".
        **options
            See `Loop`.

        Raises
        ------
        StorageError
            If the run or its answers cannot be read or written.
        DataError
            If the run does not rank items, or its answers are of a kind that cannot be asked for one by one.
        """
        run = load_run(folder)
        posterior = askable(run)
        data = posterior.data
        check_known(run)
        check_top(options.get("top"), data.num_items)
        tables = [t for t in run.metadata.get("tables", ()) if t["file"].startswith("data/comparisons")]
        store = AnswerStore.open(
            run.folder / ANSWERS,
            data.labels,
            data.comparisons.table(data.labels),
            files={table["sha256"]: table["given"] for table in tables},
        )
        try:
            version = known_version(run, store)
            if show is not None:
                store.keep_items(*read_items(show, data.labels))
            words = {"title": title, "prompt": prompt}
            if given := {name: _line(name, text) for name, text in words.items() if text is not None}:
                store.keep_words(**given)
            loop = cls(store, posterior, version, run=run, **options)
            loop._follow()
        except BaseException:
            store.close()
            raise
        return loop

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
        return self._ties and "tie" in getattr(self.posterior.likelihood, "columns", ())

    def question(self, rater: str) -> Question | None:
        """The rater's oldest open question, or a new one; None if there is nothing left to ask.

        It is stored before it is returned, so that it is the same until it is answered or skipped, also after a restart.
        """
        return next(iter(self.questions(rater)), None)

    def questions(self, rater: str, number: int = 1) -> list[Question]:
        """The rater's open questions; where there is none, so many new ones at most, each chosen as if those before it had been answered."""
        rater = rater_name(rater)
        with self._lock:
            self._follow()
            while not (open_ := self._store.questions(rater)):
                chosen, shared = self._chosen(rater, number)
                if not chosen:
                    break
                for beside, pair in enumerate(chosen):
                    self._store.ask(rater, *pair, self.version, shared=shared, beside=beside)
            return open_

    def answer(self, question_id: str, outcome: str, rater: str) -> None:
        """Answer an open question: on the disk when this returns, and the posterior has learned from it.

        Parameters
        ----------
        question_id : str
        outcome : {"first", "second", "tie"}
            Which of the question's ``first`` and ``second`` is preferred, on either side.
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
        with self._step():
            self._store.answer(question_id, outcome, rater_name(rater))

    def skip(self, question_id: str, rater: str) -> None:
        """Leave an open question; this rater is not asked about this pair again. Raises as `answer`."""
        with self._step():
            self._store.skip(question_id, rater_name(rater))

    def undo(self, rater: str) -> Question | None:
        """Withdraw the rater's last answer or skip, and ask its question again; None if there is none."""
        with self._step():
            return self._store.undo(rater_name(rater), self.version)

    def refine(self) -> bool:
        """Fit in full what came by quick updates, publish the result into the folder of the run, and return whether there was anything to do.

        Answers may come meanwhile; they are put on top. Hyperparameters are fitted again when they are due.
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
                self._worth = (
                    expected_gain(posterior, score=self.score, **self._goal, **self._limits),
                    version,
                )
            return new

    def ranking(self, interval: float = 0.9) -> pd.DataFrame:
        """The items, best first, each against the average of all; without ranks, which need draws.

        Returns
        -------
        DataFrame
            By item: ``mean``, ``sd``, ``lower``, ``upper``; of too many items for a matrix the last three for the first 100 alone.
        """
        posterior = self.posterior
        if self._ranked is None or self._ranked[:2] != (posterior, interval):
            self._ranked = posterior, interval, posterior.ranking(interval, ranks=False, top=MAX_INTERVALS)
        return self._ranked[2]

    def own_ranking(self, rater: str, interval: float = 0.9) -> pd.DataFrame | None:
        """The ranking by the answers of one rater alone, at the hyperparameters of all; None where there are none, or it cannot be found.

        That takes as long as a full update, where there are answers of others.
        """
        rater = rater_name(rater)
        with self._lock:
            self._follow()
            posterior, version, changes = self.posterior, self.version, self._store.changes()
        if changes.version != version or not (changes.added["rater"] == rater).any():
            return None
        if rater not in self._own or self._own[rater][0] != version:
            try:
                own = without_others(posterior, changes, rater)
            except RelprefError:
                return None
            ranking = own.ranking(interval, ranks=False, top=MAX_INTERVALS)
            self._own[rater] = version, ranking
        return self._own[rater][1]

    def own_answers(self, rater: str) -> pd.DataFrame:
        """The answers of one rater, as a table that ``relpref fit`` reads."""
        with self._lock:
            return answers_table(self._store, self.posterior.data, rater_name(rater))

    def progress(self, rater: str) -> Progress:
        """How far a rater, and all of them, have come."""
        with self._lock:
            counts = self._store.counts(rater_name(rater))
            version = self.version
            value, known = self._worth or (None, version)
        counts.pop("questions")
        return Progress(**counts, version=version, worth=value, since=version - known)

    def export_answers(self, path: str | os.PathLike[str]) -> int:
        """Write the answers as a table; returns how many. See `relpref.ask.store`."""
        with self._lock:
            self._follow()
            return export_answers(self._store, self.posterior.data, path)

    def import_answers(self, path: str | os.PathLike[str]) -> int:
        """Add the answers of a table, all or none; returns how many. See `relpref.ask.store`."""
        with self._step():
            return import_answers(self._store, self.posterior.data, path)

    def nothing_left(self, rater: str) -> str:
        """Why there is no question for a rater: how many pairs were answered, and what leaves the others out."""
        data = self.posterior.data
        ends = np.sort(np.stack([data.comparisons.winner, data.comparisons.loser]), axis=0)
        answered = np.unique(ends, axis=1).shape[1]
        pairs = data.num_items * (data.num_items - 1) // 2
        text = f"{answered} of {counted(pairs, 'pair')} {'has' if pairs == 1 else 'have'} been answered"
        if answered == pairs:
            return f"{text}, by all together."
        skipped = len({frozenset(pair) for pair in self._store.avoided(rater_name(rater))[0]})
        most, hardest = (self._limits.get(name) for name in ("most_appearances", "hardest"))
        reasons = {
            "only some items are asked about": self._limits.get("items") is not None,
            f"an item that was in {counted(most or 0, 'answer')} is not asked about again": most is not None,
            f"pairs whose probability is nearer than {hardest} to one half are too hard": hardest is not None,
            f"you skipped {skipped}": bool(skipped),
        }
        why = "; ".join(text for text, holds in reasons.items() if holds)
        why = why or "no answer to them would tell anything"
        return f"{text}; the others are left out: {why}."

    def why(self, question: Question) -> str:
        """Why this question, in a sentence or two."""
        return why(self.posterior, question.first, question.second, self.score)

    def item(self, label: Any) -> Item:
        """What is shown of an item."""
        return item(label, self.posterior.data, self._images, self._items)

    def _chosen(self, rater: str, number: int) -> tuple[list[tuple[Any, Any, Any]], bool]:
        """The next questions, each its pair and which of them is on the left, and whether others have them open."""
        skipped, others = self._store.avoided(rater)
        skipped += self._unlearnt
        # The same store, seed and posterior give the same question.
        rng = np.random.default_rng([self._seed, self._store.counts(rater)["questions"]])
        key = int(rng.integers(2**31))
        options = {"score": self.score, "rng_key": key, "k": number, **self._limits}
        options["rater"] = rater if rater in self.posterior.data.comparisons.raters else None
        pairs, shared = next_pairs(self.posterior, avoid=skipped + others, **options), False
        if pairs.empty and others:
            pairs, shared = next_pairs(self.posterior, avoid=skipped, **options), True
        ends = zip(pairs["first"], pairs["second"], strict=True)
        return [(*pair, pair[0] if rng.random() < 0.5 else pair[1]) for pair in ends], shared

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Write something, and learn from it."""
        with self._lock:
            yield
            self._follow()

    def _follow(self) -> None:
        """Learn what other processes, or this one, have stored meanwhile.

        If that fails, the posterior stays as it is, and asking goes on: the answers are on the disk, and the next ones may mend it.
        """
        if self._store.version in (self.version, self._tried):
            return
        changes = self._store.changes(self.version)
        self._tried = changes.version
        try:
            self.posterior = learned(self.posterior, changes, quick=True)
        except RelprefError as error:
            self.trouble = f"Every answer is kept, but the ranking does not know the last ones yet: {error}"
            added = changes.added
            self._unlearnt = list(zip(added["winner"], added["loser"], strict=True))
        else:
            self.version, self.trouble, self._unlearnt = changes.version, "", []
