"""Former names of keywords, attributes and options still work, and warn."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.classifiers import RankingGPClassifier
from relpref.cli.parser import parse
from relpref.data_loaders import load_modechoice
from relpref.errors import renamed_keywords
from relpref.explore import ExpectedGain

ITEMS = pd.DataFrame({"size": [1.0, 2.0, 3.0]}, index=list("abc"))
ANSWERS = pd.DataFrame({"winner": ["a", "b"], "loser": ["b", "c"]})


def test_tables_under_their_former_keywords() -> None:
    data = PreferenceData.from_tables(items=ITEMS, answers=ANSWERS)
    with pytest.warns(
        DeprecationWarning, match=r"from_tables\((entities|comparisons)=\) is (items|answers)="
    ):
        former = PreferenceData.from_tables(entities=ITEMS, comparisons=ANSWERS)  # type: ignore[call-arg]
    assert former.labels == data.labels and former.num_answers == data.num_answers == 2
    with pytest.warns(DeprecationWarning, match=r"PreferenceData.labels"):
        assert data.entities == ("a", "b", "c")
    with pytest.warns(DeprecationWarning, match=r"PreferenceData.num_items"):
        assert data.num_entities == 3
    with pytest.raises(TypeError, match="give items= alone"):
        PreferenceData.from_tables(items=ITEMS, entities=ITEMS)  # type: ignore[call-arg]


def test_folders_under_their_former_names(tmp_path: Path) -> None:
    ITEMS.to_csv(tmp_path / "entities.csv")
    ANSWERS.to_csv(tmp_path / "answers.csv", index=False)
    assert PreferenceData.from_folder(tmp_path).num_answers == 2
    ITEMS.to_csv(tmp_path / "items.csv")
    with pytest.raises(ValueError, match=r"there is items.csv and entities.csv; remove one"):
        PreferenceData.from_folder(tmp_path)


def test_options_under_their_former_names(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = parse(["fit", "--entities", "a.csv", "--comparisons=b.csv", "--fix", "scale=1", "--out", "run"])
    assert (chosen.items, chosen.answers, chosen.fixed) == ("a.csv", "b.csv", ["scale=1"])
    assert "warning: --comparisons is --answers now" in capsys.readouterr().err


def test_estimators_and_loaders_under_their_former_names() -> None:
    with pytest.warns(DeprecationWarning, match="is tol= now"):
        assert RankingGPClassifier(tolerance=0.1).get_params()["tol"] == 0.1
    with pytest.warns(DeprecationWarning, match="ExpectedGain.all_items"):
        assert ExpectedGain(1, 0.2, 0.1, False).everybody is False
    with pytest.warns(DeprecationWarning, match="all_items="):
        assert ExpectedGain(1, 0.2, 0.1, everybody=True).all_items  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match="ModeChoice.items"):
        assert len(load_modechoice().entities) == 840


def test_the_new_name_is_what_the_function_gets() -> None:
    @renamed_keywords(key="rng_key")
    def draw(number: int, *, rng_key: Any = 0) -> Any:
        return number, rng_key

    assert draw(2, rng_key=3) == (2, 3)
    with pytest.warns(DeprecationWarning, match="the former name goes with the next release"):
        assert draw(2, key=4) == (2, 4)  # type: ignore[call-arg]
