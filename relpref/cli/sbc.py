"""``relpref sbc``: whether the intervals of a run's model and engine hold the truth as often as they say, by simulation."""

import argparse
from pathlib import Path
from shlex import quote
from typing import Any

from relpref.cli.opened import opened
from relpref.cli.output import document, say
from relpref.diagnostics import Calibration, calibrate
from relpref.diagnostics.calibration.run_of import simulated_relation, simulated_utilities
from relpref.errors import DataError
from relpref.folders import made
from relpref.infer import EP, Exact, Laplace, RelationPosterior
from relpref.runs import load_run

_ENGINES: dict[str, Any] = {"ep": EP, "laplace": Laplace, "exact": Exact, "nuts": "nuts", "svi": "svi"}
_SIMULATIONS, _PICTURE, _SUMMARY = "simulations.jsonl", "ecdf.svg", "summary.csv"


def run(chosen: argparse.Namespace) -> None:
    """Simulate and fit, and say what it means."""
    known = load_run(chosen.run).posterior
    if isinstance(known, RelationPosterior):
        if chosen.engine not in (None, "exact") or chosen.hyperparameters != "given":
            raise DataError(
                f"{chosen.run}: a run of relpref conditional has one kernel and one regularization, without priors; "
                "leave --engine and --hyperparameters out"
            )
        engine, (program, args, options) = "exact", simulated_relation(known)
    else:
        _, posterior = opened(chosen.run)
        own = str(posterior.info["engine"]).lower()
        engine = chosen.engine or (own if own in _ENGINES else "ep")
        program, args, options = simulated_utilities(posterior)
    out = _folder(chosen)
    try:
        found = calibrate(
            program,
            *args,
            engine=_ENGINES[engine],
            hyperparameters=chosen.hyperparameters,
            simulations=chosen.simulations,
            key=chosen.seed,
            file=out / _SIMULATIONS,
            scheduler=chosen.scheduler,
            progress_bar=not chosen.json,
            **options,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; {_kept(out)} simulations are in {out / _SIMULATIONS}, and the same command goes on"
        ) from None
    picture = found.picture(out / _PICTURE)
    found.summary().to_csv(out / _SUMMARY)
    if chosen.json:
        document(_facts(chosen, found, picture))
        return
    say(f"{found.name}:")
    say(found.sentence)
    say(
        f"The picture is in {picture}, the simulations beside it: more with --simulations and the same folder"
    )


def _folder(chosen: argparse.Namespace) -> Path:
    """Beside the run and not in it, so that the run can be replaced."""
    run = Path(chosen.run).absolute()
    out = Path(chosen.out) if chosen.out else run.parent / f"{run.name}-sbc"
    if out.absolute() == run:
        raise DataError(f"--out {quote(str(out))}: this is the run; name another folder")
    return made(out)


def _kept(out: Path) -> int:
    """Finished simulations: lines after the first."""
    file = out / _SIMULATIONS
    return max(0, file.read_bytes().count(b"\n") - 1) if file.exists() else 0


def _facts(chosen: argparse.Namespace, found: Calibration, picture: Path) -> dict[str, Any]:
    return {
        "command": "sbc",
        "run": str(chosen.run),
        "seed": chosen.seed,
        "what": found.name,
        "verdict": found.verdict(),
        "sentence": found.sentence,
        "quantities": [
            {"quantity": quantity, **row} for quantity, row in found.summary().to_dict("index").items()
        ],
        "picture": str(picture),
    }
