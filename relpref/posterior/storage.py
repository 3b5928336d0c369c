"""Posteriors in netCDF files: read back without pickle, without the program, and byte for byte the same when saved again."""

import hashlib
import json
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from inspect import Parameter, isclass, signature
from pathlib import Path
from typing import (
    Any,
    Literal,
    NotRequired,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import jax
import numpy as np
import pandas as pd
import scipy.sparse

from relpref.data import Comparisons, Graph, Links, PreferenceData, Relation, ScaleReference
from relpref.data.arrays import listed, shown
from relpref.data.links import OPTIONS
from relpref.errors import StorageError
from relpref.files import replaced
from relpref.infer.large.covariance import Conditioned, ImplicitBelief, Unknown
from relpref.infer.large.fit import low_rank_parts
from relpref.infer.large.problem import LargeProblem
from relpref.infer.large.sparse import SparsePosterior
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import Result
from relpref.likelihoods import AnswerModel
from relpref.memory import require_memory
from relpref.posterior.base import Origin, Parts, Posterior
from relpref.posterior.classes import ClassPosterior
from relpref.posterior.gaussian import Belief, DrawsBelief, GaussianBelief, MixtureBelief
from relpref.posterior.update import Changed
from relpref.posterior.utility import UtilityPosterior
from relpref.registry import EARLIER, Kind, find, name_of


def encode_label(label: Any) -> Any:
    """A label as JSON; what JSON has no type for becomes an object with one key, the type's name."""
    if isinstance(label, tuple):
        return {"tuple": [encode_label(part) for part in label]}
    if type(label) in (str, int, bool):
        return label
    if type(label) is float:
        return {"float": repr(label)}
    if isinstance(label, pd.Timestamp):
        return {"timestamp": label.isoformat()}
    if isinstance(label, datetime):
        return {"datetime": label.isoformat()}
    if type(label) is date:
        return {"date": label.isoformat()}
    raise StorageError(
        f"the label {label!r} is a {type(label).__name__}, which cannot be stored; "
        "use text, numbers, bools, dates or tuples of these as labels"
    )


def decode_label(stored: Any) -> Any:
    """The inverse of `encode_label`."""
    if type(stored) in (str, int, bool):
        return stored
    if type(stored) is not dict or len(stored) != 1:
        raise StorageError(f"{shown(stored)} is stored where a label should be; the file is damaged")
    ((kind, value),) = stored.items()
    if kind == "tuple" and type(value) is list:
        return tuple(decode_label(part) for part in value)
    if kind not in _LABELS:
        raise StorageError(
            f"a stored label is of the unknown kind {shown(kind)}; the file is from a newer relpref"
        )
    try:
        label = _LABELS[kind](value)
        if encode_label(label) == stored:
            return label
    except (ValueError, TypeError):
        pass
    raise StorageError(f"{shown(value)} is stored as a label, and is no {kind}; the file is damaged")


_LABELS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "timestamp": pd.Timestamp,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
}


