"""Orders of ten among a hundred items, and a small problem with known answers beside NUTS."""

from __future__ import annotations

import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import median, note, table

TITLE = "Lists"
NOTES = """\
CPU seconds. The large problem has 2,000 orders of 10 among 100 items with two attributes, and
hyperparameters are learned. The small one has 15 orders of 5 among 12 items (tests/gold, "order
5", seed 1), whose exact means are known by importance sampling; the prior covariance is given.
Errors are of means, in posterior sds (root mean square). NUTS has the exact probability of each
list, utilities whitened, 1,000 draws after 300 to tune; its error falls with the root of the
draws, so that as many seconds as in the last column take it to that of EP."""
GOLD = Path(__file__).parents[1] / "tests" / "gold"
TUNED, DRAWS = 300, 1000


def run(repeats: int) -> str:
    """Each of the two parts as a table."""
    return f"{large(repeats)}\n\n{small(repeats)}"


def large(repeats: int) -> str:
    """Fits of different answers, the first apart."""
    from relpref.infer import EP
    from relpref.models import xpgp

    rows = []
    for way in ("maximize", "integrate"):
        seconds = []
        for seed in range(1 + repeats):
            note(f"lists: {way}, fit {seed + 1} of {1 + repeats}")
            data = orders(2000, 10, 100, seed)
            fit = EP(xpgp, hyperparameters=way)
            seconds.append(
                timed(lambda fit=fit, data=data: fit.run(0, data, progress_bar=False))[1]
            )
        rows.append([way, f"{seconds[0]:.2g}", f"{median(seconds[1:]):.2g}"])
    return table(["2,000 orders of 10", "first fit", "next fits"], rows)


def small(repeats: int) -> str:
    """EP and NUTS on the same problem."""
    import jax
    from numpyro import handlers
    from numpyro.infer import MCMC, NUTS

    from relpref import PreferenceData
    from relpref.infer import EP, noncentered
    from relpref.kernels import Precomputed
    from relpref.models import preference_gp

    made, gold = runpy.run_path(str(GOLD / "make_lists.py")), np.load(GOLD / "lists.npz")
    at = made["SEEDS"].index(1)
    mean, sd = gold["order 5 mean"][at], gold["order 5 sd"][at]
    prior, lists = made["problem"]("order", 5, 1)
    labels = list(range(len(prior)))
    items = pd.DataFrame({"x": 0.0}, index=labels)
    data = PreferenceData.from_tables(items, table_of(lists))
    options: dict[str, Any] = {
        "attribute_kernel": Precomputed(prior),
        "standardize": False,
        "individual": False,
    }
    known = {"attributes_amplitude": 1.0}

    def error(found: Any) -> float:
        return float(np.sqrt(np.mean(((found - mean) / sd) ** 2)))

    def by_ep() -> Any:
        return EP(preference_gp, fixed=known).run(0, data, progress_bar=False, **options).mean()

    def by_nuts() -> Any:
        with jax.enable_x64(True):
            kernel = NUTS(handlers.condition(noncentered(preference_gp), data=known))
            sampler = MCMC(kernel, num_warmup=TUNED, num_samples=DRAWS, progress_bar=False)
            sampler.run(jax.random.key(0), data, **options)
            draws: Any = sampler.get_samples()["utility"]
        return np.asarray(draws).mean(axis=0)

    by_ep()
    note("lists: EP beside NUTS")
    each = [timed(by_ep) for _ in range(repeats)]
    seconds, its = median([spent for _, spent in each]), error(each[0][0])
    note("lists: NUTS")
    sampled, spent = timed(by_nuts)
    off = error(sampled)
    equal = spent * (off / its) ** 2
    rows = [
        ["relpref EP", f"{seconds:.2g}", f"{its:.4f}", f"{seconds:.2g}"],
        ["numpyro NUTS", f"{spent:.2g}", f"{off:.4f}", f"{equal:.2g}"],
        ["NUTS / EP", f"{spent / seconds:.2g}", f"{off / its:.2g}", f"{equal / seconds:.2g}"],
    ]
    return table(["15 orders of 5", "CPU s", "error", "CPU s for EP's error"], rows)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and CPU seconds."""
    start = time.process_time()
    return call(), time.process_time() - start


def orders(number: int, size: int, items: int, seed: int) -> Any:
    """Orders of some of the items, each seen with noise of its own, by utilities that follow
    attributes.
    """
    from relpref import PreferenceData

    rng = np.random.default_rng(seed)
    attributes = rng.normal(size=(items, 2))
    utility = np.sin(attributes[:, 0]) + 0.5 * attributes[:, 1] + 0.3 * rng.normal(size=items)
    chosen = np.argsort(rng.random((number, items)), axis=1)[:, :size]
    seen = utility[chosen] + np.sqrt(0.5) * rng.normal(size=chosen.shape)
    best_first = np.take_along_axis(chosen, np.argsort(-seen, axis=1), axis=1)
    return PreferenceData.from_tables(
        pd.DataFrame(attributes, columns=["a", "b"]), table_of(best_first)
    )


def table_of(lists: Any) -> pd.DataFrame:
    """Orders, each from the best to the worst item, as answers."""
    number, size = lists.shape
    rows = {"list": np.repeat(np.arange(number), size), "item": lists.ravel()}
    rows["place"] = np.tile(np.arange(1, size + 1), number)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    print(run(3))
