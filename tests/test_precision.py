"""Mixed precision: what the probe sees, calibration and its files, layer errors against whole files."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import SHARED, shared_or_skip

import les
from les._core import GgufFile, qtype_info
from les.eval.tokens import Reference, Windows, compare
from les.pack.gguf_writer import TensorEntry, align_up, encode_header
from les.precision import PrecisionPlan, calibration, requantize
from les.precision.calibration import (
    Calibration,
    LayerMoments,
    calibrate,
    check_calibration,
    load_calibration,
    save_calibration,
)
from les.precision.compare import is_favoured, recipe_types, sample_changes, spearman, uniform_types
from les.precision.imatrix import fit_shapes, load_any
from les.precision.layer_error import LayerSample, layer_changes, run_expert
from les.precision.pipeline import Target, parse_shrink, plan_for, shapes_of
from les.precision.plan import expert_bytes, mean_bits
from les.precision.sensitivity import (
    Score,
    Sensitivities,
    candidates_of,
    disturbed_kl,
    load_sensitivities,
    measure,
    read_expert,
    sample_layers,
)
from les.precision.writer import open_source

WINDOWS: Windows = [list(range(3, 43)), list(range(60, 20, -1)), [5, 9, 17, 33] * 10]
# One of each activation, gate, bias and scale that the engine knows.
FAMILIES = [
    "qwen3moe",
    "gpt-oss",
    "smallthinker",
    "phimoe",
    "llama-mixtral",
    "granitemoe",
    "bailingmoe2",
    "qwen35moe",
    "deepseek",
]


N_LAYERS = 3


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A golden model with rows of 256 and one layer, that layer three times over, its experts in another order each
    time."""
    source = shared_or_skip("goldens", "qwen3moe-256-q8_0", "model.gguf")
    gguf, data = GgufFile(str(source)), source.read_bytes()
    assert [x.layer for x in gguf.expert_layers] == [0]
    entries, body = [], bytearray()
    for layer in range(-1, N_LAYERS):
        for t in gguf.tensors:
            if t.name.startswith("blk.") != (layer >= 0):
                continue
            raw = data[t.offset_bytes : t.offset_bytes + t.size_bytes]
            if "_exps" in t.name:
                size = t.size_bytes // t.shape[2]
                raw = raw[layer * size :] + raw[: layer * size]
            name = t.name.replace("blk.0.", f"blk.{layer}.")
            entries.append(TensorEntry(name, qtype_info(t.type)[0], tuple(t.shape), len(body), t.size_bytes))
            body += raw + bytes(align_up(len(raw), 32) - len(raw))
    keys = [
        (k, gguf.metadata_types[k], N_LAYERS if k.endswith(".block_count") else v) for k, v in gguf.metadata.items()
    ]
    path = tmp_path_factory.mktemp("wide") / "model.gguf"
    path.write_bytes(encode_header(keys, entries, 32) + bytes(body))
    return path


def loaded(path: Path, **options: Any) -> les.Model:
    return les.load(path, context=64, **{"compute": "f32", **options})


