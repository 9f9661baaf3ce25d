#!/usr/bin/env python3
"""Draws which region of an array each task gets: docs/kmm/pictures/*.svg, from what tests/docs/mappings prints.

`draw_mappings.py EXECUTABLE` writes the pictures; with --check it compares them instead, which a test does."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "kmm" / "pictures"
CELL = 15
GAP = 18
MARGIN = 12
LETTER, LINE_HEIGHT = 7.3, 18
# Of one task each. Dark enough for white figures; the pictures bring their own light background.
COLOURS = ("#1f6fb4", "#b4531f", "#2f7d3b", "#7b4bb0")
PAPER, INK, EDGE, EMPTY = "#f7f8fa", "#24292f", "#c4c9d0", "#ffffff"

# One [begin, end) for each axis, axis 0 first.
Box = list[list[int]]


@dataclass
class Panel:
    """One grid, and the boxes of the tasks in it. Rows first, one or two axes."""

    title: str
    grid: Box
    boxes: dict[int, Box]


def rectangle(box: Box) -> tuple[int, int, int, int]:
    """Row, column, number of rows, number of columns."""
    rows, columns = [[0, 1]] * (2 - len(box)) + box
    return rows[0], columns[0], rows[1] - rows[0], columns[1] - columns[0]


def panels(picture: dict[str, Any]) -> list[Panel]:
    """The domain with the chunk of each task, and the array once for each task. Domain axes are x, y: x is across."""
    tasks = picture["tasks"]
    domain = Panel("domain", picture["domain"][::-1], {i: task["chunk"][::-1] for i, task in enumerate(tasks)})
    return [domain, *(Panel(f"task {i}", picture["array"], {i: task["region"]}) for i, task in enumerate(tasks))]


def draw_panel(panel: Panel, left: int, top: int) -> Iterator[str]:
    _, _, rows, columns = rectangle(panel.grid)
    yield f'<rect x="{left}" y="{top}" width="{columns * CELL}" height="{rows * CELL}" fill="{EMPTY}"/>'
    for task, box in panel.boxes.items():
        row, column, height, width = (CELL * number for number in rectangle(box))
        fill = COLOURS[task % len(COLOURS)]
        yield f'<rect x="{left + column}" y="{top + row}" width="{width}" height="{height}" fill="{fill}"/>'
    lines = [f"M{left} {top + row * CELL}h{columns * CELL}" for row in range(rows + 1)]
    lines += [f"M{left + column * CELL} {top}v{rows * CELL}" for column in range(columns + 1)]
    yield f'<path d="{"".join(lines)}" stroke="{EDGE}"/>'
    for task, box in panel.boxes.items():
        row, column, height, width = (CELL * number for number in rectangle(box))
        yield f'<text x="{left + column + width / 2:g}" y="{top + row + height / 2 + 4:g}" class="task">{task}</text>'


def draw(picture: dict[str, Any]) -> str:
    """Grids of one row are below each other, with their titles beside them; others side by side, titles above."""
    parts = panels(picture)
    is_stack = all(rectangle(part.grid)[2] == 1 for part in parts)
    expression = escape(picture["expression"])
    left, top = MARGIN, MARGIN + LINE_HEIGHT
    right, bottom = MARGIN + LETTER * len(picture["expression"]), top
    body = []
    for part in parts:
        _, _, rows, columns = rectangle(part.grid)
        body.append(f'<text x="{left}" y="{top + 12}">{part.title}</text>')
        x, y = (left + 60, top) if is_stack else (left, top + LINE_HEIGHT)
        body += draw_panel(part, x, y)
        right, bottom = max(right, x + columns * CELL), max(bottom, y + rows * CELL)
        if is_stack:
            top += CELL + 6
        else:
            left += max(columns * CELL, round(LETTER * len(part.title))) + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + MARGIN:g}" height="{bottom + MARGIN}" role="img">',
        f"<title>{expression}</title>",
        f"<style>text{{font:12px monospace;fill:{INK}}}.task{{fill:#fff;text-anchor:middle}}</style>",
        f'<rect width="100%" height="100%" rx="6" fill="{PAPER}" stroke="{EDGE}"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 10}" font-weight="bold">{expression}</text>',
        *body,
    ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="draws docs/kmm/pictures")
    parser.add_argument("executable", help="built from tests/docs/mappings.cpp")
    parser.add_argument("--check", action="store_true", help="compare with the pictures that are there")
    arguments = parser.parse_args()
    printed = subprocess.run([arguments.executable], check=True, stdout=subprocess.PIPE, text=True).stdout
    pictures = {f"{line['name']}.svg": draw(line) for line in map(json.loads, printed.splitlines())}
    there = {path.name for path in PICTURES.glob("*.svg")}
    problems = [f"docs/kmm/pictures/{name}: no mapping has this name" for name in sorted(there - pictures.keys())]
    for name, text in pictures.items():
        path = PICTURES / name
        if not arguments.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif name not in there or path.read_text(encoding="utf-8") != text:
            problems.append(f"docs/kmm/pictures/{name}: not what scripts/draw_mappings.py draws")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
