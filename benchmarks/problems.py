"""The problems every contestant gets: made from a seed, or read from the files with known
answers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Comparisons under P(i beats j) = Phi(u_i - u_j), u ~ N(0, amplitude^2 exp(-d^2 / 2
    lengthscale^2)).
    """

    attributes: Array
    comparisons: NDArray[np.int64]  # winner, loser
    utilities: Array
    amplitude: float
    lengthscale: float
    links: NDArray[np.int64] | None = None  # a relation, where there is one
    held_out: NDArray[np.int64] | None = None  # further answers, for a log loss

    @property
    def size(self) -> int:
        return len(self.attributes)

    def covariance(self) -> Array:
        gaps = self.attributes[:, None, :] - self.attributes[None, :, :]
        return self.amplitude**2 * np.exp(-0.5 * (gaps**2).sum(-1) / self.lengthscale**2)

    def asked_again(self, seed: int) -> Problem:
        """Other answers about the same items, as many."""
        answers = _answers(np.random.default_rng(seed), self.utilities, len(self.comparisons))
        return replace(self, comparisons=answers)

    def save(self, path: Path) -> Path:
        np.savez(path, **{name: value for name, value in asdict(self).items() if value is not None})
        return path

    @classmethod
    def load(cls, path: Path) -> Problem:
        with np.load(path) as z:
            values: dict[str, Any] = {
                name: z[name] if z[name].ndim else float(z[name]) for name in z.files
            }
        return cls(**values)


@dataclass(frozen=True)
class Gold:
    """A problem with a fixed prior covariance and its posterior by importance sampling."""

    name: str
    covariance: Array
    comparisons: NDArray[np.int64]
    query_pairs: NDArray[np.int64]
    mean: Array
    sd: Array
    probability: Array
    log_evidence: float


@dataclass(frozen=True)
class Answer:
    """What a contestant says about the items, in the scale of Phi(u_i - u_j)."""

    mean: Array
    sd: Array
    probability: Array | None = None  # of the query pairs, or of the answers held out
    log_evidence: float | None = None


def make(items: int, comparisons: int, seed: int) -> Problem:
    """Draw four attributes in the unit cube, the utilities, random pairs, no pair twice, and their
    answers.
    """
    rng = np.random.default_rng(seed)
    amplitude, lengthscale = 1.5, 0.5
    attributes = rng.uniform(size=(items, 4))
    drawn = Problem(attributes, np.empty((0, 2), np.int64), np.empty(0), amplitude, lengthscale)
    factor = np.linalg.cholesky(drawn.covariance() + 1e-8 * np.eye(items))
    utilities = factor @ rng.standard_normal(items)
    return Problem(
        attributes, _answers(rng, utilities, comparisons), utilities, amplitude, lengthscale
    )


def related(items: int, comparisons: int, held_out: int, seed: int) -> Problem:
    """Add to the attributes' part one that is smooth on a graph: each item linked with its four
    nearest in a hidden plane.
    """
    rng = np.random.default_rng(seed)
    amplitude, lengthscale, relation_amplitude, reach = 1.0, 0.5, 1.5, 2.0
    attributes, plane = rng.uniform(size=(items, 4)), rng.uniform(size=(items, 2))
    drawn = Problem(attributes, np.empty((0, 2), np.int64), np.empty(0), amplitude, lengthscale)
    distance = ((plane[:, None] - plane[None]) ** 2).sum(-1) + np.diag(np.full(items, np.inf))
    near = np.argsort(distance, axis=1)[:, :4]
    links = np.unique(
        np.sort(np.stack([np.repeat(np.arange(items), 4), near.ravel()], 1), axis=1), axis=0
    )
    laplacian = np.zeros((items, items))
    laplacian[links[:, 0], links[:, 1]] = laplacian[links[:, 1], links[:, 0]] = -1
    np.fill_diagonal(laplacian, -laplacian.sum(1))
    smooth = np.linalg.inv(laplacian + np.eye(items) / reach**2)
    smooth /= np.trace(smooth) / items - smooth.mean()
    covariance = drawn.covariance() + relation_amplitude**2 * smooth + 1e-8 * np.eye(items)
    utilities = np.linalg.cholesky(covariance) @ rng.standard_normal(items)
    answers = _answers(rng, utilities, comparisons + held_out)
    known, further = answers[:comparisons], answers[comparisons:]
    return Problem(attributes, known, utilities, amplitude, lengthscale, links, further)


def _answers(rng: np.random.Generator, utilities: Array, number: int) -> NDArray[np.int64]:
    # No pair twice, so that problems of one size have one size also for a program that merges equal
    # answers.
    every = np.stack(np.triu_indices(len(utilities), 1), 1)
    pairs = rng.permuted(every[rng.choice(len(every), number, replace=False)], axis=1)
    first, second = pairs.T
    wins = rng.uniform(size=number) < ndtr(utilities[first] - utilities[second])
    return np.where(wins[:, None], pairs, pairs[:, ::-1])


def read_gold(folder: Path) -> list[Gold]:
    """Read the preference problems with known answers."""
    found = []
    for path in sorted(folder.glob("ep_*.npz")):
        with np.load(path) as z:
            found.append(
                Gold(
                    path.stem,
                    z["K"],
                    z["comparisons"],
                    z["query_pairs"],
                    z["mean"],
                    z["sd"],
                    z["probability"],
                    float(z["log_evidence"]),
                )
            )
    return found


def probabilities(mean: Array, covariance: Array, pairs: NDArray[np.int64]) -> Array:
    """Return P(first beats second in the next answer) for each pair, from a Gaussian posterior."""
    i, j = pairs.T
    variance = covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]
    result: Array = ndtr((mean[i] - mean[j]) / np.sqrt(1 + variance))
    return result
