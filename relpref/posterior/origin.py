"""Origin of a posterior: the program, its arguments and the engine."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from relpref.data.arrays import shown
from relpref.errors import StorageError
from relpref.posterior.codec import (
    Arrays,
    Dataset,
    check_arguments,
    check_registered,
    checked,
    decode,
    dump,
    encode,
    registered,
)
from relpref.registry import name_of, unbound

if TYPE_CHECKING:
    from relpref.infer.program import Program

_CALL = {"program": str, "kwargs": dict[str, Any], "engine": dict[str, Any], "complete": bool}


@dataclass(frozen=True)
class Origin:
    """The origin of a posterior, to fit again with other data.

    ``engine``, which has its options, is None of draws made elsewhere. It is not ``complete`` where
    priors of the user's own were lost because a file cannot hold them: other hyperparameters would
    be another model.
    """

    program: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    # No defaults of the class: `__getattr__` decodes what is missing.
    engine: Any = field(default_factory=lambda: None)
    complete: bool = field(default_factory=lambda: True)

    @property
    def fixed(self) -> Mapping[str, Any]:
        """Hyperparameters that were known to the engine."""
        return self.engine.fixed if self.engine else {}

    def unbound(self) -> "Origin":
        """The same call with arguments of ``functools.partial`` unbound, and data by position."""
        program, args, keywords = unbound(self.program, self.args, self.kwargs)
        args = args or tuple(keywords.pop("data") for _ in range("data" in keywords))
        return replace(self, program=program, args=args, kwargs=keywords)

    @property
    def keywords(self) -> Mapping[str, Any]:
        """The program's keywords but the data, those bound by ``functools.partial`` included."""
        return self.unbound().kwargs

    def datasets(self) -> dict[str, Any]:
        """The data among the program's arguments, by name."""
        call = self.unbound()
        named = {f"argument {at}": value for at, value in enumerate(call.args, start=1)}
        if len(call.args) == 1:
            named = {"data": call.args[0]}
        named |= call.kwargs
        return {name: value for name, value in named.items() if isinstance(value, Dataset)}

    def with_argument(self, old: Any, new: Any) -> "Origin":
        """The same call with another argument in place of one."""
        args = tuple(new if value is old else value for value in self.args)
        kwargs = {name: new if value is old else value for name, value in self.kwargs.items()}
        return replace(self, args=args, kwargs=kwargs)

    def run(
        self, sites: Any, key: Any, *, progress_bar: bool = False, at: Any = None, **changes: Any
    ) -> Any:
        """The posterior by the same engine with some options changed, from given sites."""
        engine = self.engine.changed(**changes)
        return engine.run_from(
            sites, key, *self.args, progress_bar=progress_bar, at=at, **self.kwargs
        )

    def read(self) -> "Program":
        """Trace the program as it was called, with no site fixed; inside ``enable_x64``."""
        from relpref.infer.program import Program

        return Program.for_samples(self.program, self.args, self.kwargs)

    def encoded(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Arrays and JSON for a file; None if a later session cannot call the program the same way.

        It can if the data are the only argument, and `encode` takes the options. Priors are left
        out, and the origin is incomplete then. A program that is not registered leaves its name.
        """
        origin, engine = self.unbound(), self.engine
        kwargs = {name: value for name, value in origin.kwargs.items() if name != "priors"}
        name = name_of("program", origin.program)
        called = getattr(origin.program, "__qualname__", type(origin.program).__name__)
        arrays: dict[str, Any] = {}
        try:
            content = {
                "program": f"program:{name}" if name else called,
                "kwargs": encode(kwargs, arrays, "origin"),
                "engine": {},
                "complete": origin.complete and not origin.kwargs.get("priors"),
            }
            if engine:
                options = {"engine": engine.name, **engine.options, "fixed": engine.fixed}
                content["engine"] = json.loads(dump(options))
        except (TypeError, StorageError):
            return {}, None
        return (arrays, content) if len(origin.args) == 1 else ({}, None)

    @classmethod
    def decoded(
        cls, stored: dict[str, Any] | None, data: Any, arrays: Arrays, program: Any = None
    ) -> "Origin | None":
        """Decode what `encoded` made; None for a program that is neither registered nor given.

        Programs, kernels and engines need JAX, which rankings and predictions do not: arguments are
        decoded, and refused, when they are requested.
        """
        if stored is None:
            return None
        content = checked(stored, _CALL, "the call of the program")
        kept = {name: arrays[name] for name in arrays if name.startswith("origin")}
        if program is None and ":" not in content["program"]:  # it was not registered
            return None
        if program is not None:
            return cls._read(content, data, kept, program)
        check_registered(("program",), content["program"])
        origin = object.__new__(cls)
        origin.__dict__["_decode"] = partial(cls._read, content, data, kept)
        return origin

    def __getattr__(self, name: str) -> Any:
        decode = self.__dict__.get("_decode")
        if decode is None or name not in {field.name for field in fields(self)}:
            raise AttributeError(f"an Origin has no attribute {name!r}")
        try:
            self.__dict__.update(vars(decode()))
        except Exception as error:  # of a damaged or forged file any part may be anything
            what = (
                str(error)
                if isinstance(error, StorageError)
                else f"it is incomplete ({shown(error)})"
            )
            raise StorageError(
                f"what the file says of the program: {what}; fit again and save"
            ) from error
        self.__dict__.pop("_decode", None)  # gone, where another thread was faster
        return getattr(self, name)

    @classmethod
    def _read(
        cls, content: Mapping[str, Any], data: Any, arrays: Arrays, program: Any = None
    ) -> "Origin":
        kwargs = checked(
            decode(content["kwargs"], arrays, "origin"), dict[str, Any], "the program's arguments"
        )
        program = program or registered(("program",), content["program"])
        check_arguments(program, kwargs, "the program")
        engine = None
        if options := dict(content["engine"]):
            kind = registered(("engine",), f"engine:{options.pop('engine', None)}")
            check_arguments(kind, options, kind.__name__)
            engine = kind(program, **options)
        return cls(program, (data,), kwargs, engine, content["complete"])
