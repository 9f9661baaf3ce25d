"""Levels of the debug log."""

from enum import IntEnum

__all__ = ["level_enum"]


class level_enum(IntEnum):
    """How much a message matters; a level that is set lets through those at it and above."""

    trace = 0
    debug = 1
    info = 2
    warn = 3
    error = 4
    critical = 5
    off = 6
    n_levels = 7
