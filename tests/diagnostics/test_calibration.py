"""Programs and engines against simulations of themselves. Seeds are fixed: a p-value below 0.001
fails, by chance alone in one seed of a thousand.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.calibration import LIKELIHOODS, PROGRAMS, RANKING_LOSS, SOME_NOISE, case
from relpref.diagnostics import Calibration, calibrate
from relpref.errors import DataError, InferenceError, StorageError
from relpref.infer import EP, Exact, Laplace, Result
from relpref.infer import sampling as integrate
from relpref.kernels import GaussianProcess
from relpref.linalg import Dense

_KILLED = """
import sys
import numpy as np
from benchmarks.calibration import case
from relpref.diagnostics import calibrate
program, args, kwargs = case("xpgp")
calibrate(program, *args, **kwargs, hyperparameters="maximize", simulations=200, file=sys.argv[1])
"""


def tried(name: str, **options: Any) -> Calibration:
    program, args, kwargs = case(name)
    return calibrate(program, *args, **kwargs, **options)


def check(found: Calibration, *, most_failures: int = 0) -> None:
    """No sign of miscalibration at 0.001, in any quantity."""
    assert found.not_converged <= most_failures, found.results
    for quantity in found.pits:
        assert found.p_value(quantity) > 0.001 / len(found.pits), (quantity, found.summary())


def line(slope: Any, spread: Any, x: Any, y: Any = None) -> None:
    """A line through noise, of numbers only."""
    noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.3))
    covariance = Dense(jnp.diag(jnp.asarray([slope**2, spread**2])))
    weight = numpyro.sample("weight", GaussianProcess(covariance))
    with numpyro.plate("point", len(x)):
        numpyro.sample("y", dist.Normal(weight[0] * x + weight[1], noise), obs=y)


X = np.linspace(-1.0, 1.0, 4)
LINE = partial(line, 1.0, 2.0)  # one object for all tests, for which JAX compiles once


@pytest.mark.slow
def test_ep_is_calibrated_and_laplace_is_not() -> None:
    ep = tried("xpgp", simulations=500)
    check(ep)
    assert list(ep.pits) == ["gap"] and ep.name == "xpgp, EP, hyperparameters given"
    laplace = tried("xpgp", engine=Laplace, simulations=500)
    assert laplace.p_value() < 0.001 and laplace.verdict() == "too narrow"
    for probability, low, high in ((0.5, 0.43, 0.57), (0.8, 0.74, 0.86), (0.95, 0.91, 0.98)):
        assert low <= ep.coverage(probability)[0] <= high
    assert laplace.coverage(0.8)[0] < 0.76


def test_a_program_of_ones_own_any_quantity_and_any_function() -> None:
    """The slope of a line: by EP at once, and by hand one by one."""

    def by_hand(program: Any, given: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        return EP(program, fixed=given).run(key, *args, **kwargs)

    def slope(values: Any) -> Any:
        return values["weight"][0]

    program = LINE
    found = calibrate(program, X, X, simulations=100, quantity=slope)
    check(found)
    again = calibrate(program, X, X, simulations=5, quantity=slope, engine=by_hand)
    assert_allclose(again.pit, found.pit[:5], atol=1e-6)
    points = calibrate(program, X, X, simulations=100)
    assert list(points.pits) == ["decision"] and points.p_value() > 0.001


def test_every_case_can_be_made() -> None:
    """Those that slow tests calibrate."""
    for name in ("xpgp", *LIKELIHOODS, "ranking_classifier", RANKING_LOSS):
        program, args, _ = case(name)
        assert callable(program) and len(args) == 1


def test_relations_are_asked_for_differences_of_scores() -> None:
    assert list(tried("conditional_ranking", engine=Exact, simulations=1).pits) == ["difference"]


@pytest.mark.slow
def test_exact_agrees_with_ep_on_a_relation() -> None:
    exact = tried("conditional_ranking", engine=Exact, simulations=12)
    ep = tried("conditional_ranking", simulations=12)
    assert_allclose(exact.pit, ep.pit, atol=1e-5)


@pytest.mark.slow
def test_the_ranking_loss_is_calibrated() -> None:
    check(tried(RANKING_LOSS, engine=Exact, simulations=100))


def test_few_simulations_are_no_verdict() -> None:
    pit = (np.arange(50) + 0.5) / 50
    more = Calibration({"gap": pit}, ("converged",) * 50)
    few = replace(more, pits={"gap": pit[1:]})
    assert few.verdict() == "too few" and "Too few simulations to tell" in few.sentence
    assert more.verdict() == "calibrated"
    assert replace(more, pits={"gap": pit / 4}).verdict() == "shifted"


def test_interrupted_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """Also where a kill left half a line, and with more simulations than before."""
    run = partial(calibrate, LINE, X, X, hyperparameters="maximize")
    whole = run(simulations=7)
    file = tmp_path / "sbc.jsonl"
    run(simulations=3, file=file)
    file.write_bytes(file.read_bytes()[:-9])
    assert_array_equal(run(simulations=7, file=file).pit, whole.pit)
    before = file.read_bytes()
    lines = [json.loads(text) for text in before.splitlines()]
    assert [entry["simulation"] for entry in lines[1:]] == list(range(7))
    assert_array_equal(run(simulations=7, file=file).pit, whole.pit)
    assert file.read_bytes() == before


@pytest.mark.slow
def test_the_same_problem_is_known_again_in_another_process() -> None:
    """The order of sets, and of what numpyro keeps in them, is another one there."""
    script = (
        "from benchmarks.calibration import case; from relpref.journal import fingerprint; "
        "print(fingerprint(case('probabilities')))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(said) == 1


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    """Also of functions with the same name and data."""

    def factor(number: float) -> Any:
        return lambda values: number * values["weight"][0]

    def fit(program: Any, given: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        return EP(program, fixed=given, tol=scale).run(key, *args, **kwargs)

    def run(program: Any = LINE, x: Any = X, **options: Any) -> None:
        options = {"hyperparameters": "maximize", "quantity": factor(1.0), **options}
        calibrate(program, x, X, engine=fit, simulations=1, file=file, **options)

    file, scale = tmp_path / "sbc.jsonl", 1e-6
    run()
    before = file.read_bytes()
    run(partial(line, 1.0, 2.0))  # made again
    others: dict[str, dict[str, Any]] = {
        r"sbc.jsonl: its records have key \[0, 0\], and \[0, 1\]": {"rng_key": 1},
        "have data": {"x": 2 * X},
        "hyperparameters given": {"hyperparameters": "given"},
        "have program": {"program": partial(line, 1.0, 3.0)},
        "have quantity": {"quantity": factor(2.0)},
    }
    for message, options in others.items():
        with pytest.raises(StorageError, match=message):
            run(**options)
    scale = 1e-7
    with pytest.raises(StorageError, match="its records have engine"):
        run()
    assert file.read_bytes() == before
    scale = 1e-6
    file.write_bytes(before + b"{]\n")
    with pytest.raises(StorageError, match="line 3 is damaged"):
        run()


def test_fits_that_fail_are_counted() -> None:
    """One that raises, and one that says so."""

    def failing(program: Any, given: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        if np.asarray(jax.random.key_data(key))[0] % 2:
            raise InferenceError("the sites moved away", Result.diverged)
        found = EP(program, fixed=given).run(key, *args, **kwargs)
        return replace(found, info={**found.info, "result": "max_iterations"})

    found = calibrate(LINE, X, X, engine=failing, simulations=4)
    assert set(found.results) == {"diverged", "max_iterations"} and found.not_converged == 4
    assert [np.isnan(pit) for pit in found.pit] == [
        result == "diverged" for result in found.results
    ]
    assert "4 of the fits did not converge" in found.sentence


def test_what_makes_no_sense_is_refused() -> None:
    for options, message in (
        ({"simulations": 0}, "simulations is 0"),
        ({"scheduler": "many"}, "scheduler is 'many'"),
        ({"engine": "stan"}, "engine is 'stan'"),
        ({"hyperparameters": "guess"}, "hyperparameters is 'guess'"),
        ({"engine": "svi", "hyperparameters": "maximize"}, "samples hyperparameters"),
        ({"engine": Exact, "hyperparameters": "integrate"}, "Exact does not integrate"),
    ):
        with pytest.raises(DataError, match=message):
            calibrate(LINE, X, X, **options)
    with pytest.raises(DataError, match="differences of scores only"):
        tried("conditional_ranking", engine=Exact, quantity=len)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PROGRAMS, *LIKELIHOODS])
def test_every_program_and_likelihood_at_given_hyperparameters(name: str) -> None:
    check(tried(name, simulations=100))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*(name for name in PROGRAMS if name != "conditional_ranking"), SOME_NOISE]
)
def test_every_program_with_hyperparameters_integrated_over(name: str) -> None:
    options = {"draws": 100, "warmup": 100}
    advance: Any = integrate._advance
    compiled = advance._cache_size()
    check(
        tried(name, simulations=100, hyperparameters="integrate", engine_options=options),
        most_failures=5,
    )
    assert advance._cache_size() == compiled + 1  # for all hundred


@pytest.mark.slow
@pytest.mark.parametrize("hyperparameters", ["given", "integrate"])
def test_numpyros_nuts(hyperparameters: Any) -> None:
    check(
        tried("xpgp", simulations=100, engine="nuts", hyperparameters=hyperparameters),
        most_failures=5,
    )


@pytest.mark.slow
def test_workers_find_the_same(tmp_path: Path) -> None:
    run = partial(tried, "xpgp", simulations=12, hyperparameters="maximize")
    alone = run()
    for scheduler in ("threads:2", "processes:2"):
        together = run(scheduler=scheduler, file=tmp_path / f"{scheduler[0]}.jsonl")
        assert together.pit.tobytes() == alone.pit.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("hyperparameters", ["given", "integrate"])
def test_nuts_under_the_ranking_loss(hyperparameters: Any) -> None:
    """Whose labels depend on each other: no engine but the exact one takes it, and samplers."""
    options = {"draws": 200, "warmup": 200}
    few = partial(tried, RANKING_LOSS, simulations=3, hyperparameters=hyperparameters)
    nuts = few(engine="nuts", engine_options=options)
    assert nuts.results == ("converged",) * 3 and np.all(np.isfinite(nuts.pit))
    if hyperparameters == "given":
        assert_allclose(nuts.pit, few(engine=Exact).pit, atol=0.12)  # 0.035 would be one error


@pytest.mark.slow
def test_killed_at_any_moment_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    file = tmp_path / "sbc.jsonl"
    for lines in (1, 4, 11):  # the last one that is waited for; killed three times
        process = subprocess.Popen([sys.executable, "-c", _KILLED, str(file)])
        try:
            end = time.monotonic() + 120
            while (file.read_bytes().count(b"\n") if file.exists() else 0) < lines + 1:
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.01)
        finally:
            process.kill()  # SIGKILL
        assert process.wait() == -9
    done = file.read_bytes().count(b"\n") - 1
    assert 11 <= done < 200
    resumed = tried("xpgp", hyperparameters="maximize", simulations=done + 3, file=file)
    whole = tried("xpgp", hyperparameters="maximize", simulations=done + 3)
    assert_allclose(resumed.pit, whole.pit, rtol=1e-9)  # another process may use other threads
    assert resumed.results == whole.results
