"""How well a posterior predicts answers that it has not seen, and which answers it rests on."""

from relpref.diagnostics.predictive.compare import compare, influence, raters
from relpref.diagnostics.predictive.held_out import HeldOut
from relpref.diagnostics.predictive.k_fold import k_fold
from relpref.diagnostics.predictive.leave_one_out import leave_one_out

__all__ = ["HeldOut", "compare", "influence", "k_fold", "leave_one_out", "raters"]
