"""Reader of posteriors in netCDF files; saved again, they have the same bytes."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from relpref.data.arrays import listed, shown
from relpref.errors import StorageError
from relpref.posterior.codec import SCHEMA, checksum, read, registered
from relpref.registry import find


def load(path: str | os.PathLike[str], *, program: Any = None) -> Any:
    """Read the file of a posterior, see `relpref.load`."""
    arrays, attributes = read(Path(path))
    schema = attributes.get("relpref_schema")
    if schema is None:
        raise StorageError(f"{path} is a netCDF file, but holds no relpref posterior")
    if not isinstance(schema, int | np.integer):
        raise StorageError(
            f"{path} is damaged: its schema is {shown(schema)}; save the posterior again"
        )
    if schema > SCHEMA:
        raise StorageError(
            f"{path} has schema {schema}; this relpref reads up to {SCHEMA}: install a newer one"
        )
    if schema < SCHEMA:
        raise StorageError(
            f"{path} has schema {schema}, from before version 0.1; this relpref reads {SCHEMA}: "
            "fit again and save"
        )
    if attributes.get("relpref_sha256") != checksum(arrays, str(attributes.get("relpref"))):
        raise StorageError(
            f"{path} is damaged: its checksum does not fit; save the posterior again"
        )
    try:
        return unpack(arrays, attributes["relpref"], program)
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from error


class _Arrays(dict[str, Any]):
    """The arrays of a file, and which of them were not used."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        super().__init__(arrays)
        self.unused = set(arrays)

    def __getitem__(self, name: str) -> Any:
        self.unused.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.unused.discard(name)
        return super().get(name, default)


def unpack(arrays: Mapping[str, Any], text: str, program: Any = None) -> Any:
    """Posterior from the arrays and the JSON of a file; refuses all that `arrays` cannot make."""
    try:
        content, watched = json.loads(text), _Arrays(arrays)
        cls = registered(("posterior",), f"posterior:{content['kind']}")
        posterior = cls.from_arrays(watched, content, program)
        if posterior.kind == "utilities" and posterior.belief is None:
            belief = find("posterior", "implicit")(watched, posterior)
            posterior = replace(posterior, belief=belief)
    except StorageError:
        raise
    except Exception as error:  # of a damaged or forged file any part may be anything
        raise StorageError(
            f"the file is incomplete ({shown(error)}); save the posterior again"
        ) from error
    if watched.unused:
        raise StorageError(
            f"nothing is known of the arrays {listed(sorted(watched.unused))}; it is damaged"
        )
    return posterior
