"""``relpref demo``: fits bundled real data and says what its relation adds."""

import argparse
import math
import textwrap
from pathlib import Path
from shlex import quote
from typing import Any

import pandas as pd

from relpref.cli.fit import sizes
from relpref.cli.output import document, say, table
from relpref.data.arrays import counted
from relpref.demo import (
    ALONE,
    HELD_OUT,
    INTERVAL,
    KERNEL,
    RELATION,
    SHUFFLED,
    Experiment,
    Outcome,
    fit,
    prepare,
)
from relpref.report import Section, write
from relpref.runs import REPORT, TABLES, Copy, check_target, is_run_of, save_run

_WIDTH = 100


def run(chosen: argparse.Namespace) -> None:
    """Fit, print, write the report and the run."""
    out = Path(chosen.out)
    # An earlier demo can always be made again; a run of somebody's own cannot.
    replace = is_run_of(out, "demo")
    check_target(out, replace=replace, how="the demo does not replace it")
    experiment = prepare(chosen.seed)
    speaks = not chosen.json and not chosen.quiet
    if speaks:
        _introduce(experiment)
    outcome = fit(experiment, chosen.seed, progress_bar=not chosen.quiet)
    save_run(
        out,
        outcome.posterior,
        _tables(experiment),
        command="demo",
        model="xpgp",
        seed=chosen.seed,
        options={"restarts": 1, "attribute_kernel": repr(KERNEL), "held_out": HELD_OUT},
        replace=replace,
        report=lambda path: _report(outcome, path),
    )
    if chosen.json:
        document(_for_machines(outcome, chosen.seed, out))
    elif speaks:
        _tell(outcome, out)


def _introduce(experiment: Experiment) -> None:
    data = experiment.data[RELATION]
    _paragraph(f"{ABOUT} {split(experiment)}")
    say(f"Read: {data.describe()}")
    say("")


def _tell(outcome: Outcome, out: Path) -> None:
    rows = [
        (
            str(name),
            f"{row['log_loss']:.3f}",
            "" if name == ALONE else f"{row['gain']:+.3f} ± {row['gain_se']:.3f}",
            f"{row['log_evidence']:.1f}",
        )
        for name, row in outcome.table().iterrows()
    ]
    say(table(("model", "log loss, held out", "gain over attributes", "log evidence"), rows))
    say("")
    _paragraph(predictions(outcome))
    _paragraph(evidence(outcome))
    _paragraph(ERRORS)
    say("")
    ranked = [
        (str(name), f"{row['mean']:+.2f}", f"{row['lower']:+.2f} to {row['upper']:+.2f}")
        for name, row in outcome.modes().iterrows()
    ]
    say(table(("mode", "mean utility", f"{share()} interval"), ranked))
    _paragraph(SAMPLE)
    say("")
    first = outcome.experiment.held_out.iloc[0]
    name = quote(str(out))
    say(f"Try: relpref rank {name} --top 5, or relpref prefer {name} {first['winner']} {first['loser']}")
    say(f"Answer some questions yourself: relpref ask {name}, or relpref ask {name} --web")
    say(f"The report is in {out / REPORT}")


def _paragraph(text: str) -> None:
    say(textwrap.fill(text, _WIDTH, break_on_hyphens=False))


def _report(outcome: Outcome, path: Path) -> None:
    numbers = outcome.table().reset_index()
    numbers.columns = pd.Index(
        ["Model", "Log loss, held out", "Gain over attributes", "Its standard error", "Log evidence"]
    )
    modes = outcome.modes().reset_index()
    modes.columns = pd.Index(["Mode", "Mean utility", "Standard deviation", "Lower", "Upper"])
    sections = (
        Section(
            "What the relation adds",
            (
                f"{ABOUT} {split(outcome.experiment)}",
                predictions(outcome),
                evidence(outcome),
            ),
            table=numbers,
            note=ERRORS,
        ),
        Section(
            "Mode by mode",
            (
                "The average utility of a mode's 210 alternatives, less that of all, by the model with the relation.",
            ),
            table=modes,
            note=f"{share()} intervals. {SAMPLE}",
        ),
    )
    # The usual comparison of evidences would credit the relation with what the shuffled one explains, too.
    write(
        outcome.posterior, path, title="How 210 people travelled", sections=sections, relations_evidence=False
    )


