#!/usr/bin/env python3
"""Write a noise model: the shapes, keys and quant types of a real Mixture-of-Experts model, random weights.

    make_model.py qwen35moe-35b OUT.gguf --layers 12 --type Q4_K
    make_model.py list

Speed depends on shapes, types and routing, not on what the weights mean; so a noise model measures what the real one
would, where no real one can be had. Two knobs make its routing like a real model's: --similarity, how alike the
embeddings of all tokens are (it sets how many experts neighbouring tokens share), and --movement, how far a layer moves
the residual stream (it sets how well a layer's router predicts the next one's choice). The defaults are not calibrated
against a real model yet: measure overlap and recall before concluding anything about prediction from a noise model.

Needs numpy and gguf. Writes as it goes: memory stays below 500 MB.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

POOL_BYTES = 1 << 24  # random bytes to cut blocks from


@dataclass(frozen=True)
class Preset:
    """Shapes of one real model; names as in GGUF keys."""

    arch: str
    layers: int
    d: int
    heads: int
    kv: int
    head_dim: int
    experts: int
    used: int
    ff: int
    vocab: int
    shared_ff: int = 0
    dense_ff: int = 0
    leading_dense: int = 0
    keys: dict[str, object] = field(default_factory=dict)


PRESETS = {
    "qwen35moe-35b": Preset(
        "qwen35moe",
        40,
        2048,
        16,
        2,
        256,
        256,
        8,
        512,
        248320,
        shared_ff=512,
        keys={
            "ssm.conv_kernel": 4,
            "ssm.state_size": 128,
            "ssm.group_count": 16,
            "ssm.time_step_rank": 32,
            "ssm.inner_size": 4096,
            "full_attention_interval": 4,
            "rope.dimension_count": 64,
            "rope.dimension_sections": [11, 11, 10, 0],
            "rope.freq_base": 1e7,
        },
    ),
    "qwen3moe-30b": Preset("qwen3moe", 48, 2048, 32, 4, 128, 128, 8, 768, 151936, keys={"rope.freq_base": 1e6}),
    "olmoe-7b": Preset("olmoe", 16, 2048, 16, 16, 128, 64, 8, 1024, 50304),
    "gpt-oss-20b": Preset(
        "gpt-oss",
        24,
        2880,
        64,
        8,
        64,
        32,
        4,
        2880,
        201088,
        keys={
            "attention.sliding_window": 128,
            "rope.freq_base": 150000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 4096,
        },
    ),
    "gemma4-26b": Preset(
        "gemma4",
        30,
        2816,
        16,
        8,
        512,
        128,
        8,
        704,
        262144,
        dense_ff=2112,
        keys={
            "attention.sliding_window": 1024,
            "attention.key_length_swa": 256,
            "attention.value_length_swa": 256,
            "attention.shared_kv_layers": 0,
            "embedding_length_per_layer_input": 0,
            "final_logit_softcapping": 30.0,
            "rope.freq_base": 1e6,
            "rope.freq_base_swa": 1e4,
            "rope.dimension_count": 512,
            "rope.dimension_count_swa": 256,
        },
    ),
    "deepseek2-lite": Preset(
        "deepseek2",
        27,
        2048,
        16,
        1,
        0,
        64,
        6,
        1408,
        102400,
        shared_ff=2816,
        dense_ff=10944,
        leading_dense=1,
        keys={
            "attention.kv_lora_rank": 512,
            "attention.key_length": 576,
            "attention.value_length": 512,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
            "rope.dimension_count": 64,
            "expert_gating_func": 1,
            "expert_shared_count": 2,
            "expert_weights_scale": 1.0,
            "leading_dense_block_count": 1,
        },
    ),
}

# Bytes per block, and where its half-precision scales lie: (offset, factor on the wished standard deviation).
# Integer fields are random; the factors make the decoded weights come out with that deviation.
BLOCKS = {
    "Q8_0": (34, [(0, 1 / 73.9)]),
    "Q4_0": (18, [(0, 1 / 4.61)]),
    "IQ4_NL": (18, [(0, 1 / 70.0)]),
    "Q4_K": (144, [(0, 1 / (60 * 4.61)), (2, 7.5 / (60 * 4.61))]),
    "Q5_K": (176, [(0, 1 / (60 * 9.23)), (2, 15.5 / (60 * 9.23))]),
    "Q6_K": (210, [(208, 1 / (60 * 18.5))]),
    "Q3_K": (110, [(108, 1 / (28 * 2.29))]),
    "Q2_K": (84, [(80, 1 / (15 * 1.12)), (82, 1.5 / (15 * 1.12))]),
}
# Scale fields with a fixed value, so that every block has the same deviation.
FIXED = {
    "Q4_K": (slice(4, 16), bytes([60] * 4 + [60] * 4 + [0xCC] * 4)),
    "Q5_K": (slice(4, 16), bytes([60] * 4 + [60] * 4 + [0xCC] * 4)),
    "Q6_K": (slice(192, 208), bytes([60] * 16)),
    "Q3_K": (slice(96, 108), bytes([0xCC] * 8 + [0xFF] * 4)),
    "Q2_K": (slice(0, 16), bytes([0xFF] * 16)),
}


class Noise:
    """Random matrices of a wished standard deviation, in any of the types above or in floats."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.pool = self.rng.integers(0, 256, POOL_BYTES, dtype=np.uint8)

    def matrix(self, kind: str, n_rows: int, n_in: int, std: float) -> np.ndarray:
        """Stored rows, uint8 [n_rows, row bytes], or float32 [n_rows, n_in] for F32."""
        if kind == "F32":
            return self.rng.normal(0, std, (n_rows, n_in)).astype(np.float32)
        elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
        n_blocks = n_rows * (n_in // elements)
        start = int(self.rng.integers(0, POOL_BYTES))
        blocks = np.resize(np.roll(self.pool, -start), n_blocks * size).reshape(n_blocks, size)
        if kind in FIXED:
            where, value = FIXED[kind]
            blocks[:, where] = np.frombuffer(value, np.uint8)
        for offset, factor in BLOCKS[kind][1]:
            blocks[:, offset : offset + 2] = np.frombuffer(np.float16(std * factor).tobytes(), np.uint8)
        return blocks.reshape(n_rows, -1)


class Writer:
    """Collects tensor descriptions first, makes and writes their data afterwards."""

    def __init__(self, path: Path, preset: Preset, kind: str, seed: int) -> None:
        self.gguf = gguf.GGUFWriter(path, preset.arch)
        self.kind, self.noise = kind, Noise(seed)
        self.jobs: list = []

    def matrix(
        self, name: str, n_in: int, n_out: int, gain: float = 1.0, stack: int = 0, kind: str | None = None
    ) -> None:
        """blk-style weight of deviation gain / sqrt(n_in); stack: that many matrices in one tensor."""
        kind = kind or self.kind
        elements = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0]
        if n_in % elements:
            kind = "Q8_0" if n_in % 32 == 0 else "F32"
        shape = (stack, n_out, n_in) if stack else (n_out, n_in)
        self.jobs.append((name, kind, shape, lambda rows: self.noise.matrix(kind, rows, n_in, gain / n_in**0.5)))

    def values(self, name: str, values: np.ndarray) -> None:
        self.jobs.append((name, "F32", values.shape, lambda rows: values.astype(np.float32)))

    def ones(self, name: str, n: int) -> None:
        self.values(name, np.ones(n))

    def write(self) -> int:
        for name, kind, shape, _ in self.jobs:
            qtype = gguf.GGMLQuantizationType[kind]
            elements, size = gguf.GGML_QUANT_SIZES[qtype]
            stored = shape if kind == "F32" else (*shape[:-1], shape[-1] // elements * size)
            n_bytes = int(np.prod(shape)) // elements * size
            dtype = np.dtype(np.float32 if kind == "F32" else np.uint8)
            self.gguf.add_tensor_info(name, stored, dtype, n_bytes, raw_dtype=qtype)
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_ti_data_to_file()
        total = 0
        for i, (name, _, shape, make) in enumerate(self.jobs):
            rows = int(np.prod(shape[:-1]))
            data = np.ascontiguousarray(make(rows))
            self.gguf.write_tensor_data(data)
            total += data.nbytes
            if sys.stderr.isatty():
                print(f"\r{i + 1}/{len(self.jobs)} {name:40s} {total / 1e9:.2f} GB", end="", file=sys.stderr)
        if sys.stderr.isatty():
            print(file=sys.stderr)
        self.gguf.close()
        return total


def add_keys(w: Writer, p: Preset, layers: int) -> None:
    g = w.gguf
    g.add_name(f"noise {p.arch} {layers} layers")
    g.add_block_count(layers)
    g.add_context_length(32768)
    g.add_embedding_length(p.d)
    g.add_head_count(p.heads)
    if p.arch == "gemma4":
        has_window = [(i + 1) % 6 != 0 for i in range(layers)]
        g.add_head_count_kv([p.kv if w else 2 for w in has_window])
        g.add_array("gemma4.attention.sliding_window_pattern", has_window)
    else:
        g.add_head_count_kv(p.kv)
    if p.head_dim:
        g.add_key_length(p.head_dim)
        g.add_value_length(p.head_dim)
    g.add_layer_norm_rms_eps(1e-6)
    g.add_feed_forward_length(p.dense_ff or p.ff)
    g.add_expert_count(p.experts)
    g.add_expert_used_count(p.used)
    g.add_expert_feed_forward_length(p.ff)
    if p.shared_ff:
        g.add_expert_shared_feed_forward_length(p.shared_ff)
    put = {int: g.add_uint32, float: g.add_float32, str: g.add_string, list: g.add_array}
    for name, value in p.keys.items():
        put[type(value)](f"{p.arch}.{name}", value)
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    tokens = [chr(b) if b in plain else chr(next(spare)) for b in range(256)]
    tokens += ["<|endoftext|>"] + [f"[PAD{i}]" for i in range(257, p.vocab)]
    g.add_tokenizer_model("gpt2")
    g.add_tokenizer_pre("qwen2")
    g.add_token_list(tokens)
    g.add_token_types([1] * 256 + [3] + [5] * (p.vocab - 257))
    g.add_token_merges(["a b"])
    g.add_eos_token_id(256)


def add_attention(w: Writer, p: Preset, b: str, out: float) -> None:
    if p.arch == "deepseek2":
        lora, rot, nope, vd = 512, 64, 128, 128
        w.matrix(b + "attn_q.weight", p.d, p.heads * (nope + rot))
        w.matrix(b + "attn_kv_a_mqa.weight", p.d, lora + rot)
        w.ones(b + "attn_kv_a_norm.weight", lora)
        w.matrix(b + "attn_k_b.weight", nope, lora, stack=p.heads, kind="Q8_0")
        w.matrix(b + "attn_v_b.weight", lora, vd, stack=p.heads, kind="Q8_0")
        w.matrix(b + "attn_output.weight", p.heads * vd, p.d, gain=out)
        return
    gated = 2 if p.arch == "qwen35moe" else 1
    w.matrix(b + "attn_q.weight", p.d, p.heads * p.head_dim * gated)
    w.matrix(b + "attn_k.weight", p.d, p.kv * p.head_dim)
    w.matrix(b + "attn_v.weight", p.d, p.kv * p.head_dim)
    w.matrix(b + "attn_output.weight", p.heads * p.head_dim, p.d, gain=out)
    if p.arch in ("qwen3moe", "qwen35moe", "olmoe"):
        n_q, n_k = (p.heads * p.head_dim, p.kv * p.head_dim) if p.arch == "olmoe" else (p.head_dim, p.head_dim)
        w.ones(b + "attn_q_norm.weight", n_q)
        w.ones(b + "attn_k_norm.weight", n_k)
    if p.arch == "gpt-oss":
        w.values(b + "attn_sinks.weight", np.zeros(p.heads))
        for name, n in (
            ("q", p.heads * p.head_dim),
            ("k", p.kv * p.head_dim),
            ("v", p.kv * p.head_dim),
            ("output", p.d),
        ):
            w.values(f"{b}attn_{name}.bias", np.zeros(n))


def add_delta_net(w: Writer, p: Preset, b: str, out: float) -> None:
    k_heads, v_heads, dim = 16, 32, 128
    inner = v_heads * dim
    conv = 2 * k_heads * dim + inner
    w.matrix(b + "attn_qkv.weight", p.d, conv)
    w.matrix(b + "attn_gate.weight", p.d, inner)
    w.matrix(b + "ssm_conv1d.weight", 4, conv, kind="F32")
    w.values(b + "ssm_dt.bias", np.full(v_heads, -1.0))
    w.values(b + "ssm_a", np.full(v_heads, -1.0))
    w.matrix(b + "ssm_beta.weight", p.d, v_heads)
    w.matrix(b + "ssm_alpha.weight", p.d, v_heads)
    w.ones(b + "ssm_norm.weight", dim)
    w.matrix(b + "ssm_out.weight", inner, p.d, gain=out)


def add_ffn(w: Writer, p: Preset, b: str, i: int, out: float) -> None:
    if i < p.leading_dense:
        for name, n_in, n_out, gain in (
            ("gate", p.d, p.dense_ff, 1),
            ("up", p.d, p.dense_ff, 1),
            ("down", p.dense_ff, p.d, out),
        ):
            w.matrix(f"{b}ffn_{name}.weight", n_in, n_out, gain=gain)
        return
    w.matrix(b + "ffn_gate_inp.weight", p.d, p.experts, kind="F32", gain=2.0)
    w.matrix(b + "ffn_gate_exps.weight", p.d, p.ff, stack=p.experts)
    w.matrix(b + "ffn_up_exps.weight", p.d, p.ff, stack=p.experts)
    w.matrix(b + "ffn_down_exps.weight", p.ff, p.d, stack=p.experts, gain=2 * out)
    if p.shared_ff:
        w.matrix(b + "ffn_gate_shexp.weight", p.d, p.shared_ff)
        w.matrix(b + "ffn_up_shexp.weight", p.d, p.shared_ff)
        w.matrix(b + "ffn_down_shexp.weight", p.shared_ff, p.d, gain=2 * out)
    if p.arch == "qwen35moe":
        w.values(b + "ffn_gate_inp_shexp.weight", w.noise.rng.normal(0, p.d**-0.5, p.d))
    if p.arch == "gpt-oss":
        w.values(b + "ffn_gate_inp.bias", np.zeros(p.experts))
        for name, n in (("gate", p.ff), ("up", p.ff), ("down", p.d)):
            w.values(f"{b}ffn_{name}_exps.bias", np.zeros((p.experts, n)))


def add_gemma4(w: Writer, p: Preset, b: str, i: int, movement: float) -> None:
    """One layer; norms behind its blocks say how far it moves the stream."""
    has_window = (i + 1) % 6 != 0
    dim, kv = (256, p.kv) if has_window else (p.head_dim, 2)
    w.matrix(b + "attn_q.weight", p.d, p.heads * dim)
    w.matrix(b + "attn_k.weight", p.d, kv * dim)
    if has_window:
        w.matrix(b + "attn_v.weight", p.d, kv * dim)
    w.matrix(b + "attn_output.weight", p.heads * dim, p.d)
    # The score is the plain product of normalised query and key: together they take the usual 1 / sqrt(dim).
    for name in ("q", "k"):
        w.values(f"{b}attn_{name}_norm.weight", np.full(dim, dim**-0.25))
    for name in ("attn_norm", "ffn_norm", "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
        w.ones(f"{b}{name}.weight", p.d)
    for name in ("post_attention_norm", "post_ffw_norm"):
        w.values(f"{b}{name}.weight", np.full(p.d, movement))
    w.ones(b + "layer_output_scale.weight", 1)
    for name, n_in, n_out in (("gate", p.d, p.dense_ff), ("up", p.d, p.dense_ff), ("down", p.dense_ff, p.d)):
        w.matrix(f"{b}ffn_{name}.weight", n_in, n_out)
    w.matrix(b + "ffn_gate_inp.weight", p.d, p.experts, kind="F32", gain=2.0)
    w.values(b + "ffn_gate_inp.scale", np.full(p.d, p.d**0.5))  # the router divides by this
    w.matrix(b + "ffn_gate_up_exps.weight", p.d, 2 * p.ff, stack=p.experts)
    w.matrix(b + "ffn_down_exps.weight", p.ff, p.d, stack=p.experts)
    w.ones(b + "ffn_down_exps.scale", p.experts)


def build(p: Preset, path: Path, layers: int, kind: str, seed: int, similarity: float, movement: float) -> int:
    """Writes the model; returns its bytes."""
    w = Writer(path, p, kind, seed)
    add_keys(w, p, layers)
    rng = np.random.default_rng(seed + 1)
    common = rng.normal(0, similarity**0.5, p.d)
    embedding = (common + rng.normal(0, (1 - similarity) ** 0.5, (p.vocab, p.d))).astype(np.float16)
    is_tied = p.arch == "gemma4"
    if is_tied:
        embedding = (embedding / p.d**0.5).astype(np.float16)  # the model multiplies by this
        w.values("rope_freqs.weight", np.where(np.arange(p.head_dim // 2) < p.head_dim // 8, 1, 1e30))
    w.jobs.append(("token_embd.weight", "F16", embedding.shape, lambda rows: embedding.view(np.uint8)))
    w.ones("output_norm.weight", p.d)
    if not is_tied:
        w.matrix("output.weight", p.d, p.vocab, gain=2.5)
    for i in range(layers):
        b = f"blk.{i}."
        if p.arch == "gemma4":
            add_gemma4(w, p, b, i, movement)
            continue
        w.ones(b + "attn_norm.weight", p.d)
        if p.arch == "qwen35moe" and (i + 1) % 4 != 0:
            add_delta_net(w, p, b, movement)
        else:
            add_attention(w, p, b, movement)
        w.ones(b + ("post_attention_norm" if p.arch in ("qwen35moe", "gpt-oss") else "ffn_norm") + ".weight", p.d)
        add_ffn(w, p, b, i, movement)
    return w.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", choices=[*PRESETS, "list"], help="the real model whose shapes to take")
    parser.add_argument("out", type=Path, nargs="?", help="the .gguf file to write")
    parser.add_argument("--layers", type=int, default=0, help="fewer layers than the real model")
    parser.add_argument("--type", default="Q4_K", choices=sorted(BLOCKS), help="quant type of all matrices but routers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--similarity", type=float, default=0.75, help="0 to 1: how alike tokens are")
    parser.add_argument("--movement", type=float, default=0.25, help="how far a layer moves the residual stream")
    args = parser.parse_args()
    if args.preset == "list" or args.out is None:
        for name, p in PRESETS.items():
            print(f"{name:16s} {p.arch:10s} {p.layers} layers, {p.experts} experts, {p.used} used")
        return
    preset = PRESETS[args.preset]
    total = build(preset, args.out, args.layers or preset.layers, args.type, args.seed, args.similarity, args.movement)
    print(f"{args.out}: {total / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
