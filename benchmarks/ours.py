"""relpref's half, from the tables to the answers, through its public interface only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.peers import Contestant
from benchmarks.problems import Answer, Array, Gold, Problem

Whole = np.ndarray[Any, np.dtype[np.int64]]


def fixed() -> Contestant:
    """EP at the true hyperparameters; of a problem with a relation, near those that it was drawn
    with.
    """
    import jax

    from relpref.infer import EP
    from relpref.kernels import SquaredExponential
    from relpref.models import preference_gp, xpgp

    def run(problem: Problem) -> Answer:
        hyperparameters = {
            "attributes_amplitude": problem.amplitude,
            "attributes_lengthscale": problem.lengthscale,
        }
        program: Any = preference_gp
        if problem.links is not None:
            program, hyperparameters = (
                xpgp,
                hyperparameters | {"near_amplitude": 1.5, "near_range": 2.0},
            )
        engine = EP(program, fixed=hyperparameters)
        kernel = SquaredExponential(shared_lengthscale=True)
        data = data_of(problem.attributes, problem.comparisons, problem.links)
        options: dict[str, Any] = {
            "attribute_kernel": kernel,
            "standardize": False,
            "individual": False,
        }
        return _answer(engine.run(jax.random.key(0), data, **options))

    return run


def fitted(*, shared_lengthscale: bool) -> Contestant:
    """EP with hyperparameters that maximize its evidence, under relpref's priors."""
    import jax

    from relpref.infer import EP
    from relpref.kernels import SquaredExponential
    from relpref.models import preference_gp

    def run(problem: Problem) -> Answer:
        kernel = SquaredExponential(shared_lengthscale=shared_lengthscale)
        data = data_of(problem.attributes, problem.comparisons)
        options: dict[str, Any] = {
            "attribute_kernel": kernel,
            "standardize": False,
            "individual": False,
        }
        posterior = EP(preference_gp, hyperparameters="maximize").run(
            jax.random.key(0), data, **options
        )
        return _answer(posterior, _predictions(posterior, problem))

    return run


def related(hyperparameters: Any = "integrate") -> Contestant:
    """EP on attributes and the relation, all other options at their defaults."""
    import jax

    from relpref.infer import EP
    from relpref.models import xpgp

    def run(problem: Problem) -> Answer:
        posterior = EP(xpgp, hyperparameters=hyperparameters).run(
            jax.random.key(0), data_of(problem.attributes, problem.comparisons, problem.links)
        )
        return _answer(posterior, _predictions(posterior, problem))

    return run


def _predictions(posterior: Any, problem: Problem) -> Mapping[str, Array]:
    if problem.held_out is None:
        return {}
    pairs = [(int(i), int(j)) for i, j in problem.held_out]
    return {"probability": posterior.prefer(pairs)["probability"].to_numpy()}


def gold(engine: str) -> Callable[[Gold], Answer]:
    """EP or Laplace under a given prior covariance."""
    import jax

    import relpref.infer
    from relpref.kernels import Precomputed
    from relpref.models import preference_gp

    def run(gold: Gold) -> Answer:
        fit = getattr(relpref.infer, engine)(preference_gp, fixed={"attributes_amplitude": 1.0})
        options: dict[str, Any] = {
            "attribute_kernel": Precomputed(gold.covariance),
            "standardize": False,
            "individual": False,
        }
        posterior = fit.run(jax.random.key(0), _given(gold), progress_bar=False, **options)
        return _answer(posterior, _queries(posterior, gold))

    return run


def gold_nuts(draws: int = 4000) -> Callable[[Gold], Answer]:
    """numpyro's NUTS on the same program, its utilities whitened."""
    import jax
    from numpyro import handlers
    from numpyro.infer import MCMC, NUTS

    from relpref.infer import from_samples, noncentered
    from relpref.kernels import Precomputed
    from relpref.models import preference_gp

    def run(gold: Gold) -> Answer:
        data = _given(gold)
        options: dict[str, Any] = {
            "attribute_kernel": Precomputed(gold.covariance),
            "standardize": False,
            "individual": False,
        }
        with jax.enable_x64(True):
            known = handlers.condition(
                noncentered(preference_gp), data={"attributes_amplitude": 1.0}
            )
            sampler = MCMC(NUTS(known), num_warmup=500, num_samples=draws, progress_bar=False)
            sampler.run(jax.random.key(0), data, **options)
        samples = {**sampler.get_samples(), "attributes_amplitude": np.ones(draws)}
        posterior = from_samples(samples, preference_gp, data, **options)
        return _answer(posterior, _queries(posterior, gold))

    return run


def _given(gold: Gold) -> Any:
    return data_of(np.zeros((len(gold.mean), 1)), gold.comparisons)


def _queries(posterior: Any, gold: Gold) -> Mapping[str, Array]:
    pairs = [(int(i), int(j)) for i, j in gold.query_pairs]
    return {"probability": posterior.prefer(pairs)["probability"].to_numpy()}


def data_of(attributes: Array, comparisons: Whole, links: Whole | None = None) -> Any:
    import relpref

    items = pd.DataFrame(
        attributes, columns=[f"x{column}" for column in range(attributes.shape[1])]
    )
    return relpref.PreferenceData.from_tables(
        items=items,
        answers=pd.DataFrame(comparisons, columns=["winner", "loser"]),
        relations=None
        if links is None
        else {"near": pd.DataFrame(links, columns=["source", "target"])},
    )


def _answer(posterior: Any, more: Mapping[str, Array] | None = None) -> Answer:
    table = posterior.utilities()
    return Answer(
        table["mean"].to_numpy(),
        table["sd"].to_numpy(),
        log_evidence=posterior.log_evidence,
        **(more or {}),
    )