def dump(value: Any) -> str:
    """JSON with sorted keys, so that equal content gives equal bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def encode_labels(labels: Iterable[Any]) -> str:
    """Labels as one JSON text."""
    return dump([encode_label(label) for label in labels])


def decode_labels(stored: str) -> tuple[Any, ...]:
    """The inverse of `encode_labels`."""
    found = json.loads(stored)
    if type(found) is not list:
        raise StorageError(f"{shown(stored)} is stored where labels should be; the file is damaged")
    return tuple(decode_label(label) for label in found)


def conform(value: Any, declared: Any) -> bool:
    """Whether a value from a file is of a declared type: what a parameter or field is annotated with, or a TypedDict.

    ``Any`` is whatever `decode` makes: plain values, arrays and registered objects.
    """
    declared = getattr(declared, "__value__", declared)  # of an alias made by ``type``
    made_of, parts = get_origin(declared), get_args(declared)
    if declared is Any:
        return True
    if made_of in (Union, types.UnionType):
        return any(conform(value, part) for part in parts)
    if made_of is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if declared is None or declared in (type(None), bool, int, str):
        return type(value) is (type(None) if declared is None else declared)
    if declared is float:
        return type(value) in (float, int)
    if is_typeddict(declared):
        known = get_type_hints(declared)
        return (
            type(value) is dict
            and declared.__required_keys__ <= value.keys() <= known.keys()
            and all(conform(part, known[name]) for name, part in value.items())
        )
    if made_of in (list, Sequence):
        return type(value) is list and all(conform(part, parts[0]) for part in value)
    if made_of in (dict, Mapping):
        return type(value) is dict and all(
            conform(k, parts[0]) and conform(v, parts[1]) for k, v in value.items()
        )
    if made_of is Callable or made_of is types.FunctionType:
        return callable(value)
    kind = made_of or declared
    try:
        return isclass(kind) and isinstance(value, kind)
    except TypeError:  # a protocol that does not check instances itself
        return is_dataclass(value) and all(hasattr(value, name) for name in vars(kind) if name[0] != "_")


def checked(value: Any, declared: Any, what: str) -> Any:
    """A value that is of a declared type.

    Raises
    ------
    StorageError
        If it is of another.
    """
    if not conform(value, declared):
        raise StorageError(f"{what} is stored as {shown(value)}, which it cannot be; the file is damaged")
    return value


def check_arguments(function: Any, given: Mapping[str, Any], what: str) -> None:
    """Refuse keywords that a function does not have, and values that are not of the type it declares."""
    known = signature(function, eval_str=True).parameters
    anything = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())
    for name, value in given.items():
        parameter = known.get(name)
        if parameter is not None and parameter.kind in (
            Parameter.KEYWORD_ONLY,
            Parameter.POSITIONAL_OR_KEYWORD,
        ):
            declared = parameter.annotation
            checked(value, Any if declared is Parameter.empty else declared, f"{what}: {name}")
        elif not anything:
            raise StorageError(f"the file gives {what} the argument {shown(name)}, which it does not have")


def positions(arrays: Mapping[str, Any], name: str, size: int) -> Any:
    """An array of positions among so many things."""
    found = arrays[name]
    if found.dtype.kind not in "iu" or (found.size and not 0 <= found.min() <= found.max() < size):
        raise StorageError(f"{name} leads out of the {size} that there are; the file is damaged")
    return found


def sparse_rows(parts: Sequence[Any], shape: tuple[int, int]) -> Any:
    """A sparse matrix from its arrays, which are checked first: algebra with indices out of range ends the process."""
    found = scipy.sparse.csr_array(tuple(parts), shape=shape)
    found.check_format(full_check=True)
    return found


Keep = Callable[[Any], Any]  # from what JSON cannot hold to how it can be found again, or None
Restore = Callable[[Any], Any]


def encode_origin(origin: Origin | None, keep: Keep | None = None) -> str | None:
    """How the program was called, if a later session can call it the same way.

    That is: with the data as its only positional argument, and options that are plain values, arrays (if there is a place to
    ``keep`` them), or registered kernels and likelihoods. Priors are left out, and the origin is marked as incomplete then. Of a program
    that is not registered only what it is called is kept.
    """
    if origin is None:
        return None
    origin = origin.unbound()
    if len(origin.args) != 1:
        return None
    kwargs = {name: value for name, value in origin.kwargs.items() if name != "priors"}
    name = name_of("program", origin.program)
    called = getattr(origin.program, "__qualname__", type(origin.program).__name__)
    try:
        call = {
            "program": f"program:{name}" if name else called,
            "kwargs": encode(kwargs, keep),
            "engine": dict(origin.engine),
        }
        return dump(call | {"complete": origin.complete and not origin.kwargs.get("priors")})
    except TypeError:
        return None


class _Call(TypedDict):
    """What `encode_origin` writes."""

    program: str
    kwargs: dict[str, Any]
    engine: dict[str, Any]
    complete: bool


def decode_origin(
    stored: str | None, data: Any, restore: Restore | None = None, program: Any = None
) -> Origin | None:
    """The inverse of `encode_origin`; nothing is imported.

    Parameters
    ----------
    stored : str or None
    data
        The program's argument.
    restore : callable, optional
        Gives back what was kept.
    program : callable, optional
        The caller's own, in place of the one that the file names.

    Returns
    -------
    Origin or None
        None where the program is not registered and none is given.
    """
    if stored is None:
        return None
    content = checked(json.loads(stored), _Call, "the call of the program")
    kwargs = checked(decode(content["kwargs"], restore), dict[str, Any], "the program's arguments")
    found = _program(content["program"]) if program is None else program
    if found is None:
        return None
    check_arguments(found, kwargs, "the program")
    if content["engine"]:
        options = dict(content["engine"])
        engine = _registered(("engine",), f"engine:{options.pop('engine', None)}")
        check_arguments(engine, options, engine.__name__)
    return Origin(found, (data,), kwargs, content["engine"], content["complete"])


def _program(name: str) -> Any:
    """A registered program; None of one that was not registered when it was saved, which has no kind before its name."""
    return _registered(("program",), name) if ":" in name else None


def _registered(kinds: Sequence[Kind], stored: str) -> Any:
    kind, name = EARLIER.get(stored, stored.partition(":")[::2])
    found = next((find(known, name) for known in kinds if known == kind), None)
    if found is None:
        raise StorageError(
            f"the file needs {shown(stored)}, which is not registered: if it is your own, call relpref.register before relpref.load; "
            "otherwise the file is damaged, or from a newer relpref"
        )
    return found


def encode_likelihood(likelihood: Any) -> Any:
    """A registered likelihood.

    Raises
    ------
    StorageError
        If it is none: nobody could predict answers from the file.
    """
    try:
        return encode(likelihood)
    except TypeError:
        raise StorageError(
            f"the likelihood {type(likelihood).__name__} cannot be stored; those of relpref.likelihoods can, and others after "
            "relpref.register('likelihood', name, class)"
        ) from None


def encode(value: Any, keep: Keep | None = None) -> Any:
    """Options, as far as JSON, registered kernels and likelihoods, and ``keep`` can hold them.

    Raises
    ------
    TypeError
        If they are something else.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {"mapping": {str(key): encode(part, keep) for key, part in value.items()}}
    kept = None if keep is None else keep(value)
    if kept is not None:
        return {"kept": kept}
    for kind in _OBJECTS:
        name = name_of(kind, type(value))
        if name is not None:
            stored = {f.name: encode(getattr(value, f.name), keep) for f in fields(value) if f.init}
            return {"object": f"{kind}:{name}", "fields": stored}
    raise TypeError(f"{type(value).__name__} cannot be stored")


