"""The engines that an estimator may be given by name."""

from relpref.errors import DataError
from relpref.infer import EP, Laplace
from relpref.infer.engine import GaussianEngine

ENGINES: dict[str, type[GaussianEngine]] = {"ep": EP, "laplace": Laplace}


def engine_named(name: str) -> type[GaussianEngine]:
    """The engine.

    Raises
    ------
    DataError
        If there is none of that name.
    """
    if name not in ENGINES:
        raise DataError(f"engine is {name!r}; it is {' or '.join(map(repr, ENGINES))}")
    return ENGINES[name]
