"""Threads that allocate, copy and free at the same time, with and without the GIL."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmm import DeviceBuffer, mr
from rmm._cuda import gpu
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream
from support import MIB, RESOURCES, check_round_trip, needs_two_devices, recording_resource

#: How long test_eight_threads_make_and_drop_buffers runs.
SECONDS = float(os.environ.get("RMM_TEST_SECONDS", "1"))


def run_in_threads(count: int, work: Callable[[int], object]) -> None:
    """Runs work(number) in threads that start together; the first exception goes on here."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("name", RESOURCES)
def test_threads_make_copy_and_drop_buffers_of_any_resource(name: str) -> None:
    mr.set_current_device_resource(RESOURCES[name]())

    def work(number: int) -> None:
        stream = Stream()
        for i in range(30):
            content = bytes([number, i]) * 50
            on = stream if i % 2 else DEFAULT_STREAM
            b = DeviceBuffer.to_device(content, on)
            assert b.copy().tobytes(on) == content

    run_in_threads(4, work)


def test_callbacks_run_while_other_threads_allocate_and_hold_the_gil() -> None:
    recording, calls = recording_resource(mr.CudaMemoryResource())
    pool = mr.PoolMemoryResource(recording, 0, 64 * MIB)
    mr.set_current_device_resource(mr.StatisticsResourceAdaptor(pool))

    def work(number: int) -> None:
        for i in range(50):
            if number % 2:
                sum(range(2000))
            b = DeviceBuffer(size=1000 * (i % 40 + 1))
            if i % 10 == 0:
                pool.trim()
            del b

    run_in_threads(4, work)
    assert calls != []
    assert pool.statistics()["in_use_bytes"] == 0


def test_a_callback_of_one_thread_waits_for_another_thread_that_allocates() -> None:
    upstream = mr.PoolMemoryResource(mr.CudaMemoryResource(), MIB)
    inside, go_on = threading.Event(), threading.Event()

    def allocate(nbytes: int, stream: Stream) -> int:
        inside.set()
        assert go_on.wait(60)
        return upstream.allocate(nbytes, stream)

    slow = mr.CallbackMemoryResource(allocate, upstream.deallocate)
    made: list[DeviceBuffer] = []
    thread = threading.Thread(target=lambda: made.append(DeviceBuffer(size=8, mr=slow)))
    thread.start()
    assert inside.wait(60)
    check_round_trip()
    DeviceBuffer(size=8, mr=upstream)
    go_on.set()
    thread.join(60)
    assert len(made) == 1


def test_a_failure_callback_may_wait_for_memory_that_another_thread_drops() -> None:
    limited = mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), MIB)
    held = [DeviceBuffer(size=MIB, mr=limited)]
    asked, dropped = threading.Event(), threading.Event()

    def callback(nbytes: int) -> bool:
        asked.set()
        return dropped.wait(60)

    def drop() -> None:
        assert asked.wait(60)
        held.clear()
        dropped.set()

    thread = threading.Thread(target=drop)
    thread.start()
    b = DeviceBuffer(size=MIB, mr=mr.FailureCallbackResourceAdaptor(limited, callback))
    thread.join(60)
    assert b.size == MIB


