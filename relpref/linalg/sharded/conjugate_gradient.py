"""Conjugate gradients on arrays whose rows are dealt out over devices: only inner products travel."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from relpref.errors import DataError, RelprefError
from relpref.linalg.conjugate_gradient import Reason

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]


@dataclass(frozen=True)
class Shards:
    """Devices in a row, each of which holds the same number of an array's rows.

    Attributes
    ----------
    mesh : jax.sharding.Mesh
        Of one axis.
    """

    mesh: Mesh

    @classmethod
    def of(cls, mesh: Any, rows: int, what: str) -> "Shards":
        """Check a mesh.

        Parameters
        ----------
        mesh : jax.sharding.Mesh
        rows : int
            How many there are to be dealt out.
        what : str
            What they are, for errors: "nodes".

        Raises
        ------
        DataError
            If it is no mesh of one axis, if its devices are of several kinds or none of this process's, or if there are more
            of them than rows.
        """
        if not isinstance(mesh, Mesh):
            raise DataError(
                f"mesh is {mesh!r}; give a jax.sharding.Mesh, such as Mesh(np.array(jax.devices()), ('device',))"
            )
        if len(mesh.axis_names) != 1:
            raise DataError(
                f"mesh has the axes {', '.join(map(str, mesh.axis_names))} of {mesh.devices.shape} devices; rows are dealt out "
                "over one: give Mesh(mesh.devices.ravel(), ('device',))"
            )
        kinds = sorted({device.platform for device in mesh.devices.flat})
        if len(kinds) > 1:
            raise DataError(f"mesh mixes devices of the kinds {', '.join(kinds)}; give devices of one kind")
        if not mesh.local_devices:
            raise DataError(
                f"mesh has no device of process {jax.process_index()}; every process takes part with at least one"
            )
        if mesh.size > rows:
            raise DataError(
                f"mesh has {mesh.size} devices for {rows} {what}; give at most as many devices as {what}"
            )
        # A mesh from jax.make_mesh has explicit axes, to which arrays without a sharding are strange.
        return cls(Mesh(mesh.devices, mesh.axis_names))

    @property
    def axis(self) -> str:
        """Name of the mesh's axis."""
        return str(self.mesh.axis_names[0])

    @property
    def count(self) -> int:
        """How many devices there are."""
        return int(self.mesh.size)

    @property
    def processes(self) -> int:
        """How many processes they belong to."""
        return len({device.process_index for device in self.mesh.devices.flat})

    def block(self, rows: int) -> int:
        """How many of so many rows each device holds; the last ones hold padding, too."""
        return -(-rows // self.count)

    def place(self, shape: tuple[int, ...], rows_from: Callable[[int, int], Any]) -> Array:
        """A global array whose rows are dealt out; a process asks only for those of its own devices.

        Parameters
        ----------
        shape : tuple of int
            The number of rows is a multiple of ``count``.
        rows_from : callable
            From the first row and the one behind the last to their values.
        """

        def values(index: Any) -> Any:
            start, stop, _ = index[0].indices(shape[0])
            return rows_from(start, stop)

        return jax.make_array_from_callback(shape, self._dealt, values)

    def place_matrix(self, matrix: Any) -> Array:
        """A square matrix, with zeros to the next multiple; anything that has a shape and gives slices of rows."""
        rows = matrix.shape[0]
        size = self.block(rows) * self.count

        def values(start: int, stop: int) -> Floats:
            found = np.zeros((stop - start, size))
            given = np.asarray(matrix[start : min(stop, rows)], dtype=np.float64)
            found[: len(given), :rows] = given
            return found

        return self.place((size, size), values)

    def place_values(self, values: Any) -> Array:
        """An array that every process has."""
        return self.place(values.shape, lambda start, stop: values[start:stop])

    def gather(self, array: Array) -> Any:
        """All rows, as NumPy, in every process."""
        if array.is_fully_addressable or array.is_fully_replicated:
            return np.asarray(array)
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))

    @property
    def _dealt(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(self.axis))


