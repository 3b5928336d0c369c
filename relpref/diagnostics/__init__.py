"""How far a result can be trusted, and what it rests on."""

from relpref.diagnostics.calibration import Calibration, calibrate
from relpref.diagnostics.relations import evidence_without_each

__all__ = ["Calibration", "calibrate", "evidence_without_each"]
