"""One self-contained page about a posterior, for people."""

from relpref.report.blocks import Section
from relpref.report.page import write

__all__ = ["Section", "write"]
