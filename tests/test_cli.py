"""The command line, run as a person would: processes, exit codes, one-line errors, and a chat in a pseudo-terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest


def run(
    *args: str | Path, stdin: str | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "les", *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
    )


COMMANDS = [
    "chat",
    "generate",
    "pull",
    "list",
    "rm",
    "pack",
    "unpack",
    "verify",
    "info",
    "plan",
    "bench",
    "quantize",
    "eval",
    "calibrate",
    "plan-precision",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.returncode == 0
    assert "example" in result.stdout


def test_text_alone_on_stdout_and_statistics_on_stderr(packed: Path) -> None:
    args = ("generate", packed, "the router", "--temperature", "0", "--max-tokens", "6", "--context", "64")
    first, second = run(*args), run(*args, "--quiet")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert "tok/s" in first.stderr
    assert second.stderr == ""
    data = json.loads(run(*args, "--json").stdout)
    assert data["text"] + "\n" == first.stdout
    assert len(data["tokens"]) == data["timings"]["completion_tokens"]


def test_prompt_from_standard_input(packed: Path) -> None:
    result = run(
        "generate", packed, "-", "--temperature", "0", "--max-tokens", "3", "--context", "64", stdin="the experts"
    )
    assert result.returncode == 0, result.stderr


def test_plan_info_verify_and_bench_as_json(packed: Path) -> None:
    plan = json.loads(run("plan", packed, "--json", "--context", "64").stdout)
    assert {"floor_bytes", "recommended_bytes", "trunk_bytes", "expert_bytes", "kv_bytes"} <= set(plan)
    assert json.loads(run("info", packed, "--json").stdout)["architecture"] == "qwen3moe"
    assert json.loads(run("verify", packed, "--json").stdout)["is_checked"]
    bench = json.loads(
        run(
            "bench",
            "decode",
            packed,
            "--tokens",
            "4",
            "--prompt-tokens",
            "8",
            "--repeat",
            "1",
            "--context",
            "64",
            "--json",
        ).stdout
    )
    assert bench["tok_s"] > 0


QUICK_KERNELS = ("bench", "kernels", "--rounds", "1", "--threads", "1", "--memory", "1MiB", "--columns", "4")


def test_bench_kernels_measures_what_it_can_and_says_what_not() -> None:
    args = (*QUICK_KERNELS, "--types", "q4_0,F32,Q4_K", "--shapes", "96x16 256x16")
    figures = json.loads(run(*args, "--json").stdout)
    measured = {(row["type"], row["shape"]): row for row in figures["rows"]}
    assert set(measured) == {("Q4_0", "96x16"), ("F32", "96x16")} | {(t, "256x16") for t in ("Q4_0", "F32", "Q4_K")}
    for row in measured.values():
        assert row["decode_fraction"] == pytest.approx(row["decode_gb_s"] / row["read_gb_s"])
        assert row["prefill_gflop_s"]["4"] > 0
        assert row["prefill_fraction"]["4"] == pytest.approx(
            row["prefill_gflop_s"]["4"] / figures["dot_peak_gflop_s"], rel=1e-6
        )
    assert len(figures["skipped"]) == 1 and "96 weights" in figures["skipped"][0]
    table = run(*args, env={"LES_FORCE_ISA": "scalar"})
    assert table.stdout.startswith("scalar, 1 threads") and "not measured: Q4_K 96x16" in table.stdout


def test_pack_and_unpack(golden_gguf: Path, tmp_path: Path) -> None:
    result = run("pack", golden_gguf, tmp_path / "m.les")
    assert result.returncode == 0, result.stderr
    assert "before" in result.stdout and "after" in result.stdout
    assert run("pack", golden_gguf, tmp_path / "m.les").returncode == 1
    assert run("unpack", tmp_path / "m.les", tmp_path / "m.gguf").returncode == 0


@pytest.mark.parametrize(
    "args",
    [
        ["generate", "/nowhere.les", "x"],
        [*QUICK_KERNELS, "--types", "Q4_K,Q9_9"],
        [*QUICK_KERNELS, "--shapes", "2048"],
        [*QUICK_KERNELS, "--columns", "0"],
        [*QUICK_KERNELS, "--threads", "-1"],
        ["info", "nonsense"],
        ["verify", __file__],
        ["pack", __file__],
        ["generate", "owner/repo:Q4_K_M", "x"],
        ["rm", "demo-q5_0"],
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(args: list[str], tmp_path: Path) -> None:
    result = run(*args, env={"LES_CACHE": str(tmp_path)})
    assert result.returncode == 1
    assert result.stderr.startswith("les: error: ")
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_budget_below_the_floor(packed: Path) -> None:
    result = run("generate", packed, "x", "--memory", "1MiB")
    assert result.returncode == 1
    assert "floor" in result.stderr


def test_a_flipped_byte_is_found_by_verify_and_at_first_read(packed: Path, tmp_path: Path) -> None:
    from les._core import GgufFile

    layer = GgufFile(str(packed)).expert_layers[1]
    _, offset, _, _ = layer.extents(3)[0]
    data = bytearray(packed.read_bytes())
    data[offset + 100] ^= 1
    broken = tmp_path / "broken.les"
    broken.write_bytes(data)
    result = run("verify", broken)
    assert result.returncode == 1
    assert f"layer {layer.layer} expert 3" in result.stderr
    result = run(
        "generate", broken, "the router sends each token to the experts that it likes", "--raw", "--context", "64"
    )
    assert result.returncode == 1 and "checksum" in result.stderr, result.stderr


def test_chat_in_lines(packed: Path, tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    commands = ["the router", "/stats", "/nonsense", "/set temperature 0", "/set top_p 7", f"/save {saved}", "/clear"]
    script = "\n".join([*commands, f"/load {saved}", "/regen", "/exit", ""])
    result = run("chat", packed, "--context", "256", "--max-tokens", "4", "--seed", "1", stdin=script)
    assert result.returncode == 0, result.stderr
    for expected in (
        "in memory",
        "no command /nonsense",
        "temperature = 0",
        "top_p is 7",
        "messages saved",
        "messages loaded",
    ):
        assert expected in result.stderr
    assert len(json.loads(saved.read_text())["messages"]) == 2


def test_chat_in_a_terminal_ctrl_c_stops_the_reply_only(packed: Path, tmp_path: Path) -> None:
    pexpect = pytest.importorskip("pexpect")
    endless = [
        "--context",
        "4096",
        "--max-tokens",
        "-1",
        "--temperature",
        "5",
        "--top-k",
        "0",
        "--min-p",
        "0",
        "--top-p",
        "1",
    ]
    child = pexpect.spawn(
        sys.executable,
        ["-m", "les", "chat", str(packed), *endless],
        encoding="utf-8",
        codec_errors="replace",
        timeout=30,
        env={**os.environ, "LES_CACHE": str(tmp_path), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
    )
    child.expect("/help shows")
    child.expect(">")
    child.send("/help\r")
    child.expect("/regen")
    child.expect(">")
    child.send("hello\r")
    time.sleep(0.5)
    child.sendintr()
    child.expect(["stopped", "cut at the limit", ">"])
    child.send("/exit\r")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_a_folder_called_like_a_model_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from les import NotFoundError
    from les.models import resolve

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LES_CACHE", str(tmp_path / "cache"))
    (tmp_path / "demo").mkdir()
    with pytest.raises(NotFoundError, match="les pull demo"):
        resolve("demo")
    assert resolve("./demo") == Path("demo")
