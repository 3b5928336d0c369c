"""The faults of tools/mutate.py have their text in the sources."""

import ast
import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "mutate.py"))


@pytest.mark.parametrize("mutant", TOOL["MUTANTS"], ids=lambda mutant: mutant.old)
def test_a_mutant_changes_one_place_into_other_code(mutant: tuple[str, ...]) -> None:
    path = TOOL["find"](mutant)  # refuses a text that is not in the room, or there twice
    text = path.read_text(encoding="utf-8")
    _, old, new, _ = mutant
    changed = ast.parse(text.replace(old, new))
    assert ast.dump(changed) != ast.dump(ast.parse(text))
