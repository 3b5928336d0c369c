"""The picture of calibration: empirical less uniform distribution of the transforms, and the band of calibrated engines."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from relpref.diagnostics.calibration import uniform
from relpref.files import replaced

if TYPE_CHECKING:
    from relpref.diagnostics.calibration.result import Calibration

# ArviZ has such a picture (plot_ecdf_pit), with an envelope in 0.x and with points marked by another test (POT-C) in 1.x: neither is the
# band that the p-value here belongs to, and one picture for all versions is wanted.
_COLUMNS = 3
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "relpref", "font.size": 9}


def draw(
    found: Mapping[str, "Calibration"],
    path: str | os.PathLike[str],
    *,
    columns: int = _COLUMNS,
) -> Path:
    """Write one panel for each calibration, under its name: every quantity's curve and the band of the first.

    Parameters
    ----------
    found : mapping from title to Calibration
    path : path
        Of the SVG file.
    columns : int
        Panels beside one another.

    Returns
    -------
    Path
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    wide = min(columns, len(found))
    high = -(-len(found) // wide)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(0.8 + 3.2 * wide, 0.6 + 2.4 * high), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(high, wide, squeeze=False, sharex=True, sharey=True).ravel()
        for panel, (title, calibration) in zip(panels, found.items(), strict=False):
            grid, lower, upper = calibration.band()
            panel.fill_between(grid, lower - grid, upper - grid, color="0.88", lw=0)
            panel.axhline(0.0, color="0.6", lw=0.6)
            for row, quantity in reversed(list(enumerate(calibration.pits))):
                pit = calibration.pits[quantity]
                curve = uniform.ecdf(pit[np.isfinite(pit)])
                panel.plot(grid, curve - grid, f"C{row % 10}", lw=0.9 if row else 1.6, label=quantity)
            panel.set_title(title.replace("$", r"\$"), fontsize=9)
            if len(calibration.pits) > 1:
                panel.legend(fontsize=7, frameon=False)
        for panel in panels[len(found) :]:
            panel.set_visible(False)
        figure.supxlabel("posterior probability below the truth", fontsize=9)
        figure.supylabel("empirical less uniform", fontsize=9)
        with replaced(path) as part:
            # No date and no version: the same bytes for the same numbers.
            figure.savefig(part, format="svg", metadata={"Date": None, "Creator": None})
    return Path(path)
