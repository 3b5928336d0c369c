"""``relpref demo``: fits bundled real data and says what its relation adds."""

import argparse
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.special import ndtri

from relpref.cli.fit import sizes
from relpref.cli.output import document, formatted, say
from relpref.data import PreferenceData
from relpref.data.arrays import counted
from relpref.data_loaders import ModeChoice, load_modechoice
from relpref.data_loaders.bundled import MODES
from relpref.posterior.utility import UtilityPosterior
from relpref.runs import REPORT, TABLES, Copy, check_target, is_run_of, save_run

HELD_OUT = 0.25
INTERVAL = 0.9
ALONE, RELATION, SHUFFLED = "attributes alone", "attributes and relation", "attributes and shuffled relation"
_NOTHING = 1e-6


@dataclass(frozen=True, eq=False)
class Experiment:
    """The bundled tables, the comparisons that are learned from and that are held out, and the data of each model."""

    choices: ModeChoice
    learned: pd.DataFrame
    held_out: pd.DataFrame
    data: dict[str, PreferenceData]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The three fits, by model, and how well each predicts the travelers that were held out."""

    experiment: Experiment
    posteriors: dict[str, UtilityPosterior]

    @property
    def posterior(self) -> UtilityPosterior:
        """That of the model with the relation."""
        return self.posteriors[RELATION]

    def hyperparameters(self, model: str) -> Mapping[str, Any]:
        """Those that were found for a model."""
        values = self.posteriors[model].hyperparameters
        return {name: values[name] for name in values if model != ALONE or not name.startswith("mode_")}

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Mean negative log probability of a held-out traveler's three comparisons: one row each, one column per model."""
        held_out = self.experiment.held_out
        pairs = list(zip(held_out["winner"], held_out["loser"], strict=True))
        each = {
            name: -np.log(posterior.prefer(pairs)["probability"].to_numpy())
            for name, posterior in self.posteriors.items()
        }
        traveler = self.experiment.choices.traveler.loc[held_out["winner"]].to_numpy()
        return pd.DataFrame(each, index=traveler).groupby(level=0).mean()

    def table(self) -> pd.DataFrame:
        """One row per model: ``log_loss``, its ``gain`` over the attributes alone, ``gain_se`` and ``log_evidence``.

        The standard error is that of a mean over travelers: the three comparisons of one traveler are one choice.
        """
        gains = self.losses.rsub(self.losses[ALONE], axis=0)
        evidence = {name: posterior.log_evidence for name, posterior in self.posteriors.items()}
        columns = {
            "log_loss": self.losses.mean(),
            "gain": gains.mean(),
            "gain_se": gains.std(ddof=1) / np.sqrt(len(gains)),
            "log_evidence": pd.Series(evidence),
        }
        return pd.DataFrame(columns).loc[list(self.posteriors)].rename_axis("model")

    def modes(self) -> pd.DataFrame:
        """The average utility of each mode's alternatives less that of all: mean, sd and interval, best first."""
        mode = self.experiment.choices.mode.loc[list(self.posterior.data.labels)].to_numpy()
        weights = np.stack([(mode == name) / np.sum(mode == name) for name in MODES]) - 1 / mode.size
        mean, sd = self.posterior.mean(weights), self.posterior.sd(weights)
        reach = ndtri(0.5 + INTERVAL / 2) * sd
        columns = {"mean": mean, "sd": sd, "lower": mean - reach, "upper": mean + reach}
        table = pd.DataFrame(columns, index=pd.Index(MODES, name="mode"))
        return table.sort_values("mean", ascending=False, kind="stable")


def prepare(seed: int = 0) -> Experiment:
    """Load the tables and hold travelers out."""
    choices = load_modechoice()
    rng = np.random.default_rng(seed)
    everyone = choices.travelers.index.to_numpy()
    held = rng.choice(everyone, size=round(HELD_OUT * everyone.size), replace=False)
    is_held = choices.traveler.loc[choices.answers["winner"]].isin(held).to_numpy()
    learned = choices.answers[~is_held]

    data = PreferenceData.from_tables(choices.items, learned, choices.relations)
    labels = choices.items.index.to_numpy()
    exchanged = pd.Series(rng.permutation(labels), index=labels)
    relations = {
        name: links.apply(lambda end: end.map(exchanged)) for name, links in choices.relations.items()
    }
    shuffled = PreferenceData.from_tables(choices.items, learned, relations)
    versions = {ALONE: data, RELATION: data, SHUFFLED: shuffled}
    return Experiment(choices, learned, choices.answers[is_held], versions)


