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
    """

    def __init__(self, label: str, wanted: bool) -> None:
        self._label = label
        self._wanted = wanted and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> Self:
        """Open the line."""
        if self._wanted:
            from tqdm import tqdm

            self._bar = tqdm(
                desc=f"{self._label}: maximising the evidence",
                unit=" evaluations",
                leave=False,
                file=sys.stderr,
            )
        return self

    def step(self, count: int, objective: float) -> None:
        """One evaluation more."""
        if self._bar is not None:
            self._bar.update()
            self._bar.set_postfix_str(f"log evidence + log prior {objective:.2f}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, also when interrupted."""
        if self._bar is not None:
            self._bar.close()
