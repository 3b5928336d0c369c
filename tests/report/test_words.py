"""Reports in the user's words for an item and an answer."""

import re
from typing import Any

import pytest

from relpref.errors import DataError
from relpref.report.page import render
from relpref.report.words import Words, named_words

WORDS = {"item": "oak", "answer": "entry/entries"}


@pytest.mark.parametrize(
    ("word", "plural"),
    [
        ("coffee", "coffees"),
        ("entry", "entries"),
        ("day", "days"),
        ("match", "matches"),
        ("Haus/Häuser", "Häuser"),
    ],
)
def test_plurals(word: str, plural: str) -> None:
    assert Words.of({"item": word}).item == (word.partition("/")[0], plural)


def test_words_replace_ours() -> None:
    words = Words.of(WORDS)
    assert words("An item, an answer; Answers to the item's") == (
        "An oak, an entry; Entries to the oak's"
    )
    assert Words.of({"item": "coffee"})("an item or an average item") == (
        "a coffee or an average coffee"
    )
    assert words("answers.csv was answered") == "answers.csv was answered"
    assert Words.of({"item": "answer", "answer": "vote"}).counted(2, "item") == "2 answers"
    assert named_words({"item_word": "a", "answer_word": "b"}, {"item_word": "c"}) == {
        "item": "c",
        "answer": "b",
    }


@pytest.mark.parametrize(
    "given",
    [{"items": "a"}, {"item": ""}, {"item": "a/b/c"}, {"answer": "x" * 41}, {"item": "a\x1b"}],
)
def test_words_that_cannot_be_used(given: Any) -> None:
    with pytest.raises(DataError, match="word"):
        Words.of(given)


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.filterwarnings("ignore::relpref.infer.InferenceWarning")
def test_the_page_has_the_users_words_and_names(make: Any, read: Any) -> None:
    """Whatever is called item or answer on the page is a name of the user."""
    posterior = make()
    text = read(render(posterior, words=WORDS)).prose
    assert "A ranking of 8 oaks, based on 30 entries" in text and "Entries in numbers" in text
    assert "at least 90%, and often more where oaks are few" in text
    # Of the simulation behind the engine, not of these data.
    assert re.findall(r"(?:\S+ ){2}\b(?:items?|[Aa]nswers?)\b", text) == [
        "with 20 items",
        "and 30 answers",
    ]
