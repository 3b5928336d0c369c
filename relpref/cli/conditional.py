"""``relpref conditional fit | rank``: rank objects for a given node."""

from argparse import Namespace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import pandas as pd

from relpref.cli.output import document, given, say
from relpref.cli.rank import labels, opened, show
from relpref.data.arrays import counted, listed, nearest, shown
from relpref.data.items import read_item_table
from relpref.data.tables import read_table
from relpref.errors import DataError, InferenceError
from relpref.runs import copied, save_run

if TYPE_CHECKING:
    from relpref.infer import RelationPosterior
    from relpref.infer.exact.domain import Domain

_FOLDS = 5


def fit(chosen: Namespace) -> None:
    """Learn from a relation, and save the run."""
    files = given(chosen, "nodes", "objects", "relation")
    tables = copied({name: Path(file) for name, file in files.items()})
    read = partial(_table, encoding=chosen.encoding, kernel=chosen.kernel)
    nodes = read(chosen.nodes)
    objects = None if chosen.objects is None else read(chosen.objects)
    table = read_table(chosen.relation, encoding=chosen.encoding)
    from relpref.rls import ConditionalRanker, ConditionalRankerCV

    regularizations = chosen.regularization or [None]
    ranker = ConditionalRanker(
        **given(chosen, "kernel", "standardize", "gamma", "degree"),
        **given(chosen, "loss", "symmetry", "condition"),
        regularization=regularizations[0],
        random_state=chosen.seed,
    )
    problem = ranker.problem(nodes, table, objects)  # checks the tables
    described = _description(nodes, objects, len(table.frame), chosen.kernel)
    if chosen.speaks:
        say(f"Read: {described}")
    concordances = {}
    if len(regularizations) > 1:
        size = len(problem.nodes.labels)
        if size < 2:
            raise DataError(
                "--regularization: several values are compared by leaving conditioning nodes out, "
                "and there is only one node; give one value"
            )
        search = ConditionalRankerCV(
            ranker,
            regularizations=regularizations,
            cv="row",
            folds=min(_FOLDS, size),
            random_state=chosen.seed,
        ).fit(nodes, table, objects, progress_bar=not chosen.quiet)
        ranker = search.ranker_
        concordances = dict(zip(regularizations, search.scores_.tolist(), strict=True))
        if chosen.speaks:
            scores = ", ".join(f"{score:.3f} at {value:g}" for value, score in concordances.items())
            say(f"Concordance of the rankings for nodes left out: {scores}")
    else:
        ranker.solve(problem, progress_bar=not chosen.quiet)
    posterior = ranker.posterior_
    result = posterior.result
    if not result.ok:
        raise InferenceError(
            "the fit did not converge, and nothing was written: residual "
            f"{posterior.info['residual']:.1e} after {posterior.info['iterations']} iterations; "
            "take a larger --regularization",
            result,
        )
    used = ranker.get_params() | {"regularization": ranker.regularization_}
    options = {name: value for name, value in used.items() if value is not None}
    save_run(
        chosen.out,
        posterior,
        tables,
        command="conditional fit",
        model="conditional_ranking",
        seed=chosen.seed,
        options=options,
        replace=chosen.force,
    )
    if chosen.json:
        left_out = [
            {"regularization": value, "concordance": score} for value, score in concordances.items()
        ]
        document(
            chosen,
            seed=chosen.seed,
            data={"description": described, "nodes": len(nodes), "labels": len(table.frame)},
            options=options,
            left_out=left_out,
            log_evidence=posterior.log_evidence,
            hyperparameters=posterior.hyperparameters,
            info=posterior.info,
        )
    if chosen.speaks:
        how = "" if chosen.regularization else ", chosen by the evidence"
        say(f"Fitted: {posterior!r}, regularization {ranker.regularization_:.4g}{how}")
        query = quote(str(posterior.nodes.labels[0]))
        say(f"The run is in {chosen.out}: try relpref conditional rank {quote(chosen.out)} {query}")


