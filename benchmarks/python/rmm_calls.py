"""What Python adds to a call: one operation of `rmm`, in a loop of 20 000, the best of five; of CuPy, PyTorch and Numba
over it too.

Runs with this project's `rmm` and with RAPIDS', whichever is imported, so that both can be measured on one machine.
Each part is a process of its own, since the libraries take no other allocator later.

usage: rmm_calls.py [calls] [copies] [cupy] [torch] [numba] [import]
Output: a line of JSON for each figure: name, value, unit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 5
STEPS = 20_000
PARTS = ("calls", "copies", "cupy", "torch", "numba", "import")


def best(step: Callable[[], Any], steps: int = STEPS, settle: Callable[[], Any] = lambda: None) -> float:
    """Nanoseconds for one step, the loop around it included."""

    def loop(f: Callable[[], Any]) -> float:
        shortest = float("inf")
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for _ in range(steps):
                f()
            shortest = min(shortest, time.perf_counter() - begin)
            settle()
        return shortest / steps * 1e9

    loop(step)  # first uses
    return loop(step)


def show(name: str, value: float, unit: str = "ns") -> None:
    print(json.dumps({"name": f"rmm_python/{name}", "value": round(value, 1), "unit": unit}), flush=True)


def use_pool() -> Any:
    import rmm

    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 28, 1 << 30)
    rmm.mr.set_current_device_resource(pool)
    return pool


def calls() -> None:
    import rmm
    import rmm.statistics
    from rmm.pylibrmm.stream import Stream

    pool = use_pool()
    s = Stream()
    buffer = rmm.DeviceBuffer
    show("buffer_on_stream", best(lambda: buffer(size=1024, stream=s)))
    show("buffer", best(lambda: buffer(size=1024)))

    def pair() -> None:
        pool.deallocate(pool.allocate(1024, s), 1024, s)

    show("allocate_deallocate", best(pair))
    rmm.mr.set_current_device_resource(rmm.mr.StatisticsResourceAdaptor(pool))
    show("buffer_under_statistics", best(lambda: buffer(size=1024, stream=s)))

    @rmm.statistics.profiler()
    def profiled() -> None:
        buffer(size=1024, stream=s)

    show("buffer_in_profiled_function", best(profiled))
    rmm.mr.set_current_device_resource(pool)
    callback = rmm.mr.CallbackMemoryResource(
        lambda size, stream: pool.allocate(size, stream), lambda ptr, size, stream: pool.deallocate(ptr, size, stream)
    )
    show("buffer_of_callbacks", best(lambda: buffer(size=1024, stream=s, mr=callback)))


def copies() -> None:
    import numpy as np

    import rmm

    use_pool()
    buffer = rmm.DeviceBuffer
    mebibyte = np.zeros(1 << 20, dtype="u1")
    small = np.zeros(64, dtype="u1")
    on_device = buffer.to_device(mebibyte)
    little = buffer.to_device(small)
    show("to_device_1MiB", best(lambda: buffer.to_device(mebibyte), 1000))
    show("copy_to_host_1MiB", best(lambda: on_device.copy_to_host(mebibyte), 1000))
    show("copy_to_host_64B", best(lambda: little.copy_to_host(small), 5000))


def cupy() -> None:
    import cupy as library

    from rmm.allocators import cupy as allocators

    def measure(name: str) -> None:
        show(name, best(lambda: library.empty(256, "f4"), settle=library.cuda.runtime.deviceSynchronize))

    measure("cupy_empty_own_pool")
    use_pool()
    library.cuda.set_allocator(allocators.rmm_cupy_allocator)
    measure("cupy_empty")
    if hasattr(allocators, "native_allocator"):
        library.cuda.set_allocator(allocators.native_allocator().malloc)
        measure("cupy_empty_native")


def torch() -> None:
    import torch as library

    if "own" in sys.argv:
        show("torch_empty_own_pool", best(lambda: library.empty(256, device="cuda")))
        return
    from rmm.allocators.torch import rmm_torch_allocator

    use_pool()
    library.cuda.memory.change_current_allocator(rmm_torch_allocator)
    show("torch_empty", best(lambda: library.empty(256, device="cuda")))


def numba() -> None:
    from numba import cuda

    if "own" in sys.argv:
        manager = constant_manager()
    else:
        from rmm.allocators.numba import RMMNumbaManager as manager

        use_pool()
    cuda.set_memory_manager(manager)
    name = "numba_device_array_of_constant_pointer" if "own" in sys.argv else "numba_device_array"
    show(name, best(lambda: cuda.device_array(256, "f4"), 2000))


def constant_manager() -> Any:
    """A memory manager that does nothing: what Numba itself costs."""
    from numba import cuda

    class Constant(cuda.HostOnlyCUDAMemoryManager):
        held = None

        def initialize(self) -> None:
            pass

        def memalloc(self, size: int) -> Any:
            if Constant.held is None:
                import rmm

                Constant.held = rmm.DeviceBuffer(size=1 << 20)
            try:
                from cuda.bindings.driver import CUdeviceptr
            except ImportError:
                from cuda.cuda import CUdeviceptr
            return cuda.MemoryPointer(self.context, CUdeviceptr(Constant.held.ptr), size, finalizer=lambda: None)

        def get_memory_info(self) -> Any:
            raise NotImplementedError

        def get_ipc_handle(self, memory: Any) -> Any:
            raise NotImplementedError

        @property
        def interface_version(self) -> int:
            return 1

    return Constant


def import_time() -> None:
    program = "import time, numpy; b = time.perf_counter(); import rmm; print((time.perf_counter() - b) * 1e3)"
    times = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(7)
    ]
    show("import", min(times), "ms")


def main() -> None:
    wanted = [p for p in sys.argv[1:] if p in PARTS]
    if len(wanted) == 1:
        {"calls": calls, "copies": copies, "cupy": cupy, "torch": torch, "numba": numba, "import": import_time}[
            wanted[0]
        ]()
        return
    for part in wanted or PARTS:
        for how in ([], ["own"]) if part in ("torch", "numba") else ([],):
            done = subprocess.run([sys.executable, __file__, part, *how], check=False)
            if done.returncode != 0:
                print(
                    json.dumps({"name": f"rmm_python/{part}", "skipped": f"ended with {done.returncode}"}), flush=True
                )


if __name__ == "__main__":
    main()
