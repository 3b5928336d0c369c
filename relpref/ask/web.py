"""The page on which people answer questions in a browser: ``relpref ask run/ --web`` (extra ``web``).

Every answer is a whole page, made here and readable without scripts. A form is answered by a redirect to the page; the script of the
page follows it and takes over what changed. A question has no address of its own: the page shows the one that is open for its rater, so
that a tab that was reloaded, or opened again tomorrow, goes on.
"""

import hmac
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from relpref.ask.guard import Guard, form_of, listen
from relpref.ask.items import PAGE, TOP, TYPES, View, card, is_picture, name, standings, visible
from relpref.ask.learning import Refiner
from relpref.ask.loop import Loop
from relpref.ask.store import Question, rater_name
from relpref.errors import DataError, StorageError

__all__ = ["create_app", "serve"]

_STALE = (
    "That question was answered already, or taken back, perhaps in another tab. "
    "Nothing was counted twice; this is the question that is open now."
)


def create_app(loop: Loop, *, token: str, rater: str | None = None, per_page: int = 1) -> Starlette:
    """Make the application; its lifespan refines in the background, and once more at the end.

    Parameters
    ----------
    loop : Loop
        Open; its owner closes it.
    token : str
        First part of every path; requests without it are refused.
    rater : str, optional
        Who answers where the address says nothing else; by default the page asks for a name.
    per_page : int
        Questions that are on the page at once.

    Returns
    -------
    Starlette

    Raises
    ------
    DataError
        If nobody can have that name.
    """
    refiner = Refiner(loop.refine)
    inside = ask_routes(loop, refiner, rater=None if rater is None else rater_name(rater), per_page=per_page)

    @asynccontextmanager
    async def refined(app: Starlette) -> AsyncIterator[None]:
        refiner.start()
        try:
            yield
        finally:
            await run_in_threadpool(refiner.close)

    return guarded(inside, token, refined)


def guarded(inside: list[BaseRoute], token: str, lifespan: Any) -> Starlette:
    """An application behind a token."""

    async def refused(request: Request, error: Any) -> Response:
        return PlainTextResponse(error.detail, error.status_code, headers=error.headers)

    async def unreadable(request: Request, error: Any) -> Response:
        words = f"{error}. Nothing that was counted is lost; load the page again."
        return PlainTextResponse(visible(words), 503)

    static = Mount("/static", StaticFiles(packages=[("relpref.ask", "static")]))
    return Starlette(
        routes=[Mount(f"/{token}", routes=[static, *inside])],
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={HTTPException: refused, StorageError: unreadable},
        lifespan=lifespan,
    )


def templates() -> Environment:
    """The templates of the pages."""
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    return Environment(loader=PackageLoader("relpref.ask"), undefined=StrictUndefined, **options)


def view_of(request: Request) -> View:
    """The part of a ranking that is asked for."""
    query = request.query_params
    return View(
        _whole(query.get("most"), PAGE, TOP, PAGE),
        _whole(query.get("start"), 0, 0, 10**9),
        query.get("find", "")[:200],
        "own" if query.get("whose") == "own" else "all",
    )


def ask_routes(
    loop: Loop, refiner: Refiner, *, rater: str | None = None, per_page: int = 1, root: str = ""
) -> list[BaseRoute]:
    """The pages of one loop; ``root`` leads from them to the folder of ``static``."""
    pages = _Pages(loop, refiner, rater, per_page, root)
    return [
        Route("/", pages.show),
        Route("/", pages.act, methods=["POST"]),
        Route("/done", pages.done),
        Route("/ranking", pages.ranking),
        Route("/ranking.csv", pages.ranking_table),
        Route("/answers.csv", pages.answers_table),
        Route("/picture", pages.picture),
    ]


