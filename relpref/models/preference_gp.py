"""The Gaussian process on attributes alone: the baseline of Kersting & Xu 2009 (Chu & Ghahramani 2005)."""

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.kernels import AttributeKernel, SquaredExponential
from relpref.likelihoods import AnswerModel, answer_model
from relpref.models.preference import INDIVIDUAL, Hyperparameters, Priors, sample_answers, sample_utilities


def preference_gp(
    data: PreferenceData,
    *,
    attribute_kernel: AttributeKernel | None = None,
    priors: Priors | None = None,
    likelihood: AnswerModel | None = None,
    standardize: bool = True,
    individual: bool = True,
) -> None:
    """Utilities from attributes and the entities themselves, compared in pairs; relations in the data are not looked at.

    Parameters
    ----------
    data : PreferenceData
        Without attribute columns, and without an ``attribute_kernel``, there is no attribute part.
    attribute_kernel, priors, likelihood, standardize, individual
        As in `relpref.models.xpgp`.

    Raises
    ------
    DataError
        If a prior is given for a site that does not exist, or there is no part at all.
    """
    hyperparameters = Hyperparameters(priors)
    parts = {}
    if data.attributes.shape[1] or attribute_kernel is not None:
        kernel = attribute_kernel or SquaredExponential()
        parts["attributes"] = hyperparameters.attribute_part(data, kernel, standardize)
    if individual:
        parts[INDIVIDUAL] = hyperparameters.individual_part(data, only=not parts)
    model = answer_model(likelihood)
    answer_parameters = hyperparameters.answer_part(data, model)
    hyperparameters.check_all_used()
    if not parts:
        raise DataError(
            "preference_gp with individual=False ranks by attributes alone and the entities have none; add columns, use xpgp, or leave "
            "individual=False out"
        )
    sample_answers(data, sample_utilities(parts), model, answer_parameters)
