"""Conditional ranking (Pahikkala et al. 2010, 2013) and classification of relations."""

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpy.typing import NDArray
from numpyro import handlers

from relpref.data import PreferenceData, RelationData
from relpref.data.relation_data import SIGN
from relpref.errors import DataError
from relpref.kernels import (
    AttributeKernel,
    EdgeLandmarks,
    GaussianProcess,
    GraphKernel,
    RegularizedLaplacian,
)
from relpref.likelihoods import CentredNormal
from relpref.likelihoods.labels import Link
from relpref.likelihoods.tilted import prior_quantile
from relpref.linalg import Kronecker, NamedSum, real, require_memory
from relpref.linalg.arrays import namespace
from relpref.models.preference import Hyperparameters, Priors, sample_decisions
from relpref.skeleton import evaluated

Floats = NDArray[np.float64]


def node_covariances(
    data: RelationData,
    hyperparameters: Hyperparameters,
    *,
    node_kernel: AttributeKernel | None = None,
    object_kernel: AttributeKernel | None = None,
    graph_kernel: GraphKernel | None = None,
    standardize: bool = True,
    normalize: bool = True,
    unit: bool = True,
) -> tuple[NamedSum, NamedSum]:
    """Covariances of conditioning nodes and of objects.

    Each is the sum of a kernel on attributes and of one on each graph, as in `xpgp`. Sites of the
    objects have ``object_`` in front. Their first part has amplitude 1, and that of the nodes if
    ``unit``: in a product another amplitude would be redundant.
    """

    def covariance(
        nodes: PreferenceData, kernel: AttributeKernel | None, prefix: str, unit: bool
    ) -> NamedSum:
        graphs = dict.fromkeys(nodes.relations, graph_kernel or RegularizedLaplacian())
        options: dict[str, Any] = {"standardize": standardize, "normalize": normalize, "unit": unit}
        return NamedSum(hyperparameters.parts(nodes, kernel, graphs, prefix=prefix, **options))

    left = covariance(data.nodes, node_kernel, "", unit)
    if data.objects is None:
        if object_kernel is not None:
            raise DataError(
                "object_kernel is given, but the data has no objects besides the nodes; leave it "
                "out"
            )
        return left, left
    return left, covariance(data.objects, object_kernel, "object_", True)


