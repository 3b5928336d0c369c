import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from relpref.ask import Question, store
from relpref.ask.learning import export_left, up_to_date
from relpref.ask.loop import Loop
from relpref.ask.schema import now
from relpref.ask.store import AnswerStore
from relpref.errors import DataError, InferenceError, StorageError
from relpref.explore import ExpectedGain
from relpref.infer import Result, UtilityPosterior
from relpref.runs import load_run

ITEMS = "name,size,price\n" + "".join(f"e{i},{i % 3},{(7 * i) % 5}\n" for i in range(8))
HELD = {
    "attributes_amplitude": 1,
    "attributes_lengthscale": 1,
    "attributes_linear_share": 0.5,
    "individual_amplitude": 1,
}
COMPARISONS = "winner,loser,count\ne0,e1,3\ne1,e2,2\ne3,e2,1\ne5,e4,2\n"


@pytest.fixture(scope="module")
def made(fit: Callable[..., Path]) -> Path:
    return fit(ITEMS, COMPARISONS, **HELD)  # nothing to be searched for


@pytest.fixture
def loop(run: Path) -> Iterator[Loop]:
    with opened(run) as found:
        yield found


def opened(run: Path, **options: Any) -> Loop:
    """Open a loop with the score that needs no compilation."""
    return Loop.open(run, **{"score": "variance", **options})


def open_question(loop: Loop, rater: str = "ann") -> Question:
    question = loop.question(rater)
    assert question is not None
    return question


def answer(loop: Loop, number: int, rater: str = "ann") -> None:
    """Prefers the item with the smaller number."""
    for _ in range(number):
        question = open_question(loop, rater)
        loop.answer(question.id, "first" if question.first < question.second else "second", rater)


def test_an_answer_moves_the_ranking(loop: Loop) -> None:
    before = loop.ranking()
    columns = ["mean", "sd", "lower", "upper", "tier"]
    pd.testing.assert_frame_equal(before, loop.posterior.ranking()[columns], atol=1e-9)
    answer(loop, 3)
    assert loop.version == 7
    assert loop.posterior.data.num_answers == 11
    assert not np.allclose(before["mean"], loop.ranking().loc[before.index, "mean"])
    assert loop.progress("ann").answers == 3 and loop.progress("ben").everyone == 3


def test_undo_takes_an_answer_back_also_after_a_restart(run: Path) -> None:
    with opened(run) as loop:
        answer(loop, 1)
        loop.undo("ann")
        loop.refine()
        before = loop.ranking()  # settled by the same engine as after; a fit settles to 1e-3 sd
        first = loop.question("ann")
        answer(loop, 2)
    with opened(run) as loop:
        loop.undo("ann")
        again = loop.undo("ann")
        assert again is not None and first is not None
        assert (again.first, again.second, again.left) == (first.first, first.second, first.left)
        assert loop.question("ann") == again
        assert loop.undo("ann") is None
        assert loop.posterior.data.num_answers == 8
        after = loop.ranking().loc[before.index]
        assert np.all(np.abs(after["mean"] - before["mean"]) < 0.05 * before["sd"])
        loop.refine()
        pd.testing.assert_frame_equal(loop.ranking(), before, atol=1e-6)


