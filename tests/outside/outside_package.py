"""Additions of a package outside of relpref: the examples of docs/extending.md."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from numpyro.distributions import constraints
from scipy.special import ndtr

import relpref
from relpref.description import Description
from relpref.errors import DataError
from relpref.explore import Score
from relpref.infer import EP
from relpref.kernels.attribute import Stationary
from relpref.likelihoods import Comparison
from relpref.likelihoods.quadrature import quadrature_moments
from relpref.report import Section


# likelihood
def log_student(z: Array) -> Array:
    """Log distribution function of Student's t with four degrees of freedom."""
    root = jnp.sqrt(4 + z**2)
    below = 4 / (root * (root + jnp.abs(z)))  # 1 - |z| / root
    tail = below**2 * (3 - below) / 4
    return jnp.where(z < 0, jnp.log(tail), jnp.log1p(-tail))


class StudentComparison(Comparison):
    """Preference of the first: F((gap + shift)/scale), F of Student's t."""

    support = constraints.boolean
    log_concave = False

    @property
    def mean(self) -> Array:
        return jnp.exp(log_student(self.location))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = sample_shape + self.batch_shape
        return jax.random.bernoulli(key, self.mean, shape).astype(jnp.int32)

    def log_prob(self, value: Any) -> Array:
        return log_student(jnp.where(value, self.location, -self.location))

    def standard(self, value: Array, mean: Array, variance: Array) -> Any:
        sign = jnp.where(value, 1.0, -1.0).astype(mean.dtype)
        return quadrature_moments(lambda z: log_student(sign * z), mean, variance)


@jax.tree_util.register_static
@dataclass(frozen=True)
class HeavyTailed:
    """Student's t noise on the difference of two utilities, for winners."""

    columns: ClassVar[tuple[str, ...]] = ()

    def parameters(self, answers: Any) -> Mapping[str, dist.Distribution]:
        for column in ("tie", "strength", "probability", "rater", "shown_first"):
            if getattr(answers, column) is not None:
                raise DataError(f"HeavyTailed does not use {column!r}; leave it out")
        return {}

    def value(self, answers: Any) -> Array:
        return jnp.ones(answers.winner.shape, jnp.int32)

    def __call__(self, gap: Array, answers: Any, **_: Array) -> StudentComparison:
        return StudentComparison(gap)

    def describe(self, answers: Any = None) -> Description:
        return Description(
            "An answer favors the first of two with the probability that Student's t "
            "distribution with four degrees of freedom gives to the difference of "
            "their utilities, so that a few wild answers do not weigh much "
            "(Lange, Little and Taylor 1989).",
            "K. L. Lange, R. J. A. Little and J. M. G. Taylor (1989). Robust "
            "Statistical Modeling Using the t Distribution. "
            "Journal of the American Statistical Association 84(408).",
        )


# kernel
@jax.tree_util.register_static
@dataclass(frozen=True)
class RationalQuadratic(Stationary):
    """(1 + r²/(2α))^(−α): a mixture of squared exponentials of many lengthscales."""

    power: float = 1.0

    def correlation(self, squared: Array) -> Array:
        return (1 + squared / (2 * self.power)) ** -self.power

    def describe(self) -> Description:
        common = super().describe()
        return Description(
            f"The rational quadratic kernel with α = {self.power:g} mixes smooth "
            "functions of many lengthscales.",
            parameters=common.parameters,
            unit=common.unit,
            readings=common.readings,
        )


# score
@dataclass(frozen=True)
class ExpectedRegret(Score):
    """Expected loss from taking the item of the two that seems better now."""

    name = "expected_regret"
    reason = "to take the wrong one of the two would cost the most"

    def value(self, state: Any, pairs: Any) -> np.ndarray:
        sd = np.sqrt(np.maximum(pairs.variance, 1e-300))
        z = np.abs(pairs.mean) / sd
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        return np.asarray(sd * density - np.abs(pairs.mean) * ndtr(-z))


# engine
class PatientEP(EP):
    """Expectation propagation with a tighter tolerance and more sweeps."""

    name = "PatientEP"

    def __init__(self, program: Any, **options: Any) -> None:
        super().__init__(program, **{"tol": 1e-12, "max_sweeps": 2000} | options)

    @classmethod
    def describe(cls) -> Description:
        common = super().describe()
        sentence = f"{common.sentence} Its sweeps went on to a tolerance of 1e-12."
        return Description(sentence, common.citation)


# chapter
def regret(posterior: Any) -> Section:
    """Expected loss from taking the item that seems best."""
    draws = posterior.sample(4000)
    lost = draws.max(axis=1)[:, None] - draws
    labels = list(posterior.data.labels)
    table = pd.DataFrame({"expected regret": lost.mean(axis=0)}, index=labels)
    best = table.sort_values("expected regret").head(5)
    text = (
        f"Taking {best.index[0]} loses {best.iloc[0, 0]:.2f} on average, against "
        "taking the item that is really best."
    )
    return Section("Expected regret", [text], best)


# register
def register() -> None:
    """Make all of it known, once in every session."""
    relpref.register("likelihood", "HeavyTailed", HeavyTailed)
    relpref.register("kernel", "RationalQuadratic", RationalQuadratic)
    relpref.register("score", "expected_regret", ExpectedRegret)
    relpref.register("engine", "PatientEP", PatientEP)
    relpref.register("chapter", "utilities.regret", regret)
