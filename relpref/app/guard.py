"""What every request must pass, and every response carries, whichever page answers.

The page listens on 127.0.0.1 only, but every site open in the same browser, and every program on the same machine, can send
requests there. So each request needs the random token in its address (compared in constant time). It stays in the address, not in a
cookie, because cookies of 127.0.0.1 are sent to the servers on all of its ports, and because two tabs may then be two raters. The Host
must be this machine, which ends DNS rebinding; its port may be any, so that a tunnel works. What changes something must come from a
page of this origin and carry that page's proof.
"""

import hmac
import sys
import traceback
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        """Answer a request."""
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
