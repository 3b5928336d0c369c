"""How the rows of an array are dealt out over devices, also over those of several processes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from relpref.errors import DataError

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
