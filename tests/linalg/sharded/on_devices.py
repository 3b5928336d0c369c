"""Solves on all devices that JAX sees, beside the same on the host, and prints how far apart they
are: a program for the tests.

The largest difference relative to the largest number, by case, as a line of JSON. Several processes
are told how many they are, which one they are, and where they meet.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
from jax.sharding import Mesh
from numpy.typing import NDArray
from scipy import sparse

from relpref.errors import InferenceError, RelprefError
from relpref.linalg import SparsePrecision
from relpref.linalg.sharded import ShardedEdges, ShardedLaplacian

Floats = NDArray[np.float64]


def gram(size: int, seed: int) -> Floats:
    points = np.random.default_rng(seed).standard_normal((size, 3))
    return np.exp(-0.5 * np.sum((points[:, None] - points) ** 2, axis=-1))


def apart(found: Any, expected: Any) -> float:
    return float(
        np.max(np.abs(np.asarray(found) - np.asarray(expected))) / np.max(np.abs(expected))
    )


def edges(swap: Any, centred: bool, complete: bool, mesh: Mesh) -> float:
    """Against the kernel matrix of the edges; incomplete relations have edges that occur several
    times and nodes without any.
    """
    rng = np.random.default_rng(1)
    left = gram(19, 2)
    right = gram(13, 3) if swap == "none" else left
    shape = (19, len(right))
    if complete:
        rows, columns = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    else:
        rows, columns = rng.integers(3, 17, 90), rng.integers(0, shape[1], 90)
    kernel = left[np.ix_(rows, rows)] * right[np.ix_(columns, columns)]
    if swap != "none":
        swapped = left[np.ix_(rows, columns)] * left[np.ix_(columns, rows)]
        kernel = 0.5 * (kernel + swapped if swap == "symmetric" else kernel - swapped)
    centring = np.eye(len(rows))
    if centred:
        together = rows[:, None] == rows
        centring -= together / together.sum(axis=1)
    labels = centring @ rng.standard_normal(len(rows))
    operator = ShardedEdges(left, right, rows, columns, mesh, swap=swap, centered=centred)
    found = operator.solve(labels, 0.5, tol=1e-13)
    assert found.reason == "converged"
    assert operator.solve(labels, 0.5, tol=1e-12, start=found.solution).iterations == 0
    system = centring @ kernel @ centring + 0.5 * np.eye(len(rows))
    return apart(found.solution, np.linalg.solve(system, labels))


def graph() -> tuple[Any, Floats]:
    """Links with a hub and nodes without any, and the Laplacian as a dense matrix."""
    rng = np.random.default_rng(4)
    ends = np.append(
        rng.integers(0, 50, (2, 120)), [np.zeros(40, dtype=int), np.arange(1, 41)], axis=1
    )
    dense = np.zeros((61, 61))
    dense[ends[0], ends[1]] = rng.uniform(0.5, 2.0, 160)
    dense += dense.T
    np.fill_diagonal(dense, 0.0)
    return sparse.csr_array(dense), np.diag(dense.sum(axis=1)) - dense


def laplacian(mesh: Mesh) -> float:
    """More right-hand sides than are solved together, among them zeros and a constant."""
    adjacency, dense = graph()
    rhs = np.random.default_rng(7).standard_normal((61, 11))
    rhs[:, 1], rhs[:, 9] = 0.0, 3.0
    solver = ShardedLaplacian(adjacency, mesh)
    found = solver.solve(0.2, rhs, 1e-12)
    assert f"on {mesh.size} devices" in found.method
    try:
        solver.solve(0.2, rhs[:, :8], 1e-25)
        raise AssertionError("a tolerance that cannot be reached was")
    except InferenceError as error:
        assert "1e-25 was asked for" in str(error)
    return apart(found.values, np.linalg.solve(dense + 0.2 * np.eye(61), rhs))


def covariance(mesh: Mesh) -> float:
    """A graph's prior: products and blocks, also at a small shift."""
    adjacency, dense = graph()
    solver = ShardedLaplacian(adjacency, mesh)
    shift, vector = 1e-3, np.random.default_rng(8).standard_normal(61)
    prior = SparsePrecision(solver, shift, 2.0, tol=1e-13)
    inverse = np.linalg.inv(dense + shift * np.eye(61))
    rows, columns = np.array([3, 60, 0]), np.array([0, 41, 7, 3, 12])
    return max(
        apart(prior.matmul(vector), 2.0 * inverse @ vector),
        apart(prior.block(rows, columns), 2.0 * inverse[np.ix_(rows, columns)]),
    )


