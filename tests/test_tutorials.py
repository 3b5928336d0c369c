"""Every tutorial is in the form that the documentation executes; some are executed here, too, so
that every Python runs them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))
HEADER = """\
# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # """
EXECUTED = ("extending", "quickstart", "rock_paper_scissors")


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda tutorial: tutorial.stem)
def test_form(tutorial: Path) -> None:
    text = tutorial.read_text(encoding="utf-8")
    compile(text, str(tutorial), "exec")
    assert text.startswith(HEADER)
    lessons = text.partition("# ## What was learned\n")[2]
    assert len(re.findall(r"^# \* ", lessons, flags=re.MULTILINE)) >= 3
    # Pictures appear on the page; a backend or a file of the tutorial's own would hide them.
    assert text.count("plt.show()") >= 2
    assert "matplotlib.use(" not in text and "savefig(" not in text


def test_every_tutorial_is_in_the_index() -> None:
    index = (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(\.\./tutorials/(\w+)\.py\)", index)
    assert sorted(listed) == [tutorial.stem for tutorial in TUTORIALS]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXECUTED)
def test_tutorial_runs_without_a_warning(name: str, tmp_path: Path) -> None:
    places = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    environment = os.environ | {"MPLBACKEND": "agg", "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tutorials" / f"{name}.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
