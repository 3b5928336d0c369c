"""The prior of one side of a relation: kernels on the nodes' attributes and on the graphs among them."""

from relpref.data import PreferenceData
from relpref.kernels import AttributeKernel, GraphKernel, RegularizedLaplacian, SquaredExponential
from relpref.linalg import CovarianceOperator, NamedSum
from relpref.models.preference import Hyperparameters


def node_covariance(
    nodes: PreferenceData,
    hyperparameters: Hyperparameters,
    attribute_kernel: AttributeKernel | None,
    graph_kernel: GraphKernel | None,
    *,
    standardize: bool,
    normalize: bool,
    prefix: str = "",
    unit: bool = False,
) -> NamedSum:
    """The sum of a kernel on attributes and of one on each graph, as in `relpref.models.xpgp`.

    Parameters
    ----------
    nodes : PreferenceData
    hyperparameters : Hyperparameters
    attribute_kernel, graph_kernel : optional
        `SquaredExponential` and `RegularizedLaplacian` by default.
    standardize, normalize : bool
        Attributes; graph kernels.
    prefix : str
        Of the sites' names.
    unit : bool
        The first part has amplitude 1: where the sum is a factor of a product, another amplitude would be redundant.
    """
    parts: dict[str, CovarianceOperator] = {}
    if nodes.attributes.shape[1] or attribute_kernel is not None:
        kernel = attribute_kernel or SquaredExponential()
        parts["attributes"] = hyperparameters.attribute_part(
            nodes, kernel, standardize, prefix=prefix, unit=unit
        )
    for name in nodes.relations:
        kernel_of_graph = graph_kernel or RegularizedLaplacian()
        first = unit and not parts
        parts[name] = hyperparameters.relation_part(
            nodes, name, kernel_of_graph, normalize, prefix=prefix, unit=first
        )
    return NamedSum(parts)
