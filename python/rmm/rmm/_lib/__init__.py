"""Old names of the modules of ``rmm.pylibrmm``."""

from importlib import import_module
from types import ModuleType

_MODULES = ("cuda_stream", "device_buffer", "lib", "logger", "memory_resource", "torch_allocator")

__all__: list[str] = []


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
