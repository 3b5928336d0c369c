"""What the two classifiers share: latent functions of features, and binary decisions on them."""

from contextlib import nullcontext

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro import handlers

from relpref.kernels.features import Features
from relpref.likelihoods.bernoulli import Link, bernoulli
from relpref.models.preference import AMPLITUDE_PRIOR, Hyperparameters

# Normal with sd 2: from one class in forty to forty of one, before any feature is looked at.
INTERCEPT_PRIOR = dist.Normal(0.0, 2.0)


def sample_decisions(
    features: Features,
    outcome: ArrayLike | None,
    taken: ArrayLike,
    hyperparameters: Hyperparameters,
    link: Link,
    plate: str,
    *,
    intercept: bool = True,
) -> None:
    """Binary decisions on latent functions w_cᵀφ(x) + b_c, w_c ~ N(0, a² I).

    Sites: ``amplitude`` (a), ``weight`` of shape (k, r), ``intercept`` of shape (k,) and ``decision`` of shape (m, k). What the
    features leave out of the prior variance is noise of each example's own.

    Parameters
    ----------
    features : Features
        Of m examples.
    outcome : array of 0 and 1, shape (m, k), or None
        None if the decisions are unobserved.
    taken : array of bool, shape (m, k)
        False for a decision that was not reached.
    hyperparameters : Hyperparameters
    link : {"probit", "logit"}
    plate : str
        What the examples are called.
    intercept : bool
        False where exchanging something must exchange the outcomes.
    """
    m, functions = jnp.shape(taken)
    amplitude = hyperparameters.sample("amplitude", AMPLITUDE_PRIOR)
    hyperparameters.check_all_used()
    size = features.values.shape[1]
    weight = numpyro.sample("weight", dist.Normal(0.0, amplitude).expand([functions, size]).to_event(2))
    predictor: Array = features.values @ weight.T
    if intercept:
        predictor = predictor + numpyro.sample("intercept", INTERCEPT_PRIOR.expand([functions]).to_event(1))
    spread = None if features.residual is None else (jnp.square(amplitude) * features.residual)[:, None]
    examples = numpyro.plate(plate, m, dim=-2) if m else nullcontext()  # numpyro has no empty plates
    with examples, numpyro.plate("class", functions, dim=-1), handlers.mask(mask=jnp.asarray(taken, bool)):
        numpyro.sample("decision", bernoulli(link)(predictor, spread), obs=outcome)
