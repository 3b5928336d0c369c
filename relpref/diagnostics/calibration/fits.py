"""One simulation fitted by one engine, hyperparameters given, integrated over, maximised, or by a function of the user's own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro import handlers

from relpref.diagnostics.calibration.simulate import Answered, Draws, Questions, split
from relpref.errors import DataError, InferenceError
from relpref.infer import Exact, RelationPosterior, from_samples, noncentered
from relpref.infer.engine import GaussianEngine
from relpref.infer.integrate import UNMIXED
from relpref.infer.posterior import Posterior
from relpref.infer.program import Call, Values, running
from relpref.infer.result import Result

Hyperparameters = Literal["given", "integrate", "nuts", "maximise"]
HYPERPARAMETERS = ("given", "integrate", "nuts", "maximise")
SAMPLERS = ("nuts", "svi")
Engine = type[GaussianEngine] | type[Exact] | Literal["nuts", "svi"] | Callable[..., Any]
Fit = tuple[Posterior | RelationPosterior | None, str]

_NUTS_DRAWS = 400
_NUTS_WARMUP = 300
_SVI_STEPS = 3000
_SVI_DRAWS = 1000
_SVI_RATE = 0.02
_SETTLED = 0.5  # nats that the evidence bound may still gain over the last tenth of the steps


def engine_name(engine: Engine) -> str:
    """How an engine is called in tables and files."""
    if isinstance(engine, str):
        return {"nuts": "NUTS", "svi": "SVI mean field"}[engine]
    named = getattr(engine, "name", None)
    return str(named) if isinstance(named, str) else f"{engine.__module__}.{engine.__qualname__}"


def check_engine(engine: Any, hyperparameters: str) -> None:
    """Refuse an engine that is none, and what it cannot do.

    Raises
    ------
    DataError
    """
    if hyperparameters not in HYPERPARAMETERS:
        raise DataError(
            f"hyperparameters is {hyperparameters!r}; it is 'given', 'integrate', 'nuts' or 'maximise'"
        )
    if isinstance(engine, str) and engine in SAMPLERS:
        if hyperparameters not in ("given", "integrate"):
            raise DataError(f"engine {engine!r} samples hyperparameters; it is for 'given' or 'integrate'")
        return
    if not callable(engine):
        raise DataError(
            f"engine is {engine!r}; it is EP, Laplace or Exact, 'nuts' or 'svi', or a function (program, hyperparameters, key, *args, "
            "**kwargs) that returns a posterior"
        )
    if engine is Exact and hyperparameters in ("integrate", "nuts"):
        raise DataError(
            "Exact does not integrate over hyperparameters; EP does, and is exact for Gaussian labels, too"
        )


def fitted(
    engine: Engine,
    hyperparameters: Hyperparameters,
    options: Mapping[str, Any],
    questions: Questions,
    draw: Draws,
    key: Any,
) -> Fit:
    """The posterior of one simulation, None where there is none, and how the fit ended."""
    program, args = Answered(questions.program), (draw.answers, *questions.args)
    given = draw.hyperparameters if hyperparameters == "given" else {}
    call = (key, *args)
    found: Any
    try:
        if isinstance(engine, str):
            found = _sampled(engine, questions, draw.answers, given, options, key)
        elif engine is Exact:
            exact = Exact(program, fixed=given, throw=False, **options)
            found = exact.run(*call, progress_bar=False, **questions.kwargs)
        elif isinstance(engine, type) and issubclass(engine, GaussianEngine):
            strategy: Any = "maximise" if hyperparameters == "given" else hyperparameters
            fit = engine(program, hyperparameters=strategy, fixed=given, throw=False, **options)
            found = fit.run(*call, progress_bar=False, **questions.kwargs)
        else:
            own: Any = engine
            found = own(program, given, *call, **questions.kwargs)
    except InferenceError as error:
        return None, error.result.name
    result = str(found.info["result"])
    return (None if Result[result].empty else found), result


def _sampled(
    engine: str,
    questions: Questions,
    answers: Values,
    given: Values,
    options: Mapping[str, Any],
    key: Any,
) -> Posterior:
    """By numpyro's NUTS, or by its SVI with a normal guide for every entry by itself."""
    call, arrays = split(questions.program, questions.args, questions.kwargs)
    with jax.enable_x64(True):
        observed = {**answers, **given}
        with running:  # the samplers run the program by themselves
            samples, result = (_nuts if engine == "nuts" else _svi)(call, arrays, observed, key, **options)
        number = len(next(iter(samples.values())))
        samples |= {name: np.broadcast_to(value, (number, *np.shape(value))) for name, value in given.items()}
    found = from_samples(
        samples, Answered(questions.program), answers, *questions.args, rng_key=key, **questions.kwargs
    )
    return replace(found, info={**found.info, "result": result})


