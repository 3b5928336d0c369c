"""The start page of ``relpref serve folder/``: every run with its ranking, its report and, where that is allowed, its questions."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
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
from relpref.ask.learning import Refiner, up_to_date
from relpref.ask.loop import Loop
from relpref.ask.store import AnswerStore
from relpref.ask.web import ask_routes, guarded, table_file, templates, view_of
from relpref.errors import DataError, RelprefError
from relpref.limits import MAX_INTERVALS
from relpref.runs import ANSWERS, RECORD, REPORT, load_run

__all__ = ["create_app", "runs_in", "serve"]

_FIRST = View(most=5)
# A report comes with its folder from any author: nothing in it runs, and nothing is loaded.
_REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


def runs_in(folder: Path) -> dict[str, Path]:
    """The runs of a folder by their names: those of its folders that are one, or the folder itself."""
    if (folder / RECORD).is_file():
        return {folder.absolute().name: folder}
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder; give one with the runs that relpref fit wrote")
    return {path.name: path for path in sorted(folder.iterdir()) if (path / RECORD).is_file()}


@dataclass(frozen=True)
class _Known:
    """What the page says of a run; without a ranking of items where there is none, or the run cannot be read."""

    stamp: Any
    title: str
    description: str = ""
    ranking: pd.DataFrame | None = None
    posterior: Any = None
    trouble: str = ""


def _read(folder: Path, stamp: Any) -> _Known:
    title = folder.absolute().name
    try:
        store = AnswerStore.read(folder / ANSWERS)
        if store is not None:
            with store:
                title = store.words().get("title", title)
        run = load_run(folder)
        posterior: Any = run.posterior
        if posterior.kind != "utilities":
            return _Known(
                stamp,
                title,
                "Ranks objects for a given node." * (posterior.kind == "relation"),
                None,
                posterior,
            )
        posterior, _ = up_to_date(run)
        ranking = posterior.ranking(ranks=False, top=MAX_INTERVALS)
        return _Known(stamp, title, posterior.data.describe(), ranking, posterior)
    except RelprefError as error:
        return _Known(stamp, title, trouble=visible(error))


def _stamp(folder: Path) -> list[tuple[int, int]]:
    """What changes where a run does."""
    stamps = []
    for file in (RECORD, ANSWERS, f"{ANSWERS}-wal"):
        with suppress(OSError):
            status = (folder / file).stat()
            stamps.append((status.st_mtime_ns, status.st_size))
    return stamps


class _Gallery:
    """The handlers, and what they know of the runs."""

    def __init__(self, folder: Path, ask: bool) -> None:
        self._folder, self._ask = folder, ask
        self._known: dict[str, _Known] = {}
        self._reports: dict[str, tuple[Any, str]] = {}
        self._lock = threading.Lock()
        self._templates = templates()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self.start),
            Route("/run/{run}/ranking", self.ranking),
            Route("/run/{run}/ranking.csv", self.ranking_table),
            Route("/run/{run}/report", self.report),
        ]

    def start(self, request: Request) -> Response:
        """All runs."""
        runs = []
        for run in runs_in(self._folder):
            known = self._of(run)
            top = None if known.ranking is None else standings(known.ranking, _FIRST)
            runs.append(
                {
                    "path": quote(run, safe=""),
                    "known": known,
                    "title": name(known.title).head,
                    "standings": top,
                }
            )
        return self._render("gallery.html.j2", root="", runs=runs, ask=self._ask)

    def ranking(self, request: Request) -> Response:
        """The whole ranking of a run, in parts."""
        known, view = self._ranked(request), view_of(request)
        found = standings(known.ranking, view)
        return self._render(
            "run.html.j2", root="../../", run=name(known.title).head, standings=found, view=view
        )

    def ranking_table(self, request: Request) -> Response:
        """The same as a file."""
        return table_file(self._ranked(request).ranking.rename_axis("item").reset_index(), "ranking.csv")

    def report(self, request: Request) -> Response:
        """The report that is in the folder of a run, or a new one, which is not written."""
        run, headers = request.path_params["run"], {"Content-Security-Policy": _REPORT_POLICY}
        known = self._of(run)
        folder = runs_in(self._folder)[run]
        file = folder / REPORT
        if file.is_file() and file.resolve().parent == folder.resolve():
            return FileResponse(file, media_type="text/html", headers=headers)
        if known.posterior is None:
            raise HTTPException(409, known.trouble)
        with self._lock:
            if self._reports.get(run, (None,))[0] != known.stamp:
                from relpref.report.page import render

                self._reports[run] = (
                    known.stamp,
                    render(known.posterior, title=known.title, relations_evidence=False),
                )
            return HTMLResponse(self._reports[run][1], headers=headers)

    def _of(self, run: str) -> _Known:
        folder = runs_in(self._folder).get(run)
        if folder is None:
            raise HTTPException(404, "There is no such run.")
        stamp = _stamp(folder)
        with self._lock:
            if run not in self._known or self._known[run].stamp != stamp:
                self._known[run] = _read(folder, stamp)
            return self._known[run]

    def _ranked(self, request: Request) -> Any:
        known = self._of(request.path_params["run"])
        if known.ranking is None:
            raise HTTPException(404, known.trouble or "This run has no ranking of items.")
        return known

    def _render(self, template: str, **values: Any) -> HTMLResponse:
        title = name(self._folder.absolute().name).head
        return HTMLResponse(self._templates.get_template(template).render(title=title, **values))


class _Asking:
    """The questions of every run: its loop is opened by the first visit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, tuple[Loop, Refiner, Router]] = {}
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        router = await run_in_threadpool(self._router, scope["path_params"]["run"])
        await router(scope, receive, send)

    def _router(self, run: str) -> Router:
        folder = runs_in(self._folder).get(run)
        with self._lock:
            if folder is None:
                raise HTTPException(404, "There is no such run.")
            if run not in self._open:
                try:
                    loop = Loop.open(folder)
                except DataError as error:
                    raise HTTPException(409, visible(error)) from None
                refiner = Refiner(loop.refine)
                self._open[run] = loop, refiner, Router(ask_routes(loop, refiner, root="../../"))
                refiner.start()
            return self._open[run][2]

    def close(self) -> None:
        """Refine and publish what is left."""
        for loop, refiner, _ in self._open.values():
            refiner.close()
            loop.close()


def create_app(folder: str | Path, *, token: str, ask: bool = False) -> Starlette:
    """Make the application.

    Parameters
    ----------
    folder : path
        Holds the folders of runs, or is one.
    token : str
        First part of every path; requests without it are refused.
    ask : bool
        Whether people may answer questions on it; otherwise nothing is written.
    """
    place = Path(folder)
    runs_in(place)  # refuses what is no folder
    routes, asking = _Gallery(place, ask).routes(), _Asking(place)
    if ask:
        routes.append(Mount("/ask/{run}", app=asking))

    @asynccontextmanager
    async def closed(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await run_in_threadpool(asking.close)

    return guarded(routes, token, closed)


def serve(
    folder: str | Path, *, port: int = 0, ask: bool = False, announce: Callable[[str], object] = print
) -> None:
    """Serve the start page at 127.0.0.1 until Ctrl-C; arguments as in `create_app` and `relpref.ask.web.serve`."""
    listen(
        lambda token: create_app(folder, token=token, ask=ask),
        port=port,
        announce=announce,
        words=("The runs are at", "Ctrl-C ends it." if ask else "Ctrl-C ends it; nothing is written."),
        ending="Ending: rankings are brought up to date. Every answer is saved already." if ask else "",
    )
