import hashlib
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.data_loaders import ModeChoice, load_modechoice
from relpref.data_loaders.bundled import MODES


@pytest.fixture(scope="module")
def choices() -> ModeChoice:
    return load_modechoice()


def raw() -> pd.DataFrame:
    with (files("relpref.data_loaders") / "tables/modechoice.csv").open("rb") as file:
        return pd.read_csv(file)


def test_the_table_is_the_published_one() -> None:
    content = (files("relpref.data_loaders") / "tables/modechoice.csv").read_bytes()
    assert (
        hashlib.sha256(content).hexdigest()
        == "af4596b419141194d03b71586be62a9d18dafb13a8ad802fffe8345bbaca50fa"
    )
    # Chosen shares as published (Greene, Econometric Analysis): 58 by air, 63 by train, 30 by bus,
    # 59 by car.
    table = raw()
    assert table.groupby("mode")["choice"].sum().tolist() == [58, 63, 30, 59]


def test_shapes_and_labels(choices: ModeChoice) -> None:
    assert choices.items.shape == (840, 3)
    assert choices.items.index[0] == "t001:air" and choices.items.index[-1] == "t210:car"
    assert list(choices.items.columns) == ["terminal_time", "cost", "travel_time"]
    assert len(choices.answers) == 840
    assert choices.traveler["t017:train"] == "t017" and choices.mode["t017:train"] == "train"
    assert choices.travelers.shape == (210, 4)
    data = PreferenceData.from_tables(choices.items, choices.answers, choices.relations)
    assert data.notes == ("answers: the rows were read as choices",)
    assert data.comparisons.list_sizes == (256, 3, 4, False)
    assert data.num_answers == data.num_comparisons == 630


def test_every_traveler_chose_one_of_four_alternatives(choices: ModeChoice) -> None:
    table = raw()
    chosen = table[table["choice"] == 1].set_index("individual")["mode"]
    for traveler, rows in choices.answers.groupby("choice"):
        assert (choices.traveler[rows["item"]] == traveler).all() and len(rows) == 4
        mode = MODES[chosen[int(str(traveler)[1:])] - 1]
        assert rows["item"][rows["chosen"]].tolist() == [f"{traveler}:{mode}"]
        assert choices.travelers.loc[traveler, "chosen"] == mode


def test_attributes_do_not_give_the_choice_away(choices: ModeChoice) -> None:
    """Alternatives of one mode and route are equal, chosen or not."""
    route = choices.travelers.loc[choices.traveler, "route"].to_numpy()
    kinds = choices.items.groupby([choices.mode, route])
    assert kinds.ngroups == 8
    assert (kinds.nunique() == 1).all(axis=None)
    assert choices.items.loc["t001:air"].tolist() == [69, 64, 124]
    assert choices.travelers["route"].value_counts().to_dict() == {"A": 109, "B": 101}
    assert choices.travelers.drop(columns="chosen").loc["t003"].tolist() == [40, 1, "A"]


def test_relation_joins_alternatives_of_one_mode_for_travellers_alike(choices: ModeChoice) -> None:
    links = choices.relations["mode"]
    mode = choices.mode
    assert (mode.loc[links["source"]].to_numpy() == mode.loc[links["target"]].to_numpy()).all()
    who = choices.travelers
    ends = [who.loc[choices.traveler.loc[links[end]]] for end in ("source", "target")]
    income, party = (
        np.stack([end[name].to_numpy() for end in ends]) for name in ("income", "party")
    )
    assert np.abs(np.diff(income, axis=0)).max() == 5
    assert (np.minimum(party, 3)[0] == np.minimum(party, 3)[1]).all()
    # And all of those: counted over pairs of travelers, once for each mode.
    income, party = who["income"].to_numpy(), np.minimum(who["party"].to_numpy(), 3)
    alike = (np.abs(income[:, None] - income) <= 5) & (party[:, None] == party)
    assert len(links) == 4 * (int(alike.sum()) - 210) // 2
    assert not links.duplicated().any()
