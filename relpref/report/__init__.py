"""One self-contained page about a posterior, for people."""

from relpref.report.page import write
from relpref.report.section import Section

__all__ = ["Section", "write"]