_OBJECTS: tuple[Kind, ...] = ("kernel", "likelihood")


def decode(stored: Any, restore: Restore | None = None) -> Any:
    """The inverse of `encode`: plain values, what was kept, and registered kernels and likelihoods with checked fields."""
    if stored is None or isinstance(stored, str | bool | int | float):
        return stored
    keys = set(stored) if isinstance(stored, dict) else None
    if keys == {"mapping"} and isinstance(stored["mapping"], dict):
        return {key: decode(part, restore) for key, part in stored["mapping"].items()}
    if keys == {"kept"} and restore is not None:
        return restore(stored["kept"])
    if (
        keys == {"object", "fields"}
        and isinstance(stored["object"], str)
        and isinstance(stored["fields"], dict)
    ):
        made = _registered(_OBJECTS, stored["object"])
        values = {field: decode(part, restore) for field, part in stored["fields"].items()}
        check_arguments(made, values, made.__name__)
        return made(**values)
    raise StorageError(f"the file holds {shown(stored)} where an option should be; it is damaged")


# 2: links and their kinds, columns of answers, likelihood; 3: entities have parts of their own unless the program is told otherwise
SCHEMA, _OLDEST = 3, 2
_ATTRIBUTES = ("attributes", "attribute_center", "attribute_scale")


