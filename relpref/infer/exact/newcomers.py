"""Kernels of nodes that were not there at the fit: the program says, run again with them among its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.data import RelationData
from relpref.errors import UnsupportedProgramError
from relpref.infer.observed import unwrap
from relpref.infer.program import Call, Program, Values, in_double

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ProgramKernel:
    """The node kernel of a program at given hyperparameters, as a `Domain` asks for it.

    Parameters
    ----------
    program : callable
    arguments : (args, kwargs)
        Of the program.
    data : RelationData or None
        Among them.
    values : dict
        Of all hyperparameters.
    field : str
        Site of the scores.
    side : {"nodes", "objects"}
    matrix : array, shape (p, p)
        Of the training nodes.
    """

    program: Program
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]]
    data: RelationData | None
    values: Values
    field: str
    side: Literal["nodes", "objects"]
    matrix: Floats

    def __call__(self, left: Any, right: Any = None) -> Floats:
        """The training nodes' matrix; or rows for new attributes ``left``, against ``right`` or the training nodes (None).

        Raises
        ------
        UnsupportedProgramError
            If the kernel says nothing of new nodes.
        """
        if left is None:
            return self.matrix
        p, first = len(self.matrix), np.atleast_2d(np.asarray(left, dtype=np.float64))
        if right is None:
            return self._among(first)[p:, :p]
        second = np.atleast_2d(np.asarray(right, dtype=np.float64))
        return self._among(np.concatenate([first, second]))[p : p + len(first), p + len(first) :]

    def _among(self, attributes: Floats) -> Floats:
        """Kernel of the training nodes and new ones."""
        data = self.data
        domain = None if data is None else getattr(data, self.side)
        if data is None or domain is None:
            raise UnsupportedProgramError(
                "the program takes no RelationData, so nothing is known of new nodes; include them, with labels unknown"
            )
        if domain.relations:
            raise UnsupportedProgramError(
                f"the kernel of the {self.side} has a part on a graph, which new {self.side} would change; include them in "
                "the data with labels unknown (NaN) and fit again"
            )
        table = pd.DataFrame(
            attributes,
            columns=list(domain.attribute_names),
            index=[("new", row) for row in range(len(attributes))],
        )
        table.index = pd.Index(list(table.index), tupleize_cols=False)
        extended = data.extended(**{"nodes": None, "objects": None, self.side: table})
        args = tuple(extended if value is data else value for value in self.arguments[0])
        kwargs = {name: extended if value is data else value for name, value in self.arguments[1].items()}
        with jax.enable_x64(True):
            call, arrays = Call.split(self.program, args, kwargs)
            scores = jnp.zeros(extended.values.shape[0] * extended.values.shape[1])
            sites = call.trace(tuple(in_double(a) for a in arrays), {**self.values, self.field: scores})
            factors: Any = unwrap(sites[self.field]["fn"]).covariance
            factor = factors.left if self.side == "nodes" else factors.right
            return np.asarray(factor.dense())
