"""What attributes and each relation are worth to a fit: the evidence without them."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from relpref.diagnostics.comparison import difference_of
from relpref.diagnostics.held_out import HeldOut
from relpref.diagnostics.loo import leave_one_out
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer import Posterior, UtilityPosterior
from relpref.posterior.origin import Origin

ATTRIBUTES, INDIVIDUAL = "attributes", "individual"


def evidence_without_each(posterior: UtilityPosterior, *, progress_bar: bool = True) -> pd.DataFrame:
    """Fit again without each part of the model, one at a time, and compare the evidence.

    Hyperparameters are fitted anew, except those that were fixed. Options for the part that is left out (its kernel, its
    priors, its fixed values) are left out with it.

    Parameters
    ----------
    posterior : UtilityPosterior
        From EP or Laplace, by a program whose prior is a sum of named parts, such as `relpref.models.xpgp`.
    progress_bar : bool
        Show each search while it runs, where a person watches.

    Returns
    -------
    DataFrame
        One row for each part: ``left_out`` (``attributes`` or the name of a relation), ``log_evidence`` without it,
        ``difference`` (log evidence with it less that without it, in nats: what is lost), ``elpd_difference`` (the same of the
        answers' held-out log probabilities, see `leave_one_out`) and its standard error ``elpd_se``, and ``note`` (why there is
        no number, or empty).

    Raises
    ------
    UnsupportedProgramError
        If the posterior has no evidence, does not know its program or its priors, or has one part only.
    InferenceError
        If the posterior's own fit did not converge. Where only a fit without a part fails, its row says so.

    Notes
    -----
    Where hyperparameters were integrated over, the evidence is averaged over their prior, and the difference is the log Bayes factor
    of the part. Where they were maximized it is the evidence at the maximum: the larger model contains the smaller one (an amplitude
    of 0), so the difference is seldom negative, and about one nat for each hyperparameter of the part means nothing.
    """
    origin, full = posterior.origin, posterior.log_evidence
    if full is None and posterior.hyperparameter_draws and origin is not None and origin.engine:
        raise UnsupportedProgramError(
            "draws of the hyperparameters give no evidence to compare: fit with hyperparameters='integrate' or 'maximise'"
        )
    if full is None or origin is None:
        raise UnsupportedProgramError(
            "the comparison needs a posterior from EP or Laplace that knows its program; "
            "fit with one of them in this session, or with a program of relpref.models before saving"
        )
    if not origin.complete:
        raise UnsupportedProgramError(
            "the fit used priors of its own, which a saved posterior does not keep, so fitting again would be another model; "
            "compare before saving, or fit again"
        )
    result = posterior.result
    if not result.ok:
        raise InferenceError(
            f"the fit itself did not converge, so its evidence compares with nothing: {result.value}", result
        )
    data = posterior.data
    removable = [part for part in parts_of(posterior) if part == ATTRIBUTES or part in data.relations]
    if len(parts_of(posterior)) < 2 or not removable:
        raise UnsupportedProgramError(
            "the model has no two parts of which one could be left out; xpgp with attributes and relations has"
        )
    held_out: HeldOut | None = None
    rows = []
    for part in removable:
        fitted, note = _refit(posterior, origin, part, progress_bar)
        log_evidence = elpd = error = float("nan")
        if fitted is not None and fitted.log_evidence is not None:
            log_evidence = fitted.log_evidence
            held_out = held_out or leave_one_out(posterior)
            elpd, error = difference_of(held_out, leave_one_out(fitted))
        rows.append((part, log_evidence, full - log_evidence, elpd, error, note))
    columns = ["left_out", "log_evidence", "difference", "elpd_difference", "elpd_se", "note"]
    return pd.DataFrame(rows, columns=columns)


def parts_of(posterior: Posterior) -> tuple[str, ...]:
    """Names of the parts of the utilities' prior, in its order."""
    return tuple(name for parts in posterior.parts.values() for name in parts.means)


def _refit(
    posterior: UtilityPosterior, origin: Origin, part: str, progress_bar: bool
) -> tuple[Posterior | None, str]:
    """The posterior without a part, or the reason why there is none."""
    data, call = posterior.data, origin.unbound()
    kwargs = dict(call.kwargs)
    if part == ATTRIBUTES:
        kwargs.pop("attribute_kernel", None)
    if kwargs.get("relation_kernels"):
        # The kernel of a directed relation stays with the role that is left.
        kernels = kwargs["relation_kernels"].items()
        kwargs["relation_kernels"] = {
            name: kernel for name, kernel in kernels if data.parts_of(name) != (part,)
        }
    if kwargs.get("priors"):
        kwargs["priors"] = _without(posterior, part, kwargs["priors"])
    known = origin.fixed if posterior.searched else posterior.hyperparameters
    try:
        smaller = data.without_attributes() if part == ATTRIBUTES else data.without_relation(part)
        call = replace(call, kwargs=kwargs)
        for old in origin.datasets().values():
            call = call.with_argument(old, smaller) if type(old) is type(data) else call
        engine = origin.engine.changed(call.program, fixed=_without(posterior, part, known), throw=True)
        with warnings.catch_warnings():
            # That groups of entities come apart without the part is what the evidence is about to show.
            warnings.simplefilter("ignore", UserWarning)
            fitted = engine.run(posterior.key, *call.args, progress_bar=progress_bar, **call.kwargs)
    except InferenceError as error:
        return None, f"{origin.engine.name} on the rest ended with {error.result.name}"
    except DataError as error:
        return None, str(error)
    if fitted.log_evidence is None or part in parts_of(fitted):
        return None, "the program keeps this part when the data lacks it"
    return fitted, ""


def _without(posterior: UtilityPosterior, part: str, by_site: Mapping[str, Any]) -> dict[str, Any]:
    """Values of sites but those of a part."""
    return {site: value for site, value in by_site.items() if site_part(posterior, site) != part}


def site_part(posterior: Posterior, site: str) -> str | None:
    """The part that a hyperparameter ``<part>_<name>`` belongs to; of two that fit, the longer."""
    fitting = [part for part in parts_of(posterior) if site.startswith(f"{part}_")]
    return max(fitting, key=len, default=None)
