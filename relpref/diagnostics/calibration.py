"""Results of simulation-based calibration: posterior probabilities below the true values."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from relpref.errors import DataError
from relpref.files import replaced
from relpref.limits import MAX_NUMBERS_OF_UNIFORM

Floats = NDArray[np.float64]

LEVEL = 0.99  # of the band in plots and of verdicts
GRID = np.arange(1, 101) / 101  # where distribution functions are compared
_REPLICATES = 10_000  # of the null distribution
_FEWEST = 50  # simulations for the verdict that an engine is calibrated
_MISSING = 0.01  # share of fits without a posterior above which the engine is not usable
_WHY = {
    "calibrated": "No sign of miscalibration of the {}",
    "too few": "Too few simulations to tell whether the {} is calibrated",
    "too narrow": "Not calibrated: intervals of the {} are too narrow",
    "too wide": "Not calibrated: intervals of the {} are too wide",
    "shifted": "Not calibrated: estimates of the {} are shifted to one side",
}


@dataclass(frozen=True)
class Calibration:
    """Posterior probabilities below the true values of simulations.

    Attributes
    ----------
    pits : dict from quantity to array, shape (s,)
        Posterior probability that a quantity lies below its true value, for each of s simulations;
        the first is the latent one, the others are hyperparameters. NaN where a fit ended without a
        posterior.
    results : tuple of str, length s
        How each fit ended.
    name : str
        Program, engine and hyperparameters, such as ``"xpgp, EP, hyperparameters given"``.
    """

    pits: Mapping[str, Floats]
    results: tuple[str, ...]
    name: str = ""

    @property
    def pit(self) -> Floats:
        """Posterior probabilities below the truth of the latent quantity, shape (s,)."""
        return self._of(None)

    @property
    def not_converged(self) -> int:
        """Number of fits that did not converge; they are not left out."""
        return sum(result != "converged" for result in self.results)

    def coverage(self, probability: float, quantity: str | None = None) -> tuple[float, float]:
        """Share of central intervals that held the truth, and its standard error if calibrated.

        A fit without a posterior counts as a miss.
        """
        pit = self._of(quantity)
        held = np.abs(np.where(np.isnan(pit), 1.0, pit) - 0.5) <= probability / 2
        return float(np.mean(held)), float(np.sqrt(probability * (1 - probability) / len(pit)))

    def p_value(self, quantity: str | None = None, *, seed: int = 0) -> float:
        """P-value of a test for uniform probabilities, from 10,000 replicates.

        The statistic is the most extreme point of the cumulative distribution.
        """
        pit = self._finite(quantity)
        null = _null(len(pit), seed)
        return float((1 + np.sum(null <= extremes(pit[None])[0])) / (1 + len(null)))

    def band(
        self, level: float = LEVEL, quantity: str | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Simultaneous band of the empirical distribution function of a calibrated engine.

        Returns
        -------
        grid, lower, upper : array, shape (100,)
            The distribution function lies between ``lower`` and ``upper`` at all points of
            ``grid`` with probability ``level`` (Säilynoja, Bürkner & Vehtari 2022).
        """
        from scipy.stats import binom

        size = len(self._finite(quantity))
        tail = float(np.quantile(_null(size, 0), 1 - level))
        lower, upper = (binom.ppf(p, size, GRID) / size for p in (tail / 2, 1 - tail / 2))
        return GRID, lower, upper

    def ecdf(self, quantity: str | None = None) -> Floats:
        """Empirical distribution function on the grid of `band`."""
        pit = self._finite(quantity)
        return np.searchsorted(np.sort(pit), GRID, side="right") / len(pit)

    def inside(self, level: float = LEVEL, quantity: str | None = None) -> bool:
        """Whether the empirical distribution function stays inside the band."""
        _, lower, upper = self.band(level, quantity)
        curve = self.ecdf(quantity)
        return bool(np.all((lower <= curve) & (curve <= upper)))

    def summary(self) -> pd.DataFrame:
        """One row for each quantity.

        Returns
        -------
        DataFrame
            By quantity: ``simulations``, ``not_converged``, ``p_value``, the share of central
            intervals of 50, 80 and 95 % that held the truth with its binomial standard error
            (``coverage_50``, ``se_50`` ...), and ``verdict``.
        """
        rows: dict[str, dict[str, object]] = {}
        for quantity, pit in self.pits.items():
            counts = {"simulations": len(pit), "not_converged": self.not_converged}
            row = rows[quantity] = {**counts, "p_value": self.p_value(quantity)}
            for percent in (50, 80, 95):
                row[f"coverage_{percent}"], row[f"se_{percent}"] = self.coverage(
                    percent / 100, quantity
                )
            row["verdict"] = self.verdict(quantity)
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("quantity")

    def verdict(self, quantity: str | None = None) -> str:
        """Verdict in one or two words.

        ``not usable`` if more than 1 % of the fits have no posterior; ``calibrated`` if p is at
        least 0.01, or ``too few`` with less than 50 simulations; otherwise the kind of deviation:
        ``too narrow``, ``too wide`` or ``shifted``.
        """
        if self.missing > _MISSING * len(self._of(quantity)):
            return "not usable"
        if self.p_value(quantity) >= 1 - LEVEL:
            return "calibrated" if len(self._finite(quantity)) >= _FEWEST else "too few"
        pit = self._finite(quantity)
        # Both in standard errors: for uniform numbers the mean has variance 1/12n, and the mean
        # square distance from ½ has variance 1/180n.
        shift = (np.mean(pit) - 0.5) * np.sqrt(12 * len(pit))
        spread = (np.mean(np.square(pit - 0.5)) - 1 / 12) * np.sqrt(180 * len(pit))
        if abs(shift) > abs(spread):
            return "shifted"
        return "too narrow" if spread > 0 else "too wide"

    @property
    def missing(self) -> int:
        """Number of fits without a posterior, which the distribution functions leave out."""
        return int(np.sum(~np.isfinite(self.pit)))

    @property
    def sentence(self) -> str:
        """Verdict on the latent quantity as a sentence."""
        number, (held, error), verdict = len(self.pit), self.coverage(0.8), self.verdict()
        share = f"{100 * held:.1f} % of {number} simulations (± {100 * error:.1f})"
        facts = f"80 % intervals held the truth in {share}"
        also = f"; {self.not_converged} of the fits did not converge" if self.not_converged else ""
        if verdict == "not usable":
            return f"Not usable: {self.missing} of {number} fits left no posterior: {facts}{also}."
        why = _WHY[verdict].format(next(iter(self.pits)))
        return f"{why}: {facts}, p = {self.p_value():.3g}{also}."

    def picture(self, path: str | os.PathLike[str]) -> Path:
        """Write the empirical minus the uniform distribution function, with the band, as SVG.

        Equal results give equal bytes.
        """
        return draw({self.name: self}, path)

    def _of(self, quantity: str | None) -> Floats:
        if quantity is None:
            return next(iter(self.pits.values()))
        if quantity not in self.pits:
            raise DataError(f"quantity is {quantity!r}; there are {', '.join(self.pits)}")
        return self.pits[quantity]

    def _finite(self, quantity: str | None) -> Floats:
        pit = self._of(quantity)
        finite = pit[np.isfinite(pit)]
        if not len(finite):
            raise DataError(
                f"none of {len(pit)} fits ended with a posterior: "
                f"{', '.join(sorted(set(self.results)))}"
            )
        return finite


