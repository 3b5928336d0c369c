"""``relpref fit``: from tables to a run."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import Any

from relpref.cli.output import document, say
from relpref.data import PreferenceData, Relation
from relpref.data.rankings import read_ballots
from relpref.data.relation import KIND_WORDS, Files, find_files, path_and_kind, says_kind, with_kind
from relpref.description import describe
from relpref.errors import DataError
from relpref.posterior.base import Posterior
from relpref.registry import OWN, Kind, find, known, names
from relpref.runs import check_target, copies, save_run

# Bytes of a file from which on reading takes more than a moment.
LARGE = 20_000_000

# Words and the names of what is registered.
MODELS = {name: name for name in ("xpgp", "preference_gp")}
ENGINES = {name.lower(): name for name in OWN["engine"]}
LIKELIHOODS = {"probit": "Probit", "logistic": "Logistic"}
ATTRIBUTE_KERNELS = {
    "squared-exponential-plus-linear": "SquaredExponentialPlusLinear",
    "squared-exponential": "SquaredExponential",
    "matern32": "Matern32",
    "matern52": "Matern52",
    "linear": "Linear",
}
_CLIQUES = "hidden-common-cause-cliques"
GRAPH_KERNELS = {
    "regularized-laplacian": "RegularizedLaplacian",
    "diffusion": "Diffusion",
    "hidden-common-cause": "HiddenCommonCause",
    _CLIQUES: "HiddenCommonCause",
    "relation-vectors": "RelationVectors",
}


def run(chosen: argparse.Namespace) -> None:
    speaks = not chosen.json and not chosen.quiet
    tables, options, words = _tables(chosen), _options(chosen), _kernel_words(chosen)
    columns = assigned(
        "--columns",
        (pair for text in chosen.columns for pair in text.split(",")),
        "our name and the file's, such as --columns winner=better,rater=who",
    )
    check_target(chosen.out, replace=chosen.force, how="--force replaces it")
    if not chosen.quiet:
        _say_what_takes_long(tables)
    registered_name("--model", "program", chosen.model, MODELS)
    registered_name("--engine", "engine", chosen.engine, ENGINES)
    answers = read_ballots(tables.comparisons, chosen.incomplete)
    data = PreferenceData.from_tables(
        tables.items,
        answers,
        tables.relations,
        columns=columns,
        lists=chosen.lists,
        covariates=[name for names in chosen.covariates for name in names.split(",")],
    )
    data, keywords = _with_kernels(chosen, words, data)
    program = named("--model", "program", chosen.model, MODELS)
    try:
        signature(program).bind(None, **keywords)
    except TypeError as error:
        raise DataError(
            f"--model {chosen.model}: the program cannot be called with the data and these options ({error})"
        ) from None
    import jax

    # Padded, tables with a few answers more or less share what is compiled, and so do the updates of relpref ask.
    engine = named("--engine", "engine", chosen.engine, ENGINES)(program, **options)
    given = copies(tables)
    unused = chosen.model == "preference_gp" and bool(data.relations)
    notes = [*data.notes, *[f"{chosen.model} does not use relations"] * unused]
    if speaks:
        say(f"Read: {data.describe()}")
        for note in notes:
            say(f"  {note}")
    posterior = engine.run(jax.random.key(chosen.seed), data, progress_bar=not chosen.quiet, **keywords)
    save_run(
        chosen.out,
        posterior,
        given,
        command="fit",
        model=chosen.model,
        seed=chosen.seed,
        options={"engine": chosen.engine, **options, **_asked_for(chosen, columns, words)},
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
    elif speaks:
        say(f"Fitted {chosen.model}: {sentence(posterior)}")
        for text in _described(chosen, keywords, engine, data):
            say(f"  {text}")
        from relpref.infer.large.problem import approximations

        for line in approximations(posterior):
            say(f"  {line}")
        command = "rank" if data.num_answers else "ask"
        say(f"The run is in {chosen.out}: try relpref {command} {quote(chosen.out)}")


def registered_name(option: str, kind: Kind, word: str, own: Mapping[str, str]) -> str:
    """The name of what a word stands for: the package's own, or one that is registered or offered by another."""
    name = own.get(word, word)
    if (word not in own and word in OWN[kind]) or not known(kind, name):
        words = [*own, *(name for name in names(kind) if name not in OWN[kind])]
        raise DataError(
            f"{option} {word}: there is no such {kind}; use {' or '.join(words)}, or install the package that offers it"
        )
    return name


def named(option: str, kind: Kind, word: str, own: Mapping[str, str]) -> Any:
    """The program, kernel, likelihood or engine of a word."""
    return find(kind, registered_name(option, kind, word, own))


def assigned(option: str, texts: Iterable[str], form: str) -> dict[str, str]:
    """Read NAME=VALUE, each name once; ``form`` says what to write."""
    values: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise DataError(f"{option} {text}: write {form}")
        if name in values:
            raise DataError(f"{option} {text}: {name!r} is named twice; name it once")
        values[name] = value
    return values


