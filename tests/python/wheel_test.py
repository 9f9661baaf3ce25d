#!/usr/bin/env python3
"""Makes the wheel of rmm, installs it into a new environment, and uses it there: from Python, and from a C++ program
that finds its CMake package. Nothing is downloaded; run by the interpreter of build/venv.

wheel_test.py SOURCE_DIR WORK_DIR WHEELS VERSION: WHEELS is a folder with the wheels that rmm needs."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=True, **options)


def make_wheel(source, work):
    """Without isolation, in which pip would download what is here already."""
    wheels = work / "wheels"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", wheels, source / "python/rmm", cwd=work)
    (wheel,) = wheels.glob("kmm_rmm-*.whl")
    return wheel


def install(wheel, work, others):
    venv.create(work / "venv", with_pip=True)
    python = work / "venv/bin/python"
    pip = (python, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", "--find-links", others, wheel)
    return python


def check_libraries(package, source):
    """What the installed files name must be there on another machine too."""
    libraries = [*package.glob("*.so"), *package.glob("librmm/*.so"), *package.glob("lib/*.so.*")]
    assert len(libraries) == 3, libraries
    for library in libraries:
        text = run("readelf", "--wide", "--dynamic", "--dyn-syms", library, stdout=subprocess.PIPE, text=True).stdout
        (run_path,) = (line.split("[")[1].split("]")[0] for line in text.splitlines() if "RUNPATH" in line)
        assert all(part.startswith("$ORIGIN") for part in run_path.split(":")), (library, run_path)
        assert "condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.30" not in text, library
        assert str(source).encode() not in library.read_bytes(), f"{library} names {source}"


USE = """
import ctypes, pathlib, sys
import rmm

version, package = sys.argv[1], pathlib.Path(rmm.__file__).parent
assert rmm.__version__ == "25.10.00" and rmm.__kmm_version__ == version, (rmm.__version__, rmm.__kmm_version__)
assert rmm.is_initialized()

# The allocator for PyTorch takes memory from the resource that Python has set: there is one table of resources.
pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size="1MiB", maximum_pool_size="4MiB")
counted = rmm.mr.StatisticsResourceAdaptor(pool)
rmm.mr.set_current_device_resource(counted)
buffer = rmm.DeviceBuffer.to_device(b"from the wheel")
assert buffer.tobytes() == b"from the wheel"
torch = ctypes.CDLL(str(package / "librmm/_torch_allocator.so"))
torch.allocate.restype = ctypes.c_void_p
torch.allocate.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
torch.deallocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
block = torch.allocate(1000, 0, None)
assert counted.allocation_counts.current_bytes == 1000 + buffer.size
torch.deallocate(block, 1000, 0, None)
assert counted.allocation_counts.current_bytes == buffer.size

loaded = {line.split()[-1] for line in open("/proc/self/maps") if "libkmm" in line}
assert loaded == {str(package / "lib/libkmm_rmm.so.0")}, loaded
print(package)
"""


def use_from_python(python, work, version):
    """From another folder, and without what the caller's environment adds to the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = (python, "-W", "error", "-c", USE, version)
    done = run(*command, cwd=work, env=environment, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


def use_from_cpp(package, source, work):
    build = work / "consumer"
    run(
        "cmake",
        "-G",
        "Ninja",
        "-S",
        source / "tests/install/consumer_rmm",
        "-B",
        build,
        f"-DCMAKE_PREFIX_PATH={package}",
    )
    run("cmake", "--build", build)
    run("ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error")


def main(source, work, others, version):
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    python = install(make_wheel(source, work), work, others)
    package = use_from_python(python, work, version)
    assert package.is_relative_to(work), package
    check_libraries(package, source)
    use_from_cpp(package, source, work)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), sys.argv[4])
