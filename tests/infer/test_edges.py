"""Regularised least squares on edges against systems written out, stored answers, and its own
identities.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relpref.errors import DataError
from relpref.infer.exact import EarlyStopping, solve_edges
from relpref.kernels import (
    MLPK,
    Cartesian,
    EdgeGram,
    Kronecker,
    PairwiseKernel,
    Preference,
    Reciprocal,
    Side,
    Symmetric,
)

GOLD = Path(__file__).parents[1] / "gold" / "rls.npz"
KERNELS: dict[str, PairwiseKernel] = {
    type(kernel).__name__: kernel
    for kernel in (Kronecker(), Cartesian(), Symmetric(), Reciprocal(), Preference(), MLPK())
}
P = 6


def psd(seed: int, size: int) -> Any:
    root = np.random.default_rng(seed).standard_normal((size, size))
    return root @ root.T / size


def incomplete(seed: int, pairs: Any) -> EdgeGram:
    """Some pairs, a few of them twice, one conditioning node with one edge and one with none."""
    rng = np.random.default_rng(seed)
    rows, columns = np.divmod(rng.permutation(P * P)[:20], P)
    kept = (rows != 0) & (rows != 1)
    rows, columns = np.append(rows[kept], [1, 2, 2]), np.append(columns[kept], [3, 4, 4])
    return EdgeGram(pairs, side := Side.training(psd(seed, P)), side, rows, columns)


def full(kernel: PairwiseKernel, matrix: Any) -> EdgeGram:
    p = len(matrix)
    rows, columns = np.divmod(np.arange(p * p), p)
    return EdgeGram(kernel, side := Side.training(matrix), side, rows, columns)


def written(gram: EdgeGram) -> Any:
    edges = (gram.rows, gram.columns)
    return gram.kernel.matrix(gram.left, gram.right, *edges, *edges)


def centring(groups: Any) -> Any:
    """CR10 eq. 11, written out."""
    same = (groups[:, None] == groups).astype(float)
    return np.eye(len(groups)) - same / same.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("ranking", [False, True])
@pytest.mark.parametrize("graph", ["complete", "incomplete"])
def test_against_the_system_written_out(name: str, ranking: bool, graph: str) -> None:
    gram = full(KERNELS[name], psd(3, P)) if graph == "complete" else incomplete(3, KERNELS[name])
    labels = np.random.default_rng(5).standard_normal(len(gram))
    found = solve_edges(gram, labels, 0.3, groups=gram.rows if ranking else None, tol=1e-13)
    assert found.reason == "converged"
    matrix, c = written(gram), centring(gram.rows) if ranking else np.eye(len(gram))
    expected = np.linalg.solve(c @ matrix @ c + 0.3 * np.eye(len(gram)), c @ labels)
    np.testing.assert_allclose(found.solution, expected, atol=1e-10)
    # The minimiser of CR10 eq. 12 itself: the gradient in h's coefficients vanishes.
    gradient = -c @ (labels - matrix @ found.solution) + 0.3 * found.solution
    np.testing.assert_allclose(gradient, 0.0, atol=1e-10)
    if ranking and graph == "incomplete":
        assert found.solution[gram.rows == 1].tolist() == [0.0]


@pytest.mark.parametrize("loss", ["reg", "rank"])
@pytest.mark.parametrize("kind", ["arbitrary", "symmetric", "reciprocal"])
def test_gold(loss: str, kind: str) -> None:
    gold = np.load(GOLD)
    nodes = gold["nodes"]
    kernel = np.exp(-gold["node_gamma"] * np.sum((nodes[:, None] - nodes) ** 2, axis=-1))
    relation = gold["relation"]
    pairs = KERNELS[
        {"arbitrary": "Kronecker", "symmetric": "Symmetric", "reciprocal": "Reciprocal"}[kind]
    ]
    gram = full(pairs, kernel)
    found = solve_edges(
        gram,
        relation.ravel(),
        float(gold["cond_regularization"]),
        groups=gram.rows if loss == "rank" else None,
        tol=1e-12,
    )
    scores = pairs.scores(gram.left, gram.right, gram.weights(found.solution))
    np.testing.assert_allclose(scores, gold[f"cond_{loss}_{kind}"], atol=1e-9)


@pytest.mark.parametrize("sign, kernel", [(1.0, Symmetric()), (-1.0, Reciprocal())])
@pytest.mark.parametrize("ranking", [False, True])
def test_rankings_from_both_ends_agree(sign: float, kernel: PairwiseKernel, ranking: bool) -> None:
    """CR10 (8) and (9): h(v, w) = ± h(w, v), for training nodes and new ones."""
    gram = incomplete(7, kernel)
    labels = np.random.default_rng(8).standard_normal(len(gram))
    found = solve_edges(gram, labels, 0.1, groups=gram.rows if ranking else None, tol=1e-12)
    asked = Side(np.random.default_rng(9).standard_normal((4, P)), np.full(4, -1))
    scores = kernel.scores(asked, asked, gram.weights(found.solution))
    np.testing.assert_allclose(scores, sign * scores.T, atol=1e-12)
    assert np.abs(scores).max() > 0.1


@pytest.mark.parametrize("sign, kernel", [(1.0, Symmetric()), (-1.0, Reciprocal())])
def test_every_edge_in_both_directions_is_the_symmetric_kernel_at_half_lambda(
    sign: float, kernel: PairwiseKernel
) -> None:
    side = Side.training(psd(10, P))
    rows, columns = np.divmod(np.random.default_rng(11).permutation(P * P)[:14], P)
    labels = np.random.default_rng(12).standard_normal(14)
    once = EdgeGram(kernel, side, side, rows, columns)
    plain = EdgeGram(Kronecker(), side, side, np.append(rows, columns), np.append(columns, rows))
    half = solve_edges(once, labels, 0.2, tol=1e-12)
    both = solve_edges(plain, np.append(labels, sign * labels), 0.4, tol=1e-12)
    np.testing.assert_allclose(
        kernel.scores(side, side, once.weights(half.solution)),
        Kronecker().scores(side, side, plain.weights(both.solution)),
        atol=1e-9,
    )


def test_ranking_is_regression_with_the_centred_kernel() -> None:
    """Pahikkala et al. 2013, Lemma 4.9, on a complete graph."""
    kernel = psd(13, P)
    labels = np.random.default_rng(14).standard_normal((P, P))
    ranked = solve_edges(
        gram := full(Kronecker(), kernel), labels.ravel(), 0.5, groups=gram.rows, tol=1e-12
    )
    c = np.eye(P) - 1 / P
    centred = EdgeGram(
        Kronecker(), Side.training(kernel), Side.training(c @ kernel @ c), gram.rows, gram.columns
    )
    regressed = solve_edges(centred, (labels @ c).ravel(), 0.5, tol=1e-12)
    np.testing.assert_allclose(ranked.solution, regressed.solution, atol=1e-10)


def test_an_edge_counts_in_the_rankings_of_both_ends() -> None:
    """CR10, end of section 3: for a symmetric relation, the loss over rows and over columns is
    twice that over rows.
    """
    gram = full(Symmetric(), psd(15, P))
    relation = np.random.default_rng(16).standard_normal((P, P))
    labels = (relation + relation.T).ravel()
    rows = solve_edges(gram, labels, 0.3, groups=gram.rows, tol=1e-12)
    twice = EdgeGram(
        Symmetric(),
        gram.left,
        gram.right,
        np.append(gram.rows, gram.columns),
        np.append(gram.columns, gram.rows),
    )
    ends = solve_edges(twice, np.append(labels, labels), 0.6, groups=twice.rows, tol=1e-12)
    np.testing.assert_allclose(twice @ ends.solution, np.tile(gram @ rows.solution, 2), atol=1e-9)
    # For an incomplete one it is another loss: the minimiser of the two sums of squares.
    kept = np.random.default_rng(17).permutation(P * P)[:12]
    few, tails = gram.rows[kept], gram.columns[kept]
    half = EdgeGram(
        Symmetric(), gram.left, gram.right, np.append(few, tails), np.append(tails, few)
    )
    y = np.append(labels[kept], labels[kept])
    found = solve_edges(half, y, 0.3, groups=half.rows, tol=1e-12)
    c, k = centring(half.rows), written(half)

    def loss(dual: Any) -> float:
        scores = k @ dual
        return float((y - scores) @ c @ (y - scores) + 0.3 * dual @ k @ dual)

    best = loss(found.solution)
    for seed in range(20):
        step = np.random.default_rng(seed).standard_normal(len(half))
        assert loss(found.solution + 1e-3 * step) > best


def test_warm_start_and_drift() -> None:
    gram = incomplete(18, Kronecker())
    labels = np.random.default_rng(19).standard_normal(len(gram))
    cold = solve_edges(gram, labels, 0.3, groups=gram.rows, tol=1e-11)
    off_range = cold.solution + 5.0
    warm = solve_edges(gram, labels, 0.3, groups=gram.rows, tol=1e-11, start=off_range)
    assert warm.iterations <= 1
    np.testing.assert_allclose(warm.solution, cold.solution, atol=1e-10)
    np.testing.assert_allclose(np.bincount(gram.rows, warm.solution), 0.0, atol=1e-14)


@pytest.mark.parametrize("ranking", [False, True])
def test_early_stopping(ranking: bool) -> None:
    """Without regularisation the fit to noisy labels gets better on held-out conditioning nodes,
    then worse.

    With the smallest residuals the best is better by far (correlations of .79 to .95 against .61 to
    .89 on eight other seeds).
    """
    rng = np.random.default_rng(20)
    nodes = rng.standard_normal((40, 6))
    kernel = np.exp(-0.1 * np.sum((nodes[:, None] - nodes) ** 2, axis=-1))
    truth = nodes[:, :3] @ rng.standard_normal((3, 3)) @ nodes[:, :3].T
    training, held_out = np.arange(25), np.arange(25, 40)
    objects = Side.training(kernel)
    rows, columns = np.divmod(np.arange(25 * 40), 40)
    gram = EdgeGram(Kronecker(), Side.training(kernel[:25, :25]), objects, rows, columns)
    asked = Side(kernel[np.ix_(held_out, training)], np.full(15, -1))
    labels = (truth[training] + 2.0 * rng.standard_normal((25, 40))).ravel()

    def score(dual: Any) -> float:
        scores = gram.kernel.scores(asked, objects, gram.weights(dual))
        return float(np.corrcoef(scores.ravel(), truth[held_out].ravel())[0, 1])

    def stopped(minimise: Any) -> EarlyStopping:
        stopping = EarlyStopping(score, patience=15)
        groups = rows if ranking else None
        found = solve_edges(gram, labels, 0.0, groups=groups, minimise=minimise, callback=stopping)
        assert found.reason == "stopped"
        assert found.iterations == stopping.iteration + 15 == len(stopping.scores)
        assert stopping.solution is not None
        assert (
            score(stopping.solution)
            == stopping.scores[stopping.iteration - 1]
            == max(stopping.scores)
        )
        assert stopping.scores[-1] < max(stopping.scores)
        return stopping

    assert max(stopped("residual").scores) > max(stopped("error").scores) + 0.1


def test_refusals() -> None:
    gram = incomplete(0, Kronecker())
    labels = np.ones(len(gram))
    with pytest.raises(DataError, match="not finite everywhere"):
        solve_edges(gram, np.where(gram.rows == 2, np.nan, 1.0), 1.0)
    with pytest.raises(DataError, match="regularization is -1"):
        solve_edges(gram, labels, -1.0)
    with pytest.raises(DataError, match="patience is 0"):
        EarlyStopping(lambda dual: 0.0, patience=0)
    with pytest.raises(DataError, match="the score of iteration 1 is nan"):
        solve_edges(
            gram, np.arange(float(len(gram))), 1.0, callback=EarlyStopping(lambda dual: np.nan, 2)
        )
