"""The numbers and reports of twelve small fits, compared with those that were written down earlier.

A change of the code's shape must not move them. After a change that is meant to move them, write
them anew and look at the diff:

    python tests/test_frozen.py --write                 all numbers and all reports
    python tests/test_frozen.py --write reports         the texts of the reports alone
    python tests/test_frozen.py --write numbers dual    the numbers of one fit
"""

import difflib
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
import pandas as pd
import pytest
from jax.sharding import Mesh

from relpref import PreferenceData, Rankings, RelationData, report
from relpref.diagnostics import leave_one_out
from relpref.explore import next_pairs
from relpref.infer import (
    EP,
    ClassPosterior,
    Exact,
    Laplace,
    RelationPosterior,
    UtilityPosterior,
    from_samples,
)
from relpref.infer.large import fit as large
from relpref.kernels import SquaredExponential
from relpref.models import (
    conditional_ranking,
    edge_landmarks,
    kronecker_classifier,
    ranking_classifier,
)
from relpref.models import xpgp as with_defaults

# The numbers are older than the linear part of the default kernel.
xpgp = partial(with_defaults, attribute_kernel=SquaredExponential())
FOLDER = Path(__file__).parent / "frozen"
ITEMS = [f"i{row}" for row in range(11)]
QUIET = {"progress_bar": False}
# What closed forms and fixed points at fixed hyperparameters reproduce, relative plus absolute.
EXACTLY = 1e-10
SEARCHED = 1e-6  # hyperparameters are at the end of a search
SOLVED = 1e-7  # solutions of an iterative solver
FIXED: dict[str, Any] = {
    "attributes_amplitude": 1.2,
    "attributes_lengthscale": [0.9, 1.6],
    "cites_amplitude": 0.8,
    "cites_range": 0.7,
    "individual_amplitude": 0.6,
}
RELATION = {"attributes_amplitude": 1.2, "attributes_lengthscale": [0.9, 1.3], "noise": 0.4}


def preferences(count: int = 25) -> PreferenceData:
    """Items with two attributes on a ring with chords, and answers, some of which were given
    twice.
    """
    rng = np.random.default_rng(11)
    number = len(ITEMS)
    items = pd.DataFrame(rng.standard_normal((number, 2)), index=ITEMS, columns=["x", "y"])
    pairs = [(row, (row + 1) % number) for row in range(number)] + [(0, 4), (2, 7), (5, 9)]
    links = pd.DataFrame([(ITEMS[i], ITEMS[j]) for i, j in pairs], columns=["source", "target"])
    links["weight"] = rng.uniform(0.5, 2.0, len(links))
    asked = np.array([(i, j) for i in range(number) for j in range(i)])
    asked = asked[rng.permutation(len(asked))[:count]]
    gap = items["x"].to_numpy()[asked[:, 0]] - items["x"].to_numpy()[asked[:, 1]]
    wins = gap + 0.6 * rng.standard_normal(count) > 0
    ends = np.where(wins[:, None], asked, asked[:, ::-1])
    answers = pd.DataFrame(
        {"winner": [ITEMS[i] for i in ends[:, 0]], "loser": [ITEMS[i] for i in ends[:, 1]]}
    )
    answers["count"] = rng.choice([1, 1, 1, 2], count)
    return PreferenceData.from_tables(items, answers, {"cites": links})


def utilities(engine: Any, data: PreferenceData | None = None) -> Any:
    return engine.run(0, preferences() if data is None else data, **QUIET)


def dense() -> Any:
    return utilities(EP(xpgp, hyperparameters="maximize", space="latent"))


def dual() -> Any:
    return utilities(EP(xpgp, fixed=FIXED, space="observation", tol=1e-12), preferences(9))


def reduced() -> Any:
    return utilities(EP(xpgp, fixed=FIXED, structure="sparse", tol=1e-12), preferences(9))


def sparse() -> Any:
    """Posterior of more compared items than fit into a matrix."""
    with mock.patch.object(large, "MAX_REDUCED_ITEMS", 0):
        return utilities(EP(xpgp, fixed=FIXED, structure="sparse", tol=1e-12), preferences(9))


def mixture() -> Any:
    rng = np.random.default_rng(13)
    draws = {
        name: np.asarray(value) * np.exp(0.1 * rng.standard_normal((9, *np.shape(value))))
        for name, value in FIXED.items()
    }
    engine = EP(xpgp, tol=1e-12)
    return engine.run_at_draws(
        draws, 0, preferences(), prior_log_weights=np.log(np.linspace(0.5, 1.5, 9) / 9)
    )


def draws() -> Any:
    rng = np.random.default_rng(14)
    samples: dict[str, Any] = {
        name: np.asarray(value) * np.exp(0.1 * rng.standard_normal((60, *np.shape(value))))
        for name, value in FIXED.items()
    }
    samples["utility"] = np.linspace(1.0, -1.0, len(ITEMS)) + 0.3 * rng.standard_normal(
        (60, len(ITEMS))
    )
    return from_samples(samples, xpgp, preferences())


