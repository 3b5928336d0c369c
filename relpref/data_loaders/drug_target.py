"""Drugs and the proteins they act on, with similarities on both sides (Yamanishi et al. 2008)."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from relpref.data.arrays import shown
from relpref.data_loaders.registry import find, read_rows
from relpref.errors import DataError
from relpref.linalg import nearest_semidefinite

FAMILIES = {"nr": "nuclear receptors", "gpcr": "G protein-coupled receptors"}


@dataclass(frozen=True, eq=False)
class DrugTarget:
    """Which drug acts on which protein.

    Attributes
    ----------
    interactions : DataFrame, shape (drugs, targets)
        1 where an interaction is known, 0 elsewhere: that none is known, not that there is none.
    drug_similarity, target_similarity : DataFrame
        Of chemical structures (SIMCOMP) and of sequences (normalized Smith-Waterman), changed into
        kernels: symmetric, and positive semidefinite.
    notes : tuple of str
        What was changed for that.
    """

    interactions: pd.DataFrame
    drug_similarity: pd.DataFrame
    target_similarity: pd.DataFrame
    notes: tuple[str, ...]


def load(family: str = "nr", folder: str | os.PathLike[str] | None = None) -> DrugTarget:
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
    place = find("drug-target", folder)
    files = {
        part: place / f"{family}_{part}.txt" for part in ("admat_dgc", "simmat_dc", "simmat_dg")
    }
    links = _matrix(files["admat_dgc"])
    if not np.isin(links.to_numpy(), (0, 1)).all():
        raise DataError(f"{files['admat_dgc']}: an interaction is 0 or 1; get the file again")
    drugs, notes = _kernel(files["simmat_dc"], links.columns, files["admat_dgc"])
    targets, more = _kernel(files["simmat_dg"], links.index, files["admat_dgc"])
    return DrugTarget(links.T.astype(np.float64), drugs, targets, (*notes, *more))


def _kernel(file: Path, labels: pd.Index, other: Path) -> tuple[pd.DataFrame, list[str]]:
    table = _matrix(file)
    if set(table.index) != set(labels) or set(table.columns) != set(labels):
        raise DataError(
            f"{file}: its labels are not those of {other.name}; get both from the same place"
        )
    values = table.loc[labels, labels].to_numpy()
    kernel = nearest_semidefinite(values)
    changed = np.abs(kernel - values).max()
    notes = []
    if changed > 1e-9:
        asymmetry = np.abs(values - values.T).max()
        smallest = np.linalg.eigvalsh(0.5 * (values + values.T))[0]
        notes.append(
            f"{file.name}: replaced by the nearest symmetric positive semidefinite matrix (largest "
            f"asymmetry {asymmetry:.2g}, "
            f"smallest eigenvalue {smallest:.2g}); the largest change is {changed:.2g}"
        )
    return pd.DataFrame(kernel, index=labels, columns=labels), notes


def _matrix(file: Path) -> pd.DataFrame:
    """A table of numbers, cells separated by tabs, labels in the first row and column."""
    rows = read_rows(file, "\t")
    columns = rows.cells[0][1:]
    if not columns or len(rows.cells) < 2:
        raise DataError(f"{file}: the file holds no table of labels and values; get the file again")
    rows = rows.after(1).of_width(len(columns) + 1)
    table = pd.DataFrame(rows.numbers(1), index=[cells[0] for cells in rows.cells], columns=columns)
    for labels in (table.index, table.columns):
        if labels.has_duplicates:
            twice = labels[labels.duplicated()][0]
            raise DataError(f"{file}: the label {shown(twice)} is there twice; get the file again")
    return table
