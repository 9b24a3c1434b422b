"""Writing a model again with other quant types for its experts; the trunk stays byte for byte."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from les._core import ExpertLayer, GgufFile, cpu_info, dequantize, quantize, xxh3_64
from les.errors import InvalidArgumentError, UnsupportedError
from les.pack.files import Progress, ShardReader, check_equal
from les.pack.layout import LayerLayout, check_packable, plan_file
from les.pack.writer import read_record, write_packed
from les.precision.plan import PrecisionPlan, check_plan, expert_bytes
from les.precision.qtypes import PRECISE, bits_of, slices_of

# importance(layer, slice, expert) -> weight of each column [n_in], or None for equal ones.
Importance = Callable[[int, str, int], npt.NDArray[np.float32] | None]


@dataclass(frozen=True)
class QuantizeResult:
    """What was written. Expert bytes are those of whole records, padding and all."""

    path: Path
    source_expert_bytes: int
    expert_bytes: int
    file_bytes: int
    seconds: float


def open_source(path: str | Path) -> GgufFile:
    """A model with experts that can be written again. Raises UnsupportedError otherwise."""
    source = GgufFile(str(path))
    if not source.expert_layers:
        raise UnsupportedError(f"{path}: has no routed experts to quantise")
    if not source.is_packed:
        check_packable(source)
    return source


def default_threads(threads: int) -> int:
    """threads, or for 0 what the processor has to offer."""
    if threads < 0 or threads > 256:
        raise InvalidArgumentError(f"threads is {threads}; expected 0 (choose) to 256")
    return threads or int(cpu_info()["default_threads"])


def source_warnings(source: GgufFile, plan: PrecisionPlan) -> list[str]:
    """What is doubtful about a plan for this source, a line each."""
    again: set[str] = set()
    larger: set[str] = set()
    for layer in source.expert_layers:
        for name, kind in plan.types.get(layer.layer, {}).items():
            old = layer.slices[name]["type"]
            if kind == old:
                continue
            if old not in PRECISE:
                again.add(old)
            if bits_of(kind) > bits_of(old):
                larger.add(f"{old} to {kind}")
    lines = []
    if again:
        lines.append(
            f"the source's experts are quantised already ({', '.join(sorted(again))}): both errors add up; "
            "an F16 or Q8_0 source gives a better model"
        )
    if larger:
        lines.append(f"larger types bring no lost precision back ({', '.join(sorted(larger))})")
    return lines


def read_checked(
    source: GgufFile, reader: ShardReader, layer: ExpertLayer, expert: int, is_checked: bool = True
) -> bytes:
    """One slot; of a packed file its checksum is compared."""
    record = read_record(reader, layer, expert, layer.slot_bytes)
    wanted = layer.checksum(expert) if is_checked else None
    if wanted is not None:
        check_equal(f"{source.shards[0][0]}: layer {layer.layer} expert {expert}", xxh3_64(record), wanted)
    return record


def _convert(
    record: bytes, layer: ExpertLayer, planned: LayerLayout, expert: int, importance: Importance | None
) -> bytes:
    """A source's slot as a record of the planned types."""
    stored = np.frombuffer(record, np.uint8)
    out = np.zeros(planned.record_bytes, np.uint8)
    for name in slices_of(layer):
        old, new = layer.slices[name], planned.slices[name]
        data = stored[old["offset_bytes"] : old["offset_bytes"] + old["size_bytes"]]
        if new.type != old["type"]:
            weights = importance(layer.layer, name, expert) if importance is not None else None
            data = quantize(new.type, dequantize(old["type"], data, new.n_in), weights).reshape(-1)
        out[new.offset_bytes : new.offset_bytes + new.size_bytes] = data
    return out.tobytes()


def requantize(
    source: str | Path,
    target: str | Path,
    plan: PrecisionPlan,
    *,
    importance: Importance | None = None,
    threads: int = 0,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> QuantizeResult:
    """Writes source (GGUF or `.les`) as target (`.les`) with the plan's types for its experts.

    Streams: memory stays near threads + 2 experts in float. The same input and plan give the same bytes whatever the
    number of threads and the processor. The file takes its name when all of it is on disk. Doubts about the source
    are UserWarnings. Raises InvalidArgumentError for a plan or target that cannot be, CorruptFileError for a bad
    source.
    """
    gguf = open_source(source)
    check_plan(plan, gguf)
    for line in source_warnings(gguf, plan):
        warnings.warn(line, stacklevel=2)
    n_threads = default_threads(threads)
    layout = plan_file(gguf, plan.types)

    def records(reader: ShardReader, layer: ExpertLayer, planned: LayerLayout) -> Iterator[bytes]:
        waiting: deque[Future[bytes]] = deque()
        for expert in range(planned.n_expert):
            record = read_checked(gguf, reader, layer, expert)
            waiting.append(pool.submit(_convert, record, layer, planned, expert, importance))
            if len(waiting) > n_threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    with ThreadPoolExecutor(n_threads, thread_name_prefix="les-quantize") as pool:
        try:
            result = write_packed(gguf, layout, Path(target), records, progress=progress, overwrite=overwrite)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    before = expert_bytes(gguf)
    after = sum(layer.record_bytes * layer.n_expert for layer in layout.layers)
    return QuantizeResult(result.path, before, after, result.packed_bytes, result.seconds)
