"""The page on which people answer questions in a browser: ``relpref ask run/ --web`` (extra ``web``)."""

from relpref.app.application import create_app
from relpref.app.serve import serve

__all__ = ["create_app", "serve"]
