"""Simulation-based calibration: coverage of posterior intervals if the model is right.

Hyperparameters, Gaussian sites and answers are drawn from a program, an engine fits the answers,
and over many simulations the posterior probability below the truth is uniform if the engine is
calibrated (Cook, Gelman & Rubin 2006; Talts et al. 2018).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpyro import handlers

from relpref.compiled import QUICKLY, float64
from relpref.data import PreferenceData, RelationData
from relpref.diagnostics.calibration import Calibration
from relpref.diagnostics.simulation import (
    Answered,
    Asked,
    Custom,
    Draws,
    Quantity,
    Questions,
    Substituted,
    nuts_draws,
    rank,
    usual,
)
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import EP, Exact, RelationPosterior, from_samples, noncentered
from relpref.infer.call import Call, Model, Values, broadcast_fixed, running
from relpref.infer.engine import GaussianEngine
from relpref.infer.evidence import Evidence, latent_moments, use_dual_space
from relpref.infer.program import Program, discover
from relpref.infer.sampling import UNMIXED
from relpref.infer.sites import Sites
from relpref.infer.smoothing import convergence
from relpref.journal import Journal, fingerprint
from relpref.kernels import Precomputed
from relpref.limits import MAX_NUMBERS_OF_SIMULATIONS, MAX_SIMULATIONS_AT_ONCE
from relpref.models import conditional_ranking
from relpref.parallel import read_scheduler, run_all
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import GaussianBelief, as_key, key_words
from relpref.posterior.points import probability_below
from relpref.result import Result

Hyperparameters = Literal["given", "integrate", "nuts", "maximize"]
Engine = type[GaussianEngine] | type[Exact] | Literal["nuts", "svi"] | Callable[..., Any]

_SAMPLERS = {"nuts": "NUTS", "svi": "SVI mean field"}
_WORDS = {
    "given": "given",
    "integrate": "integrated over",
    "nuts": "sampled by NUTS",
    "maximize": "maximized",
}
_TOGETHER = 5  # simulations of a task of a worker, if they are fitted one by one
_LARGEST_GAIN = 0.5  # nats, of the evidence bound over the last tenth of the steps


def _below_truths(
    engine: type[GaussianEngine],
    each: list[Asked],
    draws: Draws,
    tol: float = 1e-6,
    max_sweeps: int = 500,
) -> Iterator[tuple[float | None, str]]:
    """Fit simulations together; yield the posterior probability below the truth, and the result."""
    first = each[0].truth
    program = discover(*each[0].questions.call(first.answers), first.hyperparameters)
    answers = [jnp.asarray(value) for value in jax.tree.leaves(draws.answers)]
    fits = _evaluate(engine.evaluate, program, answers, draws.hyperparameters, tol, max_sweeps)
    fits = jax.tree.map(np.asarray, fits)
    for row, asked in enumerate(each):
        evidence: Evidence = jax.tree.map(lambda leaf, row=row: leaf[row], fits)
        result = evidence.info.result
        belief = GaussianBelief(*latent_moments(evidence))
        below = asked.below_belief(belief, asked.truth.hyperparameters)
        yield (None if result.empty else below), result.name


@partial(jax.jit, static_argnums=0, **QUICKLY)
def _evaluate(
    evaluate: Any,
    program: Program,
    answers: list[Array],
    fixed: Values,
    tol: float,
    max_sweeps: int,
) -> Any:
    rows, dual = program.layout.num_rows, use_dual_space(program.layout)
    start = Sites(jnp.zeros(rows), jnp.zeros(rows))

    def fit(answers: list[Array], fixed: Values) -> Any:
        arrays = (*answers, *program.arrays[len(answers) :])
        changed = replace(program, arrays=arrays, fixed=fixed)
        return evaluate(changed, dual, False, {}, start, tol, max_sweeps, True)

    return jax.vmap(fit)(answers, fixed)


def _check_engine(engine: Any, hyperparameters: str) -> None:
    """Raise DataError if an engine is invalid or cannot treat hyperparameters in this way."""
    sampler = isinstance(engine, str) and engine in _SAMPLERS
    if hyperparameters not in _WORDS:
        raise DataError(
            f"hyperparameters is {hyperparameters!r}; it is {', '.join(map(repr, _WORDS))}"
        )
    if sampler and hyperparameters not in ("given", "integrate"):
        raise DataError(
            f"engine {engine!r} samples hyperparameters; it is for 'given' or 'integrate'"
        )
    if not sampler and not callable(engine):
        raise DataError(
            f"engine is {engine!r}; it is EP, Laplace or Exact, 'nuts' or 'svi', or a function "
            "(program, hyperparameters, key, *args, **kwargs) that returns a posterior"
        )
    if engine is Exact and hyperparameters in ("integrate", "nuts"):
        raise DataError(
            "Exact does not integrate over hyperparameters; EP does, and is exact for Gaussian "
            "labels, too"
        )


def fitted(
    engine: Engine,
    hyperparameters: Hyperparameters,
    options: Mapping[str, Any],
    questions: Questions,
    draw: Draws,
    key: Any,
) -> tuple[Posterior | RelationPosterior | None, str]:
    """Fit one simulation; return the posterior or None, and the name of the result."""
    given = draw.hyperparameters if hyperparameters == "given" else {}
    program, call = Answered(questions.program), (key, draw.answers, *questions.args)
    posterior: Any
    make: Any = engine
    try:
        if isinstance(engine, str):
            posterior = _sampled(engine, questions, draw.answers, given, options, key)
        elif _is_gaussian(engine) or engine is Exact:
            if engine is not Exact:
                strategy = "maximize" if hyperparameters == "given" else hyperparameters
                options = {"hyperparameters": strategy, **options}
            fit = make(program, fixed=given, throw=False, **options)
            posterior = fit.run(*call, progress_bar=False, **questions.kwargs)
        else:
            posterior = make(program, given, *call, **questions.kwargs)
    except InferenceError as error:
        return None, error.result.name
    return (None if posterior.empty else posterior), posterior.result.name


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
    """Sample by numpyro's NUTS, or by its SVI with an independent normal guide for every entry."""
    call, arrays = Call.split(questions.program, questions.args, questions.kwargs)
    with float64(), running:  # the samplers run the program by themselves
        run = _nuts if engine == "nuts" else _svi
        samples, result = run(call, (arrays, {**answers, **given}), key, **options)
        samples = {name: np.asarray(value) for name, value in samples.items()}
    number = len(next(iter(samples.values())))
    samples |= {
        name: np.broadcast_to(value, (number, *np.shape(value))) for name, value in given.items()
    }
    program, args = Answered(questions.program), (answers, *questions.args)
    posterior = from_samples(samples, program, *args, rng_key=key, **questions.kwargs)
    return replace(posterior, info={**posterior.info, "result": result.name})


