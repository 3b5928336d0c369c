"""Data sets: one that comes with the package, and public ones read in their original formats (`letor`, `planetoid`, `edges`)."""

from relpref.data_loaders.modechoice import ModeChoice, load_modechoice

__all__ = ["ModeChoice", "load_modechoice"]
