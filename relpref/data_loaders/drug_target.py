"""Drugs and the proteins they act on, with similarities on both sides (Yamanishi et al. 2008)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from relpref.data.arrays import shown
from relpref.data_loaders.registry import REMEDY, find, read_numbers
from relpref.errors import DataError
from relpref.files import FilePath
from relpref.linalg import nearest_semidefinite

_PARTS = ("admat_dgc", "simmat_dc", "simmat_dg")
FAMILIES = {"nr": "nuclear receptors", "gpcr": "G protein-coupled receptors"}


@dataclass(frozen=True, eq=False)
class DrugTarget:
    """Interactions of drugs and proteins, and kernels on both sides.

    Attributes
    ----------
    interactions : DataFrame, shape (drugs, targets)
        1 where an interaction is known, 0 elsewhere: none is known, which does not mean that there
        is none.
    drug_similarity, target_similarity : DataFrame
        Similarities of chemical structures (SIMCOMP) and of sequences (normalized Smith-Waterman),
        changed into kernels: symmetric and positive semidefinite.
    notes : tuple of str
        Changes to the similarities.
    """

    interactions: pd.DataFrame
    drug_similarity: pd.DataFrame
    target_similarity: pd.DataFrame
    notes: tuple[str, ...]


def load(family: str = "nr", folder: FilePath | None = None) -> DrugTarget:
    """Read one family of proteins.

    Parameters
    ----------
    family : {"nr", "gpcr"}
        Nuclear receptors (54 drugs, 26 targets) or G protein-coupled receptors (223 drugs, 95
        targets).
    folder : path, optional
        With ``<family>_admat_dgc.txt``, ``<family>_simmat_dc.txt`` and ``<family>_simmat_dg.txt``;
        ``$RELPREF_DATA/yamanishi`` by default.

    Raises
    ------
    DataError
        If a file is missing, holds something else, or the files do not fit together.

    Notes
    -----
    The drugs' similarities are not symmetric, and a similarity need not be positive semidefinite.
    Both become kernels by `relpref.linalg.nearest_semidefinite`, and ``notes`` says by how much
    that changed the largest entry.
    """
    if family not in FAMILIES:
        raise DataError(
            f"family is {shown(family)}; this loader knows {' and '.join(map(repr, FAMILIES))}"
        )
    files = [find("drug-target", folder, f"{family}_{part}.txt") for part in _PARTS]
    interactions = read_numbers(files[0], separator="\t", labels=0)
    if not interactions.isin((0, 1)).all(axis=None):
        raise DataError(f"{files[0]}: an interaction is 0 or 1; {REMEDY}")
    notes: list[str] = []
    drugs = _kernel(files[1], interactions.columns, files[0], notes)
    targets = _kernel(files[2], interactions.index, files[0], notes)
    return DrugTarget(interactions.T, drugs, targets, tuple(notes))


def _kernel(file: Path, labels: pd.Index, other: Path, notes: list[str]) -> pd.DataFrame:
    """Similarities as a kernel in the order of the labels; a change is added to the notes."""
    table = read_numbers(file, separator="\t", labels=0)
    if set(table.index) != set(labels) or set(table.columns) != set(labels):
        raise DataError(
            f"{file}: its labels are not those of {other.name}; get both from the same place"
        )
    values = table.loc[labels, labels].to_numpy()
    kernel = nearest_semidefinite(values)
    if (change := np.abs(kernel - values).max()) > 1e-9:
        asymmetry = np.abs(values - values.T).max()
        smallest = np.linalg.eigvalsh(0.5 * (values + values.T))[0]
        notes.append(
            f"{file.name}: replaced by the nearest symmetric positive semidefinite matrix (largest "
            f"asymmetry {asymmetry:.2g}, smallest eigenvalue {smallest:.2g}); the largest change "
            f"is {change:.2g}"
        )
    return pd.DataFrame(kernel, index=labels, columns=labels)
