from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.data import Graph, PreferenceData, Relation
from relpref.errors import DataError
from relpref.infer import EP, UtilityPosterior
from relpref.kernels import HiddenCommonCause, Linear, Matern52, Precomputed, RelationVectors
from relpref.likelihoods import Logistic
from relpref.models import preference_gp, xpgp
from relpref.posterior.base import Parts
from relpref.posterior.gaussian import GaussianBelief, MixtureBelief
from relpref.posterior.origin import Origin
from relpref.report.page import render

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.mark.parametrize(
    ("gaps", "words"),
    [
        ([9.0], "a leads: it is the best with a probability of >99.9%."),
        (
            [9.0, 8.9],
            "a and b lead: one of them is the best with a probability of >99.9%. a is the best with",
        ),
        ([2.0, 2, 1.9, 1.9, 1.9], "Nobody leads clearly: the best may be any of 5 items. a is the"),
        (
            [],
            "Nobody leads clearly: the best may be any of 8 items. a is the best with a probability of 13%.",
        ),
    ],
)
def test_how_sure_the_leader_is(make: Any, prose: Any, gaps: list[float], words: str) -> None:
    """The fewest are named among whom the best is with a probability of 95 %."""
    mean = np.array([*gaps, *np.zeros(8 - len(gaps))])
    text = prose(make(belief=GaussianBelief(mean, np.eye(8) * 0.5)))
    assert words in text


def test_tiers_in_words(make: Any, prose: Any) -> None:
    mean = np.repeat([20.0, 10.0, 0.0], [2, 1, 5])
    text = prose(make(belief=GaussianBelief(mean, np.eye(8) * 0.5)))
    assert "Tiers, for all pairs at once: a and b; then c; then d, e, f and 2 more." in text
    assert "A tier is its best item and all that cannot be told apart from it" in text


def test_utilities_as_chances(make: Any, prose: Any) -> None:
    certain = make(belief=GaussianBelief(np.array([50.0, *np.zeros(7)]), np.eye(8)))
    assert "in more than 99 of 100 answers" in prose(certain)
    # Nobody knows how answers follow from utilities.
    assert "average item" not in prose(make(origin=None))
    given = make(info={k: v for k, v in make().info.items() if k != "evaluations"})
    assert "These were given, not fitted." in prose(given)


def parts_of(**means: Any) -> Any:
    """Parts of utilities on a line between two ends each, all of one variance."""
    lines = {name: np.linspace(start, end, 8) for name, (start, end) in means.items()}
    return {"utility": Parts(lines, dict.fromkeys(lines, np.ones(8)))}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        # Two ramps of length 2.5 and 1.5: shares 2.5/4 and 1.5/4.
        (
            parts_of(attributes=(1.5, -1.0), near=(0.5, -1.0)),
            "What drives it attributes 62% relation near 38%",
        ),
        (
            parts_of(attributes=(2, -2), near=(-1, 1)),  # which works against the other
            "attributes 200% relation near −100%",
        ),
        (
            parts_of(**{f"part{number}": (number, 0) for number in range(20)}),
            "Of 20 parts, the 12 with the largest shares are shown.",
        ),
    ],
)
def test_contributions(make: Any, prose: Any, parts: Any, words: str) -> None:
    assert words in prose(make(parts=parts))


@pytest.mark.parametrize(
    "parts", [{}, parts_of(), parts_of(near=(0, 0)), parts_of(near=(0, 0), x=(0, 0))]
)
def test_nothing_to_split(make: Any, prose: Any, parts: Any) -> None:
    text = prose(make(parts=parts))
    assert "What drives it" not in text and "Where the utilities come from" not in text


@pytest.mark.parametrize("bound", [True, False])
def test_no_reading_for_unknown_kernels(make: Any, prose: Any, bound: bool) -> None:
    data = make().data
    options: dict[str, Any] = {
        "attribute_kernel": Precomputed(np.eye(8)),
        "relation_kernels": {"near": Precomputed(np.eye(8))},
    }
    origin = (
        Origin(partial(xpgp, **options), (data,), {}) if bound else Origin(xpgp, (data,), options)
    )
    text = prose(make(data, origin=origin, likelihood=Logistic()))
    for words in ("correlation 0.", "typically differ", "leans", "wins 84%"):
        assert words not in text


