"""The chapter on what the utilities rest on: attributes and each relation."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from relpref.diagnostics.relations import ATTRIBUTES, INDIVIDUAL
from relpref.errors import DataError
from relpref.infer import Posterior, UtilityPosterior
from relpref.report.blocks import Block, Cell, Chapter, Picture, Text, clean, fixed, listed, signed_percent
from relpref.report.plots import NARROW, WIDE, bars, grid
from relpref.report.utilities.subject import Subject

_TITLE = "What the utilities rest on"
_ENTITIES = 10
_PARTS = 12
_NAMES = {ATTRIBUTES: "attributes", INDIVIDUAL: "entity itself"}


def contributions(subject: Subject) -> Chapter:
    """The chapter; one sentence where there is nothing to split."""
    posterior = subject.whole
    if not posterior.parts:
        return Chapter(
            _TITLE, [Text("This is left out: the posterior does not know the parts of its prior.")]
        )
    try:
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            # 0/0 where all utilities are equal, and parts that cannot be told apart: told below.
            warnings.simplefilter("ignore", UserWarning)
            shares, parts = posterior.shares(), posterior.explain()
    except DataError as error:
        return Chapter(_TITLE, [Text(f"This is left out: {clean(error)}.")])
    names = {str(part): part_name(str(part), posterior) for part in shares.index}
    if len(names) == 1:
        (name,) = names.values()
        return Chapter(
            _TITLE, [Text(f"All of a utility comes from {_inner(name)}: the model has no other part.")]
        )
    if not np.all(np.isfinite(shares)):
        return Chapter(
            _TITLE, [Text("This is left out: all utilities are equal, so there is no spread to explain.")]
        )
    shares = shares.iloc[np.argsort(-shares.to_numpy(), kind="stable")]
    head = shares.iloc[:_PARTS]
    kept = [names[str(part)] for part in head.index]
    words = listed(
        [f"{_inner(name)} {signed_percent(share)}" for name, share in zip(kept, head, strict=True)], 6
    )
    blocks: list[Block] = [
        Text(
            "A utility is a sum of parts: what follows from an entity's attributes, what it shares with those it is linked "
            "to in each relation, and what is to be said of the entity itself. A part's share says how much of the spread between the entities it accounts for: "
            f"{words}. The shares add up to 100%; a part that works against the others has a negative one."
        )
    ]
    for one, other in posterior.alike_parts:
        blocks.append(
            Text(
                f"The answers cannot tell {_inner(part_name(one, posterior))} from {_inner(part_name(other, posterior))}: a priori the "
                "two make nearly the same differences. Only the sum of the two parts is known."
            )
        )
    if len(shares) > len(head):
        text = f"Of {len(shares)} parts, the {_PARTS} with the largest shares are shown."
        blocks.append(Text(text, small=True))
    wide, narrow = (
        bars(kept, head, f"shares{shape.width:.0f}", f"One bar for each part: {words}.", shape)
        for shape in (WIDE, NARROW)
    )
    blocks.append(Picture(wide, narrow=narrow))
    rows = [(name, signed_percent(share)) for name, share in zip(kept, head, strict=True)]
    blocks.append(grid("Shares", ("Part", "Share"), rows, [1]))
    blocks.append(_by_entity(subject, parts[[*head.index, "mean"]], [*kept, "Utility"]))
    text = "Each part is shown less its average over the entities; all parts together add up to the utility above."
    blocks.append(Text(text, small=True))
    return Chapter(_TITLE, blocks)


def part_name(part: str, posterior: Posterior) -> str:
    """A part of the covariance in words."""
    if part in (ATTRIBUTES, INDIVIDUAL):
        return _NAMES[part]
    related = isinstance(posterior, UtilityPosterior) and part in posterior.data.relations
    return f"relation {part}" if related else clean(part)


def _inner(name: str) -> str:
    return f"the {name}" if name.startswith("relation ") or name in _NAMES.values() else name


def _by_entity(subject: Subject, parts: pd.DataFrame, names: Sequence[str]) -> Block:
    """Signed contributions to the utilities of the leading entities."""
    relative = parts.to_numpy()[subject.chosen]
    rows: list[list[Cell | str]] = []
    for place, position in enumerate(subject.order[:_ENTITIES]):
        numbers = [fixed(number, subject.decimals) for number in relative[position]]
        rows.append([str(place + 1), subject.cell(int(position)), *numbers])
    caption = f"Where the utilities of the first {len(rows)} come from"
    return grid(caption, ["Place", "Entity", *names], rows, [0, *range(2, 2 + len(names))], heading=1)
