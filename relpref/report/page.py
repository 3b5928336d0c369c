"""Writes the page."""

import os
import warnings
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from relpref.errors import DataError
from relpref.files import replaced
from relpref.infer import ClassPosterior, InferenceWarning, RelationPosterior, UtilityPosterior
from relpref.infer.large.covariance import ImplicitBelief
from relpref.report import plain
from relpref.report.blocks import Block, Chapter, Contents, Picture, Section, Text, clean
from relpref.report.classes import contents as classes
from relpref.report.foreign import AnyPosterior, banner, computation, foreign
from relpref.report.methods import methods, versions
from relpref.report.model import citations
from relpref.report.plots import from_frame
from relpref.report.relation import contents as relation
from relpref.report.utilities import contents as utilities
from relpref.report.utilities import methods as large

_LONGEST_PARAGRAPH = 20_000


def write(
    posterior: AnyPosterior,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    sections: Sequence[Section] = (),
    relations_evidence: bool | pd.DataFrame | None = None,
) -> Path:
    """Write a report: one HTML file that needs nothing else, neither a network nor scripts.

    Equal input gives equal bytes. The file is replaced whole or not at all.

    Parameters
    ----------
    posterior : Posterior or RelationPosterior
        Each kind has the chapters that matter there.
    path : path
        File to write; its folder must exist.
    title : str, optional
    sections : sequence of Section
        More to show, after the summary.
    relations_evidence : bool or DataFrame, optional
        True to fit again without each part of the model, to see what it is worth; or the ready table of
        `relpref.diagnostics.evidence_without_each`; or False to leave out that it can be had.

    Returns
    -------
    Path
        Of the file.

    Raises
    ------
    DataError
        If a section's figure is not one self-contained SVG picture, or a ready table of evidence lacks a column.
    StorageError
        If the file cannot be written.
    """
    with warnings.catch_warnings():
        # The banner at the top of the page says it.
        warnings.simplefilter("ignore", InferenceWarning)
        text = render(posterior, title=title, sections=sections, relations_evidence=relations_evidence)
    with replaced(path) as part:
        part.write_bytes(text.encode("utf-8"))
    return Path(path)


def render(
    posterior: AnyPosterior,
    *,
    title: str | None = None,
    sections: Sequence[Section] = (),
    relations_evidence: bool | pd.DataFrame | None = None,
) -> str:
    """The page as text; arguments as in `write`."""
    for section in sections:
        if not isinstance(section, Section):
            raise DataError(
                f"sections: got a {type(section).__name__}; each must be a relpref.report.Section"
            )
    page = _contents(posterior, relations_evidence)
    added = [_chapter(section, number) for number, section in enumerate(sections, start=1)]
    closing = [computation(posterior), methods(page.methods, citations(posterior)), versions(posterior)]
    return _template().render(
        title=clean(title or page.title),
        banner=banner(posterior),
        lead=page.lead,
        chapters=[*added, *page.chapters, *closing],
        css=files("relpref.report").joinpath("report.css").read_text("utf-8"),
    )


def _contents(posterior: AnyPosterior, relations_evidence: bool | pd.DataFrame | None) -> Contents:
    """What is particular to the kind of posterior."""
    if isinstance(posterior, UtilityPosterior) and isinstance(posterior.belief, ImplicitBelief):
        return large.contents(posterior, relations_evidence)
    if isinstance(posterior, UtilityPosterior):
        return utilities.contents(posterior, relations_evidence)
    if isinstance(posterior, ClassPosterior):
        return classes.contents(posterior)
    if isinstance(posterior, RelationPosterior):
        return relation.contents(posterior)
    return plain.contents(posterior)


def _chapter(section: Section, number: int) -> Chapter:
    """A section of the caller as a chapter."""
    blocks: list[Block] = [Text(clean(text, _LONGEST_PARAGRAPH)) for text in section.paragraphs]
    if section.figure is not None:
        svg, own_colours = foreign(section.figure, f"extra{number}", clean(section.title))
        blocks.append(Picture(svg, own_colours=own_colours))
    if section.table is not None:
        blocks += from_frame(section.table, clean(section.title))
    if section.note is not None:
        blocks.append(Text(clean(section.note, _LONGEST_PARAGRAPH), small=True))
    return Chapter(clean(section.title), blocks)


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("relpref.report", package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")
