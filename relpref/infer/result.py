"""How an inference ended: a code, a sentence, and a remedy."""

import hashlib
import sys
import types
import warnings
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import jax
import numpy as np
import numpyro.distributions as dist

from relpref.errors import DataError


class Result(Enum):
    """Result codes of every engine; the value is what happened and what to do about it."""

    converged = "The engine converged."
    max_iterations = (
        "The largest number of sweeps was reached before the sites settled. "
        "Raise max_sweeps, or look at info['residual'] to see how near it came."
    )
    diverged = (
        "The sites moved away from a fixed point at every damping tried. "
        "Use smaller amplitudes or priors that hold them down, or run NUTS on the same program."
    )
    nonfinite = (
        "A likelihood or a covariance gave NaN or infinity. "
        "Look for hyperparameters at the edge of their support and for attributes of extreme size."
    )
    negative_precision = (
        "A likelihood that is declared log-concave asked for a negative site precision. Correct its tilted moments or "
        "its log_concave, or run NUTS on the same program."
    )
    prior_not_positive_definite = (
        "The prior covariance is not positive definite, even with jitter. "
        "Check a Precomputed kernel's smallest eigenvalue, or give the kernel a shorter lengthscale or range."
    )
    hyperparameters_not_converged = (
        "The search for hyperparameters stopped before the gradient vanished. "
        "Raise max_evaluations, try restarts, or give tighter priors."
    )
    iterations_not_converged = (
        "Conjugate gradients stopped before the residual was small. "
        "Raise max_iterations (max_iter), tol, or the noise (the regularization)."
    )
    hyperparameters_not_mixed = (
        "The chains over the hyperparameters disagree (R-hat above 1.2). "
        "Raise draws and warmup, give tighter priors, or maximise the evidence instead."
    )
    too_precise = (
        "Some answers are so precise (noise/√count below 1e-5) that rounding may show in means and sds. "
        "Fix the noise at a larger value, such as fixed={'soft_noise': 1e-4}, or give it a prior that keeps it from 0."
    )

    @property
    def ok(self) -> bool:
        """Whether the answers may be used without a warning."""
        return self is Result.converged

    @property
    def empty(self) -> bool:
        """Whether there are no answers at all: no sweep gave a posterior, and every number is NaN."""
        return self in (Result.nonfinite, Result.negative_precision, Result.prior_not_positive_definite)


# The numbers a jitted loop can carry for them.
CODES = tuple(Result)


def code(result: Result) -> int:
    """Position of a result in `CODES`."""
    return CODES.index(result)


_PACKAGE = str(Path(__file__).parents[1])


class InferenceWarning(UserWarning):
    """An answer comes from an inference that did not converge."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, blaming the first caller outside this package."""
    level = 1
    while (
        sys._getframe(level).f_code.co_filename.startswith(_PACKAGE)
        and sys._getframe(level).f_back is not None
    ):
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)


class Progress:
    """A line that counts steps and shows the best objective.

    Parameters
    ----------
    label : str
    wanted : bool
        Shown only if stderr is a terminal, too.
    unit : str
        What is counted.
    note : str
        How the number beside the count is shown.
    """

    def __init__(
        self,
        label: str,
        wanted: bool,
        unit: str = "evaluations",
        note: str = "log evidence + log prior {:.2f}",
    ) -> None:
        self._label, self._unit, self._note = label, unit, note
        self._wanted = wanted and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._wanted:
            from tqdm import tqdm

            self._bar = tqdm(
                desc=self._label,
                unit=f" {self._unit}",
                leave=False,
                file=sys.stderr,
            )
        return self

    def step(self, count: int, objective: float) -> None:
        """One evaluation more, or as many as are counted."""
        if self._bar is not None:
            self._bar.update(max(count - self._bar.n, 1))
            self._bar.set_postfix_str(self._note.format(objective))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, also when interrupted."""
        if self._bar is not None:
            self._bar.close()


class Solves:
    """Tells how many columns of a long computation are done, each computation on a line of its own that vanishes at its end.

    Parameters
    ----------
    label : str
    wanted : bool
        Shown only if stderr is a terminal, too.
    """

    _FEW = 64  # columns that are not worth a line

    def __init__(self, label: str, wanted: bool) -> None:
        self._label, self._wanted = label, wanted
        self._bar: Any = None

    def __call__(self, done: int, of: int) -> None:
        """``done`` columns ``of`` so many."""
        if not (self._wanted and of > self._FEW and sys.stderr.isatty()):
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(desc=self._label, total=of, unit=" columns", leave=False, file=sys.stderr)
        self._bar.update(done - self._bar.n)
        if done >= of:
            self._bar.close()
            self._bar = None


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
