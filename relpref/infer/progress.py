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