@lru_cache(maxsize=8)
def _model(call: Call) -> Callable[..., Any]:
    def model(arrays: tuple[Any, ...], observed: Values) -> None:
        args, kwargs = call.arguments(arrays)
        with handlers.condition(data=observed):
            call.program(*args, **kwargs)

    return noncentered(model)


@lru_cache(maxsize=8)
def _sampler(call: Call, draws: int, warmup: int) -> Any:
    from numpyro.infer import MCMC, NUTS

    return MCMC(
        NUTS(_model(call)), num_warmup=warmup, num_samples=draws, progress_bar=False, jit_model_args=True
    )


def _nuts(
    call: Call,
    arrays: tuple[Any, ...],
    observed: Values,
    key: Any,
    draws: int = _NUTS_DRAWS,
    warmup: int = _NUTS_WARMUP,
) -> tuple[Values, str]:
    from numpyro.diagnostics import split_gelman_rubin

    sampler = _sampler(call, draws, warmup)
    sampler.run(key, arrays, observed)
    samples = {name: np.asarray(value) for name, value in sampler.get_samples().items()}
    flat = np.concatenate([value.reshape(len(value), -1) for value in samples.values()], axis=1)
    mixed = float(np.nanmax(split_gelman_rubin(flat[None]))) <= UNMIXED
    return samples, (Result.converged if mixed else Result.hyperparameters_not_mixed).name


def _svi(
    call: Call,
    arrays: tuple[Any, ...],
    observed: Values,
    key: Any,
    steps: int = _SVI_STEPS,
    draws: int = _SVI_DRAWS,
) -> tuple[Values, str]:
    samples, losses = _mean_field(call, steps, draws, arrays, observed, key)
    losses = np.asarray(losses)
    if not np.all(np.isfinite(losses[-(steps // 5) :])):
        return samples, Result.nonfinite.name
    before, after = losses[-(steps // 5) : -(steps // 10)], losses[-(steps // 10) :]
    error = np.hypot(np.std(before), np.std(after)) / np.sqrt(len(after))
    settled = np.mean(before) - np.mean(after) < _SETTLED + 3 * error
    return samples, (Result.converged if settled else Result.max_iterations).name


@partial(jax.jit, static_argnums=(0, 1, 2))
def _mean_field(
    call: Call, steps: int, draws: int, arrays: tuple[Any, ...], observed: Values, key: Any
) -> tuple[Values, Array]:
    """Draws of a fitted guide, and the loss at every step."""
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    model = _model(call)
    guide = AutoNormal(model)
    svi = SVI(model, guide, Adam(_SVI_RATE), Trace_ELBO())
    first, second = jax.random.split(key)
    state, losses = jax.lax.scan(
        lambda state, _: svi.update(state, arrays, observed),
        svi.init(first, arrays, observed),
        length=steps,
    )
    samples = guide.sample_posterior(second, svi.get_params(state), sample_shape=(draws,))
    return {name: jnp.asarray(value) for name, value in samples.items()}, losses
