"""Covariances as objects that give products, chosen entries, or the full matrix.

Everything outside this folder asks a covariance for what it needs and never assumes that a matrix
lies underneath.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import accumulate, pairwise
from operator import add, or_
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse
from jax import Array
from numpy.typing import ArrayLike, NDArray

from relpref.errors import DataError
from relpref.linalg.arrays import block_diagonal, namespace
from relpref.linalg.cg import Floats, Progress
from relpref.linalg.factor import Factor, cholesky, pivoted_cholesky
from relpref.pytree import register

LinearMap = Callable[[Array], Array]
# Derivatives by the paths of arrays in a tree: names of fields, keys and indices.
Pulls = dict[tuple[str, ...], Any]

# Entries of a kernel matrix that exist at a time: 64 MB.
_BLOCK = 2**23
# Entries that may be evaluated for exact means of rows: a few minutes; beyond, the columns are
# sampled.
_EVALUATIONS = 5_000_000_000
# Rows whose means stand for all, and where all are too many: the average of their sampled means is
# off by 1/20 of their spread.
_SAMPLED = 400


def at_path(tree: Any, path: tuple[str, ...]) -> Any:
    """The array at a path."""
    for name in path:
        if isinstance(tree, Mapping):
            tree = tree[name]
        else:
            tree = tree[int(name)] if name.isdigit() else getattr(tree, name)
    return tree


def root_of(factor: Any) -> Any:
    """Square root of a number.

    It is a float where JAX does not trace it: what NumPy computes stays in double precision.
    """
    return jnp.sqrt(factor) if isinstance(factor, jax.core.Tracer) else float(factor) ** 0.5


def joined(slopes: Pulls, *start: str) -> Pulls:
    """Derivatives in the arrays of what lies at a path, by whole paths."""
    return {(*start, *path): slope for path, slope in slopes.items()}


class Covariance(ABC):
    """A symmetric positive semidefinite n x n matrix K, evaluated on demand.

    A subclass has ``size`` and ``scaled``, and ``dense`` or, where there are too many values for a
    matrix, ``block`` and ``matmul``; everything else follows from these. It may have ``pull``,
    which takes symmetric weights W, shape (n, n), to the derivatives of Σ_ij W_ij K_ij in its
    arrays, by their paths, see `at_path`. Then ``dense`` and ``pull`` take NumPy arrays, too.
    """

    is_matrix: ClassVar[bool] = False
    """Whether it holds a matrix of all values."""
    depends_on_others: ClassVar[bool] = False
    """Whether covariances of some values depend on the others, as for a graph's nodes."""
    sparse_inverse: ClassVar[bool] = False
    """Whether ``inverse()`` is a sparse matrix."""
    factor: Any = None
    """F of a covariance F Fᵀ of low rank."""
    _together: ClassVar[int] = 1000  # values whose variances are computed together

    if TYPE_CHECKING:  # a field or a property

        @property
        def size(self) -> int: ...

    @abstractmethod
    def scaled(self, factor: Any) -> "Covariance":
        """``factor`` times K, for a positive number."""

    def dense(self) -> Any:
        """K as an (n, n) array."""
        everyone = np.arange(self.size)
        return jnp.asarray(self.block(everyone, everyone))

    def matmul(self, vectors: Any) -> Any:
        """K times ``vectors``, shape (n,) or (n, k)."""
        return self.dense() @ vectors

    def block(self, rows: Any, columns: Any) -> Any:
        """K[rows][:, columns] of positions of shapes (r,) and (c,)."""
        return self.dense()[np.asarray(rows)][:, np.asarray(columns)]

    def in_memory(self) -> "Covariance":
        """K in a form that has ``pull``, for engines that factorize a matrix."""
        # A subclass may have changed what an inherited ``pull`` is the derivative of.
        return self if "pull" in vars(type(self)) else Dense(self.dense())

    def congruence(self, apply: LinearMap) -> Array:
        """A K Aᵀ, shape (m, m), for the linear map ``apply`` from shape (n,) to (m,)."""
        rows = jax.vmap(apply, in_axes=1, out_axes=1)(self.dense())
        return jax.vmap(apply)(rows)

    def root(self) -> Factor:
        """A dense L with L Lᵀ = K, shape (n, r), and the jitter that was needed."""
        return cholesky(self.dense())

    def row_means(self, rows: Any) -> Any:
        """Means of some rows, shape (r,): covariances of values with the average of all."""
        return self.matmul(np.full(self.size, 1 / self.size))[np.asarray(rows)]

    def average(self) -> float:
        """Mean of all entries: the variance of the average."""
        return float(np.mean(np.asarray(self.row_means(np.arange(self.size)))))

    def variances(self, rows: Any) -> Floats:
        """Variances of some values, shape (r,)."""
        rows = np.asarray(rows, dtype=np.intp)
        parts = np.array_split(rows, max(1, -(-rows.size // self._together)))
        return np.concatenate([np.diagonal(self.block(part, part)) for part in parts])

    def relative_variance(self, rows: Any) -> Floats:
        """Variance of some values less the average of all, shape (r,)."""
        return np.maximum(self.variances(rows) - 2 * self.row_means(rows) + self.average(), 0.0)

    def showing(self, progress: Callable[[], Progress]) -> "Covariance":
        """K whose long solves report to a progress that ``progress`` creates."""
        return self

    def low_rank(self, most: int, tol: float, rng: np.random.Generator) -> "LowRank | None":
        """Result of `nystrom` for a kernel matrix; None for others, which have sparse forms."""
        return None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense(Covariance):
    """A covariance held as a matrix, shape (n, n).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from relpref.linalg import Dense
    >>> Dense(jnp.eye(3)).variances([0, 2]).tolist()
    [1.0, 1.0]
    """

    is_matrix: ClassVar[bool] = True
    matrix: Any

    @property
    def size(self) -> int:
        return int(self.matrix.shape[-1])

    def scaled(self, factor: Any) -> "Dense":
        return Dense(factor * self.matrix)

    def dense(self) -> Any:
        return self.matrix

    def pull(self, weights: Any) -> Pulls:
        return {("matrix",): weights}


@dataclass(frozen=True)
class NamedSum(Covariance):
    """A sum of at least one covariance, all of one size; the parts keep their names.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from relpref.linalg import Dense, NamedSum
    >>> parts = {"shared": Dense(jnp.ones((3, 3))), "own": Dense(jnp.eye(3))}
    >>> NamedSum(parts).variances([0, 2]).tolist()
    [2.0, 2.0]
    """

    parts: Mapping[str, Any]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        sizes = {name: part.size for name, part in self.parts.items()}
        if len(set(sizes.values())) != 1:
            raise DataError(f"the parts of a sum have one size, not {sizes or 'none at all'}")
        # In the order they were given: JAX would sort the keys of a plain dictionary.
        object.__setattr__(self, "parts", OrderedDict(self.parts))
        object.__setattr__(self, "size", next(iter(sizes.values())))

    def matmul(self, vectors: Any) -> Any:
        return reduce(add, (part.matmul(vectors) for part in self.parts.values()))

    def block(self, rows: Any, columns: Any) -> Any:
        return reduce(add, (part.block(rows, columns) for part in self.parts.values()))

    def dense(self) -> Any:
        return reduce(add, (part.dense() for part in self.parts.values()))

    def pull(self, weights: Any) -> Pulls:
        slopes = (joined(part.pull(weights), "parts", name) for name, part in self.parts.items())
        return reduce(or_, slopes)

    def row_means(self, rows: Any) -> Any:
        return reduce(add, (part.row_means(rows) for part in self.parts.values()))

    def average(self) -> float:
        return float(sum(part.average() for part in self.parts.values()))

    def scaled(self, factor: Any) -> "NamedSum":
        return NamedSum({name: part.scaled(factor) for name, part in self.parts.items()})

    def in_memory(self) -> "NamedSum":
        return NamedSum({name: part.in_memory() for name, part in self.parts.items()})


register(NamedSum, leaves=("parts",), static=("size",))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BlockDiagonal(Covariance):
    """The joint covariance of one or more independent Gaussian vectors, one after the other."""

    blocks: tuple[Any, ...]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Position of each block in the joint vector."""
        ends = list(accumulate((block.size for block in self.blocks), initial=0))
        return tuple(slice(start, stop) for start, stop in pairwise(ends))

    def pull(self, weights: Any) -> Pulls:
        """Derivatives, see `Covariance`; the weights between blocks do not matter."""
        placed = enumerate(zip(self.blocks, self.slices, strict=True))
        slopes = (
            joined(block.pull(weights[rows, rows]), "blocks", str(at))
            for at, (block, rows) in placed
        )
        return reduce(or_, slopes)

    def scaled(self, factor: Any) -> "BlockDiagonal":
        return BlockDiagonal(tuple(block.scaled(factor) for block in self.blocks))

    def dense(self) -> Any:
        return block_diagonal(block.dense() for block in self.blocks)

    def in_memory(self) -> "BlockDiagonal":
        return BlockDiagonal(tuple(block.in_memory() for block in self.blocks))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Kronecker(Covariance):
    """K ⊗ G: covariance K(v, v') G(w, w') of the pairs (v, w), row by row."""

    left: Any  # K, of size p
    right: Any  # G, of size m

    @property
    def size(self) -> int:
        return int(self.left.size * self.right.size)

    def pull(self, weights: Any) -> Pulls:
        """Derivatives, see `Covariance`, through the weights summed against the other factor."""
        p, m = self.left.size, self.right.size
        blocks, xp = weights.reshape(p, m, p, m), namespace(weights)
        of_left = xp.einsum("iajb,ab->ij", blocks, self.right.dense())
        of_right = xp.einsum("iajb,ij->ab", blocks, self.left.dense())
        left, right = self.left.pull(of_left), self.right.pull(of_right)
        return joined(left, "left") | joined(right, "right")

    def root(self) -> Factor:
        left, right = self.left.root(), self.right.root()
        return Factor(jnp.kron(left.lower, right.lower), jnp.maximum(left.jitter, right.jitter))

    def scaled(self, factor: Any) -> "Kronecker":
        return Kronecker(self.left.scaled(factor), self.right)

    def dense(self) -> Any:
        left, right = self.left.dense(), self.right.dense()
        return namespace(left, right).kron(left, right)

    def in_memory(self) -> "Kronecker":
        left = self.left.in_memory()
        return Kronecker(left, left if self.right is self.left else self.right.in_memory())


@partial(jax.tree_util.register_dataclass, data_fields=("factor", "left_out"), meta_fields=())
@dataclass(frozen=True, eq=False)
class LowRank(Covariance):
    """F Fᵀ, shape (n, n)."""

    factor: Any = None  # F, shape (n, r)
    left_out: float = 0.0  # share of the trace of the approximated matrix

    @property
    def size(self) -> int:
        return int(self.factor.shape[0])

    def matmul(self, vectors: Any) -> Any:
        return self.factor @ (self.factor.T @ vectors)

    def block(self, rows: Any, columns: Any) -> Any:
        return self.factor[np.asarray(rows)] @ self.factor[np.asarray(columns)].T

    def row_means(self, rows: Any) -> Any:
        return self.factor[np.asarray(rows)] @ self.factor.mean(axis=0)

    def dense(self) -> Any:
        return self.factor @ self.factor.T

    def pull(self, weights: Any) -> Pulls:
        return {("factor",): 2 * weights @ self.factor}

    def scaled(self, factor: Any) -> "LowRank":
        return replace(self, factor=root_of(factor) * self.factor)


class ConstantRows(Covariance):
    """A covariance whose rows all have the same mean, because Δ1 = 0."""

    @property
    @abstractmethod
    def row_sum(self) -> float: ...

    def row_means(self, rows: Any) -> Floats:
        return np.full(np.size(rows), self.average())

    def average(self) -> float:
        return float(self.row_sum) / self.size


@partial(jax.tree_util.register_dataclass, data_fields=("amplitude",), meta_fields=("size",))
@dataclass(frozen=True, eq=False)
class Identity(ConstantRows):
    """a² I: ``size`` independent values of one sd, the ``amplitude`` a."""

    sparse_inverse: ClassVar[bool] = True
    size: int
    amplitude: Any = 1.0

    @property
    def scale(self) -> Any:
        """The variance a²."""
        return self.amplitude * self.amplitude

    def matmul(self, vectors: Any) -> Any:
        return self.scale * vectors

    def block(self, rows: Any, columns: Any) -> Floats:
        return np.asarray(self.scale) * np.equal.outer(np.asarray(rows), np.asarray(columns))

    def dense(self) -> Any:
        return self.scale * namespace(self.scale).eye(self.size)

    def pull(self, weights: Any) -> Pulls:
        return {("amplitude",): 2 * self.amplitude * namespace(weights).trace(weights)}

    def scaled(self, factor: Any) -> "Identity":
        return replace(self, amplitude=root_of(factor) * self.amplitude)

    def inverse(self) -> Any:
        """K⁻¹ as a scipy CSR array."""
        return scipy.sparse.eye_array(self.size, format="csr") / float(self.scale)

    @property
    def row_sum(self) -> float:
        """The eigenvalue of vectors that are constant on components of K⁻¹, here of all vectors."""
        return float(self.scale)

    @property
    def is_treelike(self) -> bool:
        """Whether a sparse factor of K⁻¹ is useful; a diagonal needs none."""
        return False


@dataclass(frozen=True, eq=False)
class SparseMatrix(Covariance):
    """K by its entries: a symmetric positive semidefinite scipy CSR array, shape (n, n)."""

    matrix: Any

    @property
    def size(self) -> int:
        return int(self.matrix.shape[0])

    def matmul(self, vectors: Any) -> Floats:
        return np.asarray(self.matrix @ np.asarray(vectors, dtype=np.float64))

    def block(self, rows: Any, columns: Any) -> Floats:
        return np.asarray(self.matrix[np.asarray(rows)][:, np.asarray(columns)].toarray())

    def scaled(self, factor: Any) -> "SparseMatrix":
        return SparseMatrix(float(factor) * self.matrix)


@dataclass(frozen=True, eq=False)
class KernelMatrix(Covariance):
    """K_ij = scale k(x_i, x_j), never stored."""

    _together: ClassVar[int] = 64  # a call costs more than the covariances beside these variances

    # From points of shapes (r, d) and (c, d) to their covariances, shape (r, c).
    function: Callable[[Any, Any], Any]
    points: Floats  # shape (n, d)
    scale: float = 1.0

    def __post_init__(self) -> None:
        points = np.asarray(self.points, dtype=np.float64)
        if points.ndim != 2 or not np.all(np.isfinite(points)):
            raise DataError(
                f"a kernel matrix takes finite points of shape (n, d), not of shape {points.shape}"
                + (" with NaN or infinity" if points.ndim == 2 else "")
            )
        object.__setattr__(self, "points", points)

    @property
    def size(self) -> int:
        return int(self.points.shape[0])

    def matmul(self, vectors: ArrayLike) -> Floats:
        """K times vectors of shape (n,) or (n, k); rows of zeros in the vectors cost nothing."""
        given = np.asarray(vectors, dtype=np.float64)
        used = np.flatnonzero(given.reshape(self.size, -1).any(axis=1))
        product = np.empty(given.shape)
        for rows, entries in self._runs(np.arange(self.size), used):
            product[rows] = entries @ given[used]
        return product

    def block(self, rows: ArrayLike, columns: ArrayLike) -> Floats:
        row, column = (np.asarray(given, dtype=np.intp).reshape(-1) for given in (rows, columns))
        block = np.empty((row.size, column.size))
        for part, entries in self._runs(row, column):
            block[part] = entries
        return block

    def row_means(self, rows: ArrayLike) -> Floats:
        """Means of some rows, from a sample of the columns if these are too many."""
        row = np.asarray(rows, dtype=np.intp).reshape(-1)
        count = min(self.size, max(100, _EVALUATIONS // max(row.size, 1)))
        columns = np.arange(self.size)
        if count < self.size:
            columns = np.random.default_rng(0).choice(self.size, count, replace=False)
        return np.concatenate(
            [np.empty(0), *(entries.mean(axis=1) for _, entries in self._runs(row, columns))]
        )

    def average(self) -> float:
        """Mean of all entries, from a sample of the rows if these are too many."""
        count = self.size if self.size**2 <= _EVALUATIONS // 20 else _SAMPLED
        rows = np.random.default_rng(0).choice(self.size, count, replace=False)
        return float(self.row_means(rows).mean())

    def scaled(self, factor: Any) -> "KernelMatrix":
        return replace(self, scale=float(factor) * self.scale)

    def low_rank(self, most: int, tol: float, rng: np.random.Generator) -> LowRank:
        return nystrom(self, most, tol, rng=rng)

    def _runs(self, rows: NDArray[Any], columns: NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
        """Runs of rows with their entries in some columns."""
        step = max(1, _BLOCK // max(columns.size, 1))
        right = self.points[columns]
        for start in range(0, rows.size, step):
            entries = np.asarray(
                self.function(self.points[rows[start : start + step]], right), dtype=np.float64
            )
            if not np.all(np.isfinite(entries)):
                raise DataError(
                    "the kernel gave NaN or infinity; look at its hyperparameters and at extreme "
                    "attributes"
                )
            yield slice(start, start + step), self.scale * entries


def nystrom(
    matrix: KernelMatrix, most: int, tol: float = 1e-6, *, rng: np.random.Generator | None = None
) -> LowRank:
    """Replace K by ``K_·Z K_ZZ⁻¹ K_Z·`` for points Z chosen by `pivoted_cholesky`.

    This is the Nyström approximation (Williams & Seeger 2001). ``left_out`` of the result bounds
    the largest eigenvalue of the difference, relative to the trace; no variance is overstated.
    """
    everyone = np.arange(matrix.size)
    chosen, left_out = pivoted_cholesky(
        matrix.variances(everyone),
        lambda at: matrix.block(everyone, [at])[:, 0],
        most,
        tol,
        rng=rng,
    )
    # No jitter: every point was chosen for what the others left of its variance.
    root = np.linalg.cholesky(matrix.block(chosen, chosen))
    columns = scipy.linalg.solve_triangular(root, matrix.block(chosen, everyone), lower=True)
    return LowRank(columns.T, left_out)