class StoredData(TypedDict):
    """Of `PreferenceData`, what JSON holds."""

    entities: str
    attribute_names: list[str]
    relations: list[str]
    cliques: list[str]
    columns: list[
        Literal["winner", "loser", "count", "tie", "strength", "probability", "rater", "shown_first"]
    ]
    raters: str
    strengths: int
    links: list[dict[str, Any]]
    answered: bool
    notes: list[str]


class _Stored(TypedDict):
    """Of any posterior but that of a relation, what JSON holds."""

    kind: NotRequired[Literal["class"]]
    slices: dict[str, list[int]]
    parts: dict[str, list[str]]
    hyperparameters: list[str]
    sites: list[str]
    log_evidence: float | None
    info: dict[str, Any]
    origin: str | None
    data: dict[str, Any] | None
    likelihood: NotRequired[dict[str, Any]]


def save(posterior: Posterior | RelationPosterior, path: str | os.PathLike[str]) -> None:
    """Write a posterior; see `Posterior.save`."""
    import h5netcdf

    from relpref import __version__

    arrays, content = pack(posterior)
    text = dump(content)
    attributes = {
        "relpref_schema": SCHEMA,
        "relpref_version": __version__,
        "relpref": text,
        "relpref_sha256": _checksum(arrays, text),
    }
    with replaced(path) as part, h5netcdf.File(part, "w") as file:
        for name, value in attributes.items():
            file.attrs[name] = value
        for name, array in arrays.items():
            group, _, variable = name.rpartition("/")
            target = (
                file if not group else (file[group] if group in file.groups else file.create_group(group))
            )
            dims = []
            for axis, length in enumerate(array.shape):
                # An axis is named by what it holds; the second of two equal axes needs a name of its own.
                dim = f"{variable}_axis{axis}" if len(array.shape) > 1 or length else f"{variable}_axis"
                target.dimensions[dim] = length
                dims.append(dim)
            target.create_variable(variable, tuple(dims), data=array)


def load(path: str | os.PathLike[str], *, program: Any = None) -> Posterior | RelationPosterior:
    """Read a posterior that `Posterior.save` or `RelationPosterior.save` wrote.

    Nothing that the file names is imported or called: programs, kernels and likelihoods are looked up among those of the package and those
    given to `relpref.register`, and their arguments are checked against the types they declare.

    Parameters
    ----------
    path : path
    program : callable, optional
        The numpyro program that was fitted, where it is your own: a file keeps its arguments and what it was called, not the program.
        Without it, such a posterior answers questions about the entities it knows, and cannot be updated.

    Returns
    -------
    Posterior or RelationPosterior
        Of the type that was saved.

    Raises
    ------
    StorageError
        If the file is missing, damaged, not a posterior, or from a newer version.
    """
    file_path = Path(path)
    arrays, attributes = _read(file_path)
    schema = attributes.get("relpref_schema")
    if schema is None:
        raise StorageError(f"{file_path} is a netCDF file, but holds no relpref posterior")
    if not isinstance(schema, int | np.integer):
        raise StorageError(f"{file_path} is damaged: its schema is {shown(schema)}; save the posterior again")
    if int(schema) > SCHEMA:
        raise StorageError(
            f"{file_path} has schema {int(schema)}; this relpref reads up to {SCHEMA}: install a newer one"
        )
    if int(schema) < _OLDEST:
        raise StorageError(
            f"{file_path} has schema {int(schema)}, from before version 0.1; this relpref reads {_OLDEST} to {SCHEMA}: fit again and save"
        )
    if attributes.get("relpref_sha256") != _checksum(arrays, str(attributes.get("relpref"))):
        raise StorageError(f"{file_path} is damaged: its checksum does not fit; save the posterior again")
    try:
        return unpack(arrays, attributes["relpref"], program, int(schema))
    except StorageError as error:
        raise StorageError(f"{file_path}: {error}") from error


