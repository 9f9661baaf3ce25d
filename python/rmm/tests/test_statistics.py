"""Counters, statistics() and the profiler."""

import functools
import threading
from typing import Any

import pytest

from rmm import DeviceBuffer, mr
from rmm.statistics import (
    ProfilerContext,
    ProfilerRecords,
    Statistics,
    _get_descriptive_name_of_object,
    default_profiler_records,
    enable_statistics,
    get_statistics,
    pop_statistics,
    profiler,
    push_statistics,
    statistics,
)
from support import recording_resource


def stats(*numbers: int) -> Statistics:
    """current, peak, total: bytes and count of each."""
    return Statistics(*numbers)


def test_statistics_are_a_dataclass_and_a_mapping() -> None:
    s = Statistics(current_bytes=1, current_count=2, peak_bytes=3, peak_count=4, total_bytes=5, total_count=6)
    assert s == Statistics(1, 2, 3, 4, 5, 6)
    assert s["peak_bytes"] == 3
    assert dict(s) == {
        "current_bytes": 1,
        "current_count": 2,
        "peak_bytes": 3,
        "peak_count": 4,
        "total_bytes": 5,
        "total_count": 6,
    }
    assert list(s.keys()) == list(dict(s))
    with pytest.raises(KeyError):
        s["no_such_counter"]
    assert repr(s).startswith("Statistics(current_bytes=1,")


def test_without_statistics_the_functions_give_none() -> None:
    assert get_statistics() is None
    assert push_statistics() is None
    assert pop_statistics() is None


def test_enabling_wraps_the_current_resource_once() -> None:
    before = mr.get_current_device_resource()
    enable_statistics()
    counting = mr.get_current_device_resource()
    assert isinstance(counting, mr.StatisticsResourceAdaptor)
    assert counting.upstream_mr is before
    enable_statistics()
    assert mr.get_current_device_resource() is counting
    assert get_statistics() == stats(0, 0, 0, 0, 0, 0)


def test_the_context_counts_and_puts_back_the_former_resource() -> None:
    before = mr.get_current_device_resource()
    with statistics():
        b = DeviceBuffer(size=20)
        assert get_statistics() == stats(20, 1, 20, 1, 20, 1)
    assert mr.get_current_device_resource() is before
    del b


def test_a_nested_context_has_counters_of_its_own_in_the_same_resource() -> None:
    with statistics():
        outer = mr.get_current_device_resource()
        first = DeviceBuffer(size=20)
        with statistics():
            assert mr.get_current_device_resource() is outer
            second = DeviceBuffer(size=10)
            assert get_statistics() == stats(10, 1, 10, 1, 10, 1)
        assert get_statistics() == stats(30, 2, 30, 2, 30, 2)
        del first, second


def test_a_context_object_can_be_entered_again_and_decorates_functions() -> None:
    context = statistics()
    with context, context:
        DeviceBuffer(size=10)
    assert get_statistics() is None

    @statistics()
    def f() -> Statistics | None:
        DeviceBuffer(size=10)
        return get_statistics()

    assert f() == f() == stats(0, 0, 10, 1, 10, 1)


def test_another_resource_at_the_end_of_the_context_is_refused() -> None:
    with pytest.raises(ValueError), statistics():
        mr.set_current_device_resource(mr.CudaMemoryResource())


def test_another_resource_at_the_end_of_an_inner_context_is_refused_and_its_counters_are_popped(
    stats_mr: mr.StatisticsResourceAdaptor,
) -> None:
    with pytest.raises(ValueError), statistics():
        mr.set_current_device_resource(mr.CudaMemoryResource())
    with pytest.raises(IndexError):
        stats_mr.pop_counters()


@pytest.mark.parametrize("enabled", [False, True])
def test_an_exception_passes_through_the_context_after_the_clean_up(enabled: bool) -> None:
    if enabled:
        enable_statistics()
    before = mr.get_current_device_resource()
    with pytest.raises(KeyError), statistics():
        raise KeyError
    assert mr.get_current_device_resource() is before
    if enabled:
        with pytest.raises(IndexError):
            pop_statistics()


