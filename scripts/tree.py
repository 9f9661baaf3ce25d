"""What the checks know of the tree: its files, its layers, its interoperability headers. Runs from any directory."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

HEADERS = {".hpp", ".h", ".cuh", ".inl"}
SOURCES = {".cpp", ".cu"}
SKIPPED_DIRECTORIES = {"build", "install", ".git", ".cache", "__pycache__", "node_modules"}

# Headers that exist to name CCCL, Thrust, CUDA or fmt types: whoever includes them has asked for these.
INTEROP = re.compile(
    r"(^|/)interop/|interop|cccl|rmm/detail/cuda_memory_resource\.hpp$|rmm/(exec_policy|device_vector|cuda_runtime_api)\.h"
    r"|thrust_allocator|thrust_rmm_allocator|kmm/fmt\.hpp$|\.cuh$"
)


def files(suffixes, *folders):
    """Paths relative to the root of all files under `folders` (all of the tree if none) with one of the suffixes."""
    found = []
    for folder in folders or [""]:
        start = ROOT / folder
        if start.is_file():
            found.append(start.relative_to(ROOT).as_posix())
        for directory, names, file_names in os.walk(start):
            names[:] = sorted(n for n in names if n not in SKIPPED_DIRECTORIES and not n.endswith(".egg-info"))
            found += [(Path(directory) / n).relative_to(ROOT).as_posix() for n in file_names if Path(n).suffix in suffixes]
    return sorted(found)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def is_interop(path):
    return bool(INTEROP.search(path))


def public_headers():
    return [p for p in files(HEADERS, "include") if Path(p).suffix != ".inl"]


# Conditions that are true only where the user asked for a vendor's compiler or headers.
VENDOR_GUARD = re.compile(r"__CUDACC__|__HIPCC__|__HIP__|__CUDA__|KMM_USE_(CUDA|HIP)|RMM_WITH_CCCL|RMM_NVTX|KMM_IS_DEVICE|__NVCC__")
DIRECTIVE = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else|endif|include)\b(.*)$")


def includes(text):
    """Yields (line number, included path, is_quoted, is inside a vendor guard) of every #include."""
    guards = []
    for number, line in enumerate(text.splitlines(), 1):
        match = DIRECTIVE.match(line)
        if not match:
            continue
        word, rest = match.groups()
        if word in ("if", "ifdef", "ifndef"):
            guards.append(word != "ifndef" and bool(VENDOR_GUARD.search(rest)))
        elif word == "elif" and guards:
            guards[-1] = bool(VENDOR_GUARD.search(rest))
        elif word == "else" and guards:
            guards[-1] = False
        elif word == "endif" and guards:
            guards.pop()
        elif word == "include":
            included = re.match(r'\s*(["<])([^">]+)[">]', rest)
            if included:
                yield number, included.group(2), included.group(1) == '"', any(guards)


def report(name, problems, checked):
    """Prints the problems; the exit status of a check."""
    for problem in problems:
        print(problem)
    print(f"{name}: {checked} files, {len(problems)} problems")
    return 1 if problems else 0
