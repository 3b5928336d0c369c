"""Where the truth fell in the posteriors of many simulations, and what that says of an engine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from relpref.diagnostics.calibration import uniform
from relpref.diagnostics.calibration.uniform import Floats
from relpref.errors import DataError

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
        return uniform.p_value(self._finite(quantity), seed)

    def band(self, level: float = LEVEL, quantity: str | None = None) -> tuple[Floats, Floats, Floats]:
        """Where the empirical cumulative distribution of a calibrated engine lies as a whole, with the given probability.

        Returns
        -------
        grid, lower, upper : array, shape (100,)
            Simultaneous, by simulation (Säilynoja, Bürkner & Vehtari 2022).
        """
        return uniform.grid(), *uniform.band(len(self._finite(quantity)), level)

    def inside(self, level: float = LEVEL, quantity: str | None = None) -> bool:
        """Whether the empirical cumulative distribution stays inside that band."""
        _, lower, upper = self.band(level, quantity)
        curve = uniform.ecdf(self._finite(quantity))
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
        from relpref.diagnostics.calibration.picture import draw

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
