"""The lowest versions that pyproject.toml allows, from which `make test-lowest` makes an
environment.
"""

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def lowest() -> Any:
    spec = importlib.util.spec_from_file_location("lowest", ROOT / "tools" / "lowest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_dependency_has_a_lowest_version(lowest: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = lowest.floors(project)
    # jax 0.10.0 lacks erfcx; older h5py writes the time into every file.
    assert {"jax": "0.10.1", "h5py": "3.15", "numpyro": "0.22"}.items() <= found.items()
    assert {"pyarrow", "distributed", "starlette", "pytest"} <= set(found)
    assert "relpref" not in found


def test_the_larger_of_two_bounds_counts_and_none_is_refused(lowest: Any) -> None:
    project = {"name": "p", "dependencies": ["a[x]>=1.9,<3; python_version < '3.12'"]}
    extras = {"parquet": ["a>=1.10"], "dask": [], "web": ["p[dask]"], "test": ["b-c>=2"]}
    assert lowest.floors(project | {"optional-dependencies": extras}) == {"a": "1.10", "b-c": "2"}
    with pytest.raises(ValueError, match="d has no lower bound"):
        lowest.floors(project | {"optional-dependencies": extras | {"web": ["d"]}})
