"""Speculative decoding: drafters guess the next tokens, one pass of the model verifies them, and no text changes."""

from les.draft.base import Draft, Drafter
from les.draft.dspark import DsparkDrafter
from les.draft.ngram import NgramDrafter
from les.draft.small import ModelDrafter
from les.draft.steps import speculative_steps
from les.draft.verify import accept
from les.draft.width import DraftStats, WidthChooser

__all__ = [
    "Draft",
    "DraftStats",
    "Drafter",
    "DsparkDrafter",
    "ModelDrafter",
    "NgramDrafter",
    "WidthChooser",
    "accept",
    "speculative_steps",
]
