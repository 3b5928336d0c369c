"""The chapter on what each part is worth: the evidence with and without it."""

from typing import Any

import numpy as np
import pandas as pd

from relpref.diagnostics.relations import evidence_without_each
from relpref.errors import DataError, RelprefError
from relpref.infer import UtilityPosterior
from relpref.report.blocks import Block, Chapter, Text
from relpref.report.grid import cell, grid
from relpref.report.text import clean, fixed, isolated
from relpref.report.utilities.contributions import part_name

_TITLE = "What each part is worth"
_NEEDED = ("left_out", "log_evidence", "difference")
# Nats; a part brings two or more fitted hyperparameters, and each is worth about one nat without any meaning.
_SLIGHT, _STRONG = 3.0, 6.0


def evidence(posterior: UtilityPosterior, wanted: bool | pd.DataFrame | None) -> Chapter | None:
    """The chapter.

    Parameters
    ----------
    posterior : UtilityPosterior
    wanted : bool, DataFrame or None
        False for no chapter, None for one that says how to get it; True to fit again without each part; or the table of
        `evidence_without_each`, ready.

    Raises
    ------
    DataError
        If a ready table lacks a column.
    """
    if isinstance(wanted, pd.DataFrame):
        table = wanted
        missing = [name for name in _NEEDED if name not in table.columns]
        if missing:
            raise DataError(
                f"relations_evidence: the table lacks the column {missing[0]!r}; "
                "pass the table that relpref.diagnostics.relations.evidence_without_each returns, or True or False"
            )
    elif wanted is False:
        return None
    elif wanted is None:
        text = (
            "The model was not fitted again without each of its parts, which would take from seconds to minutes: relpref report --evidence, "
            "or relations_evidence=True, does it."
        )
        return Chapter(_TITLE, [Text(text)])
    else:
        try:
            table = evidence_without_each(posterior)
        except RelprefError as error:
            return Chapter(
                _TITLE,
                [
                    Text(
                        f"The model was not fitted again without each of its parts: {clean(error).rstrip('.')}."
                    )
                ],
            )
    blocks: list[Block] = [
        Text(
            "The log evidence measures how well a model predicted the answers before it saw them. Here the model is fitted again "
            "without one part at a time. A positive difference speaks for the part: a difference of 3 nats makes the answers 20 "
            "times as probable with the part as without it."
        ),
        _table(posterior, table),
    ]
    conclusions = [_conclusion(row) for row in table.to_dict("records")]
    blocks.append(Text(" ".join(conclusions)))
    blocks.append(
        Text(
            "Both models have their hyperparameters fitted, and the larger one can switch a part off, so its evidence is rarely "
            f"the lower. Differences under about {_SLIGHT:.0f} nats mean little.",
            small=True,
        )
    )
    return Chapter(_TITLE, blocks)


def _table(posterior: UtilityPosterior, table: pd.DataFrame) -> Block:
    full = "–" if posterior.log_evidence is None else fixed(posterior.log_evidence)
    rows = [[cell("nothing"), cell(full), cell("")]]
    for row in table.to_dict("records"):
        part = cell(part_name(clean(row["left_out"]), posterior))
        rows.append([part, cell(fixed(float(row["log_evidence"]))), cell(_signed(float(row["difference"])))])
    return grid("Log evidence, in nats", ("Left out", "Log evidence", "Gain from it"), rows, (1, 2))


def _signed(difference: float) -> str:
    text = fixed(difference)
    return f"+{text}" if difference > 0 and text != "0.00" else text


def _conclusion(row: dict[Any, Any]) -> str:
    part = str(row["left_out"])
    name = "The attributes" if part == "attributes" else f"The relation {isolated(clean(part))}"
    verb, their = ("are", "they are") if part == "attributes" else ("is", "it is")
    difference = float(row["difference"])
    if not np.isfinite(difference):
        note = row.get("note")
        reason = clean(note) if isinstance(note, str) and note else "the fit without it did not succeed"
        return f"{name}: no comparison, {reason}."
    if difference > _STRONG:
        return f"{name} {verb} strongly supported by the answers."
    if difference > _SLIGHT:
        return f"{name} {verb} supported by the answers."
    if difference >= -_SLIGHT:
        return f"{name}: the answers do not tell whether {their} needed."
    return f"{name} {verb} worse than nothing: the answers are more probable without."