def test_the_same_store_and_seed_ask_the_same(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    asked: list[list[tuple[str, str, str]]] = [[], []]
    for rows, folder in zip(asked, (run, copy), strict=True):
        with opened(folder, seed=3) as loop:
            for _ in range(4):
                question = open_question(loop)
                rows.append((question.first, question.second, question.left))
                loop.answer(question.id, "first", "ann")
    assert asked[0] == asked[1]


@pytest.mark.parametrize("how", ["moved", "deleted"])
@pytest.mark.parametrize("asked", [False, True])
def test_a_run_that_is_replaced_while_it_is_open(
    run: Path, made: Path, how: str, asked: bool
) -> None:
    """The folder goes away, and another run takes its place."""
    loop, moved = opened(run), run.with_name("moved")
    answer(loop, 2)
    question = open_question(loop)
    run.rename(moved) if how == "moved" else shutil.rmtree(run)
    shutil.copytree(made, run)
    if asked:  # the stranger has answers of its own
        with opened(run) as other:
            answer(other, 1, "eve")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    for act in (
        lambda: loop.answer(question.id, "first", "ann"),
        lambda: loop.skip(question.id, "ann"),
        lambda: loop.undo("ann"),
        lambda: loop.import_answers(run / "data" / "comparisons.csv"),
    ):
        with pytest.raises(
            StorageError, match=r"moved, replaced or deleted.*answers-\w{8}-\w+\.sqlite"
        ):
            act()
    with pytest.raises(StorageError, match="nothing was published"):
        loop.refine()
    loop.close()
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    (kept,) = run.parent.glob("answers-*.sqlite")
    with AnswerStore.read(kept) or pytest.fail() as store:
        assert store.counts("ann")["answers"] == 2 and store.questions("ann") == [question]
    if how == "moved":  # and it goes on where it is
        with opened(moved) as again:
            assert again.progress("ann").answers == 2 and again.question("ann") == question
            again.refine()


def test_a_run_that_is_deleted_after_the_last_answer(run: Path) -> None:
    loop = opened(run)
    answer(loop, 1)
    shutil.rmtree(run)
    with pytest.raises(StorageError, match="answers-"):
        loop.close()
    (kept,) = run.parent.glob("answers-*.sqlite")
    with AnswerStore.read(kept) or pytest.fail() as store:
        assert store.counts("ann")["answers"] == 1


def test_nothing_is_published_into_another_record(loop: Loop, run: Path) -> None:
    answer(loop, 1)
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"seed": 99}))
    before = sorted(run.iterdir()), (run / "run.json").read_bytes()
    with pytest.raises(StorageError, match="another run.*nothing was published"):
        loop.refine()
    assert (sorted(run.iterdir()), (run / "run.json").read_bytes()) == before


def test_refining_equals_a_full_fit_and_is_published(loop: Loop, run: Path) -> None:
    answer(loop, 3)
    question = open_question(loop)
    assert loop.progress("ann").worth is None
    for left in (".run.json.x1.part", ".posterior-6.nc.x2.part"):  # by a process that was killed
        (run / left).touch()
    assert loop.refine()
    assert not list(run.glob(".*.part"))
    assert not loop.refine()
    known = loop.progress("ann").worth
    assert known is not None and 0 < known.wrong_after < known.wrong_now < 0.5
    assert "This pair was chosen because" in loop.why(question)
    assert loop.posterior.info["result"] == "converged" and not loop.posterior.info.get(
        "quick_answers"
    )
    assert loop.question("ann") == question
    published = load_run(run)
    assert published.metadata["answers"]["version"] == loop.version == 7
    assert sorted(file.name for file in run.glob("*.nc")) == ["posterior-7.nc"]
    np.testing.assert_array_equal(published.posterior.mean(), loop.posterior.mean())
    assert loop.progress("ann").since == 0
    answer(loop, 1)
    assert loop.progress("ann").since == 1
    assert loop.refine()
    assert sorted(file.name for file in run.glob("*.nc")) == ["posterior-8.nc"]


