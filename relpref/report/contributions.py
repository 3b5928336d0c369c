"""The chapter on what the utilities rest on: attributes and each relation."""

import numpy as np
import pandas as pd

from relpref.errors import DataError
from relpref.report.blocks import Block, Cell, Chapter, Picture, Text
from relpref.report.grid import grid
from relpref.report.plots import NARROW, WIDE, bars
from relpref.report.subject import Subject
from relpref.report.text import fixed, listed, signed_percent

_TITLE = "What the utilities rest on"
_ENTITIES = 10
_PARTS = 12


def contributions(subject: Subject) -> Chapter:
    """The chapter; one sentence where the posterior has no named parts."""
    posterior = subject.posterior
    try:
        shares, parts = posterior.shares(), posterior.explain()
    except DataError as error:
        return Chapter(_TITLE, [Text(f"This is left out: {error}.")])
    if not np.all(np.isfinite(shares)):
        return Chapter(_TITLE, [Text("This is left out: all utilities are equal, so there is no spread to explain.")])
    names = [part_name(str(name)) for name in shares.index]
    text = (
        "A utility is a sum of parts: what follows from an entity's attributes, and what it shares with those it is linked to in "
        f"each relation. A part's share says how much of the spread between the entities it accounts for: {_in_words(names, shares)}."
        " The shares add up to 100%; a part that works against the others has a negative one."
    )
    if len(shares) == 1:
        text = f"All of a utility comes from one part, {_inner(names[0])}: the model has no other."
        return Chapter(_TITLE, [Text(text)])
    order = np.argsort(-shares.to_numpy(), kind="stable")[:_PARTS]
    kept = [names[row] for row in order]
    description = f"One bar for each part: {_in_words(kept, shares.iloc[order])}."
    blocks: list[Block] = [Text(text)]
    if len(shares) > _PARTS:
        blocks.append(Text(f"The {_PARTS} parts with the largest shares are shown, of {len(shares)}.", small=True))
    values = shares.to_numpy()[order]
    wide, narrow = (bars(kept, values, f"shares{shape.width:.0f}", description, shape) for shape in (WIDE, NARROW))
    blocks.append(Picture(wide, narrow=narrow))
    blocks.append(
        grid("Shares", ("Part", "Share"), [[kept[i], signed_percent(shares.iloc[row])] for i, row in enumerate(order)], [1])
    )
    blocks.append(_by_entity(subject, parts, [str(shares.index[row]) for row in order]))
    blocks.append(
        Text("Each part is shown less its average over the entities, so that the parts add up to the utility above.", small=True)
    )
    return Chapter(_TITLE, blocks)


def part_name(part: str) -> str:
    """A part of the covariance in words."""
    return "attributes" if part == "attributes" else f"relation {part}"


def _inner(name: str) -> str:
    return name if name == "attributes" else f"the {name}"


def _in_words(names: list[str], shares: pd.Series) -> str:
    order = np.argsort(-shares.to_numpy(), kind="stable")
    return listed([f"{_inner(names[row])} {signed_percent(float(shares.iloc[row]))}" for row in order], most=6)


def _by_entity(subject: Subject, parts: pd.DataFrame, kept: list[str]) -> Block:
    """Signed contributions of the leading entities."""
    columns = parts[[*kept, "mean"]].to_numpy()
    relative = columns - columns.mean(axis=0)
    rows = []
    for place, position in enumerate(subject.order[:_ENTITIES]):
        short, full = subject.names.short[position], subject.names.full[position]
        name = Cell(short, full if short != full else None)
        rows.append([str(place + 1), name, *(fixed(number, subject.decimals) for number in relative[position])])
    caption = f"Where the utilities of the first {len(rows)} come from"
    names = ["Place", "Entity", *(part_name(part) for part in kept), "Utility"]
    return grid(caption, names, rows, [0, *range(2, len(names))], heading=1)
