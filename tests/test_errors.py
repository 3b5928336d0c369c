import copy
import pickle
from typing import Any

import pytest

from relpref import errors


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (errors.DataError, (errors.RelprefError, ValueError)),
        (errors.UnknownLabelError, (errors.DataError, KeyError, ValueError)),
        (errors.UnsupportedProgramError, (errors.RelprefError, TypeError)),
        (errors.StorageError, (errors.RelprefError, OSError)),
        (errors.ClusterError, (errors.RelprefError, RuntimeError)),
    ],
)
def test_hierarchy_and_plain_text(error: Any, bases: Any) -> None:
    raised = error("a plain 'message'")
    assert isinstance(raised, bases)
    assert str(raised) == "a plain 'message'"
    assert str(pickle.loads(pickle.dumps(raised))) == str(raised)


def test_inference_error_keeps_its_result_through_pickle() -> None:
    raised = errors.InferenceError("did not converge", "max_iterations")
    copies: list[Any] = [raised, pickle.loads(pickle.dumps(raised)), copy.copy(raised)]
    for again in copies:
        assert issubclass(type(again), RuntimeError)
        assert (str(again), again.result) == ("did not converge", "max_iterations")


@pytest.mark.parametrize("kind", [errors.DataError, errors.UnknownLabelError, errors.StorageError])
def test_what_a_message_quotes_may_be_of_any_length(kind: Any) -> None:
    cell = str(kind(f"answers.csv, line 3: {'x' * 70_000!r} is no label; correct it"))
    assert cell.startswith("answers.csv, line 3: 'xxx") and cell.endswith("is no label; correct it")
    assert len(cell) < 300
    words = str(kind(f"answers.csv, line 3: {'many words ' * 7000} is no label; correct it"))
    assert words.startswith("answers.csv, line 3: many") and words.endswith(
        "is no label; correct it"
    )
    assert len(words) < 2000
    assert str(kind("word " * 399)) == "word " * 399
