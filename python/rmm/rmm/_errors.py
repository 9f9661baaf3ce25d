"""Exceptions of the package. The native module raises them."""

from typing import Any


class OutOfMemoryError(MemoryError):
    """Memory, or a configured limit, is known to be exhausted. ``str()`` is the full report.

    Sizes are in bytes, 0 where unknown.
    """

    device: int = -1  #: number of the GPU, -1 where unknown
    limit: str = "unknown"  #: what is exhausted: "device", "host", "maximum" (of a pool or limit) or "unknown"
    requested_bytes: int = 0
    device_free_bytes: int = 0
    device_total_bytes: int = 0
    pool_bytes: int = 0  #: what the pool holds from its upstream
    pool_in_use_bytes: int = 0
    pool_free_bytes: int = 0
    pool_largest_free_bytes: int = 0  #: the largest request that the pool could still serve
    pool_maximum_bytes: int = 0  #: 0: none
    pool_num_blocks: int = 0  #: in use
    other_pools_bytes: int = 0  #: of the device, held by other resources of this process
    elsewhere_bytes: int = 0  #: of the device, in use by others: other processes, the driver, the program itself
    largest_tag: str | None = None  #: which memory tag has most of the pool
    largest_tag_bytes: int = 0

    def __init__(self, *args: object, **fields: Any) -> None:
        super().__init__(*args)
        self.__dict__.update(fields)


OutOfMemoryError.__module__ = "rmm"  # the name that programs use, in tracebacks and pickles
