"""Getting models, and finding those that are there."""

from __future__ import annotations

from les.models.cache import InstalledModel, cache_dir, installed, remove, resolve
from les.models.pull import pull

__all__ = ["InstalledModel", "cache_dir", "installed", "pull", "remove", "resolve"]