class _Pages:
    """The handlers, and what they share."""

    def __init__(self, loop: Loop, refiner: Refiner, rater: str | None, per_page: int, root: str) -> None:
        self._loop, self._refiner, self._rater, self._per_page = loop, refiner, rater, per_page
        self._same = {"title": name(loop.title).head, "prompt": visible(loop.prompt), "root": root}
        self._secret = secrets.token_bytes(32)
        # What a person asks for is done to what that person saw: nothing may come between the check and the deed.
        self._turn = threading.Lock()
        self._templates = templates()

    def show(self, request: Request) -> Response:
        """The open questions; the form for a name where nobody is named."""
        given = request.query_params.get("rater")
        if given is None and self._rater is not None:
            return RedirectResponse(f"?{urlencode({'rater': self._rater})}", 303)
        if not (given or "").strip():
            return self._render("name.html.j2", 200)
        return self._page(_name(given))

    async def act(self, request: Request) -> Response:
        """Do what the form says."""
        form = await form_of(request)
        return await run_in_threadpool(self._act, _name(request.query_params.get("rater")), form)

    def done(self, request: Request) -> Response:
        """What the answers of this rater come to."""
        rater = _name(request.query_params.get("rater"))
        return self._done(rater, asked=next(iter(self._open(rater)), ""))

    def ranking(self, request: Request) -> Response:
        """The whole ranking, in parts."""
        rater, view = _name(request.query_params.get("rater")), view_of(request)
        ranking = self._ranking_of(rater, view)
        standing = None if ranking is None else standings(ranking, view)
        return self._render("ranking.html.j2", 200, view=view, standings=standing, **self._standing(rater))

    def ranking_table(self, request: Request) -> Response:
        """The same as a file."""
        ranking = self._ranking_of(_name(request.query_params.get("rater")), view_of(request))
        if ranking is None:
            raise HTTPException(404, "There is no such ranking.")
        return table_file(ranking.rename_axis("item").reset_index(), "ranking.csv")

    def answers_table(self, request: Request) -> Response:
        """The answers of this rater as a file."""
        return table_file(self._loop.own_answers(_name(request.query_params.get("rater"))), "answers.csv")

    def picture(self, request: Request) -> Response:
        """The picture of one of the two that are asked about now."""
        query, file = request.query_params, None
        for question in self._loop.questions(_name(query.get("rater")), self._per_page):
            if question.id == query.get("question"):
                file = self._picture(question.first if query.get("outcome") == "first" else question.second)
        if file is None:
            raise HTTPException(404, "There is no such picture.")
        return FileResponse(file, media_type=TYPES[file.suffix.lower()])

    def _act(self, rater: str, form: Mapping[str, str]) -> Response:
        if not hmac.compare_digest(form.get("proof", "").encode(), self._proof(rater).encode()):
            raise HTTPException(403, "This form is from an earlier start of the page; load the page again.")
        what, asked = form.get("do"), form.get("question", "")
        try:
            with self._turn:
                if what in ("first", "second", "tie"):
                    self._loop.answer(asked, what, rater)
                elif what == "skip":
                    self._loop.skip(asked, rater)
                elif what == "undo":
                    if asked not in (self._open(rater) or [""]):
                        return self._page(rater, 409, _STALE)
                    if self._loop.undo(rater) is None:
                        return self._page(rater, 409, "There is nothing to take back.")
                else:
                    raise HTTPException(400, "The form says nothing that can be done.")
        except DataError as error:
            still = asked in self._open(rater)  # then it is the answer that was refused
            return self._page(rater, 400 if still else 409, str(error) if still else _STALE)
        except StorageError as error:
            said = f"{error}. This was not counted; everything before it is safe. Try it again."
            return self._page(rater, 503, said)
        self._refiner.wake()
        return RedirectResponse(f"?{urlencode({'rater': rater})}", 303)

    def _open(self, rater: str) -> list[str]:
        return [question.id for question in self._loop.questions(rater, self._per_page)]

    def _page(self, rater: str, status: int = 200, notice: str = "") -> Response:
        asked = self._loop.questions(rater, self._per_page)
        if not asked:
            return self._done(rater, status, notice, self._loop.nothing_left(rater))
        questions = [
            {"id": question.id, "cards": self._cards(question), "why": visible(self._loop.why(question))}
            for question in asked
        ]
        more = {"questions": questions, "ties": self._loop.ties, "proof": self._proof(rater)}
        return self._render("ask.html.j2", status, notice=visible(notice), **more, **self._standing(rater))

    def _done(
        self, rater: str, status: int = 200, notice: str = "", left_out: str = "", asked: str = ""
    ) -> Response:
        ranking = self._loop.own_ranking(rater)
        view = View(whose="all" if ranking is None else "own")
        return self._render(
            "done.html.j2",
            status,
            notice=visible(notice),
            left_out=visible(left_out),
            asked=asked,
            standings=standings(self._loop.ranking() if ranking is None else ranking, view),
            view=view,
            proof=self._proof(rater),
            **self._standing(rater),
        )

    def _standing(self, rater: str) -> dict[str, Any]:
        """How far it has come."""
        return {
            "rater": rater,
            "progress": self._loop.progress(rater),
            "trouble": visible(self._loop.trouble),
        }

    def _ranking_of(self, rater: str, view: View) -> pd.DataFrame | None:
        return self._loop.own_ranking(rater) if view.whose == "own" else self._loop.ranking()

    def _cards(self, question: Question) -> list[dict[str, Any]]:
        outcomes = ["first", "second"] if question.left == question.first else ["second", "first"]
        cards = []
        for side, outcome in zip(("left", "right"), outcomes, strict=True):
            label = getattr(question, outcome)
            picture = self._picture(label) is not None
            cards.append(card(self._loop.item(label), side, outcome, picture=picture))
        return cards

    def _picture(self, label: Any) -> Path | None:
        file = self._loop.item(label).image
        return file if file is not None and is_picture(file) else None

    def _proof(self, rater: str) -> str:
        """What a form of this rater's page carries, and nobody else can make."""
        return hmac.digest(self._secret, rater.encode("utf-8", "surrogatepass"), "sha256").hex()

    def _render(self, template: str, status: int, **values: Any) -> HTMLResponse:
        text = self._templates.get_template(template).render(**self._same, **values)
        return HTMLResponse(text, status)


