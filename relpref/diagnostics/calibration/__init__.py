"""Simulation-based calibration of any program under any engine."""

from relpref.diagnostics.calibration.result import Calibration
from relpref.diagnostics.calibration.run import calibrate

__all__ = ["Calibration", "calibrate"]