def _tables(experiment: Experiment) -> tuple[Copy, ...]:
    choices = experiment.choices
    tables = {"entities": choices.entities.to_csv(), "comparisons": experiment.learned.to_csv(index=False)}
    tables |= {f"relations/{name}": links.to_csv(index=False) for name, links in choices.relations.items()}
    return tuple(Copy(f"{TABLES}/{name}.csv", f"{name}.csv", text.encode()) for name, text in tables.items())


def _for_machines(outcome: Outcome, seed: int, out: Path) -> dict[str, object]:
    models = outcome.table().reset_index().to_dict("records")
    for model in models:
        model["hyperparameters"] = outcome.hyperparameters(model["model"])
    return {
        "command": "demo",
        "run": str(out),
        "report": str(out / REPORT),
        "seed": seed,
        "data": {"description": outcome.posterior.data.describe(), **sizes(outcome.posterior.data)},
        "held_out": {
            "travellers": len(outcome.losses),
            "comparisons": len(outcome.experiment.held_out),
            "note": f"{counted(3, 'comparison')} of one traveller are one choice; standard errors are over travellers",
        },
        "models": models,
        "modes": outcome.modes().reset_index().to_dict("records"),
    }


ABOUT = (
    "210 travellers between Sydney, Canberra and Melbourne chose among air, train, bus and car (1987, public domain). "
    "Every traveller's four alternatives are entities; the attributes are times and cost, and the relation joins alternatives of "
    "the same mode whose travellers are alike in income and party."
)
ERRORS = (
    "Log loss: per comparison of a traveller held out; a coin toss has 0.693. ±: one standard error, over travellers: "
    "the three comparisons of one choice are not independent."
)
SAMPLE = "The sample was drawn by mode, so this is no market share."


def split(outcome_or_experiment: Any) -> str:
    """How many travellers were learned from."""
    held = outcome_or_experiment.held_out
    traveller = outcome_or_experiment.choices.traveller
    number = traveller.loc[held["winner"]].nunique()
    return (
        f"{traveller.nunique() - number} travellers to learn from; {number} held out, whose alternatives are known, "
        "but not their choice."
    )


def predictions(outcome: Outcome) -> str:
    """What the relation does for the travellers that were held out."""
    table = outcome.table()
    real, control = table.loc[RELATION], table.loc[SHUFFLED]
    words = f"Held out, the relation {_changes(real['gain'])} {_size(real)}, {_strength(real)}."
    if _score(control) < 2:
        return f"{words} Shuffled, it {_changes(control['gain'])} {_size(control)}, {_strength(control)}, as it should be."
    return (
        f"{words} But shuffled, it {_changes(control['gain'])} {_size(control)}, {_strength(control)}: "
        "whatever does that is not who resembles whom."
    )


def evidence(outcome: Outcome) -> str:
    """What the log evidence says, and how much of it is not about the relation at all."""
    found = outcome.table()["log_evidence"]
    real, control = found[RELATION] - found[ALONE], found[SHUFFLED] - found[ALONE]
    words = f"Log evidence: {real:+.1f} nats by the relation, {control:+.1f} by the shuffled one"
    if control > max(real, 0) / 2:
        words += ", so that the evidence alone does not tell the two apart"
    return f"{words}. Who resembles whom: {real - control:+.1f} nats."


def share() -> str:
    """The probability of the intervals, in words."""
    return f"{100 * INTERVAL:g} %"


def _score(row: Any) -> float:
    return abs(row["gain"]) / row["gain_se"] if row["gain_se"] > 0 else math.inf


def _changes(gain: float) -> str:
    return "saves" if gain >= 0 else "costs"


def _size(row: Any) -> str:
    return f"{abs(row['gain']):.3f} ± {row['gain_se']:.3f} nats a comparison"


def _strength(row: Any) -> str:
    score = _score(row)
    if score < 1:
        return "which is nothing"
    if score < 2:
        return "which may well be chance"
    return "more than chance explains"
