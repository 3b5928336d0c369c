"""Papers with words, classes and citations, in the files of Planetoid (Yang et al. 2016)."""

import io
import pickle
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from relpref.data.arrays import Array, Integers
from relpref.data.relation import checked_sparse
from relpref.data_loaders.registry import find, read_numbers
from relpref.errors import DataError
from relpref.files import FilePath, reading

_PARTS = ("allx", "tx", "ally", "ty", "graph")  # x and y are parts of allx and ally


@dataclass(frozen=True, eq=False)
class CitationNetwork:
    """A citation network of the papers 0 to n - 1.

    Attributes
    ----------
    words : sparse array of float64, shape (n, d)
        1 where a paper has a word, 0 elsewhere.
    classes : array of int64, shape (n,)
        The class of each paper.
    links : DataFrame
        ``source`` < ``target``: one row for every two papers of which one cites the other; the
        files do not say which.
    """

    words: Any
    classes: Integers
    links: pd.DataFrame


def load(name: str = "cora", folder: FilePath | None = None) -> CitationNetwork:
    """Read a citation network.

    The files are Python 2 pickles. They are read by an unpickler that knows arrays, sparse
    matrices, lists and dictionaries, and refuses everything else, so that opening a file from
    somewhere else runs none of its code.

    Parameters
    ----------
    name : {"cora"}
    folder : path, optional
        With the files ``ind.<name>.*``; ``$RELPREF_DATA/planetoid`` by default.

    Raises
    ------
    DataError
        If a file is missing, holds something else, or the parts do not fit together.
    """
    if name != "cora":
        raise DataError(f"name is {name!r}; this loader knows 'cora'")
    files = {part: find(name, folder, f"ind.{name}.{part}") for part in _PARTS}
    index_file = find(name, folder, f"ind.{name}.test.index")
    parts = {part: _unpickle(file) for part, file in files.items()}
    words = [_matrix(parts[part], files[part]) for part in ("allx", "tx")]
    one_hot = np.concatenate([_array(parts[part], files[part]) for part in ("ally", "ty")])
    # The rows of tx and ty belong to the papers that test.index names, in its order.
    order = np.arange(len(one_hot))
    index = read_numbers(index_file, range(1, 2)).to_numpy(np.int64).ravel()
    rows, first = sum(part.shape[0] for part in words), len(one_hot) - len(index)
    if rows != len(one_hot) or not np.array_equal(np.sort(index), order[first:]):
        sizes = f"{rows} rows of words, {len(one_hot)} of classes, {len(index)} test papers"
        raise _damaged(index_file.parent, f"the files do not fit together ({sizes})")
    order[index] = np.arange(first, len(one_hot))
    links = _links(parts["graph"], files["graph"], len(one_hot))
    stacked = scipy.sparse.vstack(words, format="csr")
    return CitationNetwork(stacked[order], one_hot[order].argmax(axis=1), links)


class _SparseMatrix:
    """Attributes of a pickled scipy matrix, under the names that scipy gave them."""


def _empty(kind: type, shape: tuple[int, ...], code: str) -> Array:
    """Make an array, which unpickling fills."""
    return np.ndarray(shape, dtype=code)


# All names that these files need.
_CLASSES: dict[tuple[str, str], Any] = {
    ("__builtin__", "list"): list,
    ("collections", "defaultdict"): defaultdict,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _empty,
    ("scipy.sparse.csr", "csr_matrix"): _SparseMatrix,
}


class _Unpickler(pickle.Unpickler):
    """Rebuilds arrays, sparse matrices, lists and dictionaries; nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Look up one of the few names that these files need."""
        if (module, name) not in _CLASSES:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which citation networks do not need"
            )
        return _CLASSES[module, name]


def _unpickle(file: Path) -> Any:
    with reading(file):
        content = io.BytesIO(file.read_bytes())
    try:
        return _Unpickler(content, encoding="latin1").load()
    except Exception as error:  # a damaged pickle can fail in any way
        raise _damaged(file, f"this is not the pickle it should be ({error})") from error


def _damaged(file: Path, reason: str) -> DataError:
    return DataError(f"{file}: {reason}; `relpref data get cora` fetches the published one")


def _matrix(value: Any, file: Path) -> Any:
    try:
        fields = vars(value)
        data, indices, indptr = (np.asarray(fields[name]) for name in ("data", "indices", "indptr"))
        return checked_sparse((data, indices, indptr), fields["_shape"]).astype(np.float64)
    except (TypeError, KeyError, ValueError) as error:
        raise _damaged(file, f"expected a sparse matrix ({error!r})") from None


def _array(value: Any, file: Path) -> Array:
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "iuf":
        raise _damaged(file, f"expected an array of classes, got {type(value).__name__}")
    return value


def _links(graph: Any, file: Path, size: int) -> pd.DataFrame:
    """Edges from a dictionary that maps each paper to its neighbors, without loops and repeats."""
    if not isinstance(graph, dict):
        raise _damaged(file, f"expected a dictionary of neighbors, got {type(graph).__name__}")
    ends = np.array(
        [(paper, other) for paper, others in graph.items() for other in others], dtype=np.int64
    )
    if ends.size == 0 or ends.min() < 0 or ends.max() >= size:
        raise _damaged(file, f"the papers are 0 to {size - 1}, and a link leads elsewhere")
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
    return pd.DataFrame(ends, columns=["source", "target"])
