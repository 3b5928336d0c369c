"""What every way through a large problem hands back."""

from typing import Any, NamedTuple

from relpref.infer.belief import Floats
from relpref.infer.large.belief import PosteriorCovariance
from relpref.infer.result import Result


class Fitted(NamedTuple):
    """A fit at known hyperparameters.

    Attributes
    ----------
    means : dict from part to array, shape (n,)
        They add up to the posterior mean.
    covariance : PosteriorCovariance or None
        None where no sweep gave one.
    log_evidence : float
    sites : dict
        ``precision`` and ``shift``, shape (m,).
    result : Result
    info : dict
    """

    means: dict[str, Floats]
    covariance: PosteriorCovariance | None
    log_evidence: float
    sites: dict[str, Floats]
    result: Result
    info: dict[str, Any]
