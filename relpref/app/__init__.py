"""The old name of `relpref.ask.web`, for one release."""

from warnings import warn

from relpref.ask.web import create_app, serve

__all__ = ["create_app", "serve"]

warn("relpref.app is relpref.ask.web now", DeprecationWarning, stacklevel=2)
