"""``relpref check``: a run against the exact posterior, by importance weights and by NUTS."""

import argparse
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import pandas as pd

from relpref.cli.fit import ENGINES
from relpref.cli.output import document, formatted, say
from relpref.cli.rank import opened
from relpref.errors import DataError
from relpref.files import made
from relpref.registry import find

if TYPE_CHECKING:
    from relpref.diagnostics import Certificate, Check

_SHOWN = 10  # rows, the ones that are off most


def run(chosen: argparse.Namespace) -> None:
    posterior = opened(chosen.run)
    from relpref.diagnostics import certify, check
    from relpref.diagnostics.certificate import CHECK

    certificate = certify(posterior, rng_key=chosen.seed)
    if not chosen.json:
        # What the sentence may advise is on its way.
        say(f"Certificate: {certificate.sentence.replace(f': {CHECK}', '')}")
    found = check(
        posterior,
        max_items=chosen.items,
        hyperparameters=chosen.hyperparameters,
        draws=chosen.draws,
        chains=chosen.chains,
        rng_key=chosen.seed,
    )
    if chosen.json:
        _document(chosen, certificate, found)
        return
    if len(table := found.table):
        order = table["shift"].abs().sort_values(ascending=False, kind="stable").index
        rows = _rows(table.loc[order].head(_SHOWN)) or []
        for row in rows:
            at = row["label"]
            row["label"] = ", ".join(map(str, at)) if isinstance(at, tuple) else at
        name = " ".join(str(part) for part in table.index.names)
        more = len(table) - len(rows)
        said = formatted([(name, "{label}"), *_COLUMNS], rows)
        say("\n" + said + (f"\n({more} more, off by less)" if more else "") + "\n")
    if found.hyperparameters is not None:
        columns = [("hyperparameter", "{label}"), ("of the run", "{value:.3g}")]
        columns.append(("of NUTS", "{nuts_mean:.3g} ± {nuts_sd:.2g}"))
        say(formatted(columns, _rows(found.hyperparameters) or []) + "\n")
    say(f"NUTS: {found.sentence}")


_COLUMNS = (
    ("mean", "{mean:.3f}"),
    ("of NUTS", "{exact_mean:.3f}"),
    ("off by, in sd", "{shift:+.2f} ± {shift_error:.2f}"),
    ("sd", "{sd:.3f}"),
    ("of NUTS", "{exact_sd:.3f}"),
    ("ratio", "{sd_ratio:.2f} ± {sd_ratio_error:.2f}"),
)


def _document(chosen: argparse.Namespace, certificate: "Certificate", found: "Check") -> None:
    first = ("verdict", "sentence", "k_hat", "ess", "efficiency", "num_samples", "log_evidence")
    second = ("verdict", "sentence", "r_hat", "ess", "divergences", "probability_shift")
    tables = {"table": _rows(found.table), "hyperparameters": _rows(found.hyperparameters)}
    document(
        chosen,
        certificate={name: getattr(certificate, name) for name in first}
        | {"table": _rows(certificate.table)},
        nuts={name: getattr(found, name) for name in second} | tables,
    )


def _rows(differences: pd.DataFrame | None) -> list[dict[str, Any]] | None:
    if differences is None:
        return None
    rows = zip(differences.index.tolist(), differences.to_dict("records"), strict=True)
    return [{"label": at, **row} for at, row in rows]


_SIMULATIONS, _PICTURE, _SUMMARY = "simulations.jsonl", "ecdf.svg", "summary.csv"


def sbc_run(chosen: argparse.Namespace) -> None:
    """Simulate and fit, and say what it means."""
    posterior = opened(chosen.run, "utilities", "relation")
    own = posterior.engine.lower()
    engine = chosen.engine or (own if own in (*ENGINES, "exact") else "ep")
    if posterior.kind == "relation":
        if chosen.engine not in (None, "exact") or chosen.hyperparameters != "given":
            raise DataError(
                f"{chosen.run}: a run of relpref conditional has one kernel and one "
                "regularization, without priors; "
                "leave --engine and --hyperparameters out"
            )
        engine = "exact"
    from relpref.diagnostics import calibrate
    from relpref.diagnostics.sbc import simulated
    from relpref.infer import Exact

    engines: dict[str, Any] = {word: find("engine", name) for word, name in ENGINES.items()}
    engines |= {"exact": Exact, "nuts": "nuts", "svi": "svi"}
    program, args, options = simulated(posterior)
    run_folder = Path(chosen.run).absolute()
    # Beside the run and not in it, so that the run can be replaced.
    out = Path(chosen.out) if chosen.out else run_folder.parent / f"{run_folder.name}-sbc"
    if out.absolute() == run_folder:
        raise DataError(f"--out {quote(str(out))}: this is the run; name another folder")
    file = made(out) / _SIMULATIONS
    try:
        found = calibrate(
            program,
            *args,
            engine=engines[engine],
            hyperparameters=chosen.hyperparameters,
            simulations=chosen.simulations,
            rng_key=chosen.seed,
            file=file,
            scheduler=chosen.scheduler,
            progress_bar=not chosen.json,
            **options,
        )
    except KeyboardInterrupt:
        kept = (
            max(0, file.read_bytes().count(b"\n") - 1) if file.exists() else 0
        )  # lines after the first
        raise KeyboardInterrupt(
            f"interrupted; {kept} simulations are in {file}, and the same command goes on"
        ) from None
    picture = found.picture(out / _PICTURE)
    found.summary().to_csv(out / _SUMMARY)
    if chosen.json:
        document(
            chosen,
            seed=chosen.seed,
            what=found.name,
            verdict=found.verdict(),
            sentence=found.sentence,
            quantities=found.summary().reset_index(names="quantity").to_dict("records"),
            picture=str(picture),
        )
        return
    say(f"{found.name}:")
    say(found.sentence)
    say(
        f"The picture is in {picture}, the simulations beside it: more with --simulations and the "
        "same folder"
    )
