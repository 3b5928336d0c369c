"""``relpref fit``: fit tables and save the run."""

import json
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from relpref.cli.entry import typed
from relpref.cli.output import document, given, say
from relpref.data import PreferenceData, Relation
from relpref.data.arrays import label
from relpref.data.rankings import read_ballots
from relpref.data.relation import KIND_WORDS, Files, find_files, says_kind, with_kind
from relpref.description import model_words
from relpref.errors import DataError
from relpref.fitting import made, notes_of, with_kernels
from relpref.options import OPTIONS
from relpref.posterior.summary import fitted
from relpref.registry import CHOICES, choose, find, word_for
from relpref.runs import copies, files_by_name, save_run

if TYPE_CHECKING:
    from relpref.report.words import Words

# Bytes of a file that takes more than a moment to read.
LARGE = 20_000_000


def run(chosen: Namespace) -> None:
    """Fit a model to tables and save the run."""
    chosen.model = choose("--model", "program", chosen.model)
    engine_name = choose("--engine", "engine", chosen.engine)
    chosen.likelihood = word_for(choose("--likelihood", "likelihood", chosen.likelihood))
    tables, options, kernels = tables_of(chosen), _options(chosen), _kernel_words(chosen)
    columns = columns_of(chosen)
    if not chosen.quiet:
        _say_what_takes_long(tables)
    data = read(chosen, tables, columns)
    data, keywords = _with_kernels(chosen, kernels, data)
    program = find("program", chosen.model)
    engine = find("engine", engine_name)
    for name, text in assigned("--option", chosen.option, "the name and the value").items():
        (options if name in signature(engine).parameters else keywords)[name] = _value(text)
    try:
        signature(program).bind(None, **keywords)
    except TypeError as error:
        raise DataError(
            f"--model {chosen.model}: the program cannot be called with the data and these options "
            f"({error})"
        ) from None
    from relpref.report.words import Words, named_words

    words = Words.of(named_words(vars(chosen)))
    engine = engine(program, **options)
    notes, copied = notes_of(chosen.model, data), copies(tables)
    if chosen.speaks:
        say(f"Read: {data.describe()}")
        for note in notes:
            say(f"  {typed(note)}")
    posterior = engine.run(chosen.seed, data, progress_bar=not chosen.quiet, **keywords)
    save_run(
        chosen.out,
        posterior,
        copied,
        command="fit",
        model=chosen.model,
        seed=chosen.seed,
        options={"engine": word_for(engine_name), **options}
        | _asked_for(chosen, columns=columns, kernels=kernels),
        replace=chosen.force,
    )
    if chosen.json:
        document(
            chosen,
            model=chosen.model,
            seed=chosen.seed,
            data={"description": data.describe(), "notes": notes, **sizes(data)},
            result=posterior.info["result"],
            log_evidence=posterior.log_evidence,
            hyperparameters=posterior.hyperparameters,
            info=posterior.info,
        )
    if chosen.speaks:
        for text in verdict(posterior, words):
            say(text)
        if chosen.verbose:
            say(fitted(posterior))
            for name, value in posterior.hyperparameters.items():
                say(f"  {name}: {np.array2string(np.asarray(value), precision=3, threshold=12)}")
        from relpref.infer.large.problem import approximations

        for line in approximations(posterior):
            say(f"  {line}")
        command = "rank" if data.num_answers else "ask"
        say(f"The run is in {chosen.out}: try relpref {command} {quote(chosen.out)}")


def columns_of(chosen: Namespace) -> dict[str, str]:
    """Names of columns by ``--columns``; a name may contain commas."""
    pairs = (pair for text in chosen.columns for pair in re.split(r",(?=\w+=)", text))
    form = "our name and the file's, such as --columns winner=better,rater=who"
    return assigned("--columns", pairs, form)


