"""Memory resources, and the table of which device uses which."""

from typing import TYPE_CHECKING

from rmm.mr import experimental
from rmm.pylibrmm.memory_resource import _memory_resource
from rmm.pylibrmm.memory_resource._memory_resource import *  # noqa: F403
from rmm.pylibrmm.memory_resource._memory_resource import _flush_logs as _flush_logs
from rmm.pylibrmm.memory_resource._memory_resource import _initialize as _initialize

__all__ = ["experimental"]
__all__ += _memory_resource.__all__  # the one list of these names

if not TYPE_CHECKING:

    def __getattr__(name):
        if name == "MemoryResource":
            from rmm._deprecated import warn_of_old_name
            from rmm.pylibrmm.memory_resource import DeviceMemoryResource

            warn_of_old_name("rmm.mr.MemoryResource", "rmm.mr.DeviceMemoryResource")
            return DeviceMemoryResource
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
