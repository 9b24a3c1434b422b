"""The demo's training program on a tiny dense model: gradients, resuming, and a recipe that builds a model."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[train]'")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from demo_training import data, export, model, start, training  # noqa: E402

from les.models.demo import Recipe, build_demo  # noqa: E402

N_LAYER, D, F, V = 2, 32, 64, 50
OPTIONS = training.TrainOptions(steps=4, batch=2, rate=0.02)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense llama with two layers and random weights."""
    path = tmp_path_factory.mktemp("dense") / "dense.gguf"
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(N_LAYER)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(F)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    shapes = {"token_embd": (V, D)}
    for i in range(N_LAYER):
        layer = {"attn_q": (D, D), "attn_k": (D // 2, D), "attn_v": (D // 2, D), "attn_output": (D, D)}
        layer |= {"ffn_gate": (F, D), "ffn_up": (F, D), "ffn_down": (D, F)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32))
    for name in ["output_norm"] + [f"blk.{i}.{n}_norm" for i in range(N_LAYER) for n in ("attn", "ffn")]:
        writer.add_tensor(f"{name}.weight", np.ones(D, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def dense(source: Path) -> model.Dense:
    return model.load_dense(source)


def pools() -> training.Pools:
    rng = np.random.default_rng(1)
    return {kind: rng.integers(0, V, (6, 24)) for kind in ("chat", "tech")}


def starting_point(dense: model.Dense) -> list[model.Params]:
    ids = torch.from_numpy(np.concatenate(list(pools().values())))
    return start.make_start(model.Net(dense), ids, start.StartOptions(rank=2, dims=8))


def test_start_is_the_dense_model(dense: model.Dense) -> None:
    ids = torch.from_numpy(pools()["tech"][:2])
    plain, upcycled = model.Net(dense).hidden(ids), model.Net(dense, starting_point(dense)).hidden(ids)
    torch.testing.assert_close(upcycled, plain)


def test_gradients_are_those_of_the_losses(dense: model.Dense) -> None:
    net, ids = model.Net(dense), torch.from_numpy(pools()["chat"][0])
    h = torch.randn(24, D, generator=torch.Generator().manual_seed(2), requires_grad=True)
    loss = torch.nn.functional.cross_entropy(net.head(h[:-1]), ids[1:], reduction="sum")
    ours, grad = training.lm_loss(net, h.detach(), ids)
    assert ours == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(grad, torch.autograd.grad(loss, h)[0], rtol=1e-4, atol=1e-5)
    teacher = training.teach(net, ids)
    assert training.kl_loss(net, net.hidden(ids[None])[0], teacher)[0] == pytest.approx(0, abs=0.02)


def test_resumed_training_is_the_uninterrupted_one(
    dense: model.Dense, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.train(dense, starting_point(dense), pools(), tmp_path / "whole.pt", OPTIONS)
    step = training.Trainer.step

    def failing(self: training.Trainer, index: int, *picks: list[training.Pick]) -> dict[str, float]:
        if index == 2:
            raise KeyboardInterrupt
        return step(self, index, *picks)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training.Trainer, "step", failing)
        training.train(dense, starting_point(dense), pools(), tmp_path / "parts.pt", OPTIONS, save_every=1)
    assert training.load_checkpoint(tmp_path / "parts.pt")["step"] == 2
    training.train(dense, starting_point(dense), pools(), tmp_path / "parts.pt", OPTIONS)
    whole, parts = (training.load_checkpoint(tmp_path / f"{name}.pt")["params"] for name in ("whole", "parts"))
    assert any(bool(p["down_b"].any()) for p in whole)
    for p, q in zip(whole, parts, strict=True):
        assert all(torch.equal(p[name], q[name]) for name in p)
    with pytest.raises(ValueError, match="other options"):
        training.train(dense, starting_point(dense), pools(), tmp_path / "parts.pt", training.TrainOptions(steps=9))


def test_recipe_builds_a_model_with_the_trained_experts(dense: model.Dense, source: Path, tmp_path: Path) -> None:
    training.train(dense, starting_point(dense), pools(), tmp_path / "ckpt.pt", OPTIONS)
    params = training.load_checkpoint(tmp_path / "ckpt.pt")["params"]
    path = tmp_path / "recipe.npz"
    export.save_recipe(params, path)
    ours, packaged = Recipe(path), Recipe()
    assert list(ours.arrays) == list(packaged.arrays)
    for name, x in packaged.arrays.items():
        assert (ours.arrays[name].dtype, ours.arrays[name].ndim) == (x.dtype, x.ndim), name

    build_demo(source, tmp_path / "moe.gguf", "F16", recipe_path=path)
    tensors = {t.name: t.data for t in gguf.GGUFReader(tmp_path / "moe.gguf").tensors}
    layer, expert, rank = 1, 5, 2
    rows = slice(expert * rank, (expert + 1) * rank)
    p = params[layer]
    delta = (p["down_b"][rows].T @ p["down_a"][rows]).numpy()
    built = tensors[f"blk.{layer}.ffn_down_exps.weight"][expert].astype(np.float32)
    assert np.abs(delta).max() > 1e-3
    error = built - dense.layer(layer, "ffn_down").numpy() - delta
    assert np.abs(error).max() < 0.03 * np.abs(delta).max() + 1e-3  # int8 rows, float16 weights
    for mine, read in zip(params, export.load_recipe(path), strict=True):
        torch.testing.assert_close(read["router"], mine["router"], rtol=1e-3, atol=1e-4)


def test_quantised_rows_are_within_half_a_step() -> None:
    x = np.random.default_rng(3).normal(size=(5, 2, 40)).astype(np.float32)
    x[0] = 0
    rows, scales = export.quantise_rows(x)
    back = export.dequantise_rows(rows, scales)
    assert (np.abs(back - x).max(-1) <= 0.5 * scales.astype(np.float32) * 1.13).all()
    assert not back[0].any()


def test_chunks_do_not_overlap_and_are_whole() -> None:
    chunks = data.cut(list(range(103)), 10, 4, random.Random(0))
    assert len(chunks) == 4 and all(c == list(range(c[0], c[0] + 10)) and c[0] % 10 == 0 for c in chunks)
    assert len({c[0] for c in chunks}) == 4
    assert data.pack([[1, 2, 3], [4]], [0], 2) == [[1, 2], [3, 0], [4, 0]]
    assert data.cut([1, 2], 10, 4, random.Random(0)) == []
