"""Take the README's picture of a report, from the demo's page.

Usage: python tools/report_picture.py [FILE]     (default docs/report.png; needs playwright and a Chromium)
"""

import shutil
import sys
import tempfile
from pathlib import Path

from relpref.cli import main

SIZE = {"width": 900, "height": 1180}
SCALE = 4 / 3  # so that letters are sharp where the picture is shown smaller: 1200 pixels wide


def take(report: Path, file: Path) -> None:
    """Open the page and take the picture of its head."""
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise SystemExit("no Chromium is installed")
    with sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport=SIZE, device_scale_factor=SCALE, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.screenshot(path=file)
        chromium.close()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "report.png"
    with tempfile.TemporaryDirectory() as folder:
        if main(["demo", "--out", folder + "/demo", "--quiet"]):
            raise SystemExit("the demo did not run")
        take(Path(folder) / "demo" / "report.html", target)
    print(f"The picture is in {target}")
