"""How good a model is, and how far another is from it on the same tokens."""

from __future__ import annotations

from les.eval.choices import ChoiceReport, evaluate_choices, load_items
from les.eval.statistics import Estimate
from les.eval.tokens import Comparison, Perplexity, Reference, compare, make_windows, perplexity

__all__ = [
    "ChoiceReport",
    "Comparison",
    "Estimate",
    "Perplexity",
    "Reference",
    "compare",
    "evaluate_choices",
    "load_items",
    "make_windows",
    "perplexity",
]
