"""The engines on every kind of device that JAX sees, beside one CPU device of the same machine.

python -m benchmarks.devices                 # an accelerator where there is one, else the devices
of the host python -m benchmarks.devices --devices 4     # the host as four devices python -m
benchmarks.devices --scale 0.1     # small versions
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure import alternate, machine, median, table
from benchmarks.problems import Array, make

if TYPE_CHECKING:
    from jax.sharding import Mesh

ITERATIONS = 20  # of conjugate gradients on edges
ITEMS = (1000, 3000)
NODES = (1000, 2000)
GRAPH = (200_000, 2_000_000)  # nodes, links

Contestants = Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True)
class Relation:
    """A complete relation of nodes with themselves."""

    gram: Array
    labels: Array


@dataclass(frozen=True)
class Graph:
    """A sparse graph and right-hand sides."""

    adjacency: Any
    rhs: Array


def main() -> None:
    """Parse the command line, time everything and print Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices", description=__doc__)
    parser.add_argument("--devices", type=int, help="make the host so many devices")
    parser.add_argument("--repeats", type=int, default=3, help="calls after the first (default: 3)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="of the problems' sizes (default: 1)"
    )
    args = parser.parse_args()
    if args.devices is not None:  # before JAX is imported
        flag = f"--xla_force_host_platform_device_count={args.devices}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    meshes = found_meshes(parser)
    print(f"# Devices\n\n{machine()}\n* JAX sees: {', '.join(meshes)}\n")
    print(
        table(["problem", "on", "median s", "range, s", "times as fast"], rows(meshes, args)),
        flush=True,
    )


def found_meshes(parser: argparse.ArgumentParser) -> dict[str, Mesh]:
    """One device of the host first; then one, two, four and so on of what JAX would use."""
    import jax
    from jax.sharding import Mesh

    try:
        host = jax.devices("cpu")
    except RuntimeError:
        parser.error("JAX sees no CPU to compare with; add it: JAX_PLATFORMS=cuda,cpu")
    used = jax.devices()
    meshes = {"1 cpu": Mesh(np.array(host[:1]), ("device",))}
    counts = sorted({2**power for power in range(len(used).bit_length())} | {len(used)})
    for count in counts:
        meshes[f"{count} {used[0].platform}"] = Mesh(np.array(used[:count]), ("device",))
    return meshes


def rows(meshes: dict[str, Mesh], args: argparse.Namespace) -> list[list[str]]:
    found = []
    single = {name: mesh for name, mesh in meshes.items() if mesh.size == 1}
    for size in ITEMS:
        n = max(20, round(args.scale * size))
        problems = [make(n, 3 * n, seed) for seed in range(3)]
        found += timed(
            f"EP, {n} items, {3 * n} answers", preferences(single), problems, args.repeats
        )
    for size in NODES:
        p = max(20, round(args.scale * size))
        found += timed(
            f"Kronecker, {p} x {p} labels, {ITERATIONS} iterations",
            relations(meshes),
            [relation(p, seed) for seed in range(3)],
            args.repeats,
        )
    n, links = (max(100, round(args.scale * size)) for size in GRAPH)
    graphs = [graph(n, links, seed) for seed in range(3)]
    found += timed(
        f"Laplacian, {n} nodes, {links} links, 8 columns", laplacians(meshes), graphs, args.repeats
    )
    return found


def timed(
    name: str, contestants: Contestants, problems: list[Any], repeats: int
) -> list[list[str]]:
    """A row for each contestant, compared with the first."""
    timings, answers = alternate(contestants, problems, None, repeats)
    first = next(iter(contestants))
    for other, answer in answers.items():
        np.testing.assert_allclose(
            answer, answers[first], atol=1e-5 * np.max(np.abs(answers[first])), err_msg=other
        )
    base = median(timings[first].warm)
    found = []
    for on, timing in timings.items():
        each = median(timing.warm)
        span = f"{min(timing.warm):.3g} to {max(timing.warm):.3g}"
        found.append([name, on, f"{each:.3g}", span, f"{base / each:.2f}"])
    return found


def preferences(meshes: dict[str, Mesh]) -> Contestants:
    """EP at the true hyperparameters, from tables to utilities."""
    import jax

    from benchmarks import ours

    fit = ours.fixed()

    def on(mesh: Mesh, problem: Any) -> Array:
        with jax.default_device(mesh.devices[0]):
            return fit(problem).mean

    return {name: partial(on, mesh) for name, mesh in meshes.items()}


def relation(nodes: int, seed: int) -> Relation:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((nodes, 5))
    squared = np.sum(features**2, axis=1)
    gram = np.exp(-0.2 * np.maximum(squared[:, None] + squared - 2.0 * features @ features.T, 0.0))
    return Relation(gram, rng.standard_normal(nodes**2))


def relations(meshes: dict[str, Mesh]) -> Contestants:
    """Conjugate gradients of the ranking loss, so many iterations; and by NumPy, which a fit
    without a mesh uses.
    """
    from relpref.infer.exact import solve_edges
    from relpref.kernels import EdgeGram, Kronecker, Side

    def on(mesh: Mesh | None, problem: Relation) -> Array:
        side = Side.training(problem.gram)
        rows, columns = np.divmod(np.arange(problem.gram.size), len(problem.gram))
        gram = EdgeGram(Kronecker(), side, side, rows, columns)
        found = solve_edges(
            gram, problem.labels, 1.0, groups=rows, tol=0.0, max_iterations=ITERATIONS, mesh=mesh
        )
        return found.solution

    return {name: partial(on, mesh) for name, mesh in meshes.items()} | {"NumPy": partial(on, None)}


def graph(nodes: int, links: int, seed: int) -> Graph:
    """A power law: node i is an end of a link in proportion to i^-0.7."""
    from scipy import sparse

    rng = np.random.default_rng(seed)
    weight = np.arange(1, nodes + 1) ** -0.7
    ends = rng.choice(nodes, (2, links), p=weight / weight.sum())
    ends = ends[:, ends[0] != ends[1]]
    adjacency = sparse.coo_array((np.ones(ends.shape[1]), ends), shape=(nodes, nodes)).tocsr()
    return Graph(adjacency + adjacency.T, rng.standard_normal((nodes, 8)))


def laplacians(meshes: dict[str, Mesh]) -> Contestants:
    """(Δ + 1)⁻¹ B, the graph's layout included; and by the host's solver, which a fit uses."""
    from relpref.linalg import LaplacianSolver
    from relpref.linalg.sharded import ShardedLaplacian

    def on(mesh: Mesh | None, problem: Graph) -> Array:
        solver = (
            LaplacianSolver(problem.adjacency)
            if mesh is None
            else ShardedLaplacian(problem.adjacency, mesh)
        )
        return solver.solve(1.0, problem.rhs, 1e-6).values

    return {name: partial(on, mesh) for name, mesh in meshes.items()} | {"NumPy": partial(on, None)}


if __name__ == "__main__":
    main()
