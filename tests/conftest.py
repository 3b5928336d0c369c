"""Fixtures of several rooms: real data, a cluster, problems of one shape (JAX compiles once for all
of them), and another EP.
"""

import gc
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import log_ndtr

from relpref.data import PreferenceData

gc.set_threshold(50_000, 20, 100)  # looking for cycles took a tenth of the time while JAX traces

Floats = NDArray[np.float64]
ROOT = Path(__file__).parents[1]


def pytest_collection_finish() -> None:
    """Leave out what is imported where cycles are looked for."""
    gc.freeze()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data files."""
    folder = os.environ.get("RELPREF_DATA")
    if not folder:
        pytest.skip("RELPREF_DATA is not set: there are no real data files to read")
    return Path(folder)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium that is installed already."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the browser is driven by playwright"
    )
    paths = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    path = next(filter(None, paths), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def reloaded(tmp_path: Path) -> Callable[[Any], Any]:
    """Save a posterior and read it again; saved again, it is the same file."""

    def reload(posterior: Any) -> Any:
        import relpref

        files = tmp_path / "one.nc", tmp_path / "two.nc"
        posterior.save(files[0])
        again: Any = relpref.load(files[0])
        again.save(files[1])
        assert files[0].read_bytes() == files[1].read_bytes()
        return again

    return reload


class Cluster:
    """Processes of a cluster, to be killed one by one."""

    def __init__(self, folder: Path, workers: int, stack: ExitStack) -> None:
        self.file = folder / "scheduler.json"
        self.stack = stack
        local = ["--host", "127.0.0.1"]
        self.scheduler = self._start(
            "scheduler", "--port", "0", "--dashboard-address", "127.0.0.1:0", *local
        )
        self.workers = [
            self._start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", *local)
            for _ in range(workers)
        ]
        while not self.file.exists() or not self.file.read_text().endswith("}"):
            assert self.scheduler.poll() is None
            time.sleep(0.02)
        self.address: str = json.loads(self.file.read_text())["address"]

    def _start(self, what: str, *options: str) -> "subprocess.Popen[bytes]":
        script = (
            f"import signal, sys; from distributed.cli.dask_{what} import main; sys.exit(main())"
        )
        command = [sys.executable, "-c", script, "--scheduler-file", str(self.file), *options]
        paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "OPENBLAS_NUM_THREADS": "1",
        }
        nowhere = subprocess.DEVNULL
        process = subprocess.Popen(
            command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=environment
        )
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[[int], Cluster]]:
    """A Dask scheduler and some workers, as they are started by hand."""
    with ExitStack() as running:
        yield lambda workers: Cluster(tmp_path, workers, running)


@pytest.fixture
def two(start_cluster: Callable[[int], Cluster]) -> Cluster:
    """A cluster with two workers."""
    return start_cluster(2)


# Every small problem has so many items, attributes, distinct answers and links.
NUM_ITEMS, NUM_ATTRIBUTES, NUM_COMPARISONS, NUM_LINKS = 12, 2, 30, 14
LINKS = [(i, i + 1) for i in range(NUM_ITEMS - 1)] + [(0, 5), (2, 9), (4, 11)]
HYPERPARAMETERS = {
    "attributes_amplitude": 1.3,
    "attributes_lengthscale": [0.8, 1.7],
    "attributes_linear_share": 0.4,
    "next_amplitude": 0.9,
    "next_range": 1.4,
    "individual_amplitude": 0.6,
}


class Truth(NamedTuple):
    """Result of the sequential EP; ``shift`` and ``precision`` have one entry for each answer."""

    mean: Floats
    covariance: Floats
    log_evidence: float
    precision: Floats
    shift: Floats


@pytest.fixture(scope="session")
def hyperparameters() -> dict[str, Any]:
    return dict(HYPERPARAMETERS)


@pytest.fixture(scope="session")
def samples(hyperparameters: dict[str, Any]) -> dict[str, Any]:
    """Eight draws of the sites."""
    rng = np.random.default_rng(0)
    drawn = {
        name: np.exp(rng.normal(0, 0.1, (8, *np.shape(value))))
        for name, value in hyperparameters.items()
    }
    return drawn | {"utility": rng.standard_normal((8, NUM_ITEMS))}


@pytest.fixture(scope="session")
def labels() -> list[str]:
    return [f"e{row}" for row in range(NUM_ITEMS)]


@pytest.fixture(scope="session")
def make_data(labels: list[str]) -> Callable[..., PreferenceData]:
    """Make a data set of this shape; parts that are not given are random."""

    def make(
        seed: int = 0,
        *,
        names: Any = None,
        attributes: Any = None,
        pairs: Any = None,
        count: Any = None,
        links: Any = LINKS,
    ) -> PreferenceData:
        rng = np.random.default_rng(seed)
        names = list(labels if names is None else names)
        n = len(names)
        if attributes is None:
            attributes = rng.standard_normal((n, NUM_ATTRIBUTES))
        if pairs is None:
            every = [(i, j) for i in range(n) for j in range(n) if i != j]
            utility = attributes @ [1.0, -0.5]
            chance = np.array([1 / (1 + np.exp(2 * (utility[j] - utility[i]))) for i, j in every])
            chosen = rng.choice(len(every), NUM_COMPARISONS, replace=False, p=chance / chance.sum())
            pairs = [every[k] for k in chosen]
        index = pd.Index(names, dtype=object, tupleize_cols=False)
        items = pd.DataFrame(attributes, columns=["x", "y"], index=index)
        comparisons = pd.DataFrame(
            {
                "winner": pd.Series([names[i] for i, _ in pairs], dtype=object),
                "loser": pd.Series([names[j] for _, j in pairs], dtype=object),
                "count": np.ones(len(pairs), int) if count is None else count,
            }
        )
        edges = pd.DataFrame(
            {
                "source": pd.Series([names[i] for i, _ in links], dtype=object),
                "target": pd.Series([names[j] for _, j in links], dtype=object),
            }
        )
        return PreferenceData.from_tables(items, comparisons, {"next": edges})

    return make


@pytest.fixture(scope="session")
def data(make_data: Callable[..., PreferenceData]) -> PreferenceData:
    """Data of most tests; some answers were given several times."""
    count = np.random.default_rng(5).choice([1, 1, 1, 2, 4], NUM_COMPARISONS)
    return make_data(0, count=count)


@pytest.fixture(scope="session")
def fit() -> Callable[..., Any]:
    """EP on `xpgp` at one value of the hyperparameters, with its defaults otherwise."""

    def run(
        data: PreferenceData, fixed: Any = HYPERPARAMETERS, key: int = 0, **options: Any
    ) -> Any:
        # What the engine itself gives, without what the check of a fit may put right.
        options = {"hyperparameters": "maximize", "check": False, **options}
        import jax

        from relpref.infer import EP
        from relpref.models import xpgp

        return EP(xpgp, fixed=fixed, **options).run(jax.random.key(key), data)

    return run


@pytest.fixture(scope="session")
def posterior(fit: Callable[..., Any], data: PreferenceData) -> Any:
    """At fixed hyperparameters."""
    return fit(data)


@pytest.fixture(scope="session")
def maximised(fit: Callable[..., Any], data: PreferenceData) -> Any:
    """At the hyperparameters that EP found."""
    return fit(data, fixed=None)


def prior_parts(
    data: PreferenceData,
    hyperparameters: Mapping[str, Any],
    reference: PreferenceData | None = None,
) -> dict[str, Floats]:
    """The covariances of `xpgp`, scaled by the data of reference."""
    reference = data if reference is None else reference
    old = reference.attributes
    points = (data.attributes - old.mean(axis=0)) / old.std(axis=0)
    lengthscale = np.broadcast_to(hyperparameters["attributes_lengthscale"], points.shape[1])
    n = data.num_items
    share, weights = hyperparameters["attributes_linear_share"], lengthscale**-2.0
    squared = cdist(points / lengthscale, points / lengthscale, "sqeuclidean")
    linear = (weights * points) @ points.T / np.sum(weights)
    attributes = (1 - share) * np.exp(-0.5 * squared) + share * linear
    scale = (
        mean_gap_variance(laplacian_kernel(reference, hyperparameters["next_range"]), reference) / 2
    )
    relation = laplacian_kernel(data, hyperparameters["next_range"]) / scale
    return {
        "attributes": hyperparameters["attributes_amplitude"] ** 2 * attributes,
        "next": hyperparameters["next_amplitude"] ** 2 * relation,
        "individual": hyperparameters["individual_amplitude"] ** 2 * np.eye(n),
    }


def laplacian_kernel(data: PreferenceData, reach: float) -> Floats:
    graph = data.relations["next"]
    laplacian = np.zeros((data.num_items, data.num_items))
    for i, j, w in zip(graph.source, graph.target, graph.weight, strict=True):
        laplacian[[i, j], [i, j]] += w
        laplacian[[i, j], [j, i]] -= w
    return np.asarray(
        np.linalg.inv(laplacian + np.eye(data.num_items) / reach**2), dtype=np.float64
    )


def mean_gap_variance(covariance: Floats, data: PreferenceData) -> float:
    component = data.relations["next"].component
    own, (low, high) = np.diagonal(covariance), np.triu_indices(len(covariance), 1)
    gaps = own[low] + own[high] - 2 * covariance[low, high]
    return float(gaps[component[low] == component[high]].mean())


@pytest.fixture(scope="session")
def parts() -> Callable[..., dict[str, Floats]]:
    return prior_parts


def probit(sign: float, mean: float, variance: float) -> tuple[float, float, float]:
    """log Ẑ, its derivative in the mean, and its second derivative times −1 (Rasmussen & Williams
    eq. 3.58).
    """
    scale = 1 / np.sqrt(1 + variance)
    z = sign * mean * scale
    ratio = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    return float(log_ndtr(z)), float(sign * ratio * scale), float(ratio * (z + ratio) * scale**2)


def sequential_ep(
    covariance: Floats,
    projection: Floats,
    tilted: Callable[[int, float, float], tuple[float, float, float]] = lambda s, m, v: probit(
        1.0, m, v
    ),
    sweeps: int = 400,
) -> Truth:
    """One site after the other, each followed by a rank-one update (Rasmussen & Williams algorithm
    3.5).
    """
    m = len(projection)
    precision, shift = np.zeros(m), np.zeros(m)
    # Where the prior sees no gap at all, an answer says nothing: its site stays flat.
    seen = np.einsum("mi,ij,mj->m", projection, covariance, projection) > 1e-12 * np.trace(
        covariance
    )

    def refresh() -> tuple[Floats, Floats]:
        root = np.sqrt(precision)
        inner = np.eye(m) + root[:, None] * (projection @ covariance @ projection.T) * root
        half = root[:, None] * (projection @ covariance)
        updated = covariance - half.T @ np.linalg.solve(inner, half)
        return updated, updated @ (projection.T @ shift)

    sigma, mean = refresh()
    for _ in range(sweeps):
        largest = 0.0
        for s, row in enumerate(projection):
            if not seen[s]:
                continue
            column = sigma @ row
            v, mu = float(row @ column), float(row @ mean)
            t, c = 1 / v - precision[s], mu / v - shift[s]
            _, gradient, curvature = tilted(s, c / t, 1 / t)
            shrink = 1 - curvature / t
            new = np.array([curvature, gradient + c / t * curvature]) / shrink
            change = new[0] - precision[s]
            largest = max(largest, abs(change) * v, abs(new[1] - shift[s]) * np.sqrt(v))
            precision[s], shift[s] = new
            sigma = sigma - np.outer(column, column) * (change / (1 + change * v))
            mean = sigma @ (projection.T @ shift)
        sigma, mean = refresh()
        if largest < 1e-12:
            break
    # Each site is scaled so that its integral against the cavity is that of the likelihood it
    # stands for.
    log_evidence = 0.0
    for s, row in enumerate(projection):
        if not seen[s]:
            log_evidence += tilted(s, 0.0, 0.0)[0]
            continue
        v, mu = float(row @ sigma @ row), float(row @ mean)
        t, c = 1 / v - precision[s], mu / v - shift[s]
        integral = -0.5 * np.log1p(precision[s] / t) + 0.5 * (
            (c + shift[s]) ** 2 / (t + precision[s]) - c**2 / t
        )
        log_evidence += tilted(s, c / t, 1 / t)[0] - integral
    total = projection.T @ shift
    # det(I + AᵀTA K), by the m x m side of Sylvester's identity, which stays symmetric.
    root = np.sqrt(precision)
    inner = np.eye(m) + root[:, None] * (projection @ covariance @ projection.T) * root
    log_evidence += 0.5 * float(total @ mean) - 0.5 * float(np.linalg.slogdet(inner)[1])
    return Truth(mean, sigma, log_evidence, precision, shift)


@pytest.fixture(scope="session")
def expectation_propagation() -> Callable[..., Truth]:
    return sequential_ep


@pytest.fixture(scope="session")
def oracle() -> Callable[..., Truth]:
    """Sequential EP of preference data, with a site for the product of equal answers."""

    def solve(data: PreferenceData, covariance: Floats) -> Truth:
        rows = np.arange(data.num_comparisons)
        projection = np.zeros((len(rows), data.num_items))
        projection[rows, data.winner] = 1
        projection[rows, data.loser] = -1

        def tilted(row: int, mean: float, variance: float) -> tuple[float, float, float]:
            if data.count[row] == 1:
                return probit(1.0, mean, variance)
            sd = np.sqrt(variance)
            x, step = np.linspace(-14, 14, 8001, retstep=True)
            exponent = data.count[row] * log_ndtr(mean + sd * x) - 0.5 * x**2
            density = np.exp(exponent - exponent.max())
            total = density.sum()
            middle = density @ x / total
            spread = density @ (x - middle) ** 2 / total
            height = exponent.max() + np.log(total * step) - 0.5 * np.log(2 * np.pi)
            return float(height), float(middle / sd), float((1 - spread) / variance)

        return sequential_ep(covariance, projection, tilted)

    return solve
