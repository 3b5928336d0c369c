"""Print the files and functions of the package that one small fit passes through.

Run it as ``python tools/trace_run.py``, with ``-v`` for the functions of each file. A second,
untraced fit comes first, so that imports are not counted.
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

import relpref
from relpref import PreferenceData
from relpref.infer import EP
from relpref.models import xpgp

ROOT = str(Path(relpref.__file__).parent)


def small_data(answers: int) -> PreferenceData:
    """Twelve items with one attribute and one relation."""
    rng = np.random.default_rng(0)
    names = [f"e{row:02d}" for row in range(12)]
    items = pd.DataFrame({"size": rng.normal(size=12)}, index=names)
    pairs = rng.permuted(np.tile(np.arange(12), (answers, 1)), axis=1)[:, :2]
    comparisons = pd.DataFrame(np.array(names)[pairs], columns=["winner", "loser"])
    links = pd.DataFrame({"source": names, "target": [*names[1:], names[0]]})
    return PreferenceData.from_tables(items, comparisons, relations={"link": links})


def trace(data: PreferenceData) -> tuple[Counter[str], Counter[tuple[str, str]], int]:
    """Count calls by file, calls by function, and changes of file from one call to the next."""
    files: Counter[str] = Counter()
    functions: Counter[tuple[str, str]] = Counter()
    switches, last = 0, ""

    def record(frame: FrameType, event: str, _: Any) -> None:
        nonlocal switches, last
        name = frame.f_code.co_filename
        # Comprehensions are calls of their own up to Python 3.11.
        comprehension = frame.f_code.co_name.endswith(("comp>", "genexpr>"))
        if event != "call" or comprehension or not name.startswith(ROOT):
            return
        file = name[len(ROOT) + 1 :]
        files[file] += 1
        functions[file, f"{frame.f_code.co_qualname}:{frame.f_code.co_firstlineno}"] += 1
        switches += file != last
        last = file

    engine = EP(xpgp)
    sys.setprofile(record)
    try:
        engine.run(0, data, progress_bar=False)
    finally:
        sys.setprofile(None)
    return files, functions, switches


def main() -> None:
    """Print the counts."""
    EP(xpgp, hyperparameters="maximize").run(0, small_data(5), progress_bar=False)
    files, functions, switches = trace(small_data(20))
    if "-v" in sys.argv:
        for file, calls in files.most_common():
            print(f"{calls:6d} {file}")
            for (where, name), times in functions.most_common():
                if where == file:
                    print(f"       {times:6d} {name}")
    print(f"{len(files)} files, {len(functions)} functions, {switches} switches from file to file")


if __name__ == "__main__":
    main()
