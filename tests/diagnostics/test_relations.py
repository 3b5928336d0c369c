import warnings
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

from relpref.data import PreferenceData, Relation
from relpref.diagnostics import HeldOut, evidence_without_each, leave_one_out
from relpref.diagnostics.comparison import site_part
from relpref.errors import InferenceError, UnsupportedProgramError
from relpref.infer import EP, UtilityPosterior
from relpref.kernels import Diffusion, RegularizedLaplacian, SquaredExponential
from relpref.models import xpgp
from relpref.posterior.base import Parts
from relpref.posterior.origin import Origin
from relpref.report.page import render

LABELS = list("abcdef")
FIXED = {
    "attributes_amplitude": 1.0,
    "attributes_lengthscale": 1.5,
    "near_amplitude": 1.2,
    "near_range": 1.0,
}
OPTIONS: dict[str, Any] = {
    "attribute_kernel": SquaredExponential(shared_lengthscale=True),
    "relation_kernels": {"near": RegularizedLaplacian()},
    "priors": {name: dist.HalfNormal(1.0) for name in FIXED},
}


@pytest.fixture(scope="module")
def data() -> PreferenceData:
    """Six items on a path."""
    links = pd.DataFrame({"source": LABELS[:-1], "target": LABELS[1:]})
    pairs = ["ab", "ac", "bd", "bc", "ce", "de", "df", "fa", "ef", "ad", "cf"]
    answers = pd.DataFrame(map(list, pairs), columns=["winner", "loser"])
    items = pd.DataFrame({"size": [3.0, 2.5, 1.0, 1.5, -1.0, 0.0]}, index=LABELS)
    return PreferenceData.from_tables(items, answers, {"near": links})


@pytest.fixture(scope="module")
def given(data: PreferenceData) -> UtilityPosterior:
    """With every hyperparameter given, and options for every part."""
    return fit(xpgp, data, FIXED, **OPTIONS)


def fit(program: Any, data: PreferenceData, fixed: Any = None, **options: Any) -> Any:
    return EP(program, fixed=fixed, check=False).run(0, data, **options)


def test_options_bound_to_the_program(data: PreferenceData, given: Any) -> None:
    program = partial(partial(xpgp, **OPTIONS | {"priors": None}), priors=OPTIONS["priors"])
    bound = replace(given, origin=Origin(program, (data,), {}, given.origin.engine))
    first, second = (evidence_without_each(posterior) for posterior in (bound, given))
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.slow
def test_fitted_hyperparameters_are_fitted_anew(data: PreferenceData) -> None:
    posterior = fit(xpgp, data)
    table = evidence_without_each(posterior)
    alone = fit(xpgp, data.without_relation("near"))
    assert table["log_evidence"].iloc[1] == pytest.approx(alone.log_evidence, rel=1e-7)
    elpd = leave_one_out(posterior).elpd - leave_one_out(alone).elpd
    assert table["elpd_difference"].iloc[1] == pytest.approx(elpd, rel=1e-6)
    text = render(posterior, relations_evidence=True)
    assert "What each part is worth" in text and f"{abs(table['log_evidence'].iloc[1]):.2f}" in text


def test_a_fit_that_fails_is_a_row_without_a_number(given: Any) -> None:
    engine = given.origin.engine.changed(max_sweeps=1)
    table = evidence_without_each(replace(given, origin=replace(given.origin, engine=engine)))
    assert table[["log_evidence", "difference"]].isna().all(axis=None)
    assert table["note"].tolist() == ["EP on the rest ended with max_iterations"] * 2


class Engine:
    """In place of EP: remembers how it was called and hands back what it was told to."""

    calls: ClassVar[list[tuple[Any, dict[str, Any], tuple[Any, ...], dict[str, Any]]]] = []
    posterior: UtilityPosterior

    name = "EP"

    def __init__(self, program: Any, **options: Any) -> None:
        self.program, self.options = program, options
        self.fixed = options.get("fixed", {})

    def changed(self, program: Any, **options: Any) -> "Engine":
        return Engine(program, **{**self.options, **options})

    def run(self, key: Any, *args: Any, progress_bar: bool, **kwargs: Any) -> UtilityPosterior:
        warnings.warn("2 groups of items are tied together by nothing", stacklevel=2)
        self.calls.append((self.program, self.options, args, kwargs))
        return self.posterior


@pytest.fixture
def engine(given: UtilityPosterior, monkeypatch: pytest.MonkeyPatch) -> type[Engine]:
    monkeypatch.setattr(Engine, "calls", [])
    monkeypatch.setattr(Engine, "posterior", given, raising=False)
    held_out = HeldOut(pd.DataFrame({"log_score": [-0.5, -1.0]}), "by hand")
    monkeypatch.setattr("relpref.diagnostics.comparison.leave_one_out", lambda posterior: held_out)
    return Engine


