"""The dense model in torch, and the same model with routers and low-rank deltas: the upcycled one.

The method is sparse upcycling (Komatsuzaki et al., 2022: every expert starts as the dense FFN) with what tells the
experts apart kept low-rank (as in LoRA, Hu et al., 2021): expert e has the weight W + B_e^T A_e. With B = 0 the model
is exactly the dense one whatever the routers say, because the weights of the chosen experts sum to one.

Shapes: B batch, T tokens, N = B*T, D width, F FFN width, E experts, K used, r rank, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from torch import Tensor
from torch.nn import functional

N_USED = 2
ROPE_LIMIT = 2048

Params = dict[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """Sizes of a dense model of architecture llama, from its GGUF keys."""

    n_layer: int
    d: int
    d_ff: int
    n_head: int
    n_kv: int
    eps: float
    theta: float

    @property
    def head_dim(self) -> int:
        return self.d // self.n_head


@dataclass(frozen=True)
class Dense:
    """A dense model: its shape and its weights in float32, by GGUF name."""

    shape: Shape
    weights: dict[str, Tensor]

    def layer(self, layer: int, name: str) -> Tensor:
        return self.weights[f"blk.{layer}.{name}.weight"]


def load_dense(path: Path) -> Dense:
    """Reads a GGUF file. Raises ValueError if it is not a dense llama with a tied head."""
    reader = gguf.GGUFReader(path)

    def key(name: str) -> Any:
        field = reader.fields.get(name)
        if field is None:
            raise ValueError(f"{path}: key {name} is missing: not a dense model of architecture llama")
        return field.contents()

    shape = Shape(
        n_layer=key("llama.block_count"),
        d=key("llama.embedding_length"),
        d_ff=key("llama.feed_forward_length"),
        n_head=key("llama.attention.head_count"),
        n_kv=key("llama.attention.head_count_kv"),
        eps=key("llama.attention.layer_norm_rms_epsilon"),
        theta=key("llama.rope.freq_base"),
    )
    weights = {
        t.name: torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), np.float32)) for t in reader.tensors
    }
    if "output.weight" in weights or "blk.0.ffn_gate.weight" not in weights:
        raise ValueError(f"{path}: only dense models whose head is the embedding can be upcycled here")
    return Dense(shape, weights)


class Rope:
    """Rotary embedding over neighbouring pairs, as GGUF stores llama's attention weights."""

    def __init__(self, shape: Shape) -> None:
        exponents = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
        angles = torch.outer(torch.arange(ROPE_LIMIT).float(), 1.0 / shape.theta**exponents)
        self.cos, self.sin = angles.cos(), angles.sin()

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [..., T, head_dim], positions broadcasting to [..., T]."""
        a, b = x[..., 0::2], x[..., 1::2]
        cos, sin = self.cos[positions], self.sin[positions]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Net:
    """The frozen dense model and, with params, its experts' deltas and routers.

    params, one dict a layer: router [E,D]; in_a [2,E*r,D] and in_b [2,E*r,F] for gate and up; down_a [E*r,F] and
    down_b [E*r,D]. Router probabilities are collected for the balance loss while `balance` is a list; `probe` is
    called with (layer, router logits [N,E], chosen [N,K]).
    """

    def __init__(self, dense: Dense, params: list[Params] | None = None) -> None:
        self.dense, self.shape, self.params = dense, dense.shape, params
        layers = range(dense.shape.n_layer)
        self.qkv = [torch.cat([dense.layer(i, f"attn_{n}") for n in "qkv"]) for i in layers]
        self.gate_up = [torch.cat([dense.layer(i, "ffn_gate"), dense.layer(i, "ffn_up")]) for i in layers]
        self.rope = Rope(dense.shape)
        self.balance: list[Tensor] | None = None
        self.probe: Callable[[int, Tensor, Tensor], None] | None = None

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (self.shape.d,), weight, self.shape.eps)

    def split_heads(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [B,T,D] → q [B,H,T,head_dim], k and v [B,KV,T,head_dim], not rotated yet."""
        s = self.shape
        rows = functional.linear(self.norm(x, self.dense.layer(layer, "attn_norm")), self.qkv[layer])
        parts = torch.split_with_sizes(rows, [s.n_head * s.head_dim, s.n_kv * s.head_dim, s.n_kv * s.head_dim], -1)
        q, k, v = (part.unflatten(-1, (-1, s.head_dim)).transpose(1, 2) for part in parts)
        return q, k, v

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attention output [B,T,D]; causal without a mask [B,1,T,S]."""
        group = self.shape.n_head // self.shape.n_kv
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return functional.linear(out.transpose(1, 2).flatten(2), self.dense.layer(layer, "attn_output"))

    def attention(self, layer: int, x: Tensor) -> Tensor:
        q, k, v = self.split_heads(layer, x)
        positions = torch.arange(x.shape[1])
        return x + self.attend(layer, self.rope(q, positions), self.rope(k, positions), v)

    def ffn(self, layer: int, h: Tensor) -> Tensor:
        """h [N,D] → [N,D]."""
        if self.params is not None:
            return self.experts(layer, h, self.params[layer])
        gate, up = functional.linear(h, self.gate_up[layer]).chunk(2, -1)
        return functional.linear(functional.silu(gate) * up, self.dense.layer(layer, "ffn_down"))

    def experts(self, layer: int, h: Tensor, p: Params) -> Tensor:
        """The chosen experts' sum. The dense products are made once, each expert adds only its low-rank part."""
        n, n_expert = len(h), len(p["router"])
        logits = functional.linear(h, p["router"])
        top, chosen = logits.topk(N_USED, -1)
        weights = functional.softmax(top, -1)
        hot = functional.one_hot(chosen, n_expert).float()  # [N,K,E]
        if self.balance is not None:
            share = hot.sum(1).mean(0) * functional.softmax(logits, -1).mean(0)
            self.balance.append(n_expert / N_USED * share.sum())
        if self.probe is not None:
            self.probe(layer, logits, chosen)
        gate, up = functional.linear(h, self.gate_up[layer]).chunk(2, -1)
        low_gate = functional.linear(h, p["in_a"][0]).view(n, n_expert, -1)
        low_up = functional.linear(h, p["in_a"][1]).view(n, n_expert, -1)
        acts, lows = torch.zeros_like(gate), torch.zeros(n, len(p["down_a"]))
        for k in range(N_USED):
            mask, weight = hot[:, k, :, None], weights[:, k, None]
            act = functional.silu(torch.addmm(gate, (low_gate * mask).flatten(1), p["in_b"][0]))
            act = act * torch.addmm(up, (low_up * mask).flatten(1), p["in_b"][1])
            low = functional.linear(act, p["down_a"]).view(n, n_expert, -1) * mask
            lows = lows + low.flatten(1) * weight
            acts = acts + act * weight
        return torch.addmm(functional.linear(acts, self.dense.layer(layer, "ffn_down")), lows, p["down_b"])

    def hidden(self, ids: Tensor, tap: Callable[[int, Tensor, Tensor], None] | None = None) -> Tensor:
        """ids [B,T] → normed last hidden states [B,T,D]. tap: gets (layer, attention output, FFN input [N,D])."""
        x = self.dense.weights["token_embd.weight"][ids]
        for layer in range(self.shape.n_layer):
            x = self.attention(layer, x)
            h = self.norm(x, self.dense.layer(layer, "ffn_norm")).flatten(0, 1)
            if tap is not None:
                tap(layer, x, h)
            x = x + self.ffn(layer, h).view_as(x)
        return self.norm(x, self.dense.weights["output_norm.weight"])

    def head(self, h: Tensor) -> Tensor:
        """h [...,D] → logits [...,V]."""
        return functional.linear(h, self.dense.weights["token_embd.weight"])
