"""Files that were forged: whatever they name, nothing is imported, called, started or written."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import relpref
from relpref import registry
from relpref.cli import main
from relpref.data import PreferenceData, Rankings, RelationData
from relpref.errors import DataError, StorageError
from relpref.infer import EP, Exact
from relpref.kernels import HiddenCommonCause, Kendall, Landmarks, Matern32, SquaredExponential
from relpref.likelihoods import Logistic
from relpref.models import conditional_ranking, ranking_classifier, xpgp
from relpref.posterior import codec, storage
from relpref.posterior.codec import dump
from relpref.rls import ConditionalRanker
from relpref.runs import copied, load_run, save_run

HOSTILE = r"""
null
[]
{}
{"object": "os:system", "fields": {"command": "touch pwned"}}
[[[[[[[[[[]]]]]]]]]]
NaN
1e999
-1
99999999999999999999
..
../../etc/passwd
/etc/passwd
/dev/zero
C:\Windows\system32
http://localhost:9/x
file:///etc/passwd
; touch pwned
$(touch pwned)
`touch pwned`
__import__('os').system('touch pwned')
__class__
__init__
__reduce__
__builtins__
relpref.data_loaders.registry:fetch
relpref.posterior.storage:save
relpref.files:replaced
relpref.registry:register
relpref.cli.parser:import_module
relpref.models.xpgp:numpyro
program:__class__
kernel:os
kernel:..
engine:os.system
likelihood:eval
os:system
subprocess:system
shutil:system
builtins:system
posix:system
importlib:system
pickle:system
ctypes:system
runpy:system
antigravity
""".splitlines()
HOSTILE += [" ", "\0", "a\0b", "cos\nsystem\n(S'touch pwned'\ntR.", "x" * 100_000]
WATCHED = ("import", "exec", "os", "open", "subprocess", "socket", "shutil", "pickle", "ctypes")
seen: list[tuple[str, str]] | None = None
heard: list[tuple[str, str]] = []


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    if seen is None:
        return
    reads = event == "open" and not (
        isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    )
    if event.split(".")[0] in WATCHED and not reads:
        seen.append((event, str(arguments)[:200]))


sys.addaudithook(
    audit
)  # hooks stay as long as the process; this one listens only inside `nothing_happens`


@contextmanager
def nothing_happens() -> Iterator[None]:
    global seen
    seen = []
    try:
        yield
        assert seen == []
    finally:
        heard[:], seen = seen, None


def test_the_hook_hears(tmp_path: Path) -> None:
    for act in (
        lambda: (tmp_path / "written").write_text("x"),
        lambda: subprocess.run(["true"], check=True),
        lambda: __import__("relpref_of_nobody"),
    ):
        with pytest.raises((AssertionError, ModuleNotFoundError)), nothing_happens():
            act()
        assert heard


def strings(value: Any) -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Every string in plain values, and a function from another string to values with that."""
    if isinstance(value, str):
        yield value, lambda new: new
    elif isinstance(value, list):
        for place, part in enumerate(value):
            for found, rebuilt in strings(part):
                yield (
                    found,
                    lambda new, place=place, rebuilt=rebuilt: [  # type: ignore[misc]
                        *value[:place],
                        rebuilt(new),
                        *value[place + 1 :],
                    ],
                )
    elif isinstance(value, dict):
        for key, part in value.items():
            yield key, lambda new, key=key: {new if k == key else k: v for k, v in value.items()}  # type: ignore[misc]
            for found, rebuilt in strings(part):
                yield found, lambda new, key=key, rebuilt=rebuilt: {**value, key: rebuilt(new)}  # type: ignore[misc]


