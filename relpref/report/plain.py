"""The page of a posterior that has no labelled entities: its sites."""

import numpy as np

from relpref.infer import Posterior
from relpref.report.blocks import Block, Chapter, Contents, Text, clean, counted, significant
from relpref.report.certified import Checked, Unknown, certified
from relpref.report.hyperparameters import hyperparameters
from relpref.report.methods import approximation
from relpref.report.plots import cell, grid
from relpref.report.predicted import calibrated, measures, notes

_ROWS = 50


def contents(posterior: Posterior) -> Contents:
    """The page of a program without labelled entities."""
    chapters = [sites(posterior), trust(posterior), hyperparameters(posterior)]
    kept = [chapter for chapter in chapters if chapter is not None]
    return Contents("Posterior report", summary(posterior), kept, [approximation(posterior)])


def sites(posterior: Posterior) -> Chapter:
    """Mean and standard deviation of the values of every Gaussian site."""
    blocks: list[Block] = []
    for site, where in posterior.slices.items():
        size = where.stop - where.start
        means, sds = posterior.mean(site=site)[:_ROWS], posterior.sd(site=site)[:_ROWS]
        rows = [
            [cell(row), cell(significant(mean)), cell(significant(sd))]
            for row, (mean, sd) in enumerate(zip(means, sds, strict=True))
        ]
        caption = f"Site {clean(site)}: {counted(size, 'value')}"
        if size > _ROWS:
            caption += f", the first {_ROWS} are shown"
        blocks.append(grid(caption, ("Position", "Mean", "Standard deviation"), rows, (0, 1, 2)))
    return Chapter("Posterior", blocks)


def trust(posterior: Posterior) -> Chapter:
    """How far to trust it."""
    checked = Checked(posterior)
    blocks: list[Block] = [*certified(checked.certificate)]
    held = checked.held_out
    if isinstance(held, Unknown):
        blocks.append(Text(f"No observation was left out and predicted: {held.why}."))
        return Chapter("How far to trust it", blocks)
    text = (
        f"Each of {counted(held.num_answers, 'observation')} was left out, and predicted from all the others."
    )
    blocks += [Text(text), measures(held), *notes(held), *calibrated(held, posterior)]
    return Chapter("How far to trust it", blocks)


def summary(posterior: Posterior) -> list[str]:
    sizes = {site: where.stop - where.start for site, where in posterior.slices.items()}
    inside = ", ".join(f"{clean(site)} ({counted(size, 'value')})" for site, size in sizes.items())
    widest = float(np.max([np.max(posterior.sd(site=site), initial=0.0) for site in sizes], initial=0.0))
    text = (
        f"This program infers the Gaussian {'site' if len(sizes) == 1 else 'sites'} {inside}. The largest standard deviation is "
        f"{significant(widest)}. Its values belong to no labelled entities, so there is no ranking."
    )
    return [text]
