"""What a certificate says to a reader who has not heard of importance weights, and in small print to one who has."""

import numpy as np

from relpref.diagnostics import Certificate
from relpref.report.blocks import Block, Text
from relpref.report.checked import Unknown
from relpref.report.text import fixed, sentence

_ELSEWHERE = "relpref check compares it with a sampler."
_OF_DRAWS = {
    "good": "The result is made of draws, and the chains agree.",
    "doubtful": "The result is made of draws, and whether these are enough is not certain.",
    "failed": "The result is made of draws that cannot be relied on.",
}


def certified(certificate: Certificate | Unknown) -> list[Block]:
    """Paragraphs."""
    if isinstance(certificate, Unknown):
        return [Text(f"The approximation was not certified: {certificate.why}. {_ELSEWHERE}")]
    said = sentence(certificate.sentence)
    if certificate.verdict == "exact":
        if not certificate.num_samples:
            return [Text(said)]
        return [
            Text(
                "Nothing was approximated: given the hyperparameters, the result is that of the model itself."
            )
        ]
    return [Text(_plain(certificate)), Text(said, small=True)]


def _plain(certificate: Certificate) -> str:
    if np.isnan(certificate.k_hat):
        return _OF_DRAWS[certificate.verdict]
    table = certificate.table
    if table is None:
        return f"Whether the approximation is accurate could not be shown here, which does not mean that it is not: {_ELSEWHERE}"
    most = fixed(float(table["shift"].abs().max()))
    widths = f"{fixed(float(table['sd_ratio'].min()))} to {fixed(float(table['sd_ratio'].max()))} times as wide as they should be"
    found = f"no mean is off by more than {most} of a standard deviation, and intervals are {widths}"
    if certificate.verdict == "undecided":
        return f"Whether the approximation is accurate is not decided by so many draws: a mean seems off by up to {most} of a standard deviation, and intervals are {widths}."
    if certificate.verdict == "good":
        return f"The approximation is accurate: {found}."
    return f"The approximation is not accurate: a mean is off by {most} of a standard deviation, and intervals are {widths}."
