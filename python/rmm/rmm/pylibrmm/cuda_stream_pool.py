"""Streams that are handed out in turn."""

from rmm._core import CudaStreamFlags, CudaStreamPool

__all__ = ["CudaStreamFlags", "CudaStreamPool"]
