"""Names of earlier versions of the interface. They work, and warn."""

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def warn_of_old_name(old: str, new: str, stacklevel: int = 3) -> None:
    """A FutureWarning at the line that used the old name; ``stacklevel`` as seen by ``warnings.warn``."""
    warnings.warn(f"{old} is an old name: use {new}", FutureWarning, stacklevel=stacklevel)


def attribute_of_rmm(name: str) -> Any:
    """What ``rmm.<name>`` gives for names that the package no longer has."""
    if name == "_numba_memory_manager":  # silent: Numba, which reads it, makes a failure of any warning
        from rmm.allocators.numba import RMMNumbaManager

        return RMMNumbaManager
    if name not in _REPLACEMENTS:
        raise AttributeError(f"module 'rmm' has no attribute {name!r}")
    replacement, give = _REPLACEMENTS[name]
    warn_of_old_name(f"rmm.{name}", replacement, stacklevel=4)
    return give()


def _stream(number_or_stream: Any) -> Any:
    """A stream of any kind, or the number of its handle, as a Stream."""
    from rmm.pylibrmm.stream import Stream

    if isinstance(number_or_stream, int):
        handle = number_or_stream
        return Stream(SimpleNamespace(__cuda_stream__=lambda: (0, handle)))
    return Stream(number_or_stream)


def _numba_array(shape: Any, strides: Any, dtype: Any, stream: Any, memory: Any) -> Any:
    from numba.cuda.cudadrv.devicearray import DeviceNDArray

    return DeviceNDArray(shape=shape, strides=strides, dtype=dtype, stream=stream, gpu_data=memory)


def device_array(shape: Any, dtype: Any = float, strides: Any = None, order: str = "C", stream: Any = 0) -> Any:
    """A Numba device array whose memory a DeviceBuffer owns."""
    import numpy as np
    from numba import cuda

    from rmm.allocators.numba import _pointer_type
    from rmm.pylibrmm.device_buffer import DeviceBuffer

    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if strides is None:
        itemsize = dtype.itemsize
        extents = shape if order == "F" else shape[::-1]
        packed = [itemsize * int(np.prod(extents[:axis], dtype=np.int64)) for axis in range(len(extents))]
        strides = tuple(packed if order == "F" else packed[::-1])
    else:
        strides = (strides,) if isinstance(strides, int) else tuple(strides)
    # What the array spans: one element, and the last index of each axis times its stride.
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    nbytes = 0 if 0 in shape else last + dtype.itemsize
    buffer = DeviceBuffer(size=nbytes, stream=_stream(stream))
    memory = cuda.MemoryPointer(cuda.current_context(), _pointer_type(buffer.ptr), nbytes, owner=buffer)
    return _numba_array(shape, strides, dtype, stream, memory)


def device_array_like(ary: Any, stream: Any = 0) -> Any:
    """A Numba device array of the same shape, type and order, whose memory a DeviceBuffer owns."""
    order = "F" if ary.ndim > 1 and ary.flags["F_CONTIGUOUS"] and not ary.flags["C_CONTIGUOUS"] else "C"
    return device_array(ary.shape, ary.dtype, order=order, stream=stream)


def device_array_from_ptr(
    ptr: int, nelem: int, dtype: Any = float, finalizer: Callable[[], object] | None = None
) -> Any:
    """A Numba device array over memory of the caller; ``finalizer()`` is called when the array is gone."""
    import numpy as np
    from numba import cuda

    from rmm.allocators.numba import _pointer_type

    dtype = np.dtype(dtype)
    memory = cuda.MemoryPointer(cuda.current_context(), _pointer_type(ptr), dtype.itemsize * nelem, finalizer=finalizer)
    return _numba_array((nelem,), (dtype.itemsize,), dtype, 0, memory)


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
    """A DeviceBuffer of bytes; of a NumPy array a Numba device array, ``to`` if it is given."""
    if isinstance(obj, bytes | bytearray | memoryview):
        from rmm.pylibrmm.device_buffer import DeviceBuffer

        return DeviceBuffer.to_device(obj, _stream(stream))
    if to is None:
        to = device_array_like(obj, stream)
    if copy:
        to.copy_to_device(obj, stream=stream)
    return to


def _cupy_allocator() -> Any:
    from rmm.allocators.cupy import rmm_cupy_allocator

    return rmm_cupy_allocator


def _numba_manager() -> Any:
    from rmm.allocators.numba import RMMNumbaManager

    return RMMNumbaManager


def _levels() -> Any:
    from rmm.librmm._logger import level_enum

    names = {"WARN": "warn", "ERR": "error"}
    return SimpleNamespace(
        **{
            name: level_enum[names.get(name, name.lower())]
            for name in ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "CRITICAL", "OFF")
        }
    )


# Old names of rmm: what to use instead, and what the name gives.
_REPLACEMENTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "to_device": ("rmm.DeviceBuffer.to_device or numba.cuda.to_device", lambda: to_device),
    "device_array": ("numba.cuda.device_array with rmm.allocators.numba", lambda: device_array),
    "device_array_like": ("numba.cuda.device_array_like with rmm.allocators.numba", lambda: device_array_like),
    "device_array_from_ptr": ("numba.cuda.as_cuda_array", lambda: device_array_from_ptr),
    "rmm_cupy_allocator": ("rmm.allocators.cupy.rmm_cupy_allocator", _cupy_allocator),
    "RMMNumbaManager": ("rmm.allocators.numba.RMMNumbaManager", _numba_manager),
    "logging_level": ("rmm.level_enum", _levels),
}