# Labels are of the order of 1; half-normal with scale 1 lets noise be anything from nothing to all
# of them.
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
    """Scores of all pairs, with a product of node kernels as covariance and noisy labels of some.

    The score of (v, w) is a Gaussian field with covariance K(v, v') G(w, w'), where K (and G) is
    the sum of a kernel on attributes and kernels on graphs, as in `relpref.models.xpgp`. A
    symmetric or reciprocal relation sees (f(v, w) ± f(w, v))/2, whose covariance is the symmetric
    or reciprocal Kronecker kernel (CR10 section 3).

    Parameters
    ----------
    data : RelationData
    loss : {"ranking", "regression"}
        ``"regression"``: labels are scores plus noise. ``"ranking"``: in addition, every
        conditioning node has an unknown offset with a flat prior, so that only differences for one
        node are informative (CR10 eq. 12).
    node_kernel, object_kernel : AttributeKernel, optional
        On the attributes of nodes and of objects; `SquaredExponential` by default.
    graph_kernel : GraphKernel, optional
        For relations among nodes and among objects; `RegularizedLaplacian` by default.
    priors : mapping from site to distribution, optional
        Replaces the default prior of a hyperparameter. Sites: ``attributes_amplitude``,
        ``attributes_lengthscale``, ``<relation>_amplitude``, ``<relation>_range``, the same with
        ``object_`` in front (the objects' first part has amplitude 1, because the two kernels are
        multiplied), and ``noise``, a standard deviation.
    standardize, normalize : bool
        As in `relpref.models.xpgp`.

    Raises
    ------
    DataError
        If a prior is given for a site that does not exist, or an option does not fit the data.

    Examples
    --------
    >>> import numpy as np
    >>> from relpref import RelationData
    >>> players = {"speed": [0.0, 1.0, 2.0, 3.0]}
    >>> games = np.arange(16.0).reshape(4, 4)
    >>> data = RelationData.from_tables(players, games)
    >>> from relpref.infer import Exact
    >>> from relpref.models import conditional_ranking
    >>> posterior = Exact(conditional_ranking).run(0, data)
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
    m = data.values.shape[1]
    sign = SIGN[data.symmetry]
    # The ranking loss counts both directions of an edge.
    rows, columns, labels = _ends(data, distinct=loss == "regression")
    scores = field[rows * m + columns]
    if sign:
        scores = 0.5 * (scores + sign * field[columns * m + rows])
    observed = real(labels) if data.observed else None
    if loss == "ranking":
        # Every edge of a constrained relation is used at both its ends (CR10, end of section 3).
        numpyro.sample(
            "label", CentredNormal(scores, noise, rows, data.values.shape[0]), obs=observed
        )
        return
    if sign:
        # A pair read in both directions, each with this noise, is one label with half its variance.
        noise = noise * namespace(rows).where(rows == columns, 1.0, np.sqrt(0.5))
    with numpyro.plate("edge", len(rows)):
        numpyro.sample("label", dist.Normal(scores, noise), obs=observed)


# Sites that change no kernel by more than a factor.
_OF_DECISIONS = ("amplitude", "weight", "intercept")

_TABLES = 10  # of edges by landmarks: features, their gradients, temporaries of the engine


def kronecker_classifier(
    data: RelationData,
    *,
    landmarks: EdgeLandmarks,
    node_kernel: AttributeKernel | None = None,
    object_kernel: AttributeKernel | None = None,
    graph_kernel: GraphKernel | None = None,
    link: Link = "probit",
    priors: Priors | None = None,
    standardize: bool = True,
    normalize: bool = True,
) -> None:
    """Classes of edges from a latent function whose covariance is a product of node kernels.

    f(v, w) has the covariance a² K(v, v') G(w, w'), where K and G are sums of a kernel on
    attributes and of kernels on graphs, the first of which has amplitude 1. A symmetric or
    reciprocal relation has ½ [K(v, v') K(w, w') ± K(v, w') K(w, v')] instead of the product (CR10
    section 3), evaluated for pairs of edges only. P(1 | f) = Φ(f(v, w) + b), or the logistic
    function of it; a reciprocal relation has no b, so that P(v beats w) = 1 − P(w beats v).

    f is written in features from landmarks, and what they leave out of the prior variance is noise
    of each edge's own: with every known edge as a landmark it is the Gaussian process itself.

    Parameters
    ----------
    data : RelationData
        Labels are 0 and 1, or −1 and 1 for a reciprocal relation. Each pair of nodes counts once
        where the relation is symmetric or reciprocal. Edges without a label are what
        `RelationData.asking` says.
    landmarks : EdgeLandmarks
        See `edge_landmarks`.
    node_kernel, object_kernel, graph_kernel, standardize, normalize
        As in `relpref.models.conditional_ranking`.
    link : {"probit", "logit"}
    priors : mapping from site to distribution, optional
        Replaces the default prior of a hyperparameter. Sites: ``amplitude`` (a),
        ``attributes_lengthscale``, ``<relation>_range``, ``<relation>_amplitude`` where it is not
        the first part; the same with ``object_`` in front. The latent sites are ``weight`` and
        ``intercept`` (b).

    Raises
    ------
    DataError
        If a label is another number, a prior is given for a site that does not exist, or an option
        does not fit the data.
    """
    hyperparameters = Hyperparameters(priors)
    left, right = _kernels(
        data,
        hyperparameters,
        node_kernel=node_kernel,
        object_kernel=object_kernel,
        graph_kernel=graph_kernel,
        standardize=standardize,
        normalize=normalize,
    )
    rows, columns, labels = _edges(data)
    features = landmarks.features(left, right, SIGN[data.symmetry], (rows, columns))
    outcome = (labels > 0).astype(np.int32)[:, None] if data.observed else None
    sample_decisions(
        features,
        outcome,
        np.ones((len(rows), 1), dtype=bool),
        hyperparameters,
        link,
        "edge",
        intercept=data.symmetry != "reciprocal",
    )


def edge_landmarks(
    data: RelationData,
    number: int | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    seed: int = 0,
    priors: Priors | None = None,
    **kernels: Any,
) -> EdgeLandmarks:
    """Choose landmarks for `kronecker_classifier` among the known edges.

    Each class has half of the weight, because an edge of the rarer class says more about the
    boundary between the classes.

    Parameters
    ----------
    data : RelationData
    number : int, optional
        Maximum number; by default as many as it takes to leave nothing out, which is the exact
        process.
    values : dict, optional
        Hyperparameters for which to choose; the medians of their priors by default.
    seed : int
        Landmarks are chosen at random, see `EdgeLandmarks.choose`.
    priors, **kernels
        As given to the program: ``node_kernel``, ``object_kernel``, ``graph_kernel``,
        ``standardize``, ``normalize``.
    """
    rows, columns, labels = _edges(data)
    most = len(rows) if number is None else min(number, len(rows))
    require_memory(
        _TABLES * 8.0 * len(rows) * most,
        f"a classifier of {len(rows)} edges with up to {most} landmarks",
    )
    left, right = _at(data, values or {}, priors, kernels)
    weights = None
    if data.symmetry != "reciprocal":  # there each edge is of both classes
        share = np.mean(labels > 0)
        weights = np.where(labels > 0, 0.5 / share, 0.5 / (1.0 - share))
    return EdgeLandmarks.choose(
        left, right, (rows, columns), number, sign=SIGN[data.symmetry], weights=weights, seed=seed
    )


def landmark_error(
    data: RelationData,
    landmarks: EdgeLandmarks,
    *,
    values: Mapping[str, Any],
    priors: Priors | None = None,
    **kernels: Any,
) -> float:
    """Share of the known edges' prior variance that landmarks leave out, 0 to 1.

    Arguments are those of `edge_landmarks`.
    """
    rows, columns, _ = _edges(data)
    left, right = _at(data, values, priors, kernels)
    return landmarks.left_out(left, right, SIGN[data.symmetry], (rows, columns))


def _kernels(
    data: RelationData, hyperparameters: Hyperparameters, **kernels: Any
) -> tuple[Array, Array]:
    """K and G as matrices."""
    left, right = node_covariances(data, hyperparameters, **kernels)
    first = left.dense()
    second = first if right is left else right.dense()
    for prefix, nodes, kernel in (("node_", data.nodes, first), ("object_", data.objects, second)):
        if nodes is not None and kernel.shape != (count := nodes.attributes.shape[0], count):
            raise DataError(
                f"{prefix}kernel has the shape {kernel.shape} for {count} nodes; a matrix that "
                "grows with new nodes is given as "
                "their attributes, see Precomputed"
            )
    return first, second


def _at(
    data: RelationData, values: Mapping[str, Any], priors: Priors | None, kernels: dict[str, Any]
) -> tuple[Floats, Floats]:
    """K and G at given hyperparameters, and at the medians of the priors of the others."""
    given = {name: np.asarray(value) for name, value in values.items()}
    of_kernels = {
        name: prior for name, prior in (priors or {}).items() if name not in _OF_DECISIONS
    }
    left, right = evaluated(_kernels_at, data, given, of_kernels, kernels)
    return left, right


def _kernels_at(
    data: RelationData, values: Mapping[str, Array], priors: Priors, kernels: dict[str, Any]
) -> tuple[Array, Array]:
    sites: list[str] = []

    def value(site: dict[str, Any]) -> Any:
        if site["type"] != "sample":
            return None
        name, prior = site["name"], site["fn"]
        sites.append(name)
        if name in values:
            return values[name]
        median = prior_quantile(prior, 0.5)
        return prior.mean if median is None else median

    with handlers.substitute(substitute_fn=value):
        hyperparameters = Hyperparameters(priors)
        matrices = _kernels(data, hyperparameters, **kernels)
        hyperparameters.check_all_used()
    if unknown := set(values) - {*sites, *_OF_DECISIONS}:
        raise DataError(
            f"values names the site {min(unknown)!r}, which no kernel here has; there are "
            f"{', '.join(sites) or 'none'}"
        )
    return matrices


def _ends(data: RelationData, *, distinct: bool) -> tuple[Any, Any, Any]:
    """Ends and labels of all edges, or of the distinct ones."""
    parts: Any = data.values.rows, data.values.columns, data.values.values
    if distinct and data.distinct is not None:
        # Where every label is known the ends are NumPy's, even if the data are traced.
        traced = isinstance(data.distinct, jax.Array)
        parts = ((jnp.asarray(part) if traced else part)[data.distinct] for part in parts)
    rows, columns, labels = parts
    return rows, columns, labels


def _edges(data: RelationData) -> tuple[Any, Any, Any]:
    """Ends and labels, less the shift, of the distinct edges.

    Where (v, w) and (w, v) are one edge, it is there once. Labels are checked unless they are
    traced.
    """
    rows, columns, labels = _ends(data, distinct=True)
    if not data.observed or not isinstance(labels, np.ndarray):
        return rows, columns, labels
    if not len(labels):
        raise DataError(
            "relation: it says nothing of two different nodes; give labels of such pairs"
        )
    # Reciprocal labels 0 and 1 have been shifted to ∓½, and −1 and 1 are as they were given.
    high = 1.0 - data.shift
    reciprocal = data.symmetry == "reciprocal"
    wrong = ~np.isin(labels, (-high, high) if reciprocal else (0.0, 1.0))
    if wrong.any():
        at = int(np.argmax(wrong))
        source, target = data.index[at] if data.distinct is None else data.index[data.distinct[at]]
        raise DataError(
            f"relation: the label of ({source!r}, {target!r}) is {labels[at] + data.shift:g}; a "
            "classifier takes 0 and 1" + (", or -1 and 1; leave ties out" if reciprocal else "")
        )
    if not reciprocal and np.ptp(labels) == 0:
        raise DataError(
            f"relation: all labels are {labels[0]:g}; a classifier needs edges of both classes, "
            "those without the relation, too"
        )
    return rows, columns, labels
