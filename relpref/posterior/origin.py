"""How a posterior came about: the program, its arguments and the engine, to be run again or stored."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from relpref.data import PreferenceData, Rankings, RelationData
from relpref.infer.program import Program
from relpref.posterior.codec import Keep, Restore, check_arguments, checked, decode, dump, encode, registered
from relpref.registry import name_of

_CALL = {"program": str, "kwargs": dict[str, Any], "engine": dict[str, Any], "complete": bool}


@dataclass(frozen=True)
class Origin:
    """How a posterior came about, for whoever wants to fit again with other data.

    Attributes
    ----------
    program : callable
    args, kwargs
        As the program was called.
    engine : GaussianEngine or None
        What fitted it, with its options; None of draws made elsewhere.
    complete : bool
        False where priors of the user's own were lost because a file cannot hold them: fitting again with other
        hyperparameters would then be another model.
    """

    program: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    engine: Any = None
    complete: bool = True

    @property
    def fixed(self) -> Mapping[str, Any]:
        """Hyperparameters that were known to the engine."""
        return self.engine.fixed if self.engine else {}

    @property
    def keywords(self) -> dict[str, Any]:
        """The keywords that the program was called with, those bound by ``functools.partial`` included."""
        bound: dict[str, Any] = {}
        program = self.program
        while isinstance(program, partial):
            bound = {**program.keywords, **bound}
            program = program.func
        return bound | dict(self.kwargs)

    def datasets(self) -> dict[str, Any]:
        """The data among the program's arguments, by name."""
        named = {f"argument {place}": value for place, value in enumerate(self.args, 1)} | self.keywords
        if len(self.args) == 1:
            named["data"] = named.pop("argument 1")
        return {
            n: value
            for n, value in named.items()
            if isinstance(value, PreferenceData | Rankings | RelationData)
        }

    def with_argument(self, old: Any, new: Any) -> "Origin":
        """The same call with another argument in place of one."""
        args = tuple(new if argument is old else argument for argument in self.args)
        kwargs = {name: new if argument is old else argument for name, argument in self.kwargs.items()}
        return replace(self, args=args, kwargs=kwargs)

    def run(
        self,
        sites: Mapping[str, Any] | None,
        key: Any,
        *,
        progress_bar: bool = False,
        at: Any = None,
        **changes: Any,
    ) -> Any:
        """The posterior by the same engine with some options changed, from given sites."""
        engine = self.engine.changed(**changes)
        return engine.run_from(sites, key, *self.args, progress_bar=progress_bar, at=at, **self.kwargs)

    def run_at_draws(
        self,
        draws: Mapping[str, Any],
        key: Any,
        info: Mapping[str, Any],
        prior_log_weights: Any,
        **changes: Any,
    ) -> Any:
        """The mixture over given hyperparameters by the same engine with some options changed."""
        given = {"info": info, "prior_log_weights": prior_log_weights, **self.kwargs}
        return self.engine.changed(**changes).run_at_draws(draws, key, *self.args, **given)

    def read(self) -> Program:
        """The program as it was called, with no site fixed, also where no engine could treat it; inside ``enable_x64``."""
        return Program.for_samples(self.program, self.args, self.kwargs)

    def encoded(self, keep: Keep | None = None) -> str | None:
        """For a file, if a later session can call the program the same way.

        That is: with the data as its only positional argument, and options that are plain values, arrays (if there is a place to
        ``keep`` them), or registered kernels and likelihoods. Priors are left out, and the origin is marked as incomplete then. Of a
        program that is not registered only what it is called is kept.
        """
        origin = self.unbound()
        if len(origin.args) != 1:
            return None
        kwargs = {name: value for name, value in origin.kwargs.items() if name != "priors"}
        name = name_of("program", origin.program)
        called = getattr(origin.program, "__qualname__", type(origin.program).__name__)
        engine = self.engine
        try:
            return dump(
                {
                    "program": f"program:{name}" if name else called,
                    "kwargs": encode(kwargs, keep),
                    "engine": {"engine": engine.name, **engine.options, "fixed": engine.fixed}
                    if engine
                    else {},
                    "complete": origin.complete and not origin.kwargs.get("priors"),
                }
            )
        except TypeError:
            return None

    @classmethod
    def decoded(
        cls, stored: str | None, data: Any, restore: Restore | None = None, program: Any = None
    ) -> "Origin | None":
        """The inverse of `encoded`; None where the program is not registered and none is given.

        Parameters
        ----------
        stored : str or None
        data
            The program's argument.
        restore : callable, optional
            Gives back what was kept.
        program : callable, optional
            The caller's own, in place of the one that the file names.
        """
        if stored is None:
            return None
        content = checked(json.loads(stored), _CALL, "the call of the program")
        kwargs = checked(decode(content["kwargs"], restore), dict[str, Any], "the program's arguments")
        if (
            program is None and ":" in content["program"]
        ):  # one that was not registered has no kind before its name
            program = registered(("program",), content["program"])
        if program is None:
            return None
        check_arguments(program, kwargs, "the program")
        engine = None
        if options := dict(content["engine"]):
            made = registered(("engine",), f"engine:{options.pop('engine', None)}")
            check_arguments(made, options, made.__name__)
            engine = made(program, **options)
        return cls(program, (data,), kwargs, engine, content["complete"])

    def unbound(self) -> "Origin":
        """The same call with the keywords that were bound to the program among the others, and the data by position."""
        program: Any = self.program
        args = self.args
        while isinstance(program, partial):
            program, args = program.func, (*program.args, *args)
        keywords = self.keywords
        args = args if args else tuple(keywords.pop("data") for _ in range("data" in keywords))
        return replace(self, program=program, args=args, kwargs=keywords)
