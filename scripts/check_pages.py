#!/usr/bin/env python3
"""Holds the pages of docs/kmm to the programs of examples/pages: text and output.

A page has the whole text of a program in a ```cpp block after the line `<!-- program: PATH -->`, and what it prints in
```text blocks after `<!-- output: PATH -->`. The output may be cut into several blocks; together they are all of it.
`<!-- output: PATH about -->`: a number may differ by a quarter; `<!-- output: PATH shape -->`: numbers and units differ
from run to run, and only the words are compared.

Without arguments it compares the texts (./dev docs does). `check_pages.py PATH EXECUTABLE` runs the program built from
PATH and compares what it prints (a test does). With --write it changes the pages instead."""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "kmm"
PROGRAMS = "examples/pages"
BLOCK = re.compile(
    r"^(?P<marker><!-- (?P<kind>program|output): (?P<path>[\w/.]+)(?: (?P<mode>about|shape))? -->\n```(?:cpp|text)\n)"
    r"(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
# A number with its unit, and words whose plural depends on the number.
QUANTITY = re.compile(r"\d+(?:\.\d+)?(?: (?:B|KiB|MiB|GiB|TiB|ns|us|ms|s)\b)?")
PLURAL = re.compile(r"\b(task|thread|device)s\b")


def pages() -> list[Path]:
    return sorted(PAGES.glob("*.md"))


def same_line(mode: str | None, expected: str, printed: str) -> bool:
    if expected == printed:
        return True
    if mode == "about":
        numbers = zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=False)
        words = [re.sub(r"\s+", " ", NUMBER.sub("#", line)) for line in (expected, printed)]
        return words[0] == words[1] and all(abs(float(a) - float(b)) <= float(a) / 4 for a, b in numbers)
    if mode == "shape":
        words = [re.sub(r"\s+", " ", PLURAL.sub(r"\1", QUANTITY.sub("#", line))) for line in (expected, printed)]
        return words[0] == words[1]
    return False


def check_texts() -> Iterator[str]:
    """Problems of the pages that can be seen without running a program."""
    shown: dict[str, list[str]] = {"program": [], "output": []}
    for page in pages():
        name = page.relative_to(ROOT).as_posix()
        for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
            path = ROOT / match["path"]
            shown[match["kind"]].append(match["path"])
            if not path.is_file():
                yield f"{name}: there is no program {match['path']}"
            elif match["kind"] == "program" and path.read_text(encoding="utf-8") != match["body"]:
                yield f"{name}: the program is not the text of {match['path']}: run scripts/check_pages.py --write"
    for path in sorted((ROOT / PROGRAMS).glob("*.cu")):
        name = path.relative_to(ROOT).as_posix()
        for kind, names in shown.items():
            if name not in names:
                yield f"{name}: no page in docs/kmm has its {kind}"


def check_output(path: str, output: str) -> Iterator[str]:
    """Problems of the pages that show what the program `path` prints, which is `output`."""
    lines = output.splitlines()
    for page in pages():
        blocks = [
            m for m in BLOCK.finditer(page.read_text(encoding="utf-8")) if (m["kind"], m["path"]) == ("output", path)
        ]
        if not blocks:
            continue
        expected = [(match["mode"], line) for match in blocks for line in match["body"].splitlines()]
        if len(expected) != len(lines):
            yield f"{page.name}: {path} printed {len(lines)} lines, the page has {len(expected)}"
        for (mode, line), printed in zip(expected, lines, strict=False):
            if not same_line(mode, line, printed):
                yield f"{page.name}: the page has    {line}\n{path} printed {printed}"


def rewrite(change: Callable[[re.Match[str]], str]) -> None:
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = BLOCK.sub(change, old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(f"{page.name}: written")


def write_texts() -> None:
    def change(match: re.Match[str]) -> str:
        if match["kind"] == "output":
            return match[0]
        return match["marker"] + (ROOT / match["path"]).read_text(encoding="utf-8") + "```"

    rewrite(change)


def write_output(path: str, output: str) -> None:
    """Gives each block as many lines as it has; the last one what is left."""
    lines = output.splitlines(keepends=True)
    total = sum(page.read_text(encoding="utf-8").count(f"<!-- output: {path}") for page in pages())
    seen = 0

    def change(match: re.Match[str]) -> str:
        nonlocal seen
        if (match["kind"], match["path"]) != ("output", path):
            return match[0]
        seen += 1
        count = len(lines) if seen == total else match["body"].count("\n")
        body = "".join(lines[:count])
        del lines[:count]
        return match["marker"] + body + "```"

    rewrite(change)


def main() -> int:
    parser = argparse.ArgumentParser(description="compares docs/kmm with the programs of examples/pages")
    parser.add_argument("--write", action="store_true", help="change the pages instead of comparing")
    parser.add_argument("program", nargs="?", help=f"its path, such as {PROGRAMS}/quickstart.cu")
    parser.add_argument("executable", nargs="?", help="built from it; run on the host driver")
    arguments = parser.parse_args()
    problems: list[str] = []
    if arguments.program is None:
        if arguments.write:
            write_texts()
        problems = list(check_texts())
    elif arguments.executable is None:
        parser.error("name the executable, too")
    else:
        done = subprocess.run([arguments.executable], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(done.stdout)
            print(f"{arguments.program}: exit status {done.returncode}")
            return 1
        if arguments.write:
            write_output(arguments.program, done.stdout)
        problems = list(check_output(arguments.program, done.stdout))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
