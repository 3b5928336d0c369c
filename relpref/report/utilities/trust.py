"""The chapter on how far the page is to be trusted: warnings, a certificate, and answers that were left out."""

from relpref.report.blocks import Block, Chapter, Items, Text
from relpref.report.checked import Unknown
from relpref.report.predicted import calibrated, measures, notes
from relpref.report.text import counted, sentence
from relpref.report.utilities.subject import Subject
from relpref.report.utilities.warnings import warnings


def trust(subject: Subject) -> Chapter:
    """The chapter."""
    found = warnings(subject)
    blocks: list[Block] = [Items(found)] if found else []
    if not found:
        text = "Nothing stands out: every entity was asked about, no group stands alone, and the computation went as it should."
        blocks.append(Text(text))
    blocks.append(Text(certified(subject.checked.certificate)))
    held = subject.checked.held_out
    if isinstance(held, Unknown):
        blocks.append(Text(f"No answers were left out and predicted: {held.why}."))
        return Chapter("How far to trust it", blocks)
    text = (
        f"Each of the {counted(held.num_answers, 'answer')} was left out, and predicted from all the others. That says how well the next "
        "answer is predicted, which a model's fit to answers it has seen does not."
    )
    blocks += [Text(text), measures(held), *notes(held), *calibrated(held, subject.posterior)]
    return Chapter("How far to trust it", blocks)


def certified(certificate: object) -> str:
    """What the certificate says."""
    if isinstance(certificate, Unknown):
        return f"The approximation was not certified: {certificate.why}. relpref check compares it with a sampler."
    return sentence(str(getattr(certificate, "sentence", "")))
