"""``relpref check`` and ``relpref sbc``: test the posterior of a run."""

from argparse import Namespace
from pathlib import Path
from shlex import quote
from typing import Any

import pandas as pd

from relpref.cli.output import document, formatted, given, say, tell
from relpref.cli.rank import opened
from relpref.description import model_words
from relpref.errors import DataError
from relpref.files import made
from relpref.registry import CHOICES, find

_SHOWN = 10  # rows, those with the largest errors


def run(chosen: Namespace) -> None:
    """Compare a run with the exact posterior, by importance weights and by NUTS."""
    posterior = opened(chosen.run)
    from relpref.diagnostics import certify, check
    from relpref.diagnostics.certificate import CHECK

    certificate = certify(posterior, rng_key=chosen.seed)
    if not chosen.json:
        # The sentence may advise the check that follows.
        say(f"Certificate: {certificate.sentence.replace(f': {CHECK}', '')}")
    comparison = check(
        posterior,
        max_items=chosen.items,
        rng_key=chosen.seed,
        **given(chosen, "hyperparameters", "draws", "chains"),
    )
    if chosen.json:
        first = ("verdict", "sentence", "k_hat", "ess", "efficiency", "num_samples", "log_evidence")
        second = ("verdict", "sentence", "r_hat", "ess", "divergences", "probability_shift")
        hyperparameters = _rows(comparison.hyperparameters)
        document(
            chosen,
            certificate={name: getattr(certificate, name) for name in first}
            | {"table": _rows(certificate.table)},
            nuts={name: getattr(comparison, name) for name in second}
            | {"table": _rows(comparison.table), "hyperparameters": hyperparameters},
        )
        return
    if len(table := comparison.table):
        table = table.sort_values("shift", key=abs, ascending=False, kind="stable")
        rows = _rows(table.head(_SHOWN)) or []
        for row in rows:
            label = row["label"]
            row["label"] = ", ".join(map(str, label)) if isinstance(label, tuple) else label
        name = " ".join(map(str, table.index.names))
        more = len(table) - len(rows)
        rest = f"\n({more} more, off by less)" if more else ""
        say(f"\n{formatted([(name, '{label}'), *_COLUMNS], rows)}{rest}\n")
    if comparison.hyperparameters is not None:
        columns = [("hyperparameter", "{label}"), ("of the run", "{value:.3g}")]
        columns.append(("of NUTS", "{nuts_mean:.3g} ± {nuts_sd:.2g}"))
        say(formatted(columns, _rows(comparison.hyperparameters) or []) + "\n")
    say(f"NUTS: {comparison.sentence}")


_COLUMNS = (
    ("mean", "{mean:.3f}"),
    ("of NUTS", "{exact_mean:.3f}"),
    ("off by, in sd", "{shift:+.2f} ± {shift_error:.2f}"),
    ("sd", "{sd:.3f}"),
    ("of NUTS", "{exact_sd:.3f}"),
    ("ratio", "{sd_ratio:.2f} ± {sd_ratio_error:.2f}"),
)


def _rows(table: pd.DataFrame | None) -> list[dict[str, Any]] | None:
    """Rows with their labels, None without a table."""
    if table is None:
        return None
    rows = zip(table.index.tolist(), table.to_dict("records"), strict=True)
    return [{"label": label, **row} for label, row in rows]


_SIMULATIONS, _PICTURE, _SUMMARY = "simulations.jsonl", "ecdf.svg", "summary.csv"


def sbc_run(chosen: Namespace) -> None:
    """Calibrate the model of a run by simulations."""
    posterior = opened(chosen.run, "utilities", "relation")
    words, default = {name.lower(): name for name in CHOICES["engine"]}, posterior.engine.lower()
    engine = chosen.engine or (default if default in (*words, "exact") else "ep")
    if posterior.kind == "relation":
        if chosen.engine not in (None, "exact") or chosen.hyperparameters != "given":
            raise DataError(
                f"{chosen.run}: a run of relpref conditional has one kernel and one "
                "regularization, without priors; leave --engine and --hyperparameters out"
            )
        engine = "exact"
    from relpref.diagnostics import calibrate
    from relpref.diagnostics.sbc import simulated
    from relpref.infer import Exact

    engines: dict[str, Any] = {word: find("engine", name) for word, name in words.items()}
    engines |= {"exact": Exact, "nuts": "nuts", "svi": "svi"}
    program, args, options = simulated(posterior)
    run_folder = Path(chosen.run).absolute()
    # Beside the run and not in it, so that the run can be replaced.
    out = Path(chosen.out) if chosen.out else run_folder.parent / f"{run_folder.name}-sbc"
    if out.absolute() == run_folder:
        raise DataError(f"--out {quote(str(out))}: this is the run; name another folder")
    file = made(out) / _SIMULATIONS
    try:
        calibration = calibrate(
            program,
            *args,
            engine=engines[engine],
            rng_key=chosen.seed,
            file=file,
            progress_bar=not chosen.json,
            **given(chosen, "hyperparameters", "simulations", "scheduler"),
            **options,
        )
    except KeyboardInterrupt:
        lines = file.read_bytes().count(b"\n") if file.exists() else 0
        raise KeyboardInterrupt(
            f"interrupted; {max(0, lines - 1)} simulations are in {file}, and the same command "
            "goes on"
        ) from None
    picture = calibration.picture(out / _PICTURE)
    calibration.summary().to_csv(out / _SUMMARY)
    name, _, how = calibration.name.partition(", ")
    tell(
        chosen,
        f"{model_words(name)}; {how}:\n{calibration.sentence}\nThe picture is in {picture}, the "
        "simulations beside it: more with --simulations and the same folder",
        seed=chosen.seed,
        what=calibration.name,
        verdict=calibration.verdict(),
        sentence=calibration.sentence,
        quantities=calibration.summary().reset_index(names="quantity").to_dict("records"),
        picture=picture,
    )
