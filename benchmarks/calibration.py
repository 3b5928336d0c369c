"""Simulation-based calibration of every program under every engine: python -m
benchmarks.calibration --out calibration

Draws hyperparameters from their priors, and everything else from the program; each engine is given
the hyperparameters, integrates over them or maximizes them. Finished simulations are kept in the
folder, so that the command goes on where it was interrupted. Writes a table (Markdown, CSV) and a
picture of the empirical distributions.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.calibration_cases import LIKELIHOODS, PROGRAMS, RANKING_LOSS, SOME_NOISE, case

__all__ = ["LIKELIHOODS", "PROGRAMS", "RANKING_LOSS", "SOME_NOISE", "WAYS", "case"]

NAMES = (*PROGRAMS, RANKING_LOSS, SOME_NOISE, *LIKELIHOODS)
# Engine, what it does with hyperparameters, and its options. The first four are to be calibrated.
WAYS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "ep": ("EP", "given", {}),
    "exact": ("Exact", "given", {}),
    "evidence": ("EP", "integrate", {"draws": 100, "warmup": 100}),
    "nuts": ("nuts", "integrate", {}),
    "laplace": ("Laplace", "given", {}),
    "maximize": ("EP", "maximize", {}),
    "svi": ("svi", "integrate", {}),
}

_TITLES = {
    "ep": "EP",
    "exact": "Exact",
    "evidence": "EP, integrated",
    "nuts": "NUTS",
    "laplace": "Laplace",
    "maximize": "EP, maximised",
    "svi": "SVI",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=list(WAYS), help="(default: all)"
    )
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--key", type=int, default=0)
    parser.add_argument("--scheduler", help="where, as of relpref sbc (default: one by one)")
    parser.add_argument(
        "--kept", action="store_true", help="simulate nothing, show what the folder has"
    )
    parser.add_argument("--out", type=Path, default=Path("calibration"))
    args = parser.parse_args()
    names = args.names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    args.out.mkdir(parents=True, exist_ok=True)
    found = {}
    for way in args.ways:
        for name in names:
            relation = name.startswith("conditional")
            only = {RANKING_LOSS: "exact", SOME_NOISE: "evidence"}.get(name, way)
            instead = (way, name) == ("evidence", "conditional_ranking")
            if (way == "exact" and not relation) or way != only or instead:
                continue
            file = args.out / f"{name.replace(' ', '-').replace(',', '')}-{way}.jsonl"
            number = min(args.simulations, _kept(file)) if args.kept else args.simulations
            if not number:
                continue
            calibration = found[name, way] = calibrated(name, way, number, file, args)
            print(
                f"{name}: {calibration.name}. {calibration.sentence}", file=sys.stderr, flush=True
            )
    table = pd.DataFrame([_row(*key, calibration) for key, calibration in found.items()])
    table.to_csv(args.out / "calibration.csv", index=False)
    text = _markdown(table)
    (args.out / "calibration.md").write_text(text, encoding="utf-8")
    _picture(found, args.out / "calibration.svg")
    print(text)


def _kept(file: Path) -> int:
    """Whole simulations in a file."""
    return max(0, file.read_bytes().count(b"\n") - 1) if file.exists() else 0


def calibrated(name: str, way: str, simulations: int, file: Path, args: argparse.Namespace) -> Any:
    """One cell of the table, going on where it was left."""
    from relpref import infer
    from relpref.diagnostics import calibrate

    program, arguments, keywords = case(name)
    named, hyperparameters, options = WAYS[way]
    engine: Any = getattr(infer, named, named)
    return calibrate(
        program,
        *arguments,
        engine=engine,
        hyperparameters=hyperparameters,
        simulations=simulations,
        rng_key=args.key,
        engine_options=options,
        file=file,
        scheduler=args.scheduler,
        **keywords,
    )


def _row(name: str, way: str, calibration: Any) -> dict[str, Any]:
    return {
        "program or likelihood": name,
        "engine": calibration.name.split(", ", 1)[1],
        "simulations": len(calibration.pit),
        "not converged": calibration.not_converged,
        "p": calibration.p_value(),
        **{f"{percent} %": calibration.coverage(percent / 100)[0] for percent in (50, 80, 95)},
        "within 3 errors": "yes" if _covered(calibration) else "no",
    }


def _covered(calibration: Any) -> bool:
    """Whether all three coverages are within three binomial standard errors."""
    each = [(level, *calibration.coverage(level)) for level in (0.5, 0.8, 0.95)]
    return all(abs(share - level) <= 3 * error for level, share, error in each)


def _markdown(table: pd.DataFrame) -> str:
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    for row in table.itertuples(index=False):
        cells = [_cell(cell) for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _picture(found: dict[Any, Any], path: Path) -> None:
    """A panel for each program or likelihood, a curve for each way; hyperparameters are left
    out.
    """
    from relpref.diagnostics import Calibration
    from relpref.diagnostics.calibration import draw

    panels = {}
    for name in dict.fromkeys(name for name, _ in found):
        ways = {way: calibration for (one, way), calibration in found.items() if one == name}
        pits = {_TITLES[way]: calibration.pit for way, calibration in ways.items()}
        panels[name] = Calibration(pits, next(iter(ways.values())).results)
    draw(panels, path)


if __name__ == "__main__":
    main()
