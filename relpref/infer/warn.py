"""Warnings that point at the user's own line."""

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


class InferenceWarning(UserWarning):
    """An answer comes from an inference that did not converge."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, blaming the first caller outside this package."""
    level = 1
    while (
        sys._getframe(level).f_code.co_filename.startswith(_PACKAGE)
        and sys._getframe(level).f_back is not None
    ):
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)
