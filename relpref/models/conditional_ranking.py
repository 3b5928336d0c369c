"""Conditional ranking from a relation (Pahikkala et al. 2010, 2013) as a Gaussian model of all pairs."""

from typing import Literal

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from relpref.data import RelationData
from relpref.data.relation_data import SIGN
from relpref.errors import DataError
from relpref.kernels import AttributeKernel, GaussianProcess, GraphKernel
from relpref.likelihoods import CentredNormal
from relpref.linalg import Kronecker, real
from relpref.models.kronecker_classifier import node_covariances
from relpref.models.preference import Hyperparameters, Priors

# Labels are of the order of 1; half-normal with scale 1 lets noise be anything from nothing to all of them.
NOISE_PRIOR = dist.HalfNormal(1.0)


def conditional_ranking(
    data: RelationData,
    *,
    loss: Literal["ranking", "regression"] = "ranking",
    node_kernel: AttributeKernel | None = None,
    object_kernel: AttributeKernel | None = None,
    graph_kernel: GraphKernel | None = None,
    priors: Priors | None = None,
    standardize: bool = True,
    normalize: bool = True,
) -> None:
    """Scores of all pairs from a Kronecker product of node kernels, seen through labels of some pairs.

    The score of (v, w) is a Gaussian field with covariance K(v, v') G(w, w'), where K (and G) is the sum of a kernel on
    attributes and kernels on graphs, as in `relpref.models.xpgp`. A symmetric or reciprocal relation sees
    (f(v, w) ± f(w, v))/2, whose covariance is the symmetric or reciprocal Kronecker kernel (CR10 section 3).

    Parameters
    ----------
    data : RelationData
    loss : {"ranking", "regression"}
        ``"regression"``: labels are scores plus noise. ``"ranking"``: besides, every conditioning node has an unknown offset with
        a flat prior, so that only differences for one node are informative (CR10 eq. 12).
    node_kernel, object_kernel : AttributeKernel, optional
        On the attributes of nodes and of objects; `SquaredExponential` by default.
    graph_kernel : GraphKernel, optional
        For relations among nodes and among objects; `RegularizedLaplacian` by default.
    priors : mapping from site to distribution, optional
        Replaces the default prior of a hyperparameter. Sites: ``attributes_amplitude``, ``attributes_lengthscale``,
        ``<relation>_amplitude``, ``<relation>_range``, the same with ``object_`` in front (the objects' first part has amplitude 1, because
        the two kernels are multiplied), and ``noise``, a standard deviation.
    standardize, normalize : bool
        As in `relpref.models.xpgp`.

    Raises
    ------
    DataError
        If a prior is given for a site that does not exist, or an option does not fit the data.
    """
    if loss not in ("ranking", "regression"):
        raise DataError(f"loss is {loss!r}; it is 'ranking' or 'regression'")
    hyperparameters = Hyperparameters(priors)

    left, right = node_covariances(
        data,
        hyperparameters,
        node_kernel=node_kernel,
        object_kernel=object_kernel,
        graph_kernel=graph_kernel,
        standardize=standardize,
        normalize=normalize,
        unit=False,
    )
    noise = hyperparameters.sample("noise", NOISE_PRIOR)
    hyperparameters.check_all_used()
    field = numpyro.sample("score", GaussianProcess(Kronecker(left, right)))
    _labels(data, field, noise, loss)


def _labels(data: RelationData, field: Array, noise: Array, loss: str) -> None:
    """The labels of the edges that are known."""
    m = data.values.shape[1]
    sign = SIGN[data.symmetry]
    rows, columns = jnp.asarray(data.values.rows), jnp.asarray(data.values.columns)
    labels = jnp.asarray(data.values.values)
    if loss == "regression" and data.distinct is not None:
        rows, columns, labels = rows[data.distinct], columns[data.distinct], labels[data.distinct]
    scores = field[rows * m + columns]
    if sign:
        scores = 0.5 * (scores + sign * field[columns * m + rows])
    observed = real(labels) if data.observed else None
    if loss == "ranking":
        # Every edge of a constrained relation is used at both its ends (CR10, end of section 3).
        numpyro.sample("label", CentredNormal(scores, noise, rows, data.values.shape[0]), obs=observed)
        return
    if sign:
        # A pair read in both directions, each with this noise, is one label with half its variance.
        noise = noise * jnp.where(jnp.equal(rows, columns), 1.0, np.sqrt(0.5))
    with numpyro.plate("edge", len(rows)):
        numpyro.sample("label", dist.Normal(scores, noise), obs=observed)
