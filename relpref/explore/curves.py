"""What simulated explorations show: learning curves, and how many answers a strategy saves."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from relpref.errors import DataError, StorageError
from relpref.explore.choose import whole_number
from relpref.files import replaced
from relpref.posterior.utility import check_interval

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AnswersSaved:
    """How many answers a strategy needs for the error that another one has after so many.

    Attributes
    ----------
    strategy, against : str
    answers : int
        Of the other strategy.
    error : float
        Mean error of the other strategy then, smoothed.
    needed : float
        Answers that the strategy needs for it; infinite if it does not get there.
    ratio : float
        ``needed`` over what the other needs, which is ``answers`` unless its error stopped falling before.
    lower, upper : float
        Bootstrap interval of the ratio.
    """

    strategy: str
    against: str
    answers: int
    error: float
    needed: float
    ratio: float
    lower: float
    upper: float


def learning_curves(
    results: pd.DataFrame,
    quantity: str = "error",
    *,
    interval: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """The mean over the seeds, by strategy and number of answers.

    Parameters
    ----------
    results : DataFrame
        From `simulate`.
    quantity : str
        A column of it.
    interval : float
        Probability of the interval, which is the percentile bootstrap over the seeds; between 0 and 1.
    resamples : int
        At least 1.
    seed : int
        Of the bootstrap.

    Returns
    -------
    DataFrame
        ``strategy``, ``answers``, ``mean``, ``lower``, ``upper``, ``seeds``. A run that ended early keeps its last value.

    Raises
    ------
    DataError
        If there is no such column, or ``interval`` or ``resamples`` is out of range.
    """
    _check(interval, resamples)
    tables = []
    tail = (1 - interval) / 2
    for name in dict.fromkeys(results["strategy"]):
        curves = _curves(results, str(name), quantity)
        means = _weights(len(curves), resamples, seed) @ curves.to_numpy()
        lower, upper = np.quantile(means, [tail, 1 - tail], axis=0)
        columns = {"mean": curves.mean().to_numpy(), "lower": lower, "upper": upper, "seeds": len(curves)}
        tables.append(pd.DataFrame({"strategy": name, "answers": curves.columns.to_numpy(), **columns}))
    return pd.concat(tables, ignore_index=True)


def answers_saved(
    results: pd.DataFrame,
    strategy: str,
    against: str = "random",
    *,
    answers: int | None = None,
    quantity: str = "error",
    interval: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> AnswersSaved:
    """How many answers a strategy needs to be where another one is after ``answers``.

    The mean curves are made monotone (isotonic regression) and read linearly between numbers of answers. The interval is the
    percentile bootstrap over the seeds that both strategies have, drawn together: runs of one seed share truth and answers.

    Parameters
    ----------
    results : DataFrame
        From `simulate`.
    strategy, against : str
    answers : int, optional
        Of the other strategy; all that it got by default.
    quantity : str
        A column that falls as more is known: ``"error"`` or ``"regret"``.
    interval, resamples, seed
        As in `learning_curves`.

    Returns
    -------
    AnswersSaved
        A ratio below 1 says that the strategy needs fewer answers.

    Raises
    ------
    DataError
        If a strategy is not among the results, they share no seed, or ``answers``, ``interval`` or ``resamples`` is out of range.
    """
    _check(interval, resamples)
    mine, other = (_curves(results, name, quantity) for name in (strategy, against))
    shared = mine.index.intersection(other.index)
    if not len(shared):
        raise DataError(
            f"answers_saved: {strategy!r} and {against!r} share no seed; simulate both with the same"
        )
    number = int(other.columns[-1]) if answers is None else answers
    if not 0 < number <= other.columns[-1]:
        raise DataError(f"answers_saved: answers is {number}; {against!r} got 1 to {other.columns[-1]}")
    pair = (mine.loc[shared].to_numpy(), other.loc[shared].to_numpy())
    needed, reference, error = _compared(pair[0].mean(axis=0), pair[1].mean(axis=0), number)
    weights = _weights(len(shared), resamples, seed)
    means = zip(weights @ pair[0], weights @ pair[1], strict=True)
    draws = [_compared(one, two, number) for one, two in means]
    # Runs that start at the error they end with need no answer, neither of them.
    ratios = [_ratio(one, two) for one, two, _ in draws]
    tail = (1 - interval) / 2
    lower, upper = np.quantile(ratios, [tail, 1 - tail], method="inverted_cdf")  # no average with infinity
    ratio = _ratio(needed, reference)
    return AnswersSaved(strategy, against, number, error, needed, ratio, float(lower), float(upper))


def _check(interval: float, resamples: int) -> None:
    check_interval(interval)
    whole_number("resamples", resamples, 1)


def _curves(results: pd.DataFrame, strategy: str, quantity: str) -> pd.DataFrame:
    """Seeds in rows, numbers of answers in columns."""
    if quantity not in results.columns:
        raise DataError(
            f"results have no column {quantity!r}; the measures of simulate are error, expected_error, regret, kendall, top, probability"
        )
    mine = results[results["strategy"] == strategy]
    if mine.empty:
        known = ", ".join(dict.fromkeys(results["strategy"]))
        raise DataError(f"results have no strategy {strategy!r}; they have {known}")
    return mine.pivot(index="seed", columns="answers", values=quantity).ffill(axis=1)


def _weights(seeds: int, resamples: int, seed: int) -> Floats:
    """How much each seed counts in each resample, shape (resamples, seeds)."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds)


