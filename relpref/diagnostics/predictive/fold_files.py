"""Finished folds in a folder: a file for each, known by a digest of all that it depends on."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relpref import __version__
from relpref.diagnostics.predictive.cavity import Predictive
from relpref.errors import StorageError
from relpref.files import replaced
from relpref.folders import made
from relpref.infer import Posterior
from relpref.infer.fingerprint import fingerprint


class FoldFiles:
    """Those of the folds of one posterior.

    Parameters
    ----------
    folder : path
        Made where it is missing.
    posterior : Posterior
        Whose program is fitted again.
    fixed : mapping
        With these hyperparameters known.
    trained : sequence of array
        The positions of the answers that each fold is fitted to.

    Raises
    ------
    DataError
        If there is something in the program or its arguments that nothing tells from others of its kind.
    StorageError
        If the folder cannot be made.
    """

    def __init__(
        self, folder: str | os.PathLike[str], posterior: Posterior, fixed: Any, trained: Sequence[Any]
    ) -> None:
        start = (posterior.key, dict(posterior.hyperparameters))
        known = fingerprint((__version__, posterior.origin, fixed, start))
        place = made(folder)
        self.paths: list[Path] = [place / f"fold-{fingerprint((known, rows))}.npz" for rows in trained]

    def read(self, number: int) -> Predictive:
        """A fold that is there.

        Raises
        ------
        StorageError
            If its file is damaged.
        """
        path = self.paths[number]
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return Predictive(**arrays)
        except Exception as error:  # a damaged archive raises many types
            raise StorageError(f"{path} cannot be read as a fold ({error}); remove it") from error

    def write(self, number: int, found: Predictive) -> None:
        """Keep a fold; it is on the disk when this returns."""
        with replaced(self.paths[number]) as part, part.open("wb") as file:
            np.savez(file, **vars(found))
