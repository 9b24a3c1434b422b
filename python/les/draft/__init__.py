"""Speculative decoding: drafters guess the next tokens, one pass of the model verifies them, and no text changes."""

from les.draft.base import Draft, Drafter
from les.draft.ngram import NgramDrafter
from les.draft.steps import speculative_steps
from les.draft.verify import accept
from les.draft.width import DraftStats, WidthChooser

__all__ = ["Draft", "DraftStats", "Drafter", "NgramDrafter", "WidthChooser", "accept", "speculative_steps"]
