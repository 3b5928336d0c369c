"""Runs the page until somebody stops it."""

import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from relpref.errors import DataError

if TYPE_CHECKING:
    from relpref.explore.loop import Loop

HOST = "127.0.0.1"


def serve(
    loop: "Loop",
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

    from relpref.app.application import create_app

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
