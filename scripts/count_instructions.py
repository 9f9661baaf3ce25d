#!/usr/bin/env python3
"""Counts the instructions of a submit in four shapes, under callgrind, and compares them with the figures that are kept in
benchmarks/submit_instructions.json: a difference of more than 2 % is an error.

    count_instructions.py PROGRAM [--write]

What two numbers of submits differ in is counted, on the submitting thread, in the library's own code for submits: not in the
allocator of the system, in locks, nor in what the scheduler and the end of the program do there, which depend on the moment. Figures
are kept for each compiler, as the same source gives each its own. With another compiler they are printed and nothing is compared;
in CI (CI=true) that is an error."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KEPT = Path(__file__).resolve().parent.parent / "benchmarks" / "submit_instructions.json"
SHAPES = ("independent", "chain", "stencil", "halo")
FEW, MANY = 1000, 3000
TOLERANCE = 0.02
OURS = re.compile(r"^(\S+ )?(kmm::|main\b)")
# Records of tasks and the message queue take memory and locks; the rest is what whoever has the baton, or ends the
# runtime, does on this thread.
NOT_COUNTED = re.compile(
    r"^(\S+ )?(kmm::(memory|schedule|engine|supply|driver|log|locks|trace)::|kmm::detail::(RuntimeCore|SchedulerTurns|Outgoing|TaskBooks|GivingUp)::"
    r"|kmm::graph::(TaskPool|Task::|HostReserve|Failures))"
)


def count(program, shape, submits, folder):
    out = f"{folder}/{shape}.{submits}"
    subprocess.run(
        ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}", program, shape, str(submits)],
        check=True, capture_output=True, text=True,
    )
    listing = subprocess.run(
        ["callgrind_annotate", "--threshold=100", "--show-percs=no", f"{out}-01"], check=True, capture_output=True, text=True
    ).stdout
    total = 0
    for line in listing.splitlines():
        found = re.match(r"\s*([\d,]+)\s+\S+?:(.*)$", line)
        if found and OURS.match(found.group(2)) and not NOT_COUNTED.match(found.group(2)):
            total += int(found.group(1).replace(",", ""))
    return total


def compiler_of(program):
    """What the compiler wrote into the program: "GCC: (Debian 12.2.0-14) 12.2.0" as "GCC 12.2.0"."""
    text = subprocess.run(["readelf", "-p", ".comment", program], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"(GCC|clang)\b.*?(\d+\.\d+\.\d+)\s*$", text, re.MULTILINE)
    return " ".join(found[-1]) if found else "unknown"


def main():
    program = sys.argv[1]
    compiler = compiler_of(program)
    kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    with tempfile.TemporaryDirectory() as folder:
        figures = {s: round((count(program, s, MANY, folder) - count(program, s, FEW, folder)) / (MANY - FEW)) for s in SHAPES}
    if "--write" in sys.argv[2:]:
        kept[compiler] = figures
        KEPT.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
    failed = False
    for shape, figure in figures.items():
        before = kept.get(compiler, {}).get(shape)
        if before is None:
            print(f"instructions of a submit, {shape}: {figure} ({compiler}: no figure is kept)")
            failed = failed or os.environ.get("CI") == "true"
            continue
        change = figure / before - 1
        differs = abs(change) > TOLERANCE
        failed = failed or differs
        print(f"instructions of a submit, {shape}: {figure}, kept {before} ({change:+.1%}){': not as kept' if differs else ''}")
    if failed:
        print(f"{compiler}: where a change is meant, the commit says why, and --write keeps the new figures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
