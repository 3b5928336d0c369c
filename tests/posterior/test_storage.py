import gc
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import relpref
from relpref.data import PreferenceData
from relpref.errors import StorageError
from relpref.infer import EP, UtilityPosterior, from_samples
from relpref.kernels import GaussianProcess
from relpref.linalg import Dense
from relpref.models import xpgp
from relpref.posterior import codec


def measuring(values: Any) -> None:
    """A program of one's own; its data are no preference data."""
    f = numpyro.sample("f", GaussianProcess(Dense(jnp.eye(3) + 0.5)))
    with numpyro.plate("row", 3):
        numpyro.sample("y", dist.Normal(f, 0.5), obs=values)


@pytest.fixture(scope="module")
def kinds(
    posterior: Any, maximised: Any, data: PreferenceData, samples: dict[str, Any]
) -> dict[str, Any]:
    return {
        "fixed": posterior,
        "maximised": maximised,
        "draws": from_samples(samples, xpgp, data, num_chains=2),
        "plain": EP(measuring).run(5, np.array([0.1, -1.0, 2.0])),
    }


def check_same(first: Any, second: Any) -> None:
    assert type(first) is type(second)
    assert first.log_evidence == second.log_evidence
    for name in ("info", "slices"):
        assert dict(getattr(first, name)) == dict(getattr(second, name))
    for name in ("hyperparameters", "hyperparameter_draws", "sites"):
        left, right = getattr(first, name), getattr(second, name)
        assert list(left) == list(right)
        for key in left:
            assert type(left[key]) is type(right[key])
            assert_array_equal(left[key], right[key], strict=True)
    assert_array_equal(first.key, second.key, strict=True)
    assert_array_equal(first.mean(), second.mean(), strict=True)
    assert_array_equal(first.covariance(), second.covariance(), strict=True)
    assert_array_equal(first.sample(3), second.sample(3), strict=True)
    if isinstance(first, UtilityPosterior):
        one, other = first.data, second.data
        assert list(map(repr, one.labels)) == list(map(repr, other.labels))
        assert one.notes == other.notes
        for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            assert_array_equal(left, right, strict=True)
        pd.testing.assert_frame_equal(first.ranking(), second.ranking())
        pd.testing.assert_frame_equal(first.explain(), second.explain())


@pytest.mark.parametrize("kind", ["fixed", "maximised", "draws", "plain"])
def test_round_trip(kind: str, kinds: dict[str, Any], tmp_path: Path) -> None:
    kinds[kind].save(tmp_path / "one.nc")
    read = relpref.load(tmp_path / "one.nc")
    check_same(kinds[kind], read)
    read.save(str(tmp_path / "two.nc"))
    assert (tmp_path / "one.nc").read_bytes() == (tmp_path / "two.nc").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.nc", "two.nc"]


def test_labels_and_notes_come_back(
    make_data: Callable[..., PreferenceData], fit: Any, tmp_path: Path
) -> None:
    leap, moment = date(2024, 2, 29), datetime(2024, 2, 29, 12, 30)
    names = [("a", 1), "1", 1, -4, leap, moment, ".", "ä\nö", 1.5, False, ("b", (1, "c"))]
    names.append(pd.Timestamp("2024-02-29 12:30:00.000000001"))
    posterior = fit(make_data(names=names))
    posterior.save(tmp_path / "labels.nc")
    check_same(posterior, relpref.load(tmp_path / "labels.nc"))
    for table in (posterior.utilities(), posterior.explain()):
        assert list(map(repr, table.index)) == list(map(repr, names))
    answer = posterior.prefer([(("a", 1), 1), (leap, False)])
    assert answer["first"].tolist() == [("a", 1), leap]
    assert answer["second"].tolist() == [1, False]


def test_labels_that_cannot_be_stored(posterior: Any, tmp_path: Path) -> None:
    labels = (frozenset({1}), *posterior.data.labels[1:])
    with pytest.raises(StorageError, match="frozenset"):
        replace(posterior, data=replace(posterior.data, labels=labels)).save(tmp_path / "run.nc")
    assert not list(tmp_path.iterdir())


def test_it_is_plain_netcdf(posterior: Any, tmp_path: Path) -> None:
    import xarray

    posterior.save(tmp_path / "run.nc")
    with xarray.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as file:
        assert_array_equal(file["mean"], posterior.mean())
        assert "created" not in " ".join(file.attrs)


@pytest.fixture
def saved(posterior: Any, tmp_path: Path) -> Path:
    path = tmp_path / "run.nc"
    posterior.save(path)
    return path


