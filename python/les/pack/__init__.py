"""Packing models into `.les` files, and looking into them."""

from __future__ import annotations

from les.pack.inspect import ModelInfo, inspect
from les.pack.writer import PackResult, VerifyReport, pack, unpack, verify

__all__ = ["ModelInfo", "PackResult", "VerifyReport", "inspect", "pack", "unpack", "verify"]
