"""Who holds memory: reports of the whole process, and tags for what a part of the program allocates."""

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from rmm import _core

__all__ = ["memory_report", "memory_tag"]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def memory_report(format: str = "text") -> str:
    """What every resource of this process holds; ``format`` is "text" (the current device) or "json" (all of them).

    JSON has the classes' names of C++ (``pool_memory_resource``), as in every other program.
    """
    if format not in ("text", "json"):
        raise ValueError(f"format must be 'text' or 'json', not {format!r}")
    return _core.memory_report(format == "json")


class memory_tag:
    """Names what this thread allocates within a ``with`` block, or within a decorated function.

    Reports and errors say how much each tag holds. The innermost tag counts.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a memory tag must be a str, not {type(name).__name__}")
        self.name = name

    def __enter__(self) -> "memory_tag":
        _core.push_memory_tag(self.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _core.pop_memory_tag()

    def __call__(self, func: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        name = self.name

        @wraps(func)
        def tagged(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            _core.push_memory_tag(name)
            try:
                return func(*args, **kwargs)
            finally:
                _core.pop_memory_tag()

        return tagged
