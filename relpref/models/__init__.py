"""Numpyro programs, one file each. They run under every engine and know none of them."""

from relpref.models.preference_gp import preference_gp
from relpref.models.xpgp import xpgp

__all__ = ["preference_gp", "xpgp"]
