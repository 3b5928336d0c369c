"""Data are filled up to round sizes before JAX sees a program: nothing but compiling is changed by
it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

import relpref
from relpref.data import PreferenceData, Relation
from relpref.errors import DataError
from relpref.infer import EP, Laplace, layout
from relpref.infer.program import Program
from relpref.infer.sites import Sites
from relpref.kernels import Precomputed, SquaredExponential
from relpref.lazy_jit import clear
from relpref.likelihoods import ProbitComparison
from relpref.models import preference_gp, xpgp


def make(n: int, m: int, seed: int = 0, **columns: Any) -> PreferenceData:
    """Items with two attributes, links, and m answers of which some repeat."""
    rng = np.random.default_rng(seed)
    labels = np.array([f"e{row}" for row in range(n)])
    items = pd.DataFrame(rng.standard_normal((n, 2)), labels, ["x", "y"])
    utility = items.to_numpy() @ [1.0, -0.5]
    first = rng.integers(0, n, m)
    second = (first + rng.integers(1, n, m)) % n
    won = utility[first] + rng.standard_normal(m) > utility[second]
    ends = np.where(won, first, second), np.where(won, second, first)
    names = ("first", "second") if "probability" in columns else ("winner", "loser")
    answers = pd.DataFrame(dict(zip(names, (labels[end] for end in ends), strict=True)))
    covariates = columns.pop("covariates", ())
    for name, values in columns.items():
        answers[name] = np.resize(values, m)
    source = rng.integers(0, n - 1, n)
    links = pd.DataFrame({"source": labels[source], "target": labels[source + 1]}).drop_duplicates()
    relations = {"next": Relation(links, kind="undirected")}
    return PreferenceData.from_tables(items, answers, relations, covariates=covariates)


@pytest.fixture
def unpadded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Computes something as if nothing allowed padding."""

    def without(compute: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(layout, "declares_padding", lambda value: False)
            return compute()

    return without


def close(one: Any, other: Any, tolerance: float = 1e-9) -> None:
    assert one.data.labels == other.data.labels
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=tolerance)
    for name, value in other.hyperparameters.items():
        assert_allclose(one.hyperparameters[name], value, rtol=tolerance, err_msg=name)
    assert_allclose(one.belief.mean(), other.belief.mean(), atol=tolerance)
    assert_allclose(one.belief.covariance(), other.belief.covariance(), atol=tolerance)
    for name, value in other.sites.items():
        assert one.sites[name].shape == value.shape == np.shape(one.sites[name])
        assert_allclose(one.sites[name], value, rtol=1e-7, atol=1e-7, err_msg=name)
    assert_frame_equal(one.explain(), other.explain(), atol=tolerance, rtol=tolerance)


def test_a_mixture_is_the_same_and_so_is_what_follows(unpadded: Callable[..., Any]) -> None:
    data = make(12, 30, 1)
    fit: Any = partial(EP(xpgp).run, 0, data)
    one, other = fit(), unpadded(fit)
    close(one, other, 1e-7)
    assert_frame_equal(one.ranking(), other.ranking(), atol=1e-6)
    more = [("e0", "e1"), ("e2", "e1")]
    close(one.update(more), unpadded(partial(other.update, more)), 1e-6)
    tables = [relpref.diagnostics.leave_one_out(posterior).table for posterior in (one, other)]
    assert_frame_equal(*tables, atol=1e-6)


def lists(number: int) -> PreferenceData:
    rng = np.random.default_rng(0)
    rows = [
        (at, f"e{item}", place)
        for at in range(number)
        for place, item in enumerate(rng.choice(8, 2 + at % 3, replace=False), 1)
    ]
    table = pd.DataFrame(rows, columns=["list", "item", "place"])
    return PreferenceData.from_tables([f"e{row}" for row in range(8)], table)


SIDES: Any = {"x_winner": [0.3, -1.0, 0.7], "x_loser": [1.0, 0.2]}
CASES: dict[str, PreferenceData] = {
    "more answers": make(9, 40),
    "fewer answers": make(21, 12),
    "as many": make(17, 17, 3),
    "raters": make(10, 30, rater=list("rst"), strength=[1, 2, 1, 1]),
    "reports": make(8, 30, probability=[0.7, 0.9, 0.4]),
    "groups": make(8, 30, group=[1, 1, 2, None, 3, 4, 3]),
    "covariates": make(8, 30, covariates=["x"], **SIDES),
    "lists": lists(9),
}


RUNS = [
    *((case, EP, False) for case in CASES),
    *((case, EP, True) for case in ("more answers", "fewer answers", "groups")),
    *((case, Laplace, False) for case in ("more answers", "groups")),
]


