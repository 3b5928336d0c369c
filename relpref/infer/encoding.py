"""What a saved posterior keeps as JSON: labels, objects by their registered names, and how its program was called.

Whatever is read is checked against declared types before it is used, see `conform`.
"""

import json
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from inspect import Parameter, isclass, signature
from typing import Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import pandas as pd
import scipy.sparse

from relpref.data.messages import shown
from relpref.errors import StorageError
from relpref.infer.posterior import Origin
from relpref.registry import EARLIER, Kind, find, name_of


def encode_label(label: Any) -> Any:
    """A label as JSON; what JSON has no type for becomes an object with one key, the type's name."""
    if isinstance(label, tuple):
        return {"tuple": [encode_label(part) for part in label]}
    if type(label) in (str, int, bool):
        return label
    if type(label) is float:
        return {"float": repr(label)}
    if isinstance(label, pd.Timestamp):
        return {"timestamp": label.isoformat()}
    if isinstance(label, datetime):
        return {"datetime": label.isoformat()}
    if type(label) is date:
        return {"date": label.isoformat()}
    raise StorageError(
        f"the label {label!r} is a {type(label).__name__}, which cannot be stored; "
        "use text, numbers, bools, dates or tuples of these as labels"
    )


def decode_label(stored: Any) -> Any:
    """The inverse of `encode_label`."""
    if type(stored) in (str, int, bool):
        return stored
    if type(stored) is not dict or len(stored) != 1:
        raise StorageError(f"{shown(stored)} is stored where a label should be; the file is damaged")
    ((kind, value),) = stored.items()
    if kind == "tuple" and type(value) is list:
        return tuple(decode_label(part) for part in value)
    if kind not in _LABELS:
        raise StorageError(
            f"a stored label is of the unknown kind {shown(kind)}; the file is from a newer relpref"
        )
    try:
        label = _LABELS[kind](value)
        if encode_label(label) == stored:
            return label
    except (ValueError, TypeError):
        pass
    raise StorageError(f"{shown(value)} is stored as a label, and is no {kind}; the file is damaged")


_LABELS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "timestamp": pd.Timestamp,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
}


