"""Text sampled from the dense model: many conversations at once, one token of each per step."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from demo_training.model import Net
from demo_training.prompts import chat_text, make_prompts

TOP_K = 40
N_CONTEXT = 512


class Tokenizer(Protocol):
    """What is used of les.Tokenizer."""

    def encode(self, text: str, markup: bool = False, special: bool = False) -> list[int]: ...

    def is_eog(self, token: int) -> bool: ...


@dataclass
class Slot:
    """One conversation: its tokens so far, how many are in the cache, and its temperature."""

    ids: list[int]
    n_prompt: int
    temperature: float
    n_done: int = field(default=0)


class Batch:
    """A key-value cache [layer][B,KV,T,head_dim] for n conversations, each at its own position."""

    def __init__(self, net: Net, n: int) -> None:
        shape = net.shape
        self.net = net
        sizes = (shape.n_layer, n, shape.n_kv, N_CONTEXT, shape.head_dim)
        self.k, self.v = torch.zeros(sizes), torch.zeros(sizes)

    def step(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids [B] at positions [B] → logits [B,V]."""
        net, rows, end = self.net, torch.arange(len(ids)), int(positions.max()) + 1
        mask = (torch.arange(end) <= positions[:, None])[:, None, None]  # [B,1,1,S]
        x = net.dense.weights["token_embd.weight"][ids][:, None]
        for layer in range(net.shape.n_layer):
            q, k, v = net.split_heads(layer, x)
            at = positions[:, None, None]
            self.k[layer, rows, :, positions] = net.rope(k, at)[:, :, 0]
            self.v[layer, rows, :, positions] = v[:, :, 0]
            x = x + net.attend(layer, net.rope(q, at), self.k[layer, :, :, :end], self.v[layer, :, :, :end], mask)
            x = x + net.ffn(layer, net.norm(x[:, 0], net.dense.layer(layer, "ffn_norm")))[:, None]
        return net.head(net.norm(x[:, 0], net.dense.weights["output_norm.weight"]))


def pick(logits: Tensor, temperature: float, rng: np.random.Generator) -> int:
    """A token from the TOP_K likeliest."""
    top, ids = logits.topk(min(TOP_K, len(logits)))
    p = torch.softmax(top.double() / temperature, -1).numpy()
    return int(ids[rng.choice(len(p), p=p / p.sum())])


@torch.no_grad()
def generate(
    net: Net,
    tokenizer: Tokenizer,
    kind: str,
    n_tokens: int,
    seed: int,
    out: Path,
    n_parallel: int = 32,
    n_new: int = 240,
) -> None:
    """Writes conversations of a kind, one {"ids": [...]} a line, until they hold n_tokens tokens."""
    rng = np.random.default_rng(seed)
    prompts = iter(make_prompts(kind, max(64, n_tokens), seed))
    batch, started, n_written, n_shown = Batch(net, n_parallel), time.monotonic(), 0, 0

    def new_slot() -> Slot:
        ids = tokenizer.encode(chat_text(next(prompts)), markup=True, special=False)[: N_CONTEXT - n_new]
        return Slot(ids, len(ids), float(rng.uniform(0.6, 0.9)))

    slots = [new_slot() for _ in range(n_parallel)]
    partial = out.with_name(out.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        while n_written < n_tokens:
            ids = torch.tensor([slot.ids[slot.n_done] for slot in slots])
            logits = batch.step(ids, torch.tensor([slot.n_done for slot in slots]))
            for i, slot in enumerate(slots):
                slot.n_done += 1
                if slot.n_done < len(slot.ids):
                    continue
                slot.ids.append(pick(logits[i], slot.temperature, rng))
                if tokenizer.is_eog(slot.ids[-1]) or len(slot.ids) - slot.n_prompt >= n_new:
                    file.write(json.dumps({"ids": slot.ids}) + "\n")
                    n_written += len(slot.ids)
                    slots[i] = new_slot()
            if n_written - n_shown >= 4000:
                n_shown = n_written
                rate = n_written / (time.monotonic() - started)
                print(f"{kind}: {n_written} of {n_tokens} tokens, {rate:.0f} tok/s", flush=True)
    partial.replace(out)
