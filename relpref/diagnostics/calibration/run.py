"""Simulation-based calibration: whether intervals hold the truth as often as they say, when the model is right.

Draw hyperparameters, Gaussian sites and answers from a program, let an engine fit the answers, and see where the truth falls in its
posterior: over many simulations the probability integral transforms of a calibrated engine are uniform (Cook, Gelman & Rubin 2006;
Talts et al. 2018). Hyperparameters are always drawn from their priors. An engine that is given them, or integrates over them, is to be
calibrated; one that maximises them is not by design, and what that costs can be measured.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.diagnostics.calibration.at_given import below_truths, block_size
from relpref.diagnostics.calibration.fits import (
    Engine,
    Hyperparameters,
    check_engine,
    engine_name,
    fitted,
)
from relpref.diagnostics.calibration.journal import Journal, Record
from relpref.diagnostics.calibration.quantities import Own, Quantity, below_truth, rank, usual
from relpref.diagnostics.calibration.result import Calibration
from relpref.diagnostics.calibration.simulate import Known, Questions, split
from relpref.errors import DataError
from relpref.infer import EP, Exact
from relpref.infer.belief import as_key, key_words
from relpref.infer.engine import GaussianEngine
from relpref.infer.fingerprint import fingerprint
from relpref.infer.layout import broadcast_fixed
from relpref.infer.program import Program
from relpref.parallel import Scheduler, run_all

_TOGETHER = 5  # simulations that a worker is handed at a time, where they are fitted one by one


def calibrate(
    program: Program,
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
