"""The code of the pages for people who write Python.

A page's blocks run one after another in one process, as a reader would try them. A block whose first line is
``# needs cupy, torch`` is a program of its own, which is left out without a GPU or without these libraries. Text after
``<!-- prints -->`` is what the block before it prints on the host driver.
"""

import ast
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from support import ON_HOST, needs, needs_gpu, run_python, skip_without_numba_kernels

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ("python", "python-statistics-and-logs", "python-libraries", "migrating-from-rmm-python")
# What `# needs` says, and the module that is looked for.
LIBRARIES = {"cupy": "cupy", "numba": "numba.cuda", "torch": "torch"}

BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:(?P<between>(?:(?!^```).)*?)^<!-- prints -->\n```text\n(?P<prints>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    page: str
    line: int  # the first line of the code
    code: str
    prints: str | None

    @property
    def libraries(self) -> list[str]:
        first = re.match(r"# needs ([\w, ]+)\n", self.code)
        return first.group(1).split(", ") if first else []

    @property
    def place(self) -> str:
        return f"{self.page}.md:{self.line}"


def blocks(page: str) -> list[Block]:
    text = (DOCS / f"{page}.md").read_text()
    found = [
        Block(page, text.count("\n", 0, match.start("code")) + 1, match["code"], match["prints"])
        for match in BLOCK.finditer(text)
    ]
    assert len(found) == text.count("\n```python\n"), f"{page}.md has a block of Python that is not closed"
    assert sum(block.prints is not None for block in found) == text.count("\n<!-- prints -->\n")
    return found


ALL = [block for page in PAGES for block in blocks(page)]
ALONE = [block for block in ALL if block.libraries]

# Runs files of code in one namespace, and prints a line between what they print.
RUNNER = """
import sys
namespace = {"__name__": "__main__"}
for place, code in BLOCKS:
    page, line = place.split(":")
    exec(compile("\\n" * (int(line) - 1) + code, page, "exec"), namespace)
    print("\\n--- " + place, flush=True)
"""


def run(blocks: list[Block], folder: Path, *options: str) -> list[str]:
    """What each block prints."""
    program = f"BLOCKS = {[(block.place, block.code) for block in blocks]!r}\n{RUNNER}"
    result = run_python(
        program, *options, TMPDIR=str(folder), KMM_VIRTUAL_DEVICES="1", KMM_VIRTUAL_DEVICE_MEM="4GiB", RMM_DEBUG="0"
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    printed = re.split(r"\n--- .*\n", result.stdout)
    assert len(printed) == len(blocks) + 1
    return printed[:-1]


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_one_after_another(page: str, tmp_path: Path) -> None:
    together = [block for block in blocks(page) if not block.libraries]
    if not together:
        pytest.skip("each block of this page is a program of its own")
    for block, printed in zip(together, run(together, tmp_path, "-W", "error"), strict=True):
        if block.prints is not None and ON_HOST:
            assert printed.rstrip("\n").split("\n") == block.prints.rstrip("\n").split("\n"), block.place


def requirements(block: Block) -> pytest.MarkDecorator:
    missing = [mark for mark in (needs(LIBRARIES[name]) for name in block.libraries) if mark.args[0]]
    return missing[0] if missing else needs_gpu


@pytest.mark.parametrize("block", [pytest.param(b, id=b.place, marks=requirements(b)) for b in ALONE])
def test_a_program_with_another_library_runs(block: Block, tmp_path: Path) -> None:
    if "cuda.jit" in block.code:
        skip_without_numba_kernels()
    run([block], tmp_path, "-W", "ignore")  # of warnings: those of the other library are its own


@pytest.mark.parametrize("block", [pytest.param(b, id=b.place) for b in ALL])
def test_a_block_imports_what_the_package_has(block: Block) -> None:
    tree = ast.parse(block.code, block.place)
    assert any(isinstance(node, ast.Assert | ast.Call) for node in ast.walk(tree)), "a block that does nothing"
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None]
    for node in imports:
        module = str(node.module)
        if module.split(".")[0] != "rmm" or module == "rmm.allocators.numba":  # which needs Numba to be imported
            continue
        imported = __import__(module, fromlist=["*"])
        for alias in node.names:
            assert hasattr(imported, alias.name), f"{block.place}: {module} has no {alias.name}"


def test_there_are_programs_for_each_library_and_for_all_together() -> None:
    assert {name for block in ALONE for name in block.libraries} == set(LIBRARIES)
    assert any(set(block.libraries) == set(LIBRARIES) for block in ALONE)


def test_no_page_about_python_is_left_out() -> None:
    with_code = {path.stem for path in DOCS.glob("*.md") if re.search("^```python$", path.read_text(), re.MULTILINE)}
    assert with_code - set(PAGES) <= {"c-interface"}, os.fspath(DOCS)
