"""Writing models with other expert types: plans, bytes, determinism, bad input, and what an interruption leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import les
from les._core import GgufFile, dequantize, qtype_info, quantize
from les.pack import pack, unpack, verify
from les.pack.gguf_writer import TensorEntry, encode_header
from les.precision import PrecisionPlan, load_plan, requantize, save_plan
from les.precision.plan import plan_from_json, uniform_plan
from les.precision.qtypes import WRITABLE, bits_of
from les.precision.writer import source_warnings
from conftest import shared_or_skip


@pytest.fixture(scope="module")
def wide() -> Path:
    """A tiny model whose rows are whole K blocks, experts in Q8_0."""
    return shared_or_skip("goldens", "qwen3moe-256-q8_0", "model.gguf")


def experts_of(path: Path) -> dict[tuple[int, int, str], tuple[str, bytes]]:
    gguf, data = GgufFile(str(path)), path.read_bytes()
    result = {}
    for layer in gguf.expert_layers:
        for expert in range(layer.n_expert):
            slot = bytearray(layer.slot_bytes)
            for _, offset, size, at in layer.extents(expert):
                slot[at : at + size] = data[offset : offset + size]
            for name, s in layer.slices.items():
                result[layer.layer, expert, name] = (
                    s["type"],
                    bytes(slot[s["offset_bytes"] : s["offset_bytes"] + s["size_bytes"]]),
                )
    return result


def test_the_list_of_types_is_what_the_quantizers_write() -> None:
    row = np.linspace(-1, 1, 256, dtype=np.float32)[None]
    for name in WRITABLE:
        assert quantize(name, row).size == 256 * bits_of(name) / 8
    for name in ("Q8_K", "IQ2_XXS", "IQ1_S", "TQ1_0", "Q8_1"):
        try:
            qtype_info(name)
        except les.LesError:
            continue
        with pytest.raises(les.LesError):
            quantize(name, row)


def test_each_slice_gets_its_type_and_the_trunk_stays(wide: Path, tmp_path: Path) -> None:
    layers = [layer.layer for layer in GgufFile(str(wide)).expert_layers]
    plan = PrecisionPlan({layers[0]: {"gate": "Q4_K", "down": "Q6_K"}, layers[-1]: {"up": "Q2_K"}})
    result = requantize(wide, tmp_path / "m.les", plan)
    assert verify(result.path).is_checked
    before, after = experts_of(wide), experts_of(result.path)
    n_in = {(x.layer, n): s["n_in"] for x in GgufFile(str(wide)).expert_layers for n, s in x.slices.items()}
    assert before.keys() == after.keys()
    for key, (old_type, old) in before.items():
        layer, _, name = key
        wanted = plan.types.get(layer, {}).get(name, old_type)
        data = np.frombuffer(old, np.uint8)
        expected = (
            old if wanted == old_type else quantize(wanted, dequantize(old_type, data, n_in[layer, name])).tobytes()
        )
        assert after[key] == (wanted, expected), key
    a, b = GgufFile(str(wide)), GgufFile(str(result.path))
    bytes_a, bytes_b = wide.read_bytes(), result.path.read_bytes()
    trunk = {
        t.name: bytes_b[t.offset_bytes : t.offset_bytes + t.size_bytes]
        for t in b.tensors
        if not t.name.endswith(".experts")
    }
    for t in a.tensors:
        if "_exps" not in t.name:
            assert trunk.pop(t.name) == bytes_a[t.offset_bytes : t.offset_bytes + t.size_bytes]
    assert not trunk
    assert result.expert_bytes == sum(x.slot_bytes * x.n_expert for x in b.expert_layers)


def test_the_same_bytes_from_plain_and_packed_and_for_any_number_of_threads(wide: Path, tmp_path: Path) -> None:
    packed = pack(wide, tmp_path / "p.les").path
    plan = uniform_plan(GgufFile(str(wide)), {"gate": "Q4_K", "up": "IQ4_XS", "down": "Q5_K"})
    files = [
        requantize(s, tmp_path / f"{i}.les", plan, threads=t).path
        for i, (s, t) in enumerate([(wide, 1), (wide, 3), (packed, 2)])
    ]
    assert files[0].read_bytes() == files[1].read_bytes() == files[2].read_bytes()


def test_no_change_is_packing(wide: Path, tmp_path: Path) -> None:
    packed = pack(wide, tmp_path / "p.les").path
    assert requantize(packed, tmp_path / "q.les", PrecisionPlan({})).path.read_bytes() == packed.read_bytes()
    back = unpack(tmp_path / "q.les", tmp_path / "back.gguf")
    assert experts_of(back) == experts_of(wide)


def test_a_mixed_file_runs_and_streams_to_the_same_tokens(wide: Path, tmp_path: Path) -> None:
    gguf = GgufFile(str(wide))
    kinds = ["Q8_0", "Q4_K", "Q2_K", "F16"]
    types = {
        x.layer: {"gate": kinds[i % 4], "up": kinds[(i + 1) % 4], "down": kinds[(i + 2) % 4]}
        for i, x in enumerate(gguf.expert_layers)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = requantize(wide, tmp_path / "m.les", PrecisionPlan(types)).path
    logits = []
    for memory in (None, les.plan(path, context=64)["floor_bytes"] + (64 << 10)):
        with les.load(path, memory=memory, context=64) as model, model.session() as session:
            logits.append(session.eval(list(range(3, 23)), all_logits=True))
    assert np.array_equal(logits[0], logits[1])


def test_halves_of_a_fused_tensor_may_differ(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    gate_up = rng.normal(size=(2, 128, 32)).astype(np.float32)  # [experts, gate rows then up rows, n_in]
    down = rng.normal(size=(2, 32, 64)).astype(np.float32)
    entries, body = [], b""
    for name, shape, data in (("gate_up", (32, 128, 2), gate_up), ("down", (64, 32, 2), down)):
        entries.append(TensorEntry(f"blk.0.ffn_{name}_exps.weight", 0, shape, len(body), data.nbytes))
        body += data.tobytes()
    source = tmp_path / "fused.gguf"
    source.write_bytes(encode_header([("general.architecture", ("string", None), "test")], entries, 32) + body)
    plan = PrecisionPlan({0: {"gate": "Q8_0", "up": "Q4_0", "down": "F16"}})
    packed = requantize(source, tmp_path / "m.les", plan).path
    found = experts_of(packed)
    for e in range(2):
        assert found[0, e, "gate"] == ("Q8_0", quantize("Q8_0", gate_up[e, :64]).tobytes())
        assert found[0, e, "up"] == ("Q4_0", quantize("Q4_0", gate_up[e, 64:]).tobytes())
        assert found[0, e, "down"] == ("F16", down[e].astype(np.float16).tobytes())
    assert experts_of(unpack(packed, tmp_path / "back.gguf")) == found
    again = requantize(packed, tmp_path / "n.les", PrecisionPlan({0: {"gate": "Q4_0"}})).path
    assert unpack(again, tmp_path / "fused-again.gguf").exists()
    assert [t.name for t in GgufFile(str(tmp_path / "fused-again.gguf")).tensors][0] == "blk.0.ffn_gate_up_exps.weight"


def test_importance_reaches_the_quantizer(wide: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weights: dict[tuple[int, str, int], np.ndarray] = {}

    def importance(layer: int, name: str, expert: int) -> np.ndarray:
        n_in = {x.layer: x for x in GgufFile(str(wide)).expert_layers}[layer].slices[name]["n_in"]
        return weights.setdefault((layer, name, expert), rng.gamma(0.3, size=n_in).astype(np.float32))

    plan = uniform_plan(GgufFile(str(wide)), {"down": "Q3_K"})
    requantize(wide, tmp_path / "m.les", plan, importance=importance, threads=1)
    before, after = experts_of(wide), experts_of(tmp_path / "m.les")
    assert {k[1] for k in weights} == {"down"}
    for (layer, name, expert), w in weights.items():
        kind, old = before[layer, expert, name]
        expected = quantize("Q3_K", dequantize(kind, np.frombuffer(old, np.uint8), w.size), w).tobytes()
        assert after[layer, expert, name] == ("Q3_K", expected)


def test_doubtful_sources_are_named(wide: Path, tmp_path: Path) -> None:
    low = requantize(
        wide, tmp_path / "low.les", uniform_plan(GgufFile(str(wide)), {"gate": "Q4_K", "up": "Q4_K", "down": "Q4_K"})
    ).path
    with pytest.warns(UserWarning, match="quantised already"):
        requantize(low, tmp_path / "lower.les", uniform_plan(GgufFile(str(low)), {"up": "Q2_K"}))
    lines = source_warnings(
        GgufFile(str(low)), PrecisionPlan({GgufFile(str(low)).expert_layers[0].layer: {"down": "Q8_0"}})
    )
    assert any("no lost precision" in line for line in lines)


def test_rows_that_do_not_divide_are_an_error_or_the_fallback(golden_gguf: Path, tmp_path: Path) -> None:
    source = GgufFile(str(golden_gguf))
    with pytest.raises(les.InvalidArgumentError, match="no whole blocks of Q4_K .*would do: .*Q4_0"):
        uniform_plan(source, {"gate": "Q4_K"})
    plan = uniform_plan(source, {"gate": "Q4_K", "down": "Q8_0"}, "Q5_0")
    assert {t["gate"] for t in plan.types.values()} == {"Q5_0"}
    layer = source.expert_layers[0].layer
    with pytest.raises(les.InvalidArgumentError, match="no whole blocks"):
        requantize(golden_gguf, tmp_path / "m.les", PrecisionPlan({layer: {"up": "Q6_K"}}))
    with pytest.raises(les.InvalidArgumentError, match="layer 999"):
        requantize(golden_gguf, tmp_path / "m.les", PrecisionPlan({999: {"up": "Q8_0"}}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "no precision plan"),
        ({"format": "x"}, "no precision plan"),
        ({"format": "les-precision-plan", "version": 2, "layers": {}}, "version is 2"),
        ({"format": "les-precision-plan", "version": 1, "layers": {"a": {}}}, "no layer number"),
        ({"format": "les-precision-plan", "version": 1, "layers": {"01": {"up": "Q8_0"}}}, "no layer number"),
        ({"format": "les-precision-plan", "version": 1, "layers": {"1": {"sideways": "Q8_0"}}}, "layer 1"),
        ({"format": "les-precision-plan", "version": 1, "layers": {"1": {"up": "IQ1_S"}}}, "cannot be written"),
        ({"format": "les-precision-plan", "version": 1, "layers": {}, "extra": 1}, "unknown key"),
    ],
)
def test_bad_plans_are_refused(value: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(les.LesError, match=message):
        plan_from_json(value, "plan")
    (tmp_path / "plan.json").write_text(json.dumps(value)[:-1])
    with pytest.raises(les.InvalidArgumentError, match="no JSON"):
        load_plan(tmp_path / "plan.json")


def test_plans_come_back_from_their_files(tmp_path: Path) -> None:
    plan = PrecisionPlan({3: {"gate": "Q4_K"}, 0: {"up": "Q8_0", "down": "IQ3_S"}}, {"shrink": 0.25})
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan


def test_command_line(wide: Path, tmp_path: Path) -> None:
    def run(*args: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "les", "quantize", *map(str, args)], capture_output=True, text=True, timeout=120
        )

    result = run(wide, tmp_path / "m.les", "--type", "q4_k", "--down", "Q6_K", "--json")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["expert_bytes"] < data["source_expert_bytes"]
    types = {n: s["type"] for n, s in GgufFile(data["path"]).expert_layers[0].slices.items()}
    assert types == {"gate": "Q4_K", "up": "Q4_K", "down": "Q6_K"}
    for bad in (
        [wide, tmp_path / "x.les"],
        [wide, tmp_path / "m.les", "--type", "Q4_K"],
        [wide, tmp_path / "x.les", "--type", "Q9"],
        [wide, tmp_path / "x.les", "--plan", tmp_path / "none.json"],
    ):
        result = run(*bad)
        assert (
            result.returncode == 1 and result.stderr.startswith("les: error: ") and len(result.stderr.splitlines()) == 1
        ), result.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_killed_run_leaves_nothing_under_the_final_name(wide: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time, les.precision.writer as r\nconvert = r._convert\n"
        "def slow(*a):\n    time.sleep(0.2)\n    return convert(*a)\nr._convert = slow\n"
        "from les._core import GgufFile\nfrom les.precision.plan import uniform_plan\n"
        "r.requantize(sys.argv[1], sys.argv[2], uniform_plan(GgufFile(sys.argv[1]), {'up': 'Q4_K'}))\n"
    )
    target = tmp_path / "m.les"
    child = subprocess.Popen([sys.executable, "-c", code, str(wide), str(target)])
    part = tmp_path / "m.les.part"
    deadline = time.monotonic() + 60
    while not part.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert child.poll() is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not target.exists()
    requantize(wide, target, uniform_plan(GgufFile(str(wide)), {"up": "Q4_K"}))
    assert verify(target).is_checked
    assert not part.exists()