@lru_cache(maxsize=8)
def _model(call: Call) -> Callable[..., Any]:
    def model(arrays: tuple[Any, ...], observed: Values) -> None:
        args, kwargs = call.skeleton.join(arrays)
        with handlers.condition(data=observed):
            call.program(*args, **kwargs)

    return noncentered(model)


@lru_cache(maxsize=8)
def _sampler(call: Call, draws: int, warmup: int) -> Any:
    from numpyro.infer import MCMC, NUTS

    options: dict[str, Any] = {"progress_bar": False, "jit_model_args": True}
    return MCMC(NUTS(_model(call)), num_warmup=warmup, num_samples=draws, **options)


def _nuts(
    call: Call, given: Any, key: Any, draws: int = 400, warmup: int = 300
) -> tuple[Values, Result]:
    values, _ = nuts_draws(_sampler(call, draws, warmup), key, *given)
    flat = [np.reshape(value, (1, draws, -1)) for value in values.values()]
    chain = np.concatenate(flat, axis=2)
    r_hat = convergence(chain[:, :, np.ptp(chain[0], axis=0) > 0])[0]  # constraints fix some
    result = Result.converged if r_hat <= UNMIXED else Result.hyperparameters_not_mixed
    return {name: value[0] for name, value in values.items()}, result


