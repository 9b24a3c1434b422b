"""The native engine: what `csrc/py` exports. Everything here takes and gives plain values and numpy arrays.

Errors are raised as subclasses of `les.errors.LesError`, chosen by the engine's status code.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__version__: str

LOG_TOKENS: int  # of a recurrent layer, that can be taken back one by one

def isa() -> str:
    """Name of the kernel table in use: "scalar", "avx2", "avxvnni", "avx512", "avx512vbmi", "neon", "neon_dotprod",
    "neon_i8mm"."""

def isas() -> list[str]:
    """Kernel tables that this build has and this processor can run, best first."""

def cpu_info() -> dict[str, Any]:
    """isas (as isas() gives them), cores, default_threads."""

def bench_decode(
    type: str, n_in: int, n_out: int, threads: int, memory_bytes: int, rounds: int, use_float: bool
) -> tuple[float, float]:
    """Bytes per second of weights when one token meets matrices [n_out, n_in] in memory, and of plain reading."""

def bench_prefill(type: str, n_in: int, n_out: int, columns: int, threads: int, rounds: int, use_float: bool) -> float:
    """Operations (two a weight and column) per second of one matrix times so many columns."""

def bench_dot_peak(threads: int, rounds: int) -> float:
    """Operations per second of integer dot products that touch no memory."""

# --- files -------------------------------------------------------------------------------------

class TensorInfo:
    name: str
    type: str  # "Q4_K"
    shape: tuple[int, ...]  # GGUF order, fastest dimension first
    file_idx: int
    offset_bytes: int
    size_bytes: int
    n_elements: int

class GgufFile:
    """Headers of a `.gguf` or `.les` file, all shards; never tensor data."""

    def __init__(self, path: str) -> None: ...
    version: int
    alignment_bytes: int
    shards: list[tuple[str, int]]  # path, size_bytes
    metadata: dict[str, Any]  # Python values; arrays as lists; file order
    metadata_types: dict[str, tuple[str, str | None]]  # key -> ("array", "string") or ("u32", None)
    tensors: list[TensorInfo]
    expert_layers: list[ExpertLayer]  # empty for dense models
    is_packed: bool

class ExpertLayer:
    layer: int
    n_expert: int
    slot_bytes: int
    # per slice "gate", "up", "down": type, n_in, n_out, row_bytes, size_bytes, offset_bytes; absent slices are missing
    slices: dict[str, dict[str, Any]]
    def extents(self, expert: int) -> list[tuple[int, int, int, int]]:
        """(file_idx, offset_bytes, size_bytes, slot_offset_bytes) of each read for one expert."""

    def checksum(self, expert: int) -> int | None: ...

def xxh3_64(data: bytes | memoryview | npt.NDArray[np.uint8]) -> int: ...
def qtype_info(name: str) -> tuple[int, int, int]:
    """(GGUF id, block_elements, block_bytes)."""

def dequantize(type: str, data: npt.NDArray[np.uint8], n_in: int) -> npt.NDArray[np.float32]:
    """Rows of n_in weights from their stored bytes, [n_rows, n_in]."""

def quantize(
    type: str, x: npt.NDArray[np.float32], importance: npt.NDArray[np.float32] | None = None, threads: int = 1
) -> npt.NDArray[np.uint8]:
    """Stored bytes of x [n_rows, n_in], [n_rows, row_bytes]; importance [n_in] weighs the squared error."""

# --- text --------------------------------------------------------------------------------------

class Tokenizer:
    @staticmethod
    def from_gguf(path: str) -> Tokenizer: ...
    def encode(self, text: str, markup: bool = False, special: bool = False) -> list[int]:
        """Token ids. markup: control tokens in the text are recognised; special: add the BOS/EOS the file asks for."""

    def decode(self, ids: Sequence[int], show_control: bool = False) -> str:
        """Text; bytes that are no UTF-8 become U+FFFD."""

    def decode_bytes(self, ids: Sequence[int], show_control: bool = False) -> bytes: ...
    def token_bytes(self, id: int, show_control: bool = False) -> bytes: ...
    def token_to_id(self, token: str) -> int | None: ...
    def id_to_token(self, id: int) -> str: ...
    def is_control(self, id: int) -> bool: ...
    def is_eog(self, id: int) -> bool: ...
    n_vocab: int
    bos: int | None
    eos: int | None
    eog: list[int]
    adds_bos: bool

class Detokenizer:
    """Streaming: never gives half a UTF-8 character."""

    def __init__(self, tokenizer: Tokenizer, show_control: bool = False) -> None: ...
    def add(self, id: int) -> str:
        """The text that became complete with this token; may be empty."""

    def finish(self) -> str:
        """What is left, invalid bytes as U+FFFD."""

# --- engine ------------------------------------------------------------------------------------

def plan_memory(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Sizes before anything is allocated. Options as for Engine. Keys: floor_bytes, recommended_bytes, budget_bytes
    (None: unlimited), trunk_bytes, expert_bytes (all experts), cache_bytes, n_slots, slot_bytes, n_experts_total,
    experts_per_token, kv_bytes, state_bytes, scratch_bytes, reader_bytes, tokenizer_bytes, total_bytes, context,
    fits (bool), message."""

