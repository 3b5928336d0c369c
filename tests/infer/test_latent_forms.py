"""Gaussian sites in plates, and the families of numpyro that are Gaussian.

Programs are compared with others that say the same with one multivariate normal for each vector.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.sparse
from numpy.testing import assert_allclose
from numpyro.distributions.transforms import AffineTransform, ExpTransform, LowerCholeskyAffine
from scipy import stats

from relpref.errors import UnsupportedProgramError
from relpref.infer import EP, Exact, Laplace, from_samples
from relpref.infer.gaussians import gaussian_parts
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ProbitComparison
from relpref.linalg import Dense, NamedSum

RATERS, ITEMS, ANSWERS = 3, 4, 30
RNG = np.random.default_rng(5)
MATRICES = stats.wishart(6, np.eye(ITEMS)).rvs(RATERS, random_state=RNG) / 4
ROOTS = np.linalg.cholesky(MATRICES)
MATRIX = MATRICES[0]
MEANS = RNG.standard_normal((RATERS, ITEMS))
LINKS = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
RATER = RNG.integers(0, RATERS, ANSWERS)
FIRST = RNG.integers(0, ITEMS, ANSWERS)
SECOND = (FIRST + RNG.integers(1, ITEMS, ANSWERS)) % ITEMS
WON = RNG.integers(0, 2, ANSWERS)
Make = Callable[[Any], Any]  # distribution, or sampled values, at an amplitude


def normal(*args: Any, **kwargs: Any) -> Any:
    return dist.MultivariateNormal(*map(jnp.asarray, args), **kwargs)


def process(matrix: Any) -> Any:
    return GaussianProcess(Dense(jnp.asarray(matrix)))


def in_plate(make: Make) -> Make:
    def draw(amplitude: Any) -> Any:
        with numpyro.plate("rater", RATERS):
            return numpyro.sample("w", make(amplitude))

    return draw


def site(make: Make) -> Make:
    return lambda amplitude: numpyro.sample("w", make(amplitude))


def written_out(means: Any, matrices: Any) -> Make:
    def draw(amplitude: Any) -> Any:
        pairs = enumerate(zip(means, matrices, strict=True))
        return jnp.stack(
            [
                numpyro.sample(f"w{k}", normal(mean, amplitude**2 * matrix))
                for k, (mean, matrix) in pairs
            ]
        )

    return draw


ZEROS = np.zeros((RATERS, ITEMS))
SAME = np.stack([MATRIX] * RATERS)
ALIKE, EACH = (ZEROS, SAME), (ZEROS, MATRICES)
PLATES: dict[str, tuple[Make, tuple[Any, Any]]] = {
    "plate": (in_plate(lambda a: normal(ZEROS[0], a**2 * MATRIX)), ALIKE),
    "plate of processes": (in_plate(lambda a: process(a**2 * MATRIX)), ALIKE),
    "event": (site(lambda a: normal(ZEROS, a**2 * MATRIX).to_event(1)), ALIKE),
    "expanded": (site(lambda a: normal(0.0, a**2 * MATRIX).expand([RATERS])), ALIKE),
    "expanded processes": (
        site(lambda a: process(a**2 * MATRIX).expand([RATERS]).to_event(1)),
        ALIKE,
    ),
    "covariances": (site(lambda a: normal(0.0, a**2 * MATRICES)), EACH),
    "covariances in a plate": (in_plate(lambda a: normal(0.0, a**2 * MATRICES)), EACH),
    "means": (site(lambda a: normal(MEANS, a**2 * MATRIX)), (MEANS, SAME)),
}


def program(draw: Make) -> Callable[[Any], None]:
    def rating(won: Any) -> None:
        amplitude = numpyro.sample("amplitude", dist.LogNormal(0.0, 0.5))
        w = jnp.reshape(draw(amplitude), (-1, ITEMS))
        rater = RATER % len(w)
        with numpyro.plate("answer", ANSWERS):
            numpyro.sample("y", ProbitComparison(w[rater, FIRST] - w[rater, SECOND]), obs=won)

    return rating


def fit(engine: Any, draw: Make, **options: Any) -> Any:
    return engine(program(draw), check=False, **options).run(0, WON)


def assert_equal(first: Any, second: Any, tol: float) -> None:
    """The evidence, and the hyperparameters, of two posteriors."""
    assert_allclose(first.log_evidence, second.log_evidence, rtol=0, atol=tol)
    amplitudes = [posterior.hyperparameters.get("amplitude", 0.0) for posterior in (first, second)]
    assert_allclose(amplitudes[0], amplitudes[1], rtol=0, atol=tol)


OPTIONS: list[dict[str, Any]] = [{"fixed": {"amplitude": 0.7}}, {"hyperparameters": "maximize"}]


@lru_cache
def compared(engine: Any, option: int, form: str) -> Any:
    return fit(engine, written_out(*PLATES[form][1]), **OPTIONS[option])


ALL = [(form, EP, 0) for form in PLATES]
SOME = [(form, *how) for form in ("plate", "covariances") for how in ((Laplace, 0), (EP, 1))]


@pytest.mark.parametrize(("form", "engine", "option"), ALL + SOME)
def test_plates_are_their_sites_written_out(form: str, engine: Any, option: int) -> None:
    draw, numbers = PLATES[form]
    same = next(name for name, (_, other) in PLATES.items() if other is numbers)
    apart = compared(engine, option, same)
    together = fit(engine, draw, **OPTIONS[option])
    tol = [1e-9, 1e-5][option]
    assert_allclose(together.belief.covariance(), apart.belief.covariance(), rtol=0, atol=tol)
    for k in range(RATERS):
        mean = together.mean(site="w").reshape(RATERS, ITEMS)[k]
        assert_allclose(mean, apart.mean(site=f"w{k}"), rtol=0, atol=tol)
    assert_equal(together, apart, tol)


FAMILIES: dict[str, Make] = {
    "Normal": lambda a: dist.Normal(jnp.asarray(MEANS), a * jnp.arange(1.0, ITEMS + 1)),
    "NamedSum": lambda a: GaussianProcess(
        NamedSum({"own": Dense(a**2 * jnp.eye(ITEMS)), "shared": Dense(jnp.asarray(MATRIX))})
    ),
    "precision": lambda a: normal(MEANS, precision_matrix=jnp.asarray(MATRICES) / a**2),
    "root": lambda a: normal(MEANS[0], scale_tril=a * jnp.asarray(ROOTS)),
    "LowRankMultivariateNormal": lambda a: dist.LowRankMultivariateNormal(
        jnp.asarray(MEANS), a * jnp.asarray(ROOTS[0, :, :2]), jnp.arange(1.0, ITEMS + 1)
    ),
    "CAR": lambda a: dist.CAR(jnp.asarray(MEANS), 0.6, jnp.array([1.0, 2.0, 0.5]) / a**2, LINKS),
    "GaussianRandomWalk": lambda a: dist.GaussianRandomWalk(
        a * jnp.array([[1.0], [0.5]]), ITEMS
    ).expand([2, RATERS]),
    "MatrixNormal": lambda a: dist.MatrixNormal(
        jnp.asarray(MEANS), a * jnp.asarray(ROOTS[:2, :RATERS, :RATERS]), jnp.asarray(ROOTS[2])
    ),
    "CirculantNormal": lambda a: dist.CirculantNormal(
        jnp.asarray(MEANS[0]), a**2 * jnp.array([2.0, 0.5, 0.2, 0.5])
    ).expand([2]),
    "GaussianStateSpace": lambda a: dist.GaussianStateSpace(
        RATERS, 0.5 * jnp.asarray(ROOTS[1]), a**2 * jnp.asarray(MATRIX), None, None, MEANS[:2]
    ),
    "affine": lambda a: (
        dist.TransformedDistribution(
            dist.Normal(jnp.asarray(MEANS[0]), 2.0),
            [AffineTransform(1.0, -a), AffineTransform(jnp.asarray(MEANS[1]), 3.0)],
        )
        .expand([RATERS, ITEMS])
        .to_event(1)
    ),
    "affine in a root": lambda a: dist.TransformedDistribution(
        process(MATRIX), LowerCholeskyAffine(jnp.asarray(MEANS), a * jnp.asarray(ROOTS))
    ).mask(False),
}


@pytest.mark.parametrize("family", [*FAMILIES])
def test_densities_are_those_of_the_family(family: str) -> None:
    values = RNG.standard_normal(60)

    def evaluated(amplitude: Any) -> tuple[Any, ...]:
        distribution = FAMILIES[family](amplitude)
        mean, covariance = gaussian_parts(distribution)
        value = values[: len(mean)].reshape(distribution.shape())
        if isinstance(distribution, dist.MaskedDistribution):
            distribution = distribution.base_dist
        return mean, covariance.dense(), jnp.sum(distribution.log_prob(value))

    with jax.enable_x64(True):
        mean, matrix, density = map(np.asarray, jax.jit(evaluated)(0.7))
    expected = stats.multivariate_normal(mean, matrix).logpdf(values[: len(mean)])
    assert_allclose(density, expected, rtol=1e-10)


@pytest.mark.parametrize("family", ["CAR", "GaussianRandomWalk", "affine"])
def test_families_are_multivariate_normals(family: str) -> None:
    make = FAMILIES[family]

    def one_normal(amplitude: Any) -> Any:
        mean, covariance = gaussian_parts(make(amplitude))
        return numpyro.sample("w", normal(mean, covariance.dense()))

    first, second = (fit(EP, draw, **OPTIONS[1]) for draw in (site(make), one_normal))
    assert_allclose(first.mean(), second.mean(), rtol=0, atol=1e-5)
    assert_allclose(first.covariance(), second.covariance(), rtol=0, atol=1e-5)
    assert_equal(first, second, 1e-5)


def test_values_that_sum_to_zero() -> None:
    center = np.eye(ITEMS) - 1 / ITEMS
    together = fit(EP, site(lambda a: dist.ZeroSumNormal(2.0 * a, (ITEMS,))), **OPTIONS[0])
    plain = fit(
        EP, lambda a: numpyro.sample("w", dist.Normal(0.0, 2.0 * a).expand([ITEMS])), **OPTIONS[0]
    )
    assert_allclose(together.mean(), center @ plain.mean(), rtol=0, atol=1e-6)
    assert_allclose(together.covariance(), center @ plain.covariance() @ center, atol=1e-6)


def test_a_sparse_car() -> None:
    def mean(links: Any, is_sparse: bool) -> Any:
        draw = site(lambda a: dist.CAR(0.0, 0.6, a, links, is_sparse=is_sparse))
        return fit(EP, draw, **OPTIONS[1]).mean()

    dense, sparse = mean(LINKS, False), mean(scipy.sparse.csr_matrix(LINKS), True)
    assert_allclose(sparse, dense, rtol=0, atol=1e-8)


OTHERS: dict[str, Callable[[], Any]] = {
    "MultivariateStudentT": lambda: dist.MultivariateStudentT(
        5.0, jnp.zeros(ITEMS), jnp.asarray(ROOTS[0])
    ),
    "EulerMaruyama": lambda: dist.EulerMaruyama(
        jnp.arange(4.0), lambda x, _: (-x, jnp.ones_like(x)), dist.Normal(0.0, 1.0)
    ),
    "MixtureSameFamily": lambda: dist.MixtureSameFamily(
        dist.Categorical(jnp.ones(RATERS) / RATERS), normal(MEANS, MATRIX)
    ),
    "GaussianCopula": lambda: dist.GaussianCopula(
        dist.Normal(jnp.zeros(ITEMS), 1.0), correlation_cholesky=jnp.eye(ITEMS)
    ),
}


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("family", [*OTHERS])
def test_other_families_are_refused_by_their_names(family: str, beside: bool) -> None:
    def draw(amplitude: Any) -> Any:
        other = numpyro.sample("f", normal(ZEROS[0], amplitude * MATRIX)) if beside else 0.0
        return numpyro.sample("w", OTHERS[family]()) + other

    with pytest.raises(UnsupportedProgramError, match=rf"'w' \({family}\).*NUTS"):
        fit(EP, draw)


def test_a_correlation_matrix_is_a_hyperparameter() -> None:
    """Its prior knows neither quantiles nor a mean."""

    def draw(amplitude: Any) -> Any:
        factor = numpyro.sample("factor", dist.LKJCholesky(ITEMS, 2.0))
        normals = dist.MultivariateNormal(0.0, scale_tril=amplitude * factor)
        with numpyro.plate("rater", RATERS):
            return numpyro.sample("f", normals)[0]

    factor = fit(EP, draw, **OPTIONS[1]).hyperparameters["factor"]
    assert_allclose(np.sum(np.square(factor), axis=1), 1.0)


def test_other_families_may_be_fixed() -> None:
    def draw(amplitude: Any) -> Any:
        return numpyro.sample("f", normal(ZEROS[0], amplitude * MATRIX)) + numpyro.sample(
            "w", OTHERS["MultivariateStudentT"]()
        )

    posterior = fit(EP, draw, fixed={"amplitude": 0.7, "w": MEANS[0]})
    assert posterior.mean().shape == (ITEMS,)


def test_a_transformation_that_is_not_affine_is_a_hyperparameter() -> None:
    def draw(amplitude: Any) -> Any:
        skewed = dist.TransformedDistribution(dist.Normal(0.0, 0.1), ExpTransform())
        return numpyro.sample("w", normal(ZEROS[0], MATRIX)) * numpyro.sample("skewed", skewed)

    assert "skewed" in fit(EP, draw, **OPTIONS[1]).hyperparameters


@pytest.mark.parametrize("form", ["plate of processes", "expanded processes"])
def test_the_exact_engine_has_no_plates_of_processes(form: str) -> None:
    with pytest.raises(UnsupportedProgramError, match="needs one observed site and one Gaussian"):
        Exact(program(PLATES[form][0])).run(0, WON)


def test_samples_of_a_plate() -> None:
    """Posteriors of samplers take every site of Gaussian vectors as latent values."""

    def sampled() -> None:
        rate = numpyro.sample("rate", dist.MultivariateStudentT(5.0, jnp.zeros(2), jnp.eye(2)))
        with numpyro.plate("rater", RATERS):
            w = numpyro.sample("w", dist.GaussianRandomWalk(1.0, ITEMS))
        with numpyro.plate("answer", ANSWERS):
            numpyro.sample("y", ProbitComparison(w[RATER, FIRST] + rate[0]), obs=WON)

    draws = {"w": RNG.standard_normal((8, RATERS, ITEMS)), "rate": RNG.standard_normal((8, 2))}
    posterior = from_samples(draws, sampled)
    assert_allclose(posterior.mean(), draws["w"].mean(axis=0).ravel())
