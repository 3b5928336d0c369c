"""A loop in memory, and the page on it."""

import itertools
import re
import shutil
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.ask import Item, Progress, Question
from relpref.cli import main
from relpref.errors import DataError

TOKEN = "a-token"
HOST = "http://127.0.0.1:8123"


@dataclass
class FakeLoop:
    """Stand-in for a `Loop`: asks about pairs in order, and ranks by how often items were chosen."""

    items: list[Item]
    limit: int | None = None
    ties: bool = True
    fails: Exception | None = None
    worth: Any = None
    since: int = 0
    trouble: str = ""
    title: str = "Drinks"
    prompt: str = "Which would you rather drink?"
    in_place: bool = True
    refined: int = 0
    events: list[tuple[str, Question, str]] = field(default_factory=list)
    open: dict[str, list[Question]] = field(default_factory=lambda: defaultdict(list))
    lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.known = {item.label: item for item in self.items}
        self.pairs = list(itertools.islice(itertools.combinations(self.known, 2), self.limit))
        self.asked = 0

    def _fail(self) -> None:
        if self.fails is not None:
            raise self.fails

    def _ask(self, first: Any, second: Any, rater: str) -> Question:
        self.asked += 1
        left = first if self.asked % 2 else second
        question = Question(f"q{self.asked}", first, second, left, rater)
        self.open[rater].append(question)
        return question

    def question(self, rater: str) -> Question | None:
        return next(iter(self.questions(rater)), None)

    def questions(self, rater: str, number: int = 1) -> list[Question]:
        with self.lock:
            if not self.open[rater]:
                self._fail()
                used = [q for kind, q, who in self.events if kind != "skip" or who == rater]
                used += itertools.chain(*self.open.values())
                asked = {(q.first, q.second) for q in used}
                for pair in [pair for pair in self.pairs if pair not in asked][:number]:
                    self._ask(*pair, rater)
            return list(self.open[rater])

    def _close(self, question: str, kind: str, rater: str) -> None:
        with self.lock:
            current = {asked.id: asked for asked in self.open[rater]}.get(question)
            if current is None:
                raise DataError(f"question {question!r} is not open for {rater!r}")
            self._fail()
            self.open[rater].remove(current)
            self.events.append((kind, current, rater))

    def answer(self, question: str, outcome: str, rater: str) -> None:
        if outcome not in ("first", "second", *["tie"] * self.ties):
            raise DataError(f"no answer {outcome}")
        self._close(question, outcome, rater)

    def skip(self, question: str, rater: str) -> None:
        self._close(question, "skip", rater)

    def undo(self, rater: str) -> Question | None:
        with self.lock:
            self._fail()
            mine = [event for event in self.events if event[2] == rater]
            if not mine:
                return None
            self.events.remove(mine[-1])
            self.open[rater] = []
            return self._ask(mine[-1][1].first, mine[-1][1].second, rater)

    def refine(self) -> bool:
        self.refined += 1
        return True

    def ranking(self, interval: float = 0.9) -> pd.DataFrame:
        mean, seen = dict.fromkeys(self.known, 0.0), dict.fromkeys(self.known, 1.0)
        for kind, question, _ in list(self.events):
            if kind != "skip":
                for end, sign in ((question.first, 0.5), (question.second, -0.5)):
                    seen[end] += 1
                    mean[end] += {"first": sign, "second": -sign, "tie": 0.0}[kind]
        index = pd.Index(list(self.known), dtype=object, tupleize_cols=False)
        frame = pd.DataFrame({"mean": list(mean.values())}, index)
        frame["sd"] = 1 / np.sqrt(list(seen.values()))
        for name, sign in (("lower", -1.64), ("upper", 1.64)):
            frame[name] = frame["mean"] + sign * frame["sd"]
        return frame.assign(tier=1).sort_values("mean", ascending=False, kind="stable")

    def own_ranking(self, rater: str) -> pd.DataFrame | None:
        mine = [event for event in self.events if event[2] == rater]
        return replace(self, events=mine).ranking() if mine else None

    def own_answers(self, rater: str) -> pd.DataFrame:
        mine = [
            (q.first, q.second) for kind, q, who in self.events if who == rater and kind != "skip"
        ]
        return pd.DataFrame(mine, columns=["winner", "loser"])

    def progress(self, rater: str) -> Progress:
        answers = [who for kind, _, who in self.events if kind != "skip"]
        skips = sum(kind == "skip" and who == rater for kind, _, who in self.events)
        return Progress(answers.count(rater), skips, len(answers), 0, 0, self.worth, self.since)

    def nothing_left(self, rater: str) -> str:
        return f"3 of 28 pairs have been answered; the others are left out: {self.limit} <each>."

    def why(self, question: Question) -> str:
        return f"Nothing is known about {question.first} and {question.second} yet."

    def item(self, label: Any) -> Item:
        return self.known[label]