def test_shared_lengthscale_and_unknown_sites(make: Any, read: Any) -> None:
    posterior = make(
        hyperparameters={"attributes_lengthscale": 1.0, "other": np.ones(2), "scale": 3.0},
        origin=None,
    )
    cells = read(render(posterior, relations_evidence=False)).text("bdi")
    start = cells.index("attributes_lengthscale")
    assert cells[start + 1 : start + 3] == ["all attributes", "1.00"]
    assert "entry 2" in cells and "scale" in cells


def test_many_hyperparameters(make: Any, tables: Callable[..., PreferenceData], prose: Any) -> None:
    data = tables("abcdefgh", 30, **{f"x{number}": np.arange(8) for number in range(60)})
    assert "The first 40 of 63 values are shown." in prose(make(data))


HINT = "answers: 'who' may say who answered: columns={'rater': 'who'} (--columns rater=who) uses it"


def test_notes(make: Any, tables: Callable[..., PreferenceData], prose: Any) -> None:
    data = tables("abcdefgh", 6)
    both = pd.DataFrame({"winner": ["a", "b", "a"], "loser": ["b", "a", "c"]})
    text = prose(
        make(replace(data.with_comparisons(both), notes=("answers: 9 rows dropped", HINT)))
    )
    assert "--columns" not in text  # nothing to readers
    assert (
        "d, e, f, g and h were never compared; their places rest on attributes and relations alone."
        in text
    )
    assert "There are few answers: 0 about a typical item." in text
    assert "Pairs that were answered both ways 1" in text
    assert "answers: 9 rows dropped." in text
    assert "tied together" in prose(
        make(data, info={**make().info, "groups": "2 groups are tied together"})
    )


def test_what_is_said_before_any_answer(make: Any, prose: Any) -> None:
    text = prose(
        make(make().data.with_comparisons(None), belief=GaussianBelief(np.zeros(8), np.eye(8)))
    )
    assert "There are no answers yet, so the order below has no meaning." in text
    assert (
        "There are no answers yet, so these are the most probable values under their prior." in text
    )
    for words in (
        " lead",
        "is settled",
        "Values that maximize",
        "by 0 answers",
        "The fit switched",
    ):
        assert words not in text


def islands(make: Any, **changes: Any) -> UtilityPosterior:
    """Two groups of two and three that are compared among themselves only, and one item of which
    nothing is known.
    """
    answers = pd.DataFrame({"winner": list("abcd"), "loser": list("bade")})
    links = pd.DataFrame({"source": ["a"], "target": ["b"]})
    index = pd.Index(list("abcdef"), dtype=object)
    data = PreferenceData.from_tables(pd.DataFrame(index=index), answers, {"near": links})
    parts = {"utility": Parts({"near": np.linspace(1, 0, 6)}, {"near": np.ones(6)})}
    mean = np.array([1.0, 0.4, 1.4, 0.0, -1.0, 0.1])
    return make(
        data, belief=GaussianBelief(mean, np.eye(6) / 8), parts=parts, hyperparameters={}, **changes
    )


def test_groups_are_not_compared(make: Any, prose: Any, read: Any) -> None:
    posterior = islands(make)
    text = prose(posterior)
    apart = (
        "The 6 items form 3 groups that no answer or relation connects, 1 of them with a "
        "single item."
    )
    assert text.count(apart) == 2  # in the summary and under the ranking
    # Gaps of 1.4 and 0.6 with a standard deviation of 1/2.
    assert "Of the group of 3 items, c is better than d with a probability of 99.7%." in text
    assert "Of the group of 2 items, a is better than b with a probability of 88%." in text
    assert "lead" not in text
    cells = read(render(posterior, relations_evidence=False)).text("thead", "th", "bdi")
    start = cells.index("Group")
    width = start - cells.index("Place") + 1
    assert [cells[start + width * row] for row in range(1, 7)] == ["1", "2", "2", "3", "1", "1"]


