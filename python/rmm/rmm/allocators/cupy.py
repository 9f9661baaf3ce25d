"""CuPy arrays whose memory comes from rmm."""

import sys
from typing import Any

from rmm._core import DeviceBuffer, cupy_functions, current_device

__all__ = ["native_allocator", "rmm_cupy_allocator"]

# What rmm_cupy_allocator calls, of the CuPy that was imported at its last call.
_cupy: Any = None
_current_stream: Any
_unowned_memory: Any
_memory_pointer: Any
_native: Any = None


def _bind() -> None:
    global _cupy, _current_stream, _unowned_memory, _memory_pointer, _native
    import cupy

    _current_stream = cupy.cuda.get_current_stream
    _unowned_memory = cupy.cuda.UnownedMemory
    _memory_pointer = cupy.cuda.MemoryPointer
    _native = None
    _cupy = cupy


def rmm_cupy_allocator(nbytes: int) -> Any:
    """For ``cupy.cuda.set_allocator``: a ``MemoryPointer`` of a DeviceBuffer on CuPy's current stream."""
    if sys.modules.get("cupy") is not _cupy or _cupy is None:
        _bind()
    buffer = DeviceBuffer(size=nbytes, stream=_current_stream())
    # The device is given: for a null pointer CuPy demands it, for others it would ask the driver.
    return _memory_pointer(_unowned_memory(buffer.ptr, nbytes, buffer, current_device()), 0)


class _PythonAllocator:
    """Stands in for CuPy's allocator of C functions where that cannot tell us its current stream."""

    @staticmethod
    def malloc(nbytes: int) -> Any:
        return rmm_cupy_allocator(nbytes)


def native_allocator() -> Any:
    """CuPy's ``CFunctionAllocator`` over rmm: ``cupy.cuda.set_allocator(native_allocator().malloc)``.

    No Python runs between CuPy and the resource, but for the first block in use of a stream. Memory is freed on the
    stream that was current when it was made, and keeps that stream.
    """
    global _native
    if sys.modules.get("cupy") is not _cupy or _cupy is None:
        _bind()
    if _native is None:
        try:
            allocate, free = cupy_functions()
        except ImportError:  # a CuPy that does not export its current stream to C
            _native = _PythonAllocator()
        else:
            _native = _function_allocator(allocate, free)
    return _native


def _function_allocator(allocate: int, free: int) -> Any:
    base: Any = _cupy.cuda.memory.CFunctionAllocator

    class NativeAllocator(base):  # type: ignore[misc]
        """CuPy's allocator over the C functions of rmm; the owner of the memory that it gives out."""

        def __init__(self) -> None:
            super().__init__(0, allocate, free, self)

    return NativeAllocator()
