"""Untyped device memory, and copies between it and the host."""

from typing import TYPE_CHECKING

from rmm._core import DEFAULT_STREAM, DeviceBuffer, copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host
from rmm._core import to_device as _to_device

if TYPE_CHECKING:
    from rmm._core import _HostBytes, _StreamLike

__all__ = ["DeviceBuffer", "copy_device_to_ptr", "copy_host_to_ptr", "copy_ptr_to_host", "to_device"]


def to_device(b: "_HostBytes", stream: "_StreamLike" = DEFAULT_STREAM) -> DeviceBuffer:
    """A DeviceBuffer with a copy of a bytes-like object. Pickles of buffers name this function."""
    return _to_device(b, stream)
