"""Take the documentation's picture of the page that asks, from the running program.

Usage: python tools/screenshot.py [FILE]     (default docs/ask.png; needs playwright and a Chromium)

Fits a run on the dishes beside this file, lets somebody with a taste of their own answer seventeen
questions, and opens the page.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from relpref.ask import Loop
from relpref.cli import main

HERE = Path(__file__).parent
TASTE = {"spicy": 1.6, "sweet": -0.7, "savoury": 1.0, "rich": -0.9, "fresh": 1.8}
SIZE = {"width": 1200, "height": 770}


def make_run(folder: Path) -> Path:
    """Fit a run on the dishes and two answers."""
    dishes = pd.read_csv(HERE / "dishes.csv", index_col="dish")
    dishes.drop(columns="text").to_csv(folder / "entities.csv")
    answers = pd.DataFrame({"winner": ["Ceviche", "Pho"], "loser": ["Waffles", "Cheese fondue"]})
    answers.to_csv(folder / "comparisons.csv", index=False)
    run = folder / "dishes"
    if main(["fit", "--folder", str(folder), "--out", str(run), "--quiet"]):
        raise SystemExit("the dishes could not be fitted")
    return run


def answer(run: Path, number: int) -> None:
    """Answer questions by a taste, with noise."""
    dishes = pd.read_csv(HERE / "dishes.csv", index_col="dish")
    liking = sum(weight * dishes[name] for name, weight in TASTE.items())
    rng = np.random.default_rng(1)
    with Loop.open(run, show=HERE / "dishes.csv") as loop:
        for _ in range(number):
            question = loop.question("anna")
            assert question is not None
            gap = liking[question.first] - liking[question.second] + 0.3 * rng.standard_normal()
            loop.answer(question.id, "first" if gap > 0 else "second", "anna")
        loop.refine()


@contextmanager
def page_of(run: Path) -> Iterator[str]:
    """Run ``relpref ask --web``; yields the address of the page."""
    command = [
        sys.executable,
        "-u",
        "-m",
        "relpref",
        "ask",
        str(run),
        "--web",
        "--rater",
        "anna",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            yield next(line.split()[-1] for line in program.stdout if line.startswith("Answer at "))
        finally:
            program.send_signal(signal.SIGINT)
            program.communicate()


def take(address: str, file: Path) -> None:
    """Open the page and take its picture."""
    from playwright.sync_api import sync_playwright

    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if browser is None:
        raise SystemExit("no Chromium is installed")
    with sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport=SIZE)
        page.goto(address)
        page.wait_for_selector(".worth")
        page.screenshot(path=file)
        chromium.close()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "docs" / "ask.png"
    with tempfile.TemporaryDirectory() as folder:
        made = make_run(Path(folder))
        answer(made, 17)
        with page_of(made) as address:
            take(address, target)
    print(f"The picture is in {target}")
