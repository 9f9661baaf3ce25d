"""Memory resources, and the table of which device uses which."""

from rmm.pylibrmm.memory_resource import _memory_resource, experimental
from rmm.pylibrmm.memory_resource._memory_resource import *  # noqa: F403

__all__ = ["experimental"]
__all__ += _memory_resource.__all__  # the one list of these names
