"""Papers with their words, classes and citations, as the Planetoid project stores them (Yang et al. 2016)."""

import io
import os
import pickle
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray

from relpref.data.edges import checked_sparse
from relpref.data_loaders.registry import find, read_rows
from relpref.errors import DataError

_PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph")


@dataclass(frozen=True, eq=False)
class CitationNetwork:
    """Papers 0 to n - 1.

    Attributes
    ----------
    words : sparse array of float64, shape (n, d)
        1 where a paper has a word, 0 elsewhere.
    classes : array of int64, shape (n,)
        The class of each paper.
    links : DataFrame
        ``source`` < ``target``: one row for every two papers of which one cites the other. The
        files do not say which.
    """

    words: Any
    classes: NDArray[np.int64]
    links: pd.DataFrame


def load(name: str = "cora", folder: str | os.PathLike[str] | None = None) -> CitationNetwork:
    """Read a citation network.

    The files are Python 2 pickles. They are read by an unpickler that knows arrays, sparse
    matrices, lists and dictionaries, and refuses everything else, so that opening a file from
    somewhere else runs none of its code.

    Parameters
    ----------
    name : {"cora"}
    folder : path, optional
        With the eight files ``ind.<name>.*``; ``$RELPREF_DATA/planetoid`` by default.

    Raises
    ------
    DataError
        If a file is missing, holds something else, or the parts do not fit together.
    """
    if name != "cora":
        raise DataError(f"name is {name!r}; this loader knows 'cora'")
    place = find(name, folder)
    files = {part: place / f"ind.{name}.{part}" for part in _PARTS}
    parts = {part: _unpickle(file) for part, file in files.items()}
    words = scipy.sparse.vstack(
        [_matrix(parts[part], files[part]) for part in ("allx", "tx")], format="csr"
    )
    one_hot = np.concatenate([_array(parts[part], files[part]) for part in ("ally", "ty")])
    # The rows of tx and ty belong to the papers that test.index names, in its order.
    order = np.arange(len(one_hot))
    index = read_rows(place / f"ind.{name}.test.index").of_width(1).numbers()[:, 0].astype(np.int64)
    first = len(one_hot) - len(index)
    if words.shape[0] != len(one_hot) or not np.array_equal(np.sort(index), order[first:]):
        sizes = (
            f"{words.shape[0]} rows of words, {len(one_hot)} of classes, {len(index)} test papers"
        )
        raise _damaged(place, f"the files do not fit together ({sizes})")
    order[index] = np.arange(first, len(one_hot))
    links = _links(parts["graph"], files["graph"], len(one_hot))
    return CitationNetwork(words[order], one_hot[order].argmax(axis=1), links)


def two_hop(links: pd.DataFrame) -> pd.DataFrame:
    """Join every two papers, ``source`` < ``target``, that share a neighbor (XPGP section 6: two documents linked by the same page)."""
    labels = pd.Index(np.unique(links[["source", "target"]].to_numpy()))
    ends = [labels.get_indexer(links[end]) for end in ("source", "target")]
    adjacency = scipy.sparse.csr_array(
        (np.ones(len(links)), ends), shape=(len(labels), len(labels))
    )
    adjacency = adjacency + adjacency.T
    shared = scipy.sparse.triu(adjacency @ adjacency, 1, format="csr")
    shared.sort_indices()
    source, target = shared.nonzero()
    return pd.DataFrame({"source": labels[source], "target": labels[target]})


class _SparseMatrix:
    """What is left of a pickled scipy matrix: its attributes, whatever scipy calls them by now."""


class _Unpickler(pickle.Unpickler):
    """Rebuilds arrays, sparse matrices, lists and dictionaries; nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Look up one of the few names these files need."""
        known: dict[tuple[str, str], Any] = {
            ("__builtin__", "list"): list,
            ("collections", "defaultdict"): defaultdict,
            ("numpy", "dtype"): np.dtype,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy.core.multiarray", "_reconstruct"): _empty,
            ("scipy.sparse.csr", "csr_matrix"): _SparseMatrix,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which citation networks do not need"
            )
        return known[module, name]


def _empty(kind: type, shape: tuple[int, ...], code: str) -> NDArray[Any]:
    """The array that unpickling fills."""
    return np.ndarray(shape, dtype=code)


def _unpickle(file: Path) -> Any:
    try:
        return _Unpickler(io.BytesIO(file.read_bytes()), encoding="latin1").load()
    except OSError as error:
        raise _damaged(file, f"the file cannot be read ({error.strerror})") from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise _damaged(file, f"this is not the pickle it should be ({error})") from error


def _damaged(file: Path, reason: str) -> DataError:
    return DataError(f"{file}: {reason}; `relpref data get cora` fetches the published one")


def _matrix(value: Any, file: Path) -> Any:
    try:
        held = vars(value)
        parts = np.asarray(held["data"]), np.asarray(held["indices"]), np.asarray(held["indptr"])
        return checked_sparse(parts, held["_shape"]).astype(np.float64)
    except (TypeError, KeyError, ValueError) as error:
        raise _damaged(file, f"expected a sparse matrix ({error!r})") from None


def _array(value: Any, file: Path) -> NDArray[Any]:
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "iuf":
        raise _damaged(file, f"expected an array of classes, got {type(value).__name__}")
    return value


def _links(graph: Any, file: Path, size: int) -> pd.DataFrame:
    if not isinstance(graph, dict):
        raise _damaged(file, f"expected a dictionary of neighbors, got {type(graph).__name__}")
    ends = np.array(
        [(paper, other) for paper, others in graph.items() for other in others], dtype=np.int64
    )
    if ends.size == 0 or ends.min() < 0 or ends.max() >= size:
        raise _damaged(file, f"the papers are 0 to {size - 1}, and a link leads elsewhere")
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
    return pd.DataFrame(ends, columns=["source", "target"])
