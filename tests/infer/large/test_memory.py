"""What a fit of many items takes, measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STATUS = Path("/proc/self/status")
MEASURED = """
import json
from pathlib import Path

import numpy as np


def peak():
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


import relpref.explore
from relpref.data_loaders import power_law
from relpref.infer import EP
from relpref.models import xpgp

before = peak()
fixed = {"attributes_amplitude": 1.0, "attributes_lengthscale": 2.0, "attributes_linear_share": 0.5, "links_amplitude": 1.0, "links_range": 1.0}
fixed["individual_amplitude"] = 0.5
data = power_law(20_000, 100_000, 40, attributes=2).data
posterior = EP(xpgp, fixed=fixed).run(0, data)
ranking = posterior.ranking(top=50)
relpref.explore.next_pairs(posterior)
assert len(ranking) == 20_000 and np.all(np.isfinite(ranking["mean"]))
print(json.dumps({"before": before, "peak": peak(), "info": posterior.info["structure"]}))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not STATUS.exists(), reason="the system does not say how much memory a process had"
)
def test_twenty_thousand_items_stay_below_four_gigabytes() -> None:
    # One matrix of all of them would take 3.2 GB.
    done = subprocess.run(
        [sys.executable, "-c", MEASURED], cwd=ROOT, check=True, capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert found["info"] == "sparse"
    assert found["peak"] < 4e9
    assert found["peak"] - found["before"] < 1.2e9