class _Arrays(dict[str, Any]):
    """The arrays of a file, and which of them were looked at."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        super().__init__(arrays)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.used.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """One of them, if it is there."""
        self.used.add(name)
        return super().get(name, default)


def unpack(
    arrays: Mapping[str, Any], text: str, program: Any = None, schema: int = SCHEMA
) -> Posterior | RelationPosterior:
    """A posterior from the arrays and the JSON of a file.

    Raises
    ------
    StorageError
        If they are not what `pack` makes.
    """
    known = _Arrays(arrays)
    found: Posterior | RelationPosterior
    try:
        content = json.loads(text)
        if schema < 3:
            content = _without_individual(content)
        if isinstance(content, dict) and content.get("kind") == "relation":
            from relpref.infer.relation_storage import unpack as unpack_relation

            found = unpack_relation(known, content, program)
        else:
            found = _unpack(known, content, program)
    except StorageError:
        raise
    except Exception as error:  # of a damaged or forged file any part may be anything
        raise StorageError(f"the file is incomplete ({shown(error)}); save the posterior again") from error
    if known.keys() - known.used:
        raise StorageError(
            f"nothing is known of the arrays {listed(sorted(known.keys() - known.used))}; it is damaged"
        )
    return found


def _without_individual(content: dict[str, Any]) -> dict[str, Any]:
    """What a file of before schema 3 says, with what its programs left unsaid: entities had no parts of their own."""
    if not content.get("origin"):
        return content
    origin = json.loads(content["origin"])
    kind, _, name = origin["program"].rpartition(":")
    if kind and name in ("xpgp", "preference_gp"):
        origin["kwargs"]["mapping"].setdefault("individual", False)
    return {**content, "origin": dump(origin)}


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every array of a file by its path in it, and the file's attributes."""
    import h5netcdf
    import h5py

    if not path.exists():
        raise StorageError(f"{path} does not exist; give the file that posterior.save(...) wrote")
    try:
        with h5py.File(path, "r") as raw:
            _check_contents(raw)
            # Where one cannot be read, h5netcdf would leave a file behind that it can neither open nor close.
            dict(raw.attrs)
        with h5netcdf.File(path, "r") as file:
            attributes = {name: file.attrs[name] for name in file.attrs}
            arrays = {name: np.asarray(variable[...]) for name, variable in file.variables.items()}
            for group, content in file.groups.items():
                arrays |= {
                    f"{group}/{name}": np.asarray(variable[...])
                    for name, variable in content.variables.items()
                }
    except Exception as error:  # HDF5 raises many types on a damaged file
        raise StorageError(f"{path} cannot be read as a posterior ({error}); save it again") from error
    return arrays, attributes


def _check_contents(group: Any) -> None:
    """Refuse what leads out of the file, is larger than the file says, or is no array of numbers."""
    import h5py

    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise StorageError(f"{name} is a link to elsewhere")
        item = group[name]
        if isinstance(item, h5py.Group):
            _check_contents(item)
        elif item.dtype.kind not in "fiub" or item.is_virtual or item.external:
            raise StorageError(f"{name} is no array of numbers")
        else:
            require_memory(float(item.nbytes), f"the array {name}")


