"""tools/check_gguf.py: everything known in files that run, and each kind of unknown part named in files that do not."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT, SHARED, shared_or_skip

from les import _core
from les.errors import LesError

FOLDERS = [p.parent.name for p in sorted(SHARED.glob("goldens/*/model.gguf"))] or ["qwen3moe"]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_gguf", ROOT / "tools" / "check_gguf.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def edited(path: Path, to: Path, *changes: tuple[str, str]) -> str:
    """A copy with words replaced by others of the same length, so that the file stays whole."""
    data = path.read_bytes()
    for old, new in changes:
        assert len(old) == len(new) and old.encode() in data
        data = data.replace(old.encode(), new.encode())
    to.write_bytes(data)
    return str(to)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_file_that_runs_is_known_and_one_that_does_not_is_not(tool: ModuleType, name: str) -> None:
    path = str(shared_or_skip("goldens", name, "model.gguf"))
    unknown = [f for f in tool.check(path) if f.state == "UNKNOWN"]
    try:
        _core.Engine(path, {"context": 64})
    except LesError:
        assert unknown
    else:
        assert unknown == []


def test_the_names_taken_from_the_sources_cover_what_is_bound(tool: ModuleType) -> None:
    known = tool.known_suffixes()
    n_checked = 0
    for name in FOLDERS:
        path = str(shared_or_skip("goldens", name, "model.gguf"))
        if _core.GgufFile(path).metadata["general.architecture"] in tool.families():
            bound = _core.bound_tensors(path)
            assert [n for n in bound if not tool.is_known(n, known)] == []
            n_checked += len(bound)
    assert n_checked > 0


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("architecture", [("qwen3moe", "qwen9moe")], "qwen9moe; known: bailingmoe2, "),
        ("keys", [("qwen3moe.expert_count", "qwen3moe.expert_rebel")], "qwen3moe.expert_rebel"),
        ("tensors", [("blk.1.attn_k.weight", "blk.1.attn_z.weight")], "attn_k.weight is missing"),
        ("tensors", [("blk.1.attn_k.weight", "blk.1.attn_z.weight")], "nothing uses attn_z.weight"),
        ("tokenizer", [("qwen2", "zwen2")], "pre-tokenizer 'zwen2' is not supported"),
        ("chat template", [("endfor", "endfur")], "cannot be parsed"),
    ],
)
def test_each_unknown_part_is_named(
    tool: ModuleType, golden_gguf: Path, tmp_path: Path, part: str, changes: list[tuple[str, str]], words: str
) -> None:
    findings = tool.check(edited(golden_gguf, tmp_path / "m.gguf", *changes))
    unknown = [f.text for f in findings if f.part == part and f.state == "UNKNOWN"]
    assert any(words in text for text in unknown), findings


def test_an_extra_tensor_of_a_known_family_is_named(tool: ModuleType, tmp_path: Path) -> None:
    # A selection bias under a name that no family binds: the file still runs, and would give other results.
    source = shared_or_skip("goldens", "glm4moe", "model.gguf")
    findings = tool.check(edited(source, tmp_path / "m.gguf", ("exp_probs_b.bias", "exp_probs_c.bias")))
    assert [f.text for f in findings if f.state == "UNKNOWN"] == ["nothing uses exp_probs_c.bias"]


def test_packed_files_are_checked_too(tool: ModuleType, packed: Path) -> None:
    findings = tool.check(str(packed))
    assert all(f.state != "UNKNOWN" for f in findings), findings


def test_the_page_of_models_lists_every_family_and_what_is_missing(tool: ModuleType) -> None:
    page = (ROOT / "docs" / "models.md").read_text("utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|[^|]*\|([^|]*)\|", page, re.MULTILINE)
    assert {arch for arch, _ in rows} == tool.families().keys()
    arches = {_core.GgufFile(str(p)).metadata["general.architecture"] for p in SHARED.glob("goldens/*/model.gguf")}
    if arches:
        assert {arch for arch, state in rows if "golden" in state} == arches & tool.families().keys()
    missing = re.search(r"^Not built: (.*?)\.", page, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([^`]+)`", missing[1] if missing else "")) == arches - tool.families().keys()


def test_exit_status_and_output(golden_gguf: Path, tmp_path: Path) -> None:
    def run(path: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "tools" / "check_gguf.py"), path]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    good = run(str(golden_gguf))
    assert (good.returncode, good.stderr) == (0, "")
    parts = {line.split(":")[0] for line in good.stdout.splitlines()}
    assert parts >= {
        f"ok      {p}" for p in ("architecture", "keys", "tensors", "weight types", "tokenizer", "chat template")
    }
    assert run(edited(golden_gguf, tmp_path / "m.gguf", ("qwen3moe", "qwen9moe"))).returncode == 1
    (tmp_path / "n.gguf").write_bytes(b"GGUF")
    bad = run(str(tmp_path / "n.gguf"))
    assert bad.returncode == 2 and "n.gguf" in bad.stderr and len(bad.stderr.splitlines()) == 1
