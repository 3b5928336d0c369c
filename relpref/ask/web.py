"""The page for answering questions in a browser: ``relpref ask run/ --web`` (extra ``web``).

Every page is rendered on the server and works without scripts. The response to a form is a redirect
to the page with the questions. If scripts are enabled, a script sends the form, follows the
redirect, and replaces only what changed. A question has no address of its own: the page shows the
question that is open for its rater, so a tab that is reloaded, or opened again the next day,
continues with it.

Examples
--------
>>> import pandas as pd
>>> from relpref.ask import Loop
>>> from relpref.ask.web import create_app
>>> from relpref.cli import main
>>> drinks = pd.DataFrame({"name": ["tea", "coffee"], "price": [2, 3]})
>>> drinks.to_csv("drinks.csv", index=False)
>>> main(["fit", "--items", "drinks.csv", "--out", "page", "--quiet"])
0
>>> with Loop.open("page") as loop:
...     app = create_app(loop, token="secret")  # serve(loop) serves it until Ctrl-C
"""

import hmac
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pandas as pd
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from relpref.ask.guard import Guard, form_of, listen
from relpref.ask.items import PAGE, TOP, TYPES, View, card, name, picture_of, standings, visible
from relpref.ask.loop import Loop
from relpref.ask.questions import Question, rater_name
from relpref.ask.session import Session, not_counted
from relpref.errors import DataError, StorageError
from relpref.report.words import templates

__all__ = ["create_app", "serve"]

_TEMPLATES = templates("relpref.ask")


def create_app(loop: Loop, *, token: str, rater: str | None = None, per_page: int = 1) -> Starlette:
    """Make the application; it refines in the background while it runs, and once at the end.

    Parameters
    ----------
    loop : Loop
        An open loop, which the caller closes afterwards.
    token : str
        First part of every path; requests without it are refused.
    rater : str, optional
        Who answers if the address names nobody; by default the page asks for a name.
    per_page : int
        Number of questions on the page at once.

    Returns
    -------
    Starlette

    Raises
    ------
    DataError
        If ``rater`` is no valid name.
    """
    session = Session(loop, per_page)
    pages = Pages(session, None if rater is None else rater_name(rater))
    return guarded(pages.routes(), token, session.close, session.start)


def guarded(
    routes: list[BaseRoute],
    token: str,
    close: Callable[[], object],
    start: Callable[[], object] = lambda: None,
) -> Starlette:
    """Make an application whose paths begin with a secret token.

    ``start`` is called when the server starts, and ``close`` when it ends.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        start()
        try:
            yield
        finally:
            await run_in_threadpool(close)

    async def unreadable(request: Request, error: Any) -> Response:
        words = f"{error}. Nothing that was counted is lost; load the page again."
        return PlainTextResponse(visible(words), 503)

    static = Mount("/static", StaticFiles(packages=[("relpref.ask", "static")]))
    return Starlette(
        routes=[Mount(f"/{token}", routes=[static, *routes])],
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={StorageError: unreadable},
        lifespan=lifespan,
    )


def page(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a template with values, as an HTML response."""
    return HTMLResponse(_TEMPLATES.get_template(template).render(values), status)


def view_of(request: Request) -> View:
    """Read from the address which ranking is shown, and which of its rows."""

    def number(key: str, default: int, least: int, most: int) -> int:
        given = request.query_params.get(key, "")
        return min(max(int(given[:12]), least), most) if given.isdecimal() else default

    return View(
        number("most", PAGE, TOP, PAGE),
        number("start", 0, 0, 10**9),
        request.query_params.get("find", "")[:200],
        "own" if request.query_params.get("whose") == "own" else "all",
    )


