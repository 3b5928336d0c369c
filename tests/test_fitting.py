"""One call from tables to a posterior."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import relpref
from relpref.errors import DataError
from relpref.infer import EP, Laplace
from relpref.kernels import HiddenCommonCause
from relpref.models import preference_gp, xpgp

ITEMS = pd.DataFrame({"price": [2.0, 3.5, 1.0, 4.0]}, index=["mocha", "sumatra", "instant", "gesha"])
ANSWERS = pd.DataFrame(
    {"winner": ["gesha", "sumatra", "mocha", "gesha"], "loser": ["instant", "instant", "instant", "mocha"]}
)
EDGES = pd.DataFrame({"source": ["mocha", "sumatra"], "target": ["sumatra", "gesha"]})


def test_one_call_equals_the_steps() -> None:
    posterior: Any = relpref.fit(
        ITEMS, ANSWERS, {"roaster": EDGES}, hyperparameters="maximize", individual=False
    )
    data = relpref.PreferenceData.from_tables(ITEMS, ANSWERS, {"roaster": EDGES})
    steps: Any = EP(xpgp, hyperparameters="maximize").run(0, data, individual=False)
    assert posterior.log_evidence == steps.log_evidence
    pd.testing.assert_frame_equal(posterior.ranking(), steps.ranking())
    assert posterior.info["model"] == "xpgp" and posterior.info["engine"] == "EP"
    assert posterior.info["data"] == data.describe()
    assert posterior.info["notes"] == list(data.notes)


def test_model_and_engine_are_chosen_by_name() -> None:
    posterior = relpref.fit(
        ITEMS, ANSWERS, model="preference_gp", engine="Laplace", hyperparameters="maximize"
    )
    data = relpref.PreferenceData.from_tables(ITEMS, ANSWERS)
    steps = Laplace(preference_gp, hyperparameters="maximize").run(0, data)
    np.testing.assert_array_equal(posterior.mean(), steps.mean())


def test_a_program_of_ones_own() -> None:
    def mine(data: relpref.PreferenceData, *, standardize: bool = True) -> None:
        xpgp(data, standardize=standardize)

    posterior = relpref.fit(ITEMS, ANSWERS, model=mine, standardize=False, hyperparameters="maximize")
    assert posterior.info["model"] == "mine"


def test_cliques_are_counted_where_a_kernel_needs_them() -> None:
    kernels = {"roaster": HiddenCommonCause("cliques")}
    posterior = relpref.fit(
        ITEMS, ANSWERS, {"roaster": EDGES}, relation_kernels=kernels, hyperparameters="maximize"
    )
    data = relpref.PreferenceData.from_tables(ITEMS, ANSWERS, {"roaster": EDGES}).with_cliques("roaster")
    steps = EP(xpgp, hyperparameters="maximize").run(0, data, relation_kernels=kernels)
    np.testing.assert_array_equal(posterior.mean(), steps.mean())
    with pytest.raises(DataError, match="relation_kernels names the relation 'grower'"):
        relpref.fit(ITEMS, ANSWERS, {"roaster": EDGES}, relation_kernels={"grower": kernels["roaster"]})


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"model": "xgp"}, "model: there is no program 'xgp'; did you mean 'xpgp'"),
        ({"engine": "ep"}, "engine: there is no engine 'ep'; use 'EP' or 'Laplace'"),
        (
            {"hyperparameter": "maximize"},
            "there is no option 'hyperparameter'; did you mean 'hyperparameters'",
        ),
    ],
)
def test_unknown_names_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        relpref.fit(ITEMS, ANSWERS, **keywords)


def test_what_was_chosen_is_saved(tmp_path: Path) -> None:
    posterior = relpref.fit(answers=ANSWERS, hyperparameters="maximize")
    posterior.save(tmp_path / "run.nc")
    assert dict(relpref.load(tmp_path / "run.nc").info) == dict(posterior.info)
