"""Simulation-based calibration: whether intervals hold the truth as often as they say, when the model is right.

Draw hyperparameters, Gaussian sites and answers from a program, let an engine fit the answers, and see where the truth falls in its
posterior: over many simulations the probability integral transforms of a calibrated engine are uniform (Cook, Gelman & Rubin 2006;
Talts et al. 2018). Hyperparameters are always drawn from their priors. An engine that is given them, or integrates over them, is to be
calibrated; one that maximises them is not by design, and what that costs can be measured.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpyro import handlers

from relpref.data import PreferenceData, RelationData
from relpref.diagnostics.calibration.quantities import (
    Answered,
    Draws,
    Known,
    Own,
    Picked,
    Quantity,
    Questions,
    average_below,
    below_truth,
    moments_at,
    rank,
    split,
    usual,
    values_at,
)
from relpref.diagnostics.calibration.result import Calibration, Journal, Record
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import EP, Exact, RelationPosterior, UtilityPosterior, from_samples, noncentered
from relpref.infer.assemble import latent_moments
from relpref.infer.engine import GaussianEngine
from relpref.infer.evidence import Evidence, use_dual_space
from relpref.infer.program import Call, Layout, Model, Program, Values, broadcast_fixed, discover, running
from relpref.infer.result import CODES, Result
from relpref.infer.search import UNMIXED
from relpref.infer.sites import Sites
from relpref.journal import fingerprint
from relpref.kernels import Precomputed
from relpref.models import conditional_ranking
from relpref.parallel import Scheduler, run_all
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import as_key, key_words

_TOLERANCE, _SWEEPS = 1e-6, 500
_LARGEST = 100  # simulations at once
_NUMBERS = 1_000_000  # in their covariances: 8 MB


def block_size(layout: Layout) -> int:
    """How many simulations are fitted at once; it depends on the problem alone, so that the same ones always are."""
    return max(1, min(_LARGEST, _NUMBERS // layout.num_latents**2))


def below_truths(
    engine: type[GaussianEngine],
    quantity: Quantity,
    questions: Questions,
    draws: Draws,
    picked: list[Picked],
    tol: float = _TOLERANCE,
    max_sweeps: int = _SWEEPS,
) -> list[tuple[float, str]]:
    """Posterior probability that the quantity lies below its true value, and the result code, of each simulation."""
    first = draws[0]
    call, arrays = questions.call(first.answers)
    program = discover(call, arrays, first.hyperparameters)
    layout = program.layout
    answered, rest = len(jax.tree.leaves(first.answers)), arrays[len(jax.tree.leaves(first.answers)) :]
    answers = jax.tree.leaves(draws.answers)
    assert len(answers) == answered
    found = _evaluate(
        engine.evaluate,
        program,
        tuple(jnp.asarray(value) for value in answers),
        rest,
        draws.hyperparameters,
        tol,
        max_sweeps,
    )
    found = jax.tree.map(np.asarray, found)
    rows = []
    for row, pick in enumerate(picked):
        evidence: Evidence = jax.tree.map(lambda leaf, row=row: leaf[row], found)
        result = CODES[int(evidence.info.code)]
        mean, covariance = latent_moments(layout, evidence)
        known = {name: value[row : row + 1] for name, value in draws.hyperparameters.items()}
        at = (quantity, call, layout, arrays, known)
        true = values_at(*at, draws[row].vector(layout)[None], pick)
        value, variance = moments_at(*at, mean[None], covariance[None], pick)
        below = average_below(np.asarray(true), np.asarray(value), np.asarray(variance), np.ones(1))
        rows.append((np.nan if result.empty else below, result.name))
    return rows


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
    return (None if found.empty else found), found.result.name


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


_TOGETHER = 5  # simulations that a worker is handed at a time, where they are fitted one by one


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
    check_engine(engine, hyperparameters)
    if engine is Exact and quantity is not None:
        raise DataError("Exact answers for differences of scores only; leave quantity out, or use EP")
    name = f"{_program_name(program)}, {engine_name(engine)}, hyperparameters {_WORDS[hyperparameters]}"
    with jax.enable_x64(True):
        if fixed:
            call, arrays = split(program, args, kwargs)
            program, args = Known(program), (broadcast_fixed(call, arrays, dict(fixed)), *args)
        questions = Questions.of(
            program, args, kwargs, relation=engine is Exact, sampled=isinstance(engine, str)
        )
    chosen = usual(questions) if quantity is None else Own(quantity)
    options = dict(engine_options or {})
    together = hyperparameters == "given" and isinstance(engine, type) and issubclass(engine, GaussianEngine)
    size = block_size(questions.layout) if together else 1 if scheduler is None else _TOGETHER
    words = key_words(as_key(key))
    simulator = _Simulator(questions, engine, hyperparameters, chosen, options, words, size, together)
    journal = None if file is None else Journal(file, simulator.settings(name))
    records = {} if journal is None else dict(journal.records)
    starts = [
        s
        for s in range(0, simulations, size)
        if not all(i in records for i in range(s, min(s + size, simulations)))
    ]
    label = f"simulations ({'blocks of ' + str(size) if size > 1 else name})"
    batches = run_all(simulator, starts, scheduler, label=label, kept=file, progress_bar=progress_bar)
    for _, found in batches:
        new = [
            record for record in found if record.simulation < simulations and record.simulation not in records
        ]
        records |= {record.simulation: record for record in new}
        if journal is not None:
            journal.add(new)
    return _collected([records[row] for row in range(simulations)], name)


_WORDS = {
    "given": "given",
    "integrate": "integrated over",
    "nuts": "sampled by NUTS",
    "maximise": "maximised",
}


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

    def __call__(self, start: int) -> list[Record]:
        """The block of simulations that begins there."""
        with jax.enable_x64(True):
            keys = _keys(jax.random.wrap_key_data(jnp.asarray(self.key, np.uint32)), start, self.size)
            numbers = range(start, start + self.size)
            rngs = [np.random.default_rng([*np.asarray(self.key).tolist(), number]) for number in numbers]
            picked = [self.quantity.pick(rng) for rng in rngs]
            if self.together:
                assert isinstance(self.engine, type) and issubclass(self.engine, GaussianEngine)
                draws = self.questions.draw(keys)
                found = below_truths(
                    self.engine, self.quantity, self.questions, draws, picked, **self.options
                )
                return [
                    Record(number, result, {self.quantity.name: _plain(below)})
                    for number, (below, result) in zip(numbers, found, strict=True)
                ]
        # Drawn one by one, so that a simulation does not depend on how many are done together.
        return [self._one(*each) for each in zip(numbers, keys, picked, rngs, strict=True)]

    def _one(self, number: int, key: Array, picked: Any, rng: np.random.Generator) -> Record:
        with jax.enable_x64(True):
            draw = self.questions.draw(key[None])[0]
        posterior, result = fitted(
            self.engine, self.hyperparameters, self.options, self.questions, draw, jax.random.fold_in(key, 1)
        )
        names = [self.quantity.name, *self._hyperparameter_names()]
        if posterior is None:
            return Record(number, result, dict.fromkeys(names))
        with jax.enable_x64(True):
            below = below_truth(self.quantity, posterior, self.questions, draw, picked, rng)
        pits = {self.quantity.name: _plain(below)}
        if self.hyperparameters in ("integrate", "nuts"):
            drawn = posterior.hyperparameter_draws  # type: ignore[union-attr]
            weights = posterior.belief.weights  # type: ignore[union-attr]
            for site, shape in self.questions.layout.hyperparameters:
                values = np.asarray(drawn[site]).reshape(-1, int(np.prod(shape)))
                truths = np.ravel(draw.hyperparameters[site])
                for column, title in enumerate(_titles(site, shape)):
                    true = float(truths[column])
                    if np.ptp(weights):
                        pits[title] = _plain(float(weights @ (values[:, column] < true)))
                    else:
                        pits[title] = _plain(rank(values[:, column], true, rng))
        return Record(number, result, pits)

    def _hyperparameter_names(self) -> list[str]:
        if self.hyperparameters not in ("integrate", "nuts"):
            return []
        return [
            title for site, shape in self.questions.layout.hyperparameters for title in _titles(site, shape)
        ]

    def settings(self, name: str) -> dict[str, Any]:
        """What must be the same for simulations to belong together, as plain values."""
        from relpref import __version__

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


def _collected(records: list[Record], name: str) -> Calibration:
    pits = {
        quantity: np.array([np.nan if r.pits[quantity] is None else r.pits[quantity] for r in records], float)
        for quantity in records[0].pits
    }
    return Calibration(pits, tuple(record.result for record in records), name)


def _keys(root: Array, start: int, size: int) -> Array:
    """One for each simulation, whatever their number."""
    return jax.vmap(lambda number: jax.random.fold_in(root, number))(np.arange(start, start + size))


def _titles(site: str, shape: tuple[int, ...]) -> list[str]:
    return [site + "".join(f"[{at}]" for at in index) for index in np.ndindex(*shape)]


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _program_name(program: Any) -> str:
    inner = program
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    return str(getattr(inner, "__name__", type(inner).__name__))


Problem = tuple[Any, tuple[Any, ...], dict[str, Any]]


def simulated_utilities(posterior: UtilityPosterior) -> Problem:
    """The program with the posterior's entities, relations and questions; hyperparameters that were fixed stay so.

    Raises
    ------
    UnsupportedProgramError
        If it is not known any more.
    """
    origin = posterior.origin
    if origin is None or not origin.complete:
        raise UnsupportedProgramError(
            "the posterior does not know its program with all of its priors, which a file cannot hold; call relpref.diagnostics.calibrate "
            "with the program"
        )
    call = origin.unbound()
    args = tuple(posterior.data if isinstance(value, PreferenceData) else value for value in call.args)
    return call.program, args, {**call.kwargs, "fixed": dict(origin.engine.get("fixed", {}))}


def simulated_relation(posterior: RelationPosterior) -> Problem:
    """A relation with the posterior's kernels and known pairs; scale and noise are those that were found."""
    problem = posterior.problem
    left, right = problem.nodes, problem.objects
    one = left is right
    data = RelationData(
        _named(left.labels),
        None if one else _named(right.labels),
        problem.values,
        problem.symmetry,
        posterior.shift,
        _distinct(posterior),
    )
    scale = posterior.noise / posterior.solution.regularization
    # One set of nodes: the amplitude is squared in both factors of the product.
    fixed = {"attributes_amplitude": scale ** (0.25 if one else 0.5), "noise": np.sqrt(posterior.noise)}
    kernels = {"node_kernel": Precomputed(_symmetric(left.gram))}
    if not one:
        kernels["object_kernel"] = Precomputed(_symmetric(right.gram))
    return (
        conditional_ranking,
        (data,),
        {"loss": problem.loss, "standardize": False, **kernels, "fixed": fixed},
    )


def _named(labels: Any) -> PreferenceData:
    """Nodes of these labels; their attribute is not looked at, since the kernel is known."""
    index = pd.Index(list(labels), tupleize_cols=False)
    return PreferenceData.from_tables(
        pd.DataFrame({"number": np.arange(len(index), dtype=float)}, index=index)
    )


def _symmetric(gram: Any) -> Any:
    matrix = np.asarray(gram, dtype=np.float64)
    return 0.5 * (matrix + matrix.T)


def _distinct(posterior: RelationPosterior) -> Any:
    """Each pair of nodes once, as `RelationData.of_values` has it."""
    values, symmetry = posterior.problem.values, posterior.problem.symmetry
    if symmetry == "none":
        return None
    gap = values.columns - values.rows
    return np.flatnonzero(gap >= 0 if symmetry == "symmetric" else gap > 0)
