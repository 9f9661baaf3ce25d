"""Counting what is allocated: for the current device, for a block, for a function."""

from _thread import allocate_lock
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from rmm._core import (
    DeviceMemoryResource,
    StatisticsResourceAdaptor,
    get_current_device_resource,
    set_current_device_resource,
)

__all__ = [
    "ProfilerContext",
    "ProfilerRecords",
    "Statistics",
    "default_profiler_records",
    "enable_statistics",
    "get_statistics",
    "pop_statistics",
    "profiler",
    "push_statistics",
    "statistics",
]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


@dataclass
class Statistics:
    """Bytes and blocks: now, at most, and in all. Also a mapping: ``s["current_bytes"]``, ``dict(s)``."""

    current_bytes: int
    current_count: int
    peak_bytes: int
    peak_count: int
    total_bytes: int
    total_count: int

    def __getitem__(self, name: str) -> int:
        value: int = self.__dict__[name]
        return value

    def keys(self) -> list[str]:
        return list(self.__dict__)


def enable_statistics() -> None:
    """Counts what the current device's resource serves from now on. Nothing happens if it counts already."""
    current = get_current_device_resource()
    if not isinstance(current, StatisticsResourceAdaptor):
        set_current_device_resource(StatisticsResourceAdaptor(current))


def get_statistics() -> Statistics | None:
    """The innermost counters of the current device; None when statistics are not enabled."""
    current = get_current_device_resource()
    return current.allocation_counts if isinstance(current, StatisticsResourceAdaptor) else None


def push_statistics() -> Statistics | None:
    """Starts new counters, from zero. Returns the ones that counted until now; None when statistics are not enabled."""
    current = get_current_device_resource()
    return current.push_counters() if isinstance(current, StatisticsResourceAdaptor) else None


def pop_statistics() -> Statistics | None:
    """Ends the innermost counters, adds them to those below and returns them; None when statistics are not enabled."""
    current = get_current_device_resource()
    return current.pop_counters() if isinstance(current, StatisticsResourceAdaptor) else None


class statistics:
    """Counts what the current device's resource serves within a ``with`` block.

    Where statistics are enabled the block gets counters of its own; else they are enabled for the block. ValueError
    where the block leaves another resource current.
    """

    __slots__ = ("_entered",)

    def __init__(self) -> None:
        # What each entry found, and what it left current; the same object where it pushed.
        self._entered: list[tuple[DeviceMemoryResource, StatisticsResourceAdaptor]] = []

    def __enter__(self) -> None:
        found = get_current_device_resource()
        if isinstance(found, StatisticsResourceAdaptor):
            found.push_counters()
            counting = found
        else:
            counting = StatisticsResourceAdaptor(found)
            set_current_device_resource(counting)
        self._entered.append((found, counting))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        found, counting = self._entered.pop()
        replaced = get_current_device_resource() is not counting
        if found is counting:
            counting.pop_counters()
        elif not replaced:
            set_current_device_resource(found)
        if replaced:
            raise ValueError(
                "the block in statistics() has made another resource current: it must put back the one it found"
            )

    def __call__(self, func: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @wraps(func)
        def counted(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            with statistics():
                return func(*args, **kwargs)

        return counted


_LEGEND = """\
Legends:
  ncalls       - how often the function or block ran
  memory_peak  - most bytes that it held at once, over all calls
  memory_total - bytes that it allocated, over all calls
"""


class ProfilerRecords:
    """What functions and blocks under a ``profiler`` have allocated, by name. For any number of threads."""

    @dataclass
    class MemoryRecord:
        """Calls, bytes allocated in all of them, and the highest peak of one."""

        num_calls: int = 0
        memory_total: int = 0
        memory_peak: int = 0

        def add(self, memory_total: int, memory_peak: int) -> None:
            self.num_calls += 1
            self.memory_total += memory_total
            if memory_peak > self.memory_peak:
                self.memory_peak = memory_peak

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._records: dict[str, ProfilerRecords.MemoryRecord] = {}

    def add(self, name: str, data: Statistics) -> None:
        """Adds what one call of ``name`` has counted."""
        with self._lock:
            record = self._records.get(name)
            if record is None:
                record = self._records[name] = self.MemoryRecord()
            record.add(data.total_bytes, data.peak_bytes)

    @property
    def records(self) -> dict[str, MemoryRecord]:
        """A copy of the records, by name."""
        with self._lock:
            return {
                name: self.MemoryRecord(record.num_calls, record.memory_total, record.memory_peak)
                for name, record in self._records.items()
            }

    def report(self, ordered_by: str = "memory_peak") -> str:
        """A table of the records, largest first, by "memory_peak", "memory_total" or "num_calls"."""
        if ordered_by not in ("num_calls", "memory_peak", "memory_total"):
            raise ValueError(f"ordered_by must be num_calls, memory_peak or memory_total, not {ordered_by!r}")
        title = f"Memory Profiling\n{'=' * 16}\n\n"
        records = sorted(self.records.items(), key=lambda item: int(getattr(item[1], ordered_by)), reverse=True)
        if not records:
            return title + "No data, maybe profiling wasn't enabled?"
        lines = [
            f"{title}{_LEGEND}",
            f"Ordered by: {ordered_by}",
            "",
            "ncalls     memory_peak    memory_total  filename:lineno(function)",
        ]
        lines += [f"{r.num_calls:6,} {r.memory_peak:15,} {r.memory_total:15,}  {name}" for name, r in records]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.records!r})"

    def __str__(self) -> str:
        return self.report()


default_profiler_records = ProfilerRecords()


def _get_descriptive_name_of_object(obj: object) -> str:
    """``<file>:<line>(<qualname>)`` of a function, its decorators included; of other objects what is known of that."""
    while True:
        if isinstance(obj, partial):
            obj = obj.func
        elif hasattr(obj, "__wrapped__"):
            obj = obj.__wrapped__
        else:
            break
    name = getattr(obj, "__qualname__", None) or type(obj).__qualname__
    code = getattr(obj, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}({name})"
    return f"{getattr(obj, '__module__', None) or type(obj).__module__}:0({name})"


class ProfilerContext:
    """A decorator, and a context manager, that records what a function or block allocates."""

    __slots__ = ("_name", "_pushed", "_records")

    def __init__(self, *, records: ProfilerRecords, name: str) -> None:
        self._records = records
        self._name = name
        self._pushed: list[StatisticsResourceAdaptor | None] = []

    def __call__(self, func: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        name = self._name or _get_descriptive_name_of_object(func)
        add = self._records.add

        @wraps(func)
        def profiled(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            current = get_current_device_resource()
            if not isinstance(current, StatisticsResourceAdaptor):
                return func(*args, **kwargs)
            current.push_counters()
            try:
                return func(*args, **kwargs)
            finally:
                add(name, current.pop_counters())

        return profiled

    def __enter__(self) -> "ProfilerContext":
        if not self._name:
            raise ValueError("profiler() needs a name as a context manager: profiler(name=...)")
        current = get_current_device_resource()
        if isinstance(current, StatisticsResourceAdaptor):
            current.push_counters()
            self._pushed.append(current)
        else:
            self._pushed.append(None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        counting = self._pushed.pop()
        if counting is not None:
            self._records.add(self._name, counting.pop_counters())


def profiler(*, records: ProfilerRecords = default_profiler_records, name: str = "") -> ProfilerContext:
    """Records what each call of a decorated function, or a ``with`` block, allocates while statistics are enabled.

    The name of a record is ``name``, which a ``with`` block must have, or the file, line and name of the function.
    """
    return ProfilerContext(records=records, name=name)
