"""EP with a sparse posterior precision against EP by dense factors, and its estimates against exact
numbers.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.scipy.special import log_ndtr
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from relpref.errors import DataError
from relpref.infer.evidence import log_of_sites
from relpref.infer.large.spaces import SeenRows, known_posterior
from relpref.infer.large.sparse_ep import Fitted, fit
from relpref.infer.rows import DenseRows, SparseRows
from relpref.infer.sites import Problem, Sites, cavities, run
from relpref.infer.spaces import LatentSpace
from relpref.likelihoods import TiltedMoments
from relpref.linalg import KernelMatrix, LaplacianSolver, LowRank, SparsePrecision
from relpref.linalg.factor import cholesky
from relpref.result import Result

Floats = NDArray[np.float64]

NUM_ITEMS, NUM_ROWS = 120, 260


@jax.jit
def probit(mean: jax.Array, variance: jax.Array) -> TiltedMoments:
    """Of answers that the first item of each row is preferred (Rasmussen & Williams eq. 3.58)."""
    scale = 1 / jnp.sqrt(1 + variance)
    z = mean * scale
    ratio = jnp.exp(-0.5 * z * z - 0.5 * jnp.log(2 * jnp.pi) - log_ndtr(z))
    return TiltedMoments(log_ndtr(z), ratio * scale, ratio * (z + ratio) * scale**2)


def moments(mean: Floats, variance: Floats) -> TiltedMoments:
    return TiltedMoments(*map(np.asarray, probit(mean, variance)))


class Case(NamedTuple):
    """A problem of the one shape."""

    parts: dict[str, Any]
    seen: SeenRows
    counts: Floats


class Truth(NamedTuple):
    """What the dense engine's algebra finds."""

    sites: Sites
    mean: Floats
    covariance: Floats
    gap_variance: Floats
    log_evidence: float
    sweeps: int


def graph(rng: np.random.Generator, kind: str) -> Any:
    """Adjacency of a random, a star-like or a chain-like graph with isolated nodes."""
    n = NUM_ITEMS
    if kind == "chain":
        ends = np.stack([np.arange(n - 21), np.arange(1, n - 20)], axis=1)
    elif kind == "hub":
        ends = np.stack([np.zeros(n - 1, int), np.arange(1, n)], axis=1)
    else:
        ends = np.unique(np.sort(rng.integers(0, n, (3 * n, 2)), axis=1), axis=0)
        ends = ends[ends[:, 0] != ends[:, 1]]
    weight = rng.uniform(0.5, 2, len(ends))
    upper = scipy.sparse.coo_array((weight, tuple(ends.T)), shape=(n, n))
    return scipy.sparse.csr_array(upper + upper.T)


def relation(kind: str, shift: float = 0.5, scale: float = 8.0, seed: int = 0) -> SparsePrecision:
    return SparsePrecision(LaplacianSolver(graph(np.random.default_rng(seed), kind)), shift, scale)


def attributes(rank: int = 5) -> LowRank:
    return LowRank(np.random.default_rng(9).standard_normal((NUM_ITEMS, rank)))


def case(parts: dict[str, Any], seed: int = 0, gaps: bool = True) -> Case:
    """Random rows; those that are no gaps look at one item, at one twice, or with other weights."""
    rng = np.random.default_rng(seed)
    column = rng.integers(0, NUM_ITEMS, (NUM_ROWS, 2))
    entry = np.tile([1.0, -1.0], (NUM_ROWS, 1))
    if gaps:
        column[:, 1] = (column[:, 0] + rng.integers(1, NUM_ITEMS, NUM_ROWS)) % NUM_ITEMS
    else:
        entry *= rng.uniform(0.5, 2, entry.shape)
        entry[::5, 1] = 0
        column[::7, 1] = column[::7, 0]
    matrix = np.zeros((NUM_ROWS, NUM_ITEMS))
    np.add.at(matrix, (np.arange(NUM_ROWS)[:, None], column), entry)
    rows = SparseRows.of(matrix)
    assert rows is not None
    return Case(parts, SeenRows.alone(rows), rng.choice([0.0, 1, 1, 1, 3], NUM_ROWS))


CASES: dict[str, Callable[[], Case]] = {
    "one relation": lambda: case({"cites": relation("random")}),
    "a hub": lambda: case({"cites": relation("hub")}),
    "long ranges and isolated nodes": lambda: case({"next": relation("chain", 1e-3, 0.5)}),
    "relations and attributes": lambda: case(
        {"cites": relation("random"), "next": relation("chain", 0.1), "attributes": attributes()}
    ),
    "attributes alone": lambda: case({"attributes": attributes()}),
    "rows that are no gaps": lambda: case({"cites": relation("random")}, gaps=False),
}