def test_what_places_without_answers_rest_on(make: Any, prose: Any) -> None:
    text = prose(islands(make))
    assert "f was never compared; its place rests on the prior alone." in text
    assert "a sum of one part for each relation, which varies smoothly along its links" in text
    assert "For “near”: The regularized Laplacian makes linked items alike." in text


def test_two_items_have_one_gap(make: Any, prose: Any) -> None:
    answers = pd.DataFrame({"winner": ["a"], "loser": ["b"]})
    data = PreferenceData.from_tables(pd.DataFrame({"x": [0.0, 1.0]}, index=["a", "b"]), answers)
    parts = {"utility": Parts({"attributes": np.ones(2)}, {"attributes": np.ones(2)})}
    belief = GaussianBelief(np.array([0.3, -0.3]), np.eye(2) / 2)  # Φ(0.6) = 0.7257
    text = prose(make(data, belief=belief, parts=parts, hyperparameters={}))
    assert (
        "Nobody leads clearly: the best may be either of 2 items. a is the best with a probability of 73%."
        in text
    )
    assert "a is better than b with a probability of 73%." in text and "27%" in text


def test_nothing_to_note(make: Any, prose: Any) -> None:
    pairs = [(one, other) for row, one in enumerate("abcdefgh") for other in "abcdefgh"[row + 1 :]]
    data = make().data.with_comparisons(pd.DataFrame(pairs, columns=["winner", "loser"]))
    data = pd.concat([data.comparisons.table(data.labels)] * 4)
    certain = GaussianBelief(np.arange(8.0)[::-1], 0.01 * np.eye(8))
    text = prose(make(make().data.with_comparisons(data), belief=certain))
    assert "Keep in mind No problems were found" in text


def test_what_to_keep_in_mind(make: Any, prose: Any) -> None:
    """The three most serious warnings are on the front, the others with the details."""
    answers = pd.DataFrame({"winner": list("aaaaaaaaaab"), "loser": list("bbbbccccddd")})
    belief = GaussianBelief(np.zeros(8), np.eye(8))
    text = prose(make(make().data.with_comparisons(answers), belief=belief))
    front, _, details = text.partition("All places")
    kept = front.partition("Keep in mind")[2]
    assert (
        "e, f, g and h were never compared; their places rest on attributes and relations alone."
        in kept
    )
    assert "There are few answers: 1.5 about a typical item." in kept
    assert "4 hyperparameters were set to the best values by 11 answers." not in details
    assert "The place of a typical item is known to within 8 places of 8 only." in details
    assert "14% of all pairs were compared" in details


def test_computation(make: Any, prose: Any) -> None:
    text = prose(make(info={**make().info, "own": 3, "array": np.ones(3)}))
    assert "Residual 3.00 × 10⁻⁹" in text and "Own 3" in text and "array" not in text


def test_the_order_in_which_things_were_noted_does_not_matter(make: Any) -> None:
    info = {**make().info, "own": 3, "another": True}
    there = render(make(info=info), relations_evidence=False)
    assert render(make(info=dict(reversed(info.items()))), relations_evidence=False) == there


def test_long_text_does_not_widen_the_column_of_numbers(make: Any, read: Any) -> None:
    told = "answers: 474 pairs composed from 158 choices or lists"
    page = read(render(make(info={**make().info, "answers": told}), relations_evidence=False))
    assert f"Answers: {told}." in page.text("li") and told not in page.text("bdi")


def test_methods_and_versions(make: Any, prose: Any) -> None:
    assert "Random key seed 3" in prose(make())
    origin, key = Origin(preference_gp, (make().data,), {}), np.array([4, 5], np.uint32)
    text = prose(make(parts=parts_of(attributes=(1, 1)), origin=origin, key=key))
    assert "Chu and Z. Ghahramani (2005)" in text and "Kersting" not in text
    assert "the relation “near”" not in text
    assert "Random key 4 5" in text


def test_what_is_said_of_other_searches(make: Any, prose: Any) -> None:
    draws = {"near_amplitude": np.linspace(0.3, 0.7, 50)}
    drawn = prose(make(info={**make().info, "r_hat": 1.01}, hyperparameter_draws=draws))
    assert "sampler (Hoffman and Gelman 2014)" in drawn and "R-hat 1.01" in drawn
    assert "M. D. Hoffman and A. Gelman (2014)" in drawn


