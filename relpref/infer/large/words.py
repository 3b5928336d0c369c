"""What a posterior of many entities rests on, in sentences."""

from relpref.infer.posterior import Posterior


def approximations(posterior: Posterior) -> list[str]:
    """What was done without a matrix of all entities, and what of it is only near; nothing where there was such a matrix."""
    info = posterior.info
    if info.get("structure") != "sparse":
        return []
    number, touched = info["entities"], info["touched"]
    many = info.get("space") == "sparse entity"
    how = (
        "by the sparse precision of their posterior"
        if many
        else f"only one of the {touched} that answers are about, from which the others follow exactly"
    )
    said = [f"The structure is sparse: there is no matrix of all {number} entities, {how}."]
    if many:
        said.append(
            f"Of the uncertainty about what answers compare the largest relative error is {info['gap_sd_error']:.2g}; it moves mean utilities by up to "
            f"{info['mean_error']:.2g}, where the noise of an answer is 1; the standard error of the log evidence is {info['log_evidence_error']:.2g}."
        )
    if info.get("attributes_left_out"):
        said.append(
            f"The attributes' covariance is one of low rank; it leaves out {info['attributes_left_out']:.2g} of the variance."
        )
    if info.get("scale_error"):
        said.append(
            f"The scale of a relation was estimated from random vectors, with a relative standard error of {info['scale_error']:.2g}: by "
            "so much its amplitude may differ from that of a smaller fit."
        )
    searched, answers = info.get("searched_answers"), getattr(posterior, "data", None)
    if searched is not None and answers is not None and searched < answers.num_answers:
        said.append(
            f"Hyperparameters were searched for by {searched} of the {answers.num_answers} answers, drawn at random; the posterior itself "
            "knows all of them."
        )
    if info.get("at_boundary"):
        said.append(
            f"The search ended where its range ends, at {info['at_boundary']}: the answers ask for a value beyond what the prior takes to be "
            "plausible."
        )
    return said