def table_file(table: pd.DataFrame, file: str) -> Response:
    """A table to be saved as a file."""
    headers = {"Content-Disposition": f"attachment; filename={file}"}
    return Response(table.to_csv(index=False, lineterminator="\n"), media_type="text/csv", headers=headers)


def _name(given: str | None) -> str:
    """The name of a rater, or a refusal."""
    try:
        return rater_name(given)
    except DataError as error:
        raise HTTPException(400, visible(error)) from None


def _whole(given: str | None, default: int, least: int, most: int) -> int:
    if given is None or not given.isdecimal():
        return default
    return min(max(int(given[:12]), least), most)


def serve(
    loop: Loop,
    *,
    port: int = 0,
    rater: str | None = None,
    per_page: int = 1,
    announce: Callable[[str], object] = print,
    leave: Callable[[], object] | None = None,
) -> None:
    """Serve the page at 127.0.0.1 until Ctrl-C; then refine and publish what is left.

    Parameters
    ----------
    loop : Loop
    port : int
        0 takes a free one.
    rater : str, optional
        Who answers where the address says nothing else; by default the page asks for a name.
    per_page : int
        Questions that are on the page at once.
    announce : callable
        Told the address, and that the end has begun.
    leave : callable, optional
        Called at a second Ctrl-C, while the ranking is brought up to date; by default that is waited for.

    Raises
    ------
    DataError
        If the port cannot be had.
    """
    later = "" if leave is None else " (Ctrl-C leaves that to the next command)"
    listen(
        lambda token: create_app(loop, token=token, rater=rater, per_page=per_page),
        port=port,
        announce=announce,
        words=("Answer at", "Ctrl-C ends it; every answer is saved at once."),
        ending=f"Ending: the ranking is brought up to date{later}. Every answer is saved already.",
        leave=leave,
    )
