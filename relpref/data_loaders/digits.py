"""Handwritten digits and the relation "shows the same digit": a symmetric relation that needs no file."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from relpref.data.arrays import listed
from relpref.errors import DataError

_LARGEST = 16.0  # grey value of a pixel


@dataclass(frozen=True, eq=False)
class SameDigit:
    """Images, and which of them show the same digit.

    Attributes
    ----------
    images, new_images : DataFrame, shape (n, 64)
        Grey values between 0 and 1, a row for each image, of digits that are known and of those kept apart.
    relation, new_relation : DataFrame, shape (n, n)
        1 where two images show the same digit, 0 elsewhere; NaN on the diagonal (no image is compared with itself).
    digits, new_digits : Series
        What each image shows.
    """

    images: pd.DataFrame
    relation: pd.DataFrame
    digits: pd.Series
    new_images: pd.DataFrame
    new_relation: pd.DataFrame
    new_digits: pd.Series


def load_same_digit(new: Sequence[int] = (7, 8, 9), *, size: int | None = None, seed: int = 0) -> SameDigit:
    """Load scikit-learn's 1797 images of 8 x 8 pixels (a part of Alpaydin & Kaynak's set, UCI).

    Parameters
    ----------
    new : sequence of int
        Digits of which no image is known: their images are new conditioning nodes and new objects (setting 4). The others are known.
    size : int, optional
        Draw so many images of each of the two groups; by default take all.
    seed : int
        Of that draw.

    Returns
    -------
    SameDigit

    Raises
    ------
    DataError
        If ``new`` is not a choice among the digits that leaves at least two on both sides, or there are fewer images.
    """
    chosen = set(new)
    if not chosen <= set(range(10)) or len(chosen) != len(new) or not 2 <= len(chosen) <= 8:
        raise DataError(f"new is {list(new)}; name two to eight different digits of 0 to 9")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    apart = np.isin(bunch.target, list(chosen))
    rng = np.random.default_rng(seed)
    parts = []
    for rows in (np.flatnonzero(~apart), np.flatnonzero(apart)):
        if size is not None:
            if not 2 <= size <= len(rows):
                raise DataError(
                    f"size is {size}; there are {len(rows)} images of the digits "
                    f"{listed(int(digit) for digit in np.unique(bunch.target[rows]))}: take 2 to {len(rows)}"
                )
            rows = np.sort(rng.choice(rows, size, replace=False))
        labels = pd.Index([f"image_{row:04d}" for row in rows], name="image")
        shown = pd.Series(bunch.target[rows], index=labels, name="digit")
        pixels = pd.DataFrame(bunch.data[rows] / _LARGEST, index=labels, columns=bunch.feature_names)
        same = (shown.to_numpy()[:, None] == shown.to_numpy()[None, :]).astype(np.float64)
        np.fill_diagonal(same, np.nan)
        parts.append((pixels, pd.DataFrame(same, index=labels, columns=labels), shown))
    return SameDigit(*parts[0], *parts[1])
