"""Simulation-based calibration: whether intervals hold the truth as often as they say, when the model is right.

Draw hyperparameters, utilities and answers from a program, hand the hyperparameters to an engine, and see where the truth falls in its
posterior: over many simulations the probability integral transforms of a calibrated engine are uniform (Cook, Gelman & Rubin 2006;
Talts et al. 2018). An engine that *maximises* hyperparameters is not calibrated by design, and is not asked to be.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from numpyro import handlers
from scipy.special import ndtr
from scipy.stats import binom

from relpref.data import PreferenceData
from relpref.infer import EP
from relpref.infer.belief import as_key
from relpref.infer.engine import GaussianEngine
from relpref.infer.evidence import use_gap_space
from relpref.infer.faces import latent_moments
from relpref.infer.layout import discover
from relpref.infer.program import Call, Program, Values
from relpref.infer.result import CODES
from relpref.infer.sites import Sites

Floats = NDArray[np.float64]

_GRID = 100  # points at which a cumulative distribution is looked at
_REPLICATES = 10_000  # of the null distribution


@dataclass(frozen=True)
class Calibration:
    """Where the truth fell.

    Attributes
    ----------
    pit : array, shape (s,)
        Posterior probability that the gap of one random pair of entities is below its true value, for each simulation.
    results : tuple of str, length s
        Result code of each fit.
    """

    pit: Floats
    results: tuple[str, ...]

    def coverage(self, probability: float) -> float:
        """How often a central interval of that probability held the truth."""
        return float(np.mean(np.abs(self.pit - 0.5) <= probability / 2))

    def p_value(self, seed: int = 0) -> float:
        """Of the hypothesis that the transforms are uniform, over the whole cumulative distribution at once (10,000 replicates)."""
        null = _extremes(np.random.default_rng(seed).uniform(size=(_REPLICATES, len(self.pit))))
        return float((1 + np.sum(null <= _extremes(self.pit[None])[0])) / (1 + _REPLICATES))

    def band(self, level: float = 0.999, seed: int = 0) -> tuple[Floats, Floats, Floats]:
        """Where the empirical cumulative distribution of uniform transforms lies as a whole, with the given probability.

        Returns
        -------
        grid, lower, upper : array, shape (100,)
            Simultaneous, by simulation (Säilynoja, Bürkner & Vehtari 2022).
        """
        size = len(self.pit)
        null = _extremes(np.random.default_rng(seed).uniform(size=(_REPLICATES, size)))
        tail = float(np.quantile(null, 1 - level))
        grid = _grid()
        return grid, binom.ppf(tail / 2, size, grid) / size, binom.ppf(1 - tail / 2, size, grid) / size


def calibrate(
    program: Program,
    data: PreferenceData,
    *,
    engine: type[GaussianEngine] = EP,
    simulations: int = 100,
    key: Any = 0,
    tol: float = 1e-6,
    max_sweeps: int = 500,
    **options: Any,
) -> Calibration:
    """Simulate from a program and fit each simulation at its own hyperparameters.

    Parameters
    ----------
    program : callable
        Such as `relpref.models.xpgp`.
    data : PreferenceData
        Entities, relations and questions; its answers are not looked at.
    engine : type of engine
        `EP` or `Laplace`.
    simulations : int
    key : JAX key or int
    tol, max_sweeps
        As for the engine.
    **options
        Keywords of the program.

    Returns
    -------
    Calibration
    """
    root = as_key(key)
    with jax.enable_x64(True):
        data = _one_by_one(data)
        asked = data.without_answers()
        observed = discover(*Call.split(program, (data,), options), {}).layout.observed
        truths = _simulate(program, asked, options, jax.random.split(root, simulations))
        answers = {name: truths.pop(name) for name in observed}
        utilities = np.asarray(truths.pop("utility"))
        found = _fit(program, asked, options, engine, truths, answers, (tol, max_sweeps))
    rng = np.random.default_rng(np.asarray(jax.random.key_data(root)).tolist())
    pit = np.empty(simulations)
    for row in range(simulations):
        first, second = rng.choice(data.num_entities, 2, replace=False)
        mean, covariance = found[row][:2]
        gap = np.zeros(len(mean))
        gap[[first, second]] = 1.0, -1.0
        truth = gap @ utilities[row]
        pit[row] = ndtr((truth - gap @ mean) / np.sqrt(gap @ covariance @ gap))
    return Calibration(pit, tuple(one[2] for one in found))


def _one_by_one(data: PreferenceData) -> PreferenceData:
    """Every answer a row of its own: to an answer that was given k times belong k simulated ones, which may differ."""
    known = data.comparisons
    rows = np.repeat(np.arange(len(known.count)), known.count)
    columns: dict[str, Any] = {name: np.asarray(column)[rows] for name, column in known.columns.items()}
    columns["count"] = np.ones(len(rows), np.int32)
    return replace(data, comparisons=replace(known, **columns))


def _simulate(program: Program, data: PreferenceData, options: dict[str, Any], keys: Array) -> Values:
    """Every site's value, simulation by simulation."""
    call, arrays = Call.split(program, (data,), options)
    arrays = tuple(_in_double(array) for array in arrays)

    @jax.jit
    def draw(keys: Array) -> Values:
        def one(key: Array) -> Values:
            sites = call.trace(arrays, {}, key)
            return {name: site["value"] for name, site in sites.items() if site["type"] == "sample"}

        return jax.vmap(one)(keys)

    return draw(keys)