def bound_tensors(path: str) -> list[str]:
    """Names of the tensors that the model's family uses, routed experts and rows of the embedding aside. Reads headers
    only; a family, key or tensor that does not fit is an error as it is for Engine."""

class Engine:
    """A loaded model: weights, expert cache, reader, threads. Options (all optional):

    memory_bytes: int | None   the whole process's budget; None: as much as the model needs, within what the machine has
    threads: int               0: big cores
    context: int               tokens of KV cache; 0: the model's, at most 4096
    kv_type: "f16" | "f32" | "q8_0"
    chunk: int                 prefill chunk in tokens, 0: default
    reader: "auto" | "pread" | "uring"
    lanes: int                 concurrent reads, 0: default
    direct: bool               try direct I/O (default True)
    flash: str | None          simulated flash: "ufs4", "nvme", "emmc" or "GB/s,lanes,µs"
    verify: bool               check each record's checksum when first read (default True)
    prefetch: "auto" | "off" | "on"
    policy: "shares" | "lru" | "lfu"   whom the expert cache gives up
    fault: str | None          injected read faults, for tests: "KIND,N"
    compute: "int8" | "f32"    activations rounded to 8 bits for integer dot products, or kept
    log: Callable[[str], None] | None
    """

    def __init__(self, path: str, options: dict[str, Any], progress: Callable[[int, int], None] | None = None) -> None:
        """progress(done_bytes, total_bytes) is called while the trunk loads."""

    tokenizer: Tokenizer
    plan: dict[str, Any]  # as plan_memory gave it
    architecture: str
    n_vocab: int
    n_layers: int
    context: int
    moe_layers: list[int]
    n_experts: int
    n_experts_used: int
    metadata: dict[str, Any]
    threads: int
    def session(self) -> Session: ...
    def open_drafter(self, path: str) -> Drafter: ...
    def stats(self) -> dict[str, Any]:
        """Totals since load or reset_stats: n_tokens, n_steps, prefill_tokens, decode_tokens, prefill_ns, decode_ns,
        hit, miss, late, evicted, predicted (of chosen: experts that were guessed before they were chosen), chosen,
        flash_bytes, stall_ns, guessed_bytes, useful_bytes, late_bytes, wasted_bytes, cancelled, read_errors,
        read_retries, reader (name), read_busy_ns, device_bytes, direct_reads, buffered_reads, cache_slots, cache_bytes,
        scratch_bytes, peak_bytes, layers (list of dicts with layer, hit, miss, late, stall_ns, predicted, chosen)."""

    def reset_stats(self) -> None: ...
    def set_memory(self, memory_bytes: int | None) -> None: ...
    def start_probe(self, options: dict[str, Any]) -> None:
        """Measures the routed experts from now on. Options: moments (bool), sample_layers (list of layers),
        max_samples (tokens kept of each), disturbed_layer and disturbance [n, d_in] (added to that layer's sum of
        experts, a row for each token in order)."""

    def stop_probe(self) -> list[dict[str, Any]]:
        """What was gathered, by layer: layer, n_expert, act, gate_bias, up_bias, down_bias (flat, empty: none); by
        expert uses, weight, weight_sq (sums of routing weights w and of w^2), in_sq [n_expert, d_in] and mid_sq
        [n_expert, ff] (sums of w^2 x^2 of what gate and up, and down, read), out_sq; of sampled tokens x and y [n,
        d_in], chosen and weights [n, n_used]."""

    def close(self) -> None:
        """Frees everything; later calls raise. Safe to call twice."""

class Drafter:
    """A draft model (architecture dflash) in an engine's memory."""

    block: int  # most tokens at a time
    target_layers: list[int]
    size_bytes: int

class Session:
    """One timeline of tokens. Sessions of one engine take turns; calls release the GIL."""

    position: int  # tokens in the state
    tokens: list[int]
    def eval(self, tokens: Sequence[int], all_logits: bool = False) -> npt.NDArray[np.float32]:
        """Runs tokens through the model; logits [n or 1, n_vocab] after each or after the last."""

    def routing(self) -> npt.NDArray[np.int32]:
        """[MoE layers, n, k]: experts chosen in the last eval, highest selection score first."""

    def rewind(self, n: int) -> None:
        """Keep the first n tokens."""

    def attach_drafter(self, drafter: Drafter) -> None: ...
    drafter_rows: int  # tokens, from the first on, that the attached drafter has seen
    def draft(self, anchor: int, n_tokens: int, trace: bool = False) -> dict[str, Any]:
        """tokens and confidences (or None) after all tokens and the anchor; with trace also hidden, base_logits and
        logits of every slot, flat."""

    def cancel(self) -> None:
        """From another thread: makes a running eval stop with CancelledError, also one that waits for a read. The
        session keeps its state."""

    def save(self, path: str) -> None: ...
    def load(self, path: str) -> None: ...
    def close(self) -> None: ...