def test_counters_of_many_threads_add_up(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    run_in_threads(4, lambda number: [DeviceBuffer(size=10) for _ in range(100)])
    counts = stats_mr.allocation_counts
    assert (counts.current_bytes, counts.total_bytes, counts.total_count) == (0, 4000, 400)


@needs_two_devices
def test_threads_work_on_a_device_each() -> None:
    def work(number: int) -> None:
        gpu.setDevice(number % 2)
        mr.get_current_device_resource()
        for _ in range(20):
            check_round_trip(stream=Stream())
            assert gpu.getDevice() == number % 2

    run_in_threads(4, work)


def test_the_resource_is_replaced_while_other_threads_allocate() -> None:
    def work(number: int) -> Any:
        for _ in range(100):
            if number == 0:
                mr.set_current_device_resource(mr.PoolMemoryResource(mr.CudaMemoryResource(), MIB))
            else:
                check_round_trip(100)
        return None

    run_in_threads(4, work)


@pytest.fixture
def eager_switches() -> Iterator[None]:
    """Python changes threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switches")
def test_threads_see_only_resources_that_were_set_while_others_set_them() -> None:
    resources = [mr.CudaMemoryResource() for _ in range(4)]
    mr.set_current_device_resource(resources[0])

    def work(number: int) -> None:
        for i in range(50_000):
            if number < 2:
                mr.set_current_device_resource(resources[2 * number + i % 2])
            else:
                assert mr.get_current_device_resource() in resources

    run_in_threads(4, work)


def test_a_buffer_is_dropped_by_another_thread_than_the_one_that_made_it() -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    buffers = [DeviceBuffer(size=10, mr=resource) for _ in range(100)]
    run_in_threads(4, lambda number: [buffers.pop() for _ in range(25)])
    assert calls.count(("deallocate", 10)) == 100


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def malloc_bytes() -> int:
    """In use of malloc, where the C library tells; objects of Python are elsewhere."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


def growth_for_an_operation(seconds: float, also: Callable[[], object] = lambda: None) -> tuple[float, float]:
    """Objects of Python, and bytes of malloc, that are left of each buffer which threads have made and dropped.

    ``also`` is called by each thread after every ten buffers. Of several rounds, the smallest: what allocators keep for
    threads comes once, and what is lost with a buffer comes in every round.
    """
    numbers: list[int] = []

    def work() -> None:
        stream = Stream()
        end = time.monotonic() + seconds / 4
        number = 0
        while time.monotonic() < end or number < 5000:
            held = [DeviceBuffer(size=256 << i, stream=stream) for i in range(8)]
            held[0].resize(10_000, stream)
            held[1].copy()
            number += 10
            also()
        numbers.append(number)

    objects, bytes_ = [], []
    for _ in range(4):
        numbers.clear()
        before = sys.getallocatedblocks(), malloc_bytes()
        run_in_threads(8, lambda number: work())
        objects.append((sys.getallocatedblocks() - before[0]) / sum(numbers))
        bytes_.append((malloc_bytes() - before[1]) / sum(numbers))
    return min(objects), min(bytes_)


@pytest.fixture
def full_pool() -> mr.PoolMemoryResource:
    """Current, under statistics; on the host driver memory is committed when it is used, which is done here."""
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), 64 * MIB, 64 * MIB)
    mr.set_current_device_resource(mr.StatisticsResourceAdaptor(pool))
    DeviceBuffer.to_device(bytes(64 * MIB))
    return pool


#: Of a buffer of Python, whose object has about 200 bytes: one that is lost in ten times as many exceeds both.
MOST_OBJECTS, MOST_BYTES = 0.01, 8.0


def test_eight_threads_make_and_drop_buffers_without_a_leak(full_pool: mr.PoolMemoryResource) -> None:
    objects, bytes_ = growth_for_an_operation(SECONDS)
    assert full_pool.statistics()["in_use_bytes"] == 0
    assert objects < MOST_OBJECTS
    assert bytes_ < MOST_BYTES


@pytest.mark.usefixtures("full_pool")
def test_a_leak_of_one_buffer_in_ten_would_be_seen() -> None:
    lost: list[DeviceBuffer] = []
    objects, _ = growth_for_an_operation(0.2, lambda: lost.append(DeviceBuffer()))
    assert objects > 5 * MOST_OBJECTS


@pytest.mark.usefixtures("full_pool")
@pytest.mark.skipif(malloc_bytes() == 0, reason="the C library does not tell")
def test_a_leak_of_200_bytes_in_ten_operations_would_be_seen() -> None:
    malloc = ctypes.CDLL(None).malloc
    malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    _, bytes_ = growth_for_an_operation(0.2, lambda: malloc(200))
    assert bytes_ > MOST_BYTES
