#!/usr/bin/env python3
"""Compiles the code of README.md, docs/ and examples/ and follows their links.

Every block that begins with ```cpp is compiled as C++17 against include/. A block with #include or main is a file of
its own; any other is the inside of a function, after `#include "kmm/kmm.hpp"` and the placeholders. A comment
`<!-- check: rmm -->` in the line before a block puts rmm's headers before it instead; `<!-- check: file -->` says that
a block is a file although it has neither. `<!-- check: program -->` is a program, which tests/docs builds and runs as
well. `<!-- check: cuda -->` is a file with kernels, or of Thrust, that nvcc compiles as a user of rmm::rmm; without nvcc
it is left out. A block that begins with ```c is a file that a C compiler compiles as C11. Code that is not meant to compile is marked ```c++ or ```text.
Programs that docs/kmm shows must be those of examples/pages (check_pages.py).

Names in backticks that have `::`, or end in .hpp or .cpp, must be in the tree: `scope::name` where some class, enumeration or
namespace `scope` mentions `name` between its braces, or a source says `scope::name`."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import check_pages
import tree

BLOCK = re.compile(r"^(?:<!-- check: (?P<kind>\w+) -->\n)?```(?P<language>cpp|c)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SCOPE = re.compile(r"\b(?:class|struct|union|enum|namespace)\b([^;{}]*)\{")
QUALIFIED = re.compile(r"(\w+)::~?(\w+)(?!\w|::)")
FILE_NAME = re.compile(r"[\w./-]+\.[hc]pp")
# Of others, or of no tree: placeholders.
FOREIGN = re.compile(r"\b(?:std|cuda|thrust|fmt|spdlog|CCCL|CUDA)::|\brmm::Thrust\b|NAME|\bX\b|\*")
PRELUDES = {
    "kmm": '#include "kmm/kmm.hpp"\nusing namespace kmm::placeholders;\n',
    "rmm": "".join(f"#include <{name}>\n" for name in (
        "cstdio", "memory", "string", "vector", "rmm/cuda_stream.hpp", "rmm/device_buffer.hpp", "rmm/device_scalar.hpp",
        "rmm/device_uvector.hpp", "rmm/mr/arena_memory_resource.hpp", "rmm/mr/cuda_memory_resource.hpp",
        "rmm/mr/limiting_resource_adaptor.hpp", "rmm/mr/per_device_resource.hpp", "rmm/mr/pool_memory_resource.hpp",
        "rmm/mr/vmm_memory_resource.hpp")),
}
WARNINGS = ["-Wall", "-Wno-unused-variable", "-Wno-unused-but-set-variable"]


def find_nvcc():
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return shutil.which("nvcc", path=os.pathsep.join([os.environ.get("PATH", "")] + [f"{h}/bin" for h in homes if h]))


NVCC = find_nvcc()


def documents():
    return ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *tree.files({".md"}, "docs", "examples")]


def blocks(path):
    """(line of the first line of code, kind, code) of every block to be compiled."""
    text = tree.read(path)
    for match in BLOCK.finditer(text):
        kind = "c" if match.group("language") == "c" else match.group("kind")
        yield text[: match.start("code")].count("\n") + 1, kind, match.group("code")


def as_file(path, line, kind, code):
    place = f'#line {line} "{path}"\n'
    if kind in ("file", "program", "cuda", "c") or (kind is None and re.search(r"^\s*#\s*include|\bint main\b", code, re.MULTILINE)):
        return place + code
    return PRELUDES[kind or "kmm"] + "void documented_code() {\n" + place + code + "}\n"


def compile_block(block):
    path, line, kind, code = block
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / ("block." + {"cuda": "cu", "c": "c"}.get(kind, "cpp"))
        source.write_text(as_file(path, line, kind, code))
        if kind == "cuda":
            command = [NVCC, "-std=c++17", "-c", "-o", "/dev/null", "-DRMM_WITH_CCCL",
                       "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", "-Iinclude", str(source)]
        elif kind == "c":
            command = ["gcc", "-std=c11", "-fsyntax-only", *WARNINGS, "-Wpedantic", "-Werror", "-Iinclude", str(source)]
        else:
            command = ["g++", "-std=c++17", "-fsyntax-only", *WARNINGS, "-Iinclude", str(source)]
        done = subprocess.run(command, cwd=tree.ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        return f"{path}:{line}: the code does not compile\n" + "\n".join(done.stderr.splitlines()[:20])
    return None


def prose(path):
    """The text without its blocks of code, on the same lines."""
    return re.sub(r"^```.*?^```$", lambda m: "\n" * m.group().count("\n"), tree.read(path), flags=re.MULTILINE | re.DOTALL)


def headings(path):
    """What the headings of a page are called in links."""
    lines = re.findall(r"^#+ (.*?)\s*$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def check_links(path):
    for target in LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        file = (tree.ROOT / path).parent / name if name else tree.ROOT / path
        if not file.exists() or (heading and file.suffix == ".md" and heading not in headings(file)):
            yield f"{path}: the link {target} leads nowhere"


def braced(text, start):
    """What stands between the brace at `start` and the one that closes it."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return text[start : match.end()]
    return text[start:]


def check_names(paths):
    mentioned = [(path, number, word) for path in paths for number, line in enumerate(prose(path).splitlines(), 1)
                 for word in re.findall(r"`([^`]+)`", line) if not FOREIGN.search(word)]
    scopes = {scope: set() for _, _, word in mentioned for scope, _ in QUALIFIED.findall(word)}
    known = set()  # as sources write them
    files = tree.files(tree.HEADERS | tree.SOURCES | {".py", ".pyi"})
    for text in map(tree.read, files):
        known.update(QUALIFIED.findall(text))
        for match in SCOPE.finditer(text):
            for scope in scopes.keys() & set(re.findall(r"\w+", match.group(1))):
                scopes[scope].update(re.findall(r"\w+", braced(text, match.end() - 1)))
    for path, number, word in mentioned:
        gone = [f"{s}::{n}" for s, n in QUALIFIED.findall(word) if n not in scopes[s] and (s, n) not in known]
        gone += [name for name in FILE_NAME.findall(word) if not any(f"/{file}".endswith(f"/{name}") for file in files)]
        for name in gone:
            yield f"{path}:{number}: {name} is not in the tree"


def main():
    present = [path for path in documents() if (tree.ROOT / path).is_file()]
    code = [(path, *block) for path in present for block in blocks(path)]
    if NVCC is None:
        all_code, code = code, [block for block in code if block[2] != "cuda"]
        print(f"docs: nvcc is not installed, {len(all_code) - len(code)} blocks with kernels left out")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        problems = [problem for problem in pool.map(compile_block, code) if problem]
    problems += [problem for path in present for problem in check_links(path)]
    problems += check_names(present)
    problems += check_pages.check_texts()
    print(f"docs: {len(code)} blocks of code compiled")
    return tree.report("docs", problems, len(present))


if __name__ == "__main__":
    sys.exit(main())
