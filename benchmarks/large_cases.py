"""The cases of `benchmarks.large`, each run in a process of its own; says lines of JSON: steps as
they end, and facts.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import note

LINKS = {"links_amplitude": 1.0, "links_range": 1.0}
# At the sizes of the goals, and where somebody wants to see that a case runs.
SIZES: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "million": (
        {"entities": 1_000_000, "links": 11_000_000, "answers": 1000, "top": 1000},
        {"entities": 10_000, "links": 110_000, "answers": 60, "top": 100},
    ),
    "thirty": (
        {"entities": 30_000, "links": 150_000, "answers": 5000, "attributes": 20},
        {"entities": 4500, "links": 22_500, "answers": 100, "attributes": 3},
    ),
    "memory": (
        {"entities": 20_000, "links": 100_000, "answers": 1000, "attributes": 2},
        {"entities": 5000, "links": 25_000, "answers": 60, "attributes": 2},
    ),
    "agreement": (
        {"entities": 2000, "links": 10_000, "answers": 1000, "attributes": 2},
        {"entities": 300, "links": 1500, "answers": 60, "attributes": 2},
    ),
}


def peak_memory() -> int:
    """Bytes that this program had at most.

    Linux keeps that of the program that started this one in ``ru_maxrss``, so it is looked up
    elsewhere there.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def say(**content: Any) -> None:
    print(json.dumps(content), flush=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    seconds = time.perf_counter() - wall
    say(step=name, seconds=seconds, cpu=time.process_time() - cpu, peak=peak_memory())
    note(f"{name}: {seconds:.1f} s")


def imported() -> None:
    with step("imports"):
        import relpref.explore
        import relpref.infer
        import relpref.models  # noqa: F401


def drawn(items: int, links: int, answers: int, attributes: int = 0, **_: int) -> Any:
    from relpref.data_loaders import power_law

    with step("drawing the problem"):
        return power_law(items, links, answers, attributes=attributes)


def fit(data: Any, fixed: dict[str, Any] | None, **options: Any) -> Any:
    from relpref.infer import EP
    from relpref.models import xpgp

    arguments = {name: options.pop(name) for name in ("normalize", "individual") if name in options}
    return EP(xpgp, fixed=fixed, **options).run(0, data, **{"individual": False, **arguments})


def facts_of(posterior: Any) -> None:
    wanted = (
        "space",
        "structure",
        "touched",
        "iterations",
        "scale_error",
        "evaluations",
        "searched_answers",
    )
    info = {name: posterior.info[name] for name in wanted if name in posterior.info}
    say(
        facts=info
        | {name: np.round(v, 4).tolist() for name, v in posterior.hyperparameters.items()}
    )


def million(size: dict[str, int]) -> None:
    """Fixed hyperparameters, a relation and nothing else."""
    from relpref import PreferenceData
    from relpref.explore import next_pairs

    problem = drawn(**size)
    labels, matrix, table = _tables(problem.data)
    utilities = problem.utilities
    del problem
    with step("data from a sparse matrix"):
        data = PreferenceData.from_tables(labels, table, {"links": matrix})
    del matrix
    with step("fit: mean of every item"):
        posterior = fit(data, LINKS)
    with step(f"intervals of the best {size['top']}"):
        ranking = posterior.ranking(top=size["top"])
    assert ranking["mean"].notna().all() and ranking["sd"].notna().sum() == size["top"]
    with step("next question"):
        next_pairs(posterior)
    facts_of(posterior)
    say(facts={"correlation with the utilities": _correlation(posterior, utilities)})


def thirty(size: dict[str, int]) -> None:
    """Everything fitted; the question after an answer, too."""
    from relpref.explore import next_pairs

    problem = drawn(**size)
    with step("fit, hyperparameters found"):
        posterior = fit(problem.data, None)
    with step("intervals of the best 1000"):
        posterior.ranking()
    with step("first question"):
        asked = next_pairs(posterior)
    facts_of(posterior)
    pair = (asked["first"].iloc[0], asked["second"].iloc[0])
    with step("its answer"):
        posterior = posterior.update([pair])
    with step("next question"):
        next_pairs(posterior)
    say(facts={"correlation with the utilities": _correlation(posterior, problem.utilities)})


def memory(size: dict[str, int]) -> None:
    """A sparse graph and two attributes, everything fitted."""
    from relpref.explore import next_pairs

    problem = drawn(**size)
    with step("fit, hyperparameters found"):
        posterior = fit(problem.data, None)
    with step("intervals of the best 1000"):
        posterior.ranking()
    with step("next question"):
        next_pairs(posterior)
    facts_of(posterior)


def scaling(size: dict[str, Any]) -> None:
    """Fixed hyperparameters: what does not depend on the number of items, compilation above all, is
    left out by a small fit before.
    """
    problem = drawn(**size)
    data, structure = problem.data, size["structure"]
    with step("compilation"):
        before = _only_touched(data) if structure == "sparse" else data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nothing ties them together
            fit(before, LINKS, structure=structure).ranking(ranks=False)
    if structure == "dense":  # the graph remembers its spectrum
        labels, matrix, table = _tables(data)
        data = type(data).from_tables(labels, table, {"links": matrix})
    with step("fit and ranking"):
        posterior = fit(data, LINKS, structure=structure)
        posterior.ranking(ranks=False, top=1000)
    facts_of(posterior)


def agreement(size: dict[str, int]) -> None:
    """The same problems with matrices of all items and without."""
    problem = drawn(**size)
    fixed = {**LINKS, "attributes_amplitude": 1.0, "attributes_lengthscale": 2.0}
    for name, known, options in (
        ("nothing approximated", fixed, {"normalize": False}),
        ("scale estimated", fixed, {}),
        ("hyperparameters found", None, {}),
    ):
        found = {}
        for structure in ("dense", "sparse"):
            with step(f"{name}: {structure}"):
                found[structure] = fit(problem.data, known, structure=structure, **options)
        dense, sparse = found["dense"], found["sparse"]
        sd = dense.sd()
        compared = {
            "largest difference of means, sd": float(
                np.max(np.abs(sparse.mean() - dense.mean()) / sd)
            ),
            "largest relative difference of sds": float(np.max(np.abs(sparse.sd() / sd - 1))),
            "difference of log evidence": float(sparse.log_evidence - dense.log_evidence),
        }
        if "normalize" not in options:
            compared["reported relative error of the scale"] = float(
                sparse.info.get("scale_error", 0.0)
            )
        if known is None:
            for site, value in dense.hyperparameters.items():
                both = np.array([value, sparse.hyperparameters[site]])
                compared[f"{site}, dense and sparse"] = " and ".join(
                    str(np.round(one, 3)) for one in both
                )
        say(compared=name, values=compared)


def _correlation(posterior: Any, utilities: Any) -> float:
    return float(np.corrcoef(posterior.mean(), utilities)[0, 1])


def _tables(data: Any) -> tuple[Any, ...]:
    labels = list(data.labels)
    named = np.asarray(labels, dtype=object)
    answers = pd.DataFrame({"winner": named[data.winner], "loser": named[data.loser]})
    answers["count"] = data.count
    return labels, data.relations["links"].adjacency(), answers


def _only_touched(data: Any) -> Any:
    """The same answers among their items alone, on a graph of one link: what is compiled for them
    is compiled for all.
    """
    named = np.asarray(list(data.labels), dtype=object)
    winner, loser = named[data.winner], named[data.loser]
    labels = list(dict.fromkeys([*winner, *loser]))
    answers = pd.DataFrame({"winner": winner, "loser": loser, "count": data.count})
    links = pd.DataFrame({"source": labels[:1], "target": labels[1:2]})
    return type(data).from_tables(labels, answers, {"links": links})


CASES: dict[str, Callable[[dict[str, Any]], None]] = {
    "million": million,
    "thirty": thirty,
    "memory": memory,
    "scaling": scaling,
    "agreement": agreement,
}


if __name__ == "__main__":
    imported()
    CASES[sys.argv[1]](json.loads(sys.argv[2]))
