"""Answers that are left when the process that takes them is killed at any moment."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from relpref.ask.store import AnswerStore
from relpref.cli import main

ANSWERS = 100

# Says what it does in lines, each written by one call, so that none is mixed with another. A life
# ends by itself after all answers, or after so many lines of a kind, or when it is killed.
CHILD = """
import os, signal, sys
from types import SimpleNamespace
import numpy as np
from relpref.data import Comparisons

def say(words):
    os.write(1, (words + "\\n").encode())

def live(open_loop, kind, number, total):
    say(f"pid {os.getpid()}")
    seen = 0
    def told(what, name):
        nonlocal seen
        say(f"{what} {name}")
        seen += what == kind
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
    with open_loop() as loop:
        while loop.progress("ann").answers < total:
            question = loop.question("ann")
            told("asked", question.id)
            loop.answer(question.id, ("first", "second", "tie")[len(question.id + question.first) % 3], "ann")
            told("kept", question.id)

class Light:
    "Learns nothing, at once: what is on the disk is the matter here."
    data = SimpleNamespace(comparisons=Comparisons(*[np.zeros(0, np.int32)] * 3))
    likelihood = None
    def update(self, *_, **__):
        return self

def light(folder):
    import pandas as pd
    from relpref.ask import AnswerStore, loop
    labels = tuple(f"e{row}" for row in range(30))
    pairs = [(a, b) for a in labels for b in labels if a < b]
    def next_pairs(_, rng_key, **__):
        return pd.DataFrame([pairs[rng_key % len(pairs)]], columns=["first", "second"])
    loop.next_pairs = next_pairs
    given = pd.DataFrame({"winner": ["e0", "e1"], "loser": ["e1", "e2"]})
    def open_loop():
        store = AnswerStore.open(folder + "/answers.sqlite", labels, given)
        return loop.Loop(store, Light(), store.fitted)
    return open_loop

def real(folder):
    from relpref.ask import Loop
    return lambda: Loop.open(folder, score="variance", repeats=200)

open_loop = (light if sys.argv[1] == "light" else real)(sys.argv[2])
for line in sys.stdin:
    kind, number, total = line.split()
    child = os.fork() if sys.argv[1] == "light" else 0
    if child == 0:
        live(open_loop, kind, int(number), int(total))
        os._exit(0)
    os.waitpid(child, 0)
    say("over")
"""


@dataclass
class Witness:
    """Who watches the lives of a loop and knows what it was told."""

    kind: str
    folder: Path
    kept: list[str] = field(default_factory=list)
    asked: str = ""
    parent: subprocess.Popen[str] | None = None

    def live(self, kind: str = "none", number: int = -1, after: float | None = None) -> None:
        """One life, until it ends or, ``after`` seconds from its first question, is killed."""
        if self.parent is None or self.kind == "real":
            self.parent = subprocess.Popen(
                [sys.executable, "-c", CHILD, self.kind, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": os.getcwd()},
            )
        stdin, stdout = self.parent.stdin, self.parent.stdout
        assert stdin is not None and stdout is not None
        expected = self.open_question()
        stdin.write(f"{kind} {number} {ANSWERS}\n")
        stdin.flush()
        pid, first = 0, True
        timer = threading.Timer(after or 0, lambda: killed(pid))
        for line in stdout:
            if not line.endswith("\n") or line == "over\n":
                break
            word, name = line.split()
            if word == "pid":
                pid = int(name)
            elif word == "kept":
                self.kept.append(name)
            else:
                self.asked = name
                if first and after is not None:
                    timer.start()
                assert not first or expected is None or name == expected
                first = False
        timer.cancel()
        if self.kind == "real":
            stdin.close()
            self.parent.wait()
            stdout.close()

    def look(self) -> int:
        """Compare what is on the disk with what was said; the number of answers."""
        with AnswerStore.read(self.folder / "answers.sqlite") or pytest.fail():
            pass  # nothing is called damaged
        answered = [
            row[0]
            for row in self.rows(
                "SELECT question FROM event WHERE question IS NOT NULL ORDER BY version"
            )
        ]
        assert len(set(answered)) == len(answered), "an answer is there twice"
        assert self.kept == answered[: len(self.kept)], "an answer that was acknowledged is lost"
        assert answered[len(self.kept) :] in ([], [self.asked]), "an answer that nobody gave"
        assert self.rows("PRAGMA integrity_check") == [("ok",)]
        self.kept = answered  # what was on the disk before it was said, stays
        return len(answered)

    def open_question(self) -> str | None:
        """The question that is to be asked again."""
        rows = (
            self.rows("SELECT id FROM question WHERE open")
            if (self.folder / "answers.sqlite").exists()
            else []
        )
        assert len(rows) <= 1
        return rows[0][0] if rows else None

    def rows(self, query: str) -> list[tuple[str, ...]]:
        """Read with a connection of another process."""
        connection = sqlite3.connect(self.folder / "answers.sqlite")
        found = connection.execute(query).fetchall()
        connection.close()
        return found


def killed(pid: int) -> None:
    """Kill a process, unless it was faster."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def lives(witness: Witness, kills: int, seconds: float) -> None:
    """Kill it at random moments (of a third each: between an answer and the next question, before
    an answer, and any), then let it end.
    """
    rng = random.Random(5)
    most = 2 * ANSWERS // kills
    for kill in range(kills):
        before = len(witness.kept)
        if kill % 3 == 2:
            witness.live(
                "kept", most, after=rng.uniform(0, seconds)
            )  # a fast machine is done sooner
        else:
            witness.live(("kept", "asked")[kill % 3], rng.randrange(1, most))
        if before + most < ANSWERS:
            assert witness.look() < ANSWERS, "it was to be killed before the end"
    witness.live()
    assert witness.look() == ANSWERS


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    found = Witness("light", tmp_path)
    yield found
    if found.parent is not None:
        assert found.parent.stdin is not None and found.parent.stdout is not None
        found.parent.stdin.close()
        found.parent.wait()
        found.parent.stdout.close()


def test_killed_at_five_moments(witness: Witness) -> None:
    lives(witness, 5, 0.2)


@pytest.mark.slow
def test_killed_at_fifty_moments(witness: Witness) -> None:
    lives(witness, 50, 0.03)


@pytest.mark.slow
def test_a_loop_on_a_run_killed_at_fifty_moments(tmp_path: Path) -> None:
    (tmp_path / "entities.csv").write_text(
        "name,size\n" + "".join(f"e{i},{i * i % 7}\n" for i in range(12))
    )
    (tmp_path / "comparisons.csv").write_text("winner,loser\ne0,e1\ne2,e3\n")
    assert main(["fit", "--folder", str(tmp_path), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    lives(Witness("real", tmp_path / "run"), 50, 1.0)
