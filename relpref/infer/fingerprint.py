"""What tells one problem from another: a digest of programs, engines, quantities and data that is the same in every process.

Functions are known by their code, defaults and closures, and by what their code names in their own module; those of other modules by
name, and relpref's own by name beside its version.
"""

import hashlib
import types
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

from relpref.errors import DataError

_PLAIN = (bool, int, float, complex, str, bytes, np.dtype, types.NoneType, types.EllipsisType)
_ARRAYS = (np.ndarray, np.generic, jax.Array)
_HOLDERS = (list, tuple, dict, set, frozenset, partial, dist.Distribution)


def fingerprint(value: Any) -> str:
    """Sixteen hexadecimal digits.

    Raises
    ------
    DataError
        If there is something in the value that nothing tells from others of its kind.
    """
    return _Reader().read(value)[:16]


class _Reader:
    """Digests of objects from the digests of their parts: equal where the values are, whether or not they are one object."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[str, Any]] = {}  # the object, too, which keeps others from its identity
        self.within: dict[int, int] = {}  # what is being read, with its depth: functions may call themselves

    def read(self, value: Any) -> str:
        """Any object."""
        if isinstance(value, _PLAIN):
            return _digest(type(value).__name__, repr(value))
        if id(value) in self.within:
            return _digest("within", str(self.within[id(value)]))
        if id(value) not in self.known:
            self.within[id(value)] = len(self.within)
            kind, *parts = _taken_apart(value)
            self.known[id(value)] = _digest(kind, *(self.read(part) for part in parts)), value
            del self.within[id(value)]
        return self.known[id(value)][0]


def _digest(*texts: str) -> str:
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def _taken_apart(value: Any) -> tuple[Any, ...]:
    """A word for the kind of object, and what it is made of."""
    if isinstance(value, _ARRAYS):
        array = np.asarray(value)
        return (
            "array",
            str(array.dtype),
            array.shape,
            array.tolist() if array.dtype == object else array.tobytes(),
        )
    if isinstance(value, dict | types.MappingProxyType):
        items = sorted(value.items(), key=lambda item: fingerprint(item[0]))
        return "mapping", *(part for item in items for part in item)
    if isinstance(value, set | frozenset):
        return "set", *sorted(fingerprint(part) for part in value)
    if isinstance(value, list | tuple):
        return type(value).__name__, *value
    if isinstance(value, types.CodeType):
        return "code", value.co_code, value.co_names, value.co_consts
    if isinstance(value, partial):
        return "partial", value.func, value.args, value.keywords
    if isinstance(value, types.MethodType):
        return "method", value.__func__, value.__self__
    if isinstance(value, type):
        return _class(value)
    if isinstance(value, types.FunctionType):
        return _function(value)
    if isinstance(value, types.BuiltinFunctionType | np.ufunc):
        return "function", _name(value)
    if hasattr(value, "__wrapped__"):  # jitted
        return "wrapper", value.__wrapped__
    return _instance(value)


def _function(value: types.FunctionType) -> tuple[Any, ...]:
    closure = [cell.cell_contents for cell in value.__closure__ or ()]
    given = ("function", _name(value), value.__defaults__, value.__kwdefaults__, closure)
    if _is_relprefs(value):
        return given
    outer = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
    return *given, value.__code__, {name: _outer(part, value.__module__) for name, part in outer.items()}


def _names(code: types.CodeType) -> set[str]:
    """What code and the functions in it refer to."""
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inner)


def _outer(value: Any, module: str) -> Any:
    """What code refers to in its module: values, and its own functions and classes; anything else by name."""
    own = callable(value) and getattr(value, "__module__", None) == module
    if own or isinstance(value, (*_PLAIN, *_ARRAYS, *_HOLDERS)):
        return value
    return _name(value if hasattr(value, "__name__") else type(value))


def _class(value: type) -> tuple[Any, ...]:
    if _is_relprefs(value):
        return "class", _name(value)
    own = {
        name: part for name, part in vars(value).items() if isinstance(part, (types.FunctionType, *_PLAIN))
    }
    return "class", _name(value), [_name(base) for base in value.__bases__], own


def _instance(value: Any) -> tuple[Any, ...]:
    """Its class and state."""
    kind = type(value)
    if isinstance(value, dist.Distribution):
        names = [*kind.gather_pytree_data_fields(), *kind.gather_pytree_aux_fields()]
        names = [name for name in names if name != "_validate_args"]
        return "object", _name(kind), {name: getattr(value, name, None) for name in names}
    if is_dataclass(value):
        return "object", kind, {field.name: getattr(value, field.name) for field in fields(value)}
    if state := getattr(value, "__dict__", None):
        return "object", kind, state
    if " at 0x" not in repr(value):
        return "object", _name(kind), repr(value)
    raise DataError(
        f"{value!r} cannot be told from others of its kind, so that files of its results would not be known again; keep none, or give "
        "a function, a functools.partial or a frozen dataclass in its place"
    )


def _name(value: Any) -> str:
    return (
        f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"
    )


def _is_relprefs(value: Any) -> bool:
    return str(value.__module__).split(".")[0] == "relpref"