def prior(parts: dict[str, Any]) -> Floats:
    total = np.zeros((NUM_ITEMS, NUM_ITEMS))
    for part in parts.values():
        if isinstance(part, LowRank):
            total += part.factor @ part.factor.T
        else:
            precision = part.solver.laplacian().toarray() + part.shift * np.eye(NUM_ITEMS)
            total += part.scale * np.linalg.inv(precision)
    return total


def rows_of(problem: Case) -> Floats:
    return np.asarray(problem.seen.rows.matrix.toarray())


def mean_of(found: Fitted) -> Floats:
    return np.asarray(sum(found.means.values()))


@jax.jit
def dense_ep(covariance: jax.Array, matrix: jax.Array, counts: jax.Array) -> Any:
    root = cholesky(covariance).lower
    space = LatentSpace(root, DenseRows(matrix), jnp.zeros(()))
    problem = Problem(space, counts, probit)
    nothing = jnp.zeros(len(counts))
    found, log_normalizer, info = run(problem, Sites(nothing, nothing), 1e-9, 300)
    cavity = cavities(counts, found.sites, found.marginals)
    pull = counts * found.sites.shift
    log_evidence = (
        log_of_sites(counts, log_normalizer, found.sites, cavity).sum()
        - found.marginals.log_determinant
        + 0.5 * jnp.vdot(pull, found.marginals.mean)
    )
    white = found.factor.white
    mean = white @ (white.T @ (matrix.T @ pull))
    return found.sites, mean, white @ white.T, found.marginals.variance, log_evidence, info.sweeps


@cache
def truth_of(name: str) -> Truth:
    problem = CASES[name]()
    with jax.enable_x64(True):
        found = dense_ep(prior(problem.parts), rows_of(problem), problem.counts)
        return Truth(*jax.tree.map(np.asarray, found))


def run_sparse(problem: Case, **options: Any) -> Fitted:
    return fit(*problem, moments, **{"tol": 1e-8, **options})


