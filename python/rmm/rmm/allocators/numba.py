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


def _type_of_pointers() -> Any:
    """NVIDIA's, where this Numba uses NVIDIA's bindings; else a C type."""
    from numba.cuda.cudadrv import driver

    if getattr(driver, "USE_NV_BINDING", True):
        try:
            from cuda.bindings.driver import CUdeviceptr
        except ImportError:
            pass
        else:
            return CUdeviceptr
    return ctypes.c_uint64


_pointer_type = _type_of_pointers()


class RMMNumbaManager(cuda.GetIpcHandleMixin, cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
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
        try:
            return super().get_ipc_handle(memory)
        except Exception as error:
            raise RuntimeError(
                "this memory has no handle for other processes: memory of driver pools (CudaAsyncMemoryResource) and "
                "mapped memory (VmmMemoryResource) have none; that of CudaMemoryResource, and of pools over it, has one"
            ) from error

    def get_memory_info(self) -> Any:
        """Not offered: what is free on the device does not say what a pool can still serve."""
        raise NotImplementedError("rmm does not report free memory to Numba: use rmm.mr.available_device_memory()")


_numba_memory_manager = RMMNumbaManager
