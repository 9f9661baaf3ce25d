"""Streams, buffers and resources: the classes of the native library under RMM's names."""

from rmm.pylibrmm import (
    cuda_stream,
    cuda_stream_pool,
    device_buffer,
    helper,
    logger,
    memory_resource,
    stream,
    utils,
)
from rmm.pylibrmm.cuda_stream import CudaStreamFlags
from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from rmm.pylibrmm.device_buffer import DeviceBuffer

__all__ = [
    "CudaStreamFlags",
    "CudaStreamPool",
    "DeviceBuffer",
    "cuda_stream",
    "cuda_stream_pool",
    "device_buffer",
    "helper",
    "logger",
    "memory_resource",
    "stream",
    "utils",
]
