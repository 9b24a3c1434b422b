"""The recipe file: what les.models.demo.Recipe reads. Trained factors to int8 rows, and back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from demo_training.model import Params

Floats = npt.NDArray[np.float32]


def quantise_rows(x: Floats) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """x [..., n] → int8 [..., n] and one float16 scale a row [...]."""
    scales = np.maximum(np.abs(x).max(-1, keepdims=True) / 127, 1e-7).astype(np.float16)
    rows = np.clip(np.rint(x / scales.astype(np.float32)), -127, 127).astype(np.int8)
    return rows, scales[..., 0]


def dequantise_rows(rows: npt.NDArray[np.int8], scales: npt.NDArray[np.float16]) -> Floats:
    return rows.astype(np.float32) * scales.astype(np.float32)[..., None]


def balance_factors(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """a [n,r,in], b [n,r,out] → factors of the same products b^T a, whose rows carry the same scale, largest first.

    The rows of a trained pair may differ in size by orders of magnitude; the singular vectors, each with the root of
    its singular value, lose least in int8.
    """
    new_a, new_b = np.empty_like(a), np.empty_like(b)
    for i in range(len(a)):
        q_a, r_a = np.linalg.qr(a[i].T)
        q_b, r_b = np.linalg.qr(b[i].T)
        u, s, v = np.linalg.svd(r_b @ r_a.T)
        new_a[i] = (q_a @ v.T * np.sqrt(s)).T
        new_b[i] = (q_b @ u * np.sqrt(s)).T
    return new_a, new_b


def recipe_arrays(params: list[Params]) -> dict[str, npt.NDArray[np.generic]]:
    """router [L,E,D] float16; of gate, up, down: _a [L*E,r,in], _b [L*E,r,out] int8, _as, _bs [L*E,r] float16."""
    n_expert = len(params[0]["router"])

    def stacked(name: str, index: int | None = None) -> Floats:
        parts = [p[name].detach().numpy() if index is None else p[name][index].detach().numpy() for p in params]
        return np.concatenate([part.reshape(n_expert, -1, part.shape[-1]) for part in parts])

    arrays: dict[str, npt.NDArray[np.generic]] = {
        "router": np.stack([p["router"].detach().numpy() for p in params]).astype(np.float16)
    }
    factors = {
        "gate": (stacked("in_a", 0), stacked("in_b", 0)),
        "up": (stacked("in_a", 1), stacked("in_b", 1)),
        "down": (stacked("down_a"), stacked("down_b")),
    }
    for part, (a, b) in factors.items():
        a, b = balance_factors(a, b)
        arrays[f"{part}_a"], arrays[f"{part}_as"] = quantise_rows(a)
        arrays[f"{part}_b"], arrays[f"{part}_bs"] = quantise_rows(b)
    return arrays


def save_recipe(params: list[Params], path: Path) -> None:
    """Writes the recipe beside its place and moves it there when complete."""
    arrays = recipe_arrays(params)
    for name, x in arrays.items():
        if not np.isfinite(x.astype(np.float32)).all():
            raise ValueError(f"{name} does not fit: the training has diverged")
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    os.replace(partial, path)


def load_recipe(path: Path) -> list[Params]:
    """The parameters of model.Net from a recipe."""
    with np.load(path) as arrays:
        router = torch.from_numpy(arrays["router"].astype(np.float32))
        n_layer = len(router)
        factors = {}
        for name in [f"{part}_{factor}" for part in ("gate", "up", "down") for factor in "ab"]:
            rows = dequantise_rows(arrays[name], arrays[name + "s"])
            factors[name] = torch.from_numpy(rows.reshape(n_layer, -1, rows.shape[-1]))
    return [
        {
            "router": router[i],
            "in_a": torch.stack([factors["gate_a"][i], factors["up_a"][i]]),
            "in_b": torch.stack([factors["gate_b"][i], factors["up_b"][i]]),
            "down_a": factors["down_a"][i],
            "down_b": factors["down_b"][i],
        }
        for i in range(n_layer)
    ]
