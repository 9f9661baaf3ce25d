"""Setting up memory resources for all devices at once."""

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, TypeVar

from rmm import mr

__all__ = [
    "RMMError",
    "is_initialized",
    "register_reinitialize_hook",
    "reinitialize",
    "unregister_reinitialize_hook",
]

_Function = TypeVar("_Function", bound=Callable[..., object])


class RMMError(Exception):
    """An error with a number. Nothing raises it; libraries import it."""

    def __init__(self, errcode: object, msg: str) -> None:
        self.errcode = errcode
        super().__init__(msg)

    def __reduce__(self) -> tuple[type["RMMError"], tuple[object, str]]:
        return type(self), (self.errcode, str(self))


_reinitialize_hooks: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = []


def reinitialize(
    pool_allocator: bool = False,
    managed_memory: bool = False,
    initial_pool_size: int | str | None = None,
    maximum_pool_size: int | str | None = None,
    devices: int | Iterable[int] | None = 0,
    logging: bool = False,
    log_file_name: str | PathLike[str] | None = None,
) -> None:
    """Replaces the memory resource of every device, after the registered hooks have run, last registered first.

    ``devices`` get a ``CudaMemoryResource``, or a ``ManagedMemoryResource`` with ``managed_memory``; under a
    ``PoolMemoryResource`` with ``pool_allocator`` and a ``LoggingResourceAdaptor`` with ``logging``. All other devices
    get a ``CudaMemoryResource``, also where C or C++ has set another. Sizes are bytes or text such as ``"1GiB"``.
    Buffers made before keep the resource that they came from. If a resource cannot be built the exception goes on, and
    every device has a ``CudaMemoryResource``.
    """
    for function, args, kwargs in reversed(_reinitialize_hooks.copy()):
        function(*args, **kwargs)
    mr._initialize(
        pool_allocator=pool_allocator,
        managed_memory=managed_memory,
        initial_pool_size=initial_pool_size,
        maximum_pool_size=maximum_pool_size,
        devices=devices,
        logging=logging,
        log_file_name=log_file_name,
    )


def is_initialized() -> bool:
    """Whether every device that has an entry has a usable resource; so it is from the import on."""
    return mr.is_initialized()


def register_reinitialize_hook(func: _Function, *args: Any, **kwargs: Any) -> _Function:
    """``func(*args, **kwargs)`` is called by every ``reinitialize`` before it replaces resources. Returns ``func``."""
    _reinitialize_hooks.append((func, args, kwargs))
    return func


def unregister_reinitialize_hook(func: Callable[..., object]) -> None:
    """Removes every registration of ``func``. Unknown functions are ignored."""
    _reinitialize_hooks[:] = [hook for hook in _reinitialize_hooks if hook[0] != func]
