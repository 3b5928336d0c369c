"""The application: one page with the open question and the ranking, and what its form may do.

Every answer is a whole page, made here and readable without scripts. A form is answered by a redirect to the page; the script of the
page follows it and takes over the parts that changed. A question has an address of its own nowhere: the page shows the one that is
open for its rater, so that a tab that was reloaded, or opened again tomorrow, goes on where it was.
"""

import asyncio
import hashlib
import hmac
import os
import re
import secrets
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
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

from relpref.errors import DataError, StorageError
from relpref.explore.loop import Refiner, rater_name

if TYPE_CHECKING:
    import pandas as pd

    from relpref.explore.items import Item
    from relpref.explore.loop import Loop
    from relpref.explore.store.answer_store import Question

# SVG is missing on purpose: it may carry scripts.
TYPES = {
    ".avif": "image/avif",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}


def is_picture(file: Path) -> bool:
    """Whether a file may be sent as a picture. That it lies in the folder of the items is seen to where these are read."""
    return file.suffix.lower() in TYPES and os.path.isfile(file)


# Control characters but newline and tab; marks that turn the direction of the text after them; halves of characters; not characters.
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_NAME, _TEXT = 90, 300


@dataclass(frozen=True)
class Cut:
    """A text of which the beginning is shown, and the rest on request."""

    head: str
    rest: str = ""


def visible(text: object) -> str:
    """Text in which every character that acts without being seen is replaced by a sign for it."""
    return _ACTING.sub(_sign, str(text).replace("\r\n", "\n"))


def name(value: object) -> Cut:
    """What an entity is called, on one line."""
    return cut(" ".join(visible(value).split()) or "(empty)", _NAME)


def prose(value: object) -> Cut:
    """A longer text, whose lines are kept."""
    return cut(visible(value).strip(), _TEXT)


