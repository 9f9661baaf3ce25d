"""What the programs here share: the C interface of rmm, as a binding by ctypes sees it, and how a test of a library that may not be
there ends.

Must not know: PyTorch, CuPy.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from pathlib import Path
from types import ModuleType

SKIPPED = 77  # what CTest takes for a test that was left out


class Statistics(ctypes.Structure):
    """`rmm_statistics` of <rmm/rmm.h>."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("known", ctypes.c_uint64),
        *((name, ctypes.c_size_t) for name in ("held", "in_use", "free", "largest_free", "maximum", "blocks", "upstream_blocks")),
        *((name, ctypes.c_int64) for name in ("bytes_now", "bytes_peak", "bytes_total", "blocks_now", "blocks_peak", "blocks_total")),
        ("allocated", ctypes.c_size_t),
        ("limit", ctypes.c_size_t),
    ]


class Rmm:
    """The library at a path, with the functions that a program with hooks calls."""

    def __init__(self, path: str) -> None:
        # The packages bring the shared C++ library; with another inside ours, the dynamic linker would mix the two.
        if b"libstdc++.so" not in Path(path).read_bytes():
            print(f"left out: {path} has a C++ library of its own inside")
            sys.exit(SKIPPED)
        self.c = ctypes.CDLL(path)
        self.c.rmm_last_error.restype = ctypes.c_char_p
        self.c.rmm_set_hook_stream.restype = ctypes.c_void_p
        self.c.rmm_set_hook_stream.argtypes = [ctypes.c_void_p]
        for of_handle in ("rmm_release", "rmm_get_statistics", "rmm_trim"):
            getattr(self.c, of_handle).argtypes = [ctypes.c_void_p] + [ctypes.c_void_p] * (of_handle != "rmm_release")
        self.c.rmm_trim.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.c.rmm_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
        self.c.rmm_set_device_resource.argtypes = [ctypes.c_int, ctypes.c_void_p]

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"code {status}: {self.c.rmm_last_error().decode()}")

    def open(self, kind: str, options: str = "", upstream: ctypes.c_void_p | None = None) -> ctypes.c_void_p:
        opened = ctypes.c_void_p()
        self.check(self.c.rmm_open(kind.encode(), options.encode(), upstream, ctypes.byref(opened)))
        return opened

    def statistics(self, resource: ctypes.c_void_p) -> Statistics:
        now = Statistics(struct_size=ctypes.sizeof(Statistics))
        self.check(self.c.rmm_get_statistics(resource, ctypes.byref(now)))
        return now

    def address(self, function: str) -> int:
        found = ctypes.cast(getattr(self.c, function), ctypes.c_void_p).value
        assert found is not None
        return found


def library_or_skip(name: str) -> ModuleType:
    """Ends the program with `SKIPPED` where the library is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        print(f"left out: {e}")
        sys.exit(SKIPPED)
