"""Many fits: the same wherever they are done, each of its own, and kept."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from relpref.data import PreferenceData
from relpref.errors import InferenceError, StorageError
from relpref.infer import EP, Posterior, UtilityPosterior, fit_many
from relpref.models import xpgp

Make = Callable[..., PreferenceData]


@pytest.fixture(scope="module")
def queries(make_data: Make) -> dict[str, PreferenceData]:
    return {f"query {seed}": make_data(seed) for seed in range(4)}


@pytest.fixture(scope="module")
def engine(hyperparameters: dict[str, Any]) -> EP:
    return EP(partial(xpgp), fixed=hyperparameters)  # no program that a file could name


def numbers(found: Any) -> bytes:
    draws = found.sample(3)
    return b"".join(
        np.asarray(part).tobytes() for part in (found.mean(), found.covariance(), draws)
    )


def all_numbers(found: dict[Any, Any]) -> dict[Any, bytes]:
    return {label: numbers(posterior) for label, posterior in found.items()}


@pytest.fixture(scope="module")
def alone(engine: EP, queries: dict[str, PreferenceData]) -> dict[str, bytes]:
    return all_numbers(dict(fit_many(engine, queries)))


@pytest.mark.parametrize(
    "scheduler", ["threads:3", pytest.param("processes:2", marks=pytest.mark.slow)]
)
def test_workers_find_the_same(
    scheduler: str, hyperparameters: Any, queries: Any, alone: dict[str, bytes]
) -> None:
    engine = EP(xpgp, fixed=hyperparameters)
    assert all_numbers(dict(fit_many(engine, queries, scheduler=scheduler))) == alone


def test_each_is_fitted_as_if_there_were_no_other(
    engine: EP, queries: dict[str, PreferenceData], alone: dict[str, bytes]
) -> None:
    ((label, found),) = fit_many(engine, {"query 2": queries["query 2"]})
    assert numbers(found) == alone[label]
    by_position = dict(fit_many(engine, list(queries.values())[:2]))
    assert list(by_position) == [0, 1]
    assert_array_equal(by_position[1].key == found.key, False)


def test_what_is_finished_is_kept_and_the_rest_done(
    engine: EP,
    queries: dict[str, PreferenceData],
    alone: dict[str, bytes],
    make_data: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "fits"
    assert len(list(islice(fit_many(engine, queries, folder=folder), 2))) == 2
    assert len(list(folder.iterdir())) == 2

    fitted = []
    run = EP.run

    def counted(self: EP, key: Any, *args: Any, **kwargs: Any) -> Posterior:
        fitted.append(args[0])
        return run(self, key, *args, **kwargs)

    monkeypatch.setattr(EP, "run", counted)
    found = dict(fit_many(engine, queries, folder=folder))
    assert all_numbers(found) == alone and len(fitted) == 2
    changed = {**queries, "query 3": make_data(9)}
    assert list(fit_many(engine, changed, folder=folder))[-1][0] == "query 3"
    assert len(fitted) == 3 and len(list(folder.iterdir())) == 5
    again = dict(fit_many(engine, queries, folder=folder))
    assert len(fitted) == 3
    one = again["query 0"]
    assert isinstance(one, UtilityPosterior)  # its program is known although no file can name it
    more = [(one.data.labels[0], one.data.labels[1])]
    assert (
        one.update(more, hyperparameters="keep").data.num_comparisons
        == one.data.num_comparisons + 1
    )


def test_a_damaged_file_is_named(
    engine: EP, queries: dict[str, PreferenceData], tmp_path: Path
) -> None:
    next(fit_many(engine, queries, folder=tmp_path))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(StorageError, match=file.name):
        next(fit_many(engine, queries, folder=tmp_path))


def test_a_failure_says_whose(
    hyperparameters: dict[str, Any], queries: dict[str, PreferenceData]
) -> None:
    engine = EP(xpgp, fixed=hyperparameters, max_sweeps=1)
    with pytest.raises(InferenceError, match="'query 0': max_iterations"):
        next(fit_many(engine, queries))
