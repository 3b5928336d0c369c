"""Posteriors from netCDF files: read back without pickle, without the program, and byte for byte the same when saved again."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from relpref.data.arrays import listed, shown
from relpref.errors import StorageError
from relpref.infer.large.covariance import Conditioned, ImplicitBelief, Unknown
from relpref.infer.large.fit import low_rank_parts
from relpref.infer.large.problem import LargeProblem
from relpref.infer.large.sparse import SparsePosterior
from relpref.infer.relation_posterior import RelationPosterior
from relpref.posterior.base import Posterior
from relpref.posterior.classes import ClassPosterior
from relpref.posterior.codec import OLDEST, SCHEMA, checksum, dump, positions, read, sparse_matrix
from relpref.posterior.utility import UtilityPosterior


def load(path: str | os.PathLike[str], *, program: Any = None) -> Posterior | RelationPosterior:
    """Read a posterior that `Posterior.save` or `RelationPosterior.save` wrote.

    Nothing that the file names is imported or called: programs, kernels and likelihoods are those of the package and those given to
    `relpref.register`, and their arguments are checked against the types they declare.

    Parameters
    ----------
    path : path
    program : callable, optional
        The numpyro program that was fitted, where it is your own: a file keeps its arguments and what it was called, not the program.
        Without it, such a posterior answers questions about the items it knows, and cannot be updated.

    Returns
    -------
    Posterior or RelationPosterior
        Of the type that was saved.

    Raises
    ------
    StorageError
        If the file is missing, damaged, not a posterior, or from a newer version.
    """
    arrays, attributes = read(Path(path))
    schema = attributes.get("relpref_schema")
    if schema is None:
        raise StorageError(f"{path} is a netCDF file, but holds no relpref posterior")
    if not isinstance(schema, int | np.integer):
        raise StorageError(f"{path} is damaged: its schema is {shown(schema)}; save the posterior again")
    if schema > SCHEMA:
        raise StorageError(
            f"{path} has schema {schema}; this relpref reads up to {SCHEMA}: install a newer one"
        )
    if schema < OLDEST:
        raise StorageError(
            f"{path} has schema {schema}, from before version 0.1; this relpref reads {OLDEST} to {SCHEMA}: fit again and save"
        )
    if attributes.get("relpref_sha256") != checksum(arrays, str(attributes.get("relpref"))):
        raise StorageError(f"{path} is damaged: its checksum does not fit; save the posterior again")
    try:
        return unpack(arrays, attributes["relpref"], program, int(schema))
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from error


class _Arrays(dict[str, Any]):
    """The arrays of a file, and which of them nobody looked at."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        super().__init__(arrays)
        self.unused = set(arrays)

    def __getitem__(self, name: str) -> Any:
        self.unused.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.unused.discard(name)
        return super().get(name, default)


def unpack(
    arrays: Mapping[str, Any], text: str, program: Any = None, schema: int = SCHEMA
) -> Posterior | RelationPosterior:
    """A posterior from the arrays and the JSON of a file; an error where ``posterior.arrays()`` would not make these."""
    watched = _Arrays(arrays)
    try:
        content = json.loads(text)
        if schema < 3:
            content = _without_individual(content)
        named = {"relation": RelationPosterior, "class": ClassPosterior}
        plain = UtilityPosterior if content.get("data") else Posterior
        kind: type[Posterior | RelationPosterior] = named.get(str(content.get("kind")), plain)
        posterior: Any = kind.from_arrays(watched, content, program)
        if posterior.kind == "utilities" and posterior.belief is None:
            posterior = replace(posterior, belief=_implicit(watched, posterior))
    except StorageError:
        raise
    except Exception as error:  # of a damaged or forged file any part may be anything
        raise StorageError(f"the file is incomplete ({shown(error)}); save the posterior again") from error
    if watched.unused:
        raise StorageError(f"nothing is known of the arrays {listed(sorted(watched.unused))}; it is damaged")
    return posterior


def _without_individual(content: dict[str, Any]) -> dict[str, Any]:
    """What a file of before schema 3 says, with what its programs left unsaid: items had no parts of their own."""
    if not content.get("origin"):
        return content
    origin = json.loads(content["origin"])
    kind, _, name = origin["program"].rpartition(":")
    if kind and name in ("xpgp", "preference_gp"):
        origin["kwargs"]["mapping"].setdefault("individual", False)
    return {**content, "origin": dump(origin)}


def _implicit(arrays: Mapping[str, Any], posterior: UtilityPosterior) -> ImplicitBelief:
    """The distribution of so many utilities that their covariance is evaluated by the prior of their program."""
    location, origin = np.asarray(arrays["mean"]), posterior.origin
    group = "sparse/" if "sparse/weights" in arrays else "dual/"
    weights = arrays[f"{group}weights"]
    if group == "dual/":
        touched = positions(arrays, "dual/touched", len(location))
        projection = sparse_matrix(arrays, group, (len(weights), len(touched)))
    if origin is None:
        return ImplicitBelief(location, Forgotten(len(location)))
    with jax.enable_x64(True):
        values = {name: np.asarray(v, dtype=np.float64) for name, v in posterior.hyperparameters.items()}
        reading = LargeProblem.of(origin.program, origin.args, origin.kwargs).read(values)
        if group == "dual/":
            return ImplicitBelief(location, Conditioned(reading.prior, touched, projection, weights))
        parts, _ = low_rank_parts(reading, arrays["key"])
        sparse = SparsePosterior.at(parts, reading.column, reading.entry, weights)
        return ImplicitBelief(location, sparse)


class Forgotten(Unknown):
    """The prior of a program of one's own, which no file keeps."""

    def _refuse(self, *_: Any) -> Any:
        raise StorageError(
            "the file keeps the means of so many items, but not the program of your own that says how they vary together; fit again"
        )

    block = matmul = row_means = scaled = average = relative_variance = shares = arrays = _refuse  # type: ignore[assignment]
