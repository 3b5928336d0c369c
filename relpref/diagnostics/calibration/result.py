"""Where the truth fell in the posteriors of many simulations, and what that says of an engine."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from relpref.errors import DataError, StorageError
from relpref.files import replaced

_SCHEMA_KEY, _SCHEMA = "relpref_calibration", 1


class Record(NamedTuple):
    """One simulation.

    Attributes
    ----------
    simulation : int
    result : str
        How the fit ended.
    pits : dict from quantity to float
        Posterior probability below the truth; None where there is no posterior.
    """

    simulation: int
    result: str
    pits: Mapping[str, float | None]


class Journal:
    """A file of simulations, for one setting.

    Parameters
    ----------
    path : path
        Made where it is missing.
    settings : mapping
        Of what is simulated, as plain values.

    Raises
    ------
    StorageError
        If the file is of other settings, something else, damaged before its last line, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.records: dict[int, Record] = {}
        first = json.dumps({_SCHEMA_KEY: _SCHEMA, **settings}, ensure_ascii=False)
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            lines = whole.decode("utf-8").splitlines()
            if lines:
                self._check(lines[0], json.loads(first))
                for number, line in enumerate(lines[1:], 2):
                    record = self._parsed(line, number)
                    self.records[record.simulation] = record
            elif not first.encode().startswith(content):
                raise StorageError(f"{self.path}: this is no file of simulations; give another name")
            if len(whole) < len(content):
                os.truncate(self.path, len(whole))
            if not lines:
                self._append([first])
        except (OSError, UnicodeDecodeError) as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(
                f"{self.path}: cannot be read or written ({error}); give another name"
            ) from error

    def add(self, records: Iterable[Record]) -> None:
        """Keep some finished simulations; they are on the disk when this returns."""
        new = list(records)
        self._append([json.dumps(record._asdict(), ensure_ascii=False, allow_nan=False) for record in new])
        self.records |= {record.simulation: record for record in new}

    def _append(self, lines: list[str]) -> None:
        try:
            with self.path.open("ab") as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written ({error.strerror})") from error

    def _check(self, line: str, wanted: Mapping[str, Any]) -> None:
        found = self._json(line, 1)
        if _SCHEMA_KEY not in found:
            raise StorageError(f"{self.path}: this is no file of simulations; give another name")
        for name, value in wanted.items():
            if found.get(name) != value:
                raise StorageError(
                    f"{self.path}: its simulations have {name} {found.get(name)!r}, and {value!r} is asked for; give another file, or "
                    "remove this one"
                )

    def _parsed(self, line: str, number: int) -> Record:
        try:
            return Record(**self._json(line, number))
        except TypeError as error:
            raise self._damaged(number) from error

    def _json(self, line: str, number: int) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise self._damaged(number) from error
        if not isinstance(found, dict):
            raise self._damaged(number)
        return found

    def _damaged(self, number: int) -> StorageError:
        return StorageError(
            f"{self.path}: line {number} is damaged; remove the file, or its lines from there on"
        )


# ArviZ has such a picture (plot_ecdf_pit), with an envelope in 0.x and with points marked by another test (POT-C) in 1.x: neither is the
# band that the p-value here belongs to, and one picture for all versions is wanted.
_COLUMNS = 3
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "relpref", "font.size": 9}


