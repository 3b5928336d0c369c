"""When the refinement in the background works, and how it ends."""

import signal
import threading
import time

import pytest

from relpref.ask import learning as refiner
from relpref.ask.learning import Refiner, Unfinished


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


def wait_for(loop: Slow, number: int, wake: Refiner | None = None) -> float:
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
    monkeypatch.setattr(refiner, "_LEAST", 0.01)
    monkeypatch.setattr(refiner, "_QUIET", 0.05)
    loop = Slow(0.03)
    background = Refiner(loop.refine)
    background.start()
    try:
        wait_for(loop, 1)
        wait_for(loop, 2, background)  # somebody who never pauses is not waited for without end
        rest = loop.spans[1][0] - loop.spans[0][1]
        assert rest >= 2 * refiner._SHARE * 0.03
        time.sleep(0.5)  # rested
        count = len(loop.spans)
        background.wake()
        woken = time.monotonic()
        wait_for(loop, count + 1)
        assert loop.spans[count][0] - woken >= 0.05
    finally:
        background.close()


def test_rest_has_bounds_and_the_end_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refiner, "_LEAST", 30.0)
    loop, told = Slow(0.0), []
    background = Refiner(loop.refine)
    background.start()
    wait_for(loop, 1)
    began = time.monotonic()
    background.wake()
    background.close(lambda: told.append("waiting"))
    assert time.monotonic() - began < 10 and len(loop.spans) == 2 and not told


def test_an_interrupt_at_the_end_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refiner, "_SOON", 0.05)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    loop, told = Slow(1.0), []
    background = Refiner(loop.refine)
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
