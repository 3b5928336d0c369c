"""The model that the command line asks for: the program and its kernels."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any

from relpref.cli.output import document, say, table
from relpref.data import PreferenceData
from relpref.data.arrays import counted
from relpref.data_loaders.registry import DATA_SETS, SETTING, DataSet, data_folder, data_set, how_to_get
from relpref.errors import DataError
from relpref.kernels import (
    Diffusion,
    HiddenCommonCause,
    Linear,
    Matern32,
    Matern52,
    RegularizedLaplacian,
    RelationVectors,
    SquaredExponential,
)
from relpref.likelihoods import Logistic, Probit
from relpref.models import preference_gp, xpgp
from relpref.registry import OWN, Kind, find, names

MODELS = {"xpgp": xpgp, "preference_gp": preference_gp}
ENGINES: dict[str, Any] = {name.lower(): find("engine", name) for name in OWN["engine"]}
LIKELIHOODS: dict[str, Any] = {"probit": Probit, "logistic": Logistic}
ATTRIBUTE_KERNELS: dict[str, Any] = {
    "squared-exponential": SquaredExponential,
    "matern32": Matern32,
    "matern52": Matern52,
    "linear": Linear,
}
GRAPH_KERNELS: dict[str, Any] = {
    "regularized-laplacian": RegularizedLaplacian(),
    "diffusion": Diffusion(),
    "hidden-common-cause": HiddenCommonCause(),
    "hidden-common-cause-cliques": HiddenCommonCause(method="cliques"),
    "vectors": RelationVectors(),
}


def chosen_of(option: str, kind: Kind, word: str, own: Mapping[str, Any]) -> Any:
    """The kernel, likelihood or engine of a word: the package's own, or one that is registered or offered by an installed package.

    Raises
    ------
    DataError
        If there is none of that name.
    """
    found = own.get(word) or (None if word in OWN[kind] else find(kind, word))
    if found is None:
        words = [*own, *(name for name in names(kind) if name not in OWN[kind])]
        raise DataError(
            f"{option} {word}: there is no such {kind}; use {' or '.join(words)}, or install the package that offers it"
        )
    return found


def program_named(name: str, keywords: Mapping[str, Any]) -> Any:
    """The program of ``--model``: one of `MODELS`, or of an installed package.

    Raises
    ------
    DataError
        If there is none of that name, or it does not take the keywords.
    """
    known = MODELS.get(name) or (None if name in OWN["program"] else find("program", name))
    if known is None:
        raise DataError(
            f"--model {name}: there is no such program; use {' or '.join(MODELS)}, or install the package that offers it"
        )
    try:
        signature(known).bind(None, **keywords)
    except TypeError as error:
        raise DataError(
            f"--model {name}: the program cannot be called with the data and these options ({error})"
        ) from None
    return known


def kernel_words(chosen: argparse.Namespace) -> dict[str, str]:
    """Read ``--kernel``: the name of a relation and of its kernel.

    Raises
    ------
    DataError
        If a text is not of that form, there is no such kernel, or a relation is given two.
    """
    words: dict[str, str] = {}
    for text in chosen.kernel:
        name, equals, word = text.partition("=")
        if not equals:
            raise DataError(
                f"--kernel {text}: write the relation and one of {', '.join(GRAPH_KERNELS)}, such as --kernel cites=diffusion"
            )
        chosen_of("--kernel", "kernel", word, GRAPH_KERNELS)
        if name in words:
            raise DataError(f"--kernel {text}: the relation {name!r} has a kernel already; give it one")
        words[name] = word
    if words and chosen.model != "xpgp":
        raise DataError(
            f"--kernel: {chosen.model} does not look at relations; leave --kernel out, or use xpgp"
        )
    return words


def column_words(chosen: argparse.Namespace) -> dict[str, str]:
    """Read ``--columns``: our names of columns and the file's.

    Raises
    ------
    DataError
        If a text is not of that form, or a column is named twice.
    """
    words: dict[str, str] = {}
    for text in chosen.columns:
        for pair in text.split(","):
            ours, equals, theirs = pair.partition("=")
            if not equals or not ours or not theirs:
                raise DataError(
                    f"--columns {text}: write our name and the file's, such as --columns winner=better,rater=who"
                )
            if ours in words:
                raise DataError(f"--columns {text}: {ours!r} is named twice; name it once")
            words[ours] = theirs
    return words


def with_kernels(
    chosen: argparse.Namespace, words: dict[str, str], data: PreferenceData
) -> tuple[PreferenceData, dict[str, Any]]:
    """Return the data with what its kernels need, and the keywords of the program, its likelihood among them.

    Raises
    ------
    DataError
        If a kernel is asked for something that is not there.
    """
    keywords: dict[str, Any] = {
        "likelihood": _made("--likelihood", "likelihood", chosen.likelihood, LIKELIHOODS, lapse=chosen.lapse)
    }
    keywords["likelihood"].parameters(data.comparisons)  # refuses columns that it does not use
    if chosen.attribute_kernel is not None or chosen.shared_lengthscale:
        if not data.attribute_names:
            raise DataError(
                "--attribute-kernel, --shared-lengthscale: the entities have no attributes; leave them out"
            )
        word, options = (
            chosen.attribute_kernel or "squared-exponential",
            {"shared_lengthscale": chosen.shared_lengthscale},
        )
        keywords["attribute_kernel"] = _made(
            "--attribute-kernel", "kernel", word, ATTRIBUTE_KERNELS, **options
        )
    if chosen.no_individual:
        keywords["individual"] = False
    if words:
        for name, word in words.items():
            data.parts_of(name)  # refuses a relation that is not there
            if word == "hidden-common-cause-cliques":
                data = data.with_cliques(name)
        kernels = {name: chosen_of("--kernel", "kernel", word, GRAPH_KERNELS) for name, word in words.items()}
        keywords["relation_kernels"] = {
            name: kernel() if isinstance(kernel, type) else kernel for name, kernel in kernels.items()
        }
    return data, keywords


def _made(option: str, kind: Kind, word: str, own: Mapping[str, Any], **switches: bool) -> Any:
    """An instance of what was chosen, with those options that were switched on."""
    wanted = {name: value for name, value in switches.items() if value}
    try:
        return chosen_of(option, kind, word, own)(**wanted)
    except TypeError as error:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in wanted)
        raise DataError(
            f"{option} {word}: it cannot be made with {options or 'no options'} ({error}); leave {options or 'it'} out"
        ) from None


def said(chosen: argparse.Namespace, words: dict[str, str]) -> dict[str, Any]:
    """What was asked for beyond the defaults, for the record of the run."""
    record: dict[str, Any] = {}
    if chosen.likelihood != "probit":
        record["likelihood"] = chosen.likelihood
    if chosen.lapse:
        record["lapse"] = True
    if chosen.columns:
        record["columns"] = column_words(chosen)
    if chosen.attribute_kernel is not None:
        record["attribute_kernel"] = chosen.attribute_kernel
    if chosen.shared_lengthscale:
        record["shared_lengthscale"] = True
    if chosen.no_individual:
        record["individual"] = False
    return {**record, "kernels": words} if words else record


def run(chosen: argparse.Namespace) -> None:
    """List the data sets or fetch one."""
    {"list": _list, "get": _get}[chosen.action](chosen)


def _list(chosen: argparse.Namespace) -> None:
    if chosen.json:
        sets = [
            {**asdict(one), "access": one.access, "here": _here(one, data_folder())}
            for one in DATA_SETS.values()
        ]
        document({"command": "data list", "folder": str(data_folder() or ""), "data_sets": sets})
        return
    rows = [
        (one.name, one.access, "yes" if _here(one, data_folder()) else "", one.title)
        for one in DATA_SETS.values()
    ]
    say(table(("name", "access", "here", "what it is"), rows, left=(0, 1, 2, 3)))
    for one in DATA_SETS.values():
        say(f"\n{one.name}: {one.terms}\n  {one.address}\n  read with relpref.data_loaders: {one.loader}")
        say(f"  cite {one.cite}")


def _here(one: DataSet, folder: Path | None) -> bool:
    if not one.folder:
        return True
    place = folder / one.folder if folder else None
    return bool(place and place.is_dir() and all((place / file.name).exists() for file in one.files))


def _get(chosen: argparse.Namespace) -> None:
    wanted = data_set(chosen.name)
    if not wanted.folder:
        raise DataError(f"{wanted.name} comes with the package: read it with {wanted.loader}")
    if not wanted.files:
        raise DataError(f"{wanted.name} cannot be fetched for you. {how_to_get(wanted)}")
    from relpref.data_loaders.registry import download

    base = Path(chosen.folder).absolute() if chosen.folder else data_folder() or Path("data").absolute()
    place = base / wanted.folder
    speaks = not chosen.json and not chosen.quiet
    if speaks:
        say(f"{wanted.title}\nFrom {wanted.address}. Terms: {wanted.terms} Cite {wanted.cite}.")
    try:
        fetched = [file.name for file in wanted.files if download(file, place, progress_bar=not chosen.quiet)]
    except KeyboardInterrupt:
        kept = f"interrupted; finished files are kept in {place}, and the same command fetches the rest"
        raise KeyboardInterrupt(kept) from None
    if chosen.json:
        document(
            {
                "command": "data get",
                "name": wanted.name,
                "folder": str(place),
                "fetched": fetched,
                "terms": wanted.terms,
                "cite": wanted.cite,
            }
        )
    elif speaks:
        said = counted(len(fetched), "file") + " fetched" if fetched else "everything was there"
        hint = "" if base == data_folder() else f"; loaders find it with {SETTING}={base}"
        say(f"{wanted.name}: {said}, checked, in {place}{hint}")
