"""What `benchmarks.instant` measures, each in a process of its own: python -m
benchmarks.instant_cases CASE [ARGUMENT...].

The CPU seconds of a step are a line of JSON among what is printed. Nothing is imported before it is
needed: the imports of a contestant are part of what its process costs.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.problems import Problem

Run = Callable[[Problem], Any]


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print the CPU seconds that it took, all threads and the system's among them."""
    start = time.process_time()
    yield
    print(json.dumps({"step": name, "cpu": time.process_time() - start}), flush=True)


def relpref(**options: Any) -> Run:
    """The default program and options, but for these; returns the posterior."""
    from benchmarks.ours import data_of
    from relpref.infer import EP
    from relpref.models import xpgp

    def run(problem: Problem) -> Any:
        data = data_of(problem.attributes, problem.comparisons, problem.links)
        with step("fit"):
            return EP(xpgp, **options).run(0, data)

    return run


def _peer(maker: str, **options: Any) -> Run:
    from benchmarks import ours, peers

    contestant = getattr(ours if maker in ("fixed", "fitted") else peers, maker)(**options)

    def run(problem: Problem) -> Any:
        with step("fit"):
            return contestant(problem)

    return run


CONTESTANTS: dict[str, Callable[[], Run]] = {
    "relpref": relpref,
    "relpref, maximize": lambda: relpref(hyperparameters="maximize"),
    "relpref, fixed": lambda: _peer("fixed"),
    "relpref, fitted": lambda: _peer("fitted", shared_lengthscale=True),
    "BoTorch": lambda: _peer("botorch_fitted", own_kernel=True),
    "BoTorch, fixed": lambda: _peer("botorch_fixed"),
    "BoTorch, fitted": lambda: _peer("botorch_fitted", own_kernel=False),
    "choix": lambda: _peer("choix_ep"),
    "kickscore": lambda: _peer("kickscore_ep"),
}


def show(answer: Any) -> None:
    """Print the ranking."""
    if hasattr(answer, "ranking"):
        print(answer.ranking())
        return
    for item in (-answer.mean).argsort():
        print(item, answer.mean[item], answer.sd[item])


def imports(*modules: str) -> None:
    for module in modules:
        importlib.import_module(module)


def ranking(contestant: str, *files: str) -> None:
    """Rank the items of one problem after the other."""
    run = CONTESTANTS[contestant]()
    for file in files:
        show(run(Problem.load(Path(file))))


def warm(contestant: str, *files: str) -> None:
    """The same with the steps apart; the first problem is there for whoever compiles."""
    run = CONTESTANTS[contestant]()
    for file in files:
        problem = Problem.load(Path(file))
        with step("all"):
            show(run(problem))


def save(file: str, target: str) -> None:
    """Fit, and save for `saved`."""
    relpref()(Problem.load(Path(file))).save(target)


def _prefer(posterior: Any) -> Any:
    labels = posterior.data.labels
    return posterior.prefer([(labels[0], labels[1])])


def _next_pairs(posterior: Any) -> Any:
    from relpref.explore import next_pairs

    return next_pairs(posterior, 1)


def _report(posterior: Any) -> Any:
    from relpref.report import write

    with tempfile.TemporaryDirectory() as folder:
        return write(posterior, Path(folder) / "page.html")


def _certificate(posterior: Any) -> Any:
    from relpref.diagnostics import certify

    return certify(posterior).sentence


CALLS: dict[str, Callable[[Any], Any]] = {
    "ranking": lambda posterior: posterior.ranking(),
    "prefer": _prefer,
    "explain": lambda posterior: posterior.explain(),
    "next_pairs": _next_pairs,
    "report": _report,
    "certificate": _certificate,
}


def fitted(call: str, file: str) -> None:
    """The first call in a process that has fitted."""
    posterior = relpref()(Problem.load(Path(file)))
    with step("call"):
        print(CALLS[call](posterior))


def saved(call: str, file: str) -> None:
    """The first call in a process that has read the posterior from a file."""
    import relpref

    posterior = relpref.load(file)
    with step("call"):
        print(CALLS[call](posterior))


def _ranking_classifier(size: int) -> Callable[[], Any]:
    from relpref.classifiers import RankingGPClassifier
    from relpref.data_loaders import rank_dishes

    data = rank_dishes(size, noise=1.0, seed=size)
    return lambda: RankingGPClassifier().fit(data)


def _relation(size: int, seed: int) -> tuple[Any, Any, Any]:
    import numpy as np

    rng = np.random.default_rng(seed)
    nodes, objects = rng.standard_normal((size, 3)), rng.standard_normal((size // 2, 3))
    return nodes, objects, nodes @ objects.T + 0.3 * rng.standard_normal((size, size // 2))


def _edge_classifier(size: int) -> Callable[[], Any]:
    from relpref.classifiers import KroneckerGPClassifier

    nodes, objects, values = _relation(size, size)
    return lambda: KroneckerGPClassifier("gaussian", landmarks=100).fit(
        nodes, (values > 0.0) * 1.0, objects
    )


def _conditional_ranker(size: int) -> Callable[[], Any]:
    from relpref.rls import ConditionalRanker

    nodes, objects, values = _relation(size, size)
    return lambda: ConditionalRanker("gaussian").fit(nodes, values, objects)


def _incomplete(size: int) -> Callable[[], Any]:
    import numpy as np

    from relpref.rls import ConditionalRanker

    nodes, objects, values = _relation(size, size)
    values[np.random.default_rng(size).uniform(size=values.shape) < 0.5] = np.nan
    return lambda: ConditionalRanker("gaussian").fit(nodes, values, objects)


ESTIMATORS: dict[str, tuple[Callable[[int], Callable[[], Any]], int, int]] = {
    "RankingGPClassifier": (_ranking_classifier, 300, 310),
    "KroneckerGPClassifier": (_edge_classifier, 30, 31),
    "ConditionalRanker, complete relation": (_conditional_ranker, 60, 62),
    "ConditionalRanker, half of it known": (_incomplete, 60, 62),
}


def estimator(name: str) -> None:
    """The first fit after the import, the same again, another size, and that again."""
    make, size, other = ESTIMATORS[name]
    for title, number in (
        ("first", size),
        ("again", size),
        ("other", other),
        ("other, again", other),
    ):
        fit = make(number)
        with step(title):
            fit()


def answer(contestant: str, file: str, times: str) -> None:
    """One more answer to a fitted posterior, the first and others."""
    from benchmarks.one_answer import makers

    run = makers(Problem.load(Path(file)))[contestant]()
    for row in range(int(times) + 1):
        with step("again" if row else "first"):
            run((2 * row, 2 * row + 1))


CASES: dict[str, Callable[..., None]] = {
    case.__name__: case for case in (imports, ranking, warm, save, fitted, saved, estimator, answer)
}

if __name__ == "__main__":
    CASES[sys.argv[1]](*sys.argv[2:])
