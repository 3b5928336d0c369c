"""``relpref data``: list and fetch public data sets."""

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from relpref.cli.output import document, say
from relpref.data.arrays import counted, text_table
from relpref.data_loaders.registry import (
    DATA_SETS,
    SETTING,
    DataSet,
    data_folder,
    data_set,
    how_to_get,
)
from relpref.errors import DataError


def list_sets(chosen: Namespace) -> None:
    """List the data sets."""
    folder, data_sets = data_folder(), DATA_SETS.values()
    if chosen.json:
        rows = [
            {**asdict(entry), "access": entry.access, "here": _here(entry, folder)}
            for entry in data_sets
        ]
        document(chosen, folder=str(folder or ""), data_sets=rows)
        return
    cells = [
        (entry.name, entry.access, "yes" if _here(entry, folder) else "", entry.title)
        for entry in data_sets
    ]
    say(text_table(("name", "access", "here", "what it is"), cells, left=(0, 1, 2, 3)))
    for entry in data_sets:
        say(
            f"\n{entry.name}: {entry.terms}\n  {entry.address}\n"
            f"  read with relpref.data_loaders: {entry.loader}\n  cite {entry.cite}"
        )


def _here(entry: DataSet, folder: Path | None) -> bool:
    """Whether all files of a data set are in the folder of data sets, or bundled."""
    if not entry.folder:
        return True
    place = folder / entry.folder if folder else None
    return bool(
        place and place.is_dir() and all((place / file.name).exists() for file in entry.files)
    )


def get(chosen: Namespace) -> None:
    """Fetch a data set."""
    entry = data_set(chosen.set)
    if not entry.folder:
        raise DataError(f"{entry.name} comes with the package: read it with {entry.loader}")
    if not entry.files:
        raise DataError(f"{entry.name} cannot be fetched for you. {how_to_get(entry)}")
    from relpref.data_loaders.registry import download

    folder = Path(chosen.folder or data_folder() or "data").absolute()
    place = folder / entry.folder
    if chosen.speaks:
        say(f"{entry.title}\nFrom {entry.address}. Terms: {entry.terms} Cite {entry.cite}.")
    try:
        fetched = [
            file.name
            for file in entry.files
            if download(file, place, progress_bar=not chosen.quiet)
        ]
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; finished files are kept in {place}, and the same command fetches the "
            "rest"
        ) from None
    if chosen.json:
        document(
            chosen,
            name=entry.name,
            folder=place,
            fetched=fetched,
            terms=entry.terms,
            cite=entry.cite,
        )
    if chosen.speaks:
        result = counted(len(fetched), "file") + " fetched" if fetched else "everything was there"
        hint = "" if folder == data_folder() else f"; loaders find it with {SETTING}={folder}"
        say(f"{entry.name}: {result}, checked, in {place}{hint}")