def laplace() -> Any:
    return utilities(Laplace(xpgp, fixed=FIXED, tol=1e-12))


def relation(complete: bool) -> RelationData:
    """Scores of six nodes for each other, or of most of them."""
    rng = np.random.default_rng(15)
    nodes = pd.DataFrame(
        rng.standard_normal((6, 2)), index=[f"n{row}" for row in range(6)], columns=["x", "y"]
    )
    labels = rng.standard_normal((6, 6))
    if not complete:
        labels[rng.random((6, 6)) < 0.25] = np.nan
    return RelationData.from_tables(nodes, labels)


def closed() -> Any:
    return Exact(conditional_ranking, fixed=RELATION).run(0, relation(True), **QUIET)


def iterative() -> Any:
    return Exact(conditional_ranking, fixed=RELATION, tol=1e-13).run(0, relation(False), **QUIET)


def sharded() -> Any:
    mesh = Mesh(np.array(jax.devices()[:1]), ("device",))
    return Exact(conditional_ranking, fixed=RELATION, tol=1e-13, mesh=mesh).run(
        0, relation(True), **QUIET
    )


def rankings() -> Rankings:
    rng = np.random.default_rng(16)
    fruits = np.array(["apple", "kiwi", "lime", "pear"])
    orders = [fruits[rng.permutation(4)].tolist() for _ in range(14)]
    labels = ["abc"[fruits.tolist().index(order[0]) % 3] for order in orders]
    found = Rankings.from_orders(
        orders, items=fruits.tolist(), rankers=[f"r{row}" for row in range(14)]
    )
    return found.with_labels(labels)


def of_rankings() -> Any:
    engine = EP(ranking_classifier, fixed={"amplitude": 1.5}, tol=1e-12)
    return engine.run(0, rankings(), **QUIET)


def of_edges() -> Any:
    rng = np.random.default_rng(17)
    nodes = pd.DataFrame(rng.normal(size=(5, 2)), index=list("abcde"), columns=["x", "y"])
    others = pd.DataFrame(rng.normal(size=(3, 2)), index=list("uvw"), columns=["x", "y"])
    labels = (nodes["x"].to_numpy()[:, None] * others["y"].to_numpy() > 0).astype(float)
    labels[np.arange(5), [2, 0, 1, 2, 1]] = np.nan
    data = RelationData.from_tables(nodes, labels, others)
    fixed = {
        "amplitude": 1.8,
        "attributes_lengthscale": [1.1, 0.7],
        "object_attributes_lengthscale": [0.6, 1.4],
    }
    lengthscales = {name: value for name, value in fixed.items() if name != "amplitude"}
    landmarks = edge_landmarks(data, 7, values=lengthscales)
    return EP(kronecker_classifier, fixed=fixed, tol=1e-12).run(
        0, data, landmarks=landmarks, **QUIET
    )


class Fit(NamedTuple):
    """A function that makes a posterior, and the tolerances of its numbers."""

    make: Callable[[], Any]
    tolerance: float


FITS = {
    "dense": Fit(dense, SEARCHED),
    "dual": Fit(dual, EXACTLY),
    "reduced": Fit(reduced, EXACTLY),
    "sparse": Fit(sparse, SOLVED),
    "mixture": Fit(mixture, EXACTLY),
    "draws": Fit(draws, EXACTLY),
    "laplace": Fit(laplace, EXACTLY),
    "closed": Fit(closed, EXACTLY),
    "iterative": Fit(iterative, SOLVED),
    "sharded": Fit(sharded, SOLVED),
    "ranking_classifier": Fit(of_rankings, EXACTLY),
    "kronecker_classifier": Fit(of_edges, EXACTLY),
}


@cache
def fitted(name: str) -> Any:
    return FITS[name].make()


def table(frame: Any) -> dict[str, Any]:
    """Columns by name, with the rows' labels."""
    frame = frame.to_frame() if isinstance(frame, pd.Series) else frame
    columns = {"rows": [str(label) for label in frame.index]} if frame.index.name else {}
    return columns | {
        " ".join(map(str, name)) if isinstance(name, tuple) else str(name): frame[name].tolist()
        for name in frame
    }


def held_out(posterior: Any) -> dict[str, Any]:
    found = leave_one_out(posterior)
    return {
        "elpd": found.elpd,
        "elpd_se": found.elpd_se,
        "log_score": found.table["log_score"].tolist(),
    }


