"""DSpark heads against the golden draft models, alone and as drafters of their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import SHARED, shared_or_skip

import les
from les import _core
from les.draft import DsparkDrafter

NAMES = sorted(p.parent.name for p in SHARED.glob("goldens/dspark-*/drafter.gguf")) or ["dspark-qwen3moe"]


def target_path(name: str) -> str:
    return str(shared_or_skip("goldens", name.split("-")[1], "model.gguf"))


def open_both(name: str, **options: Any) -> tuple[_core.Engine, _core.Drafter, Any]:
    engine = _core.Engine(target_path(name), {"kv_type": "f32", "context": 160, "threads": 2, **options})
    drafter = engine.open_drafter(str(shared_or_skip("goldens", name, "drafter.gguf")))
    return engine, drafter, np.load(shared_or_skip("goldens", name, "golden.npz"))


def head_columns(name: str, logits: np.ndarray) -> np.ndarray:
    """The golden logits of the tokens that the head knows, in the order of its rows."""
    metadata = _core.GgufFile(str(shared_or_skip("goldens", name, "drafter.gguf")))
    d2t = [t for t in metadata.tensors if t.name == "d2t"]
    if not d2t:
        return logits
    path = metadata.shards[0][0]
    ids = np.fromfile(path, np.int64, d2t[0].n_elements, offset=d2t[0].offset_bytes)
    return logits[..., ids]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_blocks_equal_the_golden_ones(name: str, chunk: int) -> None:
    engine, drafter, golden = open_both(name)
    session = engine.session()
    session.attach_drafter(drafter)
    np.testing.assert_array_equal(drafter.target_layers, golden["target_layers"])
    tokens = golden["tokens"].tolist()
    n_tokens = golden["drafts"].shape[1]
    assert drafter.block == n_tokens
    first = int(golden["block_size"]) - n_tokens
    for i, p in enumerate(golden["anchor_positions"].tolist()):
        session.rewind(min(session.position, p))
        while session.position < p:
            session.eval(tokens[session.position : min(p, session.position + chunk)])
        drafted = session.draft(tokens[p], n_tokens, True)
        assert drafted["tokens"] == golden["drafts"][i].tolist()
        np.testing.assert_allclose(drafted["hidden"].reshape(golden["hidden"][i].shape), golden["hidden"][i], atol=3e-4)
        for key in ("base_logits", "logits"):
            expected = head_columns(name, golden[key][i])
            np.testing.assert_allclose(drafted[key].reshape(expected.shape), expected, atol=5e-4)
        if "confidence" in golden:
            np.testing.assert_allclose(drafted["confidences"], golden["confidence"][i], atol=1e-4)
        else:
            assert drafted["confidences"] is None
        if i == 2:
            short = session.draft(tokens[p], 3 - first, True)
            expected = head_columns(name, golden["short_logits"])
            np.testing.assert_allclose(short["logits"].reshape(expected.shape), expected, atol=5e-4)


class Recorder(DsparkDrafter):
    """Remembers how many tokens of each draft were accepted."""

    def begin(self, session: Any, params: Any) -> None:
        super().begin(session, params)
        self.n_accepted: list[int] = []

    def observe(self, n_verified: int, n_accepted: int) -> None:
        self.n_accepted.append(n_accepted)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_rounds_accept_what_the_golden_ones_do_and_the_text_is_the_same(name: str) -> None:
    golden = np.load(shared_or_skip("goldens", name, "golden.npz"))
    prompt = golden["tokens"][: int(golden["prompt_length"])].tolist()
    path = shared_or_skip("goldens", name, "drafter.gguf")
    with les.load(target_path(name), context=160, threads=2, kv_type="f32") as model:
        floor = les.plan(target_path(name), context=160, threads=2, kv_type="f32")["floor_bytes"]
        plain = model.generate(prompt, temperature=0.0, max_tokens=40).tokens
        sampled = model.generate(prompt, seed=3, temperature=1.0, max_tokens=40).tokens
        for width in (1, 2, 3, 5):
            result = model.generate(
                prompt, temperature=0.0, max_tokens=40, draft=path, draft_max=width, draft_fixed=True
            )
            assert result.tokens == plain
        # The first token comes from the prompt; the golden rounds start with it as anchor.
        recorder = Recorder(model._core.open_drafter(str(path)), "recorder")
        assert (
            model.generate(prompt, temperature=0.0, max_tokens=40, draft=recorder, draft_max=5, draft_fixed=True).tokens
            == plain
        )
        n_rounds = len(golden["rounds"]) - 1  # the last one may go beyond the golden text
        assert recorder.n_accepted[:n_rounds] == golden["accepted"][:n_rounds].tolist()
        assert model.generate(prompt, temperature=0.0, max_tokens=40, draft=str(path)).tokens == plain
        assert (
            model.generate(
                prompt, seed=3, temperature=1.0, max_tokens=40, draft=path, draft_max=4, draft_fixed=True
            ).tokens
            == sampled
        )
    with les.load(target_path(name), memory=floor + 4_000_000, context=160, threads=2, kv_type="f32") as model:
        assert (
            model.generate(prompt, temperature=0.0, max_tokens=40, draft=path, draft_max=5, draft_fixed=True).tokens
            == plain
        )


def test_a_head_takes_memory_from_the_budget_and_says_what_is_wrong() -> None:
    path = str(shared_or_skip("goldens", "dspark-qwen3moe", "drafter.gguf"))
    floor = _core.plan_memory(target_path("dspark-qwen3moe"), {"context": 160})["floor_bytes"]
    engine = _core.Engine(target_path("dspark-qwen3moe"), {"context": 160, "memory_bytes": floor})
    with pytest.raises(les.BudgetError):
        engine.open_drafter(path)
    engine = _core.Engine(target_path("dspark-qwen3moe"), {"context": 160, "memory_bytes": floor + 4_000_000})
    trunk = engine.plan["trunk_bytes"]
    drafter = engine.open_drafter(path)
    assert engine.plan["trunk_bytes"] == trunk + drafter.size_bytes
    assert engine.plan["total_bytes"] <= floor + 4_000_000
    session = engine.session()
    session.eval([1, 2, 3])
    with pytest.raises(les.InvalidArgumentError, match="no drafter"):
        session.draft(1, 2)
    session.attach_drafter(drafter)
    with pytest.raises(les.InvalidArgumentError, match="0 of 3"):
        session.draft(1, 2)
    session.rewind(0)
    session.eval([1, 2, 3])
    for anchor, n in ((1, 0), (1, 6), (-1, 2), (10**6, 2)):
        with pytest.raises(les.InvalidArgumentError):
            session.draft(anchor, n)
    with pytest.raises(les.UnsupportedError, match="dflash"):
        engine.open_drafter(target_path("dspark-qwen3moe"))
    other = _core.Engine(str(shared_or_skip("goldens", "qwen3moe-256-q8_0", "model.gguf")), {"context": 160})
    with pytest.raises(les.CorruptFileError, match="target layer"):
        other.open_drafter(str(shared_or_skip("goldens", "dspark-qwen3moe-d2t", "drafter.gguf")))
