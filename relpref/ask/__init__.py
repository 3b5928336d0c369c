"""Asks people: the loop that chooses questions and learns, the store of answers, the terminal and the page.

The page (`relpref.ask.web`) needs the extra ``web``.
"""

from relpref.ask.items import Item
from relpref.ask.loop import Loop, Progress
from relpref.ask.store import AnswerStore, Question

__all__ = ["AnswerStore", "Item", "Loop", "Progress", "Question"]
