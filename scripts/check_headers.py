#!/usr/bin/env python3
"""Compiles every public header alone, with warnings as errors, and says what each costs.

Without arguments: g++ as C++17 (what CI checks). --all: g++ and clang as C++17, 20 and 23, nvcc as C++17 and 20, and
the headers of rmm once more as the drop-in, with CCCL. A compiler that is not installed is left out and named."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tree

# Seconds of processor time that one header may cost in g++. The promise is 0.4 s for rmm; a check on a busy machine
# must not fail by chance, so it refuses only what is far off.
BUDGET_S = {"include/kmm/fmt.hpp": 2.0, "include/rmm/": 0.4, "include/kmm/": 1.0, "include/kmm.h": 0.2}
TOLERANCE = 3.0
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wold-style-cast", "-Werror"]
COMPILE_LIMIT_S = 300


class Mode:
    """One compiler in one language version."""

    def __init__(self, name, command, suffix=".cpp", interop=False):
        self.name, self.command, self.suffix, self.interop = name, command, suffix, interop

    def accepts(self, header):
        # kmm/fmt.hpp needs only fmt, which is installed with the other libraries.
        return self.interop or not tree.is_interop(header) or header.endswith("/kmm/fmt.hpp")


def cuda_home():
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        return None
    # A wrapper on the path is not where the toolkit lies.
    for candidate in (Path(nvcc).resolve().parent.parent, Path("/usr/local/cuda")):
        if (candidate / "include" / "cuda_runtime_api.h").exists():
            return candidate
    return None


def modes(everything):
    plain = ["-Iinclude", *WARNINGS, "-c", "-o", "/dev/null"]
    if not everything:
        return [Mode("g++ C++17", ["g++", "-std=c++17", *plain])]
    found = [Mode(f"g++ C++{v}", ["g++", f"-std=c++{v}", *plain]) for v in (17, 20, 23)]
    clang = shutil.which("clang++-19") or shutil.which("clang++-18") or shutil.which("clang++-15")
    if clang:
        found += [Mode(f"{Path(clang).name} C++{v}", [clang, f"-std=c++{v}", *plain]) for v in (17, 20, 23)]
    else:
        print("headers: clang 15 or newer is not installed, left out")
    home = cuda_home()
    if home:
        nvcc = [str(home / "bin" / "nvcc"), "-Iinclude", "-Werror", "all-warnings", "-Xcompiler=-Wall,-Wextra,-Wshadow,-Werror",
                "-x", "cu", "-c", "-o", "/dev/null"]
        found += [Mode(f"nvcc C++{v}", [*nvcc, f"-std=c++{v}"], ".cu") for v in (17, 20)]
        drop_in = ["-DRMM_WITH_CCCL", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE",
                   "-isystem", str(home / "include" / "cccl"), "-isystem", str(home / "include")]
        found.append(Mode("g++ C++17 drop-in", ["g++", "-std=c++17", *drop_in, *plain], interop=True))
    else:
        print("headers: nvcc is not installed, left out")
    return found


def compile_alone(mode, header, folder):
    """(exit status, message, processor seconds)."""
    name = header.removeprefix("include/")
    source = Path(folder) / f"{threading.get_ident()}{mode.suffix}"
    # Twice: the second inclusion must be harmless.
    source.write_text(f'#include "{name}"\n#include "{name}"\n')
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([*mode.command, str(source)], cwd=tree.ROOT, stdout=output, stderr=output)
        timer = threading.Timer(COMPILE_LIMIT_S, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return process.returncode, output.read().decode(errors="replace"), usage.ru_utime + usage.ru_stime


def budget(header):
    return next((seconds for prefix, seconds in BUDGET_S.items() if header.startswith(prefix)), 1.0)


def run_mode(mode, headers, pool, check_cost):
    chosen = [h for h in headers if mode.accepts(h) and (not mode.interop or h.startswith("include/rmm/"))]
    with tempfile.TemporaryDirectory() as folder:
        results = list(pool.map(lambda h: compile_alone(mode, h, folder), chosen))
    problems = []
    for header, (status, message, seconds) in zip(chosen, results):
        if status != 0:
            problems.append(f"{header}: does not compile alone ({mode.name})\n" + "\n".join(message.splitlines()[:8]))
        elif check_cost and seconds > TOLERANCE * budget(header):
            problems.append(f"{header}: {seconds:.2f} s ({mode.name}); {budget(header)} s are promised")
    costs = sorted(((result[2], header) for header, result in zip(chosen, results)), reverse=True)
    total = sum(seconds for seconds, _ in costs)
    print(f"{mode.name}: {len(chosen)} headers, {total:.1f} s; dearest: "
          + ", ".join(f"{header.removeprefix('include/')} {seconds:.2f}" for seconds, header in costs[:5]))
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every compiler and language version")
    parser.add_argument("header", nargs="*", help="only headers whose path contains one of these")
    arguments = parser.parse_args()
    headers = [h for h in tree.public_headers() if not arguments.header or any(part in h for part in arguments.header)]
    # One compile at a time for each core: processor time is what is measured, but a thrashing machine distorts it too.
    problems = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for mode in modes(arguments.all):
            problems += run_mode(mode, headers, pool, check_cost=mode.name == "g++ C++17")
    return tree.report("headers", problems, len(headers))


if __name__ == "__main__":
    sys.exit(main())
