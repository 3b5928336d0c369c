"""Print the lowest versions of the direct dependencies, as constraints for pip.

    python tools/lowest.py > lowest.txt && pip install -c lowest.txt -e '.[test]'

They are read from pyproject.toml: what `relpref` needs, and what its extras for users and for tests
need.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("parquet", "dask", "web", "test")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)(;.*)?")
_FLOOR = re.compile(r">=\s*([0-9][0-9.]*)")


def floors(project: dict[str, object]) -> dict[str, str]:
    """The lowest version of each dependency, the largest where it is named twice.

    Parameters
    ----------
    project : dict
        The table ``project`` of pyproject.toml.

    Raises
    ------
    ValueError
        If a dependency has no lower bound anywhere.
    """
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]  # type: ignore
    found: dict[str, list[str]] = {}
    for line in named:
        match = _REQUIREMENT.fullmatch(line)
        if match is None:
            raise ValueError(f"pyproject.toml: {line!r} is no requirement")
        name, versions, _ = match.groups()
        if name != project["name"]:
            found.setdefault(name, []).extend(_FLOOR.findall(versions))
    for name, versions in found.items():
        if not versions:
            raise ValueError(f"pyproject.toml: {name} has no lower bound; write {name}>=VERSION")
    return {name: max(versions, key=_numbers) for name, versions in found.items()}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def main() -> None:
    """Print them."""
    file = Path(__file__).parents[1] / "pyproject.toml"
    for name, version in floors(tomllib.loads(file.read_text(encoding="utf-8"))["project"]).items():
        sys.stdout.write(f"{name}=={version}\n")


if __name__ == "__main__":
    main()
