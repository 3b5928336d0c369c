"""An engine made again from what a posterior remembers of it."""

from typing import Any

from relpref.infer.engine import GaussianEngine
from relpref.infer.posterior import Origin
from relpref.registry import find


def engine_again(origin: Origin, program: Any = None, **changes: Any) -> GaussianEngine:
    """The engine of an origin with some of its options changed.

    Parameters
    ----------
    origin : Origin
        Of a posterior from an engine that is registered.
    program : callable, optional
        Instead of the origin's.
    **changes
        Options of the engine.
    """
    options = {**origin.engine, **changes}
    engine: GaussianEngine = find("engine", options.pop("engine"))(program or origin.program, **options)
    return engine
