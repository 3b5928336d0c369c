"""One program fitted to many problems: queries, users, simulated data sets."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from relpref._version import __version__
from relpref.errors import InferenceError
from relpref.files import made
from relpref.infer.call import preference_data
from relpref.infer.engine import GaussianEngine
from relpref.infer.exact.engine import Exact
from relpref.infer.relation_posterior import RelationPosterior
from relpref.journal import fingerprint
from relpref.parallel import run_all
from relpref.posterior import storage
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import as_key, key_words
from relpref.posterior.origin import Origin
from relpref.posterior.utility import UtilityPosterior

Found = Posterior | RelationPosterior


class _Problem(NamedTuple):
    """The label, arguments and random key of one fit."""

    label: Any
    args: tuple[Any, ...]
    key: NDArray[np.uint32]


def fit_many(
    engine: GaussianEngine | Exact,
    problems: Mapping[Any, Any] | Sequence[Any],
    *,
    rng_key: Any = 0,
    scheduler: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress_bar: bool = True,
    **kwargs: Any,
) -> Iterator[tuple[Any, Found]]:
    """Fit a program to each of many data sets and yield each posterior when it is finished.

    Parameters
    ----------
    engine : EP, Laplace or Exact
        With its program and options. With ``throw=False`` a fit that does not converge does not end
        the others.
    problems : mapping or sequence
        From the label of each problem to its data, a tuple where the program takes several
        arguments; the labels of a sequence are the positions.
    rng_key : JAX key or int
        Each problem has a key derived from this one and its label: a posterior does not depend on
        the other problems.
    scheduler : str, optional
        Where, see `relpref.parallel.run_all`; here, one after the other, by default. The posteriors
        are the same.
    folder : path, optional
        Finished posteriors are saved there, each in a separate file, and read back by the next
        call, which fits only what is missing or has other data, options or key.
    progress_bar : bool
        Show progress if stderr is a terminal.
    **kwargs
        Keywords of the program, common to all problems.

    Yields
    ------
    label
    posterior : Posterior or RelationPosterior
        First those of the folder, then the others in the order in which they are finished;
        ``dict(fit_many(...))`` has them all.

    Raises
    ------
    InferenceError
        If a fit did not converge; the message names it.
    StorageError
        If the folder cannot be written, or a file in it is damaged.
    DataError
        If ``folder`` is given and the file names could not identify an object in the call.
    ClusterError
        If other processes went away; with a folder the same call does only the rest.

    Examples
    --------
    >>> from relpref import PreferenceData
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> data = PreferenceData.from_tables(answers=answers)
    >>> from relpref.infer import EP, fit_many
    >>> from relpref.models import xpgp
    >>> problems = {"all": data, "first two": data.select_comparisons([0, 1])}
    >>> fits = dict(fit_many(EP(xpgp), problems))
    """
    named = problems if isinstance(problems, Mapping) else dict(enumerate(problems))
    root = as_key(rng_key)
    left, files = [], []
    kept = None if folder is None else made(folder)
    settings = (
        fingerprint((__version__, type(engine).__name__, vars(engine), kwargs)) if kept else ""
    )
    for label, data in named.items():
        word = int.from_bytes(hashlib.sha256(repr(label).encode()).digest()[:4], "big")
        key = key_words(jax.random.fold_in(root, np.uint32(word)))
        problem = _Problem(label, data if isinstance(data, tuple) else (data,), key)
        if kept is not None:
            # The label, as far as a file name allows it, and a digest of all inputs of the fit.
            words = re.sub(r"\W+", "-", str(label))[:40]
            file = kept / f"{words}-{fingerprint((settings, *problem))}.nc"
            if file.exists():
                yield label, _read(file, engine, problem, kwargs)
                continue
            files.append(file)
        left.append(problem)
    fitted = run_all(
        partial(_fit, engine, kwargs),
        left,
        scheduler,
        label="fits",
        kept=folder,
        progress_bar=progress_bar,
    )
    for position, posterior in fitted:
        if files:
            posterior.save(files[position])
        yield left[position].label, posterior


def _fit(engine: GaussianEngine | Exact, kwargs: Mapping[str, Any], problem: _Problem) -> Found:
    try:
        return engine.run(problem.key, *problem.args, progress_bar=False, **kwargs)
    except InferenceError as error:
        raise InferenceError(f"{problem.label!r}: {error}", error.result) from error


def _read(
    file: Path, engine: GaussianEngine | Exact, problem: _Problem, kwargs: Mapping[str, Any]
) -> Found:
    """Read a posterior and give it the caller's program.

    A file identifies programs of relpref only.
    """
    posterior = storage.load(file)
    if not isinstance(posterior, UtilityPosterior) or not isinstance(engine, GaussianEngine):
        return posterior
    origin = Origin(engine.program, problem.args, kwargs, engine)
    return replace(
        posterior,
        origin=origin.with_argument(preference_data(origin), posterior.data),
    )
