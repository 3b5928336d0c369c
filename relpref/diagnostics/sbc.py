"""Simulation-based calibration: whether intervals hold the truth as often as they say, when the model is right.

Draw hyperparameters, Gaussian sites and answers from a program, let an engine fit the answers, and see where the truth falls in its
posterior: over many simulations the probability integral transforms of a calibrated engine are uniform (Cook, Gelman & Rubin 2006;
Talts et al. 2018). Hyperparameters are always drawn from their priors. An engine that is given them, or integrates over them, is to be
calibrated; one that maximizes them is not by design, and what that costs can be measured.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpyro import handlers

from relpref.data import PreferenceData, RelationData
from relpref.diagnostics.calibration import Calibration
from relpref.diagnostics.simulation import (
    Answered,
    Asked,
    Draws,
    Known,
    Own,
    Picked,
    Quantity,
    Questions,
    rank,
    usual,
)
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import EP, Exact, RelationPosterior, from_samples, noncentered
from relpref.infer.engine import GaussianEngine
from relpref.infer.evidence import Evidence, latent_moments, use_dual_space
from relpref.infer.program import Call, Model, Program, Values, broadcast_fixed, discover, running
from relpref.infer.result import CODES, Result
from relpref.infer.search import UNMIXED
from relpref.infer.sites import Sites
from relpref.journal import Journal, fingerprint
from relpref.kernels import Precomputed
from relpref.limits import MAX_NUMBERS_OF_SIMULATIONS, MAX_SIMULATIONS_AT_ONCE
from relpref.models import conditional_ranking
from relpref.parallel import Scheduler, run_all
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import GaussianBelief, as_key, key_words

Hyperparameters = Literal["given", "integrate", "nuts", "maximise"]
Engine = type[GaussianEngine] | type[Exact] | Literal["nuts", "svi"] | Callable[..., Any]

_SAMPLERS = {"nuts": "NUTS", "svi": "SVI mean field"}
_WORDS = {
    "given": "given",
    "integrate": "integrated over",
    "nuts": "sampled by NUTS",
    "maximise": "maximised",
}
_TOLERANCE, _SWEEPS = 1e-6, 500
_TOGETHER = 5  # simulations that a worker is handed at a time, where they are fitted one by one
_NUTS_DRAWS, _NUTS_WARMUP = 400, 300
_SVI_STEPS, _SVI_DRAWS, _SVI_RATE = 3000, 1000, 0.02
_SETTLED = 0.5  # nats that the evidence bound may still gain over the last tenth of the steps


def _below_truths(
    engine: type[GaussianEngine],
    quantity: Quantity,
    questions: Questions,
    draws: Draws,
    picked: list[Picked],
    rngs: list[np.random.Generator],
    tol: float = _TOLERANCE,
    max_sweeps: int = _SWEEPS,
) -> Iterator[tuple[float | None, str]]:
    """Posterior probability that the quantity lies below its true value, and the result code, of simulations fitted at once."""
    first = draws.one(0)
    call, arrays = questions.call(first.answers)
    program = discover(call, arrays, first.hyperparameters)
    layout, answers = program.layout, jax.tree.leaves(draws.answers)
    found = _evaluate(
        engine.evaluate,
        program,
        tuple(jnp.asarray(value) for value in answers),
        arrays[len(answers) :],
        draws.hyperparameters,
        tol,
        max_sweeps,
    )
    found = jax.tree.map(np.asarray, found)
    for row, (pick, rng) in enumerate(zip(picked, rngs, strict=True)):
        evidence: Evidence = jax.tree.map(lambda leaf, row=row: leaf[row], found)
        result, truth = CODES[int(evidence.info.code)], draws.one(row)
        asked = Asked(quantity, layout, call, arrays, truth, pick, rng)
        belief = GaussianBelief(*latent_moments(layout, evidence))
        probability = asked.below(belief, truth.hyperparameters, {})
        yield (probability if np.isfinite(probability) and not result.empty else None), result.name


@partial(jax.jit, static_argnums=0)
def _evaluate(
    evaluate: Callable[..., Evidence],
    program: Program,
    answers: tuple[Array, ...],
    rest: tuple[Any, ...],
    hyperparameters: Values,
    tol: float,
    max_sweeps: int,
) -> Evidence:
    layout = program.layout
    start = Sites(jnp.zeros(layout.num_rows), jnp.zeros(layout.num_rows))

    def one(answers: tuple[Array, ...], fixed: Values) -> Evidence:
        one = replace(program, arrays=(*answers, *rest), fixed=fixed)
        return evaluate(one, use_dual_space(layout), False, {}, start, tol, max_sweeps, True)

    return jax.vmap(one)(answers, hyperparameters)


def _check_engine(engine: Any, hyperparameters: str) -> None:
    """Refuse an engine that is none, and what it cannot do."""
    if hyperparameters not in get_args(Hyperparameters):
        raise DataError(
            f"hyperparameters is {hyperparameters!r}; it is 'given', 'integrate', 'nuts' or 'maximise'"
        )
    sampler = isinstance(engine, str) and engine in _SAMPLERS
    if sampler and hyperparameters not in ("given", "integrate"):
        raise DataError(f"engine {engine!r} samples hyperparameters; it is for 'given' or 'integrate'")
    if not sampler and not callable(engine):
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
) -> tuple[Posterior | RelationPosterior | None, str]:
    """The posterior of one simulation, None where there is none, and how the fit ended."""
    given = draw.hyperparameters if hyperparameters == "given" else {}
    program, call = Answered(questions.program), (key, draw.answers, *questions.args)
    found: Any
    try:
        if isinstance(engine, str):
            found = _sampled(engine, questions, draw.answers, given, options, key)
        elif _is_gaussian(engine) or engine is Exact:
            chosen: Any = engine
            if engine is not Exact:
                strategy = "maximise" if hyperparameters == "given" else hyperparameters
                options = {"hyperparameters": strategy, **options}
            fit = chosen(program, fixed=given, throw=False, **options)
            found = fit.run(*call, progress_bar=False, **questions.kwargs)
        else:
            own: Any = engine
            found = own(program, given, *call, **questions.kwargs)
    except InferenceError as error:
        return None, error.result.name
    return (None if found.empty else found), found.result.name


def _is_gaussian(engine: Any) -> bool:
    return isinstance(engine, type) and issubclass(engine, GaussianEngine)


def _sampled(
    engine: str,
    questions: Questions,
    answers: Values,
    given: Values,
    options: Mapping[str, Any],
    key: Any,
) -> Posterior:
    """By numpyro's NUTS, or by its SVI with a normal guide for every entry by itself."""
    call, arrays = Call.split(questions.program, questions.args, questions.kwargs)
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
    first, second = jax.random.split(key)
    svi = SVI(model, guide, Adam(_SVI_RATE), Trace_ELBO())
    found = svi.run(first, steps, arrays, observed, progress_bar=False)
    samples = guide.sample_posterior(second, found.params, sample_shape=(draws,))
    return {name: jnp.asarray(value) for name, value in samples.items()}, found.losses