def _fit(
    program: Program,
    data: PreferenceData,
    options: dict[str, Any],
    engine: type[GaussianEngine],
    hyperparameters: Values,
    answers: Values,
    limits: tuple[float, int],
) -> list[tuple[Floats, Floats, str]]:
    """Mean and covariance of the utilities, and the result code, of each simulation; all fits at once."""

    def conditioned(data: PreferenceData, answers: Values, **options: Any) -> None:
        with handlers.condition(data=answers):
            program(data, **options)

    def split(answers: Values) -> tuple[Call, tuple[Any, ...]]:
        call, arrays = Call.split(conditioned, (data, answers), options)
        return call, tuple(_in_double(array) for array in arrays)

    first: Callable[[Values], Values] = partial(jax.tree.map, lambda value: value[0])
    call, arrays = split(first(answers))
    layout, _, entries, _ = discover(call, arrays, first(hyperparameters))
    start = Sites(jnp.zeros(layout.num_rows), jnp.zeros(layout.num_rows))
    static = (call, layout, use_gap_space(layout), False)

    def one(answers: Values, fixed: Values) -> Any:
        return engine.evaluate(*static, split(answers)[1], entries, {}, fixed, start, *limits, True)

    found = jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(answers, hyperparameters))
    rows = []
    for row in range(len(found.log_evidence)):
        evidence = jax.tree.map(lambda leaf, row=row: leaf[row], found)
        rows.append((*latent_moments(layout, evidence), CODES[int(evidence.info.code)].name))
    return rows


def _in_double(array: Any) -> Any:
    return array.astype(float) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _grid() -> Floats:
    return np.arange(1, _GRID + 1) / (_GRID + 1)


def _extremes(pit: Floats) -> Floats:
    """The smallest two-sided binomial tail probability over the grid, for each row of transforms."""
    size, grid = pit.shape[1], _grid()
    ordered = np.sort(pit, axis=1)
    counts = np.stack([np.searchsorted(row, grid, side="right") for row in ordered])
    below = binom.cdf(np.arange(size + 1)[:, None], size, grid)
    above = binom.sf(np.arange(size + 1)[:, None] - 1, size, grid)
    tails = np.minimum(1.0, 2 * np.minimum(below, above))
    return np.asarray(tails[counts, np.arange(_GRID)].min(axis=1))
