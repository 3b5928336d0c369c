"""Forecasts for many pairs at once: exact ones, and quick ones from a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data import Comparisons
from relpref.explore.scores.forecast import Forecast, Noise, forecast, noise_of
from relpref.explore.scores.gaps import Gaps
from relpref.infer.belief import Floats
from relpref.likelihoods import AnswerModel

Singles = NDArray[np.float32]

_ROWS, _COLUMNS = 160, 64
_FARTHEST = 8.0  # in units of √(c² + v), beyond the outermost threshold
_WIDEST = 1 - 1e-3  # 1 − c/√(c² + v): sds of the gap up to a thousand times that of the noise


@dataclass(frozen=True)
class _Same:
    key: tuple[Any, ...]
    answers: "Answers" = field(compare=False)


@lru_cache(maxsize=8)
def _shared(same: _Same) -> "Answers":
    return same.answers


@dataclass(frozen=True, eq=False)
class Answers:
    """What the answers of one rater, or of a typical one, tell about gaps.

    Attributes
    ----------
    model : AnswerModel
    asked : Comparisons
        One row that says who is asked.
    parameters : mapping from site to value
    """

    model: AnswerModel
    asked: Comparisons
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def shared(self) -> "Answers":
        """These, or equal ones that were used before and have their table: it changes with the hyperparameters only."""
        values = {**self.asked.columns, **self.parameters}
        arrays = ((name, np.asarray(value)) for name, value in values.items())
        key = tuple((name, array.shape, array.tobytes()) for name, array in arrays)
        return _shared(_Same((self.model, self.asked.strengths, *key), self))

    def forecast(self, mean: Floats, variance: Floats) -> Forecast:
        """Exactly, for k pairs."""
        return forecast(self.model, self.asked, self.parameters, mean, variance)

    @cached_property
    def noise(self) -> Noise:
        """How an answer sees a gap."""
        return noise_of(self.model, self.asked, self.parameters)

    def information(self, gaps: Gaps) -> Floats | Singles:
        """Mutual information of answer and gap, in nats, to about a thousandth of itself."""
        if self.noise.is_report:
            return np.asarray(0.5 * np.log1p(gaps.variance / self.noise.scale**2))
        row, column, share = self._places(gaps)
        return self._interpolated(0, row, column) * share

    def shrinkage(self, gaps: Gaps) -> Floats:
        """κ of the expected variance v − κ v², to about a thousandth of itself."""
        total = 1 / (self.noise.scale**2 + gaps.variance)
        if self.noise.is_report:
            return total
        row, column, _ = self._places(gaps)
        return self._interpolated(1, row, column) * total

    def undecided(self, gaps: Gaps) -> Singles:
        """How near to one half the probability of an answer for the first is, a tie counting one half."""
        row, column, _ = self._places(gaps)
        return self._interpolated(2, row, column)

    @property
    def _farthest(self) -> float:
        return _FARTHEST + self.noise.outermost / self.noise.scale

    @cached_property
    def _table(self) -> NDArray[np.float32]:
        """Functions of t = |m|/√(c² + v) and s = 1 − c/√(c² + v), which are smooth in both; shape (3, rows · columns)."""
        t = np.linspace(0.0, self._farthest, _ROWS)[:, None]
        s = np.linspace(0.0, _WIDEST, _COLUMNS)[None, :]
        s[0, 0] = 1e-7  # the information is proportional to s there
        noise = self.noise.scale
        total = np.broadcast_to((noise / (1 - s)) ** 2, (_ROWS, _COLUMNS))
        found = self.forecast((t * np.sqrt(total)).ravel(), (total - noise**2).ravel())
        channels = (
            found.information.reshape(_ROWS, _COLUMNS) / s,
            found.shrinkage.reshape(_ROWS, _COLUMNS) * total,
            np.abs(found.favoured - 0.5).reshape(_ROWS, _COLUMNS),
        )
        return np.stack([channel.astype(np.float32).ravel() for channel in channels])

    def _places(self, gaps: Gaps) -> tuple[Singles, Singles, Singles]:
        """Of the gaps in the table: row and column, in fractions of a step, and s."""
        ratio = (gaps.variance / self.noise.scale**2).astype(np.float32)
        spread = np.sqrt(ratio + np.float32(1))
        row = np.abs((gaps.mean / self.noise.scale).astype(np.float32))
        row /= spread
        row *= np.float32((_ROWS - 1) / self._farthest)
        np.minimum(row, np.float32(_ROWS - 1.001), out=row)
        # 1 − 1/√(1 + w) = w/(√(1 + w) (1 + √(1 + w))), which keeps its digits where w is small.
        ratio /= spread
        spread += np.float32(1)
        ratio /= spread
        column = np.minimum(ratio, np.float32(_WIDEST * (1 - 1e-6)))
        column *= np.float32((_COLUMNS - 1) / _WIDEST)
        return row, column, ratio

    def _interpolated(self, channel: int, row: Singles, column: Singles) -> Singles:
        """Bilinearly."""
        table = self._table[channel]
        i, j = row.astype(np.int32), column.astype(np.int32)
        down, right = row - i, column - j
        i *= _COLUMNS
        i += j
        top, bottom = table.take(i), table.take(i + _COLUMNS)
        i += 1
        top += right * (table.take(i) - top)
        bottom += right * (table.take(i + _COLUMNS) - bottom)
        bottom -= top
        bottom *= down
        bottom += top
        return bottom
