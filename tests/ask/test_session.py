"""When the refinement in the background works, and how it ends."""

import signal
import threading
import time
from typing import Any

import pytest

from relpref.ask import session
from relpref.ask.session import Session, Unfinished
from relpref.errors import DataError


class Slow:
    """Takes its time to refine, and notes when it began and ended."""

    def __init__(self, takes: float) -> None:
        self.takes = takes
        self.spans: list[tuple[float, float]] = []

    def refine(self) -> bool:
        began = time.monotonic()
        time.sleep(self.takes)
        self.spans.append((began, time.monotonic()))
        return True


def wait_for(loop: Slow, number: int, wake: Session | None = None) -> float:
    """Wait until it has refined so often, answering all the time if so asked; returns when the
    first of these answers came.
    """
    first = time.monotonic()
    while len(loop.spans) < number and time.monotonic() < first + 20:
        if wake:
            wake.wake()
        time.sleep(0.005)
    assert len(loop.spans) >= number
    return first


def test_it_rests_longer_than_it_worked_and_waits_for_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "_LEAST", 0.01)
    monkeypatch.setattr(session, "_QUIET", 0.05)
    loop: Any = Slow(0.03)
    background = Session(loop)
    background.start()
    try:
        wait_for(loop, 1)
        wait_for(loop, 2, background)  # somebody who never pauses is not waited for without end
        rest = loop.spans[1][0] - loop.spans[0][1]
        assert rest >= 2 * session._SHARE * 0.03
        time.sleep(0.5)  # rested
        count = len(loop.spans)
        background.wake()
        woken = time.monotonic()
        wait_for(loop, count + 1)
        assert loop.spans[count][0] - woken >= 0.05
    finally:
        background.close()


def test_rest_has_bounds_and_the_end_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_LEAST", 30.0)
    loop: Any = Slow(0.0)
    told: list[str] = []
    background = Session(loop)
    background.start()
    wait_for(loop, 1)
    began = time.monotonic()
    background.wake()
    background.close(lambda: told.append("waiting"))
    assert time.monotonic() - began < 10 and len(loop.spans) == 2 and not told


def test_an_interrupt_at_the_end_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_SOON", 0.05)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop: Any = Slow(1.0)
    told: list[str] = []
    background = Session(loop)
    background.start()
    main = threading.main_thread().ident
    assert main is not None

    def waiting() -> None:
        told.append("waiting")
        threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT)).start()

    try:
        began = time.monotonic()
        with pytest.raises(Unfinished):
            background.close(waiting)
        assert told == ["waiting"] and not loop.spans and time.monotonic() - began < 0.9
    finally:
        background.close()
        signal.signal(signal.SIGINT, before)


def test_an_action_is_on_what_was_shown(fake: Any) -> None:
    loop = fake(*range(6))
    session = Session(loop, 2)
    shown, other = (question.id for question in session.questions("ann"))
    session.record("second", shown, "ann")
    for action, question in (("first", shown), ("undo", shown), ("skip", "q99"), ("undo", "")):
        with pytest.raises(DataError, match="answered already, or taken back"):
            session.record(action, question, "ann")
    with pytest.raises(DataError, match="best"):
        session.record("best", other, "ann")
    session.record("skip", other, "ann")
    assert [kind for kind, _, _ in loop.events] == ["second", "skip"]
    for _ in range(2):
        session.record("undo", session.questions("ann")[0].id, "ann")
    with pytest.raises(DataError, match="nothing to take back"):
        session.record("undo", session.questions("ann")[0].id, "ann")
    assert not loop.events