class Pages:
    """Handlers of the pages of one session.

    Parameters
    ----------
    session : Session
    rater : str, optional
        Who answers if the address names nobody.
    root : str
        Path from the pages to the parent folder of ``static``.
    """

    def __init__(self, session: Session, rater: str | None = None, root: str = "") -> None:
        self._session, self._rater, self._root = session, rater, root
        self.loop = session.loop
        self._secret = secrets.token_bytes(32)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self.show),
            Route("/", self.act, methods=["POST"]),
            Route("/done", self.done),
            Route("/ranking", self.ranking),
            Route("/ranking.csv", self.ranking_table),
            Route("/answers.csv", self.answers_table),
            Route("/picture", self.picture),
        ]

    def show(self, request: Request) -> Response:
        """Show the open questions, or the form for a name if nobody is named."""
        given = request.query_params.get("rater")
        if given is None and self._rater is not None:
            return _to_questions(self._rater)
        if not (given or "").strip():
            return self._page("name.html.j2")
        return self._questions(rater_of(request))

    async def act(self, request: Request) -> Response:
        """Record the answer, skip or undo of a form, and redirect to the questions."""
        form = await form_of(request)
        return await run_in_threadpool(self._act, rater_of(request), form)

    def done(self, request: Request) -> Response:
        """Show the last page, with the rater's ranking; questions may still be open."""
        rater = rater_of(request)
        asked = next((question.id for question in self._session.questions(rater)), "")
        return self._done(rater, asked=asked)

    def ranking(self, request: Request) -> Response:
        """Show some rows of the ranking by all answers, or by the rater's own."""
        rater, view = rater_of(request), view_of(request)
        ranking = self._ranking(rater, view)
        shown = None if ranking is None else standings(ranking, view)
        return self._page("ranking.html.j2", rater, view=view, standings=shown)

    def ranking_table(self, request: Request) -> Response:
        """Send all rows of the ranking as a file; 404 if the rater has no ranking."""
        ranking = self._ranking(rater_of(request), view_of(request))
        if ranking is None:
            raise HTTPException(404, "There is no such ranking.")
        return ranking_file(ranking)

    def answers_table(self, request: Request) -> Response:
        """Send the answers of this rater as a file."""
        return table_file(self.loop.own_answers(rater_of(request)), "answers.csv")

    def picture(self, request: Request) -> Response:
        """Send the picture of an item, if the item is in an open question of the rater."""
        query = request.query_params
        for question in self._session.questions(rater_of(request)):
            if question.id == query.get("question"):
                label = question.sides.get(query.get("outcome", ""), question.second)
                file = picture_of(self.loop.item(label))
                if file is not None:
                    return FileResponse(file, media_type=TYPES[file.suffix.lower()])
        raise HTTPException(404, "There is no such picture.")

    def _act(self, rater: str, form: Mapping[str, str]) -> Response:
        # Errors are shown on the page with the questions; a form with a wrong proof is refused.
        if not hmac.compare_digest(form.get("proof", "").encode(), self._proof(rater).encode()):
            words = "This form is from an earlier start of the page; load the page again."
            raise HTTPException(403, words)
        try:
            self._session.record(form.get("do", ""), form.get("question", ""), rater)
        except DataError as error:
            return self._questions(rater, 409, str(error))
        except StorageError as error:
            return self._questions(rater, 503, not_counted(error))
        return _to_questions(rater)

    def _questions(self, rater: str, status: int = 200, notice: str = "") -> Response:
        """The page with the open questions, or the last page if there is none."""
        questions = [
            {
                "id": question.id,
                "cards": self._cards(question),
                "why": visible(self.loop.why(question)),
            }
            for question in self._session.questions(rater)
        ]
        if not questions:
            return self._done(rater, status, notice, self.loop.nothing_left(rater))
        return self._page(
            "ask.html.j2",
            rater,
            status,
            notice=visible(notice),
            questions=questions,
            ties=self.loop.ties,
        )

    def _done(
        self, rater: str, status: int = 200, notice: str = "", left_out: str = "", asked: str = ""
    ) -> Response:
        """The last page, with the ranking by the rater's own answers or else by those of all.

        ``left_out`` explains why nothing more is asked; ``asked`` is the id of an open question.
        """
        ranking = self.loop.own_ranking(rater)
        view = View(whose="all" if ranking is None else "own")
        return self._page(
            "done.html.j2",
            rater,
            status,
            notice=visible(notice),
            left_out=visible(left_out),
            asked=asked,
            standings=standings(self.loop.ranking() if ranking is None else ranking, view),
            view=view,
        )

    def _page(
        self, template: str, rater: str | None = None, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Render a template with the title and, if a rater is given, the rater's progress."""
        if rater is not None:
            values |= {
                "rater": rater,
                "progress": self.loop.progress(rater),
                "trouble": visible(self.loop.trouble),
                "proof": self._proof(rater),
            }
        title, prompt = name(self.loop.title).head, visible(self.loop.prompt)
        return page(template, status, title=title, prompt=prompt, root=self._root, **values)

    def _ranking(self, rater: str, view: View) -> pd.DataFrame | None:
        return self.loop.own_ranking(rater) if view.whose == "own" else self.loop.ranking()

    def _cards(self, question: Question) -> list[dict[str, Any]]:
        """Content of both cards of a question, the left one first."""
        sides = zip(("left", "right"), question.sides.items(), strict=True)
        return [card(self.loop.item(label), side, outcome) for side, (outcome, label) in sides]

    def _proof(self, rater: str) -> str:
        """Code that the forms of a rater's page carry, so that other sites cannot send them.

        It is an HMAC of the rater's name with a secret that is drawn at each start.
        """
        return hmac.digest(self._secret, rater.encode("utf-8", "surrogatepass"), "sha256").hex()


def ranking_file(ranking: pd.DataFrame) -> Response:
    """Send a ranking as a file."""
    return table_file(ranking.rename_axis("item").reset_index(), "ranking.csv")


def table_file(table: pd.DataFrame, file: str) -> Response:
    """Send a table to be saved as a CSV file."""
    headers = {"Content-Disposition": f"attachment; filename={file}"}
    content = table.to_csv(index=False, lineterminator="\n")
    return Response(content, media_type="text/csv", headers=headers)


def _to_questions(rater: str) -> Response:
    return RedirectResponse(f"?{urlencode({'rater': rater})}", 303)


def rater_of(request: Request) -> str:
    """Name of the rater in the address; raises HTTPException (400) if it is no valid name."""
    try:
        return rater_name(request.query_params.get("rater"))
    except DataError as error:
        raise HTTPException(400, visible(error)) from None


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
        Who answers if the address names nobody; by default the page asks for a name.
    per_page : int
        Number of questions on the page at once.
    announce : callable
        Called with a text that has the address, and with a text after Ctrl-C.
    leave : callable, optional
        Called at a second Ctrl-C, while the ranking is brought up to date; by default that is
        waited for.

    Raises
    ------
    DataError
        If the port cannot be used.
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
