"""A `jax.jit` that needs no compiler where little is to be done; knows nothing of statistics.

Compiling with XLA takes about a millisecond and a half for each operation of a function; running a
thousand operations on arrays of fifty rows takes a millisecond. :func:`lazy_jit` traces a function
as ``jax.jit`` does, writes what it found down as Python on NumPy arrays, and runs that. Where
eighty calls would cost more than compiling, ``jax.jit`` takes over. That is decided for each call,
by counting operations and the entries of their arrays: whatever ran before, and however fast, equal
calls give equal numbers to the last bit.

Use it like ``jax.jit``::

    @lazy_jit
    def f(program, x): ...

    @lazy_jit(static_argnums=1, static_argnames="grid")
    def g(x, size, grid=None): ...

Three things differ. Arrays of the result are NumPy's and read-only, and numbers NumPy's scalars
(random keys stay JAX's). Nothing is donated. A process keeps a limited number of signatures of all
functions together, those used last; `clear` drops all of them.
"""

from relpref.lazy_jit.decorator import clear, lazy_jit

__all__ = ["clear", "lazy_jit"]
