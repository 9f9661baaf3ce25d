"""Checks of arguments."""

from rmm._core import as_stream

__all__ = ["as_stream"]
