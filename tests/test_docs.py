"""The documentation's examples, run as a reader would type them, with a tiny model installed under the demo's name.

Every ```sh block is run line by line and every ```python block as a program, those of one page in one folder. Lines
that install something are not run; a block marked ```sh not-run is only checked for its options.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from les.cli.main import make_parser, parse

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
INSTALLS = ("pip install", "apt-get install", "pkg install")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, words after it, text, and the line it starts at."""

    page: Path
    line: int
    language: str
    words: str
    text: str


def blocks(page: Path) -> list[Block]:
    found = []
    for match in re.finditer(r"^```(\w+)[ \t]*([^\n]*)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        line = page.read_text("utf-8")[: match.start()].count("\n") + 1
        found.append(Block(page, line, match[1], match[2], match[3]))
    return found


def commands(block: Block) -> Iterator[str]:
    """The lines of a shell block without comments and without what installs."""
    for line in block.text.replace("\\\n", " ").splitlines():
        parts = [part.strip() for part in line.split("&&")]
        kept = [part for part in parts if part and not part.startswith(INSTALLS)]
        if kept and not kept[0].startswith("#"):
            yield " && ".join(kept)


@pytest.fixture(scope="module")
def reader(packed: Path, golden_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with MODEL.gguf, and an environment where `les` is on the path and the demo is installed."""
    home = tmp_path_factory.mktemp("reader")
    (home / "cache" / "models").mkdir(parents=True)
    shutil.copy(packed, home / "cache" / "models" / "demo.les")
    shutil.copy(golden_gguf, home / "MODEL.gguf")
    (home / "bin").mkdir()
    script = home / "bin" / "les"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m les "$@"\n')
    script.chmod(0o755)
    path = os.pathsep.join([str(home / "bin"), os.environ["PATH"]])
    return home, {**os.environ, "PATH": path, "LES_CACHE": str(home / "cache")}


def runnable() -> list[Block]:
    return [b for page in PAGES for b in blocks(page) if b.language in ("sh", "python") and "not-run" not in b.words]


@pytest.mark.parametrize("block", runnable(), ids=lambda b: f"{b.page.name}:{b.line}")
def test_example_runs(block: Block, reader: tuple[Path, dict[str, str]]) -> None:
    home, env = reader
    programs = [[sys.executable, "-c", block.text]] if block.language == "python" else []
    if block.language == "sh":
        programs = [["bash", "-c", line] for line in commands(block) if line != "pytest"]
    for program in programs:
        done = subprocess.run(program, cwd=home, env=env, input="/exit\n", capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{program[-1]}\n{done.stdout}\n{done.stderr}"


def les_commands() -> list[tuple[str, str]]:
    """(where, command) of every `les ...` in pages and in the examples of --help."""
    found = []
    for page in PAGES:
        for block in blocks(page):
            if block.language == "sh":
                found += [(f"{page.name}:{block.line}", line) for line in commands(block)]
    for parser in parsers(make_parser()):
        found += [(parser.prog, line) for line in (parser.epilog or "").splitlines() if line.startswith("  les ")]
    return [(where, command) for where, command in found if "les " in command]


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


@pytest.mark.parametrize(("where", "command"), les_commands())
def test_options_of_examples_exist(where: str, command: str) -> None:
    for part in re.split(r"&&|\|", command):
        # Examples of --help explain themselves behind two spaces; where output goes is the shell's business.
        words = shlex.split(re.split(r"\s{2,}| > ", part.strip())[0], comments=True)
        if words and words[0] == "les":
            parse(words[1:])


def test_pages_have_examples() -> None:
    assert len(runnable()) >= 4
