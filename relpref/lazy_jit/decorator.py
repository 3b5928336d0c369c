"""The decorator: signatures, what is kept of them, and the hand-over to the compiler."""

import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial, wraps
from itertools import count
from typing import Any, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import find_top_trace

from relpref.devices import default_device
from relpref.lazy_jit.steps import Steps, translate
from relpref.lazy_jit.writer import TooLongError, UntranslatableError

Result = TypeVar("Result")

# Steps kept in all, of all functions and signatures: one takes some 2 kB with what JAX keeps of its
# trace.
_MOST_STEPS = 100_000
_NUMBERS = (bool, int, float)
# JAX runs programs that the rules do not cover.
_UNFORESEEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_DEFECT = "%s is compiled, because a rule of relpref.lazy_jit failed, which is a defect: %s"
_CONFIG: Any = jax.config
_log = logging.getLogger(__name__)

_lock = threading.RLock()
_kept: dict[tuple[Any, ...], "_Entry"] = {}
_clock = count()
with jax.core.eval_context():
    _OUTERMOST = find_top_trace(None)


class _Entry:
    """A function at one signature, as steps and as what JAX compiles."""

    def __init__(self, function: Callable[..., Any], leaves: list[Any], interpret: bool) -> None:
        self.used = next(_clock)
        self.name = function.__name__
        # Each has a `jax.jit` of its own: all that JAX keeps of a signature goes with it.
        self.compiled = jax.jit(function)
        self.steps: Steps | None = None
        self.tree: Any = None
        self.size = 100
        if not interpret:
            return
        traced = self.compiled.trace(*leaves)
        self.tree = jax.tree.structure(traced.out_info)
        self.size += len(traced.jaxpr.eqns)
        try:
            self.steps = translate(traced.jaxpr, leaves)
        except UntranslatableError as error:
            _log.debug("%s is compiled: %s", self.name, error)
        except _UNFORESEEN as error:
            _log.warning(_DEFECT, self.name, error, exc_info=True)
        else:
            self.size = self.steps.number

    def run(self, leaves: list[Any]) -> Any:
        steps = self.steps
        if steps is not None and steps.least < steps.most:
            try:
                return jax.tree.unflatten(self.tree, steps.run(leaves, steps.most))
            except TooLongError:
                pass
            except _UNFORESEEN as error:
                _log.warning(_DEFECT, self.name, error, exc_info=True)
                self.steps = None
        return jax.tree.map(_numpy, self.compiled(*leaves))


def _numpy(array: Any) -> Any:
    if isinstance(array, jax.Array) and not jnp.issubdtype(array.dtype, jax.dtypes.extended):
        return np.asarray(array)[()]
    return array


def clear() -> None:
    """Drop what is kept of every function, steps and compiled code."""
    with _lock:
        _kept.clear()


def _keep(key: tuple[Any, ...], entry: _Entry) -> None:
    """Keep an entry, and drop those used longest ago where there are too many."""
    _kept[key] = entry
    excess = sum(one.size for one in _kept.values()) - _MOST_STEPS
    for old, one in sorted(_kept.items(), key=lambda item: item[1].used):
        if excess <= 0 or one is entry:
            break
        excess -= one.size
        del _kept[old]


@overload
def lazy_jit(function: Callable[..., Result]) -> Callable[..., Result]: ...


@overload
def lazy_jit(
    *, static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = ()
) -> Callable[[Callable[..., Result]], Callable[..., Result]]: ...


def lazy_jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Any:
    """Run a function as steps on NumPy arrays, and compile it with ``jax.jit`` when that pays.

    Parameters
    ----------
    function
        A pure function of JAX; methods, too.
    static_argnums, static_argnames
        Positions and names of hashable arguments that are not traced, as of ``jax.jit``.
    """
    if function is None:
        return partial(lazy_jit, static_argnums=static_argnums, static_argnames=static_argnames)
    its = function
    places = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    parameters = list(inspect.signature(its).parameters)
    places = tuple(sorted({*places, *(parameters.index(name) for name in names)}))
    names = tuple({*names, *(parameters[place] for place in places)})
    jitted = jax.jit(its, static_argnums=places, static_argnames=names)
    whole = threading.Lock()  # its identity names the function in keys

    @wraps(its)
    def call(*args: Any, **kwargs: Any) -> Any:
        static: Any = ()
        given, named = args, kwargs
        if places:
            static = tuple(args[place] for place in places if place < len(args))
            given = tuple(arg for place, arg in enumerate(args) if place not in places)
            if kwargs:
                static += tuple((name, kwargs[name]) for name in names if name in kwargs)
                named = {name: value for name, value in kwargs.items() if name not in names}
        leaves, tree = jax.tree.flatten((given, named))
        seen = _signature(leaves)
        if seen is None or find_top_trace(None) is not _OUTERMOST or _CONFIG.jax_disable_jit:
            return jitted(*args, **kwargs)
        key = (whole, static, tree, _CONFIG.jax_enable_x64, _CONFIG.jax_default_device, *seen)
        entry = _kept.get(key)
        if entry is None:
            with _lock:
                entry = _kept.get(key)
                if entry is None:
                    plain = partial(_plain, its, places, names, static, len(args), tree)
                    wraps(its)(plain)
                    entry = _Entry(plain, leaves, _interpretable(leaves))
                    _keep(key, entry)
        entry.used = next(_clock)
        return entry.run(leaves)

    return call


def _plain(
    function: Any, places: Any, names: Any, static: Any, number: int, tree: Any, *leaves: Any
) -> Any:
    """The function, of the leaves of its traced arguments."""
    given, named = jax.tree.unflatten(tree, leaves)
    traced, fixed = iter(given), iter(static)
    args = [next(fixed) if place in places else next(traced) for place in range(number)]
    return function(*args, **named, **dict(fixed))


def _signature(leaves: list[Any]) -> list[Any] | None:
    """What a trace depends on; None where JAX itself is to look at the arguments."""
    seen: list[Any] = []
    for leaf in leaves:
        kind = type(leaf)
        if kind is np.ndarray:
            seen += leaf.shape, leaf.dtype
        elif kind in _NUMBERS:
            seen.append(kind)
        elif isinstance(leaf, np.generic):
            seen.append(leaf.dtype)
        elif isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array):
            return None
        else:
            seen += leaf.aval, leaf.sharding
    return seen


def _interpretable(leaves: list[Any]) -> bool:
    """Whether all is on the one device whose arrays NumPy sees."""
    device = default_device()
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    return (
        device.platform == "cpu"
        and not _CONFIG.jax_debug_nans
        and all(array.sharding.device_set == {device} for array in arrays)
    )
