"""relpref's half, from the tables to the answers, through its public interface only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.peers import Contestant
from benchmarks.problems import Answer, Array, Gold, Problem


def fixed() -> Contestant:
    """EP at the true hyperparameters."""
    import jax

    from relpref.infer import EP
    from relpref.kernels import SquaredExponential
    from relpref.models import preference_gp

    def run(problem: Problem) -> Answer:
        hyperparameters = {
            "attributes_amplitude": problem.amplitude,
            "attributes_lengthscale": problem.lengthscale,
        }
        engine = EP(preference_gp, fixed=hyperparameters)
        kernel = SquaredExponential(shared_lengthscale=True)
        data = _data(problem.attributes, problem.comparisons)
        return _answer(engine.run(jax.random.key(0), data, attribute_kernel=kernel, standardize=False))

    return run


def fitted(*, shared_lengthscale: bool) -> Contestant:
    """EP with hyperparameters that maximise its evidence, under relpref's priors."""
    import jax

    from relpref.infer import EP
    from relpref.kernels import SquaredExponential
    from relpref.models import preference_gp

    def run(problem: Problem) -> Answer:
        kernel = SquaredExponential(shared_lengthscale=shared_lengthscale)
        data = _data(problem.attributes, problem.comparisons)
        return _answer(
            EP(preference_gp).run(jax.random.key(0), data, attribute_kernel=kernel, standardize=False)
        )

    return run


def gold() -> Callable[[Gold], Answer]:
    """EP under a given prior covariance."""
    import jax

    from relpref.infer import EP
    from relpref.kernels import Precomputed
    from relpref.models import preference_gp

    def run(gold: Gold) -> Answer:
        data = _data(np.zeros((len(gold.mean), 1)), gold.comparisons)
        engine = EP(preference_gp, fixed={"attributes_amplitude": 1.0})
        posterior = engine.run(
            jax.random.key(0), data, attribute_kernel=Precomputed(gold.covariance), standardize=False
        )
        pairs = [(int(i), int(j)) for i, j in gold.query_pairs]
        return _answer(posterior, {"probability": posterior.prefer(pairs)["probability"].to_numpy()})

    return run


def _data(attributes: Array, comparisons: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
    import relpref

    entities = pd.DataFrame(attributes, columns=[f"x{column}" for column in range(attributes.shape[1])])
    return relpref.PreferenceData.from_tables(
        entities=entities, comparisons=pd.DataFrame(comparisons, columns=["winner", "loser"])
    )


def _answer(posterior: Any, more: Mapping[str, Array] | None = None) -> Answer:
    table = posterior.utilities()
    return Answer(
        table["mean"].to_numpy(), table["sd"].to_numpy(), log_evidence=posterior.log_evidence, **(more or {})
    )
