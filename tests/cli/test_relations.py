"""Kinds of relations and kernels on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from relpref import PreferenceData
from relpref.cli.parser import parse
from relpref.kernels import Diffusion, HiddenCommonCause, Matern32
from relpref.registry import CHOICES, word_for
from relpref.runs import load_run

TABLES = "--items tables/entities.csv --answers tables/comparisons.csv"
HOT = "tables/relations/hot.csv"
KERNELS = (
    "--kernel hot=diffusion --kernel served=hidden-common-cause-cliques "
    "--attribute-kernel matern32 --shared-lengthscale"
)
AMPLITUDES = [f"{part}_amplitude" for part in ("attributes", "hot_linking", "hot_linked", "served")]
RANGES = ["attributes_lengthscale", "hot_linking_time", "hot_linked_time"]
FIXED = " ".join(f"--fixed={name}=1" for name in AMPLITUDES + RANGES)


@pytest.fixture
def served(place: Path) -> str:
    (place / "served.csv").write_text(
        "source,target\ntea,cup\ncoffee,cup\nwater,glass\ncola,glass\nNA,cup\n"
    )
    return "served.csv"


def test_kinds_and_kernels(place: Path, ask: Any, snapshot: Any, served: str) -> None:
    given = f"hot={HOT}:directed --relation served={served}:bipartite,hubs=count,max_degree=5"
    said = ask(f"fit {TABLES} --relation {given} {KERNELS} {FIXED} --out one")
    assert "hot_linking" in said
    assert {
        "data/relations/hot.directed.csv",
        "data/relations/served.bipartite,hubs=count,max_degree=5.csv",
    } <= set(snapshot(place / "one"))
    record = json.loads((place / "one/run.json").read_text())
    assert record["options"]["kernels"] == {
        "hot": "diffusion",
        "served": "hidden-common-cause-cliques",
    }
    assert record["options"]["attribute_kernel"] == "matern32"
    posterior: Any = load_run("one").posterior
    assert posterior.data.links["hot"].relation.kind == "directed"
    assert posterior.data.links["served"].targets == ("cup", "glass")
    relation = posterior.data.links["served"].relation
    assert (relation.hubs, relation.max_degree) == ("count", 5)
    assert posterior.origin.kwargs["attribute_kernel"] == Matern32(shared_lengthscale=True)
    assert posterior.origin.kwargs["relation_kernels"] == {
        "hot": Diffusion(),
        "served": HiddenCommonCause(method="cliques"),
    }
    # The copies keep the kinds.
    ask(f"fit --folder one/data {KERNELS} {FIXED} --out two")
    before, after = snapshot(place / "one"), snapshot(place / "two")
    assert before.pop("run.json") != after.pop("run.json")  # which says how the files were called
    assert before == after


def test_a_folder_says_the_kind_in_the_name(place: Path) -> None:
    (place / HOT).rename(place / "tables/relations/hot.random_walk,teleport=0.3.csv")
    found = PreferenceData.from_folder("tables")
    assert found.links["hot"].relation.form == "random_walk"
    assert found.links["hot"].relation.teleport == 0.3
    (place / "tables/relations/directed.csv").write_text("source,target\ntea,coffee\n")
    assert list(PreferenceData.from_folder("tables").relations) == ["directed", "hot"]
    (place / "tables/relations/hot.csv").write_text("source,target\ntea,coffee\n")
    with pytest.raises(ValueError, match="the relation 'hot' is also in hot"):
        PreferenceData.from_folder("tables")


def test_colons_in_file_names(place: Path, invoke: Any) -> None:
    (place / "a:b.csv").write_text((place / HOT).read_text())
    for ending in ("", ":undirected"):
        said = invoke(f"fit {TABLES} --relation hot=a:b.csv{ending} --out one --attribute-kernel x")
        assert "--attribute-kernel: there is no attribute kernel 'x'; use squared-" in said.err
    said = invoke(f"fit {TABLES} --relation hot=a:b.csv:directed --kernel cold=diffusion --out one")
    assert "there is no relation 'cold'; the relations are 'hot'" in said.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--relation hot=:directed", "write the name and the file"),
        (f"--relation hot={HOT}:both", "there is no kind 'both'; use one of undirected, directed"),
        (
            f"--relation hot={HOT} --kernel hot",
            "write the relation and one of regularized-laplacian",
        ),
        (
            f"--relation hot={HOT} --kernel hot=heat",
            "--kernel: there is no relation kernel 'heat'; use regularized-laplacian",
        ),
        ("--kernel hot=relation-vectors --kernel hot=diffusion", "'hot' is named twice"),
        (
            "--kernel hot=relation-vectors --model preference_gp",
            "a model of attributes and the items themselves does not use relations",
        ),
        (f"--relation hot={HOT}:bipartite", "'coffee' is an item"),
        (
            f"--relation hot={HOT}:directed,max_degree=few",
            "'max_degree=few' is no option of a relation",
        ),
        (
            f"--relation hot={HOT}:random_walk,max_degree=5",
            "max_degree belongs to bipartite relations",
        ),
        (f"--relation hot={HOT}:directed --relation hot_linked={HOT}", "'hot_linked' is a role of"),
        ("--relation hot=nowhere.csv:directed", "nowhere.csv"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: str, reason: str, place: Path, refused: Any
) -> None:
    assert reason in refused(f"fit {TABLES} {arguments} --out one")


def test_an_attribute_kernel_needs_attributes(place: Path, refused: Any) -> None:
    (place / "tables/entities.csv").write_text("name\ntea\ncoffee\nwater\ncola\n007\nNA\n")
    assert "the items have no attributes" in refused(
        f"fit {TABLES} --relation hot={HOT} --attribute-kernel linear --out one"
    )


def test_the_help_names_every_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["fit", "--help-all"])
    words = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    kernels = (*CHOICES["attribute kernel"], *CHOICES["relation kernel"])
    assert all(word_for(name) in words for name in kernels)
