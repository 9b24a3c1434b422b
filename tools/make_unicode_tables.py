"""Writes csrc/text/unicode_tables.cc: the categories that pre-tokenizers ask for, as sorted range starts.

Run: python tools/make_unicode_tables.py > csrc/text/unicode_tables.cc
"""

from __future__ import annotations

import sys
import unicodedata

FLAGS = {"Lu": 1, "Lt": 1, "Ll": 2, "Lm": 4, "Lo": 4, "M": 8, "N": 16, "P": 32, "S": 64}
SPACES = {0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0x20, *range(9, 14), *range(0x2000, 0x200B)}

# Letters as deepseek-llm's pre-tokenizer lists them: cased scripts, written out by its authors.
DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼ"
    "\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗ"
    "Ａ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)


def flags_of(code: int) -> int:
    """Flag bits of one code point (see csrc/text/unicode.h)."""
    if code in SPACES:
        return 128
    category = unicodedata.category(chr(code))
    return FLAGS.get(category, FLAGS.get(category[0], 0))


def ranges_of(text: str) -> list[tuple[int, int]]:
    """First and last code point of each range of a character class."""
    out, i = [], 0
    while i < len(text):
        last = i + 2 if text[i + 1 : i + 2] == "-" else i
        out.append((ord(text[i]), ord(text[last])))
        i = last + 1
    return out


def print_rows(values: list[str]) -> None:
    """Prints array items, as many a line as fit in 120 columns."""
    row = " "
    for value in values:
        if len(row) + len(value) + 2 > 120:
            print(row)
            row = " "
        row += f" {value},"
    print(row)


def main() -> None:
    """Prints the C++ file."""
    starts, previous = [], -1
    for code in range(sys.maxunicode + 1):
        flags = flags_of(code)
        if flags != previous:
            starts.append(f"0x{code << 8 | flags:x}")
            previous = flags
    print(f"// Made by tools/make_unicode_tables.py from Unicode {unicodedata.unidata_version}.")
    print('#include "text/unicode.h"\n\nnamespace les {\n')
    print("const uint32_t kUnicodeRanges[] = {  // code point << 8 | flags, up to the next")
    print_rows(starts)
    print(f"}};\nconst int kNumUnicodeRanges = {len(starts)};\n")
    letters = ranges_of(DEEPSEEK_LETTERS)
    print("const uint32_t kDeepseekLetters[][2] = {  // first, last")
    print_rows([f"{{0x{a:x}, 0x{b:x}}}" for a, b in letters])
    print(f"}};\nconst int kNumDeepseekLetters = {len(letters)};\n\n}}  // namespace les")


if __name__ == "__main__":
    main()
