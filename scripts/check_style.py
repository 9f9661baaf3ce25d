#!/usr/bin/env python3
"""Rules of CONTRIBUTING.md that a script can see: lengths of files and lines, names that say nothing, sleeps, leftovers, head
comments, swallowed exceptions, tests switched off, versions that must agree, public classes that can be declared ahead."""

import re
import sys
from pathlib import Path

import tree

COLUMNS = 120
HEADER_LINES = 400
SOURCE_LINES = 800
CODE = tree.HEADERS | tree.SOURCES | {".py", ".jl", ".inl"}
# Built from parts, so that this file does not contain what it forbids.
LEFTOVERS = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
# Public macros that KMM's users know under this name.
LEFTOVER_NAMES = re.compile("KMM_TO" + r"DO\b")
CPP_RULES = [
    (re.compile(r"\b(class|struct)\s+(?:[A-Z_]+\s+)*(?!MemoryManager\b)\w*?(?:[Mm]anager|[Hh]elper|[Uu]tils?|[Cc]ontext)\b(?!\s*\*)"),
     "a name that says nothing (Manager, Helper, Util, Context)"),
    (re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\("),
     "a sleep: wait for what you wait for (an event, a condition variable)"),
    (re.compile(r"catch\s*\(\s*\.\.\.\s*\)\s*\{\s*\}"), "a swallowed exception"),
    (re.compile(r"TEST(_F|_P)?\s*\(\s*\w+\s*,\s*DISABLED_"), "a test switched off"),
    (re.compile(r"GTEST_SKIP\s*\(\s*\)\s*;"), "a skip without a reason"),
]
# Names inherited from KMM and CUDA that its users know.
INHERITED_NAMES = re.compile(r"\b(TaskContext|GPUContextHandle|GPUContextGuard|CUctx_st)\b")


def without_strings(line):
    return re.sub(r'"(\\.|[^"\\])*"', '""', line)


def check_lines(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        if line.rstrip() != line:
            yield f"{where}: blanks at the end of the line"
        if LEFTOVERS.search(LEFTOVER_NAMES.sub("", line)):
            yield f"{where}: a leftover: write an issue or do it"
        if Path(path).suffix in tree.HEADERS | tree.SOURCES:
            if len(line) > COLUMNS:
                yield f"{where}: {len(line)} columns (limit {COLUMNS})"
            bare = INHERITED_NAMES.sub("X", without_strings(line).split("//")[0])
            for rule, text_of_rule in CPP_RULES:
                if rule.search(bare):
                    yield f"{where}: {text_of_rule}"


def check_file(path):
    text = tree.read(path)
    suffix = Path(path).suffix
    lines = text.count("\n")
    limit = HEADER_LINES if suffix in tree.HEADERS else SOURCE_LINES
    if lines > limit:
        yield f"{path}: {lines} lines (limit {limit}): split it"
    # A source that begins with its own header leaves the comment to it.
    own_header = re.match(r'#include "(?:[\w/]*/)?' + re.escape(Path(path).stem) + r'\.hpp"', text)
    if suffix in tree.HEADERS | tree.SOURCES and not text.startswith("//") and not own_header:
        yield f"{path}: begin with a comment that says what the file owns, what it must not know, which thread runs it"
    if text and not text.endswith("\n"):
        yield f"{path}: no newline at the end"
    yield from check_lines(path, text)


def version_in(path, pattern):
    if not (tree.ROOT / path).is_file():
        return None
    found = re.findall(pattern, tree.read(path))
    return ".".join(part for part in found) if found else None


def check_versions():
    """Versions stand in CMake and in headers that work without CMake; both must agree."""
    project = re.search(r"project\(kmm VERSION ([\d.]+)", tree.read("CMakeLists.txt")).group(1)
    header = version_in("include/kmm/version.hpp", r"#\s*define\s+KMM_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)")
    if header and header != project:
        yield f"include/kmm/version.hpp says {header}, CMakeLists.txt {project}"
    rmm = re.search(r"KMM_RMM_VERSION ([\d.]+)", tree.read("cmake/KmmPackages.cmake")).group(1)
    header = version_in("include/rmm/version_config.hpp", r"#\s*define\s+RMM_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)")
    if header and header != rmm:
        yield f"include/rmm/version_config.hpp says {header}, cmake/KmmPackages.cmake {rmm}"
    # RMM writes 25.10.00 in Python.
    for path, pattern in (("python/rmm/rmm/VERSION", r"^([\d.]+)$"), ("python/rmm/rmm/_version.py", r'__version__ = "([\d.]+)"')):
        python = version_in(path, pattern)
        if python and [int(part) for part in python.split(".")] != [int(part) for part in rmm.split(".")]:
            yield f"{path} says {python}, cmake/KmmPackages.cmake {rmm}"


CLASS = re.compile(r"^(?:class|struct|enum class)\s+(?:RMM_EXPORT\s+)?(\w+)(?:\s+final)?\s*(?::[^:;].*)?\{", re.MULTILINE)
NAMESPACE = re.compile(r"^(?:inline )?namespace (?:RMM_NAMESPACE|(\w+)) \{|^\}  // namespace", re.MULTILINE)


def public_classes(text):
    """Names of the classes that a header of rmm defines outside of `detail`."""
    inner = [(m.start(), m.group(1), m.group(0).startswith("}")) for m in NAMESPACE.finditer(text)]
    for found in CLASS.finditer(text):
        names = []
        for start, name, ends in inner:
            if start > found.start():
                break
            if ends:
                names.pop()
            else:
                names.append(name)
        if names and "detail" not in names:
            yield found.group(1)


def check_forward_declarations():
    """<rmm/fwd.hpp> names every public class of rmm, which a program cannot declare itself."""
    declared = set(re.findall(r"^(?:class|struct|enum class) (\w+)", tree.read("include/rmm/fwd.hpp"), re.MULTILINE))
    for path in tree.files(tree.HEADERS, "include/rmm"):
        for name in public_classes(tree.read(path)):
            if name not in declared:
                yield f"{path}: {name} is not declared in include/rmm/fwd.hpp"


def main():
    code = tree.files(CODE, "include", "src", "tests", "examples", "benchmarks", "tools", "fuzz", "python", "julia", "scripts")
    problems = [problem for path in code for problem in check_file(path)]
    problems += list(check_versions())
    problems += list(check_forward_declarations())
    return tree.report("style", problems, len(code))


if __name__ == "__main__":
    sys.exit(main())
