"""What the preference programs share: priors, the prior of the utilities, and the answers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro import handlers

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.kernels import (
    AttributeKernel,
    GaussianProcess,
    GraphKernel,
    attribute_covariance,
    graph_covariance,
    individual_covariance,
)
from relpref.kernels.graph import Features
from relpref.likelihoods import AnswerModel
from relpref.likelihoods.bernoulli import Link, bernoulli
from relpref.likelihoods.models import PLATES
from relpref.linalg import Covariance, NamedSum, real

Priors = Mapping[str, dist.Distribution]

# Half-normal with scale 2. The gap of two unrelated entities has prior sd √2·amplitude, in units where an answer's noise
# has sd 1. Amplitudes near 0 (this part does not matter: every answer is a coin toss) and up to about 4 (most pairs are
# decided beyond doubt) all stay plausible; far larger ones, which only separable answers would ask for, do not.
AMPLITUDE_PRIOR = dist.HalfNormal(2.0)
# A part that often adds nothing (a relation, or the entities' own parts beside others) gets half of that: with few answers its
# amplitude stays near the prior, and what it adds by chance costs held-out log loss.
ADDED_AMPLITUDE_PRIOR = dist.HalfNormal(1.0)
INDIVIDUAL = "individual"


class Hyperparameters:
    """Samples the hyperparameters of a program, each from the user's prior or from the kernel's own."""

    def __init__(self, priors: Priors | None) -> None:
        self._priors = dict(priors or {})
        self._used: list[str] = []

    def sample(self, site: str, default: dist.Distribution) -> Array:
        self._used.append(site)
        return numpyro.sample(site, self._priors.get(site, default))

    def attribute_part(
        self,
        data: PreferenceData,
        kernel: AttributeKernel,
        standardize: bool,
        prefix: str = "",
        unit: bool = False,
    ) -> Covariance:
        """a² K_a (XPGP eq. 1); a = 1 if ``unit``."""
        attributes = real(data.standardized_attributes() if standardize else data.attributes)
        amplitude = jnp.ones(()) if unit else self.sample(f"{prefix}attributes_amplitude", AMPLITUDE_PRIOR)
        defaults = kernel.parameters(data.attributes.shape[1])
        values = {name: self.sample(f"{prefix}attributes_{name}", prior) for name, prior in defaults.items()}
        covariance = attribute_covariance(kernel, attributes, **values)
        return covariance.scaled(jnp.square(amplitude))

    def relation_part(
        self,
        data: PreferenceData,
        name: str,
        kernel: GraphKernel,
        normalize: bool,
        prefix: str = "",
        unit: bool = False,
    ) -> Covariance:
        """g² K_r (XPGP eq. 2); g = 1 if ``unit``."""
        graph = data.relations[name]
        amplitude = jnp.ones(()) if unit else self.sample(f"{prefix}{name}_amplitude", ADDED_AMPLITUDE_PRIOR)
        try:
            defaults = kernel.parameters(graph)
            values = {key: self.sample(f"{prefix}{name}_{key}", prior) for key, prior in defaults.items()}
            covariance = graph_covariance(kernel, graph, normalize=normalize, **values)
            return covariance.scaled(jnp.square(amplitude))
        except DataError as error:
            raise DataError(f"relation {name!r}: {error}") from None

    def individual_part(self, data: PreferenceData, only: bool) -> Covariance:
        """b² I: what is to be said of an entity itself; ``only`` if the utilities have no other part."""
        prior = AMPLITUDE_PRIOR if only else ADDED_AMPLITUDE_PRIOR
        amplitude = self.sample(f"{INDIVIDUAL}_amplitude", prior)
        covariance = individual_covariance(data.attributes.shape[0])
        return covariance.scaled(jnp.square(amplitude))

    def answer_part(self, data: PreferenceData, model: AnswerModel) -> dict[str, Array]:
        values = {}
        for site, prior in model.parameters(data.comparisons).items():
            raters = len(data.comparisons.raters)
            with numpyro.plate(PLATES[site], raters) if site in PLATES else nullcontext():
                values[site] = self.sample(site, prior)
        return values

    def check_all_used(self) -> None:
        """Refuse priors for sites that the program does not have."""
        unknown = [site for site in self._priors if site not in self._used]
        if unknown:
            raise DataError(
                f"priors names the site {unknown[0]!r}, which this program does not have; its sites are {', '.join(self._used)}"
            )


def sample_utilities(parts: Mapping[str, Covariance]) -> Array:
    """One utility for each entity: the sum of its parts (XPGP eq. 4-5)."""
    return numpyro.sample("utility", GaussianProcess(NamedSum(dict(parts))), infer={"event_dims": ["entity"]})


def sample_answers(
    data: PreferenceData, utility: Array, model: AnswerModel, parameters: Mapping[str, Array]
) -> None:
    """The answers, winner first; unobserved where the data only asks questions (XPGP eq. 6)."""
    answers = data.comparisons
    gap = utility[answers.winner] - utility[answers.loser]
    observed = model.value(answers) if data.answered else None
    rows = answers.winner.shape[0]
    plate = numpyro.plate("comparison", rows) if rows else nullcontext()  # numpyro has no empty plates
    with plate, repeated(answers.count):
        numpyro.sample("answer", model(gap, answers, **parameters), obs=observed)


@contextmanager
def repeated(count: ArrayLike) -> Iterator[None]:
    """Count each row of a plate ``count`` times: its log probability is that many identical answers."""
    with handlers.scale(scale=jnp.asarray(count)):
        yield


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
