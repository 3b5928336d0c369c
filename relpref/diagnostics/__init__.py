"""Checks of posteriors: held-out predictions, certificates, comparison with NUTS, calibration."""

from relpref.diagnostics.calibration import Calibration as Calibration
from relpref.diagnostics.certificate import Certificate as Certificate
from relpref.diagnostics.certificate import certify
from relpref.diagnostics.comparison import compare, evidence_without_each, influence, raters
from relpref.diagnostics.held_out import HeldOut as HeldOut
from relpref.diagnostics.loo import k_fold, leave_one_out
from relpref.diagnostics.nuts import Check as Check
from relpref.diagnostics.nuts import check
from relpref.diagnostics.removal import Robustness as Robustness
from relpref.diagnostics.removal import robustness
from relpref.diagnostics.sbc import calibrate

__all__ = [
    "calibrate",
    "certify",
    "check",
    "compare",
    "evidence_without_each",
    "influence",
    "k_fold",
    "leave_one_out",
    "raters",
    "robustness",
]
