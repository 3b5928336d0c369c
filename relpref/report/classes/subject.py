"""What a page about classes is about: the posterior, its examples and how they are called."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relpref.data import RelationData
from relpref.infer import ClassPosterior
from relpref.report.checked import Checked
from relpref.report.text import clean, shorten


@dataclass(frozen=True)
class Subject:
    """A posterior with what several chapters need of it.

    Parameters
    ----------
    posterior : ClassPosterior
    """

    posterior: ClassPosterior

    @cached_property
    def checked(self) -> Checked:
        """What the diagnostics say."""
        return Checked(self.posterior)

    @cached_property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return [shorten(clean(label)) for label in self.posterior.classes]

    @cached_property
    def label(self) -> NDArray[np.intp]:
        """Class of every example that was learned from, by its position in ``classes``; of edges in both directions, one."""
        data = self.posterior.data
        if isinstance(data, RelationData):
            kept = slice(None) if data.distinct is None else data.distinct
            return (np.asarray(data.values.values)[kept] > 0).astype(np.intp)
        assert data.label is not None  # it was fitted to
        return np.asarray(data.label, dtype=np.intp)

    @property
    def kind(self) -> str:
        """What an example is."""
        return "edge" if isinstance(self.posterior.data, RelationData) else "ranking"

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of the program, as far as they are known."""
        return {} if self.posterior.origin is None else self.posterior.origin.keywords


def example_name(row: dict[str, Any]) -> str:
    """An example within a sentence, from a row of the diagnostics' table."""
    if "source" in row:
        return f"{shorten(clean(row['source']))} – {shorten(clean(row['target']))}"
    return shorten(clean(row["ranker"]))