def calibrate(
    program: Model,
    *args: Any,
    engine: Engine = EP,
    hyperparameters: Hyperparameters = "given",
    simulations: int = 100,
    key: Any = 0,
    quantity: Callable[[Mapping[str, Any]], Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    engine_options: Mapping[str, Any] | None = None,
    file: str | os.PathLike[str] | None = None,
    scheduler: str | None = None,
    progress_bar: bool = True,
    **kwargs: Any,
) -> Calibration:
    """Simulate from a program, fit each simulation, and see where the truth falls.

    Parameters
    ----------
    program : callable
        Such as `relpref.models.xpgp`, or one of your own.
    *args, **kwargs
        What the program is called with: entities, relations, and questions. Its answers are not looked at.
    engine : type, str or callable
        `EP`, `Laplace` or `Exact`; ``"nuts"`` (numpyro's, on the whole program, whitened) or ``"svi"`` (mean field: a normal guide
        for every entry by itself); or a function ``fit(program, hyperparameters, key, *args, **kwargs)`` that returns a posterior. Its ``args``
        are the program's, the simulated answers first; ``hyperparameters`` is empty unless they are given.
    hyperparameters : {"given", "integrate", "nuts", "maximise"}
        Whether the engine is told those of the simulation, averages over them, samples them, or takes the best. Of the samplers ``"nuts"``
        and ``"svi"``, which sample everything, ``"integrate"`` says so.
    simulations : int
    key : JAX key or int
        Each simulation has a key of its own, so that the first hundred of a thousand are the hundred.
    quantity : callable, optional
        From the values of all sites by name to a number, affine in the Gaussian sites. By default the gap of a random pair of entities
        ("gap"); of a relation the difference of the scores of two random objects for a random node ("difference"); for anything
        else, classifiers too, what a random observed row looks at ("decision").
    fixed : mapping from site to value, optional
        Hyperparameters that are not drawn, because they are known; scalars are broadcast.
    engine_options : mapping, optional
        Options of the engine, such as ``draws`` and ``warmup``; of ``"svi"`` ``steps`` and ``draws``.
    file : path, optional
        Finished simulations are added to it, and those that are there are not done again. Program, engine and quantity must be the
        same functions: their code, what it names in their module, and values bound to them are looked at.
    scheduler : str, optional
        Where simulations are fitted, see `relpref.parallel.run_all`; here, one after the other, by default.
    progress_bar : bool
        Show how far it is, where a person watches.

    Returns
    -------
    Calibration
        Where hyperparameters are integrated over, with their transforms, too.

    Raises
    ------
    DataError
        If an option makes no sense, answers could not have been drawn from the program, or it has parts that a file could not tell
        from others.
    UnsupportedProgramError
        If the program has no Gaussian site that enters its answers linearly.
    StorageError
        If the file is of other simulations, or cannot be written.
    ClusterError
        If other processes went away; the same call goes on with what is in the file.
    """
    if simulations < 1:
        raise DataError(f"simulations is {simulations}; it must be at least 1")
    Scheduler.read(scheduler)
    _check_engine(engine, hyperparameters)
    if engine is Exact and quantity is not None:
        raise DataError("Exact answers for differences of scores only; leave quantity out, or use EP")
    inner: Any = program
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    called = _SAMPLERS[engine] if isinstance(engine, str) else getattr(engine, "name", None)
    if not isinstance(called, str):
        called = f"{engine.__module__}.{engine.__qualname__}"  # type: ignore[union-attr]
    what = getattr(inner, "__name__", type(inner).__name__)
    name = f"{what}, {called}, hyperparameters {_WORDS[hyperparameters]}"
    with jax.enable_x64(True):
        if fixed:
            known = broadcast_fixed(*Call.split(program, args, kwargs), dict(fixed))
            program, args = Known(program), (known, *args)
        questions = Questions.of(
            program, args, kwargs, relation=engine is Exact, sampled=isinstance(engine, str)
        )
    chosen = usual(questions) if quantity is None else Own(quantity)
    options, words = dict(engine_options or {}), key_words(as_key(key))
    together = hyperparameters == "given" and _is_gaussian(engine)
    size = 1 if scheduler is None else _TOGETHER
    if together:  # it depends on the problem alone, so that the same ones always are
        size = max(
            1, min(MAX_SIMULATIONS_AT_ONCE, MAX_NUMBERS_OF_SIMULATIONS // questions.layout.num_latents**2)
        )
    simulator = _Simulator(questions, engine, hyperparameters, chosen, options, words, size, together)
    journal = None if file is None else Journal(file, "calibration", simulator.settings(name))
    records = {} if journal is None else {record["simulation"]: record for record in journal.records}
    starts = [
        start
        for start in range(0, simulations, size)
        if any(number not in records for number in range(start, min(start + size, simulations)))
    ]
    label = f"simulations ({'blocks of ' + str(size) if size > 1 else name})"
    for _, found in run_all(simulator, starts, scheduler, label=label, kept=file, progress_bar=progress_bar):
        new = {
            record["simulation"]: record
            for record in found
            if record["simulation"] < simulations and record["simulation"] not in records
        }
        records |= new
        if journal is not None:
            journal.add(*new.values())
    ordered = [records[row] for row in range(simulations)]
    pits = {
        name: np.array([np.nan if one["pits"][name] is None else one["pits"][name] for one in ordered], float)
        for name in ordered[0]["pits"]
    }
    return Calibration(pits, tuple(record["result"] for record in ordered), name)


@dataclass(frozen=True, eq=False)
class _Simulator:
    """Does some simulations; can be sent to other processes."""

    questions: Questions
    engine: Engine
    hyperparameters: Hyperparameters
    quantity: Quantity
    options: Mapping[str, Any]
    key: Any
    size: int
    together: bool

    def __call__(self, start: int) -> list[dict[str, Any]]:
        """The block of simulations that begins there."""
        numbers = range(start, start + self.size)
        rngs = [np.random.default_rng([*np.asarray(self.key).tolist(), number]) for number in numbers]
        picked = [self.quantity.pick(rng) for rng in rngs]
        with jax.enable_x64(True):
            root = jax.random.wrap_key_data(jnp.asarray(self.key, np.uint32))
            keys = jax.vmap(lambda number: jax.random.fold_in(root, number))(np.asarray(numbers))
            if self.together:
                engine: Any = self.engine
                draws = self.questions.draw(keys)
                at = (engine, self.quantity, self.questions, draws, picked, rngs)
                return [
                    {"simulation": number, "result": result, "pits": {self.quantity.name: probability}}
                    for number, (probability, result) in zip(
                        numbers, _below_truths(*at, **self.options), strict=True
                    )
                ]
        # Drawn one by one, so that a simulation does not depend on how many are done together.
        return [self._one(*each) for each in zip(numbers, keys, picked, rngs, strict=True)]

    def _one(self, number: int, key: Array, picked: Any, rng: np.random.Generator) -> dict[str, Any]:
        questions = self.questions
        with jax.enable_x64(True):
            draw = questions.draw(key[None]).one(0)
        posterior, result = fitted(
            self.engine, self.hyperparameters, self.options, questions, draw, jax.random.fold_in(key, 1)
        )
        pits = {self.quantity.name: np.nan}
        if self.hyperparameters in ("integrate", "nuts"):
            places = [(n, at) for n, shape in questions.layout.hyperparameters for at in np.ndindex(*shape)]
            titles = {site + "".join(f"[{at}]" for at in index): (site, index) for site, index in places}
            pits |= dict.fromkeys(titles, np.nan)
        if posterior is not None:
            with jax.enable_x64(True):
                asked = questions.ask(self.quantity, draw, picked, rng)
                pits[self.quantity.name] = asked.below_posterior(posterior)
            fit: Any = posterior
            for title in [*pits][1:]:
                site, index = titles[title]
                values, true = (
                    fit.hyperparameter_draws[site][:, *index],
                    float(draw.hyperparameters[site][index]),
                )
                weights = fit.belief.weights
                weighted = bool(np.ptp(weights))
                pits[title] = float(weights @ (values < true)) if weighted else rank(values, true, rng)
        plain = {name: float(value) if np.isfinite(value) else None for name, value in pits.items()}
        return {"simulation": number, "result": result, "pits": plain}

    def settings(self, name: str) -> dict[str, Any]:
        """What must be the same for simulations to belong together, as plain values."""
        from relpref._version import __version__

        return {
            "what": name,
            "quantity": f"{self.quantity.name} ({fingerprint(self.quantity)})",
            "options": {option: str(value) for option, value in sorted(self.options.items())},
            "key": [int(word) for word in self.key],
            "program": fingerprint(self.questions.program),
            "engine": fingerprint((self.engine, dict(self.options))),
            "data": fingerprint((self.questions.args, dict(self.questions.kwargs))),
            "version": __version__,
        }


def simulated(posterior: Posterior | RelationPosterior) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What `calibrate` takes to simulate from the model of a posterior: program, arguments, keywords.

    With its entities, relations and questions, and the hyperparameters that were fixed; of a relation with its kernels and known pairs,
    at the scale and noise that were found.

    Raises
    ------
    UnsupportedProgramError
        If the program is not known any more.
    """
    if posterior.kind != "relation":
        origin = posterior.origin
        if origin is None or not origin.complete:
            raise UnsupportedProgramError(
                "the posterior does not know its program with all of its priors, which a file cannot hold; call "
                "relpref.diagnostics.calibrate with the program"
            )
        call, data = origin.unbound(), posterior.datasets().get("data")
        args = tuple(data if type(value) is type(data) else value for value in call.args)
        return call.program, args, {**call.kwargs, "fixed": dict(origin.fixed)}
    problem, nodes, kernels = posterior.problem, [], {}
    sides = {"node_kernel": problem.nodes, "object_kernel": problem.objects}
    if problem.nodes is problem.objects:
        del sides["object_kernel"]
    for name, side in sides.items():
        gram = np.asarray(side.gram, dtype=np.float64)
        kernels[name] = Precomputed(0.5 * (gram + gram.T))
        index = pd.Index(list(side.labels), tupleize_cols=False)
        # The attribute is not looked at, since the kernel is known.
        table = pd.DataFrame({"number": np.arange(len(index), dtype=float)}, index=index)
        nodes.append(PreferenceData.from_tables(table))
    values, symmetry = problem.values, problem.symmetry
    distinct = None if symmetry == "none" else values.distinct(symmetry)
    second = nodes[1] if len(nodes) == 2 else None
    relation = RelationData(nodes[0], second, values, symmetry, posterior.shift, distinct)
    scale = posterior.noise / posterior.solution.regularization
    # One set of nodes: the amplitude is squared in both factors of the product.
    amplitude = scale ** (0.5 if len(nodes) == 2 else 0.25)
    fixed = {"attributes_amplitude": amplitude, "noise": np.sqrt(posterior.noise)}
    return (
        conditional_ranking,
        (relation,),
        {"loss": problem.loss, "standardize": False, **kernels, "fixed": fixed},
    )
