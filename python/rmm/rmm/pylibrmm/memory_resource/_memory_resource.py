"""Memory resources, the table of which device uses which, and their allocation logs."""

import atexit
import os
from collections.abc import Iterable
from operator import index

from rmm import _core
from rmm._core import (
    ArenaMemoryResource,
    BinningMemoryResource,
    CallbackMemoryResource,
    CudaAsyncMemoryResource,
    CudaAsyncViewMemoryResource,
    CudaMemoryResource,
    DebugResourceAdaptor,
    DeviceMemoryResource,
    FailureCallbackResourceAdaptor,
    FixedSizeMemoryResource,
    LimitingResourceAdaptor,
    LoggingResourceAdaptor,
    ManagedMemoryResource,
    PinnedHostMemoryResource,
    PinnedPoolMemoryResource,
    PoolMemoryResource,
    PrefetchResourceAdaptor,
    SamHeadroomMemoryResource,
    StatisticsResourceAdaptor,
    SystemMemoryResource,
    TrackingResourceAdaptor,
    UpstreamResourceAdaptor,
    VmmMemoryResource,
    available_device_memory,
    get_current_device_resource,
    get_per_device_resource,
    set_current_device_resource,
    set_per_device_resource,
)

__all__ = [
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "CallbackMemoryResource",
    "CudaAsyncMemoryResource",
    "CudaAsyncViewMemoryResource",
    "CudaMemoryResource",
    "DebugResourceAdaptor",
    "DeviceMemoryResource",
    "FailureCallbackResourceAdaptor",
    "FixedSizeMemoryResource",
    "LimitingResourceAdaptor",
    "LoggingResourceAdaptor",
    "ManagedMemoryResource",
    "PinnedHostMemoryResource",
    "PinnedPoolMemoryResource",
    "PoolMemoryResource",
    "PrefetchResourceAdaptor",
    "SamHeadroomMemoryResource",
    "StatisticsResourceAdaptor",
    "SystemMemoryResource",
    "TrackingResourceAdaptor",
    "UpstreamResourceAdaptor",
    "VmmMemoryResource",
    "available_device_memory",
    "disable_logging",
    "enable_logging",
    "get_current_device_resource",
    "get_current_device_resource_type",
    "get_log_filenames",
    "get_per_device_resource",
    "get_per_device_resource_type",
    "is_initialized",
    "set_current_device_resource",
    "set_per_device_resource",
]


def get_per_device_resource_type(device: int) -> type[DeviceMemoryResource]:
    """The class of the resource of a device."""
    return type(get_per_device_resource(device))


def get_current_device_resource_type() -> type[DeviceMemoryResource]:
    """The class of the resource of the current device."""
    return type(get_current_device_resource())


def is_initialized() -> bool:
    """Whether every device that has an entry has a usable resource; so it is from the import on."""
    return all(isinstance(get_per_device_resource(device), DeviceMemoryResource) for device in _core.table_devices())


def _initialize(
    pool_allocator: bool = False,
    managed_memory: bool = False,
    initial_pool_size: int | str | None = None,
    maximum_pool_size: int | str | None = None,
    devices: int | Iterable[int] | None = 0,
    logging: bool = False,
    log_file_name: str | os.PathLike[str] | None = None,
) -> None:
    """What ``rmm.reinitialize`` does after the hooks."""
    if _has_no_device():
        import warnings

        warnings.warn("there is no GPU that the driver can use: no memory resource was replaced", stacklevel=3)
        return
    listed = _device_list(devices)
    before = _core.current_device()
    _core.reset_device_table()  # before a pool is made: it takes half of what is free then
    try:
        for device in listed:
            _core.set_device(device)
            resource: DeviceMemoryResource = ManagedMemoryResource() if managed_memory else CudaMemoryResource()
            if pool_allocator:
                resource = PoolMemoryResource(resource, initial_pool_size, maximum_pool_size)
            if logging:
                resource = LoggingResourceAdaptor(resource, log_file_name)
            set_per_device_resource(device, resource)
    except BaseException:
        _core.reset_device_table()
        raise
    finally:
        _core.set_device(before)


def _has_no_device() -> bool:
    try:
        return _core.device_count() == 0
    except _core.DeviceError:
        return True


def _device_list(devices: int | Iterable[int] | None) -> list[int]:
    if devices is None:
        return [0]
    if isinstance(devices, Iterable):
        return [index(device) for device in devices]
    return [index(devices)]


def enable_logging(log_file_name: str | os.PathLike[str] | None = None) -> None:
    """Logs the allocations of every device that has an entry (of device 0 if none has) to a file for each device.

    The name is ``log_file_name``, or that of the environment variable ``RMM_LOG_FILE``, with ``.dev<number>`` in it.
    """
    before = _core.current_device()
    try:
        for device in _core.table_devices() or [0]:
            resource = get_per_device_resource(device)
            if not isinstance(resource, LoggingResourceAdaptor):
                _core.set_device(device)  # the adaptor names its file after the current device
                set_per_device_resource(device, LoggingResourceAdaptor(resource, log_file_name))
    finally:
        _core.set_device(before)


def _logging_resources() -> dict[int, LoggingResourceAdaptor]:
    resources = {device: get_per_device_resource(device) for device in _core.table_devices()}
    return {device: r for device, r in resources.items() if isinstance(r, LoggingResourceAdaptor)}


def disable_logging() -> None:
    """Takes away the log of every device whose outermost resource logs, after what it has gathered was written."""
    for device, resource in _logging_resources().items():
        resource.flush()
        set_per_device_resource(device, resource.upstream_mr)


def _flush_logs() -> None:
    """Writes what the logs of all devices have gathered."""
    for resource in _logging_resources().values():
        resource.flush()


def get_log_filenames() -> dict[int, str | None]:
    """The absolute path of the log of every device that has an entry; None for those that do not log."""
    logs = _logging_resources()
    return {
        device: os.path.abspath(logs[device].get_file_name()) if device in logs else None
        for device in _core.table_devices()
    }


@atexit.register
def _end() -> None:
    _core.clear_device_table()
    _core._begin_exit()