def _kernel_words(chosen: argparse.Namespace) -> dict[str, str]:
    """Read ``--kernel``: the name of each relation and of its kernel."""
    form = f"the relation and one of {', '.join(GRAPH_KERNELS)}, such as --kernel cites=diffusion"
    words = assigned("--kernel", chosen.kernel, form)
    for word in words.values():
        registered_name("--kernel", "kernel", word, GRAPH_KERNELS)
    if words and chosen.model != "xpgp":
        raise DataError(f"--kernel: {chosen.model} does not use relations; leave --kernel out, or use xpgp")
    return words


def _with_kernels(
    chosen: argparse.Namespace, words: dict[str, str], data: PreferenceData
) -> tuple[PreferenceData, dict[str, Any]]:
    """The data with what its kernels need, and the keywords of the program, its likelihood among them."""
    switches = {"lapse": chosen.lapse, "ties": chosen.ties, "margins": chosen.margins}
    likelihood = _made("--likelihood", "likelihood", chosen.likelihood, LIKELIHOODS, **switches)
    getattr(likelihood, "sites", likelihood.parameters)(
        data.comparisons
    )  # refuses columns that it does not use
    keywords: dict[str, Any] = {"likelihood": likelihood}
    if chosen.attribute_kernel is not None or chosen.shared_lengthscale:
        if not data.attribute_names:
            raise DataError(
                "--attribute-kernel, --shared-lengthscale: the items have no attributes; leave them out"
            )
        word, shared = chosen.attribute_kernel or next(iter(ATTRIBUTE_KERNELS)), chosen.shared_lengthscale
        keywords["attribute_kernel"] = _made(
            "--attribute-kernel", "kernel", word, ATTRIBUTE_KERNELS, shared_lengthscale=shared
        )
    if chosen.no_individual:
        keywords["individual"] = False
    for name, word in words.items():
        data.parts_of(name)  # refuses a relation that is not there
        options = {}
        if word == _CLIQUES:
            data, options = data.with_cliques(name), {"method": "cliques"}
        kernel = named("--kernel", "kernel", word, GRAPH_KERNELS)
        keywords.setdefault("relation_kernels", {})[name] = kernel(**options)
    return data, keywords


def _made(option: str, kind: Kind, word: str, own: Mapping[str, str], **switches: Any) -> Any:
    """An instance of what was chosen, with those options that were switched on."""
    wanted = {name: value for name, value in switches.items() if value}
    try:
        return named(option, kind, word, own)(**wanted)
    except TypeError as error:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in wanted)
        raise DataError(
            f"{option} {word}: it cannot be made with {options or 'no options'} ({error}); leave {options or 'it'} out"
        ) from None


def _asked_for(
    chosen: argparse.Namespace, columns: Mapping[str, str], words: Mapping[str, str]
) -> dict[str, Any]:
    """What was asked for beyond the defaults, for the record of the run."""
    record = {
        "likelihood": None if chosen.likelihood == "probit" else chosen.likelihood,
        "lapse": chosen.lapse or None,
        "ties": chosen.ties,
        "margins": chosen.margins,
        "columns": columns or None,
        "covariates": chosen.covariates or None,
        "lists": None if chosen.lists == "exact" else chosen.lists,
        "attribute_kernel": chosen.attribute_kernel,
        "shared_lengthscale": chosen.shared_lengthscale or None,
        "individual": False if chosen.no_individual else None,
        "kernels": words or None,
    }
    return {name: value for name, value in record.items() if value is not None}


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
        tables.items,
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
    form = "the name and a number, such as --fixed attributes_amplitude=1.5"
    fixed = assigned("--fixed", chosen.fixed, form)
    try:
        return options | ({"fixed": {name: float(value) for name, value in fixed.items()}} if fixed else {})
    except ValueError as error:
        raise DataError(f"--fixed: write {form} ({error})") from None


def sizes(data: PreferenceData) -> dict[str, Any]:
    """How much there is, for a JSON document."""
    return {
        "items": data.num_items,
        "attributes": data.attribute_names,
        "answers": data.num_answers,
        "relations": {name: graph.num_edges for name, graph in data.relations.items()},
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
        if chosen.items or chosen.answers or chosen.relation:
            raise DataError("--folder stands for --items, --answers and --relation; give it alone, or these")
        return find_files(chosen.folder)
    items, answers = (None if given is None else Path(given) for given in (chosen.items, chosen.answers))
    return Files(items, answers, _relations(chosen.relation))


def _relations(given: Sequence[str]) -> dict[str, Path | Relation]:
    form = "the name and the file, such as --relation cites=links.csv"
    relations: dict[str, Path | Relation] = {}
    for name, file in assigned("--relation", given, form).items():
        path, colon, word = file.rpartition(":")
        if not file.partition(":")[0]:
            raise DataError(f"--relation {name}={file}: write {form}")
        # A file may have a colon in its name; where it has not, the word after one is meant to be a kind.
        if says_kind(word):
            relations[name] = with_kind(Path(path), word)
        elif colon and not Path(file).exists() and Path(path).exists():
            raise DataError(
                f"--relation {name}={file}: there is no kind {word!r}; use one of {', '.join(KIND_WORDS)}"
            )
        else:
            relations[name] = Path(file)
    return relations