def draw(
    found: Mapping[str, "Calibration"],
    path: str | os.PathLike[str],
    *,
    columns: int = _COLUMNS,
) -> Path:
    """Write one panel for each calibration, under its name: every quantity's curve and the band of the first.

    Parameters
    ----------
    found : mapping from title to Calibration
    path : path
        Of the SVG file.
    columns : int
        Panels beside one another.

    Returns
    -------
    Path
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    wide = min(columns, len(found))
    high = -(-len(found) // wide)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(0.8 + 3.2 * wide, 0.6 + 2.4 * high), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(high, wide, squeeze=False, sharex=True, sharey=True).ravel()
        for panel, (title, calibration) in zip(panels, found.items(), strict=False):
            grid, lower, upper = calibration.band()
            panel.fill_between(grid, lower - grid, upper - grid, color="0.88", lw=0)
            panel.axhline(0.0, color="0.6", lw=0.6)
            for row, quantity in reversed(list(enumerate(calibration.pits))):
                pit = calibration.pits[quantity]
                curve = ecdf(pit[np.isfinite(pit)])
                panel.plot(grid, curve - grid, f"C{row % 10}", lw=0.9 if row else 1.6, label=quantity)
            panel.set_title(title.replace("$", r"\$"), fontsize=9)
            if len(calibration.pits) > 1:
                panel.legend(fontsize=7, frameon=False)
        for panel in panels[len(found) :]:
            panel.set_visible(False)
        figure.supxlabel("posterior probability below the truth", fontsize=9)
        figure.supylabel("empirical less uniform", fontsize=9)
        with replaced(path) as part:
            # No date and no version: the same bytes for the same numbers.
            figure.savefig(part, format="svg", metadata={"Date": None, "Creator": None})
    return Path(path)


Floats = NDArray[np.float64]

_GRID = 100  # points at which a cumulative distribution is looked at
_REPLICATES = 10_000  # of the null distribution
_AT_ONCE = 1_000_000  # of its numbers


def grid() -> Floats:
    """Where cumulative distributions are looked at, shape (100,)."""
    return np.arange(1, _GRID + 1) / (_GRID + 1)


def ecdf(pit: Floats) -> Floats:
    """The empirical cumulative distribution on the grid."""
    return np.searchsorted(np.sort(pit), grid(), side="right") / len(pit)


def p_value(pit: Floats, seed: int = 0) -> float:
    """Of the hypothesis that all are uniform and independent, by simulation (10,000 replicates)."""
    null = _null(len(pit), seed)
    return float((1 + np.sum(null <= _extremes(pit[None])[0])) / (1 + len(null)))


def band(size: int, level: float, seed: int = 0) -> tuple[Floats, Floats]:
    """Between what bounds the whole empirical distribution of so many uniform numbers lies, with probability ``level``.

    Simultaneous over the grid, by simulation (Säilynoja, Bürkner & Vehtari 2022).
    """
    tail, at = float(np.quantile(_null(size, seed), 1 - level)), grid()
    return binom.ppf(tail / 2, size, at) / size, binom.ppf(1 - tail / 2, size, at) / size


@lru_cache(maxsize=16)
def _null(size: int, seed: int) -> Floats:
    """The extremes of replicates of as many uniform numbers."""
    rng, rows = np.random.default_rng(seed), max(1, _AT_ONCE // size)
    parts = [min(rows, _REPLICATES - start) for start in range(0, _REPLICATES, rows)]
    return np.concatenate([_extremes(rng.uniform(size=(part, size))) for part in parts])


def _extremes(pit: Floats) -> Floats:
    """The smallest two-sided binomial tail probability over the grid, for each row."""
    size, at = pit.shape[1], grid()
    # How many of a row lie at or below each point, by counting what falls between two points.
    cells = np.searchsorted(at, pit, side="left") + (_GRID + 1) * np.arange(len(pit))[:, None]
    between = np.bincount(cells.ravel(), minlength=len(pit) * (_GRID + 1)).reshape(len(pit), -1)
    counts = np.cumsum(between, axis=1)[:, :_GRID]
    numbers = np.arange(size + 1)[:, None]
    below, above = binom.cdf(numbers, size, at), binom.sf(numbers - 1, size, at)
    tails = np.minimum(1.0, 2 * np.minimum(below, above))
    return np.asarray(tails[counts, np.arange(_GRID)].min(axis=1))


LEVEL = 0.99  # of the band that pictures show and words go by
_FEWEST = 50  # simulations of which silence says something
_MISSING = 0.01  # share of fits without a posterior: more say that the engine cannot be used there


@dataclass(frozen=True)
class Calibration:
    """Where the truth fell.

    Attributes
    ----------
    pits : dict from quantity to array, shape (s,)
        Posterior probability that a quantity lies below its true value, for each of s simulations; the first is the latent one, the
        others are hyperparameters. NaN where a fit ended without a posterior.
    results : tuple of str, length s
        How each fit ended.
    name : str
        What was tried, such as ``"xpgp, EP, hyperparameters given"``.
    """

    pits: Mapping[str, Floats]
    results: tuple[str, ...]
    name: str = ""

    @property
    def pit(self) -> Floats:
        """Of the latent quantity, shape (s,)."""
        return self._of(None)

    @property
    def not_converged(self) -> int:
        """How many fits did not converge; they are counted like the others, those without a posterior as misses."""
        return sum(result != "converged" for result in self.results)

    def coverage(self, probability: float, quantity: str | None = None) -> tuple[float, float]:
        """How often a central interval held the truth.

        Parameters
        ----------
        probability : float
            Of the interval.
        quantity : str, optional
            Of ``pits``; the first by default.

        Returns
        -------
        share, standard_error : float
            The error is the binomial one of a calibrated engine.
        """
        pit = self._of(quantity)
        held = np.abs(np.where(np.isnan(pit), 1.0, pit) - 0.5) <= probability / 2
        return float(np.mean(held)), float(np.sqrt(probability * (1 - probability) / len(pit)))

    def p_value(self, quantity: str | None = None, *, seed: int = 0) -> float:
        """Of the hypothesis that the transforms are uniform, over the whole cumulative distribution at once (10,000 replicates)."""
        return p_value(self._finite(quantity), seed)

    def band(self, level: float = LEVEL, quantity: str | None = None) -> tuple[Floats, Floats, Floats]:
        """Where the empirical cumulative distribution of a calibrated engine lies as a whole, with the given probability.

        Returns
        -------
        grid, lower, upper : array, shape (100,)
            Simultaneous, by simulation (Säilynoja, Bürkner & Vehtari 2022).
        """
        return grid(), *band(len(self._finite(quantity)), level)

    def inside(self, level: float = LEVEL, quantity: str | None = None) -> bool:
        """Whether the empirical cumulative distribution stays inside that band."""
        _, lower, upper = self.band(level, quantity)
        curve = ecdf(self._finite(quantity))
        return bool(np.all((lower <= curve) & (curve <= upper)))

    def summary(self) -> pd.DataFrame:
        """One row for each quantity.

        Returns
        -------
        DataFrame
            By quantity: ``simulations``, ``not_converged``, ``p_value``, the share of central intervals of 50, 80 and 95 % that held
            the truth with its binomial standard error (``coverage_50``, ``se_50`` ...), and ``verdict``.
        """
        rows = {}
        for quantity, pit in self.pits.items():
            row: dict[str, object] = {"simulations": len(pit), "not_converged": self.not_converged}
            row["p_value"] = self.p_value(quantity)
            for percent in (50, 80, 95):
                row[f"coverage_{percent}"], row[f"se_{percent}"] = self.coverage(percent / 100, quantity)
            rows[quantity] = row | {"verdict": self.verdict(quantity)}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("quantity")

    def verdict(self, quantity: str | None = None) -> str:
        """In two words.

        ``not usable`` where more than one fit in a hundred left no posterior; ``calibrated`` where p is at least 0.01, or ``too few`` of less
        than 50 simulations; otherwise what the shape says: ``too narrow``, ``too wide`` or ``shifted``.
        """
        if self.missing > _MISSING * len(self._of(quantity)):
            return "not usable"
        if self.p_value(quantity) >= 1 - LEVEL:
            return "calibrated" if len(self._finite(quantity)) >= _FEWEST else "too few"
        pit = self._finite(quantity)
        # In standard errors of uniform numbers: their mean has variance 1/12n, their mean square distance from ½ 1/180n.
        shift = (np.mean(pit) - 0.5) * np.sqrt(12 * len(pit))
        spread = (np.mean(np.square(pit - 0.5)) - 1 / 12) * np.sqrt(180 * len(pit))
        if abs(shift) > abs(spread):
            return "shifted"
        return "too narrow" if spread > 0 else "too wide"

    @property
    def missing(self) -> int:
        """Fits that left no posterior; coverage counts them as misses, the distribution is without them."""
        return int(np.sum(~np.isfinite(self.pit)))

    @property
    def sentence(self) -> str:
        """The verdict on the latent quantity in plain words."""
        number, quantity = len(self.pit), next(iter(self.pits))
        held, error = self.coverage(0.8)
        facts = f"80 % intervals held the truth in {100 * held:.1f} % of {number} simulations (± {100 * error:.1f})"
        failed = self.not_converged
        also = f"; {failed} of the fits did not converge" if failed else ""
        if self.verdict() == "not usable":
            return f"Not usable: {self.missing} of {number} fits left no posterior: {facts}{also}."
        why = {
            "calibrated": f"No sign of miscalibration of the {quantity}",
            "too few": f"Too few simulations to tell whether the {quantity} is calibrated",
            "too narrow": f"Not calibrated: intervals of the {quantity} are too narrow",
            "too wide": f"Not calibrated: intervals of the {quantity} are too wide",
            "shifted": f"Not calibrated: estimates of the {quantity} are shifted to one side",
        }[self.verdict()]
        return f"{why}: {facts}, p = {self.p_value():.3g}{also}."

    def picture(self, path: str | os.PathLike[str]) -> Path:
        """Write the difference of empirical and uniform distribution, with the band, as SVG; the same bytes for the same transforms."""
        from relpref.diagnostics.calibration.result import draw

        return draw({self.name: self}, path)

    def _of(self, quantity: str | None) -> Floats:
        if quantity is None:
            return next(iter(self.pits.values()))
        if quantity not in self.pits:
            raise DataError(f"quantity is {quantity!r}; there are {', '.join(self.pits)}")
        return self.pits[quantity]

    def _finite(self, quantity: str | None) -> Floats:
        pit = self._of(quantity)
        known = pit[np.isfinite(pit)]
        if not len(known):
            raise DataError(
                f"none of {len(pit)} fits ended with a posterior: {', '.join(sorted(set(self.results)))}"
            )
        return known
