"""Protection of the pages: who may send requests, reading forms, and a server on localhost."""

import asyncio
import hmac
import secrets
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from relpref.errors import DataError
from relpref.limits import MAX_REQUEST_BYTES

_TOO_LARGE = "The request is too large."
_HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
        "'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # To this origin only. With no-referrer, browsers would send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Middleware that refuses foreign requests, limits bodies, and keeps errors off the page."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await (self._refusal(scope) or self._app)(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - the browser is not told the reason
            place = traceback.extract_tb(error.__traceback__)[-1]
            words = " ".join(str(error).split())  # without the path, which holds the token
            print(
                f"relpref: a {scope['method']} failed: {type(error).__name__}: {words} "
                f"({place.filename}, line {place.lineno})",
                file=sys.stderr,
                flush=True,
            )
            if not started:
                words = (
                    "Something went wrong; the terminal says what. Answers that were counted are "
                    "saved."
                )
                await PlainTextResponse(words, 500)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        """Response to a request that is refused; None if it may pass."""
        headers = Headers(scope=scope)
        host, length = headers.get("host", ""), headers.get("content-length", "0")
        hostname = None
        with suppress(ValueError):
            hostname = urlsplit(f"//{host}").hostname
        token = scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        words, status = "", 403
        if hostname not in _HOSTS:
            words = "This page answers only at 127.0.0.1 and localhost."
        elif not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            words = (
                "This address is not valid, or not any more. The terminal in which relpref runs "
                "shows the one that is."
            )
        elif scope["method"] not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            words = "Only the page itself can send this."
        elif not length.isdecimal() or int(length) > MAX_REQUEST_BYTES:
            words, status = _TOO_LARGE, 413
        return PlainTextResponse(words, status) if words else None


_PATIENCE = 10.0  # seconds for the head of a request to arrive, and again for its body


async def form_of(request: Request) -> dict[str, str]:
    """Read the fields of a form; `HTTPException` if that fails."""
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


def listen(
    make: Callable[[str], Starlette],
    *,
    port: int = 0,
    announce: Callable[[str], object] = print,
    words: tuple[str, str],
    ending: str = "",
    leave: Callable[[], object] | None = None,
) -> None:
    """Serve an application at 127.0.0.1 until Ctrl-C.

    Parameters
    ----------
    make : callable
        Makes the application for a token.
    port : int
        0 takes a free one.
    announce : callable
        Called with the address between two texts (``words``), and with ``ending``, unless it is
        empty, when the end has begun.
    leave : callable, optional
        Called at a second Ctrl-C; by default the end is waited for.

    Raises
    ------
    DataError
        If the port cannot be used.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        """Protocol that closes connections without requests, for which uvicorn has no limit."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._await_request()

        def on_response_complete(self) -> None:
            self._await_request()
            super().on_response_complete()

        def _await_request(self) -> None:
            self.loop.call_later(_PATIENCE, self._close_after, self.cycle)

        def _close_after(self, cycle: Any) -> None:
            if self.cycle is cycle:  # each request has its own
                self.transport.close()

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
        config = uvicorn.Config(
            make(token),
            http=Protocol,
            log_level="error",
            access_log=False,  # paths hold the token
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=5,
        )
        announce(f"{words[0]} {address}\n{words[1]}")

        class Server(uvicorn.Server):
            """Server that announces the end."""

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                again = self.should_exit
                super().handle_exit(sig, frame)
                if again and leave is not None:
                    leave()
                elif not again and ending:
                    with suppress(OSError):  # nobody reads it any more
                        announce(ending)

        # uvicorn raises the usual end again once everything is closed.
        with suppress(KeyboardInterrupt):
            Server(config).run(sockets=[listening])
