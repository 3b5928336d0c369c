"""The ranking as a document for web pages."""

from typing import Any

import numpy as np

from relpref.posterior.tiers import TIER_PROBABILITY, told_apart


def ranking_document(
    posterior: Any, interval: float, top: int | None, pairs: int
) -> dict[str, Any]:
    """Items and pairs of a posterior of utilities, see `UtilityPosterior.to_json`."""
    table = posterior.ranking(interval)
    belief = posterior.belief.centred()
    above = told_apart(belief, TIER_PROBABILITY)
    order = np.argsort(-belief.mean(), kind="stable")
    table["tied_with_leader"] = ~above[order[0], order]
    rows = table.head(top).reset_index().to_dict("records")
    names, listed = [row["item"] for row in rows[:pairs]], []
    best = belief.subset(order[: len(names)])
    for first, name in enumerate(names[:-1]):
        others = np.arange(first + 1, len(names))
        weights = np.eye(len(names))[first] - np.eye(len(names))[others]
        gap = best.project(weights)
        lower, upper = gap.interval(interval)
        values = {
            "gap": gap.mean(),
            "lower": lower,
            "upper": upper,
            "probability": gap.positive(),
            "tied": ~above[order[first], order[others]],
        }
        for at, other in enumerate(others):
            row = {column: value[at] for column, value in values.items()}
            listed.append({"first": name, "second": names[other], **row})
    return {
        "interval": interval,
        "probability": TIER_PROBABILITY,
        "items": len(table),
        "ranking": rows,
        "pairs": listed,
    }
