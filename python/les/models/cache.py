"""The folder of installed models, and what a model's name means."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from les.errors import InvalidArgumentError, NotFoundError

DEMO = "demo"
# Names that people use, and where they should lead. None of these places has been tried from here.
ALIASES = {
    "qwen3-30b-a3b": "unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M",
    "qwen3.6-35b-a3b": "unsloth/Qwen3.6-35B-A3B-GGUF:Q4_K_M",
    "olmoe-1b-7b": "allenai/OLMoE-1B-7B-0924-Instruct-GGUF:Q4_K_M",
    "gpt-oss-20b": "ggml-org/gpt-oss-20b-GGUF:mxfp4",
}
HUB_NAME = re.compile(r"([\w.-]+)/([\w.-]+?)(?::([\w.-]+))?")


@dataclass(frozen=True)
class InstalledModel:
    """A model in the cache folder; name is what commands take."""

    name: str
    path: Path
    size_bytes: int


def cache_dir() -> Path:
    """LES_CACHE, or where the platform keeps caches. Not created here."""
    if os.environ.get("LES_CACHE"):
        return Path(os.environ["LES_CACHE"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "les"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "les"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "les"


def models_dir() -> Path:
    """Where packed models lie."""
    return cache_dir() / "models"


def is_demo(name: str) -> bool:
    """ "demo", or "demo-q4_0" and the like: the demo with experts of another type."""
    return name == DEMO or re.fullmatch(r"demo-(f16|q8_0|q4_0|q4_1|q5_0|q5_1)", name) is not None


def cached_path(name: str) -> Path:
    """Where the model of that name lies, or would. Raises InvalidArgumentError for what is no model name."""
    name = ALIASES.get(name, name)
    if is_demo(name):
        return models_dir() / f"{name}.les"
    match = HUB_NAME.fullmatch(name)
    if not match:
        raise InvalidArgumentError(
            f"{name!r} is no model name; expected 'demo', OWNER/REPO:QUANT or {', '.join(ALIASES)}"
        )
    owner, repo, quant = match[1], match[2], match[3] or "Q4_K_M"
    return models_dir() / owner / f"{repo}:{quant}.les".replace(":", "--")


def resolve(model: str | Path) -> Path:
    """The file that a path or a name means; a file called like a known model is ./NAME. Raises NotFoundError that says
    what to do."""
    path = Path(model).expanduser()
    name = str(model)
    is_name = isinstance(model, str) and (is_demo(name) or name in ALIASES)
    if path.exists() and not is_name:
        return path
    looks_like_path = isinstance(model, Path) or name.endswith((".gguf", ".les")) or name.startswith((".", "/", "~"))
    if looks_like_path:
        raise NotFoundError(f"{name}: no such file")
    try:
        cached = cached_path(name)
    except InvalidArgumentError as error:
        raise NotFoundError(f"{name}: neither a file nor a known model ({error})") from error
    if not cached.exists():
        raise NotFoundError(f"{name}: not installed; get it with: les pull {name}")
    return cached


def installed() -> list[InstalledModel]:
    """What is in the cache folder, by name."""
    found = []
    root = models_dir()
    for path in sorted(root.rglob("*.les")) if root.is_dir() else []:
        relative = path.relative_to(root).with_suffix("")
        name = str(relative) if relative.parent == Path(".") else f"{relative.parent}/{path.stem.replace('--', ':')}"
        found.append(InstalledModel(name, path, path.stat().st_size))
    return found


def remove(name: str) -> InstalledModel:
    """Deletes an installed model; returns what it was."""
    wanted = ALIASES.get(name, name)
    for model in installed():
        if model.name == wanted or model.name == f"{wanted}:Q4_K_M":
            model.path.unlink()
            return model
    raise NotFoundError(f"{name}: not installed; installed: {', '.join(m.name for m in installed()) or 'nothing'}")
