"""A Gaussian process classifier of the edges of a relation, known in part."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers

from relpref.data import PreferenceData, RelationData
from relpref.data.relation_data import SIGN
from relpref.errors import DataError
from relpref.kernels import (
    AttributeKernel,
    EdgeLandmarks,
    GraphKernel,
    RegularizedLaplacian,
    SquaredExponential,
)
from relpref.likelihoods.bernoulli import Link
from relpref.linalg import Covariance, NamedSum, require_memory
from relpref.models.preference import Hyperparameters, Priors, sample_decisions


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
    """Covariances of conditioning nodes and of objects: sums of a kernel on attributes and of one on each graph, as in `xpgp`.

    Parameters
    ----------
    data : RelationData
    hyperparameters : Hyperparameters
        Sites of the objects have ``object_`` in front.
    node_kernel, object_kernel, graph_kernel : optional
        `SquaredExponential` and `RegularizedLaplacian` by default.
    standardize, normalize : bool
        Attributes; graph kernels.
    unit : bool
        The nodes' first part has amplitude 1, as that of the objects always has: in a product another amplitude would be redundant.
    """

    def covariance(
        nodes: PreferenceData, kernel: AttributeKernel | None, prefix: str, unit: bool
    ) -> NamedSum:
        parts: dict[str, Covariance] = {}
        if nodes.attributes.shape[1] or kernel is not None:
            parts["attributes"] = hyperparameters.attribute_part(
                nodes, kernel or SquaredExponential(), standardize, prefix=prefix, unit=unit
            )
        for name in nodes.relations:
            parts[name] = hyperparameters.relation_part(
                nodes,
                name,
                graph_kernel or RegularizedLaplacian(),
                normalize,
                prefix=prefix,
                unit=unit and not parts,
            )
        return NamedSum(parts)

    left = covariance(data.nodes, node_kernel, "", unit)
    if data.objects is None:
        if object_kernel is not None:
            raise DataError(
                "object_kernel is given, but the data has no objects besides the nodes; leave it out"
            )
        return left, left
    return left, covariance(data.objects, object_kernel, "object_", True)


# Sites that change no kernel by more than a factor.
_OF_DECISIONS = ("amplitude", "weight", "intercept")

_TABLES = 10  # of edges by landmarks: the features, their gradients and what the engine makes of them


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
    """Whether a relation holds, from a latent function of edges with a product of node kernels as its covariance.

    f(v, w) has the covariance a² K(v, v') G(w, w'), where K and G are sums of a kernel on attributes and of kernels on graphs, the
    first of which has amplitude 1. A symmetric or reciprocal relation has ½ [K(v, v') K(w, w') ± K(v, w') K(w, v')] in place of the
    product (CR10 section 3), evaluated for pairs of edges only. P(1 | f) = Φ(f(v, w) + b), or the logistic function of it; a
    reciprocal relation has no b, so that P(v beats w) = 1 − P(w beats v).

    f is written in features from landmarks, and what they leave out of the prior variance is noise of each edge's own:
    with every known edge as a landmark it is the Gaussian process itself.

    Parameters
    ----------
    data : RelationData
        Labels are 0 and 1, or −1 and 1 for a reciprocal relation. Each pair of nodes counts once where the relation is symmetric or
        reciprocal. Edges without a label are what `RelationData.asking` says.
    landmarks : EdgeLandmarks
        See `edge_landmarks`.
    node_kernel, object_kernel : AttributeKernel, optional
        On the attributes of nodes and of objects; `SquaredExponential` by default.
    graph_kernel : GraphKernel, optional
        For relations among nodes and among objects; `RegularizedLaplacian` by default.
    link : {"probit", "logit"}
    priors : mapping from site to distribution, optional
        Replaces the default prior of a hyperparameter. Sites: ``amplitude`` (a), ``attributes_lengthscale``,
        ``<relation>_range``, ``<relation>_amplitude`` where it is not the first part; the same with ``object_`` in front. The latent
        sites are ``weight`` and ``intercept`` (b).
    standardize, normalize : bool
        As in `relpref.models.xpgp`.

    Raises
    ------
    DataError
        If a label is another number, a prior is given for a site that does not exist, or an option does not fit the data.
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
    outcome = (jnp.asarray(labels) > 0).astype(jnp.int32)[:, None] if data.observed else None
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
    """Choose landmarks for `kronecker_classifier` among the known edges, with equal regard to both classes.

    The rarer class says more of where the classes meet, edge by edge, so each class has half of the weight.

    Parameters
    ----------
    data : RelationData
    number : int, optional
        How many at most; by default as many as it takes to leave nothing out, which is the exact process.
    values : dict, optional
        Hyperparameters for which to choose; the medians of their priors by default.
    seed : int
        Landmarks are chosen at random, see `EdgeLandmarks.choose`.
    priors, **kernels
        As given to the program: ``node_kernel``, ``object_kernel``, ``graph_kernel``, ``standardize``, ``normalize``.

    Returns
    -------
    EdgeLandmarks
        With the share of the edges' prior variance that they leave out as ``error``, all edges alike.

    Raises
    ------
    DataError
        If labels are not those of two classes, a kernel matrix is none, a hyperparameter does not exist, or memory would not suffice
        for the classifier.
    """
    rows, columns, labels = _edges(data)
    most = len(rows) if number is None else min(number, len(rows))
    require_memory(
        _TABLES * 8.0 * len(rows) * most, f"a classifier of {len(rows)} edges with up to {most} landmarks"
    )
    with jax.enable_x64(True):
        left, right = (np.asarray(kernel) for kernel in _at(data, values or {}, priors, kernels))
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
    """Share of the known edges' prior variance that landmarks leave out, 0 to 1; arguments as for `edge_landmarks`."""
    rows, columns, _ = _edges(data)
    with jax.enable_x64(True):
        left, right = _at(data, values, priors, kernels)
    return landmarks.left_out(left, right, SIGN[data.symmetry], (rows, columns))


