"""Questions to people: the loop that chooses them, the store of answers, terminal and page.

The page (`relpref.ask.web`) needs the extra ``web``.
"""

from typing import TYPE_CHECKING, Any

from relpref.ask.items import Item
from relpref.ask.questions import Question
from relpref.ask.store import AnswerStore

if TYPE_CHECKING:
    from relpref.ask.loop import Loop, Progress

__all__ = ["AnswerStore", "Item", "Loop", "Progress", "Question"]


def __getattr__(name: str) -> Any:
    """Import the loop when it is first used: it needs JAX, and the store of answers does not."""
    if name not in __all__:
        raise AttributeError(f"module 'relpref.ask' has no attribute {name!r}")
    from relpref.ask import loop

    return getattr(loop, name)
