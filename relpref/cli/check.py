"""``relpref check``: a run against the exact posterior, by importance weights and by NUTS."""

import argparse
from pathlib import Path
from shlex import quote
from typing import Any

import pandas as pd

from relpref.cli.model import ENGINES
from relpref.cli.output import document, say, table
from relpref.cli.rank import opened
from relpref.data.arrays import label
from relpref.diagnostics import Calibration, Certificate, Check, calibrate, certify, check
from relpref.diagnostics.certificate import CHECK
from relpref.diagnostics.sbc import simulated
from relpref.errors import DataError
from relpref.files import made
from relpref.infer import Exact
from relpref.runs import load_run

_SHOWN = 10  # rows, the ones that are off most


def run(chosen: argparse.Namespace) -> None:
    posterior = load_run(chosen.run).posterior
    if posterior.kind == "utilities":
        _, posterior = opened(chosen.run)  # with the answers that people gave since
    certificate = certify(posterior, key=chosen.seed)
    if not chosen.json:
        # What the sentence may advise is on its way.
        say(f"Certificate: {certificate.sentence.replace(f': {CHECK}', '')}")
    found = check(
        posterior,
        most_entities=chosen.entities,
        hyperparameters=chosen.hyperparameters,
        draws=chosen.draws,
        chains=chosen.chains,
        key=chosen.seed,
    )
    if chosen.json:
        document(_as_document(chosen.run, certificate, found))
        return
    if len(found.table):
        say("\n" + _for_people(found.table) + "\n")
    if found.hyperparameters is not None:
        say(_of_hyperparameters(found.hyperparameters) + "\n")
    say(f"NUTS: {found.sentence}")


def _for_people(differences: pd.DataFrame) -> str:
    """The rows that are off most, in the mean."""
    order = differences["shift"].abs().sort_values(ascending=False, kind="stable").index
    ordered = differences.loc[order].head(_SHOWN)
    name = " ".join(str(part) for part in differences.index.names)
    header = (name, "mean", "of NUTS", "off by, in sd", "sd", "of NUTS", "ratio")
    rows = [
        (
            label(", ".join(map(str, at)) if isinstance(at, tuple) else at),
            f"{row['mean']:.3f}",
            f"{row['exact_mean']:.3f}",
            f"{row['shift']:+.2f} ± {row['shift_error']:.2f}",
            f"{row['sd']:.3f}",
            f"{row['exact_sd']:.3f}",
            f"{row['sd_ratio']:.2f} ± {row['sd_ratio_error']:.2f}",
        )
        for at, row in zip(ordered.index, ordered.to_dict("records"), strict=True)
    ]
    more = len(differences) - len(rows)
    return table(header, rows) + (f"\n({more} more, off by less)" if more else "")


def _of_hyperparameters(values: pd.DataFrame) -> str:
    rows = [
        (label(name), f"{row['value']:.3g}", f"{row['nuts_mean']:.3g} ± {row['nuts_sd']:.2g}")
        for name, row in zip(values.index, values.to_dict("records"), strict=True)
    ]
    return table(("hyperparameter", "of the run", "of NUTS"), rows)


def _as_document(folder: str, certificate: Certificate, found: Check) -> dict[str, Any]:
    numbers = {name: getattr(certificate, name) for name in ("k_hat", "ess", "efficiency", "num_samples")}
    return {
        "command": "check",
        "run": str(folder),
        "certificate": {
            "verdict": certificate.verdict,
            "sentence": certificate.sentence,
            **numbers,
            "log_evidence": certificate.log_evidence,
            "table": _rows(certificate.table),
        },
        "nuts": {
            "verdict": found.verdict,
            "sentence": found.sentence,
            "r_hat": found.r_hat,
            "ess": found.ess,
            "divergences": found.divergences,
            "probability_shift": found.probability_shift,
            "table": _rows(found.table),
            "hyperparameters": _rows(found.hyperparameters),
        },
    }


def _rows(differences: pd.DataFrame | None) -> list[dict[str, Any]] | None:
    if differences is None:
        return None
    return [
        {"label": at, **row}
        for at, row in zip(differences.index.tolist(), differences.to_dict("records"), strict=True)
    ]


_ENGINES: dict[str, Any] = {**ENGINES, "exact": Exact, "nuts": "nuts", "svi": "svi"}
_SIMULATIONS, _PICTURE, _SUMMARY = "simulations.jsonl", "ecdf.svg", "summary.csv"


def sbc_run(chosen: argparse.Namespace) -> None:
    """Simulate and fit, and say what it means."""
    known: Any = load_run(chosen.run).posterior
    if known.kind == "relation":
        if chosen.engine not in (None, "exact") or chosen.hyperparameters != "given":
            raise DataError(
                f"{chosen.run}: a run of relpref conditional has one kernel and one regularization, without priors; "
                "leave --engine and --hyperparameters out"
            )
        engine, (program, args, options) = "exact", simulated(known)
    else:
        _, posterior = opened(chosen.run)
        own = posterior.engine.lower()
        engine = chosen.engine or (own if own in _ENGINES else "ep")
        program, args, options = simulated(posterior)
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
    run_folder = Path(chosen.run).absolute()
    out = Path(chosen.out) if chosen.out else run_folder.parent / f"{run_folder.name}-sbc"
    if out.absolute() == run_folder:
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