@pytest.mark.parametrize("attributes", [True, False])
def test_a_program_that_keeps_the_part(given: Any, engine: type[Engine], attributes: bool) -> None:
    """A kernel that needs no attributes can be a part of data without attributes."""
    data = given.data if attributes else given.data.without_attributes()
    origin = replace(given.origin, engine=engine(None))
    notes = evidence_without_each(replace(given, data=data, origin=origin))["note"]
    assert notes.iloc[1] == "the program keeps this part when the data lacks it"
    assert not attributes or notes.iloc[0] == notes.iloc[1]


def test_how_the_program_is_called_again(
    data: PreferenceData, given: UtilityPosterior, engine: type[Engine]
) -> None:
    """Data as a keyword, a positional argument bound, only some hyperparameters given, and no
    warning about groups.
    """

    def program(first: int, *, data: PreferenceData, **options: Any) -> None:
        raise AssertionError("only the engine calls it")

    options: dict[str, Any] = {
        "tol": 1e-6,
        "fixed": {"near_range": 1.0, "attributes_amplitude": 2.0},
    }
    origin = Origin(partial(program, 5, data=data), (), OPTIONS, Engine(program, **options))
    evidence_without_each(replace(given, origin=origin, info={**given.info, "evaluations": 3}))
    (called, first_options, args, kwargs), (_, second_options, _, others) = engine.calls
    assert called is program
    assert first_options == {"tol": 1e-6, "throw": True, "fixed": {"near_range": 1.0}}
    assert second_options == {"tol": 1e-6, "throw": True, "fixed": {"attributes_amplitude": 2.0}}
    assert args == (5,)
    assert kwargs["data"].attribute_names == () and list(kwargs["data"].relations) == ["near"]
    assert set(kwargs) == {"data", "relation_kernels", "priors"}
    assert set(kwargs["priors"]) == {"near_amplitude", "near_range"}
    assert others["data"].attribute_names == ("size",) and not others["data"].relations
    assert (
        others["relation_kernels"] == {}
        and others["attribute_kernel"] is OPTIONS["attribute_kernel"]
    )


def test_a_role_of_a_directed_relation(
    data: PreferenceData, given: UtilityPosterior, engine: type[Engine]
) -> None:
    """The kernel of the relation stays with the role that is left."""
    items, answers, _ = data.to_tables()
    links = pd.DataFrame({"source": list("abcd"), "target": list("ccaa")})
    directed = PreferenceData.from_tables(
        items, answers, {"cites": Relation(links, kind="directed")}
    )
    zeros = {part: np.zeros(6) for part in ("cites_linking", "cites_linked")}
    origin = Origin(xpgp, (directed,), {"relation_kernels": {"cites": Diffusion()}}, engine(None))
    posterior = replace(given, data=directed, parts={"utility": Parts(zeros, zeros)}, origin=origin)
    assert evidence_without_each(posterior)["left_out"].tolist() == [
        "cites_linking",
        "cites_linked",
    ]
    for (_, _, (smaller,), kwargs), left in zip(
        engine.calls, ("cites_linked", "cites_linking"), strict=True
    ):
        assert list(smaller.relations) == [left]
        assert kwargs["relation_kernels"] == {"cites": Diffusion()}


def test_sites_belong_to_the_longest_name(given: UtilityPosterior) -> None:
    names = ("near", "near_far")
    parts = {"utility": Parts(dict.fromkeys(names, np.zeros(6)), dict.fromkeys(names, np.ones(6)))}
    posterior = replace(given, parts=parts)
    assert site_part(posterior, "near_far_amplitude") == "near_far"
    assert site_part(posterior, "near_range") == "near"
    assert site_part(posterior, "noise") is None


def test_keywords_of_a_partial() -> None:
    program: Any = xpgp
    origin = Origin(partial(partial(program, a=1, b=2), b=3), (), {"c": 4})
    assert origin.keywords == {"a": 1, "b": 3, "c": 4}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"parts": {"utility": Parts({"near": np.zeros(6)}, {"near": np.ones(6)})}},
            "no two parts of which one could be left out",
        ),
        ({"origin": None}, "needs a posterior from EP or Laplace that knows its program"),
        (
            {"log_evidence": None, "hyperparameter_draws": {}},
            "needs a posterior from EP or Laplace that knows its program",
        ),
        (
            {"log_evidence": None, "hyperparameter_draws": {name: np.ones(3) for name in FIXED}},
            "no evidence to compare",
        ),
        ({"info": {"engine": "EP", "result": "diverged"}}, "the fit itself did not converge"),
    ],
)
def test_refusals(given: UtilityPosterior, changes: Any, message: str) -> None:
    with pytest.raises((UnsupportedProgramError, InferenceError), match=message):
        evidence_without_each(replace(given, **changes))
