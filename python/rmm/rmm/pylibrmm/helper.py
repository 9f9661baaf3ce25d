"""Sizes as text."""

from rmm._core import parse_bytes

__all__ = ["parse_bytes"]
