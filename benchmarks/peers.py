"""The other packages, each optional. A contestant takes a problem and returns its answer.

BoTorch's pairwise likelihood is Phi((f_i - f_j) / sqrt 2): its utilities are sqrt 2 times ours, its
outputscale is 2 amplitude^2. Its Laplace fit happens when the model is made.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.problems import Answer, Array, Gold, Problem, probabilities

Contestant = Callable[[Problem], Answer]


def botorch_fixed() -> Contestant:
    """Laplace at the true hyperparameters: the model, and its posterior at the items."""
    torch, _, _ = _botorch()

    def run(problem: Problem) -> Answer:
        return _read(torch, *_at_truth(problem))

    return run


def botorch_conditioned(problem: Problem) -> Callable[[tuple[int, int]], tuple[Array, Array]]:
    """One more comparison given to a model at the true hyperparameters; means and sds of all
    utilities.
    """
    torch, _, _ = _botorch()
    model, attributes = _at_truth(problem)
    _read(torch, model, attributes)  # its first fit

    def run(pair: tuple[int, int]) -> tuple[Array, Array]:
        ends = torch.from_numpy(problem.attributes[list(pair)])
        found = _read(
            torch, model.condition_on_observations(ends, torch.tensor([[0, 1]])), attributes
        )
        return found.mean, found.sd

    return run


def botorch_fitted(*, own_kernel: bool) -> Contestant:
    """Laplace with hyperparameters by ``fit_gpytorch_mll``.

    With BoTorch's own kernel there is one lengthscale for each attribute, and priors. Otherwise one
    amplitude and one lengthscale, without priors: the problem relpref solves.
    """
    torch, PairwiseGP, Evidence = _botorch()
    from botorch.fit import fit_gpytorch_mll
    from gpytorch.kernels import RBFKernel, ScaleKernel

    def run(problem: Problem) -> Answer:
        attributes = torch.from_numpy(problem.attributes)
        kernel = None if own_kernel else ScaleKernel(RBFKernel()).double()
        model = PairwiseGP(attributes, torch.from_numpy(problem.comparisons), covar_module=kernel)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_gpytorch_mll(Evidence(model.likelihood, model))
        return _read(torch, model, attributes, problem.held_out)

    return run


def botorch_gold() -> Callable[[Gold], Answer]:
    """Laplace under a given prior covariance."""
    torch, PairwiseGP, Evidence = _botorch()
    from gpytorch.kernels import Kernel, ScaleKernel

    class Table(Kernel):
        """Look the covariance of two items up by their numbers."""

        def __init__(self, covariance: Any) -> None:
            super().__init__()
            self.register_buffer("covariance", covariance)

        def forward(self, x1: Any, x2: Any, diag: bool = False, **_: Any) -> Any:
            i, j = x1[..., 0].long(), x2[..., 0].long()
            return (
                self.covariance[i, j] if diag else self.covariance[i[..., :, None], j[..., None, :]]
            )

    def run(gold: Gold) -> Answer:
        kernel = ScaleKernel(Table(torch.from_numpy(gold.covariance))).double()
        kernel.outputscale = 2.0
        items = torch.arange(len(gold.mean), dtype=torch.float64)[:, None]
        model = PairwiseGP(items, torch.from_numpy(gold.comparisons), covar_module=kernel)
        with torch.no_grad():
            evidence = Evidence(model.likelihood, model)
            model.train()
            log_evidence = float(evidence(model(model.train_inputs[0]), model.train_targets))
            normal = model.posterior(items).mvn
            mean = normal.mean.numpy() / math.sqrt(2)
            covariance = normal.covariance_matrix.numpy() / 2
        chance = probabilities(mean, covariance, gold.query_pairs)
        return Answer(mean, np.sqrt(np.diag(covariance)), chance, log_evidence)

    return run


def choix_ep() -> Contestant:
    """EP with independent utilities of the true variance: attributes cannot be used."""
    import choix

    def run(problem: Problem) -> Answer:
        data = [(int(i), int(j)) for i, j in problem.comparisons]
        np.random.seed(0)  # noqa: NPY002  choix draws its order from the global generator
        mean, covariance = choix.ep_pairwise(
            problem.size, data, alpha=problem.amplitude**-2, model="probit"
        )
        return Answer(mean, np.sqrt(np.diag(covariance)))

    return run


def kickscore_ep() -> Contestant:
    """EP with independent utilities of the true variance that do not move with time."""
    import kickscore

    now = np.zeros(1)

    def run(problem: Problem) -> Answer:
        model = kickscore.BinaryModel("probit")
        for item in range(problem.size):
            model.add_item(str(item), kickscore.kernel.Constant(var=problem.amplitude**2))
        for winner, loser in problem.comparisons:
            model.observe([str(winner)], [str(loser)], t=now[0])
        model.fit()
        mean, variance = np.transpose(
            [model.item[str(item)].predict(now) for item in range(problem.size)]
        )[0]
        return Answer(mean, np.sqrt(variance))

    return run


def _at_truth(problem: Problem) -> tuple[Any, Any]:
    """A model at the true hyperparameters, and the attributes of the items."""
    torch, PairwiseGP, _ = _botorch()
    from gpytorch.kernels import RBFKernel, ScaleKernel

    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = 2 * problem.amplitude**2
    kernel.base_kernel.lengthscale = problem.lengthscale
    attributes = torch.from_numpy(problem.attributes)
    return PairwiseGP(
        attributes, torch.from_numpy(problem.comparisons), covar_module=kernel
    ), attributes


def _botorch() -> tuple[Any, Any, Any]:
    import torch
    from botorch.models.pairwise_gp import PairwiseGP, PairwiseLaplaceMarginalLogLikelihood

    np.random.seed(0)  # noqa: NPY002  BoTorch draws its start from the global generator
    return torch, PairwiseGP, PairwiseLaplaceMarginalLogLikelihood


def _read(torch: Any, model: Any, attributes: Any, pairs: Any = None) -> Answer:
    with torch.no_grad():
        posterior = model.posterior(attributes)
        mean, variance = posterior.mean.squeeze(-1).numpy(), posterior.variance.squeeze(-1).numpy()
        mean = mean / math.sqrt(2)
        chance = None
        if pairs is not None:
            chance = probabilities(mean, posterior.mvn.covariance_matrix.numpy() / 2, pairs)
    return Answer(mean, np.sqrt(variance / 2), chance)
