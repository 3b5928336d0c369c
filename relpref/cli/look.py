"""``relpref look``: show how tables are read, and what a fit would use."""

from argparse import Namespace
from shlex import join
from typing import Any

from relpref.cli.entry import typed
from relpref.cli.fit import columns_of, covariates_of, read, tables_of
from relpref.cli.output import given, say
from relpref.data import PreferenceData
from relpref.data.arrays import label, listed, text_table
from relpref.data.forms import KNOWN, answer_table, known_columns
from relpref.data.labels import trimmed
from relpref.data.rankings import PREFLIB
from relpref.data.table_files import suffix_of
from relpref.data.tables import Table, read_table
from relpref.errors import DataError
from relpref.options import OPTIONS


def run(chosen: Namespace) -> None:
    """Show the columns of the tables, and then the data of a fit, or what is wrong."""
    tables, columns = tables_of(chosen), columns_of(chosen)
    data, error = None, None
    try:
        data = read(chosen, tables, columns)
    except DataError as wrong:
        error = wrong
    for file in (tables.comparisons, tables.items):
        if file is None or suffix_of(file) in PREFLIB:
            continue
        sheet = chosen.sheet if file is tables.comparisons else None
        table = read_table(file, encoding=chosen.encoding, repeats=True, sheet=sheet)
        uses = {}
        if file is tables.items and data is not None:
            uses = _uses_of_items(table, data)
        elif file is tables.comparisons:
            try:
                covariates = covariates_of(chosen)
                options = given(chosen, *OPTIONS)
                answers = answer_table(table, columns, covariates, options=options)
                uses = _uses_of_answers(table, answers, (*KNOWN, *known_columns(covariates)))
            except DataError:
                pass  # it is the error above
        rows = [
            (
                label(name),
                label(uses.get(name, "not used" if uses else "?")),
                label(listed(cells.drop_duplicates().tolist()[:3])),
            )
            for name, cells in table.frame.items()
        ]
        say(f"{file}\n{text_table(('column', 'used as', 'first cells'), rows, (0, 1, 2))}\n")
    if data is None:
        assert error is not None
        raise error
    say(f"A fit would use: {data.describe()}")
    for note in data.notes:
        say(f"  {typed(note)}")
    say(f"To fit: {join(['relpref', 'fit', *chosen.arguments[1:]])}")


def _uses_of_answers(table: Table, read: Table, names: Any) -> dict[Any, str]:
    """Return what the columns of a table are used as, by their names in the file."""
    ours = {theirs: name for name, theirs in read.given.items()}
    uses = {}
    for column in table.frame.columns:
        if column in ours:
            uses[column] = ours[column]
        elif column not in read.frame.columns:
            uses[column] = "the answer"
        elif column in names or str(column).startswith("item_"):
            uses[column] = str(column)
    return uses


def _uses_of_items(table: Table, data: PreferenceData) -> dict[Any, str]:
    """Return the attributes and relations that the columns of a table of items become."""
    uses: dict[Any, str] = {}
    for column in table.frame.columns:
        parts = [
            name
            for name in (*data.attribute_names, *data.relations)
            if name in (column, f"{column} missing", f"same_{column}")
            or name.startswith(f"{column}=")
        ]
        if parts:
            uses[column] = listed(parts, 3)
        elif "label" not in uses.values() and trimmed(table.frame[column].iloc[0]) in data.labels:
            uses[column] = "label"
    return uses
