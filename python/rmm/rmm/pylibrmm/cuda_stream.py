"""Owners of stream handles."""

from rmm._core import CudaStream, CudaStreamFlags

__all__ = ["CudaStream", "CudaStreamFlags"]
