#!/usr/bin/env python3
"""Checks the architecture from the text of the sources: who includes whom, file sizes, where instruction sets may show.

check_layers.py            prints every violation, exits 1 if there is one
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Folder of csrc -> folders it may include (and itself).
MAY_INCLUDE = {
    "base": set(),
    "cpu": {"base"},
    "quant": {"base"},
    "kernels": {"base", "cpu", "quant"},
    "io": {"base"},
    "store": {"base", "quant", "io"},
    "cache": {"base", "quant", "io", "store"},
    "sched": {"base", "quant", "io", "store", "cache"},
    "text": {"base"},
    "model": {"base", "cpu", "quant", "kernels", "store", "sched", "text"},
    "engine": {"base", "cpu", "quant", "kernels", "io", "store", "cache", "sched", "text", "model"},
    "capi": {"base", "store", "text", "model", "engine"},
    "py": {"base", "cpu", "quant", "kernels", "io", "store", "cache", "sched", "text", "model", "engine"},
}
MAX_LINES = {".cc": 600, ".h": 250, ".py": 500}
EXEMPT = {
    "csrc/text/unicode_tables.cc": "a generated table",
    "csrc/quant/iq_grids.cc": "code books, as the formats define them",
    "csrc/kernels/unpack_avx512.h": "one unpacker for each of 26 types",
    "csrc/kernels/unpack_neon.h": "one unpacker for each of 26 types",
}
ISA_FILES = re.compile(r"csrc/kernels/(isa_|simd_|unpack_|dispatch|.*_inl).*|csrc/cpu/.*|csrc/sched/ready_queue.h")
PYTHON_LAYERS = {
    "sampler": {"errors"},
    "sizes": {"errors"},
    "errors": set(),
    "generate": {"errors", "sampler", "draft", "_core"},
}


def check_includes(path: Path, problems: list[str]) -> None:
    layer = path.relative_to(ROOT / "csrc").parts[0]  # les.h, the public header, stands by itself
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        match = re.match(r'#include "([a-z]+)/', line)
        if match and match[1] != layer and match[1] not in MAY_INCLUDE.get(layer, set()):
            problems.append(f"{path.relative_to(ROOT)}:{number}: {layer} may not include {match[1]}")
        if layer == "les.h" and re.match(r'#include "', line):
            problems.append(f"csrc/les.h:{number}: the public header includes nothing of les")
        if re.match(r"#\s*if.*__(AVX|SSE|ARM_NEON)", line) and not ISA_FILES.match(str(path.relative_to(ROOT))):
            problems.append(f"{path.relative_to(ROOT)}:{number}: an instruction set outside the kernels' own files")


def check_size(path: Path, problems: list[str]) -> None:
    name = str(path.relative_to(ROOT))
    limit = MAX_LINES[path.suffix]
    n_lines = len(path.read_text("utf-8").splitlines())
    if n_lines > limit and name not in EXEMPT:
        problems.append(f"{name}: {n_lines} lines; at most {limit} (or a reason in EXEMPT)")


def check_python(problems: list[str]) -> None:
    for module, allowed in PYTHON_LAYERS.items():
        text = (ROOT / "python" / "les" / f"{module}.py").read_text("utf-8")
        for used in re.findall(r"^from les\.(\w+) import|^from les import (\w+)", text, re.M):
            name = used[0] or used[1]
            if name not in allowed:
                problems.append(f"python/les/{module}.py: may not import les.{name}")


def main() -> int:
    problems: list[str] = []
    sources = [p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".h", ".cc")]
    for path in sorted(sources):
        check_includes(path, problems)
        check_size(path, problems)
    for path in sorted((ROOT / "python").rglob("*.py")):
        check_size(path, problems)
    check_python(problems)
    print("\n".join(problems) or f"{len(sources)} native sources keep to their layers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
