"""Base of the Gaussian process classifiers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator

from relpref.errors import DataError
from relpref.infer import EP, Laplace
from relpref.infer.engine import GaussianEngine

ENGINES: dict[str, type[GaussianEngine]] = {"ep": EP, "laplace": Laplace}
# Share of the prior variance that landmarks leave out: with a quarter, probabilities are nearly
# those of the exact process.
WARN_VARIANCE_SHARE = 0.3


@dataclass(eq=False, repr=False, kw_only=True)
class GPClassifier(BaseEstimator):
    """Base of classifiers that run a program of a latent function with an engine."""

    link: str = "probit"
    engine: str = "ep"
    fixed: Mapping[str, Any] | None = None
    priors: Mapping[str, Any] | None = None
    random_state: int = 0

    def _checked_fixed(self) -> dict[str, Any]:
        """Check the engine and the fixed values of hyperparameters, and return these."""
        if self.engine not in ENGINES:
            raise DataError(f"engine is {self.engine!r}; it is {' or '.join(map(repr, ENGINES))}")
        fixed = dict(self.fixed or {})
        if "weight" in fixed:
            raise DataError(
                "fixed names weight, which is the latent function itself; fix hyperparameters such "
                "as amplitude, or intercept"
            )
        return fixed

    def _run(
        self,
        program: Callable[..., None],
        data: Any,
        fixed: Mapping[str, Any],
        progress_bar: bool,
        **options: Any,
    ) -> Any:
        engine = ENGINES[self.engine](program, fixed=fixed)
        return engine.run(
            self.random_state, data, link=self.link, progress_bar=progress_bar, **options
        )
