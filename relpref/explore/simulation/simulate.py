"""Many simulated explorations: every strategy with every seed, in parallel, kept on disk as they come."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from relpref.errors import DataError
from relpref.explore.scores import SCORES
from relpref.explore.simulation.file import SimulationFile
from relpref.explore.simulation.run import Fit, Strategy, fit_xpgp, simulate_steps
from relpref.explore.simulation.settings import settings_of, strategy_text
from relpref.explore.simulation.truth import Truth
from relpref.parallel import run_all

Row = dict[str, Any]
KEY = ["strategy", "seed", "answers"]
_RUNS_AT_ONCE = 10  # of one strategy, for threads and other processes


class _Item(NamedTuple):
    """Some runs of one strategy: they share what JAX compiles."""

    name: str
    strategy: Strategy
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class _Simulator:
    """What all runs have in common."""

    truth: Truth | Callable[[int], Truth]
    answers: int
    fit: Fit
    limits: Mapping[str, Any]

    def __call__(self, item: _Item) -> list[Row]:
        """All rows of some runs."""
        return [
            {"strategy": item.name, "seed": seed} | row
            for seed in item.seeds
            for row in self._run(item.strategy, seed)
        ]

    def _run(self, strategy: Strategy, seed: int) -> Iterator[Row]:
        truth = self.truth if isinstance(self.truth, Truth) else self.truth(seed)
        start = self.fit(truth.data)
        yield {"answers": 0, **truth.judge(start.belief), "probability": float("nan")}
        steps = simulate_steps(truth, strategy, seed, start=start, limits=self.limits)
        for number, step in zip(range(1, self.answers + 1), steps, strict=False):
            judged = truth.judge(step.posterior.belief)
            yield {"answers": number, **judged, "probability": step.probability}


def simulate(
    truth: Truth | Callable[[int], Truth],
    strategies: Iterable[str] | Mapping[str, Strategy],
    seeds: Iterable[int] = range(20),
    *,
    answers: int = 50,
    fit: Fit = fit_xpgp,
    limits: Mapping[str, Any] | None = None,
    scheduler: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress_bar: bool = True,
) -> pd.DataFrame:
    """Let strategies ask questions about a known truth, and judge what is learned after every answer.

    Everything follows from the seed: the truth where it is drawn, the choice among equally good questions, and the answers. The
    r-th answer about a pair is the same whoever asks, so that strategies are compared seed by seed.

    Parameters
    ----------
    truth : Truth, or callable from a seed to a Truth
    strategies : iterable of str, or mapping from name to strategy
        Names of scores (see `next_pairs`); or, by names of one's own, scores or callables from a posterior to the pair of labels to
        ask about next, None to stop.
    seeds : iterable of int
        Not negative; one run each.
    answers : int
        How many; a run ends earlier where nothing is left to ask.
    fit : callable
        From the data at the start to its posterior; `relpref.models.xpgp` by EP by default. After each answer the posterior is
        updated, with hyperparameters on the schedule of `UtilityPosterior.update`.
    limits : mapping, optional
        Keywords of `next_pairs` for the scores: ``repeats``, ``most_appearances``, ``hardest``, ``entities``.
    scheduler : str, optional
        Where runs are computed, see `relpref.parallel.run_all`; here, one after the other, by default. For other processes truth,
        strategies and fit must be picklable.
    resume : path, optional
        A CSV file that keeps finished runs; the same call goes on where an earlier one stopped, and more seeds and strategies may be
        added. It knows the truth by its content, and callables (one from a seed to a truth, ``fit``, a strategy) by their names:
        whoever changes what they do takes another file.
    progress_bar : bool

    Returns
    -------
    DataFrame
        A row for each strategy, seed and number of ``answers`` from 0 on: ``error``, share of the pairs of different utility (or of the recorded
        preferences) in the wrong order, ties counting one half; ``expected_error``, what the posterior believes this share
        to be; ``regret``, the best utility less that of the entity with the highest mean; ``kendall``, Kendall's tau-b of means and
        utilities; ``top``, the share of the tenth with the highest means that belongs there; ``probability``, what the posterior before
        gave to this answer.

    Raises
    ------
    DataError
        If an argument cannot be used, or the file holds runs with another truth, fit, limits, number of answers, or another
        strategy of the same name.
    ClusterError
        If other processes went away; the same call goes on with what is in the file.
    """
    named = dict(strategies) if isinstance(strategies, Mapping) else {name: name for name in strategies}
    chosen = tuple(dict.fromkeys(int(seed) for seed in seeds))
    _check(named, chosen, answers)
    limits = dict(limits or {})
    kept = None
    if resume is not None:
        texts = {name: strategy_text(strategy) for name, strategy in named.items()}
        kept = SimulationFile(resume, settings_of(truth, fit, limits, answers), texts)
    done = set() if kept is None else kept.done
    items = []
    for name, strategy in named.items():
        left = [seed for seed in chosen if (name, seed) not in done]
        step = len(left) if scheduler is None and resume is None else _RUNS_AT_ONCE
        for at in range(0, len(left), max(step, 1)):
            items.append(_Item(name, strategy, tuple(left[at : at + step])))
    rows: list[Row] = []
    runs = run_all(
        _Simulator(truth, answers, fit, limits),
        items,
        scheduler,
        label="groups of simulations",
        kept=resume,
        progress_bar=progress_bar,
    )
    for _, found in runs:
        rows += found
        if kept is not None:
            kept.add(found)
    table = pd.DataFrame(rows if kept is None else kept.rows)
    mine = table[table["strategy"].isin(list(named)) & table["seed"].isin(chosen)]
    return mine.sort_values(KEY, ignore_index=True)


def _check(strategies: Mapping[str, Strategy], seeds: tuple[int, ...], answers: int) -> None:
    if not strategies or not seeds:
        raise DataError("simulate: there are no strategies or no seeds; give at least one of each")
    if min(seeds) < 0:
        raise DataError(f"simulate: the seed {min(seeds)} is negative; seeds are 0, 1, 2, ...")
    if answers < 1:
        raise DataError(f"simulate: answers is {answers}; it must be at least 1")
    for strategy in strategies.values():
        if isinstance(strategy, str) and strategy not in SCORES:
            raise DataError(
                f"simulate: there is no score {strategy!r}; the scores are {', '.join(SCORES)}, "
                "and a callable from a posterior to a pair is a strategy, too"
            )