def fit(experiment: Experiment, seed: int = 0, *, progress_bar: bool = True) -> Outcome:
    """Fit the three models."""
    import jax
    import numpyro.distributions as dist

    from relpref.infer import EP
    from relpref.kernels import SquaredExponential
    from relpref.models import xpgp
    from relpref.models.preference import ADDED_AMPLITUDE_PRIOR

    # One lengthscale: the attributes are those of four modes on two kinds of trips, eight points that cannot tell three.
    kernel = SquaredExponential(shared_lengthscale=True)
    posteriors = {}
    for name, data in experiment.data.items():
        # Leaving the relation out and holding its amplitude at nothing come to the same. This way all three are one program
        # with arrays of equal shapes (the scale of the prior is one of them), and only the first has to wait for the compiler.
        scale = np.asarray(_NOTHING if name == ALONE else ADDED_AMPLITUDE_PRIOR.scale, dtype=np.float64)
        # At the maximum: averaging over hyperparameters of 840 items takes most of a minute, and changes little with so many answers.
        fitted = EP(xpgp, hyperparameters="maximize").run(
            jax.random.key(seed),
            data,
            progress_bar=progress_bar,
            attribute_kernel=kernel,
            priors={"mode_amplitude": dist.HalfNormal(scale)},
        )
        posteriors[name] = cast(UtilityPosterior, fitted)
    return Outcome(experiment, posteriors)


_WIDTH = 100
_SHARE = f"{100 * INTERVAL:g} %"  # the probability of the intervals


def run(chosen: argparse.Namespace) -> None:
    """Fit, print, write the report and the run."""
    out = Path(chosen.out)
    # An earlier demo can always be made again; a run of somebody's own cannot.
    replace = is_run_of(out, "demo")
    check_target(out, replace=replace, how="the demo does not replace it")
    experiment = prepare(chosen.seed)
    speaks = not chosen.json and not chosen.quiet
    if speaks:
        _paragraph(f"{ABOUT} {split(experiment)}")
        say(f"Read: {experiment.data[RELATION].describe()}\n")
    outcome = fit(experiment, chosen.seed, progress_bar=not chosen.quiet)
    assert outcome.posterior.origin is not None  # it was just fitted
    kernel = outcome.posterior.origin.keywords["attribute_kernel"]
    save_run(
        out,
        outcome.posterior,
        _tables(experiment),
        command="demo",
        model="xpgp",
        seed=chosen.seed,
        options={"restarts": 1, "attribute_kernel": repr(kernel), "held_out": HELD_OUT},
        replace=replace,
        report=lambda path: _report(outcome, path),
    )
    if chosen.json:
        _document(chosen, outcome)
    elif speaks:
        _tell(outcome, out)


def _tell(outcome: Outcome, out: Path) -> None:
    models = outcome.table().reset_index().to_dict("records")
    for row in models:
        row["told"] = "" if row["model"] == ALONE else f"{row['gain']:+.3f} ± {row['gain_se']:.3f}"
    columns = [("model", "{model}"), ("log loss, held out", "{log_loss:.3f}")]
    columns += [("gain over attributes", "{told}"), ("log evidence", "{log_evidence:.1f}")]
    say(f"{formatted(columns, models)}\n")
    for text in (predictions(outcome), evidence(outcome), ERRORS):
        _paragraph(text)
    columns = [("mode", "{mode}"), ("mean utility", "{mean:+.2f}")]
    columns.append((f"{_SHARE} interval", "{lower:+.2f} to {upper:+.2f}"))
    say("\n" + formatted(columns, outcome.modes().reset_index().to_dict("records")))
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
    from relpref.report import Section, write

    numbers, modes = outcome.table().reset_index(), outcome.modes().reset_index()
    numbers.columns = pd.Index(
        ["Model", "Log loss, held out", "Gain over attributes", "Its standard error", "Log evidence"]
    )
    modes.columns = pd.Index(["Mode", "Mean utility", "Standard deviation", "Lower", "Upper"])
    about = (f"{ABOUT} {split(outcome.experiment)}", predictions(outcome), evidence(outcome))
    average = (
        "The average utility of a mode's 210 alternatives, less that of all, by the model with the relation."
    )
    sections = (
        Section("What the relation adds", about, table=numbers, note=ERRORS),
        Section("Mode by mode", (average,), table=modes, note=f"{_SHARE} intervals. {SAMPLE}"),
    )
    # The usual comparison of evidences would credit the relation with what the shuffled one explains, too.
    title = "How 210 people traveled"
    write(outcome.posterior, path, title=title, sections=sections, relations_evidence=False)