def pack(posterior: Posterior | RelationPosterior) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays by name, and what JSON can hold."""
    if isinstance(posterior, RelationPosterior):
        from relpref.infer.relation_storage import pack as pack_relation

        return pack_relation(posterior)
    belief = posterior.belief
    arrays: dict[str, Any] = {"key": posterior.key}
    if isinstance(belief, GaussianBelief):
        arrays |= {"mean": belief.location, "covariance": belief.scale}
    elif isinstance(belief, ImplicitBelief):
        arrays |= pack_implicit(belief)
    elif isinstance(belief, MixtureBelief):
        arrays |= {"means": belief.locations, "covariances": belief.scales, "weights": belief.weights}
    elif isinstance(belief, DrawsBelief):
        arrays["draws"] = belief.draws
        arrays |= {f"sampler/{name}": value for name, value in belief.sampler.items()}
    if posterior.prior_log_weights is not None:
        arrays["prior_log_weights"] = posterior.prior_log_weights
    arrays |= {f"sites/{name}": value for name, value in posterior.sites.items()}
    arrays |= {
        f"hyperparameters/{name}": np.asarray(value) for name, value in posterior.hyperparameters.items()
    }
    arrays |= {
        f"hyperparameter_draws/{name}": value for name, value in posterior.hyperparameter_draws.items()
    }
    for row, parts in enumerate(posterior.parts.values()):
        for kind, named in (("mean", parts.means), ("covariance", parts.covariances)):
            for column, values in enumerate(named.values()):
                arrays[f"parts/{kind}_{row}_{column}"] = values
    content: dict[str, Any] = {
        "slices": {name: [rows.start, rows.stop] for name, rows in posterior.slices.items()},
        "parts": {site: list(parts.means) for site, parts in posterior.parts.items()},
        "hyperparameters": list(posterior.hyperparameters),
        "sites": list(posterior.sites),
        "log_evidence": posterior.log_evidence,
        "info": dict(posterior.info),
        "origin": None,
        "data": None,
    }
    if isinstance(posterior, ClassPosterior):
        from relpref.posterior.class_storage import pack_class

        more, found = pack_class(posterior)
        return arrays | more, content | found
    if isinstance(posterior, UtilityPosterior):
        more, content["data"] = pack_data(posterior.data)
        arrays |= more
        content["origin"] = encode_origin(posterior.origin)
        content["likelihood"] = encode_likelihood(posterior.likelihood)
    return arrays, content


def _checksum(arrays: Mapping[str, Any], text: str) -> str:
    """Of the content, so that a flipped bit is found whatever HDF5 makes of it."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass"))
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _unpack_belief(arrays: Mapping[str, Any]) -> Belief:
    if "draws" in arrays:
        told = {name.split("/")[1]: arrays[name] for name in arrays if name.startswith("sampler/")}
        return DrawsBelief(arrays["draws"], told)
    if "means" in arrays:
        means = arrays["means"]
        equal = np.full(len(means), 1 / len(means))  # of files from before there were weights
        return MixtureBelief(means, arrays["covariances"], arrays.get("weights", equal))
    return GaussianBelief(arrays["mean"], arrays["covariance"])


def _unpack(arrays: Mapping[str, Any], content: Any, program: Any) -> Posterior:
    checked(content, _Stored, "the posterior")
    checked_info(content["info"])
    parts = {}
    for row, (site, names) in enumerate(content["parts"].items()):
        means = {name: arrays[f"parts/mean_{row}_{column}"] for column, name in enumerate(names)}
        found = {name: arrays.get(f"parts/covariance_{row}_{column}") for column, name in enumerate(names)}
        parts[site] = Parts(means, {name: value for name, value in found.items() if value is not None})
    hyperparameters = {name: arrays[f"hyperparameters/{name}"] for name in content["hyperparameters"]}
    drawn = {name: arrays.get(f"hyperparameter_draws/{name}") for name in hyperparameters}
    common: dict[str, Any] = {
        "belief": None if is_packed(arrays) else _unpack_belief(arrays),
        "hyperparameter_draws": {name: value for name, value in drawn.items() if value is not None},
        "prior_log_weights": arrays.get("prior_log_weights"),
        "slices": {name: slice(start, stop) for name, (start, stop) in content["slices"].items()},
        "parts": parts,
        "hyperparameters": {name: float(v) if v.ndim == 0 else v for name, v in hyperparameters.items()},
        "log_evidence": content["log_evidence"],
        "info": content["info"],
        "sites": {name: arrays[f"sites/{name}"] for name in content["sites"]},
        "key": arrays["key"],
    }
    if content.get("kind") == "class":
        from relpref.posterior.class_storage import unpack_class

        return unpack_class(arrays, content, common, program)
    if content["data"] is None:
        return Posterior(**common)
    data = unpack_data(arrays, content["data"])
    origin = decode_origin(content["origin"], data, program=program)
    likelihood = checked(decode(content["likelihood"]), AnswerModel, "the likelihood")
    if is_packed(arrays):
        common["belief"] = unpack_implicit(arrays, origin, common["hyperparameters"])
    return UtilityPosterior(**common, data=data, origin=origin, likelihood=likelihood)


