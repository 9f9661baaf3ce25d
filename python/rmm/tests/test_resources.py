"""Every class of resource: how it is made, what it serves, what it refuses."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm._cuda import gpu
from rmm.mr.experimental import CudaAsyncManagedMemoryResource
from rmm.pylibrmm.helper import parse_bytes
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream
from support import MIB, ON_HOST, RESOURCES, SYSTEM, check_round_trip, on_host_driver, recording_resource

ADAPTORS: dict[str, Any] = {
    "PoolMemoryResource": lambda up: mr.PoolMemoryResource(up, MIB),
    "ArenaMemoryResource": lambda up: mr.ArenaMemoryResource(up, 64 * MIB),
    "FixedSizeMemoryResource": lambda up: mr.FixedSizeMemoryResource(up, MIB, 1),
    "BinningMemoryResource": mr.BinningMemoryResource,
    "LimitingResourceAdaptor": lambda up: mr.LimitingResourceAdaptor(up, MIB),
    "StatisticsResourceAdaptor": mr.StatisticsResourceAdaptor,
    "TrackingResourceAdaptor": mr.TrackingResourceAdaptor,
    "FailureCallbackResourceAdaptor": lambda up: mr.FailureCallbackResourceAdaptor(up, lambda nbytes: False),
    "PrefetchResourceAdaptor": mr.PrefetchResourceAdaptor,
    "DebugResourceAdaptor": mr.DebugResourceAdaptor,
}


@pytest.mark.parametrize("make", RESOURCES.values(), ids=RESOURCES.keys())
def test_a_resource_gives_aligned_memory_and_takes_it_back(make: Any) -> None:
    resource = make()
    stream = Stream()
    for nbytes in (1, 256, 1000, 100_000):
        for on in (DEFAULT_STREAM, stream):
            ptr = resource.allocate(nbytes, on)
            assert isinstance(ptr, int)
            assert ptr != 0 and ptr % 256 == 0
            resource.deallocate(ptr, nbytes, stream=on)
    ptr = resource.allocate(nbytes=8, stream=stream)
    resource.deallocate(ptr=ptr, nbytes=8, stream=stream)


@pytest.mark.parametrize("make", RESOURCES.values(), ids=RESOURCES.keys())
def test_sizes_are_checked(make: Any) -> None:
    resource = make()
    with pytest.raises(OverflowError):
        resource.allocate(-1)
    with pytest.raises(TypeError):
        resource.allocate(1.5)
    with pytest.raises(TypeError):
        resource.allocate("8")


@pytest.mark.parametrize("make", RESOURCES.values(), ids=RESOURCES.keys())
def test_resources_are_compared_by_identity_hashed_and_referred_to_weakly(make: Any) -> None:
    first, second = make(), make()
    assert first == first
    assert first != second
    assert len({first, second}) == 2
    assert weakref.ref(first)() is first


@pytest.mark.parametrize("make", RESOURCES.values(), ids=RESOURCES.keys())
def test_more_than_the_device_has_is_a_memory_error_and_the_resource_works_on(make: Any) -> None:
    resource = make()
    with pytest.raises(MemoryError):
        resource.allocate(1 << 50)
    ptr = resource.allocate(256)
    resource.deallocate(ptr, 256)


@pytest.mark.parametrize("make", ADAPTORS.values(), ids=ADAPTORS.keys())
def test_an_adaptor_shows_the_object_that_it_was_given(make: Any) -> None:
    upstream = mr.CudaMemoryResource()
    adaptor: Any = make(upstream)
    assert issubclass(type(adaptor), mr.UpstreamResourceAdaptor)
    assert issubclass(mr.UpstreamResourceAdaptor, mr.DeviceMemoryResource)
    assert adaptor.upstream_mr is upstream
    assert adaptor.get_upstream() is upstream
    with pytest.raises(AttributeError):
        adaptor.upstream_mr = upstream


@pytest.mark.parametrize("make", ADAPTORS.values(), ids=ADAPTORS.keys())
def test_an_adaptor_keeps_what_it_stands_on(make: Any) -> None:
    upstream = mr.CudaMemoryResource()
    gone = weakref.ref(upstream)
    adaptor = make(upstream)
    del upstream
    gc.collect()
    assert gone() is not None
    mr.set_current_device_resource(adaptor)
    check_round_trip()


@pytest.mark.parametrize("make", ADAPTORS.values(), ids=ADAPTORS.keys())
def test_an_adaptor_over_nothing_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match="Argument `upstream_mr` must not be None"):
        make(None)
    with pytest.raises(TypeError):
        make("cuda")
    with pytest.raises(TypeError):
        make(mr.CudaMemoryResource)


def test_a_stack_keeps_its_identity_at_each_level() -> None:
    levels: list[Any] = [mr.CudaMemoryResource()]
    levels.append(mr.PoolMemoryResource(levels[-1], MIB))
    levels.append(mr.LimitingResourceAdaptor(levels[-1], MIB))
    levels.append(mr.StatisticsResourceAdaptor(levels[-1]))
    mr.set_current_device_resource(levels[-1])
    walked = [mr.get_current_device_resource()]
    while hasattr(walked[-1], "upstream_mr"):
        walked.append(walked[-1].upstream_mr)
    assert not walked != levels[::-1]  # noqa: SIM202 - as cuDF asks
    check_round_trip()


def test_a_python_class_may_derive_from_a_resource_and_buffers_use_the_native_one() -> None:
    class Loud(mr.CudaMemoryResource):
        def allocate(self, nbytes: int, stream: Any = DEFAULT_STREAM) -> int:
            raise AssertionError("called from C++")

    resource = Loud()
    mr.set_current_device_resource(resource)
    assert mr.get_current_device_resource_type() is Loud
    check_round_trip()


# ---- pools


def test_a_pool_serves_requests_up_to_its_maximum_and_not_beyond() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=0, maximum_pool_size="8MiB")
    b = DeviceBuffer()
    b.resize(8 * MIB - 1)
    assert b.size == 8 * MIB - 1


def test_a_pool_refuses_to_grow_a_buffer_to_twice_its_maximum() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=0, maximum_pool_size=8 * MIB)
    b = DeviceBuffer()
    with pytest.raises(MemoryError):
        b.resize(16 * MIB)


@pytest.mark.parametrize("sizes", [("4MiB", "8MiB"), (4 * MIB, 8 * MIB), ("4 mib", None)])
def test_a_pool_takes_sizes_as_numbers_and_as_text(sizes: Any) -> None:
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), *sizes)
    assert pool.pool_size() == 4 * MIB
    mr.set_current_device_resource(pool)
    assert mr.get_current_device_resource_type() is mr.PoolMemoryResource
    check_round_trip()


def test_a_pool_reports_and_trims() -> None:
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), initial_pool_size=0, maximum_pool_size=64 * MIB)
    b = DeviceBuffer(size=MIB, mr=pool)
    numbers = pool.statistics()
    assert numbers["in_use_bytes"] >= MIB
    assert all(isinstance(value, int) for value in numbers.values())
    held = pool.pool_size()
    del b
    assert pool.trim() == held
    assert pool.pool_size() == 0
    assert pool.trim(keep_bytes=0) == 0


@pytest.mark.parametrize("make", [mr.VmmMemoryResource, mr.PinnedPoolMemoryResource])
def test_our_pools_take_a_maximum_report_and_trim(make: Any) -> None:
    resource = make(maximum_size="64MiB")
    b = DeviceBuffer(size=8 * MIB, mr=resource)
    assert resource.statistics()["in_use_bytes"] >= 8 * MIB
    with pytest.raises(MemoryError):
        DeviceBuffer(size=65 * MIB, mr=resource)
    del b
    DEFAULT_STREAM.synchronize()
    assert resource.trim() > 0
    make(maximum_size=64 * MIB)
    make(None)


@on_host_driver
@pytest.mark.parametrize(
    "option, lacks",
    [("ipc", "a file descriptor"), ("fabric", "a fabric handle"), ("rdma", "RDMA"), ("multicast", "multicast objects")],
)
def test_memory_that_others_are_to_reach_is_refused_where_the_device_has_none(option: str, lacks: str) -> None:
    with pytest.raises(RuntimeError, match=f"{lacks}.*make the VmmMemoryResource without it"):
        mr.VmmMemoryResource("64MiB", **{f"enable_{option}": True})
    mr.VmmMemoryResource("64MiB", **{f"enable_{option}": False})
    with pytest.raises(TypeError):
        mr.VmmMemoryResource("64MiB", True)  # type: ignore[call-arg]


def test_a_pool_may_be_dropped_after_its_upstream() -> None:
    upstream = mr.CudaMemoryResource()
    pool = mr.PoolMemoryResource(upstream, MIB)
    b = DeviceBuffer(size=8, mr=pool)
    del upstream
    gc.collect()
    del pool
    gc.collect()
    del b


@pytest.mark.parametrize("upstream", ["cuda", "managed", "pinned_host", "pool"])
def test_an_arena_works_over_any_memory(upstream: str) -> None:
    mr.set_current_device_resource(mr.ArenaMemoryResource(RESOURCES[upstream](), 32 * MIB))
    assert mr.get_current_device_resource_type() is mr.ArenaMemoryResource
    check_round_trip()


def test_an_arena_that_is_too_small_is_refused() -> None:
    with pytest.raises(RuntimeError):
        mr.ArenaMemoryResource(mr.CudaMemoryResource(), arena_size=256)


def test_an_arena_takes_its_size_as_text_and_may_log_failures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where the log is written
    resource = mr.ArenaMemoryResource(mr.CudaMemoryResource(), arena_size="32MiB", dump_log_on_failure=True)
    mr.set_current_device_resource(resource)
    check_round_trip()
    with pytest.raises(MemoryError):
        DeviceBuffer(size=64 * MIB)
    assert (tmp_path / "rmm_arena_memory_dump.log").stat().st_size > 0


def test_a_fixed_size_resource_serves_one_block_for_each_request() -> None:
    resource = mr.FixedSizeMemoryResource(mr.CudaMemoryResource(), block_size=4096, blocks_to_preallocate=2)
    mr.set_current_device_resource(resource)
    buffers = [DeviceBuffer(size=4096) for _ in range(5)]
    assert len({b.ptr for b in buffers}) == 5
    with pytest.raises(MemoryError):
        DeviceBuffer(size=4097)


@pytest.mark.parametrize("upstream", ["cuda", "managed", "pool", *SYSTEM])
def test_a_fixed_size_resource_works_over_any_memory(upstream: str) -> None:
    mr.set_current_device_resource(mr.FixedSizeMemoryResource(RESOURCES[upstream](), MIB, 4))
    assert mr.get_current_device_resource_type() is mr.FixedSizeMemoryResource
    for length in (1, 1000, MIB):
        check_round_trip(length)


def test_a_fixed_size_resource_of_default_size_does_not_fill_the_machine() -> None:
    mr.set_current_device_resource(mr.FixedSizeMemoryResource(mr.CudaMemoryResource()))
    check_round_trip(MIB)


@pytest.mark.parametrize("upstream", ["cuda", "managed", "pool", *SYSTEM])
def test_binning_sends_each_request_to_the_bin_of_its_size(upstream: str) -> None:
    binning = mr.BinningMemoryResource(RESOURCES[upstream](), 10, 12)
    large, calls = recording_resource(mr.CudaMemoryResource())
    binning.add_bin(MIB, large)
    mr.set_current_device_resource(binning)
    check_round_trip(100)
    check_round_trip(4000)
    assert calls == []
    check_round_trip(100_000)
    assert calls[0] == ("allocate", 100_000) or calls[0] == ("allocate", MIB)
    seen = len(calls)
    check_round_trip(2 * MIB)
    assert len(calls) == seen


def test_binning_lists_the_bins_that_it_was_given_and_keeps_them() -> None:
    binning = mr.BinningMemoryResource(mr.CudaMemoryResource())
    assert binning.bin_mrs == []
    binning.add_bin(1 << 10)
    explicit = mr.CudaMemoryResource()
    binning.add_bin(allocation_size=1 << 15, bin_resource=explicit)
    assert binning.bin_mrs == [explicit]
    assert binning.bin_mrs[0] is explicit
    gone = weakref.ref(explicit)
    del explicit
    gc.collect()
    assert gone() is not None


def test_binning_keeps_a_bin_that_exists() -> None:
    binning = mr.BinningMemoryResource(mr.CudaMemoryResource())
    first, first_calls = recording_resource(mr.CudaMemoryResource())
    second, second_calls = recording_resource(mr.CudaMemoryResource())
    binning.add_bin(1000, first)
    binning.add_bin(1024, second)
    DeviceBuffer(size=1000, mr=binning)
    assert [kind for kind, _ in first_calls] == ["allocate", "deallocate"]
    assert second_calls == []


@pytest.mark.parametrize("exponents", [(300, 301), (-200, 5)])
def test_exponents_of_bins_are_numbers_of_eight_bits(exponents: tuple[int, int]) -> None:
    with pytest.raises((OverflowError, TypeError, ValueError)):
        mr.BinningMemoryResource(mr.CudaMemoryResource(), *exponents)


def test_a_large_explicit_bin_serves_a_large_request() -> None:
    binning = mr.BinningMemoryResource(mr.CudaMemoryResource(), 18, 19)
    binning.add_bin(128 * MIB, mr.CudaMemoryResource())
    b = DeviceBuffer(size=128 * MIB, mr=binning)
    assert b.size == 128 * MIB


# ---- memory of other kinds


def test_pinned_host_memory_is_a_plain_resource() -> None:
    resource = mr.PinnedHostMemoryResource()
    assert isinstance(resource, mr.DeviceMemoryResource)
    assert not isinstance(resource, mr.UpstreamResourceAdaptor)


@pytest.mark.parametrize("size", [0, 1, 256, 1024, MIB])
def test_pinned_host_memory_serves_buffers(size: int) -> None:
    b = DeviceBuffer(size=size, mr=mr.PinnedHostMemoryResource())
    assert b.size == size
    assert (b.ptr != 0) == (size != 0)
    assert b.capacity() >= size


@pytest.mark.parametrize(
    "over",
    [
        mr.StatisticsResourceAdaptor,
        mr.TrackingResourceAdaptor,
        lambda up: mr.LimitingResourceAdaptor(up, MIB),
        lambda up: mr.PoolMemoryResource(up, MIB),
    ],
    ids=["statistics", "tracking", "limiting", "pool"],
)
def test_pinned_host_memory_works_under_adaptors(over: Any) -> None:
    mr.set_current_device_resource(over(mr.PinnedHostMemoryResource()))
    check_round_trip(1024)


def test_managed_memory_of_no_bytes_is_nothing() -> None:
    resource = mr.ManagedMemoryResource()
    assert resource.allocate(0) == 0
    resource.deallocate(0, 0)


@pytest.mark.parametrize("make", [mr.SystemMemoryResource, lambda: mr.SamHeadroomMemoryResource(headroom=MIB)])
@pytest.mark.parametrize("pool", [False, True])
def test_memory_of_the_system_works_where_the_device_reaches_it(make: Any, pool: bool) -> None:
    pageable_memory_access = 88
    if gpu.getDeviceAttribute(pageable_memory_access, gpu.getDevice()) == 0:
        with pytest.raises(RuntimeError, match="System memory allocator is not supported"):
            make()
        return
    resource = make()
    mr.set_current_device_resource(mr.PoolMemoryResource(resource, MIB) if pool else resource)
    check_round_trip()


@pytest.mark.parametrize("over", [mr.ManagedMemoryResource, mr.CudaMemoryResource])
def test_prefetching_new_blocks_does_not_fail(over: Any) -> None:
    mr.set_current_device_resource(mr.PrefetchResourceAdaptor(over()))
    b = DeviceBuffer.to_device(b"abc")
    b.prefetch()
    assert b.tobytes() == b"abc"


# ---- pools of the driver


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"initial_pool_size": 0, "release_threshold": 1024},
        {"initial_pool_size": "1MiB", "release_threshold": "2MiB"},
    ],
    ids=repr,
)
def test_a_pool_of_the_driver_serves_small_and_large_requests(arguments: dict[str, Any]) -> None:
    mr.set_current_device_resource(mr.CudaAsyncMemoryResource(**arguments))
    assert mr.get_current_device_resource_type() is mr.CudaAsyncMemoryResource
    check_round_trip(100)
    check_round_trip(100_000)


def test_a_pool_of_the_driver_takes_nothing_before_it_is_asked() -> None:
    free, _ = mr.available_device_memory()
    resource = mr.CudaAsyncMemoryResource()
    assert mr.available_device_memory()[0] > free - 64 * MIB
    del resource


def test_data_written_on_a_new_stream_is_read_on_the_default_one() -> None:
    mr.set_current_device_resource(mr.CudaAsyncMemoryResource())
    for _ in range(20):
        b = DeviceBuffer.to_device(bytes(100_000), Stream())
        assert b.copy_to_host().tobytes() == bytes(100_000)


@pytest.mark.parametrize("kind", ["enable_ipc", "enable_fabric"])
def test_handles_that_the_driver_does_not_support_are_refused(kind: str) -> None:
    arguments: Any = {kind: True}
    try:
        resource = mr.CudaAsyncMemoryResource(**arguments)
    except RuntimeError as error:
        assert str(error).endswith("Requested IPC memory handle type not supported")
    else:
        assert not ON_HOST
        mr.set_current_device_resource(resource)
        check_round_trip()


def test_a_view_serves_from_a_pool_that_is_somebody_elses() -> None:
    owner = mr.CudaAsyncMemoryResource()
    view = mr.CudaAsyncViewMemoryResource(owner.pool_handle())
    assert isinstance(view.pool_handle(), int)
    assert view.pool_handle() != 0
    mr.set_current_device_resource(view)
    check_round_trip()


@pytest.mark.parametrize("bad", [0, 17, "pool", None, object()], ids=repr)
def test_a_view_of_no_pool_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError):
        mr.CudaAsyncViewMemoryResource(bad)


def test_a_view_of_a_pool_that_is_gone_gives_memory_errors_and_goes_quietly() -> None:
    owner = mr.CudaAsyncMemoryResource()
    view = mr.CudaAsyncViewMemoryResource(owner.pool_handle())
    check = view.allocate(8)
    view.deallocate(check, 8)
    DEFAULT_STREAM.synchronize()
    del owner
    gc.collect()
    with pytest.raises(MemoryError):
        view.allocate(8)
    del view


def test_managed_pools_work_or_are_refused() -> None:
    try:
        resource = CudaAsyncManagedMemoryResource()
    except RuntimeError:
        return
    assert isinstance(resource.pool_handle(), int) and resource.pool_handle() != 0
    mr.set_current_device_resource(resource)
    check_round_trip()
    check_round_trip(stream=Stream())


# ---- limits, trackers, failures


@pytest.mark.parametrize("make", [mr.CudaMemoryResource, mr.CudaAsyncMemoryResource])
def test_a_limit_can_be_used_up_exactly_and_not_by_a_byte_more(make: Any) -> None:
    limited = mr.LimitingResourceAdaptor(make(), allocation_limit=MIB)
    assert limited.get_allocation_limit() == MIB
    halves = [DeviceBuffer(size=MIB // 2, mr=limited) for _ in range(2)]
    assert limited.get_allocated_bytes() == MIB
    with pytest.raises(MemoryError):
        DeviceBuffer(size=1, mr=limited)
    halves.clear()
    assert limited.get_allocated_bytes() == 0


def test_a_limit_counts_in_multiples_of_256_and_passes_on_the_exact_size() -> None:
    recording, calls = recording_resource(mr.CudaMemoryResource())
    limited = mr.LimitingResourceAdaptor(recording, MIB)
    b = DeviceBuffer(size=1, mr=limited)
    assert limited.get_allocated_bytes() == 256
    assert calls == [("allocate", 1)]
    del b


def test_a_tracker_counts_the_bytes_that_are_in_use() -> None:
    tracking = mr.TrackingResourceAdaptor(mr.CudaMemoryResource(), capture_stacks=True)
    mr.set_current_device_resource(tracking)
    assert tracking.get_outstanding_allocations_str() == ""
    buffers = [DeviceBuffer(size=1000) for _ in range(10)]
    del buffers[:5]
    assert tracking.get_allocated_bytes() == 5000
    text = tracking.get_outstanding_allocations_str()
    assert text.count("1000 B") == 5
    tracking.log_outstanding_allocations()
    buffers.clear()
    assert tracking.get_allocated_bytes() == 0
    assert tracking.get_outstanding_allocations_str() == ""


def test_a_tracker_over_a_tracker_counts_its_own_and_the_lower_one_all() -> None:
    lower = mr.TrackingResourceAdaptor(mr.CudaMemoryResource())
    first = [DeviceBuffer(size=1000, mr=lower) for _ in range(10)]
    upper = mr.TrackingResourceAdaptor(lower)
    second = [DeviceBuffer(size=500, mr=upper) for _ in range(2)]
    assert (lower.get_allocated_bytes(), upper.get_allocated_bytes()) == (11000, 1000)
    first.clear()
    second.clear()
    assert (lower.get_allocated_bytes(), upper.get_allocated_bytes()) == (0, 0)


def test_a_tracker_counts_direct_requests() -> None:
    tracking = mr.TrackingResourceAdaptor(mr.CudaMemoryResource())
    ptr = tracking.allocate(8 * MIB)
    assert tracking.get_allocated_bytes() == 8 * MIB
    assert f"{8 * MIB} B" in tracking.get_outstanding_allocations_str()
    tracking.deallocate(ptr, 8 * MIB)
    assert tracking.get_allocated_bytes() == 0


def test_a_failure_callback_decides_on_another_try() -> None:
    asked: list[int] = []

    def callback(nbytes: int) -> bool:
        asked.append(nbytes)
        return len(asked) < 3

    adaptor = mr.FailureCallbackResourceAdaptor(mr.CudaMemoryResource(), callback)
    with pytest.raises(MemoryError):
        adaptor.allocate(1 << 50)
    assert asked == [1 << 50] * 3


def test_a_failure_callback_can_make_room() -> None:
    limited = mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), MIB)
    spillable = [DeviceBuffer(size=MIB, mr=limited)]

    def spill(nbytes: int) -> bool:
        if not spillable:
            return False
        spillable.pop()
        return True

    b = DeviceBuffer(size=MIB, mr=mr.FailureCallbackResourceAdaptor(limited, spill))
    assert b.size == MIB
    assert spillable == []


def test_a_failure_callback_is_not_asked_about_other_failures() -> None:
    def allocate(nbytes: int, stream: Stream) -> int:
        raise ValueError("not out of memory")

    failing = mr.CallbackMemoryResource(allocate, lambda ptr, nbytes, stream: None)
    adaptor = mr.FailureCallbackResourceAdaptor(failing, lambda nbytes: pytest.fail("asked"))
    with pytest.raises(RuntimeError, match="not out of memory"):
        adaptor.allocate(8)


def test_the_exception_of_a_failure_callback_reaches_the_caller() -> None:
    def callback(nbytes: int) -> bool:
        raise RuntimeError("from the callback")

    adaptor = mr.FailureCallbackResourceAdaptor(mr.CudaMemoryResource(), callback)
    with pytest.raises(RuntimeError, match="from the callback"):
        adaptor.allocate(1 << 50)


# ---- sizes as text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (0, 0),
        (17, 17),
        ("17", 17),
        ("17b", 17),
        ("1 kb", 1000),
        ("1kib", 1024),
        ("1.5KiB", 1536),
        ("0.3kb", 300),
        ("2\tMB", 2_000_000),
        ("2MiB", 2 << 20),
        ("1gb", 10**9),
        ("1GiB", 1 << 30),
        ("1TB", 10**12),
        ("1TiB", 1 << 40),
        ("3pb", 3 * 10**15),
        ("1PiB", 1 << 50),
        ("1.9b", 1),
    ],
)
def test_sizes_are_numbers_or_text(text: int | str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["2k", "2m", "", "kb", "1 xb", "one", "1kb1", "-1kb", "1e3"])
def test_text_that_is_no_size_is_refused_with_that_text(text: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_bytes(text)
    assert str(raised.value) == f"Could not parse {text} as a byte specification"


@pytest.mark.parametrize("bad", [None, 1.5, b"1kb", []], ids=repr)
def test_sizes_of_other_types_are_refused(bad: Any) -> None:
    with pytest.raises(TypeError):
        parse_bytes(bad)


def test_a_pool_without_sizes_begins_with_half_of_what_is_free() -> None:
    free, total = mr.available_device_memory()
    taken = rmm.DeviceBuffer(size=total // 4, mr=mr.CudaMemoryResource())
    free_now, _ = mr.available_device_memory()
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource())
    assert pool.pool_size() == free_now // 2 // 256 * 256 < free // 2
    del taken
    assert mr.PoolMemoryResource(mr.CudaMemoryResource(), maximum_pool_size="1MiB").pool_size() == 1 << 20


def test_sizes_may_be_text_wherever_bytes_are_asked_for() -> None:
    assert mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), "1MiB").get_allocation_limit() == 1 << 20
    binning = mr.BinningMemoryResource(mr.CudaMemoryResource())
    binning.add_bin("1MiB")
    with pytest.raises(ValueError, match="Could not parse"):
        binning.add_bin("1 megabyte")


def test_a_pool_has_a_name_in_errors_and_a_threshold() -> None:
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), "1MiB", "2MiB")
    pool.set_name("mine")
    with pytest.raises(MemoryError, match='pool "mine"'):
        pool.allocate(1 << 30)
    pool.set_release_threshold("1MiB")
    with pytest.raises(OverflowError):
        pool.set_release_threshold(-1)