def test_answers_that_come_while_refining_are_kept(
    loop: Loop, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(loop, 1)
    kind = type(loop.posterior)
    update: Callable[..., object] = kind.update

    def slow(self: object, *arguments: object, **options: object) -> object:
        found = update(self, *arguments, **options)
        if not options.get("quick"):
            answer(loop, 2)
        return found

    monkeypatch.setattr(kind, "update", slow)
    loop.refine()
    assert loop.version == 7 and loop.posterior.data.num_answers == 11
    assert load_run(run).metadata["answers"]["version"] == 5


def test_a_run_that_was_killed_before_it_published_is_brought_up_to_date(run: Path) -> None:
    with opened(run) as loop:
        answer(loop, 2)
        loop.refine()
        answer(loop, 1)
        loop.skip(loop.question("ann").id, "ann")  # type: ignore[union-attr]
        means = loop.posterior.update().mean()
    found, number = up_to_date(load_run(run))
    assert number == 1
    np.testing.assert_allclose(found.mean(), means, atol=1e-5)


def test_where_nothing_can_be_learnt_answers_are_kept_and_asking_goes_on(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"items": ["e0", "e6", "e7"]}
    with monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> None:
            raise InferenceError("diverged", Result.diverged)

        broken.setattr(UtilityPosterior, "update", fail)
        with opened(run, **limits) as loop:
            before, asked = loop.posterior, set()
            for _ in range(2):
                question = open_question(loop)
                asked.add(frozenset((question.first, question.second)))
                loop.answer(question.id, "first", "ann")
            assert len(asked) == 2 and loop.posterior is before  # the same is not asked twice
            assert "Every answer is kept, but" in loop.trouble and "diverged" in loop.trouble
            assert loop.progress("ann").answers == 2 and not loop.refine()
        with opened(run, **limits) as loop:
            assert "diverged" in loop.trouble
            question = open_question(loop)
            assert frozenset((question.first, question.second)) not in asked
    with opened(run, **limits) as loop:
        assert loop.question("ann") == question
        assert loop.trouble == "" and loop.posterior.data.num_answers == 10


def test_many_equal_answers_are_learnt_at_once(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, asked = type(loop.posterior), []
    update = kind.update

    def noted(self: Any, *arguments: Any, **options: Any) -> Any:
        asked.append(options.get("quick", False))
        return update(self, *arguments, **options)

    monkeypatch.setattr(kind, "update", noted)
    file = tmp_path / "more.csv"
    for count in (25, 26):
        file.write_text(f"winner,loser,count\ne0,e7,{count}\n")
        assert loop.import_answers(file) == count
    assert list(map(bool, asked)) == [True, False]


def test_one_name_is_one_rater(loop: Loop) -> None:
    question = loop.question("Ann  Bäcker ")
    assert question is not None and question.rater == "Ann Bäcker"
    assert loop.question("Ann Ba\u0308cker") == question
    loop.answer(question.id, "tie", " Ann Bäcker")
    assert loop.progress("Ann\tBäcker").answers == 1
    again = loop.undo("Ann Ba\u0308cker")
    assert again is not None
    loop.skip(again.id, "Ann Bäcker\n")


def test_two_loops_on_one_folder_ask_answer_and_publish_at_once(run: Path) -> None:
    def work(loop: Loop, rater: str) -> None:
        for _ in range(3):
            answer(loop, 3, rater)
            loop.refine()

    with opened(run) as left, opened(run) as right, ThreadPoolExecutor() as threads:
        question = left.question("eve")
        assert question is not None and right.question("eve") == question
        left.answer(question.id, "first", "eve")
        with pytest.raises(DataError, match="answered, skipped or taken back already"):
            right.answer(question.id, "second", "eve")
        for each in [threads.submit(work, left, "ann"), threads.submit(work, right, "ben")]:
            each.result()
        asked = [loop.question(rater) for loop, rater in ((left, "ann"), (right, "ben"))]
        assert len({frozenset((q.first, q.second)) for q in asked if q is not None}) == 2
        for loop in (left, right):
            loop.refine()
            assert loop.version == 4 + 1 + 18 and loop.progress("ann").everyone == 19
        np.testing.assert_allclose(left.posterior.mean(), right.posterior.mean(), atol=0.01)
    posterior, missing = up_to_date(load_run(run))
    assert (missing, posterior.data.num_answers) == (0, 8 + 19)
    assert len([*run.glob("posterior*.nc")]) == 1 and [file.name for file in run.glob(".*")] == [
        ".lock"
    ]


def test_a_clock_that_jumps_back(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(run) as loop:
        answer(loop, 3)
        first = loop.question("ann")
    monkeypatch.setattr(store, "now", lambda ago=timedelta(): now(timedelta(days=400) + ago))
    with opened(run) as loop:
        assert first is not None and loop.question("ann") == first
        # What was asked in the future keeps its pair from nobody, and what is asked now does.
        assert loop._store.avoided("ben")[1] == []
        answer(loop, 2)
        last = loop.question("ann")
        assert last is not None and loop._store.avoided("ben")[1] == [(last.first, last.second)]
        again = loop.undo("ann")
        assert again is not None and (again.first, again.second) != (first.first, first.second)
        assert loop.refine() and loop.version == 4 + 5 + 1
        assert loop.progress("ann").answers == 4
    with opened(run) as loop:
        assert loop.progress("ann").answers == 4 and loop.question("ann") == again


def test_ties_may_be_no_answer(run: Path) -> None:
    with opened(run, ties=False) as loop:
        question = open_question(loop)
        with pytest.raises(DataError, match="outcome is 'tie'"):
            loop.answer(question.id, "tie", "ann")
        assert loop.question("ann") == question
    with opened(run) as loop:  # the answers of the fit had none
        assert loop.ties
        loop.answer(question.id, "tie", "ann")
        assert loop.posterior.data.comparisons.tie is not None
        assert loop.undo("ann") is not None
        assert loop.posterior.data.num_answers == 8


def test_what_was_skipped_is_not_asked_again(run: Path) -> None:
    with opened(run, items=["e0", "e6", "e7"]) as loop:
        skipped = 0
        while (question := loop.question("ann")) is not None:
            skipped += 1
            loop.skip(question.id, "ann")
        assert skipped == 3
        assert loop.question("ben") is not None  # another may know better


def test_the_last_pair_is_shared_by_two_raters(run: Path) -> None:
    with opened(run, items=["e0", "e7"]) as loop:
        one, two = loop.question("ann"), loop.question("ben")
        assert one is not None and two is not None and one.id != two.id
        answer(loop, 1, "ann")
        assert loop.question("ann") is None
        assert loop.question("ben") == two


def test_what_cannot_be_asked_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="score"):
        opened(run, score="no such")
    with opened(run) as loop:
        for rater in (
            "",
            " \n",
            "x" * 81,
            3,
            "ann\u202e",
            "a\u200bnn",
            "a\0",
            "\ud800",
            "\u3164",
            "\ufe0f",
            "a\u3164b",
        ):
            with pytest.raises(DataError, match="rater is"):
                loop.question(rater)  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="there is no such folder"):
        opened(tmp_path / "nowhere")


def test_answers_that_are_gone_or_of_another_run_are_noticed(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    for folder in (run, copy):
        with opened(folder) as loop:
            answer(loop, 1)
            if folder == run:
                loop.refine()
    store = run / "answers.sqlite"
    kept = store.read_bytes()
    for empty in (True, False):
        for opens in (lambda: opened(run), lambda: up_to_date(load_run(run))):
            store.write_bytes(b"") if empty else store.unlink(missing_ok=True)
            with pytest.raises(StorageError, match="the file is gone or empty"):
                opens()
            assert not store.exists() or not store.read_bytes()
    exported = tmp_path / "known.csv"
    assert export_left(load_run(run), exported) == 9 and len(pd.read_csv(exported)) == 5
    shutil.copy(copy / "answers.sqlite", store)
    with pytest.raises(StorageError, match="not the answers that the run knows"):
        opened(run)
    store.write_bytes(kept)
    record = json.loads((run / "run.json").read_text())
    record["answers"]["version"] = 99
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(StorageError, match="an older copy"):
        opened(run)


def test_why_nothing_is_left_to_ask(run: Path) -> None:
    """Limits leave out what nobody was asked about, and that is said."""
    with opened(run, most_appearances=2, max_wrong=0.499) as loop:
        asked = 0
        while (question := loop.question("ann")) is not None:
            if asked:
                loop.answer(question.id, "first", "ann")
            else:
                loop.skip(question.id, "ann")
            asked += 1
        known = loop.posterior.data.num_comparisons
        said = loop.nothing_left("ann")
        assert 4 < known < 28 and said.startswith(
            f"{known} of 28 pairs have been answered; the others are left out: "
        )
        assert "an item that was in 2 answers is not asked about again" in said
        assert "a wrong answer has a probability above 0.499" in said and said.endswith(
            "you skipped 1."
        )
    names = [f"e{i}" for i in range(8)]
    pairs = [(one, other) for one in names for other in names if one < other]
    table = run.parent / "all.csv"
    pd.DataFrame(pairs, columns=["winner", "loser"]).to_csv(table, index=False)
    with opened(run) as loop:
        loop.import_answers(table)
        assert loop.question("ann") is None
        said = "28 of 28 pairs have been answered, by all together."
        assert loop.nothing_left("ann") == said
        loop._worth = ExpectedGain(10, 0.3, 0.2), 0
        again = " To ask pairs again, which would still tell more, start with --repeats 1."
        assert loop.nothing_left("ann") == said + again


def test_ones_own_ranking_is_that_of_ones_own_answers(run: Path, fit: Any) -> None:
    """Held against a fit of the exported answers."""
    with opened(run) as loop:
        assert loop.own_ranking("ann") is None
        answer(loop, 4)
        answer(loop, 1, "ben")
        own = loop.own_ranking("ann")
        assert loop.own_ranking("ann") is own
        narrow = loop.own_ranking("ann", 0.5)
        assert own is not None and narrow is not None
        assert np.all(narrow["upper"] < own.loc[narrow.index, "upper"])
        assert len(loop.own_answers("ann")) == 4 and set(loop.own_answers("ann")["rater"]) == {
            "ann"
        }
        answers = loop.own_answers("ann")[["winner", "loser"]].to_csv(index=False)
        joint = loop.ranking()
    posterior: Any = load_run(fit(ITEMS, answers, **HELD)).posterior
    alone = posterior.ranking()
    assert own is not None
    np.testing.assert_allclose(own["mean"], alone.loc[own.index, "mean"], atol=0.01)
    np.testing.assert_allclose(own["sd"], alone.loc[own.index, "sd"], atol=0.01)
    assert np.abs(joint.loc[own.index, "mean"] - own["mean"]).max() > 0.1


def test_several_questions_at_once(run: Path) -> None:
    def pairs(questions: list[Question]) -> set[frozenset[Any]]:
        return {frozenset((question.first, question.second)) for question in questions}

    with opened(run) as loop:
        one, two, three = asked = loop.questions("ann", 3)
        assert len(pairs(asked)) == 3 and loop.questions("ann", 3) == asked
        loop.answer(two.id, "tie", "ann")
        assert loop.questions("ann", 3) == [one, three] and loop.question("ann") == one
        assert not pairs([one, three]) & pairs(loop.questions("ben", 3))
    with opened(run) as loop:  # also after a restart
        assert loop.questions("ann", 3) == [one, three]
        loop.skip(one.id, "ann")
        loop.skip(three.id, "ann")
        assert not pairs(asked) & pairs(loop.questions("ann", 3))


def test_the_title_and_the_question_are_kept(run: Path) -> None:
    with opened(run) as loop:
        assert (loop.title, loop.prompt) == ("run", "Which of the two do you prefer?")
    with opened(run, title="Drinks", prompt=" Which would\tyou rather drink? ") as loop:
        assert loop.prompt == "Which would you rather drink?"
    with opened(run) as loop:
        assert (loop.title, loop.prompt) == ("Drinks", "Which would you rather drink?")
    for wrong in ("", "x" * 201, "a\x1bb"):
        with pytest.raises(DataError, match="prompt is .*; give 1 to 200 characters"):
            opened(run, prompt=wrong)


def test_what_is_missing_is_counted_down(loop: Loop) -> None:
    assert loop.progress("ann").remaining is None
    loop._worth = (ExpectedGain(10, 0.4, 0.3, missing=66), loop.version)
    assert loop.progress("ann").remaining == 70
    answer(loop, 4)
    assert loop.progress("ann").remaining == 60
    assert "About 60 more would reach the goal" in loop.progress("ann").outlook
    answer(loop, 8)
    assert loop.progress("ann").remaining == 50


def test_the_next_question_waits_for_one_update_and_one_choice(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing slow is between a key and the next question: no full update, no forecast."""
    calls: list[str] = []

    def counted(place: str) -> None:
        owner, _, name = place.rpartition(":")
        module, _, cls = owner.partition("/")
        holder = importlib.import_module(module)
        holder = getattr(holder, cls) if cls else holder
        real = getattr(holder, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(holder, name, call)

    for place in (
        "relpref.ask.loop:next_pairs",
        "relpref.ask.loop:expected_gain",
        "relpref.explore.scores:solve",
        "relpref.posterior.update/Update:quickly",
        "relpref.posterior.update/Update:fully",
    ):
        counted(place)
    with Loop.open(run) as loop:
        answer(loop, 1)
        loop.question("ann")
        calls.clear()
        answer(loop, 1)
        asked = loop.question("ann")
        assert asked is not None and loop.why(asked) and loop.progress("ann").answers == 2
        loop.ranking()
    assert sorted(calls) == ["next_pairs", "quickly", "solve"]
