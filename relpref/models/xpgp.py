"""The mixed graph preference Gaussian process (Kersting & Xu 2009)."""

from collections.abc import Mapping

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.kernels import AttributeKernel, GraphKernel, RegularizedLaplacian, SquaredExponential
from relpref.likelihoods import AnswerModel, answer_model
from relpref.models.preference import INDIVIDUAL, Hyperparameters, Priors, sample_answers, sample_utilities


def xpgp(
    data: PreferenceData,
    *,
    attribute_kernel: AttributeKernel | None = None,
    relation_kernels: Mapping[str, GraphKernel] | None = None,
    priors: Priors | None = None,
    likelihood: AnswerModel | None = None,
    standardize: bool = True,
    normalize: bool = True,
    individual: bool = True,
) -> None:
    """Utilities from attributes, any number of relations and the entities themselves, compared in pairs (XPGP eq. 4-6).

    Parameters
    ----------
    data : PreferenceData
        Without attribute columns, and without an ``attribute_kernel``, there is no attribute part.
    attribute_kernel : AttributeKernel, optional
        `SquaredExponential` by default. Sites ``attributes_amplitude`` and, for the default, ``attributes_lengthscale``.
    relation_kernels : mapping from relation to GraphKernel, optional
        The regularized Laplacian for every relation not named. Sites ``<relation>_amplitude``, ``<relation>_range``. A directed
        relation has two parts, ``<relation>_linking`` and ``<relation>_linked``; its own name stands for both.
    priors : mapping from site to distribution, optional
        Replaces the default prior of a hyperparameter.
    likelihood : AnswerModel, optional
        `Probit` by default, which looks at every column of the answers; its parameters are sites as well.
    standardize : bool
        Center and scale every attribute (by the data's own moments).
    normalize : bool
        Scale every graph kernel to a mean gap variance of 2 (see `RegularizedLaplacian`).
    individual : bool
        Give every entity a part of its own, independent of all others, with one variance for all: what its attributes and its links do
        not say. Site ``individual_amplitude``. XPGP lacks it, see ``docs/differences.md``; without it entities of equal attributes and
        equal links cannot be told apart, whatever the answers say.

    Raises
    ------
    DataError
        If a kernel or a prior is given for a relation or a site that does not exist, or there is no part at all.
    """
    kernels = kernels_by_part(data, relation_kernels)
    hyperparameters = Hyperparameters(priors)
    parts = {}
    if data.attributes.shape[1] or attribute_kernel is not None:
        kernel = attribute_kernel or SquaredExponential()
        parts["attributes"] = hyperparameters.attribute_part(data, kernel, standardize)
    for name in data.relations:
        graph_kernel = kernels.get(name, RegularizedLaplacian())
        parts[name] = hyperparameters.relation_part(data, name, graph_kernel, normalize)
    if individual:
        parts[INDIVIDUAL] = hyperparameters.individual_part(data, only=not parts)
    model = answer_model(likelihood)
    answer_parameters = hyperparameters.answer_part(data, model)
    hyperparameters.check_all_used()
    if not parts:
        raise DataError(
            "xpgp with individual=False needs attributes or a relation; the data has neither: leave individual=False out"
        )
    sample_answers(data, sample_utilities(parts), model, answer_parameters)


def kernels_by_part(
    data: PreferenceData, relation_kernels: Mapping[str, GraphKernel] | None
) -> dict[str, GraphKernel]:
    """The kernels by the names of graphs; that of one role goes before that of its whole relation.

    Raises
    ------
    DataError
        If a relation does not exist.
    """
    kernels: dict[str, GraphKernel] = {}
    given = dict(relation_kernels or {})
    for name, kernel in given.items():
        if name not in data.relations and name not in data.links:
            known = ", ".join(data.relations) or "none"
            raise DataError(f"relation_kernels names the relation {name!r}; the data has: {known}")
        kernels |= {part: given.get(part, kernel) for part in data.parts_of(name)}
    return kernels
