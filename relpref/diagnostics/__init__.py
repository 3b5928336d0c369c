"""How far a result can be trusted, and what it rests on."""

from relpref.diagnostics.relations import evidence_without_each

__all__ = ["evidence_without_each"]
