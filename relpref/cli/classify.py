"""``relpref classify``: predict the group behind each ballot."""

from argparse import Namespace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd

from relpref.cli.output import given, say, show_table
from relpref.data import Rankings
from relpref.data.arrays import Array, counted, shown
from relpref.data.labels import is_missing
from relpref.data.rankings import read_ballots
from relpref.data.tables import Table, read_table
from relpref.errors import DataError
from relpref.runs import copied, save_run

_FOLDS = 5


def run(chosen: Namespace) -> None:
    """Classify the ballots of rankers without a class, and save the posterior.

    Where every ranker has a class, each ballot is classified by those of other rankers. The
    posterior is that of all ballots with a class.
    """
    tables = copied({"ballots": Path(chosen.ballots), "classes": Path(chosen.classes)})
    ballots = _ballots(chosen)
    class_of = _classes(read_table(chosen.classes, encoding=chosen.encoding), ballots)
    training = np.flatnonzero([ranker in class_of for ranker in ballots.rankers])
    new = np.setdiff1d(np.arange(len(ballots)), training)
    classes = np.array([class_of[ballots.rankers[row]] for row in training], dtype=object)
    names = sorted(set(classes))
    from relpref.classifiers import RankingGPClassifier

    classifier = RankingGPClassifier(chosen.kernel, random_state=chosen.seed)
    if len(new):
        classifier.fit(ballots[training], classes)
        rows, probabilities = new, classifier.predict_proba(ballots[new])
    else:
        rows, probabilities = training, _left_out(classifier, ballots, classes, chosen.seed)
        classifier.fit(ballots[training], classes)
    predicted = np.array(names, dtype=object)[np.argmax(probabilities, axis=1)]
    share = None if len(new) else np.mean(predicted == classes)
    save_run(
        chosen.out,
        classifier.posterior_,
        tables,
        command="classify",
        model="ranking_classifier",
        seed=chosen.seed,
        options=given(chosen, "kernel", "incomplete"),
        replace=chosen.force,
    )
    table = pd.DataFrame(probabilities, columns=[f"p({name})" for name in names])
    table.insert(0, "ranker", [ballots.rankers[row] for row in rows])
    table.insert(1, "class", predicted)
    table = table.head(chosen.top)
    columns = [(name, f"{{{name}}}") for name in ("ranker", "class")]
    columns += [(name, f"{{{name}:.2f}}") for name in table.columns[2:]]
    show_table(chosen, "ballots", table, columns, left=(0, 1), right=share)
    if chosen.speaks:
        if share is not None:
            say(
                f"\nEach was classified by the ballots of others: {share:.0%} of "
                f"{counted(len(rows), 'ballot')} correctly"
            )
        say(f"The run is in {chosen.out}: try relpref report {quote(chosen.out)}")


def _ballots(chosen: Namespace) -> Rankings:
    """Rankings of a PrefLib file or of a table."""
    ballots = read_ballots(chosen.ballots, chosen.incomplete)
    if ballots is not chosen.ballots:
        return ballots
    return Rankings.from_table(read_table(ballots, encoding=chosen.encoding))


def _classes(table: Table, ballots: Rankings) -> dict[Any, str]:
    """Classes by ranker; rankers without a class are absent."""
    if len(table.frame.columns) != 2:
        raise DataError(
            f"{table.name}: there are {len(table.frame.columns)} columns; give two, the ranker and "
            "the class"
        )
    printed = {str(ranker): ranker for ranker in ballots.rankers}
    classes: dict[Any, str] = {}
    for row, (ranker, label) in enumerate(table.frame.itertuples(index=False)):
        if str(ranker) not in printed:
            raise DataError(
                f"{table.place(row)}: {shown(ranker)} gave no ballot; correct the label, or drop "
                "the row"
            )
        if not is_missing(label) and str(label):
            classes[printed[str(ranker)]] = str(label)
    return classes


def _left_out(classifier: Any, ballots: Rankings, classes: Array, seed: int) -> Array:
    """Probabilities of the classes by the ballots of other rankers, in folds of rankers."""
    from sklearn.model_selection import GroupKFold

    names = sorted(set(classes))
    rankers, labels = pd.factorize(pd.Index(ballots.rankers, tupleize_cols=False))
    if len(labels) < 2:
        raise DataError(
            f"all ballots are by {shown(labels[0])}; give the ballots of a ranker without a class"
        )
    folds = GroupKFold(min(_FOLDS, len(labels)), shuffle=True, random_state=seed)
    probabilities = np.zeros((len(classes), len(names)))
    for rest, out in folds.split(classes, groups=rankers):
        classifier.fit(ballots[rest], classes[rest])
        columns = np.array([names.index(name) for name in classifier.classes_])
        probabilities[np.ix_(out, columns)] = classifier.predict_proba(ballots[out])
    return probabilities
