"""The end of the process, whatever is alive then: status 0, nothing printed."""

import os
from pathlib import Path

import pytest

from support import needs, needs_gpu, needs_two_devices, run_python, run_quietly

TIMES = int(os.environ.get("RMM_TEST_EXITS", "3"))

PROGRAMS = {
    "buffers": "b = [rmm.DeviceBuffer(size=1000) for _ in range(100)]",
    "a buffer in a cycle": "c = [rmm.DeviceBuffer(size=10)]; c.append(c)",
    "a pool that is current": "p = mr.PoolMemoryResource(mr.CudaMemoryResource(), 1 << 20)\n"
    "mr.set_current_device_resource(p)\nb = rmm.DeviceBuffer(size=10)",
    "a buffer of a pool that is not current": "b = rmm.DeviceBuffer(size=10, mr=mr.PoolMemoryResource(\n"
    "    mr.CudaMemoryResource(), 1 << 20))",
    "streams and a stream pool": "s = Stream()\np = CudaStreamPool(4)\nb = rmm.DeviceBuffer(size=10, stream=s)\n"
    "c = rmm.DeviceBuffer(size=10, stream=p.get_stream())",
    "work in a queue": "s = Stream()\nb = rmm.DeviceBuffer.to_device(bytes(1 << 20), s)\n"
    "for _ in range(20): b.copy_from_host(bytes(1 << 20), s)",
    "callbacks": "up = mr.CudaMemoryResource()\n"
    "mr.set_current_device_resource(mr.CallbackMemoryResource(lambda n, s: up.allocate(n, s),\n"
    "    lambda p, n, s: up.deallocate(p, n, s)))\nb = rmm.DeviceBuffer(size=10)",
    "callbacks of a buffer in a module": "up = mr.CudaMemoryResource()\n"
    "rmm.kept = rmm.DeviceBuffer(size=10, mr=mr.CallbackMemoryResource(up.allocate, up.deallocate))",
    "a failure callback": "mr.set_current_device_resource(mr.FailureCallbackResourceAdaptor(\n"
    "    mr.CudaMemoryResource(), lambda n: False))\nb = rmm.DeviceBuffer(size=10)",
    "every resource": "import support\nkept = {n: make() for n, make in support.RESOURCES.items()}\n"
    "buffers = [rmm.DeviceBuffer(size=10, mr=r) for r in kept.values()]",
    "a daemon thread that allocates": "import threading\nstarted = threading.Event()\n"
    "def work():\n"
    "    while True:\n"
    "        b = rmm.DeviceBuffer.to_device(b'abc', Stream())\n"
    "        b.tobytes()\n"
    "        started.set()\n"
    "threading.Thread(target=work, daemon=True).start()\nassert started.wait(60)",
    "a daemon thread in a callback": "import threading\nup = mr.CudaMemoryResource()\nstarted = threading.Event()\n"
    "r = mr.CallbackMemoryResource(lambda n, s: up.allocate(n, s), lambda p, n, s: up.deallocate(p, n, s))\n"
    "def work():\n"
    "    while True:\n"
    "        rmm.DeviceBuffer(size=10, mr=r)\n"
    "        started.set()\n"
    "threading.Thread(target=work, daemon=True).start()\nassert started.wait(60)",
    "a device error that was caught": "try:\n    rmm.DeviceBuffer(size=1 << 50)\nexcept MemoryError as e: kept = e",
    "an object with a finalizer": "class F:\n    def __del__(self): self.b = None\nf = F()\n"
    "f.b = rmm.DeviceBuffer(size=10, stream=Stream())",
    "the profiler and tags": "rmm.statistics.enable_statistics()\n"
    "p = rmm.statistics.profiler(name='p'); p.__enter__()\nt = rmm.memory_tag('t'); t.__enter__()\n"
    "b = rmm.DeviceBuffer(size=10)",
    "what C++ has replaced and Python has looked at": "from test_one_table import Cpp\nup = mr.CudaMemoryResource()\n"
    "mr.set_current_device_resource(mr.CallbackMemoryResource(up.allocate, up.deallocate))\n"
    "cpp = Cpp()\ncpp.set(0, None)\nlooked = mr.get_current_device_resource()",
    "a daemon thread in which C replaces what Python has set": "import ctypes, threading\n"
    "from test_one_table import loaded_library\nc = ctypes.CDLL(loaded_library())\nstarted = threading.Event()\n"
    "def work():\n"
    "    while True:\n"
    "        mr.set_per_device_resource(0, mr.CudaMemoryResource())\n"
    "        c.rmm_set_device_resource(0, None)\n"
    "        started.set()\n"
    "threading.Thread(target=work, daemon=True).start()\nassert started.wait(60)",
}
#: Of a graph of CuPy, whose memory came from rmm while its stream was captured.
GRAPH = """
import cupy
from rmm.allocators import cupy as allocators
mr.set_current_device_resource(mr.PoolMemoryResource(mr.CudaMemoryResource(), 64 << 20))
cupy.cuda.set_allocator({allocator})
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    a = cupy.arange(1000, dtype=cupy.float32)
    warm = a + a  # kernels are compiled and loaded before the capture
    warm += 1
    stream.synchronize()
    stream.begin_capture()
    b = a + a
    c = b + a
    a += 1
    graph = stream.end_capture()
    graph.launch(stream)
    graph.launch(stream)
    assert b.get()[:3].tolist() == [2, 4, 6] and c.get()[:3].tolist() == [3, 6, 9] and a.get()[0] == 2
    del c  # the graph still has it
    kept = cupy.zeros(1000, dtype=cupy.float32)
    graph.launch(stream)
"""
GRAPHS = {
    "a graph of CuPy and its arrays": GRAPH.format(allocator="allocators.rmm_cupy_allocator"),
    "a graph of CuPy and its arrays of C functions": GRAPH.format(allocator="allocators.native_allocator().malloc"),
}
HEAD = (
    "import sys\nimport rmm\nfrom rmm import mr\nfrom rmm.pylibrmm.stream import Stream\n"
    "from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool\n"
)