def read(chosen: Namespace, tables: Files, columns: Mapping[str, str]) -> PreferenceData:
    """Read the tables as the options say."""
    return PreferenceData.from_tables(
        tables.items,
        read_ballots(tables.comparisons, chosen.incomplete),
        tables.relations,
        columns=columns,
        covariates=covariates_of(chosen),
        encoding=chosen.encoding,
        **given(chosen, *OPTIONS, "sheet"),
    )


def covariates_of(chosen: Namespace) -> list[str]:
    """Names by ``--covariates``."""
    return [name for names in chosen.covariates for name in names.split(",")]


def _value(text: str) -> Any:
    """Value of an option: a number, true, false or null; other text is taken as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def verdict(posterior: Any, words: "Words") -> list[str]:
    """Lines in plain words: who leads, how sure that is, and what to ask next."""
    from relpref.report.blocks import LITTLE, lead
    from relpref.report.subject import Subject

    if not posterior.converged:
        return [f"Careful: the numbers may be wrong. {posterior.result.value}"]
    if posterior.kind != "utilities":
        return []
    data = posterior.data
    if not data.num_answers or data.num_items == 1:
        few = "items" if data.num_answers else "answers"
        return [words(f"There are too few {few} for a ranking.")]
    if posterior.large:
        best = data.labels[posterior.belief.mean().argmax()]
        return [f"{label(best)} has the highest utility; relpref report says how sure that is."]
    subject = Subject(posterior, words=words)
    names = [label(name) for name in subject.names.short]
    lines = [lead(subject.ranking, names.__getitem__, words("items"))]
    if subject.groups is not None:
        lines = [
            words("The items form groups that no answer connects: compare within a group only.")
        ]
    if subject.questions is not None:
        questions, gain = subject.questions
        lines.append(words(gain.sentence))
        ends = questions.loc[:0, ["first", "second"]].to_numpy().ravel()
        question = " or ".join(names[subject.position[end]] for end in ends)
        if question:
            why = words(f" {LITTLE}") * bool(questions["certain"].iloc[0])
            lines.append(f"The most informative question now: {question}?{why}")
    return lines


def assigned(option: str, texts: Iterable[str], form: str) -> dict[str, str]:
    """Read NAME=VALUE, each name once; ``form`` is an example for errors.

    Columns of files may have no name.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not (value or (equals and option == "--columns")):
            raise DataError(f"{option} {text}: write {form}")
        if name in values:
            raise DataError(f"{option} {text}: {name!r} is named twice; name it once")
        values[name] = value
    return values


def _kernel_words(chosen: Namespace) -> dict[str, str]:
    """Read ``--kernel``: names of kernels by relation."""
    kernels = ", ".join(map(word_for, CHOICES["relation kernel"]))
    form = f"the relation and one of {kernels}, such as --kernel cites=diffusion"
    words = assigned("--kernel", chosen.kernel, form)
    for word in words.values():
        choose("--kernel", "relation kernel", word)
    if words and chosen.model == "preference_gp":
        raise DataError(
            f"--kernel: a model of {model_words(chosen.model)} does not use relations; leave "
            "--kernel or --model out"
        )
    return words


def _with_kernels(
    chosen: Namespace, words: dict[str, str], data: PreferenceData
) -> tuple[PreferenceData, dict[str, Any]]:
    """Data with what its kernels need, and keywords of the program."""
    switches = given(chosen, "lapse", "ties", "margins")
    likelihood = _instance("likelihood", chosen.likelihood, switches)
    # Refuses columns that the likelihood does not use.
    getattr(likelihood, "sites", likelihood.parameters)(data.comparisons)
    keywords = {"likelihood": likelihood} | given(chosen, "individual")
    switches = given(chosen, "shared_lengthscale")
    if chosen.attribute_kernel is not None or switches:
        if not data.attribute_names:
            raise DataError(
                "--attribute-kernel, --shared-lengthscale: the items have no attributes; leave "
                "them out"
            )
        word = chosen.attribute_kernel or CHOICES["attribute kernel"][0]
        keywords["attribute_kernel"] = _instance("attribute-kernel", word, switches)
    for name in words:
        data.parts_of(name)  # refuses an unknown relation
    if words:
        data, keywords["relation_kernels"] = with_kernels("--kernel", data, words)
    return data, keywords