@dataclass(frozen=True)
class Slots:
    """Places of items in an array with as many for each device, some of them empty.

    Attributes
    ----------
    places : array of int, shape (q,)
        Of the items.
    size : int
        Of the array.
    """

    places: Positions
    size: int

    @classmethod
    def of(cls, owners: Positions, count: int) -> "Slots":
        """From the device that each item belongs to, in their order."""
        numbers = np.bincount(owners, minlength=count)
        width = max(int(numbers.max(initial=0)), 1)
        # Rounded up by at most an eighth, so that problems of about the same size share what is compiled.
        step = 1 << max(0, width.bit_length() - 4)
        width += -width % step
        order = np.argsort(owners, kind="stable")
        starts = np.cumsum(numbers) - numbers
        places = np.empty(len(owners), dtype=np.intp)
        places[order] = owners[order] * width + np.arange(len(owners)) - starts[owners[order]]
        return cls(places, count * width)

    def spread(self, values: Any) -> Any:
        """Items' values, shape (q, ...), in their places, and zeros."""
        found = np.zeros((self.size, *values.shape[1:]), dtype=values.dtype)
        found[self.places] = values
        return found


# Of the columns of a right-hand side. A column that the recurrence takes for solved is REACHED until its residual is computed anew.
RUNNING, REACHED, CONVERGED, BREAKDOWN = range(4)
Progress = Callable[[int, float], Any]

_STEPS = 25  # in one call of the devices; between two of them there is news


class System(Protocol):
    """P A P with a projection P, as one device sees it; hashable: what is equal is compiled once.

    From its rows of the operands and of vectors of shape (n, k) to its rows of the product, with collectives over the mesh's axis.
    """

    def apply(self, operands: Any, vectors: Array) -> Array: ...

    def project(self, operands: Any, vectors: Array) -> Array: ...


class ShardedResult(NamedTuple):
    """How conjugate gradients ended.

    Attributes
    ----------
    solution : Array, shape (n, k)
        Dealt out like the right-hand side.
    iterations : int
    residuals : array, shape (k,)
        √(rᵀM⁻¹r / bᵀM⁻¹b) of each column, with r = P (b − A x) and the diagonal M.
    codes : array of int, shape (k,)
        CONVERGED; BREAKDOWN: A is not positive semidefinite, a product was not finite, or the tolerance is out of
        reach; RUNNING: there were not enough iterations.
    """

    solution: Array
    iterations: int
    residuals: NDArray[np.float64]
    codes: NDArray[np.int32]

    @property
    def reason(self) -> Reason:
        """Of the worst column, as `relpref.linalg.CGResult` calls it."""
        if np.any(self.codes == BREAKDOWN):
            return "breakdown"
        return "converged" if np.all(self.codes == CONVERGED) else "max_iterations"


class _State(NamedTuple):
    """Vectors of shape (n, k), dealt out, and numbers of shape (k,), the same everywhere."""

    solution: Array
    residual: Array
    direction: Array
    gain: Array
    """rᵀ M⁻¹ r."""
    target: Array
    """bᵀ M⁻¹ b."""
    verified: Array
    """rᵀ M⁻¹ r when r was last computed anew."""
    code: Array
    iterations: Array
    """A number."""


def conjugate_gradient(
    system: System,
    operands: Any,
    rhs: Array,
    start: Array,
    inverse_diagonal: Array,
    shards: Shards,
    *,
    tol: float,
    max_iterations: int,
    progress: Progress | None = None,
) -> ShardedResult:
    """Solve P A P X = P B for every column of B at once; a column that is solved waits for the others.

    Parameters
    ----------
    system : System
    operands : pytree of Array
        Those of two axes are dealt out by rows, the others are everywhere.
    rhs, start : Array, shape (n, k)
        B, and the first guess, in the range of P.
    inverse_diagonal : Array, shape (n, 1) or ()
        M⁻¹, Jacobi's preconditioner; 1 for none.
    shards : Shards
    tol, max_iterations
        Largest residual, see `ShardedResult`, and iterations at most.
    progress : callable, optional
        Called now and then with the iterations so far and the largest residual.

    Raises
    ------
    RelprefError
        If a process that takes part is gone.
    """
    given = (system, shards.mesh, operands, inverse_diagonal)
    tolerance = np.float64(tol)
    try:
        state = _start(*given, rhs, start, tolerance)
        while True:
            limit = np.int32(min(int(state.iterations) + _STEPS, max_iterations))
            state = _advance(*given, state, tolerance, limit)
            ended = int(state.iterations) >= max_iterations
            if ended or not np.any(np.asarray(state.code) == RUNNING):
                state = _verify(*given, rhs, state, tolerance)
            codes = np.asarray(state.code)
            # A right-hand side of zeros is solved by zeros.
            target = np.maximum(np.asarray(state.target), np.finfo(np.float64).tiny)
            residuals = np.sqrt(np.asarray(state.gain) / target)
            if progress is not None:
                progress(int(state.iterations), float(residuals.max(initial=0.0)))
            if ended or not np.any(codes == RUNNING):
                return ShardedResult(state.solution, int(state.iterations), residuals, codes)
    except jax.errors.JaxRuntimeError as error:
        if shards.processes == 1:
            raise
        raise RelprefError(
            f"the {shards.processes} processes lost one another: one has ended or cannot be reached, and the others cannot go on; look "
            f"at its output and start them all again ({str(error).splitlines()[0]})"
        ) from error