def end_quietly(program: str) -> None:
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    for _ in range(TIMES):
        run_quietly(HEAD + program, PYTHONPATH=paths)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_process_ends_quietly_with(name: str) -> None:
    end_quietly(PROGRAMS[name])


@needs_two_devices
def test_the_process_ends_quietly_with_a_stack_on_each_device() -> None:
    end_quietly(
        "rmm.reinitialize(pool_allocator=True, initial_pool_size='1MiB', devices=[0, 1])\n"
        "rmm.statistics.enable_statistics()\nb = rmm.DeviceBuffer(size=10)"
    )


@needs_gpu
@needs("cupy")
@pytest.mark.parametrize("name", GRAPHS)
def test_the_process_ends_quietly_with_what_was_captured(name: str) -> None:
    end_quietly(GRAPHS[name])


def test_the_process_ends_quietly_with_sys_exit() -> None:
    run_quietly(HEAD + "b = rmm.DeviceBuffer(size=10, stream=Stream())\nsys.exit(0)")


def test_an_exception_ends_the_process_with_its_own_status_and_text() -> None:
    result = run_python(HEAD + "b = rmm.DeviceBuffer(size=10, stream=Stream())\nraise KeyError('mine')")
    assert result.returncode == 1
    assert result.stderr.strip().endswith("KeyError: 'mine'")
    assert "nanobind" not in result.stderr


def test_a_log_is_written_at_the_end(tmp_path: Path) -> None:
    run_quietly(
        HEAD + f"rmm.enable_logging({str(tmp_path / 'log.csv')!r})\nb = rmm.DeviceBuffer(size=10)\ndel b",
    )
    assert len((tmp_path / "log.dev0.csv").read_text().splitlines()) == 3


def test_functions_at_exit_that_were_registered_later_can_use_memory() -> None:
    result = run_python(
        HEAD + "import atexit\natexit.register(lambda: print(rmm.DeviceBuffer.to_device(b'abc').tobytes()))"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "b'abc'\n", "")