def test_counters_follow_allocations_and_frees(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    buffers = [DeviceBuffer(size=1000) for _ in range(10)]
    del buffers[:5]
    expected = stats(5000, 5, 10000, 10, 10000, 10)
    assert stats_mr.allocation_counts == get_statistics() == expected


def test_an_adaptor_on_top_counts_its_own_and_the_lower_one_all(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    first = [DeviceBuffer(size=1000) for _ in range(2)]
    upper = mr.StatisticsResourceAdaptor(stats_mr)
    mr.set_current_device_resource(upper)
    second = [DeviceBuffer(size=100) for _ in range(3)]
    assert upper.allocation_counts == get_statistics() == stats(300, 3, 300, 3, 300, 3)
    assert stats_mr.allocation_counts == stats(2300, 5, 2300, 5, 2300, 5)
    first.clear()
    second.clear()
    assert upper.allocation_counts == stats(0, 0, 300, 3, 300, 3)
    assert stats_mr.allocation_counts == stats(0, 0, 2300, 5, 2300, 5)


def test_push_returns_the_level_before_and_frees_of_older_blocks_make_the_new_one_negative(
    stats_mr: mr.StatisticsResourceAdaptor,
) -> None:
    b = DeviceBuffer(size=10)
    assert push_statistics() == stats(10, 1, 10, 1, 10, 1)
    assert get_statistics() == stats(0, 0, 0, 0, 0, 0)
    del b
    assert get_statistics() == stats(-10, -1, 0, 0, 0, 0)
    assert pop_statistics() == stats(-10, -1, 0, 0, 0, 0)
    assert get_statistics() == stats(0, 0, 10, 1, 10, 1)


@pytest.mark.parametrize("by_module", [True, False])
def test_levels_fold_into_the_ones_below(by_module: bool, stats_mr: mr.StatisticsResourceAdaptor) -> None:
    def push() -> Any:
        return push_statistics() if by_module else stats_mr.push_counters()

    def pop() -> Any:
        return pop_statistics() if by_module else stats_mr.pop_counters()

    a = DeviceBuffer(size=10)
    push()
    b = DeviceBuffer(size=1)
    push()
    c = DeviceBuffer(size=5)
    del b
    assert pop() == stats(4, 0, 5, 1, 5, 1)
    assert get_statistics() == stats(5, 1, 6, 2, 6, 2)
    del c
    push()
    d = DeviceBuffer(size=2)
    del a
    assert pop() == stats(-8, 0, 2, 1, 2, 1)
    assert pop() == stats(-8, 0, 6, 2, 8, 3)
    assert get_statistics() == stats(2, 1, 16, 3, 18, 4)
    del d
    with pytest.raises(IndexError, match="cannot pop the last counter pair"):
        pop()
    assert get_statistics() == stats(0, 0, 16, 3, 18, 4)


def test_counters_are_one_stack_for_all_threads(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    stats_mr.push_counters()
    thread = threading.Thread(target=lambda: [DeviceBuffer(size=100) for _ in range(50)])
    thread.start()
    thread.join()
    assert stats_mr.pop_counters().total_bytes == 5000


def test_counted_sizes_are_the_ones_that_upstream_sees() -> None:
    recording, calls = recording_resource(mr.CudaMemoryResource())
    counting = mr.StatisticsResourceAdaptor(recording)
    DeviceBuffer(size=20, mr=counting)
    assert counting.allocation_counts.total_bytes == 20
    assert calls == [("allocate", 20), ("deallocate", 20)]


# ---- the profiler


def test_a_report_without_records_says_so() -> None:
    assert ProfilerRecords().report() == (
        "Memory Profiling\n================\n\nNo data, maybe profiling wasn't enabled?"
    )


def test_a_report_is_a_table_in_descending_order() -> None:
    records = ProfilerRecords()
    for name, calls, total in (("small", 2, 10), ("large", 1, 1_234_567)):
        for _ in range(calls):
            records.add(name, Statistics(0, 0, total, 1, total, 1))
    lines = records.report().splitlines()
    assert lines[:3] == ["Memory Profiling", "=" * 16, ""]
    assert [lines.index(line) for line in lines if line.startswith("Ordered by: ")] == [len(lines) - 5]
    assert lines[-5:] == [
        "Ordered by: memory_peak",
        "",
        "ncalls     memory_peak    memory_total  filename:lineno(function)",
        "     1       1,234,567       1,234,567  large",
        "     2              10              20  small",
    ]
    assert not records.report().endswith("\n")
    assert str(records) == records.report()
    by_calls = records.report(ordered_by="num_calls").splitlines()
    assert [line.split()[-1] for line in by_calls[-2:]] == ["small", "large"]
    for column in ("ncalls", "memory_peak", "memory_total"):
        assert any(line.strip().startswith(column) for line in lines[3:-5])
    with pytest.raises(ValueError, match="no_such_key"):
        records.report("no_such_key")


def test_records_add_calls_and_totals_and_keep_the_highest_peak() -> None:
    record = ProfilerRecords.MemoryRecord()
    assert (record.num_calls, record.memory_total, record.memory_peak) == (0, 0, 0)
    record.add(memory_total=10, memory_peak=7)
    record.add(memory_total=5, memory_peak=3)
    assert record == ProfilerRecords.MemoryRecord(num_calls=2, memory_total=15, memory_peak=7)


def test_the_records_are_a_copy() -> None:
    records = ProfilerRecords()
    records.add("f", Statistics(0, 0, 1, 1, 1, 1))
    records.records.clear()
    assert list(records.records) == ["f"]
    assert repr(records) == f"ProfilerRecords({records.records!r})"
    assert repr(records).startswith("ProfilerRecords({'f': ProfilerRecords.MemoryRecord(num_calls=1,")


def test_a_decorated_function_is_recorded_under_its_name(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()

    @profiler(records=records)
    def f() -> None:
        """Of f."""
        buffers = [DeviceBuffer(size=10), DeviceBuffer(size=10)]
        del buffers

    f()
    f()
    name = _get_descriptive_name_of_object(f)
    assert records.records == {name: ProfilerRecords.MemoryRecord(num_calls=2, memory_total=40, memory_peak=20)}
    assert (f.__name__, f.__doc__) == ("f", "Of f.")


def test_nested_functions_are_recorded_each(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()

    @profiler(records=records, name="g")
    def inner(b: DeviceBuffer) -> None:
        DeviceBuffer(size=10)

    @profiler(records=records)
    def outer() -> None:
        b = DeviceBuffer(size=10)
        inner(b)

    for _ in range(3):
        outer()
    assert records.records == {
        _get_descriptive_name_of_object(outer): ProfilerRecords.MemoryRecord(3, 60, 20),
        "g": ProfilerRecords.MemoryRecord(3, 30, 10),
    }


def test_many_buffers_of_one_call_are_added(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()
    with profiler(records=records, name="many"):
        buffers = [DeviceBuffer(size=100) for _ in range(100)]
    assert records.records["many"] == ProfilerRecords.MemoryRecord(1, 10000, 10000)
    del buffers


def test_blocks_are_recorded_by_default_in_the_shared_records(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    with profiler(name="test: allocates"):
        buffers = [DeviceBuffer(size=100) for _ in range(2)]
    with profiler(name="test: frees"):
        buffers.clear()
    records = default_profiler_records.records
    assert records["test: allocates"] == ProfilerRecords.MemoryRecord(1, 200, 200)
    assert records["test: frees"] == ProfilerRecords.MemoryRecord(1, 0, 0)


def test_a_block_needs_a_name() -> None:
    with pytest.raises(ValueError), profiler():
        pass


def test_arguments_of_the_profiler_are_keywords_only() -> None:
    with pytest.raises(TypeError):
        profiler(ProfilerRecords())  # type: ignore[call-arg]
    assert isinstance(profiler(), ProfilerContext)


def test_exceptions_pass_through_and_the_call_is_recorded(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()

    @profiler(records=records, name="f")
    def f() -> None:
        DeviceBuffer(size=10)
        raise KeyError

    with pytest.raises(KeyError):
        f()
    with pytest.raises(KeyError), profiler(records=records, name="block"):
        raise KeyError
    assert records.records == {
        "f": ProfilerRecords.MemoryRecord(1, 10, 10),
        "block": ProfilerRecords.MemoryRecord(1, 0, 0),
    }
    with pytest.raises(IndexError):
        stats_mr.pop_counters()


def test_without_statistics_nothing_is_recorded() -> None:
    records = ProfilerRecords()

    @profiler(records=records)
    def f(x: int, *, y: int) -> int:
        return x + y

    assert f(1, y=2) == 3
    with profiler(records=records, name="block"):
        pass
    assert records.records == {}


def test_statistics_that_are_enabled_inside_change_nothing_for_the_running_call() -> None:
    records = ProfilerRecords()

    @profiler(records=records, name="f")
    def f() -> None:
        enable_statistics()

    f()
    with pytest.raises(IndexError):
        pop_statistics()
    f()
    assert records.records["f"].num_calls == 1


def decorator(func: Any) -> Any:
    @functools.wraps(func)
    def wrapper(*args: Any) -> Any:
        return func(*args)

    return wrapper


@decorator
def decorated() -> None:
    pass


class Owner:
    def method(self) -> None:
        pass


def test_the_name_is_file_first_line_and_qualified_name_of_what_is_wrapped() -> None:
    first = decorated.__wrapped__.__code__.co_firstlineno
    assert _get_descriptive_name_of_object(decorated) == f"{__file__}:{first}(decorated)"
    assert _get_descriptive_name_of_object(functools.partial(decorated)).endswith("(decorated)")
    assert _get_descriptive_name_of_object(Owner.method).endswith("(Owner.method)")
    assert _get_descriptive_name_of_object(Owner().method).endswith("(Owner.method)")
    assert _get_descriptive_name_of_object(len).endswith("(len)")
    with open(__file__) as source:
        assert source.read().splitlines()[first - 1] == "@decorator"


def test_threads_record_without_loss(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    records = ProfilerRecords()

    def work() -> None:
        for _ in range(500):
            records.add("f", Statistics(0, 0, 1, 1, 1, 1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records.records["f"] == ProfilerRecords.MemoryRecord(2000, 2000, 1)
