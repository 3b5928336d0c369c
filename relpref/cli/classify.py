"""``relpref classify``: which group gave a ballot."""

import argparse
import sys
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd

from relpref.cli.output import document_of_rows, formatted, records, say
from relpref.data import Rankings
from relpref.data.arrays import counted, shown
from relpref.data.labels import is_missing
from relpref.data.rankings import read_ballots
from relpref.data.tables import read_table
from relpref.errors import DataError
from relpref.runs import check_target, copied, save_run

_FOLDS = 5


def run(chosen: argparse.Namespace) -> None:
    """Classify the ballots of rankers without a class; where all have one, each by the ballots of others. Save what was learned from all."""
    check_target(chosen.out, replace=chosen.force, how="--force replaces it")
    given = copied({"ballots": Path(chosen.ballots), "classes": Path(chosen.classes)})
    ballots = _ballots(chosen)
    known = _classes(chosen.classes, ballots)
    taught = np.flatnonzero([ranker in known for ranker in ballots.rankers])
    new = np.setdiff1d(np.arange(len(ballots)), taught)
    classes = [known[ballots.rankers[row]] for row in taught]
    from relpref.classifiers import RankingGPClassifier

    classifier = RankingGPClassifier(chosen.kernel, random_state=chosen.seed)
    share = None
    left_out = None if len(new) else _left_out(classifier, ballots, classes, chosen.seed)
    classifier.fit(ballots[taught], classes)
    if left_out is None:
        chances = classifier.predict_proba(ballots[new])
    else:
        new, chances = taught, left_out
        share = float(
            np.mean(
                [
                    names == label
                    for names, label in zip(_best(classes, chances), classes, strict=True)
                ]
            )
        )
    save_run(
        chosen.out,
        classifier.posterior_,
        given,
        command="classify",
        model="ranking_classifier",
        seed=chosen.seed,
        options={"kernel": chosen.kernel}
        | ({"incomplete": chosen.incomplete} if chosen.incomplete else {}),
        replace=chosen.force,
    )
    names = sorted(set(classes))
    table = pd.DataFrame(chances, columns=[f"p({name})" for name in names])
    table.insert(0, "ranker", [ballots.rankers[row] for row in new])
    table.insert(1, "class", _best(classes, chances))
    table = table.head(chosen.top)
    if chosen.csv:
        table.to_csv(sys.stdout, index=False, lineterminator="\n")
    elif chosen.json:
        document_of_rows(chosen, "ballots", records(table), right=share)
    else:
        columns = [(name, f"{{{name}}}") for name in ("ranker", "class")]
        columns += [(name, f"{{{name}:.2f}}") for name in table.columns[2:]]
        say(formatted(columns, records(table), left=(0, 1)))
        if share is not None:
            say(
                f"\nEach was classified by the ballots of others: {share:.0%} of "
                f"{counted(len(new), 'ballot')} rightly"
            )
        say(f"The run is in {chosen.out}: try relpref report {quote(chosen.out)}")


def _ballots(chosen: argparse.Namespace) -> Rankings:
    read = read_ballots(chosen.ballots, chosen.incomplete)
    return Rankings.from_table(read_table(read)) if read is chosen.ballots else read


def _classes(file: str, ballots: Rankings) -> dict[Any, str]:
    """The class of each ranker that has one."""
    table = read_table(file)
    if len(table.frame.columns) != 2:
        raise DataError(
            f"{file}: there are {len(table.frame.columns)} columns; give two, the ranker and the "
            "class"
        )
    printed = {str(ranker): ranker for ranker in ballots.rankers}
    found: dict[Any, str] = {}
    for row, (ranker, label) in enumerate(table.frame.itertuples(index=False)):
        if str(ranker) not in printed:
            raise DataError(
                f"{table.place(row)}: {shown(ranker)} gave no ballot; correct the label, or drop "
                "the row"
            )
        if not is_missing(label) and str(label):
            found[printed[str(ranker)]] = str(label)
    return found


def _best(classes: list[str], chances: Any) -> list[str]:
    names = sorted(set(classes))
    return [names[at] for at in np.argmax(chances, axis=1)]


def _left_out(classifier: Any, ballots: Rankings, classes: list[str], seed: int) -> Any:
    """Probabilities by the ballots of others, those of one ranker together."""
    names = sorted(set(classes))
    rng = np.random.default_rng(seed)
    rankers = list(dict.fromkeys(ballots.rankers))
    folds = min(_FOLDS, len(rankers))
    fold = dict(zip(rankers, rng.permutation(len(rankers)) % folds, strict=True))
    of_row = np.array([fold[ranker] for ranker in ballots.rankers])
    chances = np.zeros((len(classes), len(names)))
    for number in range(folds):
        rest, out = np.flatnonzero(of_row != number), np.flatnonzero(of_row == number)
        classifier.fit(ballots[rest], [classes[row] for row in rest])
        columns = np.array([names.index(name) for name in classifier.classes_])
        chances[np.ix_(out, columns)] = classifier.predict_proba(ballots[out])
    return chances
