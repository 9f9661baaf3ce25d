"""Devices: which there are, which is current, what they can do."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from rmm import _core

__all__ = [
    "CUDADriverError",
    "CUDARuntimeError",
    "deviceGetName",
    "driverGetVersion",
    "getDevice",
    "getDeviceAttribute",
    "getDeviceCount",
    "getDeviceProperties",
    "runtimeGetVersion",
    "setDevice",
]

_Result = TypeVar("_Result")


class CUDARuntimeError(RuntimeError):
    """A call of the CUDA runtime failed with ``status``."""

    def __init__(self, status: int) -> None:
        self.status = status
        name, text = _core.describe_status(int(status), False)
        super().__init__(f"{name}: {text}")

    def __reduce__(self) -> tuple[type["CUDARuntimeError"], tuple[int]]:
        return type(self), (self.status,)


class CUDADriverError(RuntimeError):
    """A call of the CUDA driver failed with ``status``."""

    def __init__(self, status: int) -> None:
        self.status = status
        name, text = _core.describe_status(int(status), True)
        super().__init__(f"{name}: {text}")

    def __reduce__(self) -> tuple[type["CUDADriverError"], tuple[int]]:
        return type(self), (self.status,)


def _ask(function: Callable[..., _Result], *args: int) -> _Result:
    try:
        return function(*args)
    except _core.DeviceError as error:
        raise CUDARuntimeError(error.args[0]) from error


def driverGetVersion() -> int:
    """1000 * major + 10 * minor of the CUDA that the driver supports; 0 without a driver."""
    return _ask(_core.driver_version)


def runtimeGetVersion() -> int:
    """1000 * major + 10 * minor of the CUDA runtime."""
    return _ask(_core.runtime_version)


def getDevice() -> int:
    """The calling thread's current device."""
    return _ask(_core.current_device)


def setDevice(device: int) -> None:
    """Makes a device the calling thread's current one, for all libraries."""
    _ask(_core.set_device, device)


def getDeviceCount() -> int:
    """How many devices there are."""
    return _ask(_core.device_count)


def getDeviceAttribute(attr: int, device: int) -> int:
    """An attribute by its number, or by ``cuda.bindings``' enum."""
    return _ask(_core.device_attribute, attr, device)


def getDeviceProperties(device: int) -> Any:
    """``cuda.bindings``' ``cudaDeviceProp`` where that package and a GPU are present.

    Else an object with at least ``name``, ``totalGlobalMem``, ``major``, ``minor`` and ``multiProcessorCount``.
    """
    properties = _ask(_core.device_properties, device)
    if driverGetVersion() != 0:
        try:
            from cuda.bindings import runtime
        except ImportError:
            pass
        else:
            status, found = runtime.cudaGetDeviceProperties(device)
            if status == 0:
                return found
    return SimpleNamespace(**properties)


def deviceGetName(device: int) -> str:
    """The name of a device."""
    return _ask(_core.device_name, device)
