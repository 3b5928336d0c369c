"""The user's words for an item and an answer, and templates that are written in them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from relpref.data.arrays import counted, shown
from relpref.errors import DataError

_LONGEST = 40
# Not the name of a file, such as answers.csv.
_OURS = re.compile(r"\b(?:([Aa])n )?([Ii]tem|[Aa]nswer)(s?)\b(?!\.\w)")


@dataclass(frozen=True)
class Words:
    """Words for an item and an answer, each in singular and plural.

    Called with a text that holds none of the user's names, it puts these words in place of ours.
    """

    item: tuple[str, str] = ("item", "items")
    answer: tuple[str, str] = ("answer", "answers")

    @classmethod
    def of(cls, words: Mapping[str, str] | None) -> Self:
        """Read words such as ``{"item": "coffee", "answer": "entry/entries"}``.

        Raises DataError for other keys, and for words that are empty, long or cannot be seen.
        """
        words = words or {}
        for name in words:
            if name not in ("item", "answer"):
                raise DataError(f"words has the key {shown(name)}; use item and answer alone")
        return cls(**{name: _forms(name, word) for name, word in words.items()})

    def __call__(self, text: str) -> str:
        return _OURS.sub(self._replaced, text)

    def counted(self, number: int, *forms: str) -> str:
        """Number with a noun, as of `relpref.data.arrays.counted`, in these words."""
        return self(counted(number, *forms))

    def _replaced(self, match: re.Match[str]) -> str:
        article, noun, plural = match.groups()
        word = (self.item if noun.lower() == "item" else self.answer)[bool(plural)]
        if article:
            return f"{article}{'n' * (word[0].lower() in 'aeiou')} {word}"
        return word[0].upper() + word[1:] if noun[0].isupper() else word


OURS = Words()


def named_words(*options: Mapping[str, Any]) -> dict[str, str]:
    """Words among options such as ``item_word``; later options go before earlier ones."""
    return {
        name: word
        for each in options
        for name in ("item", "answer")
        if (word := each.get(f"{name}_word"))
    }


def _forms(name: str, given: object) -> tuple[str, str]:
    """Singular and plural of a word, which may be given as ``singular/plural``."""
    forms = [" ".join(part.split()) for part in str(given).split("/")]
    if len(forms) > 2 or not all(
        0 < len(form) <= _LONGEST and form.isprintable() for form in forms
    ):
        raise DataError(
            f"the word for {name} is {shown(given)}; give a noun of at most {_LONGEST} letters, "
            "such as coffee, or its singular and plural, such as entry/entries"
        )
    singular = forms[0]
    if re.search("[^aeiouAEIOU]y$", singular):
        plural = f"{singular[:-1]}ies"
    else:
        plural = f"{singular}es" if re.search("(s|x|z|ch|sh)$", singular) else f"{singular}s"
    return singular, forms[-1] if len(forms) > 1 else plural


def templates(package: str, words: Words = OURS) -> Any:
    """Templates of a package, with the user's words in their text and headings.

    Headings are strings with a capital letter; other strings may be names of columns.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from jinja2.ext import Extension
    from jinja2.lexer import Token, TokenStream

    class Reworded(Extension):
        def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
            for line, kind, value in stream:
                heading = kind == "string" and value != value.lower()
                yield Token(line, kind, words(value) if kind == "data" or heading else value)

    return Environment(
        loader=PackageLoader(package),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Reworded],
    )