def test_a_share_is_at_most_one(make: Any, prose: Any) -> None:
    draws = {"attributes_linear_share": np.linspace(0.3, 0.99, 20)}
    weights = np.linspace(0.1, 1.9, 20) / 20
    single = make().belief
    belief = MixtureBelief(
        np.repeat(single.locations, 20, axis=0), np.repeat(single.scales, 20, axis=0), weights
    )
    values = {**make().hyperparameters, "attributes_linear_share": 0.8}
    text = prose(make(belief=belief, hyperparameters=values, hyperparameter_draws=draws))
    assert " to 1.00 " in text


def test_held_and_given_hyperparameters_have_no_interval(make: Any, prose: Any, read: Any) -> None:
    values = {**make().hyperparameters, "attributes_lengthscale": np.full(2, 3.76)}
    draws = {
        "near_amplitude": np.linspace(0.3, 0.7, 50),
        "attributes_lengthscale": np.full((50, 2), 3.76),
    }
    engine = EP(xpgp, fixed={"near_range": 2.0})
    posterior = make(
        hyperparameters=values,
        hyperparameter_draws=draws,
        info={**make().info, "held": ["attributes_lengthscale"]},
        origin=Origin(xpgp, (make().data,), {}, engine),
    )
    text = prose(posterior)
    assert "3.76 to 3.76" not in text and "0.320 to 0.680" in text
    assert (
        "Averages over their posterior, with 90% intervals. These were kept near their most "
        "probable values and have no "
        "interval: attributes_lengthscale. Given, not fitted: near_range."
    ) in text
    cells = read(render(posterior, relations_evidence=False)).text("bdi")
    start = cells.index("attributes_lengthscale")
    assert cells[start + 1 : start + 4] == [
        "attribute size",
        "3.76",
        "correlation 0.97 one standard deviation apart",
    ]
    assert "were held" not in prose(make()) and "Given, not fitted" not in prose(make())


def test_who_leans_on_neighbors(make: Any, prose: Any) -> None:
    """An item without links leans on nobody; a relation without links says nothing."""
    data = make().data
    text = prose(make(replace(data, _graphs={"near": Graph(8, [0], [1], [1.0])})))
    assert "a typical one of the 2 items with links leans 80% on its neighbors" in text
    assert "a typical item leans" not in text
    assert "leans" not in prose(make(replace(data, _graphs={"near": Graph(8, [], [], [])})))


def test_parts_that_cannot_be_told_apart_are_added_up(make: Any, prose: Any) -> None:
    parts = parts_of(attributes=(2, -2), near=(1, -1), individual=(1, -1))
    info = {**make().info, "alike_parts": [["near", "individual"]]}
    text = prose(make(parts=parts, info=info))
    assert "attributes 50% relation near + items themselves 50%" in text
    assert (
        "cannot tell the relation near from the items themselves, so the size of each is unknown."
        in text
    )
    # Of two parts that are one there is nothing to say.
    two = parts_of(near=(1, -1), individual=(1, -1))
    text = prose(make(parts=two, info=info))
    assert (
        "What drives it" not in text
        and "cannot tell the relation near from the items themselves" in text
    )


def test_places_are_whole_numbers(make: Any, prose: Any) -> None:
    certain = GaussianBelief(np.arange(8.0)[::-1], 0.01 * np.eye(8))
    text = prose(make(belief=certain))
    assert "a has place 1 (90% interval)" in text and "1–1" not in text


def test_lengthscales_of_a_linear_kernel(make: Any, prose: Any) -> None:
    text = prose(make(origin=Origin(xpgp, (make().data,), {"attribute_kernel": Linear()})))
    assert "Lengthscale of a linear kernel: only ratios count." in text
    assert "how far two items can lie apart" not in text