def _kernels(data: RelationData, hyperparameters: Hyperparameters, **kernels: Any) -> tuple[Array, Array]:
    """K and G as matrices."""
    covariances = node_covariances(data, hyperparameters, **kernels)
    found: list[Array] = []
    for prefix, nodes, covariance in zip(
        ("node_", "object_"), (data.nodes, data.objects or data.nodes), covariances, strict=True
    ):
        found.append(found[0] if found and covariance is covariances[0] else covariance.dense())
        if found[-1].shape != (count := nodes.attributes.shape[0], count):
            raise DataError(
                f"{prefix}kernel has the shape {found[-1].shape} for {count} nodes; a matrix that grows with new nodes is given as "
                "their attributes, see Precomputed"
            )
    return found[0], found[1]


def _at(
    data: RelationData, values: Mapping[str, Any], priors: Priors | None, kernels: dict[str, Any]
) -> tuple[Array, Array]:
    """K and G at given hyperparameters, and at the medians of the priors of the others."""
    sites: list[str] = []

    def known(site: dict[str, Any]) -> Any:
        if site["type"] != "sample":
            return None
        sites.append(site["name"])
        return jnp.asarray(values[site["name"]]) if site["name"] in values else _median(site["fn"])

    own = {name: prior for name, prior in (priors or {}).items() if name not in _OF_DECISIONS}
    with handlers.substitute(substitute_fn=known):
        hyperparameters = Hyperparameters(own)
        found = _kernels(data, hyperparameters, **kernels)
        hyperparameters.check_all_used()
    if unknown := set(values) - {*sites, *_OF_DECISIONS}:
        raise DataError(
            f"values names the site {min(unknown)!r}, which no kernel here has; there are {', '.join(sites) or 'none'}"
        )
    return found


def _median(distribution: dist.Distribution) -> Array:
    """Of a prior; its mean where it has no quantile function."""
    base = distribution
    while isinstance(base, dist.ExpandedDistribution | dist.Independent):
        base = base.base_dist
    try:
        middle = base.icdf(jnp.asarray(0.5))
    except NotImplementedError:
        middle = base.mean
    return jnp.broadcast_to(middle, distribution.shape())


class _Edges(NamedTuple):
    """What the program looks at: the ends of each edge, and its label less the shift."""

    rows: Any
    columns: Any
    labels: Any


def _edges(data: RelationData) -> _Edges:
    """The edges that count: each pair once where (v, w) and (w, v) are one.

    Raises
    ------
    DataError
        If a label, where it can be looked at (outside of compiled functions), is none of the two classes.
    """
    edges = _Edges(data.values.rows, data.values.columns, data.values.values)
    if data.distinct is not None:
        # Where every label is known the ends are NumPy's, even if the data are traced.
        traced = isinstance(data.distinct, jax.Array)
        edges = _Edges(*((jnp.asarray(end) if traced else end)[data.distinct] for end in edges))
    if not data.observed or not isinstance(edges.labels, np.ndarray):
        return edges
    if not len(edges.labels):
        raise DataError("relation: it says nothing of two different nodes; give labels of such pairs")
    # Reciprocal labels 0 and 1 have been shifted to ∓½, and −1 and 1 are as they were given.
    high = 1.0 - data.shift
    reciprocal = data.symmetry == "reciprocal"
    wrong = ~np.isin(edges.labels, (-high, high) if reciprocal else (0.0, 1.0))
    if wrong.any():
        at = int(np.argmax(wrong))
        where = f"({data.nodes.entities[edges.rows[at]]!r}, {(data.objects or data.nodes).entities[edges.columns[at]]!r})"
        raise DataError(
            f"relation: the label of {where} is {edges.labels[at] + data.shift:g}; a classifier takes 0 and 1"
            + (", or -1 and 1; leave ties out" if reciprocal else "")
        )
    if not reciprocal and np.ptp(edges.labels) == 0:
        raise DataError(
            f"relation: all labels are {edges.labels[0]:g}; a classifier needs edges of both classes, those without the relation, too"
        )
    return edges
