#!/usr/bin/env python3
"""Tell which parts of a GGUF file les knows: architecture, keys, tensors, weight types, tokenizer, chat template.

    check_gguf.py FILE

One line a part: `ok`, `note` (not used, and known not to matter) or `UNKNOWN` with the names. Exit status 0 when all is
known, 1 when something is not, 2 when the file cannot be read. Which architectures there are and which keys they read
is taken from the sources beside this script, so it needs a checkout, with les installed or on PYTHONPATH. It reads
headers only. What it cannot tell is whether the maths is right: that takes a golden test (docs/adding-a-model.md).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from les import _core
from les.chat_template import ChatTemplate
from les.errors import LesError

MODEL = Path(__file__).resolve().parent.parent / "csrc" / "model"

LITERAL = re.compile(r'"([a-z][a-z0-9_.]*)"')
ENTRY = re.compile(r'Entry\{"([^"]+)", (make_\w+)\}')

# Tensors whose names the code puts together from parts.
COMPOSED_TENSORS = {f"ffn_{part}{kind}" for part in ("gate", "up", "down") for kind in ("", "_shexp", "_exps")}

# Keys that need not be read, and why. A key is matched without its architecture.
HARMLESS_KEYS = {
    r"general\..*": "describes the file",
    r"quantize\..*|.*imatrix.*": "describes how the file was made",
    r"split\..*": "read with the shards",
    r"les\..*": "read with the packed experts",
    r"tokenizer\.(ggml|chat_template|huggingface).*": "checked with the tokenizer",
    r"vocab_size": "the embedding's rows say it",
    r"rope\.scaling\.finetuned": "says how the model was trained",
    r"attention\.layer_norm_epsilon": "the norms are RMS norms, with an epsilon of their own",
    r"rope\.dimension_sections": "sections turn text as plain rotary encoding does",
}
HARMLESS_TENSORS = {
    r"rope_factors_(long|short)\.weight": "for the other range of context lengths",
    r"token_embd\.weight": "rows are read on demand",
}

CHATS: dict[str, list[dict[str, str]]] = {
    "one turn": [{"role": "user", "content": "Hello"}],
    "several turns": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Bye"},
    ],
    "a system message": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
}


@dataclass(frozen=True)
class Finding:
    """part: what was looked at; state: "ok", "note" or "UNKNOWN"."""

    part: str
    state: str
    text: str


def families() -> dict[str, Path]:
    """GGUF name -> the file in csrc/model/arch that makes it."""
    makers = {}
    for path in sorted((MODEL / "arch").glob("*.cc")):
        for maker in re.findall(r"^std::unique_ptr<ModelGraph> (make_\w+)", path.read_text("utf-8"), re.MULTILINE):
            makers[maker] = path
    return {name: makers[maker] for name, maker in ENTRY.findall((MODEL / "arch" / "registry.cc").read_text("utf-8"))}


def literals(paths: Iterable[Path]) -> set[str]:
    return {word for path in paths for word in LITERAL.findall(path.read_text("utf-8"))}


def read_keys(arch: str) -> set[str]:
    """Words, keys without the architecture's name among them, in the family's own file and in what all families share;
    of an unknown family, in all files."""
    own = families().get(arch)
    return literals([*MODEL.glob("*.cc"), *([own] if own else (MODEL / "arch").glob("*.cc"))])


def known_suffixes() -> set[str]:
    """Tensor names, without `blk.N.`, that some family uses; with or without the `.weight` or `.bias` at the end."""
    files = [*MODEL.rglob("*.cc"), *MODEL.glob("*.h")]
    return literals(files) | COMPOSED_TENSORS | {"experts", "ffn_gate_up_exps"}


def is_known(name: str, known: set[str]) -> bool:
    end = suffix(name)
    return end in known or re.sub(r"\.(weight|bias)$", "", end) in known


def suffix(name: str) -> str:
    return re.sub(r"^blk\.\d+\.", "", name)


def listed(names: Iterable[str], limit: int = 12) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def harmless(name: str, table: dict[str, str]) -> str | None:
    return next((why for pattern, why in table.items() if re.fullmatch(pattern, name)), None)


def check_architecture(arch: str) -> Iterator[Finding]:
    path = families().get(arch)
    if path:
        yield Finding("architecture", "ok", f"{arch} (csrc/model/arch/{path.name})")
    else:
        yield Finding("architecture", "UNKNOWN", f"{arch}; known: {', '.join(sorted(families()))}")


def check_keys(arch: str, metadata: dict[str, Any]) -> Iterator[Finding]:
    known = read_keys(arch)
    notes: dict[str, list[str]] = {}
    unknown = []
    n_read = 0
    for key in metadata:
        name = key.removeprefix(f"{arch}.")
        if name in known and name != key:
            n_read += 1
        elif why := harmless(name, HARMLESS_KEYS):
            if name != key:
                notes.setdefault(why, []).append(name)
        else:
            unknown.append(key)
    whose = "this family" if arch in families() else "some family"
    yield Finding("keys", "ok", f"{n_read} that {whose} reads")
    for why, names in notes.items():
        yield Finding("keys", "note", f"not read: {listed(names)}: {why}")
    if unknown:
        yield Finding("keys", "UNKNOWN", f"nothing reads {listed(unknown)}")


def is_expert(name: str) -> bool:
    return bool(re.fullmatch(r"ffn_(gate|up|down|gate_up)_exps\.weight|experts", suffix(name)))


def is_prediction(name: str, metadata: dict[str, Any], arch: str) -> bool:
    """Belongs to a next-token-prediction block, which stands behind the layers."""
    n_layers = metadata.get(f"{arch}.block_count", 0) - metadata.get(f"{arch}.nextn_predict_layers", 0)
    match = re.match(r"blk\.(\d+)\.", name)
    return bool(match and int(match[1]) >= n_layers)


def check_tensors(path: str, arch: str, file: _core.GgufFile) -> Iterator[Finding]:
    names = [t.name for t in file.tensors]
    left = [n for n in names if not is_expert(n)]
    used: set[str] | None = None
    if arch in families():
        try:
            used = set(_core.bound_tensors(path))
        except LesError as error:
            yield Finding("tensors", "UNKNOWN", str(error).removeprefix(f"{path}: "))
    if used is None:
        known = known_suffixes()
        yield Finding("tensors", "ok", f"{sum(is_known(n, known) for n in names)} of {len(names)} have known names")
        left = [n for n in left if not is_known(n, known)]
    else:
        yield Finding("tensors", "ok", f"{len(used)} in the trunk, {len(names) - len(left)} with experts")
        left = [n for n in left if n not in used]
    prediction = [n for n in left if is_prediction(n, file.metadata, arch)]
    if prediction:
        yield Finding("tensors", "note", f"not used: {len(prediction)} of a next-token-prediction block")
    unknown = []
    for name in (n for n in left if n not in prediction):
        why = harmless(suffix(name), HARMLESS_TENSORS)
        if why is None:
            unknown.append(suffix(name))
        elif used is None or name != "token_embd.weight":
            yield Finding("tensors", "note", f"not used: {name}: {why}")
    if unknown:
        yield Finding("tensors", "UNKNOWN", f"nothing uses {listed(unknown)}")


def is_weight_type(name: str) -> bool:
    _, n_elements, n_bytes = _core.qtype_info(name)
    try:
        _core.dequantize(name, np.zeros((1, n_bytes), np.uint8), n_elements)
    except LesError:
        return False
    return True


def check_types(file: _core.GgufFile) -> Iterator[Finding]:
    counts: dict[str, int] = {}
    for tensor in file.tensors:
        if suffix(tensor.name) != "experts":
            counts[tensor.type] = counts.get(tensor.type, 0) + 1
    for layer in file.expert_layers if file.is_packed else []:
        for part in layer.slices.values():
            counts[part["type"]] = counts.get(part["type"], 0) + 1
    good = {t: n for t, n in counts.items() if is_weight_type(t)}
    yield Finding("weight types", "ok", listed(f"{t} ({n})" for t, n in good.items()) or "no tensors")
    if bad := counts.keys() - good.keys():
        yield Finding("weight types", "UNKNOWN", f"no weights: {listed(sorted(bad))}")


def check_text(path: str, metadata: dict[str, Any]) -> Iterator[Finding]:
    kind = f"{metadata.get('tokenizer.ggml.model')}, pre-tokenizer {metadata.get('tokenizer.ggml.pre', 'not given')}"
    try:
        tokenizer = _core.Tokenizer.from_gguf(path)
    except LesError as error:
        yield Finding("tokenizer", "UNKNOWN", f"{kind}: {error}")
        return
    ends = [tokenizer.id_to_token(i) for i in tokenizer.eog]
    state = "ok" if ends else "UNKNOWN"
    yield Finding("tokenizer", state, f"{kind}; {tokenizer.n_vocab} tokens, ends with {listed(ends) or 'no token'}")
    source = metadata.get("tokenizer.chat_template")
    if source is None:
        yield Finding("chat template", "note", "none: prompts are plain text, or give a template")
        return
    try:
        template = ChatTemplate(source, tokenizer)
    except LesError as error:
        yield Finding("chat template", "UNKNOWN", str(error))
        return
    good = []
    for name, messages in CHATS.items():
        try:
            ids = template.encode(template.render(messages))
        except LesError as error:
            # Some models have no system role; that is theirs to say.
            yield Finding("chat template", "note" if name == "a system message" else "UNKNOWN", f"{name}: {error}")
        else:
            good.append(f"{name} ({len(ids)} tokens)")
    if good:
        yield Finding("chat template", "ok", listed(good))


def check(path: str) -> list[Finding]:
    """All findings, in the order of the file's life. Raises LesError when the file is no GGUF file that can be read."""
    file = _core.GgufFile(path)
    metadata = file.metadata
    arch = str(metadata.get("general.architecture", ""))
    return [
        *check_architecture(arch),
        *check_keys(arch, metadata),
        *check_tensors(path, arch, file),
        *check_types(file),
        *check_text(path, metadata),
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("file", help="a .gguf or .les file, or any shard of one")
    path = parser.parse_args(arguments).file
    try:
        findings = check(path)
    except LesError as error:
        print(error, file=sys.stderr)
        return 2
    for finding in findings:
        print(f"{finding.state:8}{finding.part}: {finding.text}")
    return int(any(f.state == "UNKNOWN" for f in findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
