"""Programs have the same densities for padded data, and padded data of many sizes have one shape."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from relpref.data import PreferenceData, Relation
from relpref.data.padding import (
    allows_padding,
    declares_padding,
    padded,
    room_for,
    room_for_items,
)
from relpref.infer.call import Call
from relpref.infer.program import Program
from relpref.kernels import (
    Diffusion,
    HiddenCommonCause,
    Linear,
    Matern32,
    Matern52,
    Precomputed,
    RegularizedLaplacian,
    RelationVectors,
    SquaredExponential,
    SquaredExponentialPlusLinear,
)
from relpref.likelihoods import Logistic, Probit
from relpref.models import preference_gp, xpgp

TOLERANCE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}


UNDIRECTED = {"kind": "undirected"}
KINDS = {
    "undirected": UNDIRECTED,
    "roles": {"kind": "directed", "form": "roles"},
    "walk": {"kind": "directed", "form": "random_walk", "teleport": 0.15},
    "bipartite": {"kind": "bipartite"},
}


def make(
    n: int,
    seed: int = 0,
    *,
    attributes: int = 2,
    shift: float = 0.0,
    relations: Mapping[str, Any] | None = None,
    weighted: bool = False,
    newcomers: int = 0,
) -> PreferenceData:
    """Data with 2n answers and relations, ``{"near": UNDIRECTED}`` by default."""
    rng = np.random.default_rng(seed)
    labels = np.array([f"e{row}" for row in range(n)])
    names = [f"x{k}" for k in range(attributes)]
    items = pd.DataFrame(shift + rng.standard_normal((n, attributes)), labels, names)
    first = rng.integers(0, n, 2 * n)
    second = (first + rng.integers(1, n, 2 * n)) % n
    given = {"winner": labels[first], "loser": labels[second]}
    answers = pd.DataFrame({**given, "count": rng.integers(1, 4, 2 * n)})
    links = {
        name: Relation(_links(n, options["kind"], weighted, rng), **options)
        for name, options in (relations or {"near": UNDIRECTED}).items()
    }
    data = PreferenceData.from_tables(items, answers, links)
    if newcomers:
        more = [f"new{row}" for row in range(newcomers)]
        edges = {name: pd.DataFrame({"source": ["new0"], "target": ["e0"]}) for name in links}
        data = data.extend(
            pd.DataFrame(rng.standard_normal((newcomers, attributes)), more, names), edges
        )
    return data


def _links(n: int, kind: str, weighted: bool, rng: np.random.Generator) -> pd.DataFrame:
    """Links among n items, in two or more components; two more items have none."""
    half = max(n - 2, 4) // 2
    component = half * (rng.random(n) < 0.4)
    source = rng.integers(0, half, n)
    target = (source + rng.integers(1, half, n)) % half
    ends = np.stack([source + component, target + component], axis=1)
    if kind == "undirected":
        ends = np.sort(ends, axis=1)
    if kind == "bipartite":
        ends[:, 1] = ends[:, 1] % 3 + component
    ends = np.unique(ends, axis=0)
    links = pd.DataFrame({"source": [f"e{row}" for row, _ in ends]})
    links["target"] = [f"{'t' if kind == 'bipartite' else 'e'}{row}" for _, row in ends]
    if weighted:
        links["weight"] = rng.uniform(0.2, 3.0, len(links))
    return links


@jax.jit
def read(program: Program, at: Any, vector: Any, cavity: Any) -> dict[str, Any]:
    """Arrays of a reading; the names of those by item or answer begin with an underscore."""
    reading = program.read(at)
    (prior,), ((likelihood, value, counts),) = reading.covariance.blocks, reading.observations
    moments = likelihood.tilted(value, *cavity)._asdict()
    covariances = {name: part.dense() for name, part in prior.parts.items()}
    each = {"location": reading.location, "offset": reading.offset, "counts": counts, **moments}
    return {
        "log_prior": reading.log_prior,
        **{f"_{name}": array for name, array in {**each, **covariances}.items()},
        "_projected": reading.projection.apply(vector),
        "_pulled": reading.projection.adjoint(jnp.where(counts > 0, cavity[0], 0.0)),
    }


def assert_same_reading(program: Any, data: PreferenceData, seed: int = 0, **kwargs: Any) -> None:
    """Compare priors, predictors and moments of answers, at medians and random hyperparameters."""
    with jax.enable_x64(True):
        plain, more = (Program.of(program, (each,), kwargs) for each in (data, padded(data)))
        n, m = data.num_items, data.num_comparisons
        room = room_for_items(n), room_for(m)
        assert (more.layout.num_latents, more.layout.num_rows) == room
        assert plain.layout.hyperparameters == more.layout.hyperparameters
        assert list(plain.medians) == list(more.medians)
        rng = np.random.default_rng(seed)
        for name, median in plain.medians.items():
            assert_allclose(more.medians[name], median, **TOLERANCE, err_msg=name)
        for spread in (0.0, 1.0):
            at = {
                name: jnp.asarray(median + spread * rng.standard_normal(np.shape(median)))
                for name, median in plain.medians.items()
            }
            vector = rng.standard_normal(room[0])
            cavity = rng.standard_normal(room[1]), rng.uniform(0.1, 2.0, room[1])
            expected = read(plain, at, vector[:n], tuple(each[:m] for each in cavity))
            filled = read(more, at, vector, cavity)
            assert list(expected) == list(filled)
            for name, array in expected.items():
                values = np.asarray(filled[name])
                assert np.all(np.isfinite(values)), name
                if name.startswith("_"):
                    values = values[tuple(map(slice, array.shape))]
                assert_allclose(values, array, **TOLERANCE, err_msg=name)
            for name, size in {"_counts": m, "_projected": m, "_pulled": n}.items():
                assert np.all(np.asarray(filled[name])[size:] == 0)


# Kernels of distances share the code that depends on the number of items.
ATTRIBUTES = [
    SquaredExponentialPlusLinear(),
    Matern52(shared_lengthscale=True),
    Linear(),
    Linear(shared_lengthscale=True),
]
GRAPHS = [
    RegularizedLaplacian(),
    Diffusion(),
    HiddenCommonCause(),
    HiddenCommonCause("cliques"),
    RelationVectors(),
    RelationVectors(Matern32(shared_lengthscale=True)),
]


@pytest.mark.parametrize("kernel", ATTRIBUTES, ids=str)
def test_attributes(kernel: Any) -> None:
    shared = getattr(kernel, "shared_lengthscale", False)
    assert_same_reading(
        preference_gp, make(11, attributes=3), attribute_kernel=kernel, standardize=shared
    )


def test_attributes_far_from_the_origin() -> None:
    """Distances are computed from the center, so that padding at 0 costs no digits."""
    data = make(20, attributes=2, shift=1e7)
    with jax.enable_x64(True):
        covariances = []
        for each in (data, padded(data)):
            program = Program.of(preference_gp, (each,), {"standardize": False})
            vector, row = np.zeros(program.layout.num_latents), np.zeros(program.layout.num_rows)
            reading = read(program, program.medians, vector, (row, row + 1))
            covariances.append(np.asarray(reading["_attributes"]))
    # Coordinates are rounded to 2e-9.
    assert_allclose(covariances[1][:20, :20], covariances[0], atol=1e-7)


@pytest.mark.parametrize(("normalize", "newcomers"), [(True, 3), (False, 0)])
def test_relations(normalize: bool, newcomers: int) -> None:
    """One for each kernel."""
    kernels = {f"part{number}": kernel for number, kernel in enumerate(GRAPHS)}
    options: Any = {"relations": dict.fromkeys(kernels, UNDIRECTED), "newcomers": newcomers}
    data = make(14, attributes=0, weighted=True, **options)
    for name, kernel in kernels.items():
        if kernel == HiddenCommonCause(method="cliques"):
            data = data.with_cliques(name)
    assert_same_reading(xpgp, data, relation_kernels=kernels, normalize=normalize)


@pytest.mark.parametrize("kernel", [RegularizedLaplacian(), HiddenCommonCause()], ids=str)
def test_kinds_of_relations(kernel: Any) -> None:
    data = make(13, relations=KINDS)
    assert_same_reading(xpgp, data, relation_kernels=dict.fromkeys(KINDS, kernel))


def test_sizes_in_one_bucket_have_one_shape() -> None:
    """Static parts are equal, whatever the numbers of items, answers, links and newcomers."""
    same = [
        make(18, 0),
        make(31, 1, weighted=True),
        make(25, 2, newcomers=4),
        replace(make(20, 3), labels=tuple(range(20)), notes=("something",)),
    ]
    calls = [Call.split(xpgp, (padded(data),), {})[0] for data in same]
    assert all(call == calls[0] and hash(call) == hash(calls[0]) for call in calls)
    other = Call.split(xpgp, (padded(make(65, 0)),), {})[0]
    assert other != calls[0]
    linked = [make(n, n, relations=KINDS) for n in (17, 30)]
    first, second = (Call.split(xpgp, (padded(data),), {})[0] for data in linked)
    assert first == second


def test_ladders() -> None:
    assert [room_for_items(n) for n in (1, 16, 17, 100, 129, 193, 500, 513, 1025, 4000)] == [
        64, 64, 64, 128, 192, 256, 512, 576, 1152, 4096
    ]  # fmt: skip
    sizes = np.arange(500, 5000)
    waste = np.array([room_for_items(int(n)) for n in sizes]) / sizes - 1
    assert waste.min() == 0 and waste.max() < 0.15
    rows = [room_for(m) for m in range(10_000)]
    assert rows == sorted(rows) and rows[0] == 256 and len(set(rows)) < 20


def test_what_fills_up_is_neutral_and_data_stays_as_it_is() -> None:
    data = make(10)
    filled = padded(data)
    assert (
        len(filled.labels) == filled.attributes.shape[0] == filled.relations["near"].num_nodes == 64
    )
    assert np.all(filled.comparisons.count[data.num_comparisons :] == 0)
    assert filled.relations["near"].degree[10:].sum() == 0
    assert filled.relations["near"].completeness == data.relations["near"].completeness
    assert filled.relations["near"].mean_degree == data.relations["near"].mean_degree
    assert data.num_items == 10 and data.relations["near"].weight_matrix.shape == (10, 10)


def test_who_declares_that() -> None:
    kernels = SquaredExponential(), Matern32(), *ATTRIBUTES, *GRAPHS
    for value in (xpgp, preference_gp, *kernels, Probit(), Logistic(lapse=True)):
        assert declares_padding(value)

    class Own(SquaredExponential):
        """It may look at how many items there are."""

    @allows_padding
    class Declared(SquaredExponential):
        pass

    @dataclass(frozen=True)
    class Inner:
        kernel: Any

    def program(data: PreferenceData) -> None: ...

    # A weighted sum of links has as many weights as items.
    for other in (
        Own(),
        Precomputed(),
        RelationVectors(Linear(shared_lengthscale=True)),
        RelationVectors(Own(shared_lengthscale=True)),
        Inner(Own()),
        program,
    ):
        assert not declares_padding(other)
    assert declares_padding(Declared())
    assert declares_padding(allows_padding(program))
    assert not declares_padding(partial(program))  # whoever asks looks inside
