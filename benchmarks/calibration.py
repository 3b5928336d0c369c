"""Simulation-based calibration of every likelihood: python -m benchmarks.calibration --out calibration

Draws hyperparameters from their priors, utilities and answers from xpgp, hands the hyperparameters to the engine, and looks where the
truth falls. Beside it, fits that maximise their hyperparameters, which are not calibrated by design. Writes a table (Markdown, CSV) and a picture.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ENTITIES, QUESTIONS = 12, 30


def questions(kind: str) -> tuple[Any, dict[str, Any]]:
    """Questions about a dozen entities with two attributes and a chain of links, and the program's options.

    What was answered is not looked at; the columns say which likelihood there is.
    """
    import numpyro.distributions as dist

    import relpref
    from relpref.likelihoods import Logistic

    rng = np.random.default_rng(0)
    names = [f"e{row}" for row in range(ENTITIES)]
    every = [(names[i], names[j]) for i in range(ENTITIES) for j in range(i)]
    pairs = [every[row] for row in rng.choice(len(every), QUESTIONS, replace=False)]
    table = pd.DataFrame(pairs, columns=["winner", "loser"])
    cycle = np.arange(QUESTIONS)
    if kind in ("ties", "strengths and ties"):
        table["tie"] = cycle % 5 == 0
    if kind == "strengths and ties":
        table["strength"] = pd.array(cycle % 3 + 1, dtype="Int64")
        table.loc[table["tie"], "strength"] = pd.NA
    if kind == "probabilities":
        table = table.rename(columns={"winner": "first", "loser": "second"}).assign(probability=0.6)
    if kind == "raters and positions":
        table["rater"] = [f"rater {row}" for row in cycle % 3]
        table["shown_first"] = np.where(cycle % 2 == 0, table["winner"], table["loser"])
    data = relpref.PreferenceData.from_tables(
        pd.DataFrame(rng.standard_normal((ENTITIES, 2)), columns=["x", "y"], index=names),
        table,
        {"next": pd.DataFrame({"source": names[:-1], "target": names[1:]})},
    )
    options: dict[str, Any] = {"likelihood": Logistic()} if kind == "logistic" else {}
    if kind == "probabilities":
        # Gaps beyond 8 noise sds would be reported as a probability that float64 rounds to 1.
        small = {site: dist.HalfNormal(0.7) for site in ("attributes_amplitude", "next_amplitude")}
        options["priors"] = small
    return data, options


KINDS = ("winners", "logistic", "ties", "strengths and ties", "probabilities", "raters and positions")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="kind", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument(
        "--maximised", type=int, default=200, help="fits that maximise their hyperparameters (default: 200)"
    )
    parser.add_argument("--key", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("calibration"))
    args = parser.parse_args()
    if unknown := set(args.kinds) - set(KINDS):
        parser.error(f"unknown kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    found = {}
    for kind in args.kinds or KINDS:
        for name, calibration in _calibrations(kind, args):
            found[kind, name] = calibration
            print(f"{kind}, {name}: p = {calibration.p_value():.4f}", file=sys.stderr, flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame([_row(*key, calibration) for key, calibration in found.items()])
    table.to_csv(args.out / "calibration.csv", index=False)
    text = _markdown(table)
    (args.out / "calibration.md").write_text(text, encoding="utf-8")
    _picture(found, args.out / "calibration.png")
    print(text)


def _calibrations(kind: str, args: argparse.Namespace) -> Any:
    from relpref.diagnostics import calibrate
    from relpref.infer import EP, Laplace
    from relpref.models import xpgp

    data, options = questions(kind)
    for engine in (EP, Laplace):
        yield (
            engine.name,
            calibrate(xpgp, data, engine=engine, simulations=args.simulations, key=args.key, **options),
        )
    if args.maximised:
        yield "EP, maximised", _maximised(data, options, args.maximised, args.key)


def _maximised(data: Any, options: dict[str, Any], number: int, key: int) -> Any:
    """Fits one by one, each finding its own hyperparameters."""
    import jax
    from numpyro import handlers
    from scipy.special import ndtr

    from relpref.diagnostics import Calibration
    from relpref.infer import EP
    from relpref.models import xpgp

    def conditioned(data: Any, answer: Any, **options: Any) -> None:
        with handlers.condition(data={"answer": answer}):
            xpgp(data, **options)

    asked = data.without_answers()
    rng = np.random.default_rng(key)
    pit, results = [], []
    for draw in range(number):
        with jax.enable_x64(True):
            seeded = handlers.seed(xpgp, jax.random.fold_in(jax.random.key(key), draw))
            sites = handlers.trace(seeded).get_trace(asked, **options)
            answer, utility = (np.asarray(sites[name]["value"]) for name in ("answer", "utility"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = EP(conditioned, throw=False).run(draw, asked, answer, progress_bar=False, **options)
            first, second = rng.choice(ENTITIES, 2, replace=False)
            gap = np.zeros((1, ENTITIES))
            gap[0, [first, second]] = 1.0, -1.0
            mean, sd = float(fit.mean(gap)[0]), float(fit.sd(gap)[0])
        pit.append(float(ndtr((utility[first] - utility[second] - mean) / sd)))
        results.append(fit.info["result"])
    return Calibration(np.array(pit), tuple(results))


def _row(kind: str, name: str, calibration: Any) -> dict[str, Any]:
    return {
        "answers": kind,
        "engine": name,
        "simulations": len(calibration.pit),
        "not converged": sum(result != "converged" for result in calibration.results),
        "p": calibration.p_value(),
        **{f"{percent} %": calibration.coverage(percent / 100) for percent in (50, 80, 95)},
    }


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
    """Empirical less uniform distribution of the transforms, with the band that holds 999 of 1000 calibrated curves whole."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kinds = list(dict.fromkeys(kind for kind, _ in found))
    figure = Figure(figsize=(9, 2.6 * -(-len(kinds) // 3)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(-(-len(kinds) // 3), 3, squeeze=False, sharex=True, sharey=True).ravel()
    for axis, kind in zip(axes, kinds, strict=False):
        grid, lower, upper = found[kind, "EP"].band()
        axis.fill_between(grid, lower - grid, upper - grid, color="0.9", lw=0)
        for name, color in (("EP", "C0"), ("Laplace", "C1")):
            pit = np.sort(found[kind, name].pit)
            axis.plot(grid, np.searchsorted(pit, grid, side="right") / len(pit) - grid, color, label=name)
        axis.set_title(kind, fontsize=9)
    for axis in axes[len(kinds) :]:
        axis.set_visible(False)
    axes[0].legend(fontsize=8, frameon=False)
    figure.supxlabel("posterior probability below the truth", fontsize=9)
    figure.supylabel("empirical less uniform", fontsize=9)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
