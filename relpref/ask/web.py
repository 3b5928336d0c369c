"""The page on which people answer questions in a browser: ``relpref ask run/ --web`` (extra ``web``).

One page has the open question and the ranking. Every answer is a whole page, made here and readable without scripts. A form is
answered by a redirect to the page; the script of the page follows it and takes over the parts that changed. A question has no address
of its own: the page shows the one that is open for its rater, so that a tab that was reloaded, or opened again tomorrow, goes on.
"""

import asyncio
import hmac
import secrets
import socket
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relpref.ask.items import PAGE, TOP, TYPES, View, card, is_picture, name, standings, visible
from relpref.ask.learning import Refiner
from relpref.ask.loop import Loop
from relpref.ask.store import Question, rater_name
from relpref.errors import DataError, StorageError
from relpref.limits import MAX_REQUEST_BYTES

__all__ = ["create_app", "serve"]

_TOO_LARGE = "The request is too large."
_HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # To this origin only. With no-referrer, browsers would send "Origin: null" with our own forms, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuse what does not come from the person at this machine; limit bodies; keep errors off the page."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def headed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            await (self._refusal(scope) or self._app)(scope, receive, headed)
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the browser is not told
            place = traceback.extract_tb(error.__traceback__)[-1]
            words = " ".join(str(error).split())  # without the path, which holds the token
            print(
                f"relpref: a {scope['method']} failed: {type(error).__name__}: {words} ({place.filename}, line {place.lineno})",
                file=sys.stderr,
                flush=True,
            )
            if not started:
                words = "Something went wrong; the terminal says what. Answers that were counted are saved."
                await PlainTextResponse(words, 500)(scope, receive, headed)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host, length = headers.get("host", ""), headers.get("content-length", "0")
        hostname = None
        with suppress(ValueError):
            hostname = urlsplit(f"//{host}").hostname
        words, status = "", 403
        token = scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        if hostname not in _HOSTS:
            words = "This page answers only at 127.0.0.1 and localhost."
        elif not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            words = "This address is not valid, or not any more. The terminal in which relpref runs shows the one that is."
        elif scope["method"] not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            words = "Only the page itself can send this."
        elif not length.isdecimal() or int(length) > MAX_REQUEST_BYTES:
            words, status = _TOO_LARGE, 413
        return PlainTextResponse(words, status) if words else None


_PATIENCE = 10.0  # seconds for a body to arrive
_STALE = (
    "That question was answered already, or taken back, perhaps in another tab. "
    "Nothing was counted twice; this is the question that is open now."
)


def create_app(loop: Loop, *, token: str, rater: str | None = None) -> Starlette:
    """Make the application; its lifespan refines in the background, and once more at the end.

    Parameters
    ----------
    loop : Loop
        Open; whoever made it closes it.
    token : str
        First part of every path; whoever does not know it gets nothing.
    rater : str, optional
        Who answers where the address says nothing else; by default the page asks for a name.

    Returns
    -------
    Starlette

    Raises
    ------
    DataError
        If nobody can have that name.
    """
    refiner = Refiner(loop.refine)
    pages = _Pages(loop, refiner, None if rater is None else rater_name(rater))

    @asynccontextmanager
    async def refined(app: Starlette) -> AsyncIterator[None]:
        refiner.start()
        try:
            yield
        finally:
            await run_in_threadpool(refiner.close)

    async def refused(request: Request, error: Any) -> Response:
        return PlainTextResponse(error.detail, error.status_code, headers=error.headers)

    async def unreadable(request: Request, error: Any) -> Response:
        words = f"{error}. Nothing that was counted is lost; load the page again."
        return PlainTextResponse(visible(words), 503)

    inside = [
        Route("/", pages.show),
        Route("/", pages.act, methods=["POST"]),
        Route("/ranking", pages.ranking),
        Route("/picture", pages.picture),
        Mount("/static", StaticFiles(packages=[("relpref.ask", "static")])),
    ]
    return Starlette(
        routes=[Mount(f"/{token}", routes=inside)],
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={HTTPException: refused, StorageError: unreadable},
        lifespan=refined,
    )


