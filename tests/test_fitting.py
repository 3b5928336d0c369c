"""One call from tables to a posterior."""

import io
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal

import relpref
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer import EP, Laplace
from relpref.kernels import HiddenCommonCause, Matern52, Precomputed, SquaredExponential
from relpref.likelihoods import Logistic, ProbitComparison
from relpref.models import preference_gp, xpgp

ITEMS = pd.DataFrame(
    {"price": [2.0, 3.5, 1.0, 4.0]}, index=["mocha", "sumatra", "instant", "gesha"]
)
ANSWERS = pd.DataFrame(
    {
        "winner": ["gesha", "sumatra", "mocha", "gesha"],
        "loser": ["instant", "instant", "instant", "mocha"],
    }
)
EDGES = pd.DataFrame({"source": ["mocha", "sumatra"], "target": ["sumatra", "gesha"]})


def test_one_call_equals_the_steps() -> None:
    posterior: Any = relpref.fit(
        ITEMS, ANSWERS, {"roaster": EDGES}, hyperparameters="maximize", individual=False
    )
    data = relpref.PreferenceData.from_tables(ITEMS, ANSWERS, {"roaster": EDGES})
    steps: Any = EP(xpgp, hyperparameters="maximize").run(0, data, individual=False)
    assert posterior.log_evidence == steps.log_evidence
    assert_frame_equal(posterior.ranking(), steps.ranking())
    assert posterior.info["model"] == "xpgp" and posterior.info["engine"] == "EP"
    assert posterior.info["data"] == data.describe()
    assert posterior.info["notes"] == list(data.notes)


def test_model_and_engine_are_chosen_by_name() -> None:
    posterior = relpref.fit(
        ITEMS,
        ANSWERS,
        {"roaster": EDGES},
        model="preference_gp",
        engine="Laplace",
        hyperparameters="maximize",
    )
    assert posterior.info["notes"][-1] == (
        "a model of attributes and the items themselves does not use relations: 'roaster'"
    )
    assert (posterior.info["model"], posterior.info["engine"]) == ("preference_gp", "Laplace")


def test_a_program_of_ones_own() -> None:
    def mine(data: relpref.PreferenceData, *, standardize: bool = True) -> None:
        xpgp(data, standardize=standardize)

    posterior = relpref.fit(
        ITEMS, ANSWERS, model=mine, standardize=False, hyperparameters="maximize"
    )
    assert posterior.info["model"] == "mine"


def test_cliques_are_counted_where_a_kernel_needs_them() -> None:
    kernels = {"roaster": HiddenCommonCause("cliques")}
    posterior = relpref.fit(
        ITEMS, ANSWERS, {"roaster": EDGES}, relation_kernels=kernels, hyperparameters="maximize"
    )
    data = relpref.PreferenceData.from_tables(ITEMS, ANSWERS, {"roaster": EDGES}).with_cliques(
        "roaster"
    )
    steps = EP(xpgp, hyperparameters="maximize").run(0, data, relation_kernels=kernels)
    assert_array_equal(posterior.mean(), steps.mean())
    with pytest.raises(DataError, match="relation_kernels names the relation 'grower'"):
        relpref.fit(
            ITEMS, ANSWERS, {"roaster": EDGES}, relation_kernels={"grower": kernels["roaster"]}
        )


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (
            {"model": "conditional_ranking"},
            "'conditional_ranking' is for RelationData.*ConditionalRanker",
        ),
        ({"model": "xgp"}, "model: there is no program 'xgp'; use xpgp or preference_gp"),
        ({"engine": "vb"}, "engine: there is no engine 'vb'; use ep or laplace"),
        (
            {"likelihood": "bernoulli"},
            "likelihood: there is no likelihood 'bernoulli'; use probit or logistic",
        ),
        (
            {"attribute_kernel": "diffusion"},
            "attribute_kernel: there is no attribute kernel 'diffusion'; use squared-exponential",
        ),
        (
            {"relation_kernels": {"roaster": "matern"}},
            "relation_kernels: there is no relation kernel 'matern'; use regularized-laplacian, ",
        ),
        (
            {"hyperparameter": "maximize"},
            "there is no option 'hyperparameter'; did you mean 'hyperparameters'",
        ),
    ],
)
def test_unknown_names_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        relpref.fit(ITEMS, ANSWERS, **keywords)


