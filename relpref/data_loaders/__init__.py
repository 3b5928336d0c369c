"""Data sets: some that come with the package, and public ones read in their original formats.

`letor`, `planetoid`, `edges`, `newsgroups`, `drug_target`, `football`, `sushi` and `preflib` read
files.
"""

from relpref.data_loaders.bundled import ModeChoice, SameDigit, load_modechoice, load_same_digit
from relpref.data_loaders.generated import (
    PowerLaw,
    RockPaperScissors,
    play_rock_paper_scissors,
    power_law,
    rank_dishes,
)

__all__ = [
    "ModeChoice",
    "PowerLaw",
    "RockPaperScissors",
    "SameDigit",
    "load_modechoice",
    "load_same_digit",
    "play_rock_paper_scissors",
    "power_law",
    "rank_dishes",
]