def dump(value: Any) -> str:
    """JSON with sorted keys, so that equal content gives equal bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def encode_labels(labels: Iterable[Any]) -> str:
    """Labels as one JSON text."""
    return dump([encode_label(label) for label in labels])


def decode_labels(stored: str) -> tuple[Any, ...]:
    """The inverse of `encode_labels`."""
    found = json.loads(stored)
    if type(found) is not list:
        raise StorageError(f"{shown(stored)} is stored where labels should be; the file is damaged")
    return tuple(decode_label(label) for label in found)


def conform(value: Any, declared: Any) -> bool:
    """Whether a value from a file is of a declared type: what a parameter or field is annotated with, or a TypedDict.

    ``Any`` is whatever `decode` makes: plain values, arrays and registered objects.
    """
    declared = getattr(declared, "__value__", declared)  # of an alias made by ``type``
    made_of, parts = get_origin(declared), get_args(declared)
    if declared is Any:
        return True
    if made_of in (Union, types.UnionType):
        return any(conform(value, part) for part in parts)
    if made_of is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if declared is None or declared in (type(None), bool, int, str):
        return type(value) is (type(None) if declared is None else declared)
    if declared is float:
        return type(value) in (float, int)
    if is_typeddict(declared):
        known = get_type_hints(declared)
        return (
            type(value) is dict
            and declared.__required_keys__ <= value.keys() <= known.keys()
            and all(conform(part, known[name]) for name, part in value.items())
        )
    if made_of in (list, Sequence):
        return type(value) is list and all(conform(part, parts[0]) for part in value)
    if made_of in (dict, Mapping):
        return type(value) is dict and all(
            conform(k, parts[0]) and conform(v, parts[1]) for k, v in value.items()
        )
    if made_of is Callable or made_of is types.FunctionType:
        return callable(value)
    kind = made_of or declared
    try:
        return isclass(kind) and isinstance(value, kind)
    except TypeError:  # a protocol that does not check instances itself
        return is_dataclass(value) and all(hasattr(value, name) for name in vars(kind) if name[0] != "_")


def checked(value: Any, declared: Any, what: str) -> Any:
    """A value that is of a declared type.

    Raises
    ------
    StorageError
        If it is of another.
    """
    if not conform(value, declared):
        raise StorageError(f"{what} is stored as {shown(value)}, which it cannot be; the file is damaged")
    return value


def check_arguments(function: Any, given: Mapping[str, Any], what: str) -> None:
    """Refuse keywords that a function does not have, and values that are not of the type it declares."""
    known = signature(function, eval_str=True).parameters
    anything = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())
    for name, value in given.items():
        parameter = known.get(name)
        if parameter is not None and parameter.kind in (
            Parameter.KEYWORD_ONLY,
            Parameter.POSITIONAL_OR_KEYWORD,
        ):
            declared = parameter.annotation
            checked(value, Any if declared is Parameter.empty else declared, f"{what}: {name}")
        elif not anything:
            raise StorageError(f"the file gives {what} the argument {shown(name)}, which it does not have")


def positions(arrays: Mapping[str, Any], name: str, size: int) -> Any:
    """An array of positions among so many things."""
    found = arrays[name]
    if found.dtype.kind not in "iu" or (found.size and not 0 <= found.min() <= found.max() < size):
        raise StorageError(f"{name} leads out of the {size} that there are; the file is damaged")
    return found


def sparse_rows(parts: Sequence[Any], shape: tuple[int, int]) -> Any:
    """A sparse matrix from its arrays, which are checked first: algebra with indices out of range ends the process."""
    found = scipy.sparse.csr_array(tuple(parts), shape=shape)
    found.check_format(full_check=True)
    return found


Keep = Callable[[Any], Any]  # from what JSON cannot hold to how it can be found again, or None
Restore = Callable[[Any], Any]


def encode_origin(origin: Origin | None, keep: Keep | None = None) -> str | None:
    """How the program was called, if a later session can call it the same way.

    That is: with the data as its only positional argument, and options that are plain values, arrays (if there is a place to
    ``keep`` them), or registered kernels and likelihoods. Priors are left out, and the origin is marked as incomplete then. Of a program
    that is not registered only what it is called is kept.
    """
    if origin is None:
        return None
    origin = origin.unbound()
    if len(origin.args) != 1:
        return None
    kwargs = {name: value for name, value in origin.kwargs.items() if name != "priors"}
    name = name_of("program", origin.program)
    called = getattr(origin.program, "__qualname__", type(origin.program).__name__)
    try:
        call = {
            "program": f"program:{name}" if name else called,
            "kwargs": encode(kwargs, keep),
            "engine": dict(origin.engine),
        }
        return dump(call | {"complete": origin.complete and not origin.kwargs.get("priors")})
    except TypeError:
        return None


class _Call(TypedDict):
    """What `encode_origin` writes."""

    program: str
    kwargs: dict[str, Any]
    engine: dict[str, Any]
    complete: bool


def decode_origin(
    stored: str | None, data: Any, restore: Restore | None = None, program: Any = None
) -> Origin | None:
    """The inverse of `encode_origin`; nothing is imported.

    Parameters
    ----------
    stored : str or None
    data
        The program's argument.
    restore : callable, optional
        Gives back what was kept.
    program : callable, optional
        The caller's own, in place of the one that the file names.

    Returns
    -------
    Origin or None
        None where the program is not registered and none is given.
    """
    if stored is None:
        return None
    content = checked(json.loads(stored), _Call, "the call of the program")
    kwargs = checked(decode(content["kwargs"], restore), dict[str, Any], "the program's arguments")
    found = _program(content["program"]) if program is None else program
    if found is None:
        return None
    check_arguments(found, kwargs, "the program")
    if content["engine"]:
        options = dict(content["engine"])
        engine = _registered(("engine",), f"engine:{options.pop('engine', None)}")
        check_arguments(engine, options, engine.__name__)
    return Origin(found, (data,), kwargs, content["engine"], content["complete"])


def _program(name: str) -> Any:
    """A registered program; None of one that was not registered when it was saved, which has no kind before its name."""
    return _registered(("program",), name) if ":" in name else None


def _registered(kinds: Sequence[Kind], stored: str) -> Any:
    kind, name = EARLIER.get(stored, stored.partition(":")[::2])
    found = next((find(known, name) for known in kinds if known == kind), None)
    if found is None:
        raise StorageError(
            f"the file needs {shown(stored)}, which is not registered: if it is your own, call relpref.register before relpref.load; "
            "otherwise the file is damaged, or from a newer relpref"
        )
    return found


def encode_likelihood(likelihood: Any) -> Any:
    """A registered likelihood.

    Raises
    ------
    StorageError
        If it is none: nobody could predict answers from the file.
    """
    try:
        return encode(likelihood)
    except TypeError:
        raise StorageError(
            f"the likelihood {type(likelihood).__name__} cannot be stored; those of relpref.likelihoods can, and others after "
            "relpref.register('likelihood', name, class)"
        ) from None


def encode(value: Any, keep: Keep | None = None) -> Any:
    """Options, as far as JSON, registered kernels and likelihoods, and ``keep`` can hold them.

    Raises
    ------
    TypeError
        If they are something else.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {"mapping": {str(key): encode(part, keep) for key, part in value.items()}}
    kept = None if keep is None else keep(value)
    if kept is not None:
        return {"kept": kept}
    for kind in _OBJECTS:
        name = name_of(kind, type(value))
        if name is not None:
            stored = {f.name: encode(getattr(value, f.name), keep) for f in fields(value) if f.init}
            return {"object": f"{kind}:{name}", "fields": stored}
    raise TypeError(f"{type(value).__name__} cannot be stored")


_OBJECTS: tuple[Kind, ...] = ("kernel", "likelihood")


def decode(stored: Any, restore: Restore | None = None) -> Any:
    """The inverse of `encode`: plain values, what was kept, and registered kernels and likelihoods with checked fields."""
    if stored is None or isinstance(stored, str | bool | int | float):
        return stored
    keys = set(stored) if isinstance(stored, dict) else None
    if keys == {"mapping"} and isinstance(stored["mapping"], dict):
        return {key: decode(part, restore) for key, part in stored["mapping"].items()}
    if keys == {"kept"} and restore is not None:
        return restore(stored["kept"])
    if (
        keys == {"object", "fields"}
        and isinstance(stored["object"], str)
        and isinstance(stored["fields"], dict)
    ):
        made = _registered(_OBJECTS, stored["object"])
        values = {field: decode(part, restore) for field, part in stored["fields"].items()}
        check_arguments(made, values, made.__name__)
        return made(**values)
    raise StorageError(f"the file holds {shown(stored)} where an option should be; it is damaged")