def truncated(content: bytes, part: float) -> bytes:
    return content[: int(part * len(content))]


@pytest.mark.parametrize(
    "damage",
    [
        *(partial(truncated, part=part) for part in (0.0, 0.001, 0.1, 0.5, 0.9, 0.999)),
        lambda _: b"\x89HDF\r\n\x1a\n" + bytes(500),
        lambda _: b"winner,loser\na,b\n" * 100,
    ],
)
def test_truncated_files_and_garbage(damage: Callable[[bytes], bytes], saved: Path) -> None:
    saved.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(StorageError, match=r"run\.nc"):
        relpref.load(saved)


def test_missing_files_and_folders(tmp_path: Path, posterior: Any) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        relpref.load(tmp_path / "missing.nc")
    with pytest.raises(StorageError):
        relpref.load(tmp_path)
    with pytest.raises(StorageError, match="is a folder"):
        posterior.save(tmp_path)
    with pytest.raises(StorageError, match="cannot write"):
        posterior.save(tmp_path / "missing" / "run.nc")


def replace_in_content(path: Path, old: str, new: str) -> None:
    with h5netcdf.File(path, "a") as file:
        content = str(file.attrs["relpref"])
        assert old in content
        file.attrs["relpref"] = content.replace(old, new)
    reseal(path)


def reseal(path: Path) -> None:
    """Make the checksum fit again, as somebody who forges a file would."""
    arrays, attributes = codec.read(path)
    with h5netcdf.File(path, "a") as file:
        file.attrs["relpref_sha256"] = codec.checksum(arrays, attributes["relpref"])


def test_a_flipped_bit_is_found(saved: Path) -> None:
    with h5netcdf.File(saved, "a") as file:
        file.variables["mean"][0] += 1e-9
    with pytest.raises(StorageError, match="checksum"):
        relpref.load(saved)


def test_text_that_is_no_text_is_a_storage_error(saved: Path) -> None:
    content = saved.read_bytes()
    assert b'"slices"' in content
    saved.write_bytes(content.replace(b'"slices"', b'"sl\xe3ces"'))
    with pytest.raises(StorageError, match="damaged"):
        relpref.load(saved)


