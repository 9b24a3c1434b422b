"""Layer-wise mixed precision of experts: measure, plan, write, compare."""

from __future__ import annotations

from les.precision.plan import PrecisionPlan, load_plan, save_plan
from les.precision.writer import QuantizeResult, requantize

__all__ = ["PrecisionPlan", "QuantizeResult", "load_plan", "requantize", "save_plan"]