def _description(nodes: pd.DataFrame, objects: pd.DataFrame | None, edges: int, kernel: str) -> str:
    """Summary of the tables in one line."""
    features = "kernel values" if kernel == "precomputed" else "features"
    parts = [f"{counted(len(nodes), 'node')} with {nodes.shape[1]} {features}"]
    if objects is not None:
        parts.append(f"{counted(len(objects), 'object')} with {objects.shape[1]}")
    pairs = len(nodes) * len(nodes if objects is None else objects)
    return ", ".join([*parts, f"{counted(edges, 'label')} of {pairs:,} pairs"])


def rank(chosen: Namespace) -> None:
    """Rank the objects of a run."""
    posterior = opened(chosen.run, "relation")
    objects = _new(chosen.new_objects, posterior.objects, chosen.encoding)
    query = _query(chosen, posterior)
    ranking = posterior.ranking(query, objects, interval=chosen.interval).head(chosen.top)
    show(chosen, ranking, "score", query=chosen.query, interval=chosen.interval)


def _query(chosen: Namespace, posterior: "RelationPosterior") -> Any:
    """Label of a node of the run, or the features of a new node."""
    nodes = posterior.nodes.labels
    new = _new(chosen.new, posterior.nodes, chosen.encoding)
    if new is not None and chosen.query in new.index:
        return new.loc[[chosen.query]]
    (label,) = labels(nodes, [chosen.query])
    if label in nodes:
        return label
    candidates = nodes if new is None else tuple(new.index)
    close = listed(nearest(chosen.query, candidates))
    hint = f"nearest: {close}" if close else f"there are {listed(candidates, 3)}"
    remedy = (
        "give the features of new nodes with --new" if new is None else f"{chosen.new} has others"
    )
    raise DataError(
        f"{chosen.run}: no {posterior.nodes.name} {shown(chosen.query)} is known; {hint}; {remedy}"
    )


def _new(file: str | None, domain: "Domain", encoding: str | None) -> pd.DataFrame | None:
    """Features of new nodes, if there are any, with the columns of the nodes of the run."""
    if file is None:
        return None
    if getattr(domain.kernel, "kernel", None) == "precomputed":
        raise DataError(
            f"{file}: the run was fitted to a kernel matrix, which has no values for new "
            f"{domain.name}s; fit to features, or include new {domain.name}s in the matrix "
            "without labels"
        )
    frame = _table(file, encoding)
    if repeated := set(frame.index) & set(domain.labels):
        raise DataError(
            f"{file}: {listed(sorted(repeated, key=str)[:3])} is in the run already; a new "
            f"{domain.name} needs another name"
        )
    expected = set(domain.feature_names or ())
    if missing := sorted(expected - set(frame.columns)):
        raise DataError(
            f"{file}: there is no column {missing[0]!r}, which the known {domain.name}s have; add "
            "it"
        )
    if extra := sorted(set(frame.columns) - expected):
        raise DataError(
            f"{file}: the column {extra[0]!r} is not used, the known {domain.name}s lack it; "
            "remove it"
        )
    return frame


def _table(file: str, encoding: str | None, kernel: str = "") -> pd.DataFrame:
    """Features by label; the header of a kernel matrix repeats the labels."""
    items = read_item_table(read_table(file, encoding=encoding))
    if not items.attribute_names:
        raise DataError(
            f"{file}: there are labels and nothing else; add numeric columns that describe them"
        )
    index = pd.Index(items.index().labels, tupleize_cols=False)
    frame = pd.DataFrame(items.attributes, index=index, columns=list(items.attribute_names))
    if kernel == "precomputed" and (odd := sorted(set(frame.index) ^ set(frame.columns))):
        raise DataError(
            f"{file}: a kernel matrix has the same labels in its rows and columns, and "
            f"{listed(odd, 3)} is in one of them only; complete it, or use another --kernel"
        )
    return frame
