"""gemma4 in numpy, double precision, straight from a file of float weights: what the engine is compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGUFReader

Array = np.ndarray
Activation = Callable[[Array], Array]


def gelu(x: Array) -> Array:
    """The tanh form of GELU, exact."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_by_half_table(x: Array) -> Array:
    """The same looked up in a table from half precision to half precision, as the recorded values were made."""
    table = gelu(x.astype(np.float16).astype(np.float64)).astype(np.float16).astype(np.float64)
    return np.where(x <= -10, 0, np.where(x >= 10, x, table))


def rms_norm(x: Array, weight: Array | float, eps: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def rope(x: Array, base: float, factors: Array | float) -> Array:
    """Turns x [tokens, heads, dim], NeoX pairs; factors [dim / 2] divide the frequencies."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[0])[:, None] * (base ** (-np.arange(half) / half) / factors)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


class Gemma4:
    def __init__(self, path: Path, act: Activation = gelu) -> None:
        reader = GGUFReader(path)
        self.act = act
        self.keys = {name.removeprefix("gemma4."): field.contents() for name, field in reader.fields.items()}
        self.weights = {t.name: np.asarray(t.data, np.float64) for t in reader.tensors}
        self.eps = float(self.keys["attention.layer_norm_rms_epsilon"])

    def logits(self, tokens: list[int]) -> tuple[Array, Array]:
        """Logits [tokens, vocabulary] and the experts chosen [layers, tokens, used], best first (dense: none)."""
        w = self.weights
        x = w["token_embd.weight"][tokens] * np.sqrt(w["token_embd.weight"].shape[1])
        chosen = []
        for layer in range(self.keys["block_count"]):
            mine = f"blk.{layer}."
            block = {k.removeprefix(mine).removesuffix(".weight"): v for k, v in w.items() if k.startswith(mine)}
            mixed = self._attention(layer, block, rms_norm(x, block["attn_norm"], self.eps))
            x = x + rms_norm(mixed, block["post_attention_norm"], self.eps)
            h = rms_norm(x, block["ffn_norm"], self.eps)
            dense = self._network(h, block["ffn_gate"], block["ffn_up"], block["ffn_down"])
            if "ffn_gate_inp" in block:
                routed, experts = self._experts(block, x)
                chosen.append(experts)
                dense = rms_norm(dense, block["post_ffw_norm_1"], self.eps)
                dense += rms_norm(routed, block["post_ffw_norm_2"], self.eps)
            x = (x + rms_norm(dense, block["post_ffw_norm"], self.eps)) * block["layer_output_scale"]
        cap = self.keys["final_logit_softcapping"]
        raw = rms_norm(x, w["output_norm.weight"], self.eps) @ w["token_embd.weight"].T
        return cap * np.tanh(raw / cap), np.array(chosen)

    def _attention(self, layer: int, block: dict[str, Array], h: Array) -> Array:
        keys, n = self.keys, len(h)
        has_window = keys["attention.sliding_window_pattern"][layer]
        dim = keys["attention.key_length_swa" if has_window else "attention.key_length"]
        base = keys["rope.freq_base_swa" if has_window else "rope.freq_base"]
        factors = 1.0 if has_window else self.weights["rope_freqs.weight"]
        q = (h @ block["attn_q"].T).reshape(n, -1, dim)
        k = (h @ block["attn_k"].T).reshape(n, -1, dim)
        v = (h @ block["attn_v"].T).reshape(n, -1, dim) if "attn_v" in block else k
        q = rope(rms_norm(q, block["attn_q_norm"], self.eps), base, factors)
        k = rope(rms_norm(k, block["attn_k_norm"], self.eps), base, factors)
        v = rms_norm(v, 1.0, self.eps)
        group = q.shape[1] // k.shape[1]
        scores = np.einsum("thd,shd->hts", q, np.repeat(k, group, axis=1))
        distance = np.arange(n)[:, None] - np.arange(n)[None]
        is_seen = (distance >= 0) & ((distance < keys["attention.sliding_window"]) | (not has_window))
        weights = softmax(np.where(is_seen, scores, -np.inf))
        return np.einsum("hts,shd->thd", weights, np.repeat(v, group, axis=1)).reshape(n, -1) @ block["attn_output"].T

    def _network(self, h: Array, gate: Array, up: Array, down: Array) -> Array:
        return (self.act(h @ gate.T) * (h @ up.T)) @ down.T

    def _experts(self, block: dict[str, Array], x: Array) -> tuple[Array, Array]:
        scaled = rms_norm(x, block["ffn_gate_inp.scale"], self.eps) / np.sqrt(x.shape[1])
        scores = softmax(scaled @ block["ffn_gate_inp"].T)
        chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : self.keys["expert_used_count"]]
        h = rms_norm(x, block["pre_ffw_norm_2"], self.eps)
        out = np.zeros_like(x)
        for t, experts in enumerate(chosen):
            weights = scores[t, experts] / scores[t, experts].sum() * block["ffn_down_exps.scale"][experts]
            for expert, weight in zip(experts, weights, strict=True):
                gate, up = np.split(block["ffn_gate_up_exps"][expert], 2)
                out[t] += weight * self._network(h[t], gate, up, block["ffn_down_exps"][expert])
        return out, chosen
