"""What was done, in words."""

from relpref.infer import RelationPosterior

_KERNELS = {
    "kronecker": "the product of a kernel of the conditioning nodes and one of the objects",
    "cartesian": "the sum of a kernel of the nodes where the objects are the same and one of the objects where the nodes are",
    "mlpk": "the metric learning pairwise kernel, which compares differences of nodes",
    "preference": "the transitive preference kernel, which gives every object one score for all",
}


def methods(posterior: RelationPosterior) -> list[str]:
    """Paragraphs."""
    problem = posterior.problem
    text = (
        "Every pair of a conditioning node and an object has a score, and labels are scores seen with Gaussian noise (Pahikkala et al. 2010). "
        f"A priori, scores are a Gaussian process whose covariance is {_KERNELS[problem.pair_kernel]} (Pahikkala et al. 2013)."
    )
    if problem.symmetry != "none":
        text += f" It obeys that the relation is {problem.symmetry}."
    if problem.loss == "ranking":
        text += (
            " The loss is the ranking loss: every conditioning node has an offset of which nothing is known, so that only the order of "
            "its objects is learned."
        )
    solved = (
        "in closed form, by the eigenvectors of the two kernels"
        if problem.closed
        else "by conjugate gradients"
    )
    exact = (
        f"The posterior is exact, given hyperparameters and noise; it was found {solved}. Whatever was fitted beforehand, such as "
        "the regularisation, is taken as certain, so intervals are somewhat too narrow on small data."
    )
    return [text, exact]