def checked_info(info: Mapping[str, Any]) -> None:
    """Refuse an ``info`` without engine and result."""
    checked(info.get("engine"), str, "the engine")
    if info.get("result") not in Result.__members__:
        raise StorageError(
            f"the result is {shown(info.get('result'))}, which no engine ends with; the file is damaged"
        )


def pack_data(data: PreferenceData, prefix: str = "data") -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays by name, in a group, and what JSON can hold."""
    arrays = {f"{prefix}/{name}": getattr(data, name) for name in _ATTRIBUTES} | {
        # netCDF has no booleans
        f"{prefix}/{name}": column.astype(np.int8) if column.dtype == bool else column
        for name, column in data.comparisons.columns.items()
    }
    for row, graph in enumerate(data.relations.values()):
        for name in ("source", "target", "weight"):
            arrays[f"{prefix}/relation_{row}_{name}"] = getattr(graph, name)
        if graph.frozen_reference is not None:
            for name, value in graph.frozen_reference._asdict().items():
                arrays[f"{prefix}/relation_{row}_reference_{name}"] = np.asarray(value)
    for row, links in enumerate(data.links.values()):
        for name in ("source", "target", "weight"):
            arrays[f"{prefix}/links_{row}_{name}"] = getattr(links, name)
    return arrays, {
        "entities": encode_labels(data.entities),
        "attribute_names": list(data.attribute_names),
        "relations": list(data.relations),
        "cliques": [name for name, graph in data.relations.items() if graph.counts_cliques],
        "columns": list(data.comparisons.columns),
        "raters": encode_labels(data.comparisons.raters),
        "strengths": data.comparisons.strengths,
        "links": [
            {option: getattr(links.relation, option) for option in OPTIONS}
            | {"name": name, "targets": encode_labels(links.targets)}
            for name, links in data.links.items()
        ],
        "answered": data.answered,
        "notes": list(data.notes),
    }


def unpack_data(arrays: Mapping[str, Any], content: dict[str, Any], prefix: str = "data") -> PreferenceData:
    """The inverse of `pack_data`."""
    checked(content, StoredData, "the data")
    entities, raters = decode_labels(content["entities"]), decode_labels(content["raters"])
    positions(arrays, f"{prefix}/winner", len(entities))
    positions(arrays, f"{prefix}/loser", len(entities))
    if "rater" in content["columns"]:
        positions(arrays, f"{prefix}/rater", len(raters))
    graphs = {}
    for row, name in enumerate(content["relations"]):
        part = f"{prefix}/relation_{row}_"
        frozen = [arrays.get(f"{part}reference_{field}") for field in ScaleReference._fields]
        reference = None
        if frozen[0] is not None:
            values, gap_weights, mean_degree, component = frozen
            reference = ScaleReference(values, gap_weights, np.float64(mean_degree), component)
        edges = (arrays[part + "source"], arrays[part + "target"], arrays[part + "weight"])
        cliques = name in content["cliques"]
        graphs[name] = Graph(len(entities), *edges, frozen_reference=reference, counts_cliques=cliques)
    links = {}
    for row, stored in enumerate(content["links"]):
        options = {option: stored[option] for option in OPTIONS}
        check_arguments(Relation, options, "a relation")
        targets = decode_labels(stored["targets"])
        part = f"{prefix}/links_{row}_"
        links[checked(stored["name"], str, "a relation")] = Links(
            Relation(None, **options),
            positions(arrays, part + "source", len(entities)),
            positions(arrays, part + "target", len(targets) or len(entities)),
            arrays[part + "weight"],
            targets,
        )
    fields = {name: arrays[f"{prefix}/{name}"] for name in _ATTRIBUTES}
    columns = {name: arrays[f"{prefix}/{name}"] for name in content["columns"]}
    for array in (*fields.values(), *columns.values()):
        array.flags.writeable = False
    if "tie" in columns:
        columns["tie"] = columns["tie"].astype(bool)
    return PreferenceData(
        comparisons=Comparisons(**columns, raters=raters, strengths=content["strengths"]),
        entities=entities,
        attribute_names=tuple(content["attribute_names"]),
        _graphs=graphs,
        _links=links,
        answered=content["answered"],
        notes=tuple(content["notes"]),
        **fields,
    )


_DUAL, _SPARSE = "dual", "sparse"  # groups of a file
_DUAL_ARRAYS = ("weights", "touched", "data", "indices", "indptr")


def pack_implicit(belief: ImplicitBelief) -> dict[str, Any]:
    """Arrays by name.

    Raises
    ------
    StorageError
        If the fit gave no posterior, the file it was read from did not keep all of it, or it was updated quickly.
    """
    implicit = belief.implicit
    if isinstance(implicit, SparsePosterior):
        return {"mean": belief.location, f"{_SPARSE}/weights": implicit.weights}
    if not isinstance(implicit, Conditioned):
        why = (
            "what quick updates made of the covariance of so many entities is not stored; call update() first"
            if isinstance(implicit, Changed)
            else "so many entities without a covariance cannot be stored; fit again, and save what converged"
        )
        raise StorageError(why)
    projection = scipy.sparse.csr_array(implicit.projection)
    return {
        "mean": belief.location,
        f"{_DUAL}/touched": implicit.touched,
        f"{_DUAL}/data": projection.data,
        f"{_DUAL}/indices": projection.indices,
        f"{_DUAL}/indptr": projection.indptr,
        f"{_DUAL}/weights": implicit.weights,
    }


def is_packed(arrays: Mapping[str, Any]) -> bool:
    """Whether a file holds such a belief."""
    return f"{_DUAL}/weights" in arrays or f"{_SPARSE}/weights" in arrays


def unpack_implicit(
    arrays: Mapping[str, Any], origin: Origin | None, hyperparameters: Mapping[str, Any]
) -> ImplicitBelief:
    """The inverse of `pack`."""
    location = np.asarray(arrays["mean"])
    sparse = f"{_SPARSE}/weights" in arrays
    names = (f"{_SPARSE}/weights",) if sparse else tuple(f"{_DUAL}/{name}" for name in _DUAL_ARRAYS)
    weights, *more = (arrays[name] for name in names)
    if origin is None:
        return ImplicitBelief(location, Forgotten(len(location)))
    with jax.enable_x64(True):
        values = {name: np.asarray(value, dtype=np.float64) for name, value in hyperparameters.items()}
        reading = LargeProblem.of(origin.program, origin.args, origin.kwargs).read(values)
        if sparse:
            parts, _ = low_rank_parts(reading, arrays["key"])
            posterior = SparsePosterior.at(parts, reading.ends.T, reading.entries.T, weights)
            return ImplicitBelief(location, posterior)
    touched = positions(arrays, f"{_DUAL}/touched", len(location))
    projection = sparse_rows(more[1:], (len(weights), len(touched)))
    return ImplicitBelief(location, Conditioned(reading.prior, touched, projection, weights))


class Forgotten(Unknown):
    """The prior of a program of one's own, which no file keeps."""

    def _refuse(self, *_: Any) -> Any:
        raise StorageError(
            "the file keeps the means of so many entities, but not the program of your own that says how they vary together; fit again"
        )

    block = matmul = row_means = scaled = average = relative_variance = shares = _refuse  # type: ignore[assignment]
