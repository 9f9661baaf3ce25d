"""The debug log: what it lets through, and when it writes to its file."""

import warnings

from rmm import _core
from rmm.librmm._logger import level_enum

__all__ = [
    "flush_logger",
    "get_flush_level",
    "get_logging_level",
    "level_enum",
    "set_flush_level",
    "set_logging_level",
    "should_log",
]


def _refuse_others(level: object) -> None:
    if not isinstance(level, level_enum):
        raise TypeError("level must be an instance of the level_enum enum")


def _warn_of_silence(level: level_enum) -> None:
    if level < _core.logger_level():
        warnings.warn(
            f"RMM will not log level_enum.{level.name}. The log's level is level_enum.{get_logging_level().name}: "
            f"only messages at that level and above are logged.",
            stacklevel=3,
        )


def should_log(level: level_enum) -> bool:
    """Whether a message of this level would be logged."""
    _refuse_others(level)
    return level >= _core.logger_level()


def set_logging_level(level: level_enum) -> None:
    """Logs messages of this level and above from now on."""
    _refuse_others(level)
    _core.logger_set_level(level)
    _warn_of_silence(level)


def get_logging_level() -> level_enum:
    """The lowest level that is logged."""
    return level_enum(_core.logger_level())


def set_flush_level(level: level_enum) -> None:
    """Messages of this level and above are written at once, with all before them."""
    _refuse_others(level)
    _core.logger_set_flush_level(level)
    _warn_of_silence(level)


def get_flush_level() -> level_enum:
    """The lowest level that is written at once."""
    return level_enum(_core.logger_flush_level())


def flush_logger() -> None:
    """Writes what the log has gathered."""
    _core.logger_flush()
