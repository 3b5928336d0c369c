"""The start page of ``relpref serve folder/``: every run with its ranking, report and questions."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from relpref.ask.guard import listen
from relpref.ask.items import View, name, standings, visible
from relpref.ask.learning import up_to_date
from relpref.ask.loop import Loop, ranking_of
from relpref.ask.session import Session
from relpref.ask.store import AnswerStore
from relpref.ask.web import Pages, guarded, page, ranking_file, view_of
from relpref.errors import DataError, RelprefError
from relpref.report.words import Words, named_words
from relpref.runs import ANSWERS, RECORD, REPORT, load_run, runs_in

__all__ = ["create_app", "runs_in", "serve"]

_FIRST = View(most=5)
# A report may come from anybody: nothing in it runs, and nothing is loaded.
_REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class _Summary:
    """Content of a run; without a ranking if it ranks no items or cannot be read."""

    stamp: Any
    title: str
    description: str = ""
    ranking: pd.DataFrame | None = None
    posterior: Any = None
    words: Mapping[str, str] | None = None
    trouble: str = ""

    @cached_property
    def report(self) -> str:
        """A new report, which is not written."""
        from relpref.report.page import render

        return render(self.posterior, title=self.title, relations_evidence=False, words=self.words)


def _read(folder: Path, stamp: Any) -> _Summary:
    """Read a run."""
    title = folder.absolute().name
    try:
        store = AnswerStore.read(folder / ANSWERS)
        if store is not None:
            with store:
                title = store.words().get("title", title)
        run = load_run(folder)
        posterior = run.posterior
        if posterior.kind != "utilities":
            description = "Ranks objects for a given node." * (posterior.kind == "relation")
            return _Summary(stamp, title, description, posterior=posterior)
        posterior, _ = up_to_date(run)
        nouns = named_words(run.metadata.get("options", {}))
        description = Words.of(nouns)(posterior.data.describe())
        return _Summary(stamp, title, description, ranking_of(posterior), posterior, nouns)
    except RelprefError as error:
        return _Summary(stamp, title, trouble=visible(error))


def _stamp(folder: Path) -> list[tuple[int, int]]:
    """Times and sizes of the files that change with a run."""
    stamps = []
    for file in (RECORD, ANSWERS, f"{ANSWERS}-wal"):
        with suppress(OSError):
            status = (folder / file).stat()
            stamps.append((status.st_mtime_ns, status.st_size))
    return stamps


class _Gallery:
    """Handlers of the pages about the runs in a folder, and of their questions if people may ask.

    A summary is kept until the files of its run change; the first visit opens a session.
    """

    def __init__(self, folder: Path, ask: bool) -> None:
        self._folder, self._ask = folder, ask
        self._summaries: dict[str, _Summary] = {}
        self._sessions: dict[str, tuple[Session, Router]] = {}
        self._reading, self._opening = threading.Lock(), threading.Lock()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self.start),
            Route("/run/{run}/ranking", self.ranking),
            Route("/run/{run}/ranking.csv", self.ranking_table),
            Route("/run/{run}/report", self.report),
            *[Mount("/ask/{run}", app=self.ask)] * self._ask,
        ]

    def start(self, request: Request) -> Response:
        """Show all runs."""
        runs = []
        for run in runs_in(self._folder):
            summary = self._summary(run)
            ranking = summary.ranking
            runs.append(
                {
                    "path": quote(run, safe=""),
                    "known": summary,
                    "title": name(summary.title).head,
                    "standings": None if ranking is None else standings(ranking, _FIRST),
                }
            )
        return self._page("gallery.html.j2", root="", runs=runs, ask=self._ask)

    def ranking(self, request: Request) -> Response:
        """Show a part of the full ranking of a run."""
        summary, view = self._ranked(request), view_of(request)
        return self._page(
            "run.html.j2",
            root="../../",
            run=name(summary.title).head,
            standings=standings(summary.ranking, view),
            view=view,
        )

    def ranking_table(self, request: Request) -> Response:
        """Send the full ranking of a run as a file."""
        return ranking_file(self._ranked(request).ranking)

    def report(self, request: Request) -> Response:
        """Send the report in the folder of a run, or else a new one."""
        run, headers = request.path_params["run"], {"Content-Security-Policy": _REPORT_POLICY}
        summary, folder = self._summary(run), self._run(run)
        file = folder / REPORT
        if file.is_file() and file.resolve().parent == folder.resolve():
            return FileResponse(file, media_type="text/html", headers=headers)
        if summary.posterior is None:
            raise HTTPException(409, summary.trouble)
        with self._reading:
            return HTMLResponse(summary.report, headers=headers)

    async def ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the pages that ask about a run."""
        router = await run_in_threadpool(self._router, scope["path_params"]["run"])
        await router(scope, receive, send)

    def close(self) -> None:
        """Refine and publish what is left."""
        for session, _ in self._sessions.values():
            session.close()
            session.loop.close()

    def _run(self, run: str) -> Path:
        """Folder of a run."""
        folder = runs_in(self._folder).get(run)
        if folder is None:
            raise HTTPException(404, "There is no such run.")
        return folder

    def _summary(self, run: str) -> _Summary:
        """Summary of a run, read again if its files have changed."""
        folder = self._run(run)
        stamp = _stamp(folder)
        with self._reading:
            if run not in self._summaries or self._summaries[run].stamp != stamp:
                self._summaries[run] = _read(folder, stamp)
            return self._summaries[run]

    def _ranked(self, request: Request) -> Any:
        """Summary of a run with a ranking."""
        summary = self._summary(request.path_params["run"])
        if summary.ranking is None:
            raise HTTPException(404, summary.trouble or "This run has no ranking of items.")
        return summary

    def _router(self, run: str) -> Router:
        folder = self._run(run)
        with self._opening:
            if run not in self._sessions:
                try:
                    session = Session(Loop.open(folder))
                except DataError as error:
                    raise HTTPException(409, visible(error)) from None
                self._sessions[run] = session, Router(Pages(session, root="../../").routes())
                session.start()
            return self._sessions[run][1]

    def _page(self, template: str, **values: Any) -> HTMLResponse:
        return page(template, title=name(self._folder.absolute().name).head, **values)


def create_app(folder: str | Path, *, token: str, ask: bool = False) -> Starlette:
    """Make the application.

    Parameters
    ----------
    folder : path
        A run, or a folder with runs.
    token : str
        First part of every path; requests without it are refused.
    ask : bool
        Whether people may answer questions; otherwise nothing is written.
    """
    place = Path(folder)
    runs_in(place)  # refuses a path that is no folder
    gallery = _Gallery(place, ask)
    return guarded(gallery.routes(), token, gallery.close)


def serve(
    folder: str | Path,
    *,
    port: int = 0,
    ask: bool = False,
    announce: Callable[[str], object] = print,
) -> None:
    """Serve the start page at 127.0.0.1 until Ctrl-C.

    Arguments are as in `create_app` and `relpref.ask.web.serve`.
    """
    listen(
        lambda token: create_app(folder, token=token, ask=ask),
        port=port,
        announce=announce,
        words=(
            "The runs are at",
            "Ctrl-C ends it." if ask else "Ctrl-C ends it; nothing is written.",
        ),
        ending="Ending: rankings are brought up to date. Every answer is saved already." * ask,
    )
