"""Many simulations at once, each at its own hyperparameters: one compilation, and no posterior objects."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from relpref.diagnostics.calibration.quantities import Picked, Quantity, average_below, moments_at, values_at
from relpref.diagnostics.calibration.simulate import Draws, Questions
from relpref.infer.engine import GaussianEngine
from relpref.infer.evidence import Evaluation, Evidence, use_gap_space
from relpref.infer.faces import latent_moments
from relpref.infer.layout import discover
from relpref.infer.program import Call, Layout, Values
from relpref.infer.result import CODES
from relpref.infer.rows import SparseRows
from relpref.infer.sites import Sites

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
    layout, _, entries, _ = discover(call, arrays, first.hyperparameters)
    answered, rest = len(jax.tree.leaves(first.answers)), arrays[len(jax.tree.leaves(first.answers)) :]
    answers = jax.tree.leaves(draws.answers)
    assert len(answers) == answered
    found = _evaluate(
        (engine.evaluate, call, layout),
        tuple(jnp.asarray(value) for value in answers),
        rest,
        entries,
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
    static: tuple[Evaluation, Call, Layout],
    answers: tuple[Array, ...],
    rest: tuple[Any, ...],
    entries: SparseRows | None,
    hyperparameters: Values,
    tol: float,
    max_sweeps: int,
) -> Evidence:
    evaluate, call, layout = static
    start = Sites(jnp.zeros(layout.num_rows), jnp.zeros(layout.num_rows))

    def one(answers: tuple[Array, ...], fixed: Values) -> Evidence:
        return evaluate(
            call,
            layout,
            use_gap_space(layout),
            False,
            (*answers, *rest),
            entries,
            {},
            fixed,
            start,
            tol,
            max_sweeps,
            True,
        )

    return jax.vmap(one)(answers, hyperparameters)
