"""reinitialize, its hooks, and the state of the device table around it."""

from pathlib import Path
from typing import Any

import pytest

import rmm
from rmm import mr
from rmm._cuda import gpu
from support import MIB, check_round_trip, needs_two_devices, on_host_driver, run_python


@pytest.fixture(autouse=True)
def no_hooks() -> Any:
    yield
    rmm.rmm._reinitialize_hooks.clear()


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("pool", [False, True])
def test_reinitialize_sets_plain_or_managed_memory_with_or_without_a_pool(managed: bool, pool: bool) -> None:
    assert rmm.is_initialized()
    rmm.reinitialize(pool_allocator=pool, managed_memory=managed, initial_pool_size=MIB)
    assert rmm.is_initialized()
    current = mr.get_current_device_resource()
    if pool:
        assert isinstance(current, mr.PoolMemoryResource)
        current = current.upstream_mr
    assert type(current) is (mr.ManagedMemoryResource if managed else mr.CudaMemoryResource)
    check_round_trip()


def test_a_pool_without_sizes_takes_half_of_what_is_free_after_the_old_one_is_gone() -> None:
    for _ in range(3):
        rmm.reinitialize(pool_allocator=True)
        pool = mr.get_current_device_resource()
        assert isinstance(pool, mr.PoolMemoryResource)
        _, total = mr.available_device_memory()
        assert abs(pool.pool_size() - total / 2) < total / 8
        del pool


@pytest.mark.parametrize(("initial", "maximum"), [("2kib", "8kib"), (2048, 8192), ("2 KiB", "0.0078125MiB")])
def test_sizes_may_be_numbers_or_text(initial: int | str, maximum: int | str) -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=initial, maximum_pool_size=maximum)
    pool = mr.get_current_device_resource()
    assert isinstance(pool, mr.PoolMemoryResource)
    assert pool.pool_size() == 2048
    with pytest.raises(MemoryError):
        rmm.DeviceBuffer(size=8193)


def test_sizes_are_ignored_without_a_pool() -> None:
    rmm.reinitialize(initial_pool_size="2k", maximum_pool_size="nonsense")
    assert type(mr.get_current_device_resource()) is mr.CudaMemoryResource


def test_a_size_without_a_known_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="Could not parse"):
        rmm.reinitialize(pool_allocator=True, initial_pool_size="2k", maximum_pool_size="8k")


def test_an_initial_size_above_the_maximum_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Initial pool size exceeds the maximum pool size"):
        rmm.reinitialize(pool_allocator=True, initial_pool_size=1 << 13, maximum_pool_size=1 << 12)


@pytest.mark.parametrize("sizes", [{"initial_pool_size": 1000}, {"initial_pool_size": 0, "maximum_pool_size": 1000}])
def test_a_size_that_is_no_multiple_of_256_is_refused(sizes: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError):
        rmm.reinitialize(pool_allocator=True, **sizes)


def test_logging_without_a_file_name_is_refused() -> None:
    with pytest.raises(ValueError):
        rmm.reinitialize(logging=True)


@needs_two_devices
def test_a_failure_leaves_the_plain_resource_everywhere_and_the_device_current() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=MIB, devices=[0, 1])
    gpu.setDevice(1)
    with pytest.raises(RuntimeError):
        rmm.reinitialize(pool_allocator=True, initial_pool_size=1 << 13, maximum_pool_size=1 << 12, devices=[0, 1])
    assert gpu.getDevice() == 1
    for device in (0, 1):
        assert mr.get_per_device_resource_type(device) is mr.CudaMemoryResource
        gpu.setDevice(device)
        check_round_trip()


