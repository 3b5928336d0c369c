"""The Gaussian process on attributes alone: the baseline of Kersting & Xu 2009 (Chu & Ghahramani 2005)."""

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.kernels import AttributeKernel, SquaredExponential
from relpref.likelihoods import AnswerModel, answer_model
from relpref.models.preference import Hyperparameters, Priors, sample_answers, sample_utilities


def preference_gp(
    data: PreferenceData,
    *,
    attribute_kernel: AttributeKernel | None = None,
    priors: Priors | None = None,
    likelihood: AnswerModel | None = None,
    standardize: bool = True,
) -> None:
    """Utilities from attributes, compared in pairs; relations in the data are not looked at.

    Parameters
    ----------
    data : PreferenceData
        With at least one attribute.
    attribute_kernel, priors, likelihood, standardize
        As in `relpref.models.xpgp`.

    Raises
    ------
    DataError
        If the entities have no attributes, or a prior is given for a site that does not exist.
    """
    if not data.attributes.shape[1] and attribute_kernel is None:
        raise DataError(
            "preference_gp ranks by attributes and the entities have none; add columns or use xpgp"
        )
    hyperparameters = Hyperparameters(priors)
    parts = {
        "attributes": hyperparameters.attribute_part(
            data, attribute_kernel or SquaredExponential(), standardize
        )
    }
    model = answer_model(likelihood)
    answer_parameters = hyperparameters.answer_part(data, model)
    hyperparameters.check_all_used()
    sample_answers(data, sample_utilities(parts), model, answer_parameters)