def _instance(option: str, word: str, switches: Mapping[str, Any]) -> Any:
    """Likelihood or kernel for the word of an option, with further options."""
    try:
        return made(f"--{option}", option.replace("-", " "), word, **switches)
    except TypeError as error:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in switches)
        raise DataError(
            f"--{option} {word}: it cannot be made with {flags or 'no options'} ({error}); leave "
            f"{flags or 'it'} out"
        ) from None


_OF_THE_MODEL = ("lapse", "ties", "margins", "attribute_kernel", "shared_lengthscale", "individual")
_OF_THE_DATA = (*OPTIONS, "covariates", "encoding", "sheet", "item_word", "answer_word", "option")


def _asked_for(chosen: Namespace, **read: Mapping[str, str]) -> dict[str, Any]:
    """Options that differ from the defaults, for the record of the run."""
    record = given(chosen, *_OF_THE_MODEL, *_OF_THE_DATA)
    if chosen.likelihood != "probit":
        record["likelihood"] = chosen.likelihood
    return record | {name: words for name, words in read.items() if words}


def _say_what_takes_long(tables: Files) -> None:
    """Name the large files that are about to be read, on a terminal."""
    files = files_by_name(tables).values()
    sizes = {file: file.stat().st_size for file in files if file.is_file()}
    large = [f"{file} ({size / 1e6:.0f} MB)" for file, size in sizes.items() if size >= LARGE]
    if large and sys.stderr.isatty():
        print(f"Reading {', '.join(large)}", file=sys.stderr, flush=True)


def _options(chosen: Namespace) -> dict[str, Any]:
    """Options of the engine."""
    options = given(chosen, "hyperparameters", "restarts", "draws")
    if chosen.structure != "auto":
        options["structure"] = chosen.structure
    if "draws" in options and chosen.hyperparameters != "nuts":
        raise DataError(
            f"--draws {chosen.draws}: draws are for --hyperparameters nuts; add it or leave "
            "--draws out"
        )
    form = "the name and a number, such as --fixed attributes_amplitude=1.5"
    fixed = assigned("--fixed", chosen.fixed, form)
    try:
        if fixed:
            options["fixed"] = {name: float(value) for name, value in fixed.items()}
    except ValueError as error:
        raise DataError(f"--fixed: write {form} ({error})") from None
    return options


def sizes(data: PreferenceData) -> dict[str, Any]:
    """Sizes of the data, for a JSON document."""
    return {
        "items": data.num_items,
        "attributes": data.attribute_names,
        "answers": data.num_answers,
        "relations": {name: graph.num_edges for name, graph in data.relations.items()},
    }


def tables_of(chosen: Namespace) -> Files:
    if chosen.folder is not None:
        if chosen.items or chosen.answers or chosen.relation:
            raise DataError(
                "--folder stands for --items, --answers and --relation; give it alone, or these"
            )
        return find_files(chosen.folder)
    items, answers = (
        None if given is None else Path(given) for given in (chosen.items, chosen.answers)
    )
    return Files(items, answers, _relations(chosen.relation))


def _relations(given: Sequence[str]) -> dict[str, Path | Relation]:
    form = "the name and the file, such as --relation cites=links.csv"
    relations: dict[str, Path | Relation] = {}
    for name, file in assigned("--relation", given, form).items():
        path, colon, word = file.rpartition(":")
        if not file.partition(":")[0]:
            raise DataError(f"--relation {name}={file}: write {form}")
        # A file may have a colon in its name; otherwise the word after the colon is a kind.
        if says_kind(word):
            relations[name] = with_kind(Path(path), word)
        elif colon and not Path(file).exists() and Path(path).exists():
            raise DataError(
                f"--relation {name}={file}: there is no kind {word!r}; use one of "
                f"{', '.join(KIND_WORDS)}"
            )
        else:
            relations[name] = Path(file)
    return relations