def _tables(experiment: Experiment) -> tuple[Copy, ...]:
    choices = experiment.choices
    tables = {"entities": choices.items.to_csv(), "comparisons": experiment.learned.to_csv(index=False)}
    tables |= {f"relations/{name}": links.to_csv(index=False) for name, links in choices.relations.items()}
    return tuple(Copy(f"{TABLES}/{name}.csv", f"{name}.csv", text.encode()) for name, text in tables.items())


def _document(chosen: argparse.Namespace, outcome: Outcome) -> None:
    models, data = outcome.table().reset_index().to_dict("records"), outcome.posterior.data
    for model in models:
        model["hyperparameters"] = outcome.hyperparameters(model["model"])
    note = f"{counted(3, 'comparison')} of one traveler are one choice; standard errors are over travelers"
    held_out = {
        "travellers": len(outcome.losses),
        "comparisons": len(outcome.experiment.held_out),
        "note": note,
    }
    document(
        chosen,
        report=str(Path(chosen.out) / REPORT),
        seed=chosen.seed,
        data={"description": data.describe(), **sizes(data)},
        held_out=held_out,
        models=models,
        modes=outcome.modes().reset_index().to_dict("records"),
    )


ABOUT = (
    "210 travelers between Sydney, Canberra and Melbourne chose among air, train, bus and car (1987, public domain). "
    "Every traveler's four alternatives are items; the attributes are times and cost, and the relation joins alternatives of "
    "the same mode whose travelers are alike in income and party."
)
ERRORS = (
    "Log loss: per comparison of a traveler held out; a coin toss has 0.693. ±: one standard error, over travelers: "
    "the three comparisons of one choice are not independent."
)
SAMPLE = "The sample was drawn by mode, so this is no market share."


def split(experiment: Experiment) -> str:
    """How many travelers were learned from."""
    traveler = experiment.choices.traveler
    number = traveler.loc[experiment.held_out["winner"]].nunique()
    return (
        f"{traveler.nunique() - number} travelers to learn from; {number} held out, whose alternatives are known, "
        "but not their choice."
    )


def predictions(outcome: Outcome) -> str:
    """What the relation does for the travelers that were held out."""
    table = outcome.table()
    (_, real), (score, control) = (_told(table.loc[name]) for name in (RELATION, SHUFFLED))
    words = f"Held out, the relation {real}."
    if score < 2:
        return f"{words} Shuffled, it {control}, as it should be."
    return f"{words} But shuffled, it {control}: whatever does that is not who resembles whom."


def _told(row: Any) -> tuple[float, str]:
    """A gain in standard errors, and in words."""
    score = abs(row["gain"]) / row["gain_se"] if row["gain_se"] > 0 else math.inf
    verdict = "which may well be chance" if score < 2 else "more than chance explains"
    if score < 1:
        verdict = "which is nothing"
    does = "saves" if row["gain"] >= 0 else "costs"
    return score, f"{does} {abs(row['gain']):.3f} ± {row['gain_se']:.3f} nats a comparison, {verdict}"


def evidence(outcome: Outcome) -> str:
    """What the log evidence says, and how much of it is not about the relation at all."""
    found = outcome.table()["log_evidence"]
    real, control = found[RELATION] - found[ALONE], found[SHUFFLED] - found[ALONE]
    words = f"Log evidence: {real:+.1f} nats by the relation, {control:+.1f} by the shuffled one"
    if control > max(real, 0) / 2:
        words += ", so that the evidence alone does not tell the two apart"
    return f"{words}. Who resembles whom: {real - control:+.1f} nats."