def numbers(name: str) -> dict[str, Any]:
    """Everything that is frozen of a fit but its report."""
    posterior = fitted(name)
    pairs = [("i0", "i1"), ("i2", "i5"), ("i4", "i3")]
    found: dict[str, Any] = {
        "log_evidence": posterior.log_evidence,
        "hyperparameters": {
            site: np.asarray(value).tolist() for site, value in posterior.hyperparameters.items()
        },
        "info": {
            key: posterior.info.get(key)
            for key in ("engine", "result", "space", "structure", "solver")
        },
    }
    if isinstance(posterior, UtilityPosterior):
        found |= {
            "mean": posterior.mean().tolist(),
            "sd": posterior.sd().tolist(),
            "covariance": posterior.covariance()[0].tolist(),
            "ranking": table(posterior.ranking()),
            "prefer": table(posterior.prefer(pairs)),
            "explain": table(posterior.explain()),
            "next_pairs": table(next_pairs(posterior, 3)),
        }
    elif isinstance(posterior, RelationPosterior):
        nodes = list(posterior.nodes.labels)
        found |= {
            "mean": table(posterior.mean()),
            "sd": table(posterior.sd()),
            "ranking": table(posterior.ranking(nodes[1])),
            "prefer": table(
                posterior.prefer(nodes[1], [(nodes[0], nodes[2]), (nodes[3], nodes[5])])
            ),
        }
    elif isinstance(posterior, ClassPosterior):
        found |= {
            "mean": {site: posterior.mean(site=site).tolist() for site in posterior.slices},
            "sd": {site: posterior.sd(site=site).tolist() for site in posterior.slices},
            "predict_proba": table(posterior.predict_proba()),
            "latent": table(posterior.latent()),
        }
    return found | {"leave_one_out": held_out(posterior)}


# Rows of the report that say how far a solver went, which rounding decides.
ROUNDED = ("Residual", "Gradient", "Evaluations", "Log prior", "Sweeps", "Jitter", "Iterations")


class Words(HTMLParser):
    """The text of a page, a paragraph or a table's row for each line, without pictures."""

    SILENT = ("head", "svg", "style")
    LINES = ("p", "li", "tr", "h1", "h2", "caption", "figcaption")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.words: list[str] = []
        self.silent = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.silent += tag in self.SILENT

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in self.SILENT
        if tag in ("td", "th"):
            self.words.append(" | ")
        if tag in self.LINES and (line := " ".join("".join(self.words).split()).strip(" |")):
            self.lines.append(line)
        if tag in self.LINES:
            self.words.clear()

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.words.append(data)


def text(name: str) -> list[str]:
    """The report without pictures and versions, sentence by sentence."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page = report.write(fitted(name), Path(folder) / "report.html").read_text("utf-8")
    lines = Words(page).lines
    lines = [line for line in lines[: lines.index("Versions")] if not line.startswith(ROUNDED)]
    ends = re.compile(r"(?<=[a-z0-9)%][.]) (?=[A-Z])")
    return [
        sentence for line in lines for sentence in ([line] if "|" in line else ends.split(line))
    ]


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Lists of leaves by their path."""
    if isinstance(value, Mapping):
        return {
            name: leaf
            for key in value
            for name, leaf in flat(value[key], f"{path}.{key}".strip(".")).items()
        }
    return {path: value if isinstance(value, list) else [value]}


def compare(found: Any, frozen: Any, tolerance: float) -> None:
    """Numbers within the tolerance, relative plus absolute; anything else equal."""
    found, frozen = flat(found), flat(frozen)
    assert found.keys() == frozen.keys()
    for path, expected in frozen.items():
        if all(isinstance(value, int | float) for value in expected):
            np.testing.assert_allclose(
                found[path], expected, rtol=tolerance, atol=tolerance, err_msg=path
            )
        else:
            assert found[path] == expected, path


@pytest.mark.parametrize("name", FITS)
def test_numbers(name: str) -> None:
    frozen = json.loads((FOLDER / f"{name}.json").read_text())
    compare(numbers(name), frozen, FITS[name].tolerance)


@pytest.mark.parametrize("name", FITS)
def test_report(name: str) -> None:
    frozen = (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    difference = "\n".join(
        difflib.unified_diff(frozen, text(name), "frozen", "now", lineterm="", n=1)
    )
    assert not difference, f"the report changed; if that is intended, write it anew:\n{difference}"


def test_a_number_that_moves_is_noticed() -> None:
    frozen = json.loads((FOLDER / "dual.json").read_text())
    compare(frozen, frozen, EXACTLY)
    for moved in (
        {"log_evidence": frozen["log_evidence"] + 1e-8},
        {"mean": [x + 1e-9 for x in frozen["mean"]]},
    ):
        with pytest.raises(AssertionError, match=next(iter(moved))):
            compare(frozen | moved, frozen, EXACTLY)


def write(what: list[str]) -> None:
    """Freeze the numbers and reports of all fits, or of those named."""
    named = [name for name in what if name in FITS] or list(FITS)
    both = not {"numbers", "reports"} & set(what)
    FOLDER.mkdir(exist_ok=True)
    for name in named:
        if both or "numbers" in what:
            lines = json.dumps(numbers(name), indent=1, ensure_ascii=False)
            lines = re.sub(
                r"\[[^\[\]{}]*\]",
                lambda found: re.sub(r"\s+", " ", found[0]).replace("[ ", "[").replace(" ]", "]"),
                lines,
            )
            (FOLDER / f"{name}.json").write_text(lines + "\n")
        if both or "reports" in what:
            (FOLDER / f"{name}.txt").write_text("\n".join(text(name)) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit(__doc__)
    write(sys.argv[2:])