def test_kernels_and_roles(make: Any, prose: Any) -> None:
    text = prose(make())
    assert (
        "For the attributes: The squared-exponential and the linear kernel together give a smooth "
        "function of the attributes plus a "
        "weighted sum of them. For “near”: The regularized "
        "Laplacian makes linked items alike. They are scaled so that, at an amplitude of 1, two "
        "items typically differ by 1.4"
    ) in text
    plain = make().data
    ends = pd.DataFrame({"source": list("abc"), "target": list("ddd")})
    things = pd.DataFrame({"source": list("abc"), "target": ["tea", "tea", "gin"]})
    relations = {
        "cites": Relation(ends, kind="directed"),
        "drinks": Relation(things, kind="bipartite"),
        "walks": Relation(ends, kind="directed", form="random_walk"),
    }
    items, answers, _ = plain.to_tables()
    data = PreferenceData.from_tables(items, answers, relations)
    names = ["attributes", *data.relations]
    parts = {
        "utility": Parts({n: np.linspace(1, 2, 8) for n in names}, {n: np.ones(8) for n in names})
    }
    options: dict[str, Any] = {
        "attribute_kernel": Matern52(),
        "relation_kernels": {
            "cites": HiddenCommonCause(),
            "drinks": RelationVectors(Matern52(shared_lengthscale=True)),
        },
        "normalize": False,
    }
    text = prose(make(data, parts=parts, origin=Origin(xpgp, (data,), options)))
    assert "the relations “cites”, “drinks” and “walks”" in text
    assert (
        "For the attributes: The Matérn 5/2 kernel gives a function of the attributes that has two "
        "derivatives. For “cites_linking” and "
        "“cites_linked”: The hidden common cause kernel makes items alike that share links (Silva, "
        "Chu and Ghahramani 2007). For "
        "“drinks”: Each item's links are taken for its attributes. The Matérn 5/2 kernel gives a "
        "function of the attributes that has "
        "two derivatives. For “walks”: The regularized Laplacian makes linked items alike. They "
        "were not all scaled"
    ) in text
    assert (
        "“cites” is directed, so it has two roles: “cites_linking” connects items that link to the "
        "same" in text
    )
    assert "The relation “drinks” links items to something else" in text
    assert "“walks” is directed: items are similar if a random walk" in text
    assert "R. Silva, W. Chu and Z. Ghahramani (2007)" in text and "F. Chung (2005)" in text
    assert "Silva" not in prose(make()) and "Chung" not in prose(make())


def test_a_ready_table_of_evidence(make: Any, prose: Any) -> None:
    table = pd.DataFrame(
        {
            "left_out": ["attributes", "near", "far", "none"],
            "log_evidence": [-20.0, -17.0, np.nan, -5.0],
            "difference": [7.5, 4.5, np.nan, -7.5],
            "note": ["", "", "EP ended with diverged", ""],
        }
    )
    text = prose(make(), relations_evidence=table)
    assert "nothing −12.50 attributes −20.00 +7.50 relation near −17.00 +4.50" in text
    assert (
        "The attributes are strongly supported by the answers. The relation near is supported by "
        "the answers." in text
    )
    assert "The relation far: no comparison, EP ended with diverged." in text
    assert "The relation none makes the model worse" in text
    slight = prose(make(), relations_evidence=table.assign(difference=1.0).drop(columns="note"))
    assert "The attributes: the answers do not tell whether they are needed." in slight
    assert "What each part is worth" not in prose(make(), relations_evidence=False)


def test_nothing_is_fitted_again_unasked(
    make: Any, prose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr("relpref.report.utilities.evidence_without_each", fitted)
    assert "What each part is worth" not in prose(make(), relations_evidence=None)


def test_a_table_of_evidence_that_is_none(make: Any) -> None:
    with pytest.raises(
        DataError, match="relations_evidence: the table lacks the column 'log_evidence'"
    ):
        render(make(), relations_evidence=pd.DataFrame({"left_out": ["near"]}))


def test_no_evidence_without_an_origin(make: Any, prose: Any) -> None:
    assert "was not fitted again without each of its parts" in prose(
        make(origin=None), relations_evidence=True
    )


@pytest.mark.filterwarnings("ignore::relpref.infer.InferenceWarning")
def test_a_search_that_stopped_is_not_called_a_maximum(make: Any, prose: Any) -> None:
    text = prose(make(info={**make().info, "result": "max_iterations"}))
    assert "at which the search stopped before" in text and "Values that maximize" not in text
