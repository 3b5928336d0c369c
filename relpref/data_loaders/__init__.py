"""Data sets for trying things out, one file each."""

from relpref.data_loaders.modechoice import ModeChoice, load_modechoice

__all__ = ["ModeChoice", "load_modechoice"]
