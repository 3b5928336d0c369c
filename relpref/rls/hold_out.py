"""Exact predictions for one example, or a group, by a training without it, from one decomposition (after LPO)."""

import numpy as np
from scipy.linalg import solve

from relpref.rls.ridge_spectrum import Floats, Indices, RidgeSpectrum


def leave_one_out(spectrum: RidgeSpectrum, regularizations: Floats) -> Floats:
    """What a training on all others predicts for each example.

    Parameters
    ----------
    spectrum : RidgeSpectrum
        Of m examples, at least two, with d outputs.
    regularizations : array, shape (r,)

    Returns
    -------
    array, shape (r, m, d)
    """
    queries, sizes = spectrum.queries, spectrum.sizes
    alone = sizes[queries] == 1
    squares = np.square(spectrum.vectors)
    predictions = np.empty((len(regularizations), *spectrum.labels.shape))
    for held_out, regularization in zip(predictions, regularizations, strict=True):
        weights = spectrum.weights(regularization, left_out=1)
        # Who is alone in a query has 0/0 here: its offset takes any residual, and 0 will do.
        diagonal = np.where(alone, 1.0, squares @ weights)
        residuals = spectrum.dual(weights) / diagonal[:, None]
        held_out[...] = spectrum.labels - residuals
        if spectrum.query_means is not None:  # less J r − b, see RidgeSpectrum.offsets
            means = spectrum.query_means * weights
            own = np.sum(means[queries] * spectrum.vectors, axis=1) - 1 / sizes[queries]
            held_out -= own[:, None] * residuals - (means @ spectrum.rotated)[queries]
    return predictions


def leave_group_out(spectrum: RidgeSpectrum, groups: Indices, regularizations: Floats) -> Floats:
    """What a training on all other groups predicts for the examples of each.

    Parameters
    ----------
    spectrum : RidgeSpectrum
        Of m examples with d outputs.
    groups : array of int, shape (m,)
        From 0; at least two groups.
    regularizations : array, shape (r,)

    Returns
    -------
    array, shape (r, m, d)

    Notes
    -----
    O(m u²) for a group of u examples and each regularisation, instead of a training.
    """
    predictions = np.empty((len(regularizations), *spectrum.labels.shape))
    order = np.argsort(groups, kind="stable")
    for members in np.split(order, np.cumsum(np.bincount(groups))[:-1]):
        rows, own = spectrum.vectors[members], spectrum.queries[members]
        # A query that leaves as a whole takes its offset along; any value of it will do, so fix its mean residual.
        whole = (np.bincount(own, minlength=len(spectrum.sizes)) == spectrum.sizes)[own]
        same_query = (own[:, None] == own) & whole
        for held_out, regularization in zip(predictions, regularizations, strict=True):
            weights = spectrum.weights(regularization, left_out=len(members))
            weighted = rows * weights
            block = weighted @ rows.T
            block += same_query * max(block.diagonal().max(), weights.min())
            residuals = solve(block, weighted @ spectrum.rotated, assume_a="pos")
            query, response, base = spectrum.offsets(weights, members)
            held_out[members] = spectrum.labels[members] - residuals - (response @ residuals - base)[query]
    return predictions