def _compared(mine: Floats, other: Floats, number: int) -> tuple[float, float, float]:
    """Answers until the other's value after ``number``: of the one, of the other; and this value."""
    one, two = (isotonic_regression(curve, increasing=False).x for curve in (mine, other))
    target = float(two[number])
    return _first_at(one, target), _first_at(two, target), target


def _first_at(curve: Floats, target: float) -> float:
    """Where a falling curve first is at the target, between two numbers of answers if need be."""
    # Equal values of two curves differ in their last digits.
    reached = np.flatnonzero(curve <= target + 1e-12)
    if not len(reached):
        return float("inf")
    at = int(reached[0])
    if at == 0:
        return 0.0
    above, below = curve[at - 1], curve[at]
    return float(at - 1 + (above - target) / (above - below))


def _ratio(needed: float, reference: float) -> float:
    if reference == 0:
        return 1.0 if needed == 0 else float("inf")
    return needed / reference


Row = dict[str, Any]
Run = tuple[str, int]
_TYPES = {"strategy": str, "seed": int, "answers": int, "last": int}  # the others are measures


class SimulationFile:
    """Rows of whole runs; what an interruption left of a run is dropped when the file is opened next.

    The first line holds the settings and what the strategies are, as a comment. The last row of a run is marked in the column ``last``.
    Numbers are written so that they are read back as they were.

    Parameters
    ----------
    path : path
        Its folder must exist.
    settings : mapping from str to JSON values
        What all runs of the file share.
    strategies : mapping from name to str
        What asks in these runs; the file may have runs of others.

    Raises
    ------
    DataError
        If the file has other settings, another strategy of the same name, or is no such file.
    StorageError
        If it cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any], strategies: Mapping[str, str]
    ) -> None:
        self._path = Path(path)
        self._rows = self._read(dict(settings), dict(strategies))

    @property
    def done(self) -> set[Run]:
        """The runs that are there."""
        return {_run(row) for row in self._rows}

    @property
    def rows(self) -> list[Row]:
        return [{name: row[name] for name in row if name != "last"} for row in self._rows]

    def add(self, rows: Sequence[Row]) -> None:
        """Append whole runs; they are on the disk when this returns."""
        following = [*rows[1:], None]
        marked = [
            row | {"last": int(after is None or _run(after) != _run(row))}
            for row, after in zip(rows, following, strict=True)
        ]
        text = _text(marked, header=not self._rows)
        try:
            with self._path.open("a", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror or error}") from error
        self._rows += marked

    def _read(self, settings: dict[str, Any], strategies: dict[str, str]) -> list[Row]:
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        line, _, body = text.partition("\n")
        known = self._checked(line, settings, strategies) if text else {}
        shared = settings | {"strategies": known | strategies}
        first_line = f"# {json.dumps(shared, sort_keys=True)}\n"
        lines = csv.DictReader(io.StringIO(body[: body.rfind("\n") + 1]))  # the last line may be half of one
        try:
            found = [{name: _TYPES.get(name, float)(value) for name, value in line.items()} for line in lines]
            whole = {_run(row) for row in found if row["last"]}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{self._path} does not hold the rows of a simulation: {error}") from error
        kept = [row for row in found if _run(row) in whole]
        clean = first_line + (_text(kept, header=True) if kept else "")
        if clean != text:
            with replaced(self._path) as part:
                part.write_text(clean, encoding="utf-8")
        return kept

    def _checked(self, line: str, settings: dict[str, Any], strategies: dict[str, str]) -> dict[str, str]:
        """The strategies of the file, whose first line this is; refuses what cannot stand in one table with these runs."""
        try:
            found = json.loads(line.removeprefix("# "))
            known: dict[str, str] = found.pop("strategies")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{self._path} begins with {line[:80]!r}, as no file of a simulation does; give another file"
            ) from error
        for name in sorted({*found, *settings}):
            if found.get(name) != settings.get(name):
                raise DataError(
                    f"{self._path} holds runs with other settings: {name} was {found.get(name)} and is {settings.get(name)}; "
                    "give another file for these"
                )
        for name in sorted(known.keys() & strategies.keys()):
            if known[name] != strategies[name]:
                raise DataError(
                    f"{self._path} holds runs of another strategy {name!r}: it was {known[name]} and is {strategies[name]}; "
                    "give this one another name, or another file"
                )
        return known


def _run(row: Row) -> Run:
    return row["strategy"], row["seed"]


def _text(rows: Sequence[Row], header: bool) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
