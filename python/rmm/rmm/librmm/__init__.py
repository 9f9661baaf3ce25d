"""What is closest to the native library: levels of its logger, and its allocator for PyTorch."""

from rmm.librmm import _logger

__all__ = ["_logger"]
