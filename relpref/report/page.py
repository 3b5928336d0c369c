"""Write the page of a posterior."""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from relpref.blas import one_thread
from relpref.errors import DataError
from relpref.files import FilePath, replaced
from relpref.infer import InferenceWarning, Posterior, RelationPosterior
from relpref.registry import find, names
from relpref.report import blocks, classes, plots, relation, utilities
from relpref.report.blocks import Chapter, Contents, Facts, Section, clean, from_frame
from relpref.report.model import computation, hyperparameters, methods, versions
from relpref.report.trust import Checked
from relpref.report.words import Words, templates

_LONGEST_PARAGRAPH = 20_000


def write(posterior: Posterior | RelationPosterior, path: FilePath, **options: Any) -> Path:
    """Write the report of a posterior, as `posterior.report` does, with its options.

    Examples
    --------
    >>> import relpref
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> posterior = relpref.fit(answers=answers)
    >>> path = relpref.report.write(posterior, "report.html")
    """
    with warnings.catch_warnings(), one_thread():
        # The banner at the top of the page has the warning.
        warnings.simplefilter("ignore", InferenceWarning)
        text = render(posterior, **options)
    with replaced(path) as part:
        part.write_bytes(text.encode("utf-8"))
    return Path(path)


def render(
    posterior: Posterior | RelationPosterior,
    *,
    title: str | None = None,
    sections: Sequence[Section] = (),
    relations_evidence: bool | pd.DataFrame | None = None,
    words: Mapping[str, str] | None = None,
) -> str:
    """HTML of the page; see `posterior.report` for the options."""
    for section in sections:
        if not isinstance(section, Section):
            raise DataError(
                f"sections: got a {type(section).__name__}; each must be a relpref.report.Section"
            )
    if words and posterior.kind != "utilities":
        raise DataError("words: this report is not about items and answers; leave words out")
    nouns = Words.of(words)
    page = _KINDS[posterior.kind](posterior, relations_evidence, nouns)
    front = len(sections)  # the user's sections follow the first chapter
    extra = [
        _chapter(section, number, number <= front)
        for number, section in enumerate([*sections, *_registered(posterior)], 1)
    ]
    first, *rest = page.chapters
    chapters = [first, *extra[:front], *rest, hyperparameters(posterior, nouns), *extra[front:]]
    chapters += [computation(posterior), methods(posterior, page.methods), versions(posterior)]
    environment = _environment(nouns)
    bodies = [(chapter, _body(environment, chapter)) for chapter in chapters if chapter is not None]
    text: str = environment.get_template("page.html").render(
        title=clean(title or page.title),
        result=posterior.result,
        summary=_body(environment, Chapter("", f"{posterior.kind}.html:summary", page.summary)),
        front=[(chapter.title, body) for chapter, body in bodies if chapter.front],
        details=[(chapter.title, body) for chapter, body in bodies if not chapter.front],
        css=files("relpref.report").joinpath("templates/report.css").read_text("utf-8"),
    )
    return text


def _registered(posterior: Any) -> list[Section]:
    """Sections of the registered chapters for this kind of posterior."""
    sections = []
    for name in names("chapter"):
        if name.partition(".")[0] != posterior.kind:
            continue
        section = find("chapter", name)(posterior)
        if isinstance(section, Section):
            sections.append(section)
        elif section is not None:
            raise DataError(
                f"the chapter {name!r} returned a {type(section).__name__}; return a "
                "relpref.report.Section, or None"
            )
    return sections


def _chapter(section: Section, number: int, front: bool) -> Chapter:
    """Chapter of a section of the user."""
    title, table = clean(section.title), section.table
    facts: Facts = {
        "title": title,
        "paragraphs": [clean(text, _LONGEST_PARAGRAPH) for text in section.paragraphs],
        "picture": None
        if section.figure is None
        else plots.foreign(section.figure, f"extra{number}", title),
        "table": None if table is None else from_frame(table, title),
        "note": None if section.note is None else clean(section.note, _LONGEST_PARAGRAPH),
    }
    if table is not None:
        kept = tuple(map(min, table.shape, blocks.MOST_SHOWN))
        facts |= {"of": table.shape, "kept": kept, "cut": kept != table.shape}
    return Chapter(title, "common.html:section", facts, front)


_SITE_ROWS = 50


def _sites(posterior: Any, *_: object) -> Contents:
    """Contents of the page of a program without labeled items."""
    sites = [
        (clean(name), posterior.mean(site=name), posterior.sd(site=name))
        for name in posterior.slices
    ]
    widest = max((np.max(sd, initial=0.0) for *_, sd in sites), default=0.0)
    facts = {"sites": sites, "most": _SITE_ROWS, "widest": widest}
    chapters = [
        Chapter("Posterior", "program.html:sites", facts, front=True),
        Chapter("How far to trust it", "program.html:trust", Checked(posterior).facts()),
    ]
    return Contents("Posterior report", facts, chapters, {})


_KINDS: Mapping[str, Callable[[Any, Any, Words], Contents]] = {
    "utilities": utilities.contents,
    "relation": relation.contents,
    "classes": classes.contents,
    "program": _sites,
}

_LINES = re.compile(r"<(p|li|figcaption)\b.*?</\1>", re.DOTALL)
_BREAK = re.compile(r"\s*\n\s*")


@cache
def _environment(words: Words) -> Any:
    """Templates with the functions that format numbers and names."""
    environment = templates("relpref.report", words)
    environment.filters["each"] = lambda values, write, *options: [
        write(value, *options) for value in values
    ]
    environment.globals |= vars(blocks)
    environment.globals |= {
        "counted": words.counted,
        "words": words,
        "tabled": blocks.grid,
        "finite": np.isfinite,
        "zip": zip,
    }
    return environment


def _body(environment: Any, chapter: Chapter) -> Any:
    """HTML of a chapter, each paragraph on one line."""
    from markupsafe import Markup

    template, _, macro = chapter.macro.partition(":")
    text = str(getattr(environment.get_template(template).module, macro)(chapter.facts)).strip()
    return Markup(_LINES.sub(_on_one_line, text))


def _on_one_line(block: re.Match[str]) -> str:
    text = _BREAK.sub(" ", block[0])
    return re.sub(r"(<\w[^>]*>) | (</\w+>$)", r"\1\2", text)
