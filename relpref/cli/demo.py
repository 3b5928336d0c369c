"""``relpref demo``: fits bundled real data and says what its relation adds."""

import argparse
import textwrap
from pathlib import Path
from shlex import quote

import pandas as pd

from relpref.cli import demo_words as words
from relpref.cli.fit import sizes
from relpref.cli.output import document, say, table
from relpref.data.messages import counted
from relpref.demo import ALONE, HELD_OUT, KERNEL, RELATION, Experiment, Outcome, fit, prepare
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
    _paragraph(f"{words.ABOUT} {words.split(experiment)}")
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
    _paragraph(words.predictions(outcome))
    _paragraph(words.evidence(outcome))
    _paragraph(words.ERRORS)
    say("")
    ranked = [
        (str(name), f"{row['mean']:+.2f}", f"{row['lower']:+.2f} to {row['upper']:+.2f}")
        for name, row in outcome.modes().iterrows()
    ]
    say(table(("mode", "mean utility", f"{words.share()} interval"), ranked))
    _paragraph(words.SAMPLE)
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
                f"{words.ABOUT} {words.split(outcome.experiment)}",
                words.predictions(outcome),
                words.evidence(outcome),
            ),
            table=numbers,
            note=words.ERRORS,
        ),
        Section(
            "Mode by mode",
            (
                "The average utility of a mode's 210 alternatives, less that of all, by the model with the relation.",
            ),
            table=modes,
            note=f"{words.share()} intervals. {words.SAMPLE}",
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