def check(file: tuple[dict[str, Any], str], what: str) -> bool:
    """The file is refused, or is what it says; whether it is refused."""
    arrays, text = file
    with nothing_happens():
        try:
            found = storage.unpack(arrays, text)
            again, content = found.arrays()  # decodes how the posterior came about
        except StorageError as error:
            assert len(str(error)) < 1000
            return True
    if what.startswith("'program:"):  # the program of somebody, which a file does not know
        assert "program:" not in dump(content)
        return False
    assert again.keys() == arrays.keys(), what
    assert json.loads(dump(content)) == json.loads(text), what
    return False


@pytest.fixture(scope="module")
def saved(posterior: Any) -> dict[str, Any]:
    """One of each kind of posterior, with arguments of each kind."""
    rng = np.random.default_rng(0)
    given = {
        "attribute_kernel": Matern32(shared_lengthscale=True),
        "relation_kernels": {"next": HiddenCommonCause("cliques")},
        "likelihood": Logistic(),
        "normalize": False,
    }
    utilities = replace(
        posterior, origin=replace(posterior.origin, kwargs=given), likelihood=Logistic()
    )
    orders = [list("abc"), list("bca"), list("cab"), list("acb")] * 2
    rankings = Rankings.from_orders(orders).with_labels(["y", "n"] * 4)
    landmarks = Landmarks(Kendall(), rankings[:4])
    fixed = {"amplitude": 1.0, "intercept": 0.0}
    engine = EP(ranking_classifier, fixed=fixed, check=False)
    classes = engine.run(0, rankings, kernel=landmarks)
    nodes = pd.DataFrame(rng.normal(size=(3, 2)), index=["a", "b", "c"], columns=["x", "y"])
    labels = rng.normal(size=(3, 3))
    data = RelationData.from_tables(nodes, labels)
    known = {"attributes_amplitude": 1.0, "attributes_lengthscale": 1.0, "noise": 0.5}
    options: dict[str, Any] = {"loss": "regression", "node_kernel": SquaredExponential()}
    relation = Exact(conditional_ranking, fixed=known).run(0, data, **options)
    ranker = ConditionalRanker("gaussian", loss="regression").fit(nodes, labels).posterior_
    return {"utilities": utilities, "classes": classes, "relation": relation, "ranker": ranker}


def walk(posterior: Any, hostile: Callable[[int], list[str]]) -> tuple[int, int]:
    arrays, content = posterior.arrays()
    text = dump(content)
    storage.unpack(
        arrays, text
    ).arrays()  # imports what a clean load imports, and what a clean answer does
    assert not check((arrays, text), "the file itself")
    files = [
        (
            name,
            lambda new, name=name: ({new if n == name else n: a for n, a in arrays.items()}, text),
        )
        for name in arrays
    ] + [
        (found, lambda new, rebuilt=rebuilt: (arrays, dump(rebuilt(new))))
        for found, rebuilt in strings(json.loads(text))
    ]
    done = [
        check(made(new), f"{found!r} became {new[:100]!r}")
        for row, (found, made) in enumerate(files)
        for new in hostile(row)
    ]
    return len(done), sum(done)


