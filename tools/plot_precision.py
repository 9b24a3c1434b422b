#!/usr/bin/env python3
"""Draw divergence against bytes from what `les eval precision` measured.

    les eval precision demo --shrink 10% 20% 26.7% 35% 45% --json > figures.json
    plot_precision.py docs/precision.svg figures.json [MORE.json ...]

Needs nothing but Python. The vertical axis is logarithmic; bars are 95 % confidence intervals.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 80, 150, 30, 60
SERIES = {
    "plan": "#1b7837",
    "uniform": "#2166ac",
    "recipe": "#b35806",
    "uniform plain": "#777777",
}


def read(paths: list[str]) -> list[dict[str, Any]]:
    """The reports of all files, by shrink."""
    reports: list[dict[str, Any]] = []
    for path in paths:
        value = json.loads(Path(path).read_text("utf-8"))
        reports += value if isinstance(value, list) else [value]
    return sorted(reports, key=lambda r: r["asked_shrink"])


def points(reports: list[dict[str, Any]], name: str) -> list[tuple[float, dict[str, float]]]:
    """(asked shrink, kl) of the best entry of that name in each report."""
    found = []
    for report in reports:
        entries = [e["kl"] for e in report["entries"] if e["name"] == name]
        if entries:
            found.append((report["asked_shrink"], min(entries, key=lambda k: k["value"])))
    return found


def draw(reports: list[dict[str, Any]]) -> str:
    """The picture as SVG text."""
    values = [k["value"] for name in SERIES for _, k in points(reports, name)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    shrinks = [r["asked_shrink"] for r in reports]
    first, last = min(shrinks) - 0.03, max(shrinks) + 0.03

    def x(shrink: float) -> float:
        return LEFT + (shrink - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(kl: float) -> float:
        at = min(max(math.log10(max(kl, 1e-12)), low), high)
        return TOP + (high - at) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"',
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(low, high + 1):
        for digit in (1, 2, 5) if power < high else (1,):
            at = y(digit * 10.0**power)
            parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
            parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{digit * 10.0**power:g}</text>')
    for shrink in shrinks:
        parts.append(f'<text x="{x(shrink):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{shrink:.1%}</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 15}" text-anchor="middle">expert bytes saved</text>'
    )
    parts.append(f'<text x="{LEFT}" y="{TOP - 12}">KL divergence from the model, nats a token</text>')
    for row, (name, colour) in enumerate(SERIES.items()):
        line = points(reports, name)
        if not line:
            continue
        path = "M" + "L".join(f"{x(s):.1f} {y(k['value']):.1f}" for s, k in line)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for s, k in line:
            parts.append(f'<circle cx="{x(s):.1f}" cy="{y(k["value"]):.1f}" r="3.5" fill="{colour}"/>')
            if k["low"] is not None:
                shift = 3 * (row - 1.5)
                bar = f"M{x(s) + shift:.1f} {y(k['low']):.1f}V{y(k['high']):.1f}"
                parts.append(f'<path d="{bar}" stroke="{colour}" opacity="0.4"/>')
        at = TOP + 20 * row + 10
        parts.append(f'<rect x="{WIDTH - RIGHT + 20}" y="{at - 9}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 38}" y="{at + 2}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    Path(sys.argv[1]).write_text(draw(read(sys.argv[2:])), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
