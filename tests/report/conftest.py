from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import PreferenceData
from relpref.errors import DataError
from relpref.infer import UtilityPosterior
from relpref.models import xpgp
from relpref.posterior.base import Parts
from relpref.posterior.gaussian import GaussianBelief
from relpref.posterior.origin import Origin
from relpref.report.blocks import Picture
from relpref.report.page import render

PICTURES = ("forest", "reliability")
VOID = {"meta", "link", "img", "br", "hr", "input", "wbr"}


def make_data(
    labels: Sequence[Any] = "abcdefgh", num_answers: int = 30, **attributes: Any
) -> PreferenceData:
    """Items on a path, compared at random; the last item is never compared."""
    size = len(labels)
    rng = np.random.default_rng(7)
    index = pd.Index(list(labels), dtype=object, tupleize_cols=False)
    columns = attributes or {"size": rng.normal(size=size), "weight": rng.normal(size=size)}
    ends = np.stack([rng.choice(size - 1, 2, replace=False) for _ in range(num_answers)]).astype(
        int
    )
    ends.sort(axis=1)

    def column(positions: Any) -> Any:
        return pd.Series([labels[position] for position in positions], dtype=object)

    answers = pd.DataFrame({"winner": column(ends[:, 0]), "loser": column(ends[:, 1])})
    steps = np.arange(size - 1)
    links = pd.DataFrame({"source": column(steps), "target": column(steps + 1)})
    return PreferenceData.from_tables(pd.DataFrame(columns, index=index), answers, {"near": links})


def make_posterior(data: PreferenceData | None = None, **changes: Any) -> UtilityPosterior:
    """Posterior of given numbers, without an engine."""
    data = make_data() if data is None else data
    size = data.num_items
    means = {"attributes": np.linspace(1.5, -1.0, size), "near": np.linspace(0.5, -1.0, size)}
    root = 0.4 * np.eye(size) + 0.1
    covariance = root @ root.T
    half = np.diag(covariance) / 2
    posterior = UtilityPosterior(
        belief=GaussianBelief(means["attributes"] + means["near"], covariance),
        slices={"utility": slice(0, size)},
        parts={"utility": Parts(means, {"attributes": half, "near": half})},
        hyperparameters={
            "attributes_amplitude": 1.5,
            "attributes_lengthscale": np.linspace(2.0, 0.5, len(data.attribute_names)),
            "near_amplitude": 0.5,
            "near_range": 2.0,
        },
        log_evidence=-12.5,
        info={
            "engine": "EP",
            "result": "converged",
            "iterations": 9,
            "residual": 3e-9,
            "damping": 1.0,
            "space": "latent",
            "log_prior": -4.0,
            "hyperparameters": "maximize",
            "evaluations": 12,
            "gradient_norm": 1e-4,
            "failed_evaluations": 0,
            "jitter": 0.0,
        },
        sites={"precision": np.ones(data.num_comparisons), "shift": np.ones(data.num_comparisons)},
        key=np.array([0, 3], dtype=np.uint32),
        origin=Origin(xpgp, (data,), {}),
        data=data,
    )
    return replace(posterior, **changes)


def refuse_diagnostics(patch: Callable[[str, Any], None]) -> None:
    """Make all diagnostics raise a DataError."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise DataError("it was made by hand")

    for name in ("leave_one_out", "influence", "raters", "certify"):
        patch(f"relpref.report.trust.{name}", refuse)
    patch("relpref.report.trust.Target.of", refuse)
    for name in ("next_pairs", "expected_gain"):
        patch(f"relpref.report.subject.{name}", refuse)


class Page(HTMLParser):
    """Tags and words of a page, as flat lists."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[tuple[str, str]] = []  # tag around, text
        self._open: list[str] = []
        self.feed(text.replace("<wbr>", ""))  # where a line may break
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append((self._open[-1] if self._open else "", data.strip()))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, *tags: str) -> list[str]:
        return [data for name, data in self.words if not tags or name in tags]

    @property
    def prose(self) -> str:
        return " ".join(data for name, data in self.words if name != "style")


@pytest.fixture
def data() -> PreferenceData:
    return make_data()


@pytest.fixture
def posterior() -> UtilityPosterior:
    return make_posterior()


@pytest.fixture
def read() -> Callable[[str], Page]:
    return Page


@pytest.fixture
def prose() -> Callable[..., str]:
    """Write a page and return its words."""

    def words(posterior: Any, **options: Any) -> str:
        text = Page(render(posterior, **({"relations_evidence": False} | options))).prose
        return text.replace("\u2068", "").replace("\u2069", "")

    return words


@pytest.fixture
def make() -> Callable[..., UtilityPosterior]:
    return make_posterior


@pytest.fixture
def tables() -> Callable[..., PreferenceData]:
    return make_data


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace pictures, which take most of the time, by empty ones."""
    for name in PICTURES:
        drawn: Any = Picture('<svg role="img"></svg>')
        monkeypatch.setattr(f"relpref.report.plots.{name}", lambda *_, drawn=drawn, **__: drawn)


@pytest.fixture(autouse=True)
def without_diagnostics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse diagnostics of posteriors without sites; tests of diagnostics set results."""
    refuse_diagnostics(monkeypatch.setattr)