def _svi(
    call: Call, given: Any, key: Any, steps: int = 3000, draws: int = 1000
) -> tuple[Values, Result]:
    samples, losses = _mean_field(call, steps, draws, given, key)
    last = np.asarray(losses[-(steps // 5) :])
    if not np.all(np.isfinite(last)):
        return samples, Result.nonfinite
    before, after = last[: -(steps // 10)], last[-(steps // 10) :]
    error = np.hypot(np.std(before), np.std(after)) / np.sqrt(len(after))
    converged = np.mean(before) - np.mean(after) < _LARGEST_GAIN + 3 * error
    return samples, Result.converged if converged else Result.max_iterations


@partial(jax.jit, static_argnums=(0, 1, 2))
def _mean_field(call: Call, steps: int, draws: int, given: Any, key: Any) -> tuple[Values, Array]:
    """Draws of a fitted guide, and the loss at every step."""
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    model = _model(call)
    guide = AutoNormal(model)
    first, second = jax.random.split(key)
    svi = SVI(model, guide, Adam(0.02), Trace_ELBO())
    fit = svi.run(first, steps, *given, progress_bar=False)
    samples = guide.sample_posterior(second, fit.params, sample_shape=(draws,))
    return {name: jnp.asarray(value) for name, value in samples.items()}, fit.losses


def calibrate(
    program: Model,
    *args: Any,
    engine: Engine = EP,
    hyperparameters: Hyperparameters = "given",
    simulations: int = 100,
    rng_key: Any = 0,
    quantity: Callable[[Mapping[str, Any]], Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    engine_options: Mapping[str, Any] | None = None,
    file: str | os.PathLike[str] | None = None,
    scheduler: str | None = None,
    progress_bar: bool = True,
    **kwargs: Any,
) -> Calibration:
    """Simulate from a program, fit each simulation, and compare posteriors with true values.

    Hyperparameters are drawn from their priors. An engine that is given them, or integrates over
    them, should be calibrated. One that maximizes them is not, and the result measures by how much.

    Parameters
    ----------
    program : callable
        Program such as `relpref.models.xpgp`, or a custom one.
    *args, **kwargs
        Arguments of the program: items, relations and questions. Answers in them are ignored.
    engine : type, str or callable
        `EP`, `Laplace` or `Exact`; ``"nuts"`` (numpyro's, on the whole program, whitened) or
        ``"svi"`` (mean field: an independent normal guide for every entry); or a function
        ``fit(program, hyperparameters, rng_key, *args, **kwargs)`` that returns a posterior. Its
        ``args`` are the simulated answers and the program's arguments; ``hyperparameters`` is empty
        unless they are given.
    hyperparameters : {"given", "integrate", "nuts", "maximize"}
        Whether the engine has those of the simulation, integrates over them, samples them, or
        maximizes. The samplers ``"nuts"`` and ``"svi"`` sample everything, which is
        ``"integrate"``.
    simulations : int
    rng_key : JAX key or int
        Each simulation has its own key, so more simulations begin with the same ones.
    quantity : callable, optional
        Function from the values of all sites by name to a number, affine in the Gaussian sites. By
        default the gap of a random pair of items ("gap"); for a relation the difference of the
        scores of two random objects for a random node ("difference"); otherwise, for classifiers
        too, the predictor of a random observed row ("decision").
    fixed : mapping from site to value, optional
        Known hyperparameters, which are not drawn; scalars are broadcast.
    engine_options : mapping, optional
        Options of the engine, such as ``draws`` and ``warmup``; for ``"svi"`` ``steps`` and
        ``draws``.
    file : path, optional
        File for finished simulations, which are not repeated. Program, engine and quantity must be
        the same functions: their code, the names that it uses from their module, and bound values
        are compared.
    scheduler : str, optional
        Scheduler for the fits, see `relpref.parallel.run_all`; by default they run here, one after
        the other.
    progress_bar : bool
        Show progress if stderr is a terminal.

    Returns
    -------
    Calibration
        Results for the quantity, and for hyperparameters that are integrated over.

    Raises
    ------
    DataError
        If an option is invalid, answers cannot be drawn from the program, or parts of it cannot be
        identified in a file.
    UnsupportedProgramError
        If the program has no Gaussian site that enters its answers linearly.
    StorageError
        If the file belongs to other simulations, or cannot be written.
    ClusterError
        If other processes went away; the same call continues from the file.

    Examples
    --------
    >>> from relpref import PreferenceData
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> data = PreferenceData.from_tables(answers=answers)
    >>> from relpref.diagnostics import calibrate
    >>> from relpref.models import xpgp
    >>> calibration = calibrate(xpgp, data, simulations=20)
    >>> share, standard_error = calibration.coverage(0.8)
    """
    if simulations < 1:
        raise DataError(f"simulations is {simulations}; it must be at least 1")
    read_scheduler(scheduler)
    _check_engine(engine, hyperparameters)
    if engine is Exact and quantity is not None:
        raise DataError(
            "Exact answers for differences of scores only; leave quantity out, or use EP"
        )
    inner: Any = program
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    called = _SAMPLERS[engine] if isinstance(engine, str) else getattr(engine, "name", None)
    if not isinstance(called, str):
        called = f"{engine.__module__}.{engine.__qualname__}"  # type: ignore[union-attr]
    title = getattr(inner, "__name__", type(inner).__name__)
    name = f"{title}, {called}, hyperparameters {_WORDS[hyperparameters]}"
    with float64():
        if fixed:
            values = broadcast_fixed(Call.split(program, args, kwargs)[0], dict(fixed))
            program, args = Substituted(program), (values, *args)
        questions = Questions.of(
            program, args, kwargs, relation=engine is Exact, sampled=isinstance(engine, str)
        )
    chosen = usual(questions) if quantity is None else Custom(quantity)
    options, words = dict(engine_options or {}), key_words(as_key(rng_key))
    together = hyperparameters == "given" and _is_gaussian(engine)
    size = 1 if scheduler is None else _TOGETHER
    if together:  # a size that depends on the problem alone, so that results are reproducible
        most = MAX_NUMBERS_OF_SIMULATIONS // questions.layout.num_latents**2
        size = max(1, min(MAX_SIMULATIONS_AT_ONCE, most))
    simulator = _Simulator(
        questions, engine, hyperparameters, chosen, options, words, size, together
    )
    journal = None if file is None else Journal(file, "calibration", simulator.settings(name))
    records = {record["simulation"]: record for record in (journal.records if journal else ())}
    starts = sorted(
        {number // size * size for number in range(simulations) if number not in records}
    )
    label = f"simulations ({f'blocks of {size}' if size > 1 else name})"
    show: Any = {"label": label, "kept": file, "progress_bar": progress_bar}
    for _, block in run_all(simulator, starts, scheduler, **show):
        new = {record["simulation"]: record for record in block}
        new = {n: record for n, record in new.items() if n < simulations and n not in records}
        records |= new
        if journal is not None:
            journal.add(*new.values())
    table = pd.DataFrame([records[row]["pits"] for row in range(simulations)], dtype=float)
    pits = {str(name): column.to_numpy() for name, column in table.items()}
    return Calibration(pits, tuple(records[row]["result"] for row in range(simulations)), name)


@dataclass(frozen=True, eq=False)
class _Simulator:
    """Task that draws and fits a block of simulations; can be sent to other processes."""

    questions: Questions
    engine: Engine
    hyperparameters: Hyperparameters
    quantity: Quantity
    options: Mapping[str, Any]
    key: Any
    size: int
    together: bool

    def __call__(self, start: int) -> list[dict[str, Any]]:
        """Return the records of the block that begins at ``start``."""
        numbers = range(start, start + self.size)
        with float64():
            root = jax.random.wrap_key_data(jnp.asarray(self.key, np.uint32))
            keys = jax.vmap(lambda number: jax.random.fold_in(root, number))(np.asarray(numbers))
            if self.together:
                draws = self.questions.draw(keys)
                each = [self._asked(number, draws.at(row)) for row, number in enumerate(numbers)]
                engine: Any = self.engine
                fits = _below_truths(engine, each, draws, **self.options)
                return [
                    _record(number, result, {self.quantity.name: pit})
                    for number, (pit, result) in zip(numbers, fits, strict=True)
                ]
        # Draw one by one, so that a simulation does not depend on the size of its block.
        return [self._simulate(number, key) for number, key in zip(numbers, keys, strict=True)]

    def _asked(self, number: int, truth: Draws) -> Asked:
        rng = np.random.default_rng([*np.asarray(self.key).tolist(), number])
        return Asked(self.questions, self.quantity, truth, self.quantity.pick(rng), rng)

    def _simulate(self, number: int, key: Array) -> dict[str, Any]:
        with float64():
            asked = self._asked(number, self.questions.draw(key[None]).at(0))
        fit: Any
        options = (self.hyperparameters, self.options, self.questions, asked.truth)
        fit, result = fitted(self.engine, *options, jax.random.fold_in(key, 1))
        averaged = self.hyperparameters in ("integrate", "nuts")
        true = self._scalars(asked.truth.hyperparameters) if averaged else {}
        pits: dict[str, Any] = dict.fromkeys([self.quantity.name, *true])
        if fit is not None:
            with float64():
                pits[self.quantity.name] = asked.below(fit)
            draws = self._scalars(fit.hyperparameter_draws) if averaged else {}
            for title, values in draws.items():
                weights, value = fit.belief.weights, float(true[title])
                if np.ptp(weights) > 0:
                    pits[title] = probability_below(values, weights, value)
                else:
                    pits[title] = rank(values, value, asked.rng)
        return _record(number, result, pits)

    def _scalars(self, values: Values) -> dict[str, Any]:
        """Every entry of the hyperparameters by name."""
        return {
            site + "".join(f"[{at}]" for at in index): np.asarray(values[site])[..., *index]
            for site, shape in self.questions.layout.hyperparameters
            for index in np.ndindex(*shape)
        }

    def settings(self, name: str) -> dict[str, Any]:
        """Settings that simulations in one file share, as plain values."""
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


def _record(number: int, result: str, pits: Mapping[str, float | None]) -> dict[str, Any]:
    plain = {
        name: None if pit is None or not np.isfinite(pit) else float(pit)
        for name, pit in pits.items()
    }
    return {"simulation": number, "result": result, "pits": plain}


def simulated(
    posterior: Posterior | RelationPosterior,
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Program, arguments and keywords for `calibrate` to simulate from the model of a posterior.

    Items, relations, questions and fixed hyperparameters are the posterior's. A relation has its
    kernels and known pairs, at the fitted scale and noise.

    Raises
    ------
    UnsupportedProgramError
        If the program is unknown.
    """
    if posterior.kind != "relation":
        origin = posterior.origin
        if origin is None or not origin.complete:
            raise UnsupportedProgramError(
                "the posterior does not know its program with all of its priors, which a file "
                "cannot hold; call relpref.diagnostics.calibrate with the program"
            )
        call, data = origin.unbound(), posterior.datasets().get("data")
        args = tuple(data if type(value) is type(data) else value for value in call.args)
        return call.program, args, {**call.kwargs, "fixed": dict(origin.fixed)}
    problem = posterior.problem
    single = problem.nodes is problem.objects
    kernels, nodes = {}, []
    for name, side in {"node_kernel": problem.nodes, "object_kernel": problem.objects}.items():
        gram = np.asarray(side.gram, dtype=np.float64)
        kernels[name] = Precomputed(0.5 * (gram + gram.T))
        index = pd.Index(list(side.labels), tupleize_cols=False)
        # The attribute is not used, since the kernel is known.
        table = pd.DataFrame({"number": np.arange(float(len(index)))}, index)
        nodes.append(PreferenceData.from_tables(table))
    if single:
        del kernels["object_kernel"]
    values, symmetry = problem.values, problem.symmetry
    distinct = None if symmetry == "none" else values.distinct(symmetry)
    second = None if single else nodes[1]
    relation = RelationData(nodes[0], second, values, symmetry, posterior.shift, distinct)
    scale = posterior.noise / posterior.solution.regularization
    # With one set of nodes both factors of the product contain the squared amplitude.
    amplitude = scale ** (0.25 if single else 0.5)
    fixed = {"attributes_amplitude": amplitude, "noise": np.sqrt(posterior.noise)}
    options = {"loss": problem.loss, "standardize": False, **kernels, "fixed": fixed}
    return conditional_ranking, (relation,), options
