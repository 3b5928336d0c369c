"""What can be said of simulations on the command line."""

import argparse

from relpref.cli.values import positive, scheduler

ENGINES = ("ep", "laplace", "exact", "nuts", "svi")


def sbc_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``relpref sbc``."""
    parser.add_argument(
        "--simulations", type=positive, default=200, metavar="N", help="how many (default: 200)"
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        help="what fits them: nuts samples the whole program, svi is numpyro's mean field (default: the run's own, ep or laplace; exact for "
        "relpref conditional)",
    )
    parser.add_argument(
        "--hyperparameters",
        default="given",
        choices=("given", "integrate", "nuts", "maximise"),
        help="whether the engine is told those of the simulation, samples them, or takes the best (default: given)",
    )
    parser.add_argument(
        "--scheduler",
        type=scheduler,
        metavar="WHERE",
        help="threads, processes, threads:N, processes:N, or tcp://HOST:PORT of a Dask scheduler; all but threads need Dask, pip install "
        "'relpref[dask]' (default: one simulation after the other)",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="where simulations and picture go; goes on where it was interrupted (default: RUN-sbc, beside the run)",
    )
