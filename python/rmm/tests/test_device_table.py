"""Which resource each device uses; two virtual devices."""

import gc
import os
import threading
import weakref
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm._cuda import gpu
from support import MIB, RESOURCES, check_round_trip, needs_two_devices, recording_resource, run_quietly


def test_the_first_get_makes_a_cuda_resource_and_keeps_it() -> None:
    first = mr.get_current_device_resource()
    assert type(first) is mr.CudaMemoryResource
    assert mr.get_current_device_resource() is first
    assert mr.get_per_device_resource(0) is first


@needs_two_devices
def test_the_first_get_for_another_device_than_the_current_one_is_a_resource_of_that_device() -> None:
    gpu.setDevice(1)
    free, _ = mr.available_device_memory()
    gpu.setDevice(0)
    resource = mr.get_per_device_resource(1)
    ptr = resource.allocate(16 * MIB)
    gpu.setDevice(1)
    assert mr.available_device_memory()[0] <= free - 16 * MIB
    gpu.setDevice(0)
    resource.deallocate(ptr, 16 * MIB)


@pytest.mark.parametrize("make", RESOURCES.values(), ids=RESOURCES.keys())
def test_getters_return_the_object_that_was_set(make: Any) -> None:
    resource = make()
    assert mr.set_current_device_resource(resource) is None  # type: ignore[func-returns-value]
    assert mr.get_current_device_resource() is resource
    assert mr.get_current_device_resource_type() is type(resource)
    assert mr.get_per_device_resource_type(0) is type(resource)
    assert rmm.is_initialized()


@pytest.mark.parametrize("bad", [None, 1, "mr", mr.CudaMemoryResource], ids=repr)
def test_only_resources_can_be_set(bad: Any) -> None:
    before = mr.get_current_device_resource()
    with pytest.raises(TypeError):
        mr.set_current_device_resource(bad)
    with pytest.raises(TypeError):
        mr.set_per_device_resource(0, bad)
    assert mr.get_current_device_resource() is before


def test_a_bare_resource_has_nothing_to_set_or_ask() -> None:
    bare = mr.DeviceMemoryResource()
    with pytest.raises(RuntimeError):
        mr.set_current_device_resource(bare)
    with pytest.raises(RuntimeError):
        bare.allocate(8)
    with pytest.raises(RuntimeError):
        DeviceBuffer(size=8, mr=bare)
    with pytest.raises(RuntimeError):
        mr.StatisticsResourceAdaptor(bare)


def test_the_table_keeps_a_stack_that_the_program_forgot() -> None:
    rmm.mr.set_current_device_resource(
        mr.StatisticsResourceAdaptor(mr.LimitingResourceAdaptor(RESOURCES["pool"](), 10 * MIB))
    )
    gc.collect()
    check_round_trip()
    current = mr.get_current_device_resource()
    assert isinstance(current, mr.StatisticsResourceAdaptor)
    assert isinstance(current.upstream_mr, mr.LimitingResourceAdaptor)


def test_the_table_lets_go_of_what_is_replaced() -> None:
    resource = mr.CudaMemoryResource()
    gone = weakref.ref(resource)
    mr.set_current_device_resource(resource)
    del resource
    mr.set_current_device_resource(mr.CudaMemoryResource())
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("bad", [-1, 2, 99])
def test_a_device_that_is_not_there_is_an_error(bad: int) -> None:
    with pytest.raises((ValueError, OverflowError, IndexError, RuntimeError)):
        mr.get_per_device_resource(bad)
    with pytest.raises((ValueError, OverflowError, IndexError, RuntimeError)):
        mr.set_per_device_resource(bad, mr.CudaMemoryResource())


@needs_two_devices
def test_each_device_has_its_own_resource_and_current_follows_the_device() -> None:
    gpu.setDevice(1)
    second = mr.CudaMemoryResource()
    mr.set_current_device_resource(second)
    assert mr.get_per_device_resource(1) is second
    assert mr.get_per_device_resource(0) is not second
    assert DeviceBuffer(size=8).mr is second
    gpu.setDevice(0)
    assert mr.get_current_device_resource() is not second
    assert DeviceBuffer(size=8).mr is mr.get_per_device_resource(0)


@needs_two_devices
def test_each_thread_has_its_own_current_device() -> None:
    gpu.setDevice(1)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend([gpu.getDevice(), mr.get_current_device_resource()]))
    thread.start()
    thread.join()
    assert seen == [0, mr.get_per_device_resource(0)]


@needs_two_devices
def test_a_buffer_grows_and_is_freed_on_its_device_whatever_is_current() -> None:
    gpu.setDevice(1)
    free, _ = mr.available_device_memory()
    b = DeviceBuffer(size=16 * MIB)
    gpu.setDevice(0)
    free_of_0, _ = mr.available_device_memory()
    b.resize(32 * MIB)
    assert mr.available_device_memory()[0] == free_of_0
    gpu.setDevice(1)
    assert mr.available_device_memory()[0] <= free - 32 * MIB
    gpu.setDevice(0)
    del b
    assert gpu.getDevice() == 0
    gpu.setDevice(1)
    assert mr.available_device_memory()[0] == free


@needs_two_devices
def test_memory_is_asked_of_the_device_that_was_current_when_the_resource_was_made() -> None:
    gpu.setDevice(1)
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), 16 * MIB, 64 * MIB)
    free, _ = mr.available_device_memory()
    b = DeviceBuffer(size=20 * MIB, mr=pool)
    assert mr.available_device_memory()[0] < free
    del b, pool


def test_exact_sizes_reach_the_resource_of_the_table() -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_per_device_resource(0, resource)
    for size in (1, 20, 1000):
        DeviceBuffer(size=size)
    assert [n for _, n in calls] == [1, 1, 20, 20, 1000, 1000]


@needs_two_devices
def test_is_initialized_looks_at_every_device() -> None:
    assert mr.is_initialized()
    mr.set_per_device_resource(1, mr.ManagedMemoryResource())
    assert mr.is_initialized() and rmm.is_initialized()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_fork_ends_quietly_with_resources_in_the_table() -> None:
    run_quietly(
        "import os, sys\n"
        "import rmm\n"
        "rmm.reinitialize(pool_allocator=True, initial_pool_size='1MiB')\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n",
        "-W",
        "ignore::DeprecationWarning",  # libraries have threads
    )