@pytest.mark.parametrize(("case", "engine", "dual"), RUNS)
def test_evidence_and_gradient_are_the_same(
    case: str, engine: Any, dual: bool, unpadded: Callable[..., Any]
) -> None:
    data = CASES[case]
    with jax.enable_x64(True):
        read = partial(Program.of, xpgp, (data,), padding=True)
        found: list[Any] = []
        for program in (read(), unpadded(read)):
            assert (program.filled is None) == bool(found)
            sites = Sites(*np.zeros((2, data.num_comparisons)))
            at = {name: value + 0.3 for name, value in program.medians.items()}
            found += [
                engine.evaluate(program, dual, True, at, sites, 1e-12, 500, whole)
                for whole in (False, True)
            ]
    (one, whole), (other, plain) = found[:2], found[2:]
    assert one.log_evidence == pytest.approx(float(other.log_evidence), abs=1e-10)
    for name, slope in other.gradient.items():
        assert_allclose(one.gradient[name], slope, atol=1e-8, err_msg=name)
    for ours, theirs in zip(jax.tree.leaves(whole), jax.tree.leaves(plain), strict=True):
        assert np.shape(ours) == np.shape(theirs)
        assert_allclose(ours, theirs, atol=1e-7)


class Traces:
    """Functions that JAX traced."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.listening = False
        jax.monitoring.register_event_duration_secs_listener(self.note)

    def note(self, event: str, duration_secs: float, **more: Any) -> None:
        if self.listening and "trace" in event:
            self.names.append(str(more.get("fun_name")))


@pytest.fixture(scope="module")
def traces() -> Traces:
    return Traces()


@pytest.fixture
def listening(traces: Traces) -> Iterator[Callable[..., list[str]]]:
    def during(compute: Callable[[], Any]) -> list[str]:
        traces.names.clear()
        traces.listening = True
        compute()
        return list(traces.names)

    yield during
    traces.listening = False


@pytest.mark.parametrize(
    "engine", [EP(xpgp), Laplace(partial(xpgp, attribute_kernel=SquaredExponential()))]
)
def test_another_size_traces_shapes_alone(engine: Any, listening: Callable[..., list[str]]) -> None:
    def fit(n: int, m: int) -> Any:
        return engine.run(0, make(n, m, n)).ranking()

    clear()
    assert "_slope" in listening(lambda: fit(33, 70))
    again = type(engine)(partial(xpgp, **getattr(engine.program, "keywords", {})))  # another object
    assert listening(lambda: again.run(0, make(50, 100, 1)).ranking()) == ["shapes"]
    assert listening(lambda: fit(64, 120)) == ["shapes"]


def test_more_groups_trace_shapes_alone(listening: Callable[..., list[str]]) -> None:
    def fit(n: int, m: int, groups: int) -> Any:
        posterior: Any = EP(xpgp).run(0, make(n, m, n, group=range(groups)))
        return posterior.ranking()

    clear()
    assert "_slope" in listening(lambda: fit(33, 70, 10))
    assert listening(lambda: fit(50, 100, 23)) == ["shapes"]


def test_who_does_not_allow_it_sees_the_data_as_they_are() -> None:
    data = make(9, 20)
    sizes = []

    def program(data: PreferenceData) -> None:
        sizes.append((data.attributes.shape[0], len(data.winner)))
        utility = numpyro.sample("utility", dist.Normal(0, 1).expand([9]).to_event(1))
        numpyro.sample(
            "answer", ProbitComparison(utility[data.winner] - utility[data.loser]), obs=1
        )

    @jax.tree_util.register_static
    class Own(SquaredExponential):
        def __call__(self, attributes: Any, **values: Any) -> Any:
            sizes.append((attributes.shape[0], data.num_comparisons))
            return super().__call__(attributes, **values)

    EP(program).run(0, data)
    EP(preference_gp, hyperparameters="maximize").run(0, data, attribute_kernel=Own())
    assert set(sizes) == {(9, data.num_comparisons)}
    given = (Own(), Precomputed(np.eye(9)))
    with jax.enable_x64(True):
        for kernel in given:
            read = Program.of(preference_gp, (data,), {"attribute_kernel": kernel}, padding=True)
            assert read.filled is None


def test_messages_are_about_the_data_as_they_are() -> None:
    data = make(9, 20)
    with pytest.raises(
        DataError, match=r"fixed\['utility'\] has shape \(3,\); the site has shape \(9,\)"
    ):
        EP(xpgp, fixed={"utility": np.zeros(3)}).run(0, data)
    with pytest.raises(DataError, match="priors names the site 'nothing'"):
        EP(xpgp).run(0, data, priors={"nothing": dist.HalfNormal(1.0)})
