"""Progress for people: on stderr, and only where somebody watches."""

import sys
from types import TracebackType
from typing import Any, Self


class Progress:
    """A line that counts steps and shows the best objective.

    Parameters
    ----------
    label : str
    wanted : bool
        Shown only if stderr is a terminal, too.
    unit : str
        What is counted.
    note : str
        How the number beside the count is shown.
    """

    def __init__(
        self,
        label: str,
        wanted: bool,
        unit: str = "evaluations",
        note: str = "log evidence + log prior {:.2f}",
    ) -> None:
        self._label, self._unit, self._note = label, unit, note
        self._wanted = wanted and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> Self:
        """Open the line."""
        if self._wanted:
            from tqdm import tqdm

            self._bar = tqdm(
                desc=self._label,
                unit=f" {self._unit}",
                leave=False,
                file=sys.stderr,
            )
        return self

    def step(self, count: int, objective: float) -> None:
        """One evaluation more, or as many as are counted."""
        if self._bar is not None:
            self._bar.update(max(count - self._bar.n, 1))
            self._bar.set_postfix_str(self._note.format(objective))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, also when interrupted."""
        if self._bar is not None:
            self._bar.close()


class Solves:
    """Tells how many columns of a long computation are done, each computation on a line of its own that vanishes at its end.

    Parameters
    ----------
    label : str
    wanted : bool
        Shown only if stderr is a terminal, too.
    """

    _FEW = 64  # columns that are not worth a line

    def __init__(self, label: str, wanted: bool) -> None:
        self._label, self._wanted = label, wanted
        self._bar: Any = None

    def __call__(self, done: int, of: int) -> None:
        """``done`` columns ``of`` so many."""
        if not (self._wanted and of > self._FEW and sys.stderr.isatty()):
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(desc=self._label, total=of, unit=" columns", leave=False, file=sys.stderr)
        self._bar.update(done - self._bar.n)
        if done >= of:
            self._bar.close()
            self._bar = None
