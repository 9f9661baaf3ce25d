"""The stub of the native module agrees with it."""

import subprocess
import sys
from pathlib import Path

import rmm
from support import needs


@needs("mypy")
def test_the_stub_agrees_with_the_native_module(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    # Of nanobind's own; and private names of the stub.
    allowed.write_text("rmm\\._core\\..*__new__\n")
    result = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "rmm._core", "--ignore-positional-only", "--allowlist", str(allowed)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**__import__("os").environ, "MYPYPATH": str(Path(rmm.__file__).parent.parent)},
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