class Visitor:
    """Somebody at the page, without scripts."""

    def __init__(self, loop: Any, **options: Any) -> None:
        from starlette.testclient import TestClient

        from relpref.ask.web import create_app

        self.loop = loop
        self.client = TestClient(
            create_app(loop, token=TOKEN, **options),
            base_url=HOST,
            headers={"Origin": HOST},
            raise_server_exceptions=False,
            follow_redirects=False,
        )

    def get(self, path: str = "", rater: str | None = "ann", **query: Any) -> Any:
        """A page."""
        query |= {} if rater is None else {"rater": rater}
        return self.client.get(f"/{TOKEN}/{path}", params=query)

    def form(self, rater: str = "ann") -> dict[str, str]:
        """The hidden fields of the page's form."""
        return dict(
            re.findall(
                r'<input type="hidden" name="(proof|question)" value="([^"]*)">',
                self.get(rater=rater).text,
            )
        )

    def send(self, form: dict[str, str], rater: str = "ann", **options: Any) -> Any:
        """Send the form."""
        return self.client.post(f"/{TOKEN}/", params={"rater": rater}, data=form, **options)

    def do(self, what: str, rater: str = "ann") -> Any:
        """Press one of its buttons."""
        return self.send(self.form(rater) | {"do": what}, rater)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.fixture(scope="session")
def fake() -> Callable[..., FakeLoop]:
    """Make a loop of labels, with what is known of the items and of the loop by keywords."""

    def make(*labels: Any, **options: Any) -> FakeLoop:
        about = {field.name for field in fields(Item)} & options.keys()
        known = {name: options.pop(name) for name in about}
        return FakeLoop([Item(label, **known) for label in labels], **options)

    return make


@pytest.fixture(scope="session")
def visit() -> Callable[..., Visitor]:
    """Make a page on a loop, and a visitor."""
    return Visitor


@pytest.fixture(scope="session")
def page(fake: Callable[..., FakeLoop]) -> Callable[..., Visitor]:
    """Make a loop of labels, and a visitor to its page; ``visitor.loop`` is the loop."""

    def make(*labels: Any, rater: str | None = None, per_page: int = 1, **about: Any) -> Visitor:
        return Visitor(fake(*labels, **about), rater=rater, per_page=per_page)

    return make


@pytest.fixture(scope="session")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Fit answers, and items unless they are empty, with hyperparameters that are held."""

    def fit(items: str, answers: str, options: str = "", **held: float) -> Path:
        folder = tmp_path_factory.mktemp("fitted")
        (folder / "comparisons.csv").write_text(answers)
        tables = f"--answers {folder}/comparisons.csv"
        if items:
            (folder / "entities.csv").write_text(items)
            tables += f" --items {folder}/entities.csv"
        fixed = " ".join(f"--fixed={name}={value}" for name, value in held.items())
        assert main(f"fit {tables} {options} {fixed} --quiet --out {folder}/run".split()) == 0
        return folder / "run"

    return fit


@contextmanager
def _served(loop: Any, **options: Any) -> Iterator[str]:
    """The page on a port of this machine, in a thread; yields its address."""
    import uvicorn

    from relpref.ask.web import create_app

    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = create_app(loop, token=TOKEN, **options)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/{TOKEN}/"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="session")
def served() -> Callable[..., AbstractContextManager[str]]:
    """Serve a loop for the length of a with-block."""
    return _served
