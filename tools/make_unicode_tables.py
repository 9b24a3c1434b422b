#!/usr/bin/env python3
"""Writes csrc/text/unicode_tables.cc: the character classes that pre-tokenizers ask for.

    make_unicode_tables.py > csrc/text/unicode_tables.cc

One range for each run of characters of one class, from Python's own copy of the Unicode database.
"""

from __future__ import annotations

import sys
import unicodedata

# Names as in csrc/text/unicode.h.
CLASSES = {
    "Lu": "kUpper",
    "Lt": "kUpper",
    "Ll": "kLower",
    "Lm": "kOtherLetter",
    "Lo": "kOtherLetter",
    "M": "kMark",
    "N": "kNumber",
    "P": "kPunctuation",
    "S": "kSymbol",
    "Z": "kSeparator",
    "C": "kControl",
}


def char_class(code: int) -> str:
    category = unicodedata.category(chr(code))
    if category == "Cn":
        return "kNone"
    return CLASSES.get(category) or CLASSES[category[0]]


def main() -> None:
    runs: list[tuple[int, str]] = []
    for code in range(0x110000):
        kind = char_class(code)
        if not runs or runs[-1][1] != kind:
            runs.append((code, kind))
    out = sys.stdout.write
    out(f"// Made by tools/make_unicode_tables.py from Unicode {unicodedata.unidata_version}; do not edit.\n")
    out('#include "text/unicode.h"\n\nnamespace les {\n\n')
    out("// The first character of each run, and its class.\n")
    out(f"const size_t kNClassRuns = {len(runs)};\n")
    out("using enum CharClass;\n")
    out("const ClassRun kClassRuns[] = {\n")
    line = "   "
    for start, kind in runs:
        item = f" {{{start:#x}, {kind}}},"
        if len(line) + len(item) > 118:
            out(line + "\n")
            line = "   "
        line += item
    out(line + "\n};\n\n}  // namespace les\n")


if __name__ == "__main__":
    main()
