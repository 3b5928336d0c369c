"""Registration of immutable data classes as JAX pytrees, without importing JAX.

Tables are read and rankings printed without JAX, whose import takes longer than both. The classes
are registered when anything imports JAX.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from typing import Any, TypeVar

T = TypeVar("T")
_waiting: list[Callable[[], object]] = []  # until JAX is imported


class _AtImportOfJax:
    """Finder that defers to the others and registers the waiting classes after JAX's import."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "jax":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: Any) -> None:
                execute(module)
                while _waiting:
                    _waiting.pop()()
                if self in sys.meta_path:
                    sys.meta_path.remove(self)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _AtImportOfJax())


def _when_jax_is_there(act: Callable[[], object]) -> None:
    if "jax" in sys.modules:
        act()
    else:
        _waiting.append(act)


@dataclass(eq=False, repr=False, slots=True)
class Untraced:
    """Static data of a pytree that JAX ignores when it compares two trees.

    Any two objects are equal and hash alike, so that two data sets of equal shapes share one
    compilation although their labels differ. Inside a compiled function the content is that of the
    data set for which it was compiled: it may neither be read nor returned there.
    """

    content: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Untraced)

    def __hash__(self) -> int:
        return hash(Untraced)

    def __repr__(self) -> str:
        return "Untraced(...)"


def is_graph(node: Any) -> bool:
    """Whether a node of a tree is a graph, which computes its spectrum when it is flattened."""
    return hasattr(node, "with_shapes")


def register(
    cls: type,
    leaves: Sequence[str],
    static: Sequence[str] = (),
    untraced: Sequence[str] = (),
    restored: Callable[[Any], object] | None = None,
) -> None:
    """Register a class whose objects keep their attributes in ``__dict__``.

    Objects are rebuilt without their constructor and its checks, so that leaves may be tracers.

    Parameters
    ----------
    cls : type
    leaves : sequence of str
        Attributes or cached properties that are arrays or trees.
    static : sequence of str
        Attributes with values that programs are compiled for.
    untraced : sequence of str
        Attributes that never cause a compilation, see `Untraced`.
    restored : callable, optional
        Called with each object that was rebuilt.
    """

    def flatten(
        data: Any, keys: Sequence[Any]
    ) -> tuple[list[tuple[Any, Any]], tuple[Any, Untraced]]:
        children = [(key, getattr(data, name)) for key, name in zip(keys, leaves, strict=True)]
        kept = tuple(getattr(data, name) for name in static)
        return children, (kept, Untraced(tuple(getattr(data, name) for name in untraced)))

    def unflatten(structure: tuple[Any, Untraced], children: Any) -> Any:
        data: Any = object.__new__(cls)
        values = (*children, *structure[0], *structure[1].content)
        data.__dict__.update(zip((*leaves, *static, *untraced), values, strict=True))
        if restored is not None:
            restored(data)
        return data

    def act() -> None:
        from jax.tree_util import GetAttrKey, register_pytree_with_keys

        keys = [GetAttrKey(name) for name in leaves]
        register_pytree_with_keys(cls, lambda data: flatten(data, keys), unflatten)

    _when_jax_is_there(act)


def register_static(cls: type[T]) -> type[T]:
    """Register a class whose objects are static: programs are compiled for each value."""

    def act() -> None:
        from jax.tree_util import register_static

        register_static(cls)

    _when_jax_is_there(act)
    return cls