@pytest.mark.parametrize("number", [2, pytest.param(len(HOSTILE), marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["utilities", "classes", "relation", "ranker"])
def test_every_string_by_hostile_ones(kind: str, number: int, saved: dict[str, Any]) -> None:
    done, refused = walk(
        saved[kind], lambda row: [HOSTILE[(2 * row + k) % len(HOSTILE)] for k in range(number)]
    )
    assert len(set(HOSTILE)) >= 50 and done > 80 and 0 < refused < done


def reseal(path: Path, arrays: dict[str, Any], text: str) -> None:
    """Write what somebody forged, with a checksum that fits."""
    with h5netcdf.File(path, "a") as file:
        file.attrs["relpref"] = text
        file.attrs["relpref_sha256"] = codec.checksum(arrays, text)


@pytest.mark.parametrize(
    "forged",
    [
        {"object": "relpref.data_loaders.registry:get", "fields": {"name": "cora"}},
        {"object": "relpref.files:replaced", "fields": {"path": "pwned"}},
        {"object": "program:xpgp", "fields": {}},
        {"object": "kernel:Matern32", "fields": {"shared_lengthscale": "os:system"}},
        {"object": "kernel:Matern32", "fields": {"shared_lengthscale": 1}},
        {"object": "kernel:Matern32", "fields": {"no_such": True}},
        {"object": "kernel:NodeKernel", "fields": {"kernel": "linear"}},  # has no parameters
        {"object": "kernel:Landmarks", "fields": {}},
        {"type": "relpref.models.xpgp:xpgp"},
        {"kept": {"array": "mean"}},
        "relpref.kernels:Matern32",
        [],
    ],
    ids=str,
)
def test_arguments_are_of_the_types_that_are_declared(
    forged: Any, saved: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "run.nc"
    saved["utilities"].save(path)
    arrays, content = saved["utilities"].arrays()
    call = deepcopy(content["origin"])
    call["kwargs"]["mapping"]["attribute_kernel"] = forged
    reseal(path, arrays, dump(content | {"origin": call}))
    before = sorted(tmp_path.iterdir())
    # Nobody needs the arguments to rank; they are looked at when they are wanted.
    with (
        nothing_happens(),
        pytest.raises(StorageError, match="what the file says of the program: "),
    ):
        storage.unpack(arrays, dump(content | {"origin": call})).origin.keywords  # noqa: B018
    loaded: Any = relpref.load(path)
    pd.testing.assert_frame_equal(loaded.ranking(), saved["utilities"].ranking())
    for _ in range(2):
        with pytest.raises(StorageError, match="what the file says of the program: "):
            loaded.update([("a", "b")])
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("engine", "os"),
        ("engine", None),
        ("hyperparameters", "os:system"),
        ("restarts", "1"),
        ("callback", "print"),
        ("program", "program:xpgp"),
    ],
)
def test_options_of_the_engine_are_checked(name: str, value: Any, saved: dict[str, Any]) -> None:
    arrays, content = saved["utilities"].arrays()
    call = deepcopy(content["origin"])
    call["engine"][name] = value
    with pytest.raises(StorageError):
        storage.unpack(arrays, dump(content | {"origin": call})).origin.engine  # noqa: B018


@pytest.mark.parametrize(
    "name", ["data.comparisons/winner", "data._graphs.next/source", "data._graphs.next/weight"]
)
def test_positions_that_lead_nowhere(name: str, saved: dict[str, Any]) -> None:
    arrays, content = saved["utilities"].arrays()
    bad = -arrays[name] if "weight" in name else arrays[name] + 12
    with pytest.raises(StorageError):
        storage.unpack(arrays | {name: bad}, dump(content))


def test_sparse_features_are_checked_before_they_are_used() -> None:
    from scipy import sparse

    features = sparse.random_array((5, 4), density=0.5, rng=np.random.default_rng(0), format="csr")
    labels = np.arange(25.0).reshape(5, 5)
    ranker = ConditionalRanker("gaussian", loss="regression").fit(features, labels)
    arrays, content = ranker.posterior_.arrays()
    indices, pointers = (arrays[f"nodes.features/{name}"] for name in ("indices", "indptr"))
    falling = "index pointers do not rise from 0 to 10"
    for name, bad, message in (
        ("indices", np.r_[indices[:-1], 2**30], None),
        ("indptr", np.r_[pointers[:-1], 2**30], None),
        ("indices", np.r_[indices[:-1], -5], None),
        ("indptr", 0 * pointers, falling),
        ("indptr", pointers[::-1], falling),
        ("indptr", pointers // 2, falling),
        ("indptr", np.r_[0, pointers[-1], 0 * pointers[2:]], falling),
    ):
        forged = arrays | {f"nodes.features/{name}": bad.astype(pointers.dtype)}
        with pytest.raises(StorageError, match=message):
            storage.unpack(forged, dump(content))


def link_to(target: Any) -> Callable[[h5py.File], None]:
    def forge(file: h5py.File) -> None:
        del file["mean"]
        file["mean"] = target

    return forge


def inside_itself(file: h5py.File) -> None:
    file["sites/sites"] = file["sites"]


def huge(file: h5py.File) -> None:
    file.create_dataset("bomb", (2**50,), "f8", chunks=(2**20,), compression="gzip")


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (link_to(h5py.ExternalLink("other.nc", "/mean")), "link"),
        (link_to(h5py.SoftLink("/key")), "link"),
        (inside_itself, r"run\.nc cannot be read"),
        (huge, "bomb needs"),
    ],
)
def test_a_file_leads_nowhere_else_and_is_as_large_as_it_looks(
    forge: Callable[[h5py.File], None], message: str, saved: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("run.nc", "other.nc"):
        saved["utilities"].save(tmp_path / name)
    with h5py.File(tmp_path / "run.nc", "a") as file:
        forge(file)
    with pytest.raises(StorageError, match=message):
        relpref.load(tmp_path / "run.nc")


@dataclass(frozen=True)
class Wide:
    """A kernel of somebody."""

    factor: float = 2.0

    def parameters(self, domain: Any) -> dict[str, Any]:
        return {}

    def __call__(self, attributes: Any, **_: Any) -> Any:
        return Matern32()(attributes * self.factor, lengthscale=jnp.ones(2))


def own_program(data: PreferenceData, *, standardize: bool = True) -> None:
    xpgp(data, standardize=standardize)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", {kind: {} for kind in registry.KINDS})


@pytest.mark.usefixtures("clean")
def test_a_program_of_ones_own(saved: dict[str, Any], tmp_path: Path) -> None:
    posterior, path = saved["utilities"], tmp_path / "own.nc"
    origin = replace(posterior.origin, program=partial(own_program, standardize=False), kwargs={})
    replace(posterior, origin=origin).save(path)
    stored = json.loads(codec.read(path)[1]["relpref"])["origin"]
    assert stored["program"] == "own_program"
    alone: Any = relpref.load(path)
    assert alone.origin is None
    pd.testing.assert_frame_equal(alone.ranking(), posterior.ranking())
    given: Any = relpref.load(path, program=own_program)
    assert given.origin.program is own_program and given.origin.kwargs == {"standardize": False}
    with pytest.raises(StorageError, match="the argument 'standardize', which it does not have"):
        relpref.load(path, program=lambda data: None)
    # Registered before saving, it needs no argument, but a session that registers it.
    relpref.register("program", "own", own_program)
    replace(posterior, origin=origin).save(path)
    found: Any = relpref.load(path)
    assert found.origin.program is own_program
    registry._added["program"].clear()
    with pytest.raises(
        StorageError, match="'program:own', which is not registered.*relpref.register"
    ):
        relpref.load(path)


@pytest.mark.usefixtures("clean")
def test_a_kernel_of_ones_own(saved: dict[str, Any]) -> None:
    posterior = saved["utilities"]
    own = replace(
        posterior, origin=replace(posterior.origin, kwargs={"attribute_kernel": Wide(3.0)})
    )
    assert own.arrays()[1]["origin"] is None  # nobody could find it again
    relpref.register("kernel", "Wide", Wide)
    arrays, content = own.arrays()
    found: Any = storage.unpack(arrays, dump(content))
    assert found.origin.kwargs == {"attribute_kernel": Wide(3.0)}
    forged: Any = storage.unpack(arrays, dump(content).replace("3.0", '"wide"'))
    with pytest.raises(StorageError, match="factor"):
        forged.origin.kwargs  # noqa: B018


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("kind", "name", "thing", "reason"),
    [
        ("programs", "mine", own_program, "kind is 'programs'"),
        ("program", "", own_program, "as text"),
        ("program", "xpgp", own_program, "registered already"),
        ("program", "mine", "relpref.models:xpgp", "not callable"),
        ("kernel", "mine", own_program, "a dataclass"),
        ("engine", "mine", own_program, "give its class"),
        ("chapter", "sites.mine", own_program, "names no kind of posterior"),
    ],
)
def test_what_cannot_be_registered(kind: Any, name: Any, thing: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        relpref.register(kind, name, thing)
    relpref.register("chapter", "program.mine", own_program)
    relpref.register("program", "taken", own_program)
    relpref.register("program", "taken", own_program)  # a module that is imported again
    with pytest.raises(DataError, match="registered already"):
        relpref.register("program", "taken", xpgp)


PLUGIN = """
print("imported")
def program(data, *, likelihood=None):
    from relpref.models import xpgp
    xpgp(data, likelihood=likelihood)
"""


@pytest.mark.usefixtures("clean")
def test_entry_points_are_for_the_command_line_and_names_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    about = tmp_path / "relpref_plugin-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: relpref-plugin\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[relpref]\nprogram.plugged = relpref_plugin:program\nprogram.xpgp = "
        "relpref_plugin:program\n"
    )
    (tmp_path / "relpref_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert registry.find("program", "plugged") is None
    with registry.entry_points_for_unknown_names():
        assert registry.find("program", "xpgp") is xpgp
        assert registry.find("program", "other") is None
        assert registry.find("kernel", "plugged") is None
        assert capsys.readouterr().out == ""
        assert registry.find("program", "plugged").__module__ == "relpref_plugin"
    assert capsys.readouterr().out == "imported\n"
    (tmp_path / "entities.csv").write_text("name,x\na,1\nb,2\nc,4\n")
    (tmp_path / "comparisons.csv").write_text("winner,loser\na,b\nb,c\n")
    monkeypatch.setitem(registry._added, "program", {})
    fit = "fit --folder . --model plugged --quiet --out "
    fixed = (
        "run --fixed attributes_amplitude=1 --fixed attributes_lengthscale=1 "
        "--fixed attributes_linear_share=0.5"
    )
    assert main((fit + fixed).split()) == 0
    monkeypatch.setitem(registry._added, "program", {})
    with pytest.raises(StorageError, match="'program:plugged', which is not registered"):
        relpref.load("run/posterior.nc")  # only the command line looks for entry points
    assert main(["prefer", "run", "a", "b"]) == 0
    assert main((fit + "other --attribute-kernel linear").split()) == 2
    assert "cannot be called with the data and these options" in capsys.readouterr().err


def test_every_string_of_the_record_of_a_run(
    saved: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    (tmp_path / "answers.csv").write_text("winner,loser\na,b\n")
    tables = copied({"comparisons": tmp_path / "answers.csv"})
    save_run(
        folder,
        saved["utilities"],
        tables,
        command="fit",
        model="xpgp",
        seed=0,
        options={"engine": "ep"},
        replace=False,
    )
    monkeypatch.setattr(
        storage, "load", lambda path: path.name
    )  # what is in that file is hostile elsewhere
    record = json.loads((folder / "run.json").read_text())
    record["answers"] = {"file": "answers.sqlite", "store": "0" * 32, "version": 1}
    refused = 0
    for row, (found, rebuilt) in enumerate(strings(record)):
        for new in (HOSTILE[(7 * row + k) % len(HOSTILE)] for k in range(7)):
            (folder / "run.json").write_text(json.dumps(rebuilt(new)))
            with nothing_happens():
                try:
                    run: Any = load_run(folder)
                    assert (run.metadata, run.posterior) == (rebuilt(new), "posterior.nc"), (
                        found,
                        new[:100],
                    )
                except StorageError:
                    refused += 1
    assert refused > 50
    damages = {"posterior": [], "tables": [1], "answers": {"version": "1"}, "seed": None}
    for name, damage in damages.items():
        (folder / "run.json").write_text(json.dumps(record | {name: damage}))
        with pytest.raises(StorageError, match="damaged"):
            load_run(folder)
