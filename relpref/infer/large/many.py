"""A fit where answers are about too many entities for a matrix of these: in sparse entity space."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from relpref.errors import UnsupportedProgramError
from relpref.infer.belief import Floats, generator
from relpref.infer.evidence import tilted
from relpref.infer.large.fitted import Fitted
from relpref.infer.large.problem import LargeReading
from relpref.infer.large.sparse import SparseFit
from relpref.infer.large.sparse import fit as fit_sparse
from relpref.infer.progress import Progress
from relpref.infer.sites import Sites
from relpref.infer.warn import warn_user
from relpref.likelihoods import is_log_concave
from relpref.linalg import ImplicitCovariance, KernelMatrix, nystrom

if TYPE_CHECKING:
    from relpref.infer.engine import GaussianEngine

_TOLERANCE = 1e-6  # of the sites; solves are a hundred times as accurate
# Inducing entities that stand for the attributes of all, and the share of the prior variance that they may leave out.
INDUCING, LEFT_OUT = 300, 1e-3
_MUCH = 0.05  # a share that is worth a warning


def fit_many(
    engine: "GaussianEngine",
    reading: LargeReading,
    start: Mapping[str, Any] | None,
    key: Any,
    progress_bar: bool,
) -> Fitted:
    """EP at known hyperparameters.

    Raises
    ------
    UnsupportedProgramError
        If the engine is another one.
    """
    if engine.name != "EP":
        raise UnsupportedProgramError(
            f"{engine.name} has no way through so many answers about so many entities; take EP, or fewer answers"
        )
    if not all(is_log_concave(one.likelihood) for one in reading.observations):
        raise UnsupportedProgramError(
            "so many answers about so many entities can be fitted with log-concave likelihoods only, and the program's is not (a lapse "
            "rate makes it so); leave the lapse rate out, or take fewer answers"
        )
    parts, left_out = low_rank_parts(reading, key)
    with Progress(f"{engine.name}: many answers", progress_bar, "sweeps", "residual {:.1e}") as progress:
        found = fit_sparse(
            parts,
            reading.ends.T,
            reading.entries.T,
            reading.counts,
            jax.jit(partial(tilted, reading.observations, jnp.asarray(reading.offset))),
            start=None if start is None else Sites(start["precision"], start["shift"]),
            tol=max(engine.options["tol"], _TOLERANCE),
            max_sweeps=engine.options["max_sweeps"],
            key=key,
            progress=progress.step,
        )
    info = {
        "engine": engine.name,
        "iterations": found.info.sweeps,
        "residual": found.info.residual,
        "damping": found.info.damping,
        "space": "sparse entity",
        "jitter": 0.0,
        "log_prior": 0.0,
        "variances": found.info.method,
        "gap_sd_error": _worst(found),
        "mean_error": float(np.max(found.mean_error, initial=0.0)),
        "log_evidence_error": found.log_evidence_error,
    }
    if left_out is not None:
        info["attributes_left_out"] = left_out
        if left_out > _MUCH:
            warn_user(
                f"{INDUCING} inducing entities leave out {left_out:.0%} of the attributes' prior variance: intervals come out that much too "
                "narrow; fewer attributes, longer lengthscales, or fewer answers at a time keep more"
            )
    if found.info.detail:
        info["detail"] = found.info.detail
    sites = {name: np.asarray(value) for name, value in found.sites._asdict().items()}
    return Fitted(found.parts, found.covariance, found.log_evidence, sites, found.info.result, info)


def low_rank_parts(reading: LargeReading, key: Any) -> tuple[dict[str, ImplicitCovariance], float | None]:
    """The parts of the prior, those of attributes by inducing entities; and the share of their variance that these leave out."""
    found: dict[str, ImplicitCovariance] = {}
    left_out: float | None = None
    for name, part in reading.prior.parts.items():
        if isinstance(part, KernelMatrix):
            few = nystrom(part, INDUCING, LEFT_OUT, rng=generator(key))
            found[name], left_out = few, few.left_out
        else:
            found[name] = part
    return found, left_out


def _worst(found: SparseFit) -> float:
    """Largest relative standard error of a gap's sd."""
    variance: Floats = np.where(found.gap_variance > 0, found.gap_variance, np.inf)
    return float(np.max(found.gap_variance_error / (2 * variance), initial=0.0))
