"""Devices."""

from rmm._cuda import gpu

__all__ = ["gpu"]
