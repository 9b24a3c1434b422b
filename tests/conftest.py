"""Fixtures: the shared golden models, and a small packed model for tests of everything above the engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("LES_SHARED", ROOT.parent / "shared"))


def shared_or_skip(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there: set LES_SHARED to the folder with the golden models")
    return path


@pytest.fixture(scope="session")
def golden_gguf() -> Path:
    return shared_or_skip("goldens", "qwen3moe", "model.gguf")


@pytest.fixture(scope="session")
def packed(golden_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from les.pack import pack

    return pack(golden_gguf, tmp_path_factory.mktemp("packed") / "tiny.les").path
