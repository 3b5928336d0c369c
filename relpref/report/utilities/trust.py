"""The chapter on how far the page is to be trusted."""

from relpref.report.blocks import Block, Chapter, Items, Text
from relpref.report.utilities.subject import Subject
from relpref.report.utilities.warnings import warnings


def trust(subject: Subject) -> Chapter:
    """The chapter."""
    found = warnings(subject)
    blocks: list[Block] = []
    if found:
        blocks.append(Items(found))
    else:
        text = "Nothing stands out: every entity was asked about, no group stands alone, and the computation went as it should."
        blocks.append(Text(text))
    return Chapter("How far to trust it", blocks)
