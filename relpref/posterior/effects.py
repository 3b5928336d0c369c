"""Effects of attributes on utilities: mean slopes, changes of levels, and partial effects."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import ndtri

from relpref.compiled import float64
from relpref.data.arrays import listed
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.call import Call
from relpref.likelihoods.tilted import unwrap
from relpref.posterior.gaussian import Belief, Floats, mixture
from relpref.posterior.tables import check_interval, label_index, summaries

_PART, _UTILITY = "attributes", "utility"
_BINS = 4  # groups of items along an attribute, whose mean slopes tell whether it is bent
_FALSE_ALARMS = 0.05  # probability that a straight effect is called bent
# Points at which f is averaged, over fewer items evenly chosen where these would be more.
_MOST_MOVED, _MOST_DRAWN = 1000, 400
_GRID = 11  # values of a partial effect
_MOST_DRAWS = 200  # draws that have hyperparameters of their own
_SINGULAR = 1e-9  # smallest eigenvalue of a covariance that is used, relative to the largest
_COLUMNS = ["mean", "sd", "lower", "upper", "p_positive", "shape", "change", "unit"]

# Linear functionals of the attributes' part f of the utilities, in groups, from its covariance
# and the same as a matrix: prior covariances of the q of a group with f at the items, (q, n), and
# with each other, (q, q).
Covariances = tuple[Floats, Floats]
Functionals = Callable[[Any, Floats], list[Covariances]]


def beliefs(posterior: Any, functionals: Functionals) -> list[Belief]:
    """Posterior of each group of linear functionals.

    For each component of the posterior, with utilities u ~ N(m, S) of prior covariance K, and
    functionals of prior covariance P and covariance C with u, that is N(CK⁻¹m, P − CK⁻¹Cᵀ +
    CK⁻¹SK⁻¹Cᵀ). A draw has S = 0.
    """
    if posterior.large or posterior.origin is None:
        raise UnsupportedProgramError(
            "effects of attributes need the prior covariance matrix of all items: fit at most 4000 "
            "items, all of them, by a program of relpref.models"
        )
    belief, draws, origin = posterior.belief, posterior.hyperparameter_draws, posterior.origin
    chosen = np.arange(len(belief.weights))
    if belief.sampled and draws and len(chosen) > _MOST_DRAWS:
        chosen = np.linspace(0, len(chosen) - 1, _MOST_DRAWS).astype(int)
    call, arrays = Call.split(origin.program, origin.args, origin.kwargs)
    results: list[list[Any]] = []
    gains: list[Covariances] = []
    with float64():
        for at in chosen:
            if draws or not gains:
                values = posterior.hyperparameters_at(at)
                part, matrix, total = _prior(call, arrays, values, np.zeros(belief.size))
                gains = []
                for cross, prior in functionals(part, matrix):
                    gain = _solved(total, cross.T).T
                    gains.append((gain, prior - gain @ cross.T))
            results.append([])
            for gain, left in gains:
                spread = 0.0 if belief.scales is None else gain @ belief.scales[at] @ gain.T
                results[-1].append((gain @ belief.locations[at], left + spread))
    weights = belief.weights[chosen] / belief.weights[chosen].sum()
    groups = zip(*results, strict=True)
    stacked = (tuple(np.stack(each) for each in zip(*group, strict=True)) for group in groups)
    return [mixture(means, scales, weights) for means, scales in stacked]


def _prior(call: Call, arrays: Any, values: Any, utilities: Any) -> tuple[Any, Floats, Floats]:
    """Covariance of f, the same as a matrix, and that of the utilities."""
    site = call.trace(arrays, {**values, _UTILITY: utilities})[_UTILITY]
    covariance: Any = getattr(unwrap(site["fn"]), "covariance", None)
    part: Any = getattr(covariance, "parts", {}).get(_PART)
    if not hasattr(part, "kernel") or getattr(part.kernel, "unscaled", False):
        raise DataError("attribute_effects: the utilities of this model have no attributes")
    return part, np.asarray(part.dense()), np.asarray(covariance.dense())


def _solved(total: Floats, right: Floats) -> Floats:
    """K⁻¹ applied to columns; in the span of K where it is singular."""
    try:
        lower, _ = factor = cho_factor(total, lower=True)
        if np.square(np.diagonal(lower)).min() > _SINGULAR * np.diagonal(total).max():
            return np.asarray(cho_solve(factor, right))
    except LinAlgError:
        pass
    values, vectors = np.linalg.eigh(total)
    kept = values > _SINGULAR * values[-1]
    vectors = vectors[:, kept]
    return np.asarray(vectors @ (vectors.T @ right / values[kept, None]))


def effects_of_attributes(posterior: Any, interval: float) -> pd.DataFrame:
    """Table of `UtilityPosterior.attribute_effects`."""
    check_interval(interval)
    values, names = np.asarray(posterior.data.attributes), posterior.data.attribute_names
    columns = np.flatnonzero(np.ptp(values, axis=0) > 0).tolist()
    binary: Any = np.isin(values, (0, 1)).all(axis=0)
    groups: dict[Any, list[int]] = {}
    for column in columns:  # levels of one category, ``name=level``, are one group
        category, equal, _ = str(names[column]).partition("=")
        groups.setdefault(category if binary[column] and equal else column, []).append(column)
    weights, shares = _weights(values)
    note = ""

    def functionals(part: Any, matrix: Floats) -> list[Covariances]:
        nonlocal note
        points, kernel, covariances = np.asarray(part.attributes), part.kernel, []
        steps = np.where(binary, np.ptp(points, axis=0), points.std(axis=0))
        if hasattr(kernel, "slopes") and hasattr(kernel, "cross"):
            given = {name: np.asarray(value) for name, value in part.values.items()}
            cross, prior = kernel.slopes(points, weights, **given)
            factor = part.scale * steps
            for group in groups.values():
                at = group[0]
                if binary[at]:
                    states, contrasts = _states(points[:, group]), _contrasts(len(group))
                    covariances.append(_moved(part, group, states, contrasts))
                else:
                    covariances.append((factor[at] * cross[at], factor[at] * steps[at] * prior[at]))
            return covariances
        note = ", least squares"
        planes = np.linalg.pinv((points - points.mean(axis=0)) / np.where(steps > 0, steps, 1.0))
        for group in groups.values():
            pick = planes[group] if len(group) == 1 else _contrasts(len(group)) @ planes[group]
            covariances.append((pick @ matrix, pick @ matrix @ pick.T))
        return covariances

    rows = {}
    results = beliefs(posterior, functionals) if columns else []
    for group, belief in zip(groups.values(), results, strict=True):
        effects = belief.subset(slice(len(group)))
        table = summaries(effects, interval) | {"p_positive": effects.positive()}
        for row, column in enumerate(group):
            entry: dict[str, Any] = {name: cells[row] for name, cells in table.items()}
            sign = "up" if entry["lower"] > 0 else "down" if entry["upper"] < 0 else "unclear"
            bent = not binary[column] and belief.size > 1 and _bent(belief, shares[column])
            entry["shape"] = "bent" if bent else sign
            entry["change"] = ("switch" if binary[column] else "one sd") + note
            entry["unit"] = np.nan if binary[column] else values[:, column].std()
            rows[column] = entry
    index = label_index([names[column] for column in columns], "attribute")
    return pd.DataFrame([rows[column] for column in columns], index, _COLUMNS)


def partial_effects(
    posterior: Any, attributes: Sequence[Any], interval: float
) -> list[pd.DataFrame]:
    """Tables of `UtilityPosterior.partial_effect` for several attributes."""
    check_interval(interval)
    values, names = np.asarray(posterior.data.attributes), posterior.data.attribute_names
    if unknown := [attribute for attribute in attributes if attribute not in names]:
        raise DataError(f"there is no attribute {unknown[0]!r}; the attributes are {listed(names)}")
    columns = [names.index(attribute) for attribute in attributes]

    def functionals(part: Any, _: Floats) -> list[Covariances]:
        if not hasattr(part.kernel, "cross"):
            raise DataError(
                f"{type(part.kernel).__name__} has no method cross, which gives values at other "
                "attributes; write it, or use attribute_effects"
            )
        points = np.asarray(part.attributes)[:, columns]
        states = np.linspace(points.min(axis=0), points.max(axis=0), _GRID)
        centring = np.eye(_GRID) - 1 / _GRID
        return [
            _moved(part, [column], states[:, [row]], centring, _MOST_DRAWN)
            for row, column in enumerate(columns)
        ]

    grids = np.linspace(values.min(axis=0), values.max(axis=0), _GRID)
    return [
        pd.DataFrame(summaries(belief, interval), pd.Index(grids[:, column], name=names[column]))
        for column, belief in zip(columns, beliefs(posterior, functionals), strict=True)
    ]


def _weights(values: Floats) -> tuple[Floats, Floats]:
    """Weights of mean slopes, (d, 1 + bins, n), and the shares of items in the bins, (d, bins).

    The first slope is the mean over all items, and the others are those over the items between
    quantiles of the attribute, less the first.
    """
    edges = np.quantile(values, np.arange(1, _BINS) / _BINS, axis=0)
    bins = (values > edges[:, None]).sum(axis=0).T
    inside = bins[:, None] == np.arange(_BINS)[:, None]
    shares = inside.mean(axis=2)
    means = np.where(inside, 1 / np.maximum(shares, 1 / len(values))[:, :, None], 0.0)
    weights = np.where(shares[:, :, None] > 0, means - 1, 0.0)
    weights = np.concatenate([np.ones((len(shares), 1, len(values))), weights], axis=1)
    return weights / len(values), shares


def _bent(belief: Belief, shares: Floats) -> bool:
    """Whether the mean slope hides more than half of the mean square slope, beyond chance."""
    (mean, *others), (_, *sds) = belief.mean(), belief.sd()
    limit = float(ndtri(1 - _FALSE_ALARMS / (2 * np.count_nonzero(shares))))
    hidden = shares @ np.square(others)
    return bool(hidden > mean**2 and np.any(np.abs(others) > limit * np.asarray(sds)))


def _states(columns: Floats) -> Floats:
    """Values of a category's columns in each of its levels, shape (levels, columns)."""
    low, high = columns.min(axis=0), columns.max(axis=0)
    return np.stack([low, high]) if len(low) == 1 else np.where(np.eye(len(low)), high, low)


def _contrasts(columns: int) -> Floats:
    """Change from the other levels, equally weighted, to each level that has a column."""
    if columns == 1:
        return np.array([[-1.0, 1.0]])
    return (columns * np.eye(columns) - 1) / (columns - 1)


def _moved(
    part: Any, columns: Sequence[int], states: Floats, contrasts: Floats, most: int = _MOST_MOVED
) -> Covariances:
    """Contrasts of the mean of f over the items, with columns of attributes in each state."""
    points, number = np.asarray(part.attributes), len(states)
    few = min(len(points), most // number)
    moved = np.repeat(points[None, np.linspace(0, len(points) - 1, few).astype(int)], number, 0)
    moved[:, :, columns] = states[:, None]
    flat = moved.reshape(-1, points.shape[1])
    cross, prior = (
        np.asarray(part.scale * part.kernel.cross(flat, others, **part.values))
        for others in (points, flat)
    )
    prior = prior.reshape(number, few, number, few).mean(axis=(1, 3))
    return contrasts @ cross.reshape(number, few, -1).mean(axis=1), contrasts @ prior @ contrasts.T
