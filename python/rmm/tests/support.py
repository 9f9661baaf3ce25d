"""What the tests share: skips, resources that record, round trips, programs run in a process of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import pytest

import rmm
from rmm._cuda import gpu
from rmm.pylibrmm.device_buffer import DeviceBuffer
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream

ON_HOST = os.environ["KMM_DRIVER"] == "host"
needs_gpu = pytest.mark.skipif(ON_HOST, reason="needs a GPU: this run uses the host driver")
needs_two_devices = pytest.mark.skipif(gpu.getDeviceCount() < 2, reason="needs two devices")
on_host_driver = pytest.mark.skipif(not ON_HOST, reason="about the host driver alone")

MIB = 1 << 20


def needs(module: str) -> pytest.MarkDecorator:
    """Skips where a library is not installed."""
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    return pytest.mark.skipif(not found, reason=f"{module} is not installed")


def skip_without_numba_kernels() -> None:
    """numba-cuda compiles nothing where NumPy has lost a function that it names."""
    result = run_python("from numba import cuda\ncuda.jit('void(i8[:])')(lambda x: None)", "-W", "ignore")
    if result.returncode != 0 and "has no attribute" in result.stderr:
        pytest.skip("Numba compiles no kernels here: " + result.stderr.rstrip().rsplit("\n", 1)[-1])


def some_bytes(length: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return (np.arange(length) * 7 % 251).astype(np.uint8)


def check_round_trip(length: int = 1000, stream: Stream = DEFAULT_STREAM) -> None:
    """Host to device, device to device, and back."""
    source = some_bytes(length)
    first = DeviceBuffer.to_device(source, stream)
    second = DeviceBuffer(size=length, stream=stream)
    second.copy_from_device(first, stream)
    stream.synchronize()
    assert np.array_equal(second.copy_to_host(stream=stream), source)


def recording_resource(
    upstream: rmm.mr.DeviceMemoryResource,
) -> tuple[rmm.mr.CallbackMemoryResource, list[tuple[str, int]]]:
    """A resource over another one, and the list of its calls: ("allocate" or "deallocate", bytes)."""
    calls: list[tuple[str, int]] = []

    def allocate(nbytes: int, stream: Stream) -> int:
        calls.append(("allocate", nbytes))
        return upstream.allocate(nbytes, stream)

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        calls.append(("deallocate", nbytes))
        upstream.deallocate(ptr, nbytes, stream)

    return rmm.mr.CallbackMemoryResource(allocate, deallocate), calls


def run_python(program: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new interpreter, with this one's environment and what is given."""
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run_quietly(program: str, *options: str, **environment: str) -> None:
    """The same; the program must end with status 0 and print nothing."""
    result = run_python(program, *options, **environment)
    printed = (result.returncode, result.stdout, result.stderr)
    assert printed == (0, "", ""), printed


_Make = Callable[[], rmm.mr.DeviceMemoryResource]

#: Every resource and adaptor that can be built on the host driver; small, as virtual memory is real when it is used.
RESOURCES: dict[str, _Make] = {
    "cuda": rmm.mr.CudaMemoryResource,
    "managed": rmm.mr.ManagedMemoryResource,
    "pinned_host": rmm.mr.PinnedHostMemoryResource,
    "cuda_async": rmm.mr.CudaAsyncMemoryResource,
    "vmm": rmm.mr.VmmMemoryResource,
    "pinned_pool": rmm.mr.PinnedPoolMemoryResource,
    "pool": lambda: rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), MIB, 64 * MIB),
    "arena": lambda: rmm.mr.ArenaMemoryResource(rmm.mr.CudaMemoryResource(), 64 * MIB),
    "fixed_size": lambda: rmm.mr.FixedSizeMemoryResource(rmm.mr.CudaMemoryResource(), MIB, 4),
    "binning": lambda: rmm.mr.BinningMemoryResource(rmm.mr.CudaMemoryResource(), 10, 17),
    "limiting": lambda: rmm.mr.LimitingResourceAdaptor(rmm.mr.CudaMemoryResource(), 64 * MIB),
    "statistics": lambda: rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource()),
    "tracking": lambda: rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource()),
    "prefetch": lambda: rmm.mr.PrefetchResourceAdaptor(rmm.mr.ManagedMemoryResource()),
    "debug": lambda: rmm.mr.DebugResourceAdaptor(rmm.mr.CudaMemoryResource()),
    "failure_callback": lambda: rmm.mr.FailureCallbackResourceAdaptor(
        rmm.mr.CudaMemoryResource(), lambda nbytes: False
    ),
    "callback": lambda: recording_resource(rmm.mr.CudaMemoryResource())[0],
}
if ON_HOST:
    RESOURCES["system"] = rmm.mr.SystemMemoryResource
    RESOURCES["sam_headroom"] = lambda: rmm.mr.SamHeadroomMemoryResource(MIB)
#: Those of them that need a device which reaches memory of malloc.
SYSTEM = [name for name in RESOURCES if name in ("system", "sam_headroom")]
