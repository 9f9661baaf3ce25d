"""Device memory for Python: buffers, memory resources, streams, statistics and logs."""

from typing import TYPE_CHECKING

from rmm import _installation

_installation.refuse_clash(__path__[0])

from rmm import _cuda as _cuda  # noqa: E402
from rmm import librmm as librmm  # noqa: E402
from rmm import mr  # noqa: E402
from rmm import pylibrmm as pylibrmm  # noqa: E402
from rmm import statistics as statistics  # noqa: E402
from rmm._core import native_version as _native_version  # noqa: E402
from rmm._errors import OutOfMemoryError as OutOfMemoryError  # noqa: E402
from rmm._reports import memory_report as memory_report  # noqa: E402
from rmm._reports import memory_tag as memory_tag  # noqa: E402
from rmm._version import __git_commit__ as __git_commit__  # noqa: E402
from rmm._version import __version__ as __version__  # noqa: E402
from rmm.mr import disable_logging, enable_logging, get_log_filenames  # noqa: E402
from rmm.pylibrmm.device_buffer import DeviceBuffer  # noqa: E402
from rmm.pylibrmm.logger import (  # noqa: E402
    flush_logger,
    get_flush_level,
    get_logging_level,
    level_enum,
    set_flush_level,
    set_logging_level,
    should_log,
)
from rmm.rmm import (  # noqa: E402
    RMMError,
    is_initialized,
    register_reinitialize_hook,
    reinitialize,
    unregister_reinitialize_hook,
)

__all__ = [
    "DeviceBuffer",
    "RMMError",
    "disable_logging",
    "enable_logging",
    "flush_logger",
    "get_flush_level",
    "get_log_filenames",
    "get_logging_level",
    "is_initialized",
    "level_enum",
    "mr",
    "register_reinitialize_hook",
    "reinitialize",
    "set_flush_level",
    "set_logging_level",
    "should_log",
    "unregister_reinitialize_hook",
]

__kmm_version__: str = _native_version()

if TYPE_CHECKING:
    from rmm import allocators as allocators
else:

    def __getattr__(name):
        if name in ("allocators", "_lib"):  # at the first use: they import other libraries
            from importlib import import_module

            return import_module(f"{__name__}.{name}")
        from rmm._deprecated import attribute_of_rmm

        return attribute_of_rmm(name)
