"""Data sets: some that come with the package, and public ones read in their original formats.

`letor`, `planetoid`, `edges`, `newsgroups`, `drug_target`, `football`, `sushi` and `preflib` read files.
"""

from relpref.data_loaders.digits import SameDigit, load_same_digit
from relpref.data_loaders.dishes import rank_dishes
from relpref.data_loaders.large import PowerLaw, power_law
from relpref.data_loaders.modechoice import ModeChoice, load_modechoice
from relpref.data_loaders.rock_paper_scissors import RockPaperScissors, play_rock_paper_scissors

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