# ArviZ has a similar plot (plot_ecdf_pit), with an envelope in 0.x and points marked by another
# test (POT-C) in 1.x. Neither is the band that belongs to the p-value here.
def draw(
    calibrations: Mapping[str, Calibration], path: str | os.PathLike[str], *, columns: int = 3
) -> Path:
    """Write the curves of all quantities as SVG, one panel for each calibration under its title.

    The band in a panel is that of the first quantity.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    columns = min(columns, len(calibrations))
    rows = -(-len(calibrations) // columns)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "relpref", "font.size": 9}):
        figure = Figure(figsize=(0.8 + 3.2 * columns, 0.6 + 2.4 * rows), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for panel, (title, calibration) in zip(panels, calibrations.items(), strict=False):
            grid, lower, upper = calibration.band()
            panel.fill_between(grid, lower - grid, upper - grid, color="0.88", lw=0)
            panel.axhline(0.0, color="0.6", lw=0.6)
            for at, quantity in reversed(list(enumerate(calibration.pits))):
                curve = calibration.ecdf(quantity)
                panel.plot(grid, curve - grid, f"C{at % 10}", lw=0.9 if at else 1.6, label=quantity)
            panel.set_title(title.replace("$", r"\$"), fontsize=9)
            if len(calibration.pits) > 1:
                panel.legend(fontsize=7, frameon=False)
        for panel in panels[len(calibrations) :]:
            panel.set_visible(False)
        figure.supxlabel("posterior probability below the truth", fontsize=9)
        figure.supylabel("empirical less uniform", fontsize=9)
        with replaced(path) as part:
            # Without date and version, so that equal numbers give equal bytes.
            figure.savefig(part, format="svg", metadata={"Date": None, "Creator": None})
    return Path(path)


@lru_cache(maxsize=16)
def _null(size: int, seed: int) -> Floats:
    """Values of `extremes` for replicates of ``size`` uniform numbers."""
    rng, rows = np.random.default_rng(seed), max(1, MAX_NUMBERS_OF_UNIFORM // size)
    parts = [min(rows, _REPLICATES - start) for start in range(0, _REPLICATES, rows)]
    return np.concatenate([extremes(rng.uniform(size=(part, size))) for part in parts])


def extremes(pit: Floats) -> Floats:
    """Smallest two-sided binomial tail probability over the grid, for each row."""
    from scipy.stats import binom

    size, points = pit.shape[1], len(GRID)
    # Count the numbers between neighboring points, then sum to those at or below each point.
    cells = np.searchsorted(GRID, pit, side="left") + (points + 1) * np.arange(len(pit))[:, None]
    between = np.bincount(cells.ravel(), minlength=len(pit) * (points + 1)).reshape(len(pit), -1)
    counts = np.cumsum(between, axis=1)[:, :points]
    numbers = np.arange(size + 1)[:, None]
    below, above = binom.cdf(numbers, size, GRID), binom.sf(numbers - 1, size, GRID)
    tails = np.minimum(1.0, 2 * np.minimum(below, above))
    return np.asarray(tails[counts, np.arange(points)].min(axis=1))
