"""Untyped device memory, and copies between it and the host."""

from rmm._core import DeviceBuffer, copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host, to_device

__all__ = ["DeviceBuffer", "copy_device_to_ptr", "copy_host_to_ptr", "copy_ptr_to_host", "to_device"]
