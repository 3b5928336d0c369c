"""The lowest versions that pyproject.toml allows, from which `make test-lowest` makes an
environment.
"""

import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
floors = runpy.run_path(str(ROOT / "tools" / "lowest.py"))["floors"]


def test_every_dependency_has_a_lowest_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = floors(project)
    # jax 0.10.0 lacks erfcx; older h5py writes the time into every file.
    assert {"jax": "0.10.1", "h5py": "3.15", "numpyro": "0.22"}.items() <= found.items()
    assert {"pyarrow", "distributed", "starlette", "pytest"} <= set(found)
    assert "relpref" not in found


def test_the_larger_of_two_bounds_counts_and_none_is_refused() -> None:
    project = {"name": "p", "dependencies": ["a[x]>=1.9,<3; python_version < '3.12'"]}
    extras = {"parquet": ["a>=1.10"], "dask": [], "web": ["p[dask]"], "test": ["b-c>=2"]}
    assert floors(project | {"optional-dependencies": extras}) == {"a": "1.10", "b-c": "2"}
    with pytest.raises(ValueError, match="d has no lower bound"):
        floors(project | {"optional-dependencies": extras | {"web": ["d"]}})
