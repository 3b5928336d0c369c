"""An engine made again from what a posterior remembers of it."""

from typing import Any

from relpref.infer.engine import GaussianEngine
from relpref.infer.ep import EP
from relpref.infer.laplace import Laplace
from relpref.infer.posterior import Origin

ENGINES: dict[str, type[GaussianEngine]] = {engine.name: engine for engine in (EP, Laplace)}


def engine_again(origin: Origin, program: Any = None, **changes: Any) -> GaussianEngine:
    """The engine of an origin with some of its options changed.

    Parameters
    ----------
    origin : Origin
        Of a posterior from one of `ENGINES`.
    program : callable, optional
        Instead of the origin's.
    **changes
        Options of the engine.
    """
    options = {**origin.engine, **changes}
    return ENGINES[options.pop("engine")](program or origin.program, **options)
