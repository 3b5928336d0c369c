"""The chapter on how the computation went."""

from collections.abc import Mapping
from typing import Any

from relpref.infer import Posterior, RelationPosterior, Result
from relpref.infer.integrate import UNMIXED
from relpref.report.blocks import Block, Cell, Chapter, Items
from relpref.report.grid import cell, grid
from relpref.report.text import clean, fixed, sentence, significant

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
_ENGINES = {
    "EP": "expectation propagation: a Gaussian that matches the posterior answer by answer",
    "Laplace": "Laplace's approximation: a Gaussian that touches the posterior at its mode",
}
_ELSEWHERE = ("engine", "result", "groups", "hyperparameters")
_LONGEST_VALUE = 20  # in the table; longer text, which would push its numbers aside, is a note under it


def computation(posterior: AnyPosterior) -> Chapter:
    """The chapter."""
    info = posterior.info
    result = Result[info["result"]]
    sampled = info["engine"] == "samples"
    rows = [[Cell("Engine"), cell(info["engine"]), Cell(_engine(sampled, info))]]
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
    result = Result[posterior.info["result"]]
    if result.ok:
        return None
    return f"The computation did not converge ({result.name.replace('_', ' ')}), so the numbers below may be wrong. {result.value}"


def _engine(sampled: bool, info: Mapping[str, Any]) -> str:
    if sampled:
        return "draws from the posterior, made by a sampler"
    return _ENGINES.get(str(info["engine"]), "")


def _value(value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, float):
        return Cell(fixed(value, 0) if value.is_integer() and abs(value) < 1e6 else significant(value))
    return cell(value)