@cache
def exact(name: str) -> Fitted:
    return run_sparse(CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_the_same_fixed_point_as_dense_factors(name: str) -> None:
    problem = CASES[name]()
    truth, found = truth_of(name), exact(name)
    answered = problem.counts > 0
    assert found.result is Result.converged
    assert found.info["variances"] == "factorised"
    assert found.info["iterations"] <= truth.sweeps
    for ours, theirs in zip(found.sites.values(), truth.sites, strict=True):
        assert_allclose(np.asarray(ours)[answered], np.asarray(theirs)[answered], atol=1e-6)
    deviation = np.sqrt(np.diag(truth.covariance))
    assert np.max(np.abs(mean_of(found) - truth.mean) / deviation) < 1e-5
    assert_allclose(found.gaps.value, truth.gap_variance, rtol=1e-5)
    assert_allclose((rows_of(problem) @ mean_of(found)), rows_of(problem) @ truth.mean, atol=1e-5)
    assert found.log_evidence == pytest.approx(truth.log_evidence, abs=1e-6)
    assert found.info["log_evidence_error"] == 0
    assert_array_equal(found.gaps.error, 0)


@pytest.mark.parametrize("name", CASES)
def test_the_posterior_covariance(name: str) -> None:
    problem = CASES[name]()
    truth, found = truth_of(name), exact(name)
    weights = problem.counts * found.sites["precision"]
    start = Sites(found.sites["precision"], found.sites["shift"])
    sparse = run_sparse(problem, start=start, sampled=True, max_sweeps=1).covariance
    restored = known_posterior(problem.parts, problem.seen, weights)
    scale = np.max(np.diag(truth.covariance))
    for covariance in (found.covariance, sparse, restored):
        assert covariance is not None
        few, many = np.array([3, 100, 3]), np.arange(NUM_ITEMS)
        assert_allclose(covariance.block(many, few), truth.covariance[:, few], atol=1e-5 * scale)
        assert_allclose(covariance.block(few, many), truth.covariance[few], atol=1e-5 * scale)
        assert_allclose(
            covariance.row_means(few), truth.covariance[few].mean(axis=1), atol=1e-5 * scale
        )
        vectors = np.random.default_rng(0).standard_normal((NUM_ITEMS, 2))
        assert_allclose(covariance.matmul(vectors), truth.covariance @ vectors, atol=1e-4 * scale)


def test_parts_add_up_and_are_their_own() -> None:
    """E[part | answers] is the part's prior covariance times Aᵀβ, β the dual vector."""
    problem = CASES["relations and attributes"]()
    found = exact("relations and attributes")
    shift, precision = (problem.counts * found.sites[name] for name in ("shift", "precision"))
    pull = rows_of(problem).T @ (shift - precision * (rows_of(problem) @ mean_of(found)))
    for name, part in problem.parts.items():
        assert_allclose(found.means[name], prior({name: part}) @ pull, atol=1e-5)


def test_a_part_of_no_amplitude_is_left_out() -> None:
    problem = CASES["one relation"]()
    off = {"off": relation("chain", scale=0.0), **problem.parts}
    with_it, without = run_sparse(problem._replace(parts=off)), exact("one relation")
    assert_allclose(mean_of(with_it), mean_of(without))
    assert set(with_it.means) == {"cites"}


SAMPLED = [name for name in CASES if name != "attributes alone"]


@pytest.mark.parametrize("name", SAMPLED)
def test_estimates_err_as_much_as_they_say(name: str) -> None:
    """At the same sites, and at the fixed point. 64 samples: the root mean square of the
    standardised errors leaves these bounds once in thousands of keys.
    """
    problem = CASES[name]()
    truth = truth_of(name)
    found = run_sparse(problem, start=truth.sites, sampled=True, max_sweeps=1)
    assert found.info["variances"] == "sampled"
    standardised = (found.gaps.value - truth.gap_variance) / found.gaps.error
    assert 0.6 < np.sqrt(np.mean(standardised**2)) < 1.7
    assert np.mean(found.gaps.error / truth.gap_variance) < 0.08
    found = run_sparse(problem, sampled=True, key=1)
    assert found.result is Result.converged
    off = mean_of(found) - truth.mean
    assert np.max(np.abs(off) / np.sqrt(np.diag(truth.covariance))) < 0.05
    assert 0.3 < np.sqrt(np.mean((off / found.mean_error) ** 2)) < 3
    assert abs(found.log_evidence - truth.log_evidence) < 4 * found.info["log_evidence_error"] < 8


def test_the_same_key_gives_the_same_numbers() -> None:
    problem = CASES["one relation"]()
    first, again, other = (
        run_sparse(problem, sampled=True, key=key) for key in (3, jax.random.key(3), 4)
    )
    assert_array_equal(mean_of(first), mean_of(again))
    assert first.log_evidence == again.log_evidence != other.log_evidence


def test_progress_is_told() -> None:
    told: list[tuple[int, float]] = []
    found = run_sparse(CASES["a hub"](), progress=lambda *step: told.append(step))
    assert [number for number, _ in told] == list(range(1, found.info["iterations"] + 1))
    assert told[-1][1] <= 1e-8


def nothing_is_plausible(found: Fitted) -> bool:
    numbers: list[Any] = [*found.sites.values(), mean_of(found), found.log_evidence]
    nothing = found.covariance is None and found.gaps is None
    return nothing and all(np.all(np.isnan(values)) for values in numbers)


def test_a_solve_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relpref.infer.large.sparse._MOST_STEPS", 1)
    found = run_sparse(CASES["one relation"](), sampled=True)
    assert found.result is Result.iterations_not_converged
    assert "after 1 products" in found.info["detail"]
    assert nothing_is_plausible(found)


@pytest.mark.parametrize(
    ("curvature", "result"), [(np.nan, Result.nonfinite), (-0.1, Result.negative_precision)]
)
def test_what_a_likelihood_should_not_say_is_named(curvature: float, result: Result) -> None:
    problem = CASES["one relation"]()

    def odd(mean: Any, variance: Any) -> TiltedMoments:
        return moments(mean, variance)._replace(curvature=np.full(NUM_ROWS, curvature))

    found = fit(*problem, odd)
    assert found.result is result
    assert nothing_is_plausible(found)


def test_sweeps_that_are_used_up_are_named() -> None:
    found = run_sparse(CASES["one relation"](), max_sweeps=2)
    assert found.result is Result.max_iterations
    assert np.all(np.isfinite(mean_of(found)))


def test_bad_input_is_named() -> None:
    other = KernelMatrix(lambda rows, columns: rows @ columns.T, np.ones((NUM_ITEMS, 1)))
    arguments = {**CASES["one relation"]()._asdict(), "parts": {"k": other}}
    with pytest.raises(DataError, match="KernelMatrix"):
        fit(**arguments, tilted=probit)


def test_what_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relpref.limits.available_memory", lambda: 1e5)
    for sampled in (False, True):
        with pytest.raises(DataError, match="EP with a sparse precision needs"):
            run_sparse(CASES["one relation"](), sampled=sampled)
