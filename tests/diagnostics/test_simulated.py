"""The model that simulations of a posterior draw from."""

import numpy as np
import pytest
from numpyro import handlers

from relpref.diagnostics.sbc import simulated
from relpref.rls import ConditionalRanker


@pytest.mark.parametrize("single", [True, False])
def test_scores_of_a_relation_have_the_prior_of_its_posterior(single: bool) -> None:
    rng = np.random.default_rng(0)
    nodes, objects = rng.normal(size=(4, 2)), None if single else rng.normal(size=(3, 2))
    relation = rng.normal(size=(4, 4 if objects is None else 3))
    posterior = ConditionalRanker("gaussian", regularization=0.5).fit(nodes, relation, objects)
    program, args, options = simulated(posterior.posterior_)
    fixed = options.pop("fixed")
    seeded = handlers.seed(handlers.substitute(program, data=fixed), rng_seed=0)
    sites = handlers.trace(seeded).get_trace(*args, **options)
    problem, scale = posterior.problem_, posterior.posterior_.hyperparameters["scale"]
    expected = scale * np.kron(problem.nodes.gram, problem.objects.gram)
    covariance = np.asarray(sites["score"]["fn"].covariance.dense())
    np.testing.assert_allclose(covariance, expected, rtol=1e-5, atol=1e-5 * scale)
    assert fixed["noise"] ** 2 == pytest.approx(scale * 0.5)