class _Pages:
    """The handlers, and what they share."""

    def __init__(self, loop: Loop, refiner: Refiner, rater: str | None) -> None:
        self._loop, self._refiner, self._rater = loop, refiner, rater
        folder = loop.folder
        self._title = name("Questions" if folder is None else folder.absolute().name).head
        self._secret = secrets.token_bytes(32)
        # What a person asks for is done to what that person saw: nothing may come between the check and the deed.
        self._turn = threading.Lock()
        options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
        self._templates = Environment(
            loader=PackageLoader("relpref.ask"), undefined=StrictUndefined, **options
        )

    def show(self, request: Request) -> Response:
        """The open question; the form for a name where nobody is named."""
        given = request.query_params.get("rater")
        if given is None and self._rater is not None:
            return RedirectResponse(f"?{urlencode({'rater': self._rater})}", 303)
        if not (given or "").strip():
            return self._render("name.html.j2", 200)
        return self._page(_name(given))

    async def act(self, request: Request) -> Response:
        """Do what the form says."""
        form = await _form(request)
        return await run_in_threadpool(self._act, _name(request.query_params.get("rater")), form)

    def ranking(self, request: Request) -> Response:
        """The whole ranking, in parts."""
        query = request.query_params
        rater = _name(query.get("rater"))
        view = View(
            _whole(query.get("most"), PAGE, TOP, PAGE),
            _whole(query.get("start"), 0, 0, 10**9),
            query.get("find", "")[:200],
        )
        return self._render("ranking.html.j2", 200, rater=rater, **self._standing(rater, view))

    def picture(self, request: Request) -> Response:
        """The picture of one of the two that are asked about now."""
        query, file = request.query_params, None
        question = self._loop.question(_name(query.get("rater")))
        if question is not None and question.id == query.get("question"):
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
                    question = self._loop.question(rater)
                    if asked != (question.id if question else ""):
                        return self._page(rater, 409, _STALE)
                    if self._loop.undo(rater) is None:
                        return self._page(rater, 409, "There is nothing to take back.")
                else:
                    raise HTTPException(400, "The form says nothing that can be done.")
        except DataError as error:
            question = self._loop.question(rater)
            still = question is not None and question.id == asked  # then it is the answer that was refused
            return self._page(rater, 400 if still else 409, str(error) if still else _STALE)
        except StorageError as error:
            said = f"{error}. This was not counted; everything before it is safe. Try it again."
            return self._page(rater, 503, said)
        self._refiner.wake()
        return RedirectResponse(f"?{urlencode({'rater': rater})}", 303)

    def _page(self, rater: str, status: int = 200, notice: str = "") -> Response:
        question = self._loop.question(rater)
        return self._render(
            "ask.html.j2",
            status,
            rater=rater,
            notice=visible(notice),
            question=question,
            cards=self._cards(question) if question else [],
            why=visible(self._loop.why(question)) if question else "",
            left_out="" if question else visible(self._loop.nothing_left(rater)),
            ties=self._loop.ties,
            proof=self._proof(rater),
            **self._standing(rater, View()),
        )

    def _standing(self, rater: str, view: View) -> dict[str, Any]:
        """What is known by now."""
        return {
            "progress": self._loop.progress(rater),
            "trouble": visible(self._loop.trouble),
            "standings": standings(self._loop.ranking(), view),
        }

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
        text = self._templates.get_template(template).render(title=self._title, **values)
        return HTMLResponse(text, status)


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


async def _form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "Only forms are read.")
    body = b""
    try:
        async with asyncio.timeout(_PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > MAX_REQUEST_BYTES:
                    raise HTTPException(413, _TOO_LARGE)
        fields = parse_qs(body.decode(), max_num_fields=20, errors="strict")
    except TimeoutError:
        raise HTTPException(408, "The form did not arrive in time.") from None
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None
    return {name: values[0] for name, values in fields.items()}


HOST = "127.0.0.1"


def serve(
    loop: Loop,
    *,
    port: int = 0,
    rater: str | None = None,
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
    announce : callable
        Told the address, and that the end has begun.
    leave : callable, optional
        Called at a second Ctrl-C, while the ranking is brought up to date; by default that is waited for.

    Raises
    ------
    DataError
        If the port cannot be had.
    """
    import uvicorn

    token = secrets.token_urlsafe(16)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(
                f"port {port} cannot be had ({reason}); give another, or 0 for a free one"
            ) from error
        listening.listen(128)
        address = f"http://{HOST}:{listening.getsockname()[1]}/{token}/"
        app = create_app(loop, token=token, rater=rater)
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,  # paths hold the token
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=5,
        )
        announce(f"Answer at {address}\nCtrl-C ends it; every answer is saved at once.")

        later = "" if leave is None else " (Ctrl-C leaves that to the next command)"

        class Server(uvicorn.Server):
            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                again = self.should_exit
                super().handle_exit(sig, frame)
                if not again:
                    # That nobody reads it any more is no reason to end otherwise.
                    with suppress(OSError):
                        announce(
                            f"Ending: the ranking is brought up to date{later}. Every answer is saved already."
                        )
                elif leave is not None:
                    leave()

        try:
            Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            pass  # how it is meant to end: uvicorn raises it once everything is closed
