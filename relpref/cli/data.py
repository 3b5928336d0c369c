"""``relpref data``: public data sets, listed and fetched."""

import argparse
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


def run(chosen: argparse.Namespace) -> None:
    """List the data sets or fetch one."""
    {"list": _list, "get": _get}[chosen.action](chosen)


def _list(chosen: argparse.Namespace) -> None:
    if chosen.json:
        sets = [
            {**asdict(one), "access": one.access, "here": _here(one, data_folder())}
            for one in DATA_SETS.values()
        ]
        document(chosen, folder=str(data_folder() or ""), data_sets=sets)
        return
    rows = [
        (one.name, one.access, "yes" if _here(one, data_folder()) else "", one.title)
        for one in DATA_SETS.values()
    ]
    say(text_table(("name", "access", "here", "what it is"), rows, left=(0, 1, 2, 3)))
    for one in DATA_SETS.values():
        say(
            f"\n{one.name}: {one.terms}\n  {one.address}\n  read with relpref.data_loaders: "
            f"{one.loader}"
        )
        say(f"  cite {one.cite}")


def _here(one: DataSet, folder: Path | None) -> bool:
    if not one.folder:
        return True
    place = folder / one.folder if folder else None
    return bool(
        place and place.is_dir() and all((place / file.name).exists() for file in one.files)
    )


def _get(chosen: argparse.Namespace) -> None:
    wanted = data_set(chosen.set)
    if not wanted.folder:
        raise DataError(f"{wanted.name} comes with the package: read it with {wanted.loader}")
    if not wanted.files:
        raise DataError(f"{wanted.name} cannot be fetched for you. {how_to_get(wanted)}")
    from relpref.data_loaders.registry import download

    base = (
        Path(chosen.folder).absolute()
        if chosen.folder
        else data_folder() or Path("data").absolute()
    )
    place = base / wanted.folder
    speaks = not chosen.json and not chosen.quiet
    if speaks:
        say(f"{wanted.title}\nFrom {wanted.address}. Terms: {wanted.terms} Cite {wanted.cite}.")
    try:
        fetched = [
            file.name
            for file in wanted.files
            if download(file, place, progress_bar=not chosen.quiet)
        ]
    except KeyboardInterrupt:
        kept = (
            f"interrupted; finished files are kept in {place}, and the same command fetches "
            "the "
            "rest"
        )
        raise KeyboardInterrupt(kept) from None
    if chosen.json:
        about = {"name": wanted.name, "folder": str(place), "fetched": fetched}
        document(chosen, **about, terms=wanted.terms, cite=wanted.cite)
    elif speaks:
        said = counted(len(fetched), "file") + " fetched" if fetched else "everything was there"
        hint = "" if base == data_folder() else f"; loaders find it with {SETTING}={base}"
        say(f"{wanted.name}: {said}, checked, in {place}{hint}")
