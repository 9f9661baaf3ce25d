#!/usr/bin/env python3
"""Includes go downwards only: driver <- rmm <- kmm <- tools, tests, examples, benchmarks, bindings; inside kmm
plan <- graph <- trace <- memory <- schedule <- engine <- supply <- runtime <- api. include/ never includes src/, and
names no vendor, fmt, spdlog, <iostream> or <thread> header outside interoperability headers and code guarded for a vendor's compiler."""

import re
import sys

import tree

# Path prefix -> (layer, rank). A file may include files of its own or a lower rank. First match wins.
LAYERS = [
    ("include/kmm/driver/", ("driver", 0)),
    ("src/driver/", ("driver", 0)),
    ("include/rmm/", ("rmm", 10)),
    ("include/rapids_logger/", ("rmm", 10)),
    ("src/rmm/", ("rmm", 10)),
    # Beside the pipeline: the emulation of kernels on the CPU, what every layer uses. The trace is below all that tell it.
    ("src/kmm/emulation/", ("kmm emulation", 20)),
    ("src/kmm/base/", ("kmm base", 20)),
    ("src/kmm/boxes/", ("kmm boxes", 20)),
    ("src/kmm/plan/", ("kmm plan", 21)),
    ("src/kmm/graph/", ("kmm graph", 22)),
    ("src/kmm/trace/", ("kmm trace", 23)),
    ("src/kmm/headers/", ("kmm headers", 24)),
    ("src/kmm/memory/", ("kmm memory", 24)),
    ("src/kmm/schedule/", ("kmm schedule", 25)),
    ("src/kmm/net/", ("kmm net", 26)),
    ("src/kmm/engine/", ("kmm engine", 27)),
    ("src/kmm/supply/", ("kmm supply", 28)),
    ("src/kmm/runtime/", ("kmm runtime", 29)),
    ("src/kmm/api/", ("kmm api", 30)),
    # Public headers of kmm: declarations that every layer of kmm may use; they can include nothing of src/ anyway.
    ("include/kmm/", ("kmm", 20)),
    ("include/kmm.h", ("kmm", 20)),
]
USERS = ("tools/", "tests/", "examples/", "benchmarks/", "fuzz/", "python/", "julia/")
TOP = ("users", 99)

LIGHT_ONLY = re.compile(
    r"^(cuda|cudart|cu_|driver_types|vector_types|device_launch|curand|cublas|nccl|nvtx3|hip/|hip_|rocblas|thrust/|cub/"
    r"|cccl/|cuda/|nv/|fmt/|spdlog/|iostream$|thread$)"
)
VENDOR = re.compile(r"^(cuda_runtime|cuda\.h|cudart|cublas|nccl|nvtx3|hip/|rocblas|thrust/|cub/|cuda/)")
# Where the library itself may name vendor headers: its drivers, CUDA files, and sources that implement interoperability.
VENDOR_SOURCES = re.compile(r"^src/driver/(cuda|hip)/|\.cu$|\.cuh$|interop|cccl")
# Where fmt itself is included.
FMT_SOURCES = re.compile(r"^src/driver/format\.[ch]pp$")


def layer(path):
    for prefix, value in LAYERS:
        if path.startswith(prefix):
            return value
    return TOP if path.startswith(USERS) else None


def resolve(path, included, known):
    """The file of the tree that an include names, or None for files of the system."""
    folder = path.rsplit("/", 1)[0]
    for candidate in (f"{folder}/{included}", f"include/{included}", f"src/{included}"):
        parts = []
        for part in candidate.split("/"):
            if part == "..":
                parts = parts[:-1]
            elif part != ".":
                parts.append(part)
        candidate = "/".join(parts)
        if candidate in known:
            return candidate
    return None


def check_file(path, known):
    own = layer(path)
    if own is None:
        if path.startswith(("src/", "include/")):
            yield f"{path}: its directory is in no layer; name it in scripts/check_includes.py"
        return
    public = path.startswith("include/")
    for line, included, quoted, guarded in tree.includes(tree.read(path)):
        where = f"{path}:{line}"
        target = resolve(path, included, known)
        if target is None:
            if quoted and not guarded and public and "/" in included:
                yield f'{where}: "{included}" is no file under include/'
            if public and LIGHT_ONLY.match(included) and not guarded and not tree.is_interop(path):
                yield f"{where}: <{included}> in a public header: declare what is needed, or move the code to an interop header"
            if path.startswith("src/") and included.startswith(("fmt/", "spdlog/")) and not FMT_SOURCES.match(path):
                yield f"{where}: <{included}>: include driver/format.hpp, which keeps fmt inside our libraries"
            if path.startswith("src/") and VENDOR.match(included) and not VENDOR_SOURCES.search(path):
                yield f"{where}: <{included}>: vendor headers belong into src/driver"
            continue
        if public and not target.startswith("include/"):
            yield f"{where}: include/ must not include {target}"
        other = layer(target)
        if other and other[1] > own[1]:
            yield f"{where}: {own[0]} must not include {target} ({other[0]}): includes go downwards only"


# What programs written for RMM 25.10 get without asking comes with the public headers of that interface alone: others are
# built on these parts.
BRINGS = "include/rmm/detail/brings.hpp"
WITHOUT_BRINGS = "include/rmm/mr/detail/"


def check_brings(known):
    """A path of includes from each part that must not get it, where there is one."""
    included = {
        path: {resolve(path, name, known) for _, name, _, _ in tree.includes(tree.read(path))} - {None}
        for path in known if path.startswith("include/rmm/")
    }
    for start in sorted(path for path in included if path.startswith(WITHOUT_BRINGS)):
        came_from, pending = {start: None}, [start]
        while pending:
            path = pending.pop()
            for target in sorted(included.get(path, ())):
                if target not in came_from:
                    came_from[target] = path
                    pending.append(target)
        if BRINGS in came_from:
            way = [BRINGS]
            while way[-1] != start:
                way.append(came_from[way[-1]])
            yield f"{start}: must not bring what programs for RMM 25.10 lean on; " + " < ".join(way)


def main():
    code = tree.files(tree.HEADERS | tree.SOURCES, "include", "src", *(u.rstrip("/") for u in USERS))
    known = set(code)
    problems = [problem for path in code for problem in check_file(path, known)]
    problems += check_brings(known)
    return tree.report("includes", problems, len(code))


if __name__ == "__main__":
    sys.exit(main())
