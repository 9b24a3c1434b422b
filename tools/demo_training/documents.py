"""Documents that every Debian machine with CPython and npm has, and sums and tables made here."""

from __future__ import annotations

import glob
import gzip
import html
import json
import os
import random
import re
from collections.abc import Callable

Document = tuple[str, str]  # name, text

TECH = (
    "/usr/share/common-licenses/*",
    "/usr/share/doc/*/README*",
    "/usr/share/doc/*/NEWS*",
    "/usr/share/doc/**/*.html",
    "/usr/share/man/man[1578]/*.gz",
    "/usr/share/perl/*/**/*.pod",
)
CODE = (  # pattern(s), files at most
    (("/usr/lib/python3*/**/*.py", "/usr/local/lib/python3*/**/*.py"), 500),
    (("/usr/include/**/*.h",), 120),
    (("/usr/lib/node_modules/npm/lib/**/*.js", "/usr/lib/node_modules/npm/node_modules/*/lib/*.js"), 200),
    (("/usr/share/perl/5*/**/*.pm",), 60),
)
DATA = (
    "/usr/lib/node_modules/npm/node_modules/*/package.json",
    "/usr/share/doc/**/*.html",
    "/usr/share/mime/*/*.xml",
    "/usr/share/**/*.csv",
    "/usr/share/**/*.json",
    "/etc/**/*.conf",
    "/usr/share/**/*.css",
    "/usr/share/**/*.yaml",
    "/usr/share/**/*.yml",
)
NAMES = [
    "Anna",
    "Ben",
    "Carla",
    "David",
    "Emma",
    "Frank",
    "Grace",
    "Henry",
    "Ida",
    "Jack",
    "Kate",
    "Leo",
    "Maria",
    "Nina",
    "Oscar",
    "Paul",
]
ITEMS = ["lamp", "chair", "desk", "phone", "cable", "book", "pen", "bottle", "camera", "shirt", "bag", "clock"]


def read_text(path: str, limit_bytes: int = 400_000) -> str:
    """The file's first bytes as text, unpacked if gzipped; empty if it cannot be read."""
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            return file.read(limit_bytes).decode("utf-8", "ignore")
    except (OSError, EOFError):
        return ""


def find_files(patterns: tuple[str, ...], r: random.Random) -> list[str]:
    """Plain files of the patterns in a random order that depends on their names alone."""
    found = {path for pattern in patterns for path in glob.iglob(pattern, recursive=True)}
    files = sorted(path for path in found if os.path.isfile(path) and not os.path.islink(path))
    r.shuffle(files)
    return files


def strip_manual(text: str) -> str:
    """A manual page without its formatting requests."""
    text = re.sub(r'^\.\\".*$', "", text, flags=re.M)
    text = re.sub(r"^\.(B|I|BR|IR|RB|BI|SH|SS|TP|PP|Nm|Fl|Ar) ?", "", text, flags=re.M)
    text = re.sub(r"^[.'].*$", "", text, flags=re.M)
    text = re.sub(r"\\f[A-Z]|\\&|\\/|\\,", "", text)
    return text.replace("\\-", "-").replace("\\(aq", "'").replace("\\(em", "-").replace("\\ ", " ")


def strip_html(text: str) -> str:
    text = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)
    text = re.sub(r"<p[^>]*>|</p>|<div[^>]*>|<h\d[^>]*>", "\n\n", text)
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def prose(path: str, text: str) -> str:
    """Paragraphs of running English of a manual page, POD, HTML or plain file."""
    if "/man/" in path:
        text = strip_manual(text)
    if path.endswith(".html"):
        text = strip_html(text)
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        if len(line.split()) < 20 or sum(c.isalpha() or c == " " for c in line) / len(line) < 0.9:
            continue
        if re.search(r"\b(the|is|of|and|to)\b", line):
            kept.append(line)
    return "\n\n".join(kept[:80])


def arithmetic(r: random.Random) -> str:
    """A page of small worked sums in changing forms."""
    lines: list[str] = []
    while sum(map(len, lines)) < 900:
        a, b, c = r.randint(1, 99), r.randint(1, 99), r.randint(2, 12)
        eaten = min(a, c)
        forms = [
            f"{a} + {b} = {a + b}",
            f"{a + b} - {b} = {a}",
            f"{a} x {c} = {a * c}",
            f"{a * c} / {c} = {a}",
            f"Q: What is {a} plus {b}?\nA: {a + b}",
            f"If there are {a} apples and {eaten} are eaten, {a - eaten} are left.",
            f"{a} is {'even' if a % 2 == 0 else 'odd'}.",
            f"The larger of {a} and {b} is {max(a, b)}.",
            f"{c} boxes with {a} pens each hold {c} * {a} = {c * a} pens.",
        ]
        lines.append(r.choice(forms))
    return "\n".join(lines)


def table(r: random.Random) -> str:
    """A small CSV or JSON document with made-up values."""
    rows = [
        {
            "id": i + r.randint(1, 3),
            "name": r.choice(NAMES),
            "item": r.choice(ITEMS),
            "count": r.randint(1, 40),
            "price": round(r.uniform(1, 200), 2),
        }
        for i in range(14)
    ]
    if r.random() < 0.5:
        return "id,name,item,count,price\n" + "\n".join(",".join(map(str, row.values())) for row in rows)
    return json.dumps(rows[:9], indent=r.choice([1, 2, None]))


def is_ascii(text: str) -> bool:
    return sum(ord(c) > 127 for c in text) < 0.02 * len(text)


def tech_documents(r: random.Random) -> list[Document]:
    texts = ((path, prose(path, read_text(path))) for path in find_files(TECH, r)[:2500])
    return [(path, text) for path, text in texts if len(text) > 900]


def code_documents(r: random.Random) -> list[Document]:
    files = [path for patterns, limit in CODE for path in find_files(patterns, r)[:limit]]
    texts = ((path, read_text(path)) for path in files)
    return [(path, text) for path, text in texts if len(text) > 1500 and is_ascii(text)]


def data_documents(r: random.Random) -> list[Document]:
    texts = ((path, read_text(path, 40_000)) for path in find_files(DATA, r)[:700])
    kept = [(path, text) for path, text in texts if len(text) > 800 and is_ascii(text)]
    return kept + [(f"table{i}", table(r)) for i in range(160)]


def math_documents(r: random.Random) -> list[Document]:
    return [(f"math{i}", arithmetic(r)) for i in range(400)]


SOURCES: dict[str, Callable[[random.Random], list[Document]]] = {
    "tech": tech_documents,
    "code": code_documents,
    "data": data_documents,
    "math": math_documents,
}
