"""Numba device arrays whose memory comes from rmm.

Use: ``numba.cuda.set_memory_manager(RMMNumbaManager)``, or the environment variable
``NUMBA_CUDA_MEMORY_MANAGER=rmm.allocators.numba``.
"""

import ctypes
from typing import Any

from rmm._core import DeviceBuffer

try:
    from numba import cuda
except ImportError as error:
    raise ImportError("rmm.allocators.numba needs the package numba-cuda (or numba), which is not installed") from error
if not hasattr(cuda, "HostOnlyCUDAMemoryManager"):
    raise ImportError("rmm.allocators.numba does not work with Numba's CUDA simulator, which has no memory managers")

__all__ = ["RMMNumbaManager"]

_MemoryPointer = cuda.MemoryPointer


def _driver_bindings() -> Any:
    """NVIDIA's bindings, where this Numba uses them for its pointers; else None."""
    from numba.cuda.cudadrv import driver

    if getattr(driver, "USE_NV_BINDING", True):
        try:
            from cuda.bindings import driver as bindings
        except ImportError:
            return None
        return bindings
    return None


_bindings = _driver_bindings()
_pointer_type = ctypes.c_uint64 if _bindings is None else _bindings.CUdeviceptr


class RMMNumbaManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Numba's External Memory Management over the current device's resource. Host memory stays Numba's own."""

    def initialize(self) -> None:
        """Nothing: rmm looks for a device when it needs one."""

    @property
    def interface_version(self) -> int:
        return 1

    def memalloc(self, size: int) -> Any:
        """A pointer to ``size`` bytes on the default stream; the memory lives until Numba calls the finalizer."""
        buffer = DeviceBuffer(size=size)
        ptr = buffer.ptr
        if ptr == 0:
            return _MemoryPointer(self.context, _pointer_type(0), size)
        allocations = self.allocations
        allocations[ptr] = buffer

        def finalizer() -> None:
            if allocations:  # a reset of the context has emptied it
                del allocations[ptr]

        return _MemoryPointer(self.context, _pointer_type(ptr), size, finalizer=finalizer)

    def get_ipc_handle(self, memory: Any) -> Any:
        """A handle by which another process opens the allocation that ``memory`` lies in."""
        if _bindings is None:
            raise NotImplementedError("handles for other processes need the package cuda-bindings")
        address = int(memory.handle if hasattr(memory, "handle") else memory.device_pointer)
        status, base, _ = _bindings.cuMemGetAddressRange(_bindings.CUdeviceptr(address))
        _check(status, "the allocation that the memory lies in was not found")
        status, handle = _bindings.cuIpcGetMemHandle(base)
        _check(
            status,
            "this memory has no handle for other processes: memory of driver pools (CudaAsyncMemoryResource) and "
            "mapped memory (VmmMemoryResource) has none, that of CudaMemoryResource, and of pools over it, has one",
        )
        source = self.context.device.get_device_identity()
        return cuda.IpcHandle(memory, handle, memory.size, source, offset=address - int(base))

    def get_memory_info(self) -> Any:
        """Not offered: what is free on the device does not say what a pool can still serve."""
        raise NotImplementedError("rmm does not report free memory to Numba: use rmm.mr.available_device_memory()")


def _check(status: Any, text: str) -> None:
    if int(status) != 0:
        raise RuntimeError(f"{text} ({status.name})")


_numba_memory_manager = RMMNumbaManager
