"""PyTorch tensors whose memory comes from rmm.

``torch.cuda.memory.change_current_allocator(rmm_torch_allocator)``, before PyTorch has allocated anything on a GPU.
"""

from typing import Any

__all__ = ["rmm_torch_allocator"]


def _allocator() -> Any:
    """PyTorch's pluggable allocator over ours; None without PyTorch, or without a GPU that it can use."""
    try:
        import torch
        from torch.cuda.memory import CUDAPluggableAllocator
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    import os

    import rmm.librmm

    path = os.path.join(os.path.dirname(rmm.librmm.__file__), "_torch_allocator.so")
    allocator = CUDAPluggableAllocator(path, "allocate", "deallocate")
    _fill_hooks(allocator.allocator(), path)
    return allocator


# PyTorch's setters, and the functions of the library that they take. PyTorch versions differ in what they have.
_HOOKS = {
    "set_record_stream_fn": "record_stream",
    "set_reset_fn": "reset",
    "set_base_alloc_fn": "base_alloc",
    "set_begin_allocate_to_pool": "begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "end_allocate_to_pool",
    "set_release_pool": "release_pool",
}


def _fill_hooks(pluggable: Any, path: str) -> None:
    import ctypes

    library = ctypes.CDLL(path)
    for setter, function in _HOOKS.items():
        if hasattr(pluggable, setter):
            getattr(pluggable, setter)(ctypes.cast(getattr(library, function), ctypes.c_void_p).value)


rmm_torch_allocator: Any = _allocator()