def experts_of(path: Path, layer_idx: int) -> tuple[Any, list[Any]]:
    source = open_source(path)
    from les.pack.files import ShardReader

    layer = source.expert_layers[layer_idx]
    with ShardReader(source.shards) as reader:
        return layer, [read_expert(source, reader, layer, e) for e in range(layer.n_expert)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_layer_arithmetic_is_the_engines(family: str) -> None:
    path = shared_or_skip("goldens", family, "model.gguf")
    with loaded(path) as model:
        samples = sample_layers(model, WINDOWS, model.moe_layers)
        layers = [x.layer for x in open_source(path).expert_layers]
    for i, number in enumerate(layers):
        sample = samples[number]
        assert sample.x.shape == sample.y.shape and sample.x.shape[0] == sum(map(len, WINDOWS))
        _, experts = experts_of(path, i)
        y = np.zeros_like(sample.y)
        for e, weights in enumerate(experts):
            done = run_expert(sample, e, weights)
            if done is not None:
                y[done.rows] += done.w * done.out
        assert np.abs(y - sample.y).max() <= 2e-5 * max(1.0, np.abs(sample.y).max())


def test_moments_are_those_of_the_samples(wide: Path) -> None:
    with loaded(wide) as model:
        core = model._core
        layers = model.moe_layers
        core.start_probe({"moments": True, "sample_layers": layers, "max_samples": 1000})
        with model.session() as session:
            for window in WINDOWS:
                session.rewind(0)
                session.eval(window)
        rows = core.stop_probe()
        assert core.stop_probe() == []
    for i, row in enumerate(rows):
        sample = LayerSample.from_probe(row)
        _, experts = experts_of(wide, i)
        assert row["uses"].sum() == sample.chosen.size
        for e, weights in enumerate(experts):
            done = run_expert(sample, e, weights)
            if done is None:
                assert row["uses"][e] == 0 and row["in_sq"][e].sum() == 0
                continue
            w2 = done.w.astype(np.float64) ** 2
            assert row["uses"][e] == done.rows.size
            assert row["weight"][e] == pytest.approx(done.w.sum(), rel=1e-5)
            assert row["weight_sq"][e] == pytest.approx(w2.sum(), rel=1e-5)
            assert row["in_sq"][e] == pytest.approx((w2 * done.x**2).sum(axis=0), rel=1e-4)
            assert row["mid_sq"][e] == pytest.approx((w2 * done.middle**2).sum(axis=0), rel=1e-3, abs=1e-12)
            assert row["out_sq"][e] == pytest.approx((w2 * done.out**2).sum(), rel=1e-3)


def test_a_probe_changes_nothing_and_counts_the_same_in_chunks_and_streamed(wide: Path) -> None:
    plain, gathered = [], []
    for chunk, memory in ((0, None), (7, None), (0, les.plan(wide, context=64)["floor_bytes"] + (32 << 10))):
        with les.load(wide, context=64, chunk=chunk, memory=memory) as model, model.session() as session:
            before = session.eval(WINDOWS[0], all_logits=True)
            session.rewind(0)
            model._core.start_probe({"moments": True})
            with_probe = session.eval(WINDOWS[0], all_logits=True)
            gathered.append(model._core.stop_probe())
            assert np.array_equal(before, with_probe)
            plain.append(before)
    for other in gathered[1:]:
        for a, b in zip(gathered[0], other, strict=True):
            assert np.array_equal(a["uses"], b["uses"])
            assert a["in_sq"] == pytest.approx(b["in_sq"], rel=1e-3)


def test_bad_probe_options(wide: Path) -> None:
    with loaded(wide) as model:
        for bad in (
            {"sample_layers": [999]},
            {"disturbed_layer": 999},
            {"nonsense": 1},
            {"moments": "x"},
            {"disturbed_layer": model.moe_layers[0], "disturbance": np.zeros(3, np.float32)},
        ):
            with pytest.raises(les.InvalidArgumentError):
                model._core.start_probe(bad)


@pytest.mark.parametrize(("name", "kind"), [("gate", "Q4_K"), ("up", "Q3_K"), ("down", "Q2_K")])
def test_a_disturbed_run_is_the_run_of_a_changed_file(wide: Path, tmp_path: Path, name: str, kind: str) -> None:
    layer, experts = experts_of(wide, 1)
    changed = requantize(wide, tmp_path / "m.les", PrecisionPlan({layer.layer: {name: kind}})).path
    with loaded(wide) as model:
        sample = sample_layers(model, WINDOWS, [layer.layer])[layer.layer]
        changes = layer_changes(sample, iter(enumerate(experts)), {name: [kind]}, lambda *_: None)
        base = Reference(model, WINDOWS)
        by_layer = disturbed_kl(model, base, layer.layer, changes[name, kind])
        assert disturbed_kl(model, base, layer.layer, np.zeros_like(sample.x)) == 0
    with base, loaded(changed) as model:
        whole = compare(base, model).kl.value
    assert whole > 1e-7
    assert by_layer == pytest.approx(whole, rel=2e-2)


def test_calibration_goes_on_after_an_interruption(wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stop(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done >= 80:
            raise Stop

    with loaded(wide) as model:
        whole = calibrate(model, WINDOWS)
        monkeypatch.setattr(calibration, "SAVE_SECONDS", 0.0)
        with pytest.raises(Stop):
            calibrate(model, WINDOWS, tmp_path / "c.npz", stop)
        half = load_calibration(tmp_path / "c.npz")
        assert not half.is_complete and 0 < half.n_tokens < whole.n_tokens
        seen: list[int] = []
        rest = calibrate(model, WINDOWS, tmp_path / "c.npz", lambda done, total: seen.append(done))
        assert len(seen) == len(WINDOWS) - half.n_windows_done
    assert rest.is_complete and rest.n_tokens == whole.n_tokens
    again = load_calibration(tmp_path / "c.npz")
    assert again.windows == WINDOWS
    for number, moments in whole.layers.items():
        assert np.array_equal(again.layers[number].uses, moments.uses)
        assert again.layers[number].mid_sq == pytest.approx(moments.mid_sq, rel=1e-12)
    assert again.fingerprint() == rest.fingerprint() != half.fingerprint()


def test_importance_leans_on_the_layer_where_an_expert_was_hardly_used() -> None:
    uses = np.array([1000.0, 0.0])
    squares = np.array([[1000.0, 4000.0], [0.0, 0.0]])
    c = Calibration({0: LayerMoments(uses, uses, uses, squares, squares, uses)})
    assert c.importance(0, "up", 0) == pytest.approx([1, 4], rel=1e-6)
    assert c.importance(0, "down", 1) == pytest.approx([1, 4], rel=1e-6)
    assert c.importance(1, "up", 0) is None


def test_bad_calibrations_are_refused(wide: Path, tmp_path: Path) -> None:
    with loaded(wide) as model:
        good = calibrate(model, WINDOWS[:1])
    shapes = shapes_of(open_source(wide))
    check_calibration(good, shapes, "c")
    with pytest.raises(les.InvalidArgumentError, match="layer"):
        check_calibration(good, {n: (e + 1, d, f) for n, (e, d, f) in shapes.items()}, "c")
    with pytest.raises(les.InvalidArgumentError, match="no experts"):
        check_calibration(good, {}, "c")
    next(iter(good.layers.values())).in_sq[0, 0] = np.nan
    with pytest.raises(les.InvalidArgumentError, match="not finite"):
        check_calibration(good, shapes, "c")
    save_calibration(good, tmp_path / "c.npz")
    data = (tmp_path / "c.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    for name in ("cut.npz", "text.npz", "other.npz"):
        with pytest.raises(les.CorruptFileError):
            load_calibration(tmp_path / name)
    with pytest.raises(les.NotFoundError):
        load_calibration(tmp_path / "none.npz")


def imatrix_gguf(path: Path, sums: dict[str, np.ndarray], counts: dict[str, np.ndarray]) -> Path:
    entries, body = [], bytearray()
    for name, values in sums.items():
        for suffix, data, shape in (
            (".in_sum2", values, values.shape[::-1]),
            (".counts", counts[name], (1, counts[name].size)),
        ):
            raw = data.astype("<f4").tobytes()
            entries.append(TensorEntry(name + suffix, 0, shape, len(body), len(raw)))
            body += raw + bytes(align_up(len(raw), 32) - len(raw))
    keys = [("general.type", ("string", None), "imatrix"), ("imatrix.chunk_count", ("u32", None), 3)]
    path.write_bytes(encode_header(keys, entries, 32) + bytes(body))
    return path


def test_importance_matrices_of_both_forms(wide: Path, tmp_path: Path) -> None:
    shapes = shapes_of(open_source(wide))
    rng = np.random.default_rng(3)
    sums, counts = {}, {}
    for number, (n, d, ff) in shapes.items():
        for name, width in (("gate", d), ("up", d), ("down", ff)):
            key = f"blk.{number}.ffn_{name}_exps.weight"
            counts[key] = rng.integers(400, 900, n).astype(np.float64)
            sums[key] = rng.gamma(1.0, size=(n, width)) * counts[key][:, None]
        counts[f"blk.{number}.ffn_down_exps.weight"] = counts[f"blk.{number}.ffn_gate_exps.weight"]
    sums["blk.0.attn_q.weight"], counts["blk.0.attn_q.weight"] = np.ones((1, 8)), np.array([5.0])
    new = fit_shapes(load_any(imatrix_gguf(tmp_path / "i.gguf", sums, counts)), shapes)
    check_calibration(new, shapes, "i")
    old_file = tmp_path / "i.dat"
    parts = [struct.pack("<i", len(sums))]
    for name, values in sums.items():
        raw = name.encode()
        flat = (values / counts[name][:, None] * 7).astype("<f4")
        parts += [struct.pack("<i", len(raw)), raw, struct.pack("<ii", 7, flat.size), flat.tobytes()]
    old_file.write_bytes(b"".join(parts))
    old = fit_shapes(load_any(old_file), shapes)
    check_calibration(old, shapes, "i")
    for number, (n, _, _) in shapes.items():
        for e in range(n):
            for slice_name in ("gate", "down"):
                key = f"blk.{number}.ffn_{slice_name}_exps.weight"
                expected = sums[key][e] / counts[key][e]
                for found in (new, old):
                    got = found.importance(number, slice_name, e)
                    assert (
                        got is not None and np.corrcoef(got, expected)[0, 1] > 0.99
                    )  # leans a little on the layer's mean
    for broken in (old_file.read_bytes()[:100], b"\xff" * 64, b""):
        (tmp_path / "b.dat").write_bytes(broken)
        with pytest.raises(les.LesError):
            load_any(tmp_path / "b.dat")


@pytest.fixture(scope="module")
def measured(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Calibration, Sensitivities, Path]:
    path = tmp_path_factory.mktemp("measured") / "s.json"
    with loaded(wide) as model:
        cal = calibrate(model, WINDOWS)
        return cal, measure(model, open_source(wide), cal, WINDOWS, path=path), path


def test_sensitivities_are_kept_and_completed(
    wide: Path, measured: tuple[Calibration, Sensitivities, Path], tmp_path: Path
) -> None:
    cal, scores, path = measured
    assert load_sensitivities(path) == scores
    source = open_source(wide)
    for layer in source.expert_layers:
        for name, kinds in candidates_of(layer).items():
            found = scores.scores[layer.layer][name]
            assert set(found) == {*kinds, layer.slices[name]["type"]}
            assert found["Q2_K"].kl > found["Q4_K"].kl > found["Q6_K"].kl > 0
    value = json.loads(path.read_text())
    lost = str(source.expert_layers[1].layer)
    del value["layers"][lost]
    half = tmp_path / "half.json"
    half.write_text(json.dumps(value))
    done: list[int] = []
    with loaded(wide) as model:
        again = measure(model, source, cal, WINDOWS, path=half, progress=lambda a, b: done.append(a))
    assert again == scores and len(done) == 2  # at the beginning, and the one that was missing
    half.write_text("{}")
    with pytest.raises(les.CorruptFileError):
        load_sensitivities(half)


def test_layers_rank_as_whole_files_do(
    wide: Path, measured: tuple[Calibration, Sensitivities, Path], tmp_path: Path
) -> None:
    cal, scores, _ = measured
    changes = sample_changes(scores, 16)
    by_layer, whole = [], []
    with loaded(wide) as model:
        base = Reference(model, WINDOWS)
    with base:
        for layer, name, kind in changes:
            path = requantize(
                wide,
                tmp_path / "m.les",
                PrecisionPlan({layer: {name: kind}}),
                importance=cal.importance,
                overwrite=True,
            ).path
            with loaded(path) as model:
                whole.append(compare(base, model).kl.value)
            by_layer.append(scores.scores[layer][name][kind].kl)
    assert spearman(by_layer, whole) >= 0.9


def test_plans_meet_their_targets(wide: Path, measured: tuple[Calibration, Sensitivities, Path]) -> None:
    _, scores, _ = measured
    source = open_source(wide)
    whole = expert_bytes(source)
    last = -1.0
    for shrink in (0.0, 0.1, 0.267, 0.4, 0.6):
        plan, choice = plan_for(source, scores, Target(shrink=shrink))
        assert expert_bytes(source, plan.types) == choice.n_bytes <= whole * (1 - shrink)
        assert choice.cost > last
        last = choice.cost
        uniform = uniform_types(source, scores, int(whole * (1 - shrink)))
        assert choice.cost <= uniform[0][0] + 1e-12  # the uniform choices are among the plan's
        for cost, types in recipe_types(source, scores, int(whole * (1 - shrink)))[:3]:
            assert expert_bytes(source, types) <= whole * (1 - shrink) and choice.cost <= cost + 1e-12
    plan, choice = plan_for(source, scores, Target(bits=4.5))
    assert mean_bits(source, plan.types) <= 4.5
    plan, choice = plan_for(source, scores, Target(max_kl=last))
    assert choice.cost <= last and choice.n_bytes <= whole * 0.4
    trunk = sum(t.size_bytes for t in source.tensors if "_exps" not in t.name)
    plan, choice = plan_for(source, scores, Target(size_bytes=trunk + whole // 2))
    assert choice.n_bytes <= whole // 2
    for bad in (
        Target(),
        Target(shrink=0.1, bits=3),
        Target(shrink=1.0),
        Target(bits=-1),
        Target(size_bytes=trunk),
        Target(shrink=0.99),
        Target(max_kl=-1),
    ):
        with pytest.raises(les.InvalidArgumentError):
            plan_for(source, scores, bad)


def test_small_functions() -> None:
    assert parse_shrink("26.7%") == pytest.approx(0.267) and parse_shrink("0.25") == 0.25
    with pytest.raises(les.InvalidArgumentError):
        parse_shrink("much")
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1) and spearman(
        [1, 2, 3], [3, 2, 1]
    ) == pytest.approx(-1)
    assert spearman([1, 1, 2], [5, 5, 6]) == pytest.approx(1)
    assert [i for i in range(32) if is_favoured(i, 32)] == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]
    scores = Sensitivities(
        "", "", 0, {0: {"up": {"A": Score(1, 1.0), "B": Score(1, 3.0)}}, 1: {"up": {"A": Score(1, 2.0)}}}
    )
    assert sample_changes(scores, 3) == [(0, "up", "A"), (1, "up", "A"), (0, "up", "B")]


def test_command_line_from_a_model_to_a_comparison(wide: Path, tmp_path: Path) -> None:
    def run(*args: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "les", *map(str, args)], capture_output=True, text=True, timeout=120, cwd=tmp_path
        )

    text = tmp_path / "text.txt"
    text.write_text("The router sends each token to the experts that it likes; the others stay on the disk. " * 20)
    cal, sens = tmp_path / "c.npz", tmp_path / "s.json"
    result = run("calibrate", wide, "--text", text, "--out", cal, "--tokens", 512, "--window", 64)
    assert result.returncode == 0, result.stderr
    assert "512 tokens" in result.stdout
    files = ("--calibration", cal, "--sensitivity", sens, "--sensitivity-tokens", 192)
    again = run("calibrate", wide, "--out", cal)
    assert again.returncode == 0 and "there already" in again.stderr and again.stdout == result.stdout
    assert "256 tokens" in run("calibrate", wide, "--text", text, "--out", cal, "--tokens", 256, "--force").stdout
    run("calibrate", wide, "--text", text, "--out", cal, "--tokens", 512, "--window", 64)
    result = run("plan-precision", wide, "--shrink", "30%", "--out", tmp_path / "plan.json", *files)
    assert result.returncode == 0, result.stderr
    assert "predicted divergence" in result.stdout
    result = run("quantize", wide, tmp_path / "a.les", "--plan", tmp_path / "plan.json", "--calibration", cal, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["shrink"] >= 0.3
    result = run("quantize", wide, tmp_path / "b.les", "--shrink", "0.3", *files, "--json")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "a.les").read_bytes() == (tmp_path / "b.les").read_bytes()
    result = run(
        "eval", "precision", wide, "--shrink", "30%", "--text", text, "--tokens", 256, "--window", 64, "--json", *files
    )
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert {"shrink", "kl_plan", "kl_uniform", "top1"} <= set(data)
    assert data["shrink"] >= 0.3 and data["kl_plan"] > 0 and data["kl_uniform"] > 0
    assert all(e["expert_bytes"] <= 0.7 * expert_bytes(open_source(wide)) for e in data["entries"])
    result = run("eval", "sensitivity", wide, "--sample", 4, "--json", *files)
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["changes"]) == 4
    for bad in (
        ["quantize", wide, "x.les", "--shrink", "30%", "--type", "Q4_K"],
        ["plan-precision", wide],
        ["plan-precision", wide, "--shrink", "x"],
        ["calibrate", wide, "--out", "/nowhere/c.npz"],
        ["calibrate", wide, "--imatrix", text],
        ["eval", "precision", wide, "--shrink", "200%"],
    ):
        result = run(*bad)
        assert (
            result.returncode == 1 and result.stderr.startswith("les: error: ") and len(result.stderr.splitlines()) == 1
        ), (bad, result.stderr)
    assert not (tmp_path / "x.les").exists()


def test_the_picture_is_drawn_from_reports(tmp_path: Path) -> None:
    def entry(name: str, kl: float) -> dict[str, Any]:
        return {"name": name, "kl": {"value": kl, "low": kl / 2, "high": kl * 2}}

    reports = [
        {"asked_shrink": s, "entries": [entry("plan", s / 100), entry("uniform", s / 50), entry("uniform", s / 60)]}
        for s in (0.3, 0.1)
    ]
    (tmp_path / "r.json").write_text(json.dumps(reports))
    tool = Path(__file__).resolve().parent.parent / "tools" / "plot_precision.py"
    subprocess.run([sys.executable, tool, tmp_path / "p.svg", tmp_path / "r.json"], check=True)
    root = ElementTree.fromstring((tmp_path / "p.svg").read_text())
    circles = [c.attrib["fill"] for c in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(circles) == 4 and len(set(circles)) == 2


def test_every_family_that_is_tested_is_there() -> None:
    if (SHARED / "goldens").exists():
        assert all((SHARED / "goldens" / family / "model.gguf").exists() for family in FAMILIES)
