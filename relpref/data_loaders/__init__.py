"""Data sets: some come with the package, others are public files in their original formats.

`letor`, `planetoid`, `edges`, `newsgroups`, `drug_target`, `football`, `sushi` and `preflib` read
files.
"""

from relpref.data_loaders.bundled import ModeChoice, load_modechoice
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
    "load_modechoice",
    "play_rock_paper_scissors",
    "power_law",
    "rank_dishes",
]
