"""Training and held-out chunks: documents, and conversations by the dense model, cut to one length."""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path

import numpy as np
import numpy.typing as npt

from demo_training.documents import SOURCES, Document
from demo_training.model import Net
from demo_training.sampling import Tokenizer, generate

OWN = ("chat", "story")  # written by the dense model: trained by KL to it
KINDS = (*OWN, *SOURCES)
N_TRAIN, N_HELD_OUT = 1200, 24  # chunks of a kind at most

Chunks = list[list[int]]


def is_held_out(name: str) -> bool:
    """About 9 % of the documents, by their names."""
    return hashlib.sha1(name.encode()).digest()[0] < 24


def pack(conversations: Chunks, separator: list[int], n_chunk: int) -> Chunks:
    """Conversations end to end, cut into chunks of n_chunk tokens; the rest is dropped."""
    ids = [token for conversation in conversations for token in conversation + separator]
    return [ids[i : i + n_chunk] for i in range(0, len(ids) - n_chunk + 1, n_chunk)]


def cut(ids: list[int], n_chunk: int, n_max: int, r: random.Random) -> Chunks:
    """At most n_max chunks of a document, at random places on a grid of n_chunk tokens."""
    n = len(ids) // n_chunk
    return [ids[i * n_chunk : (i + 1) * n_chunk] for i in r.sample(range(n), min(n, n_max))]


def split_documents(
    documents: list[Document], tokenizer: Tokenizer, n_chunk: int, r: random.Random
) -> dict[str, Chunks]:
    parts: dict[str, Chunks] = {"train": [], "val": []}
    for name, text in documents:
        side, n_max = ("val", 2) if is_held_out(name) else ("train", 4)
        parts[side] += cut(tokenizer.encode(text), n_chunk, n_max, r)
    return parts


def split_conversations(path: Path, tokenizer: Tokenizer, n_chunk: int) -> dict[str, Chunks]:
    """The first seventh of the conversations is held out, at least one."""
    with path.open(encoding="utf-8") as lines:
        conversations = [json.loads(line)["ids"] for line in lines]
    n = max(1, len(conversations) // 7)
    newline = tokenizer.encode("\n")
    return {
        "val": pack(conversations[:n], newline, n_chunk),
        "train": pack(conversations[n:], newline, n_chunk),
    }


def make_data(net: Net, tokenizer: Tokenizer, folder: Path, n_chunk: int, n_sampled: int, kinds: list[str]) -> None:
    """Writes folder/data.npz: train_KIND and val_KIND [chunks, n_chunk] uint16.

    net: the dense model. n_sampled: tokens of chat to sample from it; half as many of stories. Sampled conversations
    stay in folder and are used again. Raises ValueError where a kind gives no chunks.
    """
    r = random.Random(1)
    arrays: dict[str, npt.NDArray[np.uint16]] = {}
    for kind in kinds:
        if kind in OWN:
            path = folder / f"sampled_{kind}.jsonl"
            if not path.exists():
                n_tokens, seed = (n_sampled, 12) if kind == "chat" else (n_sampled // 2, 11)
                generate(net, tokenizer, kind, n_tokens, seed, path)
            parts = split_conversations(path, tokenizer, n_chunk)
        else:
            parts = split_documents(SOURCES[kind](random.Random(0)), tokenizer, n_chunk, r)
        for side, chunks in parts.items():
            if not chunks:
                raise ValueError(f"{kind}: no {side} chunks of {n_chunk} tokens; sample more or leave the kind out")
            r.shuffle(chunks)
            arrays[f"{side}_{kind}"] = np.array(chunks[: N_TRAIN if side == "train" else N_HELD_OUT], np.uint16)
            print(f"{kind}: {len(arrays[f'{side}_{kind}'])} chunks to {side}", flush=True)
    partial = folder / "data.npz.partial"
    with partial.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    os.replace(partial, folder / "data.npz")


def load_chunks(folder: Path, side: str) -> dict[str, npt.NDArray[np.int64]]:
    """kind → [chunks, n_chunk]; side: train or val. Raises ValueError before `data` has run."""
    path = folder / "data.npz"
    if not path.exists():
        raise ValueError(f"{path} is not there: run `data` first")
    with np.load(path) as arrays:
        kinds = [kind for kind in KINDS if f"{side}_{kind}" in arrays]
        return {kind: arrays[f"{side}_{kind}"].astype(np.int64) for kind in kinds}
