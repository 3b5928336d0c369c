"""``relpref fit``: from tables to a run."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import jax

from relpref.cli.model import (
    ENGINES,
    chosen_of,
    column_words,
    kernel_words,
    program_named,
    said,
    with_kernels,
)
from relpref.cli.output import document, say
from relpref.data import PreferenceData, Relation
from relpref.data.matrix_files import Files, find_files
from relpref.data.relation import KIND_WORDS, path_and_kind, says_kind, with_kind
from relpref.description import describe
from relpref.errors import DataError
from relpref.infer import Posterior
from relpref.infer.large.answered import approximations
from relpref.runs import check_target, copies, save_run

# Bytes of a file from which on reading takes more than a moment.
LARGE = 20_000_000


def run(chosen: argparse.Namespace) -> None:
    speaks = not chosen.json and not chosen.quiet
    tables, options, words = _tables(chosen), _options(chosen), kernel_words(chosen)
    check_target(chosen.out, replace=chosen.force, how="--force replaces it")
    if not chosen.quiet:
        _say_what_takes_long(tables)
    data, keywords = with_kernels(
        chosen, words, PreferenceData.from_files(*tables, columns=column_words(chosen))
    )
    program = program_named(chosen.model, keywords)
    # Padded, tables with a few answers more or less share what is compiled, and so do the updates of relpref ask.
    engine = chosen_of("--engine", "engine", chosen.engine, ENGINES)(program, padding=True, **options)
    given = copies(tables)
    if speaks:
        say(f"Read: {data.describe()}")
        for note in _notes(data, chosen.model):
            say(f"  {note}")
    posterior = engine.run(jax.random.key(chosen.seed), data, progress_bar=not chosen.quiet, **keywords)
    save_run(
        chosen.out,
        posterior,
        given,
        command="fit",
        model=chosen.model,
        seed=chosen.seed,
        options={"engine": chosen.engine, **options, **said(chosen, words)},
        replace=chosen.force,
    )
    if chosen.json:
        document(
            {
                "command": "fit",
                "run": str(chosen.out),
                "model": chosen.model,
                "seed": chosen.seed,
                "data": {"description": data.describe(), "notes": _notes(data, chosen.model), **sizes(data)},
                **outcome(posterior),
            }
        )
    elif speaks:
        say(f"Fitted {chosen.model}: {sentence(posterior)}")
        for text in _described(chosen, keywords, engine, data):
            say(f"  {text}")
        for line in approximations(posterior):
            say(f"  {line}")
        command = "rank" if data.num_answers else "ask"
        say(f"The run is in {chosen.out}: try relpref {command} {quote(chosen.out)}")


def _described(
    chosen: argparse.Namespace, keywords: Mapping[str, Any], engine: Any, data: PreferenceData
) -> list[str]:
    """What engine, likelihood and kernels that were chosen beyond the defaults say of themselves."""
    found = [] if chosen.engine == "ep" else [describe(engine)]
    found += [] if chosen.likelihood == "probit" else [describe(keywords["likelihood"], data.comparisons)]
    kernels = [keywords.get("attribute_kernel"), *keywords.get("relation_kernels", {}).values()]
    found += [describe(kernel) for kernel in kernels if kernel is not None]
    return list(dict.fromkeys(one.sentence for one in found))


def _say_what_takes_long(tables: Files) -> None:
    """Name the large files that are about to be read, where a person watches."""
    files = [
        tables.entities,
        tables.comparisons,
        *(path_and_kind(given)[0] for given in tables.relations.values()),
    ]
    sizes = {file: file.stat().st_size for file in files if file is not None and file.is_file()}
    large = [f"{file} ({size / 1e6:.0f} MB)" for file, size in sizes.items() if size >= LARGE]
    if large and sys.stderr.isatty():
        print(f"Reading {', '.join(large)}", file=sys.stderr, flush=True)


def _options(chosen: argparse.Namespace) -> dict[str, Any]:
    options: dict[str, Any] = {"hyperparameters": chosen.hyperparameters, "restarts": chosen.restarts}
    if chosen.structure != "auto":
        options["structure"] = chosen.structure
    if chosen.draws is not None:
        if chosen.hyperparameters != "nuts":
            raise DataError(
                f"--draws {chosen.draws}: draws are for --hyperparameters nuts; add it or leave --draws out"
            )
        options["draws"] = chosen.draws
    fixed = {}
    for text in chosen.fix:
        name, _, value = text.partition("=")
        try:
            fixed[name] = float(value)
        except ValueError:
            raise DataError(
                f"--fix {text}: write the name and a number, such as --fix attributes_amplitude=1.5"
            ) from None
    return {**options, "fixed": fixed} if fixed else options


def _notes(data: PreferenceData, model: str) -> list[str]:
    """What was tidied or is not looked at."""
    unused = [f"{model} does not look at relations"] if model == "preference_gp" and data.relations else []
    return [*data.notes, *unused]


def sizes(data: PreferenceData) -> dict[str, Any]:
    """How much there is, for a JSON document."""
    return {
        "entities": data.num_entities,
        "attributes": data.attribute_names,
        "answers": data.num_answers,
        "relations": {name: graph.num_edges for name, graph in data.relations.items()},
    }


def outcome(posterior: Posterior) -> dict[str, Any]:
    """What came out, for a JSON document."""
    return {
        "result": posterior.info["result"],
        "log_evidence": posterior.log_evidence,
        "hyperparameters": posterior.hyperparameters,
        "info": posterior.info,
    }


def sentence(posterior: Posterior) -> str:
    """What came out, in one line."""
    values = ", ".join(f"{name} {_shown(value)}" for name, value in posterior.hyperparameters.items())
    number = len(posterior.belief.weights)
    found = "" if posterior.log_evidence is None else f"log evidence {posterior.log_evidence:.2f}, "
    if posterior.hyperparameter_draws:
        found += f"{number} values of the hyperparameters, on average "
    return f"{posterior.info['result']}, {found}{values}"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    numbers = [f"{number:.3g}" for number in value]
    return f"[{', '.join(numbers[:6])}{', ...' if len(numbers) > 6 else ''}]"


def _tables(chosen: argparse.Namespace) -> Files:
    if chosen.folder is not None:
        if chosen.entities or chosen.comparisons or chosen.relation:
            raise DataError(
                "--folder stands for --entities, --comparisons and --relation; give it alone, or these"
            )
        return find_files(chosen.folder)
    if chosen.entities is None and chosen.comparisons is None:
        raise DataError("--entities and --comparisons are missing; give one of them or both, or --folder")
    entities, answers = (
        None if given is None else Path(given) for given in (chosen.entities, chosen.comparisons)
    )
    return Files(entities, answers, _relations(chosen.relation))


def _relations(given: Sequence[str]) -> dict[str, Path | Relation]:
    relations: dict[str, Path | Relation] = {}
    for text in given:
        name, equals, file = text.partition("=")
        if not equals or not name or not file.partition(":")[0]:
            raise DataError(
                f"--relation {text}: write the name and the file, such as --relation cites=links.csv"
            )
        if name in relations:
            raise DataError(
                f"--relation {text}: there is a relation {name!r} already; give every relation its own name"
            )
        path, colon, word = file.rpartition(":")
        # A file may have a colon in its name; where it has not, the word after one is meant to be a kind.
        if says_kind(word):
            relations[name] = with_kind(Path(path), word)
        elif colon and not Path(file).exists() and Path(path).exists():
            raise DataError(
                f"--relation {text}: there is no kind {word!r}; use one of {', '.join(KIND_WORDS)}"
            )
        else:
            relations[name] = Path(file)
    return relations
