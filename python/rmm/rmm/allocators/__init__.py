"""Other libraries' memory from rmm: CuPy's, Numba's, PyTorch's."""

from typing import TYPE_CHECKING

__all__ = ["cupy", "numba", "torch"]

if TYPE_CHECKING:
    from rmm.allocators import cupy, numba, torch
else:

    def __getattr__(name):
        if name in __all__:
            from importlib import import_module

            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