@pytest.mark.parametrize(
    ("by_name", "by_object"),
    [
        (
            {"model": "Preference-GP", "attribute_kernel": "matern"},
            {"model": preference_gp, "attribute_kernel": Matern52()},
        ),
        (
            {
                "engine": "laplace",
                "likelihood": "LOGISTIC",
                "attribute_kernel": "squared_exponential",
                "relation_kernels": {"roaster": "hidden-common-cause"},
            },
            {
                "engine": "Laplace",
                "likelihood": Logistic(),
                "attribute_kernel": SquaredExponential(),
                "relation_kernels": {"roaster": HiddenCommonCause()},
            },
        ),
        (
            {"relation_kernels": {"roaster": "Hidden_Common_Cause-cliques"}},
            {"relation_kernels": {"roaster": HiddenCommonCause("cliques")}},
        ),
    ],
)
def test_names_fit_in_either_case(by_name: dict[str, Any], by_object: dict[str, Any]) -> None:
    one, other = (
        relpref.fit(ITEMS, ANSWERS, {"roaster": EDGES}, hyperparameters="maximize", **options)
        for options in (by_name, by_object)
    )
    assert_array_equal(one.mean(), other.mean())
    assert one.log_evidence == other.log_evidence
    assert one.info["model"] == other.info["model"] and one.info["engine"] == other.info["engine"]


def test_people_read_what_the_model_is_made_of() -> None:
    posterior = relpref.fit(ITEMS, ANSWERS, hyperparameters="maximize")
    text = str(posterior.summary())
    assert "attributes, relations and the items themselves" in text
    assert "xpgp" not in text + posterior._repr_html_()


def test_what_was_chosen_is_saved(reloaded: Any) -> None:
    posterior = relpref.fit(answers=ANSWERS, hyperparameters="maximize")
    assert dict(reloaded(posterior).info) == dict(posterior.info)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda data: EP(xpgp).run(data),
            r"takes a seed or a JAX key first .*EP\(program\)\.run\(0, data\)",
        ),
        (lambda data: Laplace(xpgp).run(data, 0), r"Laplace\(program\)\.run\(0, data\)"),
        (
            lambda data: EP(xpgp).run(0, ANSWERS),
            r"got a DataFrame .*relpref\.fit\(items, answers\)",
        ),
        (
            lambda data: relpref.fit(ITEMS),
            r"there are no answers; write relpref\.fit\(items, answers\)",
        ),
        (
            lambda data: EP(xpgp).run(0, data, attribute_kernel=Precomputed()),
            r"their shape is \(4, 1\); give the matrix",
        ),
    ],
)
def test_wrong_calls_say_what_to_write(call: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        call(relpref.PreferenceData.from_tables(ITEMS, ANSWERS))


def test_a_single_table_is_one_of_answers() -> None:
    alone = relpref.fit(ANSWERS, hyperparameters="maximize")
    pd.testing.assert_frame_equal(
        alone.ranking(), relpref.fit(answers=ANSWERS, hyperparameters="maximize").ranking()
    )


def test_a_numpy_array_indexed_in_a_program_is_named() -> None:
    prices = ITEMS["price"].to_numpy()

    def mine(data: relpref.PreferenceData) -> None:
        utility = numpyro.sample("utility", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
        gap = utility[data.winner] - utility[data.loser] + prices[data.winner]
        numpyro.sample("answer", ProbitComparison(gap), obs=jnp.ones(data.winner.shape))

    with pytest.raises(
        UnsupportedProgramError,
        match=r"mine indexes a NumPy array .*jnp\.asarray\(array\)\[index\]",
    ):
        relpref.fit(ITEMS, ANSWERS, model=mine)


def test_a_covariance_among_the_attributes_is_not_standardized() -> None:
    matrix = np.array([[2.0, 0.5, 0, 0], [0.5, 1, 0, 0], [0, 0, 1, 0.3], [0, 0, 0.3, 3]])
    items = pd.DataFrame(matrix, index=ITEMS.index, columns=list(ITEMS.index))
    options: Any = {"hyperparameters": "maximize", "individual": False}
    as_attributes = relpref.fit(items, ANSWERS, attribute_kernel=Precomputed(), **options)
    given = relpref.fit(ITEMS, ANSWERS, attribute_kernel=Precomputed(matrix), **options)
    assert_allclose(as_attributes.belief.mean(), given.belief.mean(), rtol=1e-12)


def test_pairs_to_predict_in_any_form() -> None:
    posterior = relpref.fit(ITEMS, ANSWERS.assign(rater=list("xxyy")), hyperparameters="maximize")
    wanted = posterior.prefer([("gesha", "mocha")])
    assert_frame_equal(posterior.prefer("gesha", "mocha"), wanted)
    assert_frame_equal(posterior.prefer(("gesha", "mocha")), wanted)
    assert_frame_equal(posterior.prefer(wanted), wanted)
    assert_frame_equal(posterior.prefer(wanted[["first", "second"]].to_numpy()), wanted)
    with pytest.raises(DataError, match="rater has 2 labels for 1 question; give one for each"):
        posterior.prefer("gesha", "mocha", rater=["x", "y"])
    for wrong in ("gesha", 7):
        with pytest.raises(DataError, match="give a list of pairs of labels"):
            posterior.prefer(wrong)


def test_progress_is_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", shown)
    relpref.fit(None, [("a", "b"), ("b", "c")], progress_bar=True)
    assert "Fitting the model" in shown.getvalue() and "evidence" not in shown.getvalue()
