"""Fetching models: the choice of files, and downloads from a hub that runs on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_hub import Hub, serve
from test_files import write_shards

import les
from les.models.pull import choose_files
from les.pack import verify

REPO = "maker/Tiny-GGUF"
SHARDS = ["Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"]
FILES = [
    "README.md",
    "m-Q4_K_M.gguf",
    "m-Q4_K_S.gguf",
    "m-IQ4_XS.gguf",
    "m-UD-Q4_K_XL.gguf",
    "mmproj-Q8_0.gguf",
    *SHARDS,
]


@pytest.mark.parametrize(
    ("quant", "expected"),
    [
        ("Q4_K_M", ["m-Q4_K_M.gguf"]),
        ("q4_k_s", ["m-Q4_K_S.gguf"]),
        ("IQ4_XS", ["m-IQ4_XS.gguf"]),
        ("UD-Q4_K_XL", ["m-UD-Q4_K_XL.gguf"]),
        ("Q8_0", SHARDS),
    ],
)
def test_choice_of_files(quant: str, expected: list[str]) -> None:
    assert choose_files(list(reversed(FILES)), quant) == expected


def test_no_such_quant_names_those_there_are() -> None:
    with pytest.raises(les.DownloadError, match=r"no GGUF file of quant Q4_K; there are: Q8_0.*m-Q4_K_M"):
        choose_files(FILES, "Q4_K")
    with pytest.raises(les.DownloadError, match="1 of 2 shards"):
        choose_files(FILES[:-1], "Q8_0")


def pull(hub: Hub, cache: Path, *args: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("huggingface_hub", reason="les[hub] is not installed")
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "LES_CACHE": str(cache)}
    env |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HOME": str(cache / "hf"), "HF_HUB_ETAG_TIMEOUT": "5"}
    command = [sys.executable, "-m", "les", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture
def hub(golden_gguf: Path, tmp_path: Path) -> Hub:
    shards = write_shards(golden_gguf, tmp_path, 2)
    return Hub(REPO, {"m-Q4_K_M.gguf": golden_gguf, **dict(zip(SHARDS, shards, strict=True))})


@pytest.mark.parametrize("quant", ["Q4_K_M", "Q8_0"])
def test_pull_list_run_and_remove(quant: str, hub: Hub, tmp_path: Path) -> None:
    name = f"{REPO}:{quant}"
    with serve(hub):
        result = pull(hub, tmp_path, "pull", name)
        assert result.returncode == 0, result.stderr
        n_requests = len(hub.requests)
        assert pull(hub, tmp_path, "pull", name).returncode == 0
        assert len(hub.requests) == n_requests, "an installed model is fetched again"
    assert name in pull(hub, tmp_path, "list").stdout
    written = pull(hub, tmp_path, "generate", name, "the router", "--max-tokens", "2", "--context", "64")
    assert written.returncode == 0, written.stderr
    (packed,) = tmp_path.rglob("*.les")
    assert verify(packed).n_records > 0
    assert list(tmp_path.rglob(".source/**/*.gguf")) == []
    assert pull(hub, tmp_path, "rm", name).returncode == 0
    assert list(tmp_path.rglob("*.les")) == []


def test_a_broken_download_goes_on_where_it_was(hub: Hub, tmp_path: Path) -> None:
    long = tmp_path / "long.gguf"  # the client writes pieces of 10 MiB
    long.write_bytes(hub.files["m-Q4_K_M.gguf"].read_bytes() + bytes(24 << 20))
    hub.files["m-Q4_K_M.gguf"] = long
    hub.cut_after = 15 << 20
    with serve(hub):
        for _ in range(2):  # the client may try again by itself; if it gives up, the user's next try goes on
            result = pull(hub, tmp_path, "pull", f"{REPO}:Q4_K_M")
            if result.returncode == 0:
                break
            assert result.stderr.strip().startswith("les: error:") and "Traceback" not in result.stderr
    assert result.returncode == 0, result.stderr
    starts = [start for method, path, start in hub.requests if method == "GET" and path.endswith(".gguf")]
    assert len(starts) == 2 and starts[0] == 0 and 0 < starts[1] <= 15 << 20


def test_a_wrong_checksum_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.wrong.add("m-Q4_K_M.gguf")
    with serve(hub):
        result = pull(hub, tmp_path, "pull", f"{REPO}:Q4_K_M")
    assert result.returncode == 1
    assert "sha256" in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert list(tmp_path.rglob("*.les")) == []


def test_unknown_repository_and_no_network(hub: Hub, tmp_path: Path) -> None:
    with serve(hub):
        missing = pull(hub, tmp_path, "pull", "maker/Nothing:Q4_K_M")
    offline = pull(hub, tmp_path, "pull", f"{REPO}:Q4_K_M")
    for result in (missing, offline):
        assert result.returncode == 1
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1 and "les pack FILE.gguf" in lines[0], result.stderr
