"""``relpref ask`` and ``relpref serve``: ask people which of two they prefer."""

import csv
import os
import sys
from argparse import Namespace
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NoReturn

from relpref.ask.learning import export_left, lost
from relpref.ask.questions import rater_name
from relpref.ask.schema import missing_changes
from relpref.ask.session import Session, Unfinished
from relpref.cli.entry import INTERRUPTED
from relpref.cli.output import given, say
from relpref.cli.rank import labels
from relpref.data.arrays import counted
from relpref.errors import DataError
from relpref.runs import ANSWERS, load_run, runs_in

if TYPE_CHECKING:
    from relpref.ask import Loop

_LATER = "; the next command brings the ranking up to date"


def run(chosen: Namespace) -> None:
    """Ask, or move answers to and from a table."""
    if chosen.web and chosen.answers is not None:
        raise DataError("--answers ends a session in the terminal; leave it out with --web")
    for option, default in (("port", 0), ("per_page", 1)):
        if getattr(chosen, option) != default and not chosen.web:
            raise DataError(
                f"--{option.replace('_', '-')} is for the page; add --web, or leave it out"
            )
    if chosen.rater is not None:
        chosen.rater = rater_name(chosen.rater)
    store = Path(chosen.run) / ANSWERS
    try:
        _ask(chosen, store)
    except KeyboardInterrupt as interrupt:
        kept = f"interrupted; every answer so far is kept in {store}" if store.exists() else ""
        raise KeyboardInterrupt(str(interrupt) or kept) from None


def _ask(chosen: Namespace, store: Path) -> None:
    if chosen.export is not None:
        run, trouble = load_run(chosen.run), ""
        missing, changes = missing_changes(store)
        if missing:
            trouble = f"The last {missing} of {changes} changes in {store}-wal cannot be read"
        elif lost(run):
            trouble = f"{store} is gone or empty"
        if trouble:
            number = export_left(run, chosen.export)
            say(
                f"{trouble}. Written to {chosen.export}: the {counted(number, 'answer')} that are "
                f"left; fit them with the tables in {chosen.run}/data, into a new folder"
            )
            return
    # Before the store is opened: where the page cannot be served, no file is written.
    serve = _page("relpref.ask.web") if chosen.web else None
    new = not store.exists()
    with _opened(chosen) as loop:
        if new:
            say(f"Answers are kept in {store} from now on, with those that the run was fitted on")
        if chosen.import_from is not None:
            number = loop.import_answers(chosen.import_from, chosen.encoding)
            say(f"Added to {store}: {counted(number, 'answer')} of {chosen.import_from}")
            if loop.trouble:
                say(loop.trouble)
            loop.refine()
        elif chosen.export is not None:
            number = loop.export_answers(chosen.export)
            say(f"Written to {chosen.export}: {counted(number, 'answer')}")
        elif serve is not None:
            late = f"interrupted; every answer is kept in {store}{_LATER}"
            leave = (lambda: _leave(late)) if chosen.program else None
            serve(loop, port=chosen.port, rater=chosen.rater, per_page=chosen.per_page, leave=leave)
        else:
            _terminal(loop, chosen)


def _opened(chosen: Namespace) -> "Loop":
    items = None
    if chosen.items is not None:
        data = load_run(chosen.run).posterior.data
        items = labels(data.labels, next(csv.reader([chosen.items])))
    from relpref.ask import Loop
    from relpref.report.words import named_words

    texts = given(chosen, "show", "encoding", "title", "prompt")
    limits = given(chosen, "most_appearances", "max_wrong", "repeats")
    options = texts | limits | given(chosen, "score", "seed", "goal", "top", "ties")
    return Loop.open(chosen.run, items=items, words=named_words(vars(chosen)), **options)


def serve_run(chosen: Namespace) -> None:
    """Serve a start page of all runs of a folder."""
    runs_in(Path(chosen.folder))  # refuses what is no folder
    _page("relpref.ask.gallery")(chosen.folder, port=chosen.port, ask=bool(chosen.ask))


def _page(module: str) -> Any:
    """Function ``serve`` of a module; a DataError where an optional package is missing."""
    try:
        import uvicorn  # noqa: F401

        return import_module(module).serve
    except ImportError as error:
        remedy = "install it with: pip install 'relpref[web]'"
        raise DataError(f"the page needs {error.name}; {remedy}") from error


def _terminal(loop: "Loop", chosen: Namespace) -> None:
    from relpref.ask.terminal import Keys, Terminal

    rater = "me" if chosen.rater is None else chosen.rater
    terminal = Terminal(Session(loop), rater, Keys())
    interrupted, later = False, ""
    try:
        terminal.ask(chosen.answers)
    except Unfinished:
        interrupted, later = True, _LATER
    except KeyboardInterrupt:
        interrupted = True
    change = "given" if terminal.answers >= 0 else "taken back"
    kept = (
        f"{loop.words.counted(abs(terminal.answers), 'answer')} {change} now, all kept in "
        f"{Path(chosen.run) / ANSWERS}"
    )
    if later and chosen.program:
        _leave(f"interrupted; {kept}{later}")
    if interrupted:
        raise KeyboardInterrupt(f"interrupted; {kept}{later}")
    say(f"{kept}: try relpref rank {quote(chosen.run)}")


def _leave(message: str) -> NoReturn:
    """End the process at once.

    A thread inside compiled code cannot be stopped in another way, and every answer is on the
    disk.
    """
    # Nobody reads the message, or the signal came while something else was printed.
    with suppress(OSError, RuntimeError):
        sys.stdout.flush()
        print(f"relpref: {message}", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
