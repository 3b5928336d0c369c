"""The error of expectation propagation where the same answer was given many times."""

import numpy as np

from relpref.infer.call import Values
from relpref.infer.evidence import Evidence, on_host
from relpref.infer.program import Program

# Posterior sds on either side of a mean, and points there, where a factor is integrated.
_REACH, _NODES = 30.0, 241


def error_of_copies(
    program: Program, unconstrained: Values, evidence: Evidence
) -> tuple[float, float]:
    """Largest errors of the rows' means, in exact sds, and of their sds, as a ratio.

    EP takes k equal answers for k factors, each with a Gaussian site. Here they are replaced by
    their product, and the posterior of the row's projection is integrated numerically, which is
    exact where no other site approximates.
    """
    prior, moments = on_host(program, unconstrained)
    number = program.layout.num_rows
    mean, variance, tau, nu = (
        np.asarray(array) for array in (*evidence.marginals[:2], *evidence.sites)
    )
    counts = prior.counts[:number]
    left = 1 - variance * counts * tau
    rows = (counts > 1) & (left > 0) & (variance > 0)
    if prior.gaussian is not None:
        rows &= ~prior.gaussian.rows[:number]
    left = np.where(rows, left, 1.0)
    sd = np.sqrt(np.where(rows, variance, 1.0))
    point, slope = left / np.square(sd), (mean - np.square(sd) * counts * nu) / np.square(sd)
    highest, sums = np.full(number, -np.inf), np.zeros((3, number))
    for z in np.linspace(-_REACH, _REACH, _NODES):
        x = mean + sd * z
        answers = moments(x, np.zeros_like(x)).log_normalizer
        log_density = np.where(
            rows, counts * answers - 0.5 * point * np.square(x) + slope * x, -0.5 * z**2
        )
        before, highest = highest, np.maximum(highest, log_density)
        sums *= np.exp(before - highest)
        sums += np.exp(log_density - highest) * np.array([1.0, z, z**2])[:, None]
    centre = sums[1] / sums[0]
    spread = np.sqrt(sums[2] / sums[0] - np.square(centre))
    shift = np.max(np.where(rows, np.abs(centre) / spread, 0.0), initial=0.0)
    log_ratio = np.where(rows, -np.log(spread), 0.0)
    worst = log_ratio[np.argmax(np.abs(log_ratio))]
    return float(shift), float(np.exp(worst))