def cut(text: str, longest: int) -> Cut:
    """Cut a text at a space, or anywhere in a word that is too long itself."""
    if len(text) <= longest + longest // 4:  # a few words more are not worth a click
        return Cut(text)
    at = text.rfind(" ", longest // 2, longest)
    at = longest if at < 0 else at
    return Cut(text[:at], text[at:])


def _sign(found: re.Match[str]) -> str:
    character = ord(found[0])
    if character < 0x20:
        return chr(0x2400 + character)  # Unicode's pictures of control characters
    if 0xD800 <= character <= 0xDFFF or character >= 0xFFFE:
        return "\N{REPLACEMENT CHARACTER}"
    return f"⟨U+{character:04X}⟩"


_FEW = 6


@dataclass(frozen=True)
class Link:
    """Where an item leads to."""

    address: str
    shown: str


@dataclass(frozen=True)
class Card:
    """One of the two that are compared.

    Attributes
    ----------
    side : str
        ``"left"`` or ``"right"``.
    outcome : str
        What choosing it answers: ``"first"`` or ``"second"``.
    name, text : Cut
    picture : bool
    link : Link or None
    few, more : list of (name, value)
        Attributes shown at once, and on request.
    """

    side: str
    outcome: str
    name: Cut
    text: Cut
    picture: bool
    link: Link | None
    few: list[tuple[str, Cut]]
    more: list[tuple[str, Cut]]


def card(item: "Item", side: str, outcome: str, *, picture: bool) -> Card:
    """Make a card of an item."""
    attributes = [(name(key).head, name(_number(value))) for key, value in item.attributes]
    few = len(attributes) if len(attributes) <= _FEW + 2 else _FEW
    return Card(
        side,
        outcome,
        name(item.label),
        prose(item.text or ""),
        picture,
        _link(item.link),
        attributes[:few],
        attributes[few:],
    )


def _number(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _link(address: str | None) -> Link | None:
    """Only to pages of the web (not ``javascript:`` and the like), at an address that is what it looks like."""
    address = (address or "").strip()
    if not address.isprintable():
        return None
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host:
        return None
    return Link(address, name(host).head)


TOP, PAGE = 10, 100


@dataclass(frozen=True)
class View:
    """Which part of the ranking is wanted."""

    most: int = TOP
    start: int = 0
    find: str = ""


@dataclass(frozen=True)
class Row:
    """One entity: positions in percent of the width, values relative to the average; the ends are empty where nobody worked them out."""

    key: str
    rank: int
    name: Cut
    mean: str
    lower: str
    upper: str
    at: float
    begin: float
    width: float


@dataclass(frozen=True)
class Standings:
    """The part of the ranking that is shown.

    Attributes
    ----------
    view : View
    rows : list of Row
    total, found : int
        Entities, and those whose name contains what was looked for.
    zero : float
        Where the average lies, in percent.
    previous, following : View or None
        The parts before and after.
    top, all : View
        Where else one may look.
    """

    view: View
    rows: list[Row]
    total: int
    found: int
    zero: float
    previous: View | None
    following: View | None
    top = View()
    all = View(PAGE)


def standings(ranking: "pd.DataFrame", view: View) -> Standings:
    """Cut the part out of a ranking that is wanted.

    Parameters
    ----------
    ranking : DataFrame
        Columns mean, lower, upper by entity, best first; NaN where an interval was not worked out.
    view : View
    """
    labels = ranking.index
    mean, lower, upper = (ranking[name].to_numpy() for name in ("mean", "lower", "upper"))
    needle = " ".join(view.find.split()).casefold()
    which: Sequence[int] = range(len(labels))
    if needle:
        which = [at for at, label in enumerate(labels) if needle in str(label).casefold()]
    shown = which[view.start : view.start + view.most]
    known = ~np.isnan(lower)
    lower, upper = np.where(known, lower, mean), np.where(known, upper, mean)
    low, high = min(lower[shown].min(initial=0), 0), max(upper[shown].max(initial=0), 0)
    scale = 100 / (high - low) if high > low else 0.0
    rows = [
        Row(
            key=hashlib.blake2s(repr(labels[at]).encode("utf-8", "replace"), digest_size=8).hexdigest(),
            rank=at + 1,
            name=name(labels[at]),
            mean=_signed(mean[at]),
            lower=_signed(lower[at]) if known[at] else "",
            upper=_signed(upper[at]) if known[at] else "",
            at=round(scale * (mean[at] - low), 2),
            begin=round(scale * (lower[at] - low), 2),
            width=round(scale * (upper[at] - lower[at]), 2),
        )
        for at in shown
    ]
    before, after = view.start - view.most, view.start + view.most
    return Standings(
        view,
        rows,
        len(labels),
        len(which),
        round(-scale * low, 2),
        View(view.most, max(before, 0), view.find) if view.start > 0 else None,
        View(view.most, after, view.find) if view.most > TOP and after < len(which) else None,
    )


def _signed(value: np.float64) -> str:
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", "−")


MOST_BYTES = 64 * 1024
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
    """Refuse what does not come from the person at this machine; limit bodies; keep errors off the page.

    Parameters
    ----------
    app : ASGI application
    token : str
        First part of every path.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MOST_BYTES:
                raise HTTPException(413, "The request is too large.")
            return message

        async def headed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            await (self._refusal(scope) or self._app)(scope, limited, headed)
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the browser is not told
            print(f"relpref: {_line(scope['method'], error)}", file=sys.stderr, flush=True)
            if not started:
                said = "Something went wrong; the terminal says what. Answers that were counted are saved."
                await PlainTextResponse(said, 500)(scope, limited, headed)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _hostname(host) not in _HOSTS:
            return PlainTextResponse("This page answers only at 127.0.0.1 and localhost.", 403)
        given = scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token):
            said = "This address is not valid, or not any more. The terminal in which relpref runs shows the one that is."
            return PlainTextResponse(said, 403)
        if scope["method"] not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("Only the page itself can send this.", 403)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return PlainTextResponse("The request is too large.", 413)
        return None


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _line(method: str, error: Exception) -> str:
    """Who raised what, without the path, which holds the token."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split())
    return f"a {method} failed: {type(error).__name__}: {said} ({place.filename}, line {place.lineno})"


_PATIENCE = 10.0  # seconds for a body to arrive
_STALE = (
    "That question was answered already, or taken back, perhaps in another tab. "
    "Nothing was counted twice; this is the question that is open now."
)


def create_app(loop: "Loop", *, token: str, rater: str | None = None) -> Starlette:
    """Make the application.

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
        Its lifespan refines in the background, and once more at the end.

    Raises
    ------
    DataError
        If nobody can have that name.
    """
    refiner = Refiner(loop)
    pages = _Pages(loop, refiner, None if rater is None else rater_name(rater))

    @asynccontextmanager
    async def refined(app: Starlette) -> AsyncIterator[None]:
        refiner.start()
        try:
            yield
        finally:
            await run_in_threadpool(refiner.close)

    inside = [
        Route("/", pages.show),
        Route("/", pages.act, methods=["POST"]),
        Route("/ranking", pages.ranking),
        Route("/picture", pages.picture),
        Mount("/static", StaticFiles(packages=[("relpref.app", "static")])),
    ]
    return Starlette(
        routes=[Mount(f"/{token}", routes=inside)],
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={HTTPException: _refused, StorageError: _unreadable},
        lifespan=refined,
    )


class _Pages:
    """The handlers, and what they share."""

    def __init__(self, loop: "Loop", refiner: Refiner, rater: str | None) -> None:
        self._loop = loop
        self._refiner = refiner
        self._rater = rater
        folder = loop.folder
        self._title = name("Questions" if folder is None else folder.absolute().name).head
        self._secret = secrets.token_bytes(32)
        # What a person asks for is done to what that person saw: nothing may come between the check and the deed.
        self._turn = threading.Lock()
        self._templates = _templates()

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
        query = request.query_params
        question = self._loop.question(_name(query.get("rater")))
        if question is None or question.id != query.get("question"):
            raise HTTPException(404, "There is no such picture.")
        label = question.first if query.get("outcome") == "first" else question.second
        file = self._picture(label)
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

    def _cards(self, question: "Question") -> list[Card]:
        outcomes = ("first", "second") if question.left == question.first else ("second", "first")
        return [
            card(
                self._loop.item(getattr(question, outcome)),
                side,
                outcome,
                picture=self._picture(getattr(question, outcome)) is not None,
            )
            for side, outcome in zip(("left", "right"), outcomes, strict=True)
        ]

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
    try:
        async with asyncio.timeout(_PATIENCE):
            body = await request.body()
        fields = parse_qs(body.decode(), max_num_fields=20, errors="strict")
    except TimeoutError:
        raise HTTPException(408, "The form did not arrive in time.") from None
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None
    return {name: values[0] for name, values in fields.items()}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(error.detail, error.status_code, headers=error.headers)


async def _unreadable(request: Request, error: Exception) -> Response:
    said = visible(f"{error}. Nothing that was counted is lost; load the page again.")
    return PlainTextResponse(said, 503)


def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("relpref.app"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
