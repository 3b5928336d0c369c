"""SVG pictures that come from the caller: checked, and made fit to stand beside others."""

import re
from typing import Any
from xml.etree import ElementTree

from markupsafe import escape

from relpref.data.arrays import shown
from relpref.errors import DataError
from relpref.infer import Posterior, RelationPosterior
from relpref.infer.search import UNMIXED
from relpref.report.blocks import Block, Cell, Chapter, Items, clean, fixed, sentence, significant
from relpref.report.plots import cell, grid, prefixed

_FORBIDDEN = ("script", "foreignobject", "iframe", "object", "embed", "audio", "video", "handler", "listener")
_ADDRESS = re.compile(r"url\(\s*['\"]?(?!#|data:)|@import|expression\(", re.IGNORECASE)


def foreign(figure: str, name: str, title: str) -> tuple[str, bool]:
    """Check a picture.

    Parameters
    ----------
    figure : str
        SVG, with or without an XML header.
    name : str
        Put before its ids, which must be unique on the page.
    title : str
        What it shows, if it does not say so itself.

    Returns
    -------
    svg : str
        The picture, without header and metadata.
    own_colours : bool
        Whether it has colours of its own, as against those of the page.

    Raises
    ------
    DataError
        If it is not one SVG picture, or it holds scripts or addresses.
    """
    start, end = figure.find("<svg"), figure.rfind("</svg>")
    if start < 0 or end < 0:
        raise DataError(
            f"figure: {shown(figure)} is not SVG; give the text of one picture, from <svg to </svg>"
        )
    body = figure[start : end + len("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    _check(body)
    own = 'class="plot' not in body[: body.index(">")]
    opening, _, rest = prefixed(body, name).partition(">")
    if "role=" not in opening:
        opening += f' role="img" aria-label="{escape(title)}"'
    return f"{opening}>{rest}", own


def _check(body: str) -> None:
    declared = body
    for prefix in ("xlink",):  # HTML knows it without a declaration
        if f"xmlns:{prefix}" not in declared:
            declared = declared.replace("<svg", f'<svg xmlns:{prefix}="http://www.w3.org/1999/xlink"', 1)
    try:
        root = ElementTree.fromstring(declared)
    except ElementTree.ParseError as error:
        raise DataError(
            f"figure: the SVG is not well formed ({error}); give the text of one picture"
        ) from None
    for element in root.iter():
        tag = str(element.tag).rpartition("}")[2].lower()
        if tag in _FORBIDDEN:
            raise DataError(f"figure: the SVG holds a <{tag}>; a report has no active content: remove it")
        for attribute, value in element.attrib.items():
            key = attribute.rpartition("}")[2].lower()
            if key.startswith("on") or "javascript:" in value.lower():
                raise DataError(
                    f"figure: the SVG has the attribute {key}={shown(value)}; a report has no scripts: remove it"
                )
            if key in ("href", "src") and not value.startswith(("#", "data:image/")):
                raise DataError(
                    f"figure: the SVG refers to {shown(value)}; a report loads nothing: put the content into the picture"
                )
            if _ADDRESS.search(value):
                raise DataError(
                    f"figure: the SVG refers to an address in {shown(value)}; a report loads nothing: remove it"
                )
        if _ADDRESS.search(element.text or "") and tag == "style":
            raise DataError("figure: the SVG's style refers to an address; a report loads nothing: remove it")


AnyPosterior = Posterior | RelationPosterior
_TITLE = "How the computation went"

# name in info -> (words, how to read it)
_READINGS = {
    "iterations": ("Sweeps", "rounds over all answers in the last run"),
    "residual": (
        "Residual",
        "the largest mismatch that is left; 0 at the solution, and below 10⁻⁶ nothing to worry about",
    ),
    "damping": (
        "Damping",
        "fraction of each update that was taken at the end; 1 is undamped, small values mean a hard problem",
    ),
    "space": (
        "Space",
        "where the algebra was done: over answers (gap) or over entities (entity); it changes nothing but speed",
    ),
    "structure": ("Structure", "sparse: without a matrix of all entities"),
    "entities": ("Entities", "of which there is a belief"),
    "touched": ("Compared", "entities that answers are about"),
    "scale_error": ("Scale", "relative standard error of a relation's scale, which was estimated"),
    "searched_answers": ("Answers of the search", "by which hyperparameters were found"),
    "at_boundary": ("At a boundary", "hyperparameters that were found where the range of the search ends"),
    "variances": ("Variances", "how those of the gaps that were asked about were found"),
    "gap_sd_error": ("Their error", "the largest relative one of a gap's standard deviation"),
    "mean_error": ("Error of means", "that follows from it, the largest"),
    "log_evidence_error": ("Error of the evidence", "standard error of the log evidence"),
    "attributes_left_out": (
        "Left out",
        "share of the attributes' variance that a few representatives do not tell",
    ),
    "jitter": ("Jitter", "added to the prior's diagonal to make it positive definite; 0 if none was needed"),
    "evaluations": ("Evaluations", "of the evidence while searching for hyperparameters"),
    "failed_evaluations": (
        "Failed evaluations",
        "tried hyperparameters at which the engine failed; the search turned back from them",
    ),
    "gradient_norm": ("Gradient", "largest slope that is left at the hyperparameters found; 0 at a maximum"),
    "log_prior": ("Log prior", "log density of the hyperparameters under their prior"),
    "chains": ("Chains", "independent runs of the sampler"),
    "draws": ("Draws", "of the hyperparameters, all chains together"),
    "r_hat": (
        "R-hat",
        f"of the hyperparameters, the largest: 1 where the chains agree, above {UNMIXED} they do not yet",
    ),
    "ess": (
        "Effective draws",
        "of the hyperparameters, the fewest: so many independent draws would say as much",
    ),
    "solver": ("Solver", "how the scores were found; all ways lead to the same"),
    "edges": ("Labels used", "those of a symmetric or reciprocal relation count in both directions"),
    "complete": ("Complete", "whether there is a label for every pair"),
    "held_out_edges": ("Labels held out", "to tell when to end the iterations"),
    "held_out_concordance": (
        "Held-out order",
        "share of the pairs of those labels that came in the right order",
    ),
    "best_iteration": ("Best iteration", "the one at which they did"),
    "stopped": ("Ended", "why the iterations did"),
    "divergences": ("Divergences", "steps the sampler could not follow; a few in a hundred are too many"),
}
_ELSEWHERE = ("engine", "result", "groups", "hyperparameters")
_LONGEST_VALUE = 20  # in the table; longer text, which would push its numbers aside, is a note under it


def computation(posterior: AnyPosterior) -> Chapter:
    info = posterior.info
    result = posterior.result
    sampled = posterior.sampled
    meaning = (
        "draws from the posterior, made by a sampler"
        if sampled
        else "what computed the posterior; see Methods"
    )
    rows = [[Cell("Engine"), cell(posterior.engine), Cell(meaning)]]
    meaning = "taken as it is" if sampled and result.ok else result.value
    rows.append([Cell("Result"), cell(result.name.replace("_", " ")), cell(meaning, 400)])
    if posterior.log_evidence is not None:
        reading = "how probable the answers are under the model, on the log scale; for comparing models on the same answers"
        rows.append([Cell("Log evidence"), Cell(fixed(posterior.log_evidence)), Cell(reading)])
    words = dict(_READINGS)
    if sampled:
        words["iterations"] = ("Draws", "from the posterior, all chains together")
    elif isinstance(posterior, RelationPosterior):
        words["iterations"] = ("Iterations", "of conjugate gradients; 0 where there is a closed form")
    notes = []
    for name in [*words, *sorted(info.keys() - words.keys())]:  # in one order, before and after it was saved
        value = info.get(name)
        if name in _ELSEWHERE or not isinstance(value, str | int | float | bool):
            continue
        title, reading = words.get(name, (clean(name), ""))
        if isinstance(value, str) and len(value) > _LONGEST_VALUE:
            notes.append(sentence(f"{title}: {value}" if name in words else value))
            continue
        rows.append([cell(title), _value(value), Cell(reading)])
    blocks: list[Block] = [
        grid("Diagnostics and how to read them", ("What", "Value", "How to read it"), rows, (1,))
    ]
    if notes:
        blocks.append(Items(notes))
    return Chapter(_TITLE, blocks)


def banner(posterior: AnyPosterior) -> str | None:
    """What to say at the top of the page if the result is not to be trusted."""
    result = posterior.result
    if result.ok:
        return None
    return f"The computation did not converge ({result.name.replace('_', ' ')}), so the numbers below may be wrong. {result.value}"


def _value(value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, float):
        return Cell(fixed(value, 0) if value.is_integer() and abs(value) < 1e6 else significant(value))
    return cell(value)