@needs_two_devices
def test_a_failure_on_the_second_device_leaves_the_plain_resource_on_the_first() -> None:
    gpu.setDevice(1)
    _, total = mr.available_device_memory()
    keep = rmm.DeviceBuffer(size=total * 3 // 4)
    gpu.setDevice(0)
    with pytest.raises(MemoryError):
        rmm.reinitialize(pool_allocator=True, initial_pool_size=total // 2 // 256 * 256, devices=[0, 1])
    assert gpu.getDevice() == 0
    assert mr.get_per_device_resource_type(0) is mr.CudaMemoryResource
    assert mr.get_per_device_resource_type(1) is mr.CudaMemoryResource
    del keep


@needs_two_devices
@pytest.mark.parametrize(("devices", "pooled"), [(0, {0}), (1, {1}), ([0, 1], {0, 1}), ((1,), {1}), (None, {0})])
def test_devices_that_are_not_listed_get_the_plain_resource(devices: Any, pooled: set[int]) -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=MIB, devices=[0, 1])
    rmm.reinitialize(pool_allocator=True, initial_pool_size=MIB, devices=devices)
    for device in (0, 1):
        expected = mr.PoolMemoryResource if device in pooled else mr.CudaMemoryResource
        assert mr.get_per_device_resource_type(device) is expected


def test_a_device_that_is_not_there_is_an_error_and_leaves_the_current_one() -> None:
    with pytest.raises(Exception):  # noqa: B017 - of the driver's or of the arguments
        rmm.reinitialize(devices=[0, 99])
    assert gpu.getDevice() == 0
    check_round_trip()


def test_the_log_is_outermost(tmp_path: Path) -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=MIB, logging=True, log_file_name=str(tmp_path / "log.csv"))
    log = mr.get_current_device_resource()
    assert isinstance(log, mr.LoggingResourceAdaptor)
    assert type(log.upstream_mr) is mr.PoolMemoryResource


def test_buffers_of_the_old_resource_live_on() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=MIB)
    old = rmm.DeviceBuffer.to_device(b"abc")
    pool = old.mr
    rmm.reinitialize()
    assert old.mr is pool
    assert old.tobytes() == b"abc"


def test_hooks_run_in_reverse_order_with_their_arguments() -> None:
    calls: list[Any] = []

    def hook(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))

    assert rmm.register_reinitialize_hook(hook, 1) is hook
    rmm.register_reinitialize_hook(hook, 2, key="value")
    rmm.register_reinitialize_hook(hook)
    rmm.reinitialize()
    assert calls == [((), {}), ((2,), {"key": "value"}), ((1,), {})]


def test_unregistering_removes_every_registration_and_ignores_unknown_functions() -> None:
    calls: list[int] = []
    rmm.register_reinitialize_hook(calls.append, 1)
    rmm.register_reinitialize_hook(calls.append, 2)
    rmm.register_reinitialize_hook(calls.extend, [3])
    rmm.unregister_reinitialize_hook(calls.append)
    rmm.unregister_reinitialize_hook(print)
    rmm.reinitialize()
    assert calls == [3]


def test_hooks_run_before_the_resources_are_replaced() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=MIB)
    seen: list[type] = []
    rmm.register_reinitialize_hook(lambda: seen.append(mr.get_current_device_resource_type()))
    rmm.reinitialize()
    assert seen == [mr.PoolMemoryResource]


def test_a_hook_may_unregister_itself() -> None:
    calls: list[int] = []

    def once() -> None:
        calls.append(1)
        rmm.unregister_reinitialize_hook(once)

    rmm.register_reinitialize_hook(once)
    rmm.reinitialize()
    rmm.reinitialize()
    assert calls == [1]


def test_an_exception_of_a_hook_goes_on_and_nothing_is_replaced() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=MIB)
    before = mr.get_current_device_resource()

    def hook() -> None:
        raise KeyError("from the hook")

    rmm.register_reinitialize_hook(hook)
    with pytest.raises(KeyError, match="from the hook"):
        rmm.reinitialize()
    assert mr.get_current_device_resource() is before


def test_rmm_mr_initialize_does_the_same_without_hooks() -> None:
    rmm.register_reinitialize_hook(pytest.fail, "the hook ran")
    mr._initialize(pool_allocator=True, initial_pool_size="1MiB")
    assert mr.get_current_device_resource_type() is mr.PoolMemoryResource


def test_an_allocation_changes_what_is_free_and_not_the_total() -> None:
    free, total = mr.available_device_memory()
    buffer = rmm.DeviceBuffer(size=MIB)
    free_then, total_then = mr.available_device_memory()
    assert total_then == total
    assert 0 < free_then <= free
    del buffer


@on_host_driver
def test_without_a_gpu_and_with_the_cuda_driver_forced_reinitialize_warns_once_and_changes_nothing() -> None:
    result = run_python(
        "import warnings, rmm\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    rmm.reinitialize(pool_allocator=True)\n"
        "print([w.category.__name__ for w in seen])",
        KMM_DRIVER="cuda",
        CUDA_VISIBLE_DEVICES="",
    )
    assert result.stdout == "['UserWarning']\n", result.stderr
    assert result.returncode == 0


def test_without_a_gpu_and_with_the_cuda_driver_forced_a_buffer_says_what_is_missing() -> None:
    result = run_python("import rmm\nrmm.DeviceBuffer(size=5)", KMM_DRIVER="cuda", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 1
    assert "KMM_DRIVER asks for the cuda driver, which cannot be used" in result.stderr
