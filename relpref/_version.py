"""The version of the package, and those of what its numbers depend on."""

import platform
from functools import cache
from importlib import metadata

__version__ = "0.1.0"


@cache
def versions() -> dict[str, str]:
    """Return the versions that results depend on, by package."""
    packages = ("jax", "jaxlib", "numpyro", "numpy", "scipy")
    python = platform.python_version().rpartition(".")[0]
    installed = {name: metadata.version(name) for name in packages}
    return {"relpref": __version__, "python": python} | installed