def exact(mesh: Mesh) -> float:
    """The engine, from a program to scores."""
    from relpref import RelationData
    from relpref.infer import Exact
    from relpref.models import conditional_ranking

    rng = np.random.default_rng(5)
    nodes = pd.DataFrame(rng.normal(size=(11, 2)), columns=["x", "y"])
    labels = rng.normal(size=(11, 11))
    data = RelationData.from_tables(
        nodes, np.where(rng.random((11, 11)) < 0.7, labels - labels.T, np.nan)
    )
    fixed = {"attributes_amplitude": 1.2, "attributes_lengthscale": 0.9, "noise": 0.4}
    engine = partial(Exact, partial(conditional_ranking, loss="ranking"), fixed=fixed, tol=1e-13)
    found = engine(mesh=mesh).run(0, data)
    assert found.info["solver"] == "conjugate gradients"
    return apart(found.mean(), engine().run(0, data).mean())


def other_device(mesh: Mesh) -> float:
    """A dense engine where the second device, not the first, is the one to be used."""
    from relpref import PreferenceData
    from relpref.infer import EP
    from relpref.models import xpgp

    rng = np.random.default_rng(6)
    items = pd.DataFrame(rng.normal(size=(8, 2)), columns=["x", "y"], index=list("abcdefgh"))
    pairs = [rng.choice(8, 2, replace=False) for _ in range(12)]
    answers = pd.DataFrame(
        [(items.index[i], items.index[j]) for i, j in pairs], columns=["winner", "loser"]
    )
    data = PreferenceData.from_tables(items, answers)
    fixed = {"attributes_amplitude": 1.0, "attributes_lengthscale": 1.0}

    def means() -> Floats:
        return EP(xpgp, fixed=fixed).run(0, data).mean()

    here = means()
    with jax.default_device(mesh.devices[1]):
        return apart(means(), here)


def deserted(mesh: Mesh) -> float:
    """A long solve in the midst of which the last process ends."""
    adjacency, _ = graph()

    def leave(*_: int) -> None:
        if jax.process_index() == jax.process_count() - 1:
            os._exit(3)

    try:
        ShardedLaplacian(adjacency, mesh).solve(0.2, np.eye(61), progress=leave)
    except RelprefError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)  # the others are not waited for
    return 0.0


CASES: dict[str, Callable[[Mesh], float]] = {
    "laplacian": laplacian,
    "covariance": covariance,
    "exact": exact,
    "deserted": deserted,
    "other_device": other_device,
    **{
        f"{symmetry}-{'ranking' if ranking else 'regression'}-{'complete' if complete else 'incomplete'}": partial(
            edges, symmetry, ranking, complete
        )
        for symmetry in ("none", "symmetric", "reciprocal")
        for ranking in (False, True)
        for complete in (False, True)
    },
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+", choices=list(CASES))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.processes > 1:
        address = f"127.0.0.1:{given.port}"
        jax.distributed.initialize(
            address, given.processes, given.process, initialization_timeout=60
        )
    mesh = Mesh(np.array(jax.devices()), ("device",))
    found = {case: CASES[case](mesh) for case in given.cases}
    json.dump({"devices": mesh.size, **found}, sys.stdout)


if __name__ == "__main__":
    main()
