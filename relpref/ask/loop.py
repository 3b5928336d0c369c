"""The loop that asks people: it chooses questions, stores every answer and learns from it."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pandas as pd

from relpref.ask.items import Item, item, items_of, read_items
from relpref.ask.learning import (
    askable,
    check_known,
    known_version,
    learned,
    publish,
    without_others,
)
from relpref.ask.questions import Question, rater_name
from relpref.ask.store import AnswerStore
from relpref.ask.tables import answers_table, export_answers, import_answers
from relpref.data.arrays import counted, shown
from relpref.errors import DataError, RelprefError
from relpref.explore.choose import Limits, next_pairs, score_of
from relpref.explore.scores import DEFAULT
from relpref.explore.stopping import (
    GOAL,
    ExpectedGain,
    check_goal,
    check_top,
    expected_gain,
    rounded,
    why,
)
from relpref.files import FilePath
from relpref.infer import UtilityPosterior
from relpref.limits import MAX_INTERVALS, MAX_PROMPT_LENGTH
from relpref.report.words import OURS, Words, named_words
from relpref.runs import ANSWERS, Run, load_run

PROMPT = "Which of the two do you prefer?"
_MAX_AGE = 5  # answers and skips after which an estimate is old, and its sentence says so


def _line(name: str, text: str) -> str:
    """Join a text to a single line; raise DataError if it is empty, too long or unprintable."""
    line = " ".join(text.split())
    if not (line.isprintable() and 0 < len(line) <= MAX_PROMPT_LENGTH):
        raise DataError(
            f"{name} is {shown(text)}; give 1 to {MAX_PROMPT_LENGTH} characters, all of which can "
            "be seen"
        )
    return line


@dataclass(frozen=True)
class Progress:
    """Numbers of answers so far, and the gain expected from more.

    Attributes
    ----------
    answers, skips : int
        Answers and skips of this rater.
    everyone : int
        Answers to questions, by all raters.
    given : int
        Answers without a question: the run was fitted on them, or they were imported.
    version : int
        Version of the answers that the posterior includes.
    worth : ExpectedGain or None
        Whether the goal is reached and what further answers are worth; None before the first
        refinement.
    since : int
        Answers, skips and withdrawals after `worth` was computed.
    words : Words
        Words for an item and an answer.
    """

    answers: int
    skips: int
    everyone: int
    given: int
    version: int
    worth: ExpectedGain | None
    since: int = 0
    words: Words = OURS

    @property
    def enough(self) -> bool:
        """Whether the goal is reached, by an estimate at most 5 answers or skips old."""
        return self.worth is not None and self.since <= _MAX_AGE and self.worth.enough()

    @property
    def remaining(self) -> int | None:
        """Rounded number of answers still needed for the goal; None if unknown or unreachable."""
        if self.worth is None or self.worth.missing is None:
            return None
        missing = self.worth.missing - self.since
        return rounded(missing) if missing > 0 else 0

    @property
    def outlook(self) -> str:
        """Sentence on the goal and the answers it still needs; "" before the first estimate.

        If the estimate is old, the sentence says how many answers came after it.
        """
        if self.worth is None:
            return ""
        if self.since <= _MAX_AGE:
            return self.words(replace(self.worth, missing=self.remaining or None).sentence)
        finding = self.worth.finding
        when = f"Before the last {self.since} answers and skips"
        return self.words(f"{when}: {finding[0].lower()}{finding[1:]}.")


class Loop:
    """Questions and answers about one run; made by `open`.

    Several threads may use it, and several processes one each.

    Parameters
    ----------
    score : str or Score, optional
        How questions are chosen, see `relpref.explore.next_pairs`.
    seed : int
        Breaks ties between questions, and decides which item is shown on the left.
    ties : bool
        Whether "equally good" is an answer.
    goal, top
        Goal of the questions, see `relpref.explore.expected_gain`.
    **limits
        Limits on questions: ``items``, ``most_appearances``, ``max_wrong``, ``repeats``, see
        `relpref.explore.next_pairs`.

    Attributes
    ----------
    title, prompt : str
        Subject of the questions, and the question; see `open`.
    words : Words
        Words for an item and an answer.
    posterior : UtilityPosterior
    version : int
        Version of the answers that the posterior includes.
    trouble : str
        Why the posterior does not include the last answers, for the rater; empty if it does.

    Examples
    --------
    >>> import pandas as pd
    >>> from relpref.ask import Loop
    >>> from relpref.cli import main
    >>> drinks = pd.DataFrame({"name": ["tea", "coffee"], "price": [2, 3]})
    >>> drinks.to_csv("drinks.csv", index=False)
    >>> main(["fit", "--items", "drinks.csv", "--out", "drinks", "--quiet"])
    0
    >>> with Loop.open("drinks") as loop:
    ...     question = loop.question("ann")
    ...     _ = loop.answer(question.id, "first", "ann")
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
        Limits(**limits)  # refuses invalid ones
        self._store, self._seed, self._ties, self._limits = store, seed, ties, limits
        self._goal: dict[str, Any] = {"goal": check_goal(goal), "top": top}
        self.score = score_of(DEFAULT if score is None else score)
        self.folder = None if run is None else run.folder
        self._record: Mapping[str, Any] = {} if run is None else run.metadata
        texts = store.words()
        self.title = texts.get("title", "Questions" if run is None else run.folder.absolute().name)
        nouns = named_words(self._record.get("options", {}), texts)
        self.words = Words.of(nouns)
        pair = f"two {self.words.item[1]}" if "item" in nouns else "two"
        self.prompt = texts.get("prompt", PROMPT.replace("two", pair))
        self._images, self._items = store.items()
        if not self._items and run is not None:
            self._images, self._items = items_of(run, posterior.data.labels)
        self.posterior, self.version, self.trouble = posterior, version, ""
        self._refined = posterior  # the last posterior of a full fit
        self._tried = version  # the last version that the posterior was to learn
        # Pairs with answers that the posterior could not learn; they are not asked meanwhile.
        self._unlearned: list[tuple[Any, Any]] = []
        self._worth: tuple[ExpectedGain, int] | None = None  # with the version it was computed for
        self._ranking_of = lru_cache(maxsize=1)(ranking_of)
        # Rankings by a rater's own answers: by rater and interval, the version and the ranking.
        self._own: dict[tuple[str, float], tuple[int, pd.DataFrame]] = {}
        self._lock = threading.RLock()  # the store and the posterior, for the length of one step
        self._refining = threading.Lock()

    @classmethod
    def open(
        cls,
        folder: FilePath,
        *,
        show: FilePath | None = None,
        encoding: str | None = None,
        title: str | None = None,
        prompt: str | None = None,
        words: Mapping[str, str] | None = None,
        **options: Any,
    ) -> "Loop":
        """Open the questions about a run, with all that was asked and answered before.

        Parameters
        ----------
        folder : path
            Folder that ``relpref fit`` wrote. Its ``answers.sqlite`` is made if it does not exist,
            with the answers that the run was fitted on.
        show : path, optional
            Table with details of items to be shown; kept in the store. The first column is the
            label; the columns ``text``, ``image`` (a file, relative to the table's folder) and
            ``link`` have these meanings, every other column is shown as an attribute. By default
            the table of items that the run was fitted on.
        title, prompt : str, optional
            Text above the questions, and the question itself, such as "Which would you rather
            drink?"; kept in the store. By default the name of the folder, and "Which of the two do
            you prefer?".
        words : mapping, optional
            Nouns for an item and an answer, as of `Posterior.report`; kept in the store.
        **options
            See `Loop`.

        Raises
        ------
        StorageError
            If the run or its answers cannot be read or written.
        DataError
            If the run does not rank items, or its answers are not single comparisons.
        """
        Words.of(words)  # refuses those that cannot be used
        run = load_run(folder)
        posterior = askable(run)
        data = posterior.data
        check_known(run)
        check_top(options.get("top"), data.num_items)
        tables = run.metadata.get("tables", ())
        answers = [table for table in tables if table["file"].startswith("data/comparisons")]
        store = AnswerStore.open(
            run.folder / ANSWERS,
            data.labels,
            data.comparisons.table(data.labels),
            files={table["sha256"]: table["given"] for table in answers},
        )
        try:
            version = known_version(run, store)
            if show is not None:
                store.keep_items(*read_items(show, data.labels, encoding))
            texts = {"title": title, "prompt": prompt} | {
                f"{name}_word": word for name, word in (words or {}).items()
            }
            if given := {
                name: _line(name, text) for name, text in texts.items() if text is not None
            }:
                store.keep_words(**given)
            loop = cls(store, posterior, version, run=run, **options)
            loop._follow()
        except BaseException:
            store.close()
            raise
        return loop

    def close(self) -> None:
        """Close the store; every answer is on the disk already."""
        with self._refining, self._lock:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def in_place(self) -> bool:
        """Whether the answers are where they were opened; otherwise nothing more is recorded."""
        return self._store.in_place

    @property
    def ties(self) -> bool:
        """Whether "equally good" is an answer."""
        return self._ties and "tie" in getattr(self.posterior.likelihood, "columns", ())

    def question(self, rater: str) -> Question | None:
        """The rater's oldest open question, or a new one; None if nothing is left to ask.

        It is stored before it is returned: it stays the same until it is answered or skipped, also
        after a restart.
        """
        return next(iter(self.questions(rater)), None)

    def questions(self, rater: str, number: int = 1) -> list[Question]:
        """The rater's open questions, or else at most ``number`` new ones.

        Each new question is chosen as if those before it had been answered.
        """
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
        """Answer an open question; the answer is stored and learned when this returns.

        Parameters
        ----------
        question_id : str
        outcome : {"first", "second", "tie"}
            Whether the question's ``first`` or ``second`` item is preferred; this does not depend
            on which of them is shown on the left.
        rater : str

        Raises
        ------
        DataError
            If that question is not open for this rater; nothing is recorded.
        StorageError
            If it cannot be written, or the folder of the run was moved, replaced or deleted;
            nothing is recorded. In the second case the message names a file with all answers until
            then.
        """
        if outcome == "tie" and not self.ties:
            raise DataError(
                "outcome is 'tie', which is no answer here; say 'first' or 'second', or skip the "
                "question"
            )
        with self._step():
            self._store.answer(question_id, outcome, rater_name(rater))

    def skip(self, question_id: str, rater: str) -> None:
        """Skip a question; its pair is not asked of this rater again. Same errors as `answer`."""
        with self._step():
            self._store.skip(question_id, rater_name(rater))

    def undo(self, rater: str) -> Question | None:
        """Withdraw the rater's last answer or skip, and reopen its question; None if there is none.

        Returns the reopened question.
        """
        with self._step():
            return self._store.undo(rater_name(rater), self.version)

    def refine(self) -> bool:
        """Replace the quick updates by a full fit, and write it into the folder of the run.

        Answers that come meanwhile are added to the fit by quick updates. Hyperparameters are
        fitted again when their schedule says so. Returns whether there was anything to fit.
        """
        with self._refining:
            with self._lock:
                self._follow()
                posterior, version = self.posterior, self.version
            new = posterior is not self._refined
            if new:
                posterior = posterior.update(hyperparameters="schedule")
                with self._lock:
                    self._refined = self.posterior = posterior
                    self.version = self._tried = version
                    self._follow()
                if self.folder is not None:
                    publish(self.folder, self._record, posterior, self._store, version)
            if new or self._worth is None:
                gain = expected_gain(posterior, score=self.score, **self._goal, **self._limits)
                self._worth = gain, version
            return new

    def ranking(self, interval: float = 0.9) -> pd.DataFrame:
        """Rank the items by utility relative to the average item, best first.

        The columns of ranks, which need draws, are left out.

        Returns
        -------
        DataFrame
            ``mean``, ``sd``, ``lower`` and ``upper`` by item; with too many items for a matrix, the
            last three only for the first 100.
        """
        return self._ranking_of(self.posterior, interval)

    def own_ranking(self, rater: str, interval: float = 0.9) -> pd.DataFrame | None:
        """Rank the items by the answers of one rater only, at the hyperparameters of all.

        Returns None if the rater gave no answers, if the posterior lacks the latest answers, or if
        the fit fails. It takes as long as a full update if there are answers of others.
        """
        rater = rater_name(rater)
        with self._lock:
            self._follow()
            posterior, version, changes = self.posterior, self.version, self._store.changes()
        if changes.version != version or not (changes.added["rater"] == rater).any():
            return None
        if self._own.get((rater, interval), (None,))[0] != version:
            try:
                posterior = without_others(posterior, changes, rater)
            except RelprefError:
                return None
            self._own[rater, interval] = version, ranking_of(posterior, interval)
        return self._own[rater, interval][1]

    def own_answers(self, rater: str) -> pd.DataFrame:
        """Table of the answers of one rater, in the form that ``relpref fit`` reads."""
        with self._lock:
            return answers_table(self._store, self.posterior.data, rater_name(rater))

    def progress(self, rater: str) -> Progress:
        """Progress of a rater, and of all raters together."""
        with self._lock:
            counts = self._store.counts(rater_name(rater))
            version = self.version
            worth, computed = self._worth or (None, version)
        del counts["questions"]
        return Progress(
            **counts, version=version, worth=worth, since=version - computed, words=self.words
        )

    def export_answers(self, path: FilePath) -> int:
        """Write the answers as a table and return their number, see `relpref.ask.tables`."""
        with self._lock:
            self._follow()
            return export_answers(self._store, self.posterior.data, path)

    def import_answers(self, path: FilePath, encoding: str | None = None) -> int:
        """Add the answers of a table and return their number, see `relpref.ask.tables`."""
        with self._step():
            return import_answers(self._store, self.posterior.data, path, encoding)

    def nothing_left(self, rater: str) -> str:
        """Explain why a rater is asked nothing more: what was answered, and what is left out."""
        data = self.posterior.data
        ends = np.sort(np.stack([data.comparisons.winner, data.comparisons.loser]), axis=0)
        answered = np.unique(ends, axis=1).shape[1]
        pairs = data.num_items * (data.num_items - 1) // 2
        verb = "has" if pairs == 1 else "have"
        text = f"{answered} of {counted(pairs, 'pair')} {verb} been answered"
        if answered == pairs:
            text = f"{text}, by all together."
            if self._worth and not self._worth[0].enough():
                text += " To ask pairs again, which would still tell more, start with --repeats 1."
            return text
        skipped = len({frozenset(pair) for pair in self._store.avoided(rater_name(rater))[0]})
        most, max_wrong = (self._limits.get(name) for name in ("most_appearances", "max_wrong"))
        reasons = {
            "only some items are asked about": self._limits.get("items") is not None,
            f"an item that was in {counted(most or 0, 'answer')} is not asked about again": most
            is not None,
            f"pairs are too hard if a wrong answer has a probability above {max_wrong}": max_wrong
            is not None,
            f"you skipped {skipped}": skipped,
        }
        why = "; ".join(reason for reason, applies in reasons.items() if applies)
        why = why or "no answer to them would tell anything"
        return f"{text}; the others are left out: {why}."

    def why(self, question: Question) -> str:
        """Explain in a sentence or two why a question is asked."""
        return why(self.posterior, question.first, question.second, self.score)

    def item(self, label: Any) -> Item:
        """Name, text, image and attributes of an item, as they are shown."""
        return item(label, self.posterior.data, self._images, self._items)

    def _chosen(self, rater: str, number: int) -> tuple[list[tuple[Any, Any, Any]], bool]:
        """Choose at most ``number`` new questions for a rater.

        Returns a list of (first, second, item on the left), and whether their pairs may be open for
        other raters, too. That is so only if no other pair is left.
        """
        skipped, others = self._store.avoided(rater)
        skipped += self._unlearned
        # The same store, seed and posterior give the same question.
        rng = np.random.default_rng([self._seed, self._store.counts(rater)["questions"]])
        options = {
            "score": self.score,
            "rng_key": int(rng.integers(2**31)),
            "k": number,
            "rater": rater if rater in self.posterior.data.comparisons.raters else None,
            **self._limits,
        }
        pairs = next_pairs(self.posterior, avoid=skipped + others, **options)
        shared = pairs.empty and bool(others)
        if shared:
            pairs = next_pairs(self.posterior, avoid=skipped, **options)
        ends = zip(pairs["first"], pairs["second"], strict=True)
        return [(*pair, pair[0] if rng.random() < 0.5 else pair[1]) for pair in ends], shared

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Hold the lock while the caller writes to the store; then learn what was written."""
        with self._lock:
            yield
            self._follow()

    def _follow(self) -> None:
        """Update the posterior with the answers that this or another process has stored.

        After an error the posterior stays as it is and asking goes on: the answers are on the disk,
        and later ones may remove the cause.
        """
        if self._store.version in (self.version, self._tried):
            return
        changes = self._store.changes(self.version)
        self._tried = changes.version
        try:
            self.posterior = learned(self.posterior, changes, quick=True)
        except RelprefError as error:
            self.trouble = (
                f"Every answer is kept, but the ranking does not know the last ones yet: {error}"
            )
            added = changes.added
            self._unlearned = list(zip(added["winner"], added["loser"], strict=True))
        else:
            self.version, self.trouble, self._unlearned = changes.version, "", []


def ranking_of(posterior: UtilityPosterior, interval: float = 0.9) -> pd.DataFrame:
    """Ranking for pages: intervals, and tiers unless there are too many items for a matrix."""
    ranking = posterior.ranking(interval, ranks=False, top=MAX_INTERVALS)
    return ranking if posterior.large else ranking.assign(tier=posterior.tiers()["tier"])
