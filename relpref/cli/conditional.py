"""``relpref conditional fit | rank``: objects ranked for a given node, from a partly known relation."""

import argparse
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import pandas as pd

from relpref.cli.output import document, say
from relpref.cli.rank import labels, opened, show
from relpref.data.arrays import counted, listed, nearest, shown
from relpref.data.items import read_item_table
from relpref.data.tables import read_table
from relpref.errors import DataError, InferenceError
from relpref.runs import check_target, copied, save_run

if TYPE_CHECKING:
    from relpref.infer import RelationPosterior
    from relpref.infer.exact.domain import Domain

_FOLDS = 5


def run(chosen: argparse.Namespace) -> None:
    {"fit": _fit, "rank": _rank}[chosen.action](chosen)


def _fit(chosen: argparse.Namespace) -> None:
    speaks = not chosen.json and not chosen.quiet
    check_target(chosen.out, replace=chosen.force, how="--force replaces it")
    files = {"nodes": chosen.nodes, "objects": chosen.objects, "relation": chosen.relation}
    given = copied({name: Path(file) for name, file in files.items() if file is not None})
    nodes = _table(chosen.nodes, chosen.kernel)
    objects = None if chosen.objects is None else _table(chosen.objects, chosen.kernel)
    table = read_table(chosen.relation)
    from relpref.rls import ConditionalRanker, ConditionalRankerCV

    same = ("kernel", "gamma", "degree", "loss", "symmetry", "condition")
    ranker = ConditionalRanker(
        **{name: getattr(chosen, name) for name in same},
        standardize=not chosen.no_standardize,
        regularization=chosen.regularization[0] if chosen.regularization else None,
        random_state=chosen.seed,
    )
    problem = ranker.problem(
        nodes, table, objects
    )  # refuses what does not fit before anything is said
    described = _description(nodes, objects, len(table.frame), chosen.kernel)
    if speaks:
        say(f"Read: {described}")
    concordances = {}
    if len(chosen.regularization or ()) > 1:
        size = len(problem.nodes.labels)
        if size < 2:
            raise DataError(
                "--regularization: a choice leaves conditioning nodes out, and there is one; give "
                "one value"
            )
        search = ConditionalRankerCV(
            ranker,
            regularizations=chosen.regularization,
            cv="row",
            folds=min(_FOLDS, size),
            random_state=chosen.seed,
        ).fit(nodes, table, objects, progress_bar=not chosen.quiet)
        ranker = search.ranker_
        concordances = dict(zip(chosen.regularization, search.scores_.tolist(), strict=True))
        if speaks:
            found = ", ".join(f"{score:.3f} at {value:g}" for value, score in concordances.items())
            say(f"Conditioning nodes left out were ranked with the concordance {found}")
    else:
        ranker.solve(problem, progress_bar=not chosen.quiet)
    posterior = ranker.posterior_
    result = posterior.result
    if not result.ok:
        raise InferenceError(
            "the fit did not converge, and nothing was written: residual "
            f"{posterior.info['residual']:.1e} after "
            f"{posterior.info['iterations']} iterations; take a larger --regularization",
            result,
        )
    used = ranker.get_params() | {"regularization": ranker.regularization_}
    options = {name: value for name, value in used.items() if value is not None}
    save_run(
        chosen.out,
        posterior,
        given,
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
    elif speaks:
        how = "" if chosen.regularization else ", chosen by the evidence"
        say(f"Fitted: {posterior!r}, regularization {ranker.regularization_:.4g}{how}")
        query = quote(str(posterior.nodes.labels[0]))
        say(f"The run is in {chosen.out}: try relpref conditional rank {quote(chosen.out)} {query}")


def _description(nodes: pd.DataFrame, objects: pd.DataFrame | None, edges: int, kernel: str) -> str:
    """What was read, in one line."""
    what = "kernel values" if kernel == "precomputed" else "features"
    parts = [f"{counted(len(nodes), 'node')} with {nodes.shape[1]} {what}"]
    if objects is not None:
        parts.append(f"{counted(len(objects), 'object')} with {objects.shape[1]}")
    pairs = len(nodes) * len(nodes if objects is None else objects)
    return ", ".join([*parts, f"{counted(edges, 'label')} of {pairs:,} pairs"])


def _rank(chosen: argparse.Namespace) -> None:
    posterior = opened(chosen.run, "relation")
    objects = None if chosen.new_objects is None else _new(chosen.new_objects, posterior.objects)
    ranking = posterior.ranking(_query(chosen, posterior), objects, interval=chosen.interval).head(
        chosen.top
    )
    show(chosen, ranking, ("object", "score"), query=chosen.query, interval=chosen.interval)


def _query(chosen: argparse.Namespace, posterior: "RelationPosterior") -> Any:
    """A known label, or the one row of a new node."""
    known = posterior.nodes.labels
    new = None if chosen.new is None else _new(chosen.new, posterior.nodes)
    if new is not None and chosen.query in new.index:
        return new.loc[[chosen.query]]
    (label,) = labels(known, [chosen.query])
    if label in known:
        return label
    candidates = known if new is None else tuple(new.index)
    meant = listed(nearest(chosen.query, candidates))
    hint = f"nearest: {meant}" if meant else f"there are {listed(candidates, 3)}"
    remedy = (
        "give the features of new nodes with --new" if new is None else f"{chosen.new} has others"
    )
    raise DataError(
        f"{chosen.run}: no {posterior.nodes.name} {shown(chosen.query)} is known; {hint}; {remedy}"
    )


def _new(file: str, domain: "Domain") -> pd.DataFrame:
    """Features of new nodes, in the columns of the known ones."""
    if getattr(domain.kernel, "kernel", None) == "precomputed":
        raise DataError(
            f"{file}: the run was fitted to a kernel matrix, which knows its own {domain.name}s "
            "only; fit to features, or include new "
            f"{domain.name}s in the matrix without labels"
        )
    frame = _table(file)
    if known := set(frame.index) & set(domain.labels):
        raise DataError(
            f"{file}: {listed(sorted(known, key=str)[:3])} was known to the run already; a new "
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


def _table(file: str, kernel: str = "") -> pd.DataFrame:
    """Features by label; a kernel matrix has the labels in its header, too."""
    read = read_item_table(read_table(file))
    if not read.attribute_names:
        raise DataError(
            f"{file}: there are labels and nothing else; add numeric columns that describe them"
        )
    index = pd.Index(read.index().labels, tupleize_cols=False)
    frame = pd.DataFrame(read.attributes, index=index, columns=list(read.attribute_names))
    if kernel == "precomputed" and (odd := sorted(set(frame.index) ^ set(frame.columns))):
        raise DataError(
            f"{file}: a kernel matrix has the same labels in its rows and columns, and "
            f"{listed(odd, 3)} is in one of them only; "
            "complete it, or use another --kernel"
        )
    return frame
