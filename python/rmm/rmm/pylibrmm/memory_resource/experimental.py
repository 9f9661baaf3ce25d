"""Resources whose interface may still change."""

from rmm._core import CudaAsyncManagedMemoryResource

__all__ = ["CudaAsyncManagedMemoryResource"]
