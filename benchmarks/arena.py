"""1.4 million votes on 129 language models: held-out log loss beside the models of leaderboards,
and CPU seconds.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.measure import note, table

TITLE = "Votes on language models"
NOTES = """\
Chatbot Arena until August 2024, without votes for neither (the file is
arena/chatbotarena_20240814.json of leaderbot, below RELPREF_DATA). A tenth of the votes is held
out, drawn without replacement; log loss is of win, loss and tie. The others are fitted by
maximum likelihood; with k tie factors the margin of a pair is Σ_f (g_if φ_jf + φ_if g_jf) with
cosines φ (Ameli et al. 2025); with one factor each model has a tendency to tie of its own.
relpref: families of models as the relation, hyperparameters averaged over, one tie margin for
all; its last column is to be at most that of the best model without tie factors and 0.0005."""
FILE = Path(os.environ.get("RELPREF_DATA", "data"), "arena", "chatbotarena_20240814.json")
KINDS = ("Davidson", "Rao-Kupper", "Glenn-David")
FACTORS = (0, 1, 3)
Floats = Any


class Votes(NamedTuple):
    """Wins of the first, of the second and ties of pairs of models, shape (k, 3)."""

    models: list[str]
    pairs: Any  # shape (k, 2)
    count: Any

    def split(self, seed: int) -> tuple[Any, Any]:
        """Those that are known, and a tenth that is held out."""
        drawn = np.random.default_rng(seed).multivariate_hypergeometric(
            self.count.ravel(), self.count.sum() // 10, method="marginals"
        )
        held = drawn.reshape(self.count.shape)
        return self.count - held, held


def votes() -> Votes:
    """Those of the file."""
    found = json.loads(FILE.read_text())
    return Votes(found["models"], np.array(found["X"]), np.array(found["Y"])[:, :3])


def run(repeats: int) -> str:
    """As many splits as repeats."""
    if not FILE.exists():
        return f"Left out: there is no {FILE}; set RELPREF_DATA."
    given, losses, seconds = votes(), dict[str, list[float]](), dict[str, list[float]]()
    contestants: dict[str, Callable[[Any], Floats]] = {
        "relpref": partial(ours, given),
    }
    for kind in KINDS:
        for factors in FACTORS:
            name = f"{kind}, {factors} tie factors" if factors else kind
            contestants[name] = partial(by_likelihood, given, kind, factors)
    for seed in range(repeats):
        known, held = given.split(seed)
        for name, fit in contestants.items():
            note(f"split {seed + 1} of {repeats}: {name}")
            start = time.process_time()
            log_p = fit(known)
            seconds.setdefault(name, []).append(time.process_time() - start)
            losses.setdefault(name, []).append(float(-np.sum(held * log_p) / held.sum()))
    best = np.min([losses[name] for name in contestants if not name.startswith("relpref")], axis=0)
    rows = [
        [
            name,
            f"{np.mean(losses[name]):.5f}",
            f"{np.max(losses[name] - best):.5f}",
            f"{np.median(seconds[name]):.3g}",
        ]
        for name in contestants
    ]
    headings = [
        "",
        f"log loss, {repeats} splits",
        "above the best by likelihood, at most",
        "median CPU s",
    ]
    return table(headings, rows)


def ours(given: Votes, known: Any) -> Floats:
    """Log probabilities of relpref's, shape (k, 3), from tables to predictions."""
    from relpref import PreferenceData
    from relpref.infer import EP
    from relpref.models import xpgp

    names = np.array(given.models, dtype=object)
    first, second = names[given.pairs.T]
    answers = pd.DataFrame(
        {
            "first": np.tile(first, 3),
            "second": np.tile(second, 3),
            "result": np.repeat([1.0, 0.0, 0.5], len(first)),
            "count": known.T.ravel(),
        }
    ).query("count > 0")
    family = pd.Series([re.split(r"[-.0-9]", name)[0].lower() for name in names], index=names)
    data = PreferenceData.from_tables(list(names), answers, {"family": family})
    posterior: Any = EP(xpgp).run(0, data)
    found = posterior.prefer(list(zip(first, second, strict=True)))
    won, tied = found["probability"].to_numpy(), found["tie"].to_numpy()
    return np.log(np.stack([won, 1 - won - tied, tied], axis=1))


def by_likelihood(given: Votes, kind: str, factors: int, known: Any) -> Floats:
    """Log probabilities at the maximum of the likelihood, shape (k, 3)."""
    import jax
    from scipy.optimize import minimize

    size = len(given.models)
    with jax.enable_x64(True):
        margins = size * factors if factors else 1

        def loss(x: Any) -> Any:
            log_p = log_probabilities(kind, x[:size], x[size:], given.pairs, factors)
            return -(known * log_p).sum() / known.sum() + 1e-9 * (x**2).sum()

        both = jax.jit(jax.value_and_grad(loss))
        found = minimize(
            lambda x: tuple(np.asarray(each, float) for each in both(x)),
            np.zeros(size + margins),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 1500, "maxfun": 1500, "ftol": 1e-11, "gtol": 1e-7},
        )
        return np.asarray(
            log_probabilities(kind, found.x[:size], found.x[size:], given.pairs, factors)
        )


def log_probabilities(kind: str, strength: Any, margin: Any, pairs: Any, factors: int) -> Any:
    """Of wins of the first, of the second and ties, shape (k, 3)."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import log_ndtr, ndtr

    first, second = pairs.T
    gap = strength[first] - strength[second]
    tie = jnp.broadcast_to(margin[0], gap.shape)
    if factors:
        size = len(strength)
        wave = np.cos(np.pi * (np.arange(size)[:, None] + 0.5) * np.arange(factors) / size)
        wave, own = wave / np.linalg.norm(wave, axis=0), margin.reshape(size, factors)
        tie = (own[first] * wave[second] + wave[first] * own[second]).sum(axis=1)
    if kind == "Davidson":
        return jax.nn.log_softmax(jnp.stack([gap / 2, -gap / 2, tie], axis=1), axis=1)
    width = jax.nn.softplus(tie)
    if kind == "Rao-Kupper":
        won, lost = jax.nn.log_sigmoid(gap - width), jax.nn.log_sigmoid(-gap - width)
        return jnp.stack([won, lost, won + lost + jnp.log(jnp.expm1(2 * width))], axis=1)
    within = ndtr(gap + width) - ndtr(gap - width)
    return jnp.stack(
        [log_ndtr(gap - width), log_ndtr(-gap - width), jnp.log(jnp.maximum(within, 1e-300))],
        axis=1,
    )
