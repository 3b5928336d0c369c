import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data files."""
    folder = os.environ.get("RELPREF_DATA")
    if not folder:
        pytest.skip("RELPREF_DATA is not set: there are no real data files to read")
    return Path(folder)