def test_a_damaged_file_leaves_nothing_half_open(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(saved, "r+") as file:
        # Of a type that h5py cannot read; h5netcdf looks for this one while it opens a file.
        scalar = h5py.h5s.create(h5py.h5s.SCALAR)
        h5py.h5a.create(file.id, b"_nc3_strict", h5py.h5t.UNIX_D32LE, scalar)
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with pytest.raises(StorageError, match="cannot be read as a posterior"):
        relpref.load(saved)
    gc.collect()
    assert not ignored


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "foreign.nc"
    with h5netcdf.File(path, "w") as file:
        file.dimensions["x"] = 3
        file.create_variable("mean", ("x",), data=np.zeros(3))
    with pytest.raises(StorageError, match="no relpref posterior"):
        relpref.load(path)


@pytest.mark.parametrize(
    ("schema", "message"), [(99, "schema 99.*newer"), (1, "schema 1.*fit again")]
)
def test_files_of_other_schemas(schema: int, message: str, saved: Path) -> None:
    with h5netcdf.File(saved, "a") as file:
        file.attrs["relpref_schema"] = schema
    with pytest.raises(StorageError, match=message):
        relpref.load(saved)


def test_unknown_kinds_of_labels(saved: Path) -> None:
    replace_in_content(saved, '"e3"', '{"colour": "red"}')
    with pytest.raises(StorageError, match="'colour'"):
        relpref.load(saved)


def test_a_file_cannot_name_programs_of_others(saved: Path) -> None:
    before = "program:xpgp"
    for program in (
        "os:system",
        "relpref.posterior.storage:save",
        "program:no_such",
        "engine:EP",
    ):
        replace_in_content(saved, before, program)
        with pytest.raises(StorageError, match="is not registered"):
            relpref.load(saved)
        before = program


@pytest.mark.parametrize(
    "missing", ["mean", "covariance", "key", "data.comparisons/winner", "sites/shift"]
)
def test_incomplete_files(missing: str, saved: Path) -> None:
    with h5py.File(saved, "a") as file:
        del file[missing]
    reseal(saved)
    with pytest.raises(StorageError, match=r"run\.nc"):
        relpref.load(saved)


# Kills copies of itself at random moments while they save one posterior over the other, and looks
# at what is left.
KILLER = """
import os, random, signal, sys, time
import relpref
first, second, target = sys.argv[1:]
posteriors = [relpref.load(first), relpref.load(second)]
whole = [open(path, "rb").read() for path in (first, second)]
random.seed(0)
seen = set()
begin = time.perf_counter()
posteriors[0].save(target)
unit = time.perf_counter() - begin  # a machine under load takes its time
for trial in range(200):
    if trial >= 25 and len(seen) == 2:
        break
    child = os.fork()
    if child == 0:
        try:
            while True:
                for posterior in posteriors:
                    posterior.save(target)
        finally:
            os._exit(1)
    time.sleep(random.uniform(0.0, 8 * unit))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    content = open(target, "rb").read()
    assert content in whole, (trial, len(content))
    seen.add(whole.index(content))
print(sorted(seen))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_killed_while_saving_leaves_a_whole_file(
    posterior: Any, maximised: Any, tmp_path: Path
) -> None:
    first, second, target = (tmp_path / name for name in ("first.nc", "second.nc", "target.nc"))
    posterior.save(first)
    maximised.save(second)
    posterior.save(target)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-W", "ignore", "-c", KILLER, str(first), str(second), str(target)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[0, 1]\n"
    check_same(
        relpref.load(target), posterior if target.read_bytes() == first.read_bytes() else maximised
    )


FULL = """
import gc, os, resource, sys
import relpref
from relpref.errors import StorageError

posterior, limit = relpref.load(sys.argv[1]), resource.getrlimit(resource.RLIMIT_FSIZE)
for size in (0, 100, os.path.getsize(sys.argv[1]) - 1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        posterior.save(sys.argv[1])
    except StorageError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        print(error)
    gc.collect()
"""


def test_a_full_disk_leaves_the_process_and_the_earlier_file(saved: Path) -> None:
    before = saved.read_bytes()
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(saved)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    line = f"cannot write {saved}: File too large; the earlier file is untouched\n"
    assert (done.returncode, done.stderr, done.stdout) == (0, "", 3 * line)
    assert saved.read_bytes() == before and [file.name for file in saved.parent.iterdir()] == [
        saved.name
    ]


def test_labels_of_lists_in_earlier_files() -> None:
    """Each row had the position of its list's label, in an order of their own."""
    table = {"list": list("xxxyyyzzz"), "item": list("abcbcacab"), "place": [1, 2, 3] * 3}
    data = PreferenceData.from_tables(answers=pd.DataFrame(table))
    assert data.comparisons.lists == ("x", "z", "y") and data.comparisons.list is not None
    arrays: dict[str, Any] = {}
    stored = codec.encode(data, arrays, "data")
    fields = stored["fields"]["comparisons"]["fields"]
    fields |= {"lists": {"tuple": ["z", "y", "x"]}, "list_label": {"array": "int32"}}
    path = codec.array_name("data/comparisons/list_label")
    arrays[path] = np.array([2, 0, 1], np.int32)[data.comparisons.list]
    assert codec.decode(stored, arrays, "data").comparisons.lists == ("x", "z", "y")
    assert "list_label" not in codec.encode(data, {}, "data")["fields"]["comparisons"]["fields"]


def test_stored_labels_with_blanks_are_found_by_either_form(tmp_path: Path) -> None:
    """Runs of earlier versions have items and raters with blanks around their labels."""
    answers = pd.DataFrame(
        {"winner": ["Ann", "Bo", "Ann"], "loser": ["Bo", "Cy", "Cy"], "rater": ["x", "y", "x"]}
    )
    fixed: Any = {"individual_amplitude": 1.0, "rater_noise": [0.5, 2.0]}
    fitted = relpref.fit(answers=answers, fixed=fixed, check=False)
    comparisons = replace(fitted.data.comparisons, raters=("x ", "y"))
    data = replace(fitted.data, labels=("Ann ", "Bo", "Cy"), comparisons=comparisons)
    replace(fitted, data=data).save(tmp_path / "old.nc")
    old: Any = relpref.load(tmp_path / "old.nc")
    assert old.data.labels == ("Ann ", "Bo", "Cy")
    wanted = old.prefer("Ann ", "Bo", rater="x ")["probability"][0]
    assert old.prefer("Ann", "\u00a0Bo", rater="x")["probability"][0] == wanted
    one, other = (old.choose([label, "Bo"])["probability"].iloc[0] for label in ("Ann", "Ann "))
    assert one == other
    assert old.order(["Ann", "Bo"]) == old.order(["Ann ", "Bo "])
    more = old.update(answers.assign(winner=["Ann ", "Bo", "Ann"]))
    assert more.data.labels == old.data.labels and more.data.comparisons.raters == ("x ", "y")
    assert more.data.comparisons.count.tolist() == [2, 2, 2]