class _Local(NamedTuple):
    """The system as one device sees it."""

    apply: Callable[[Array], Array]
    """P A x."""
    project: Callable[[Array], Array]
    scale: Callable[[Array], Array]
    """M⁻¹ x."""
    dot: Callable[[Array, Array], Array]


def _on_devices(function: Callable[..., _State]) -> Callable[..., _State]:
    """Compile what one device does for all devices of a mesh."""

    @partial(jax.jit, static_argnums=(0, 1))
    def compiled(system: System, mesh: Mesh, operands: Any, inverse: Array, *arrays: Any) -> _State:
        (axis,) = mesh.axis_names
        dealt: Any = PartitionSpec(axis)
        everywhere: Any = PartitionSpec()

        def local(operands: Any, inverse: Array, *arrays: Any) -> _State:
            seen = _Local(
                lambda vectors: system.project(operands, system.apply(operands, vectors)),
                partial(system.project, operands),
                lambda vectors: vectors * inverse,
                lambda x, y: jax.lax.psum(jnp.sum(x * y, axis=0), axis),
            )
            return function(seen, *arrays)

        given = (operands, inverse, *arrays)
        specs = jax.tree.map(lambda leaf: dealt if jnp.ndim(leaf) > 1 else everywhere, given)
        out = _State(dealt, dealt, dealt, *[everywhere] * 5)
        return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=out)(*given)

    return compiled


@_on_devices
def _start(system: _Local, rhs: Array, start: Array, tol: Array) -> _State:
    target = system.dot(rhs, system.scale(rhs))
    solution = jnp.where(target > 0, start, 0.0)
    residual = system.project(rhs) - system.apply(solution)
    direction = system.project(system.scale(residual))
    gain = system.dot(residual, direction)
    code = jnp.where(gain <= tol**2 * target, REACHED, RUNNING)
    return _State(
        solution,
        residual,
        direction,
        gain,
        target,
        jnp.full_like(target, jnp.inf),
        jnp.where(jnp.isfinite(gain), code, BREAKDOWN),
        jnp.zeros((), dtype=jnp.int32),
    )


@_on_devices
def _advance(system: _Local, state: _State, tol: Array, limit: Array) -> _State:
    def unfinished(state: _State) -> Array:
        return jnp.any(state.code == RUNNING) & (state.iterations < limit)

    def step(state: _State) -> _State:
        image = system.apply(state.direction)
        curvature = system.dot(state.direction, image)
        sound = jnp.isfinite(curvature) & (curvature > 0)
        running = (state.code == RUNNING) & sound
        length = jnp.where(running, state.gain / curvature, 0.0)
        residual = state.residual - jnp.where(running, length * image, 0.0)
        pushed = system.project(system.scale(residual))
        gain = system.dot(residual, pushed)
        running &= jnp.isfinite(gain)  # the solution stays finite, whatever comes
        code = jnp.where(gain <= tol**2 * state.target, REACHED, RUNNING)
        turn = jnp.where(running, gain / state.gain, 0.0)
        return state._replace(
            solution=state.solution + jnp.where(running, length * state.direction, 0.0),
            residual=residual,
            direction=pushed + turn * state.direction,
            gain=gain,
            code=jnp.where(state.code == RUNNING, jnp.where(running, code, BREAKDOWN), state.code),
            iterations=state.iterations + 1,
        )

    return jax.lax.while_loop(unfinished, step, state)


@_on_devices
def _verify(system: _Local, rhs: Array, state: _State, tol: Array) -> _State:
    # Rounding takes the recurrence's residual away from the true one: look, and go on from the true one.
    looked = state.code == REACHED
    residual = jnp.where(looked, system.project(rhs) - system.apply(state.solution), state.residual)
    direction = jnp.where(looked, system.project(system.scale(residual)), state.direction)
    gain = jnp.where(looked, system.dot(residual, direction), state.gain)
    solved, better = gain <= tol**2 * state.target, gain < 0.5 * state.verified
    code = jnp.where(solved, CONVERGED, jnp.where(better, RUNNING, BREAKDOWN))
    return state._replace(
        residual=residual,
        direction=direction,
        gain=gain,
        verified=jnp.where(looked, gain, state.verified),
        code=jnp.where(looked, code, state.code),
    )
