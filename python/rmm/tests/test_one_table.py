"""Python and C++ (here by the C interface) see one table of resources."""

import ctypes
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, mr
from support import check_round_trip, recording_resource


def loaded_library() -> str:
    """The libkmm_rmm of this process."""
    with open("/proc/self/maps") as maps:
        found = {line.split()[-1] for line in maps if "libkmm_rmm" in line}
    assert len(found) == 1, f"one copy of the library holds the table, not {found}"
    return found.pop()


@pytest.fixture
def c() -> Iterator[Any]:
    library = ctypes.CDLL(loaded_library())
    library.rmm_kind.restype = ctypes.c_char_p
    library.rmm_kind.argtypes = [ctypes.c_void_p]
    library.rmm_release.argtypes = [ctypes.c_void_p]
    library.rmm_set_device_resource.argtypes = [ctypes.c_int, ctypes.c_void_p]
    library.rmm_get_device_resource.argtypes = [ctypes.c_int, ctypes.c_void_p]
    yield library
    library.rmm_set_device_resource(0, None)


def open_pool(c: Any) -> ctypes.c_void_p:
    opened = ctypes.c_void_p()
    assert c.rmm_open(b"pool", b"initial=1MiB", None, ctypes.byref(opened)) == 0
    return opened


def test_what_cpp_has_set_is_a_plain_resource_that_refers_to_it(c: Any) -> None:
    mr.set_current_device_resource(mr.ManagedMemoryResource())
    pool = open_pool(c)
    assert c.rmm_set_device_resource(0, pool) == 0
    seen = mr.get_current_device_resource()
    assert type(seen) is mr.DeviceMemoryResource
    assert mr.get_per_device_resource(0) is seen
    check_round_trip()
    b = DeviceBuffer(size=1000)
    assert b.mr is seen
    assert "PoolMemoryResource" in rmm.memory_report()
    del b
    adaptor = mr.StatisticsResourceAdaptor(seen)
    mr.set_current_device_resource(adaptor)
    check_round_trip()
    assert adaptor.upstream_mr is seen
    mr.set_current_device_resource(mr.CudaMemoryResource())
    del adaptor, seen
    gc.collect()
    c.rmm_release(pool)


def test_what_python_has_set_is_what_cpp_gets_at_once(c: Any) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(resource)
    current, ptr = ctypes.c_void_p(), ctypes.c_void_p()
    assert c.rmm_get_device_resource(0, ctypes.byref(current)) == 0
    assert c.rmm_allocate(current, ctypes.c_size_t(8), ctypes.c_size_t(256), None, ctypes.byref(ptr)) == 0
    assert c.rmm_deallocate(current, ptr, ctypes.c_size_t(8), None) == 0
    c.rmm_release(current)
    assert calls == [("allocate", 8), ("deallocate", 8)]


def test_reinitialize_replaces_what_cpp_has_set(c: Any) -> None:
    pool = open_pool(c)
    c.rmm_set_device_resource(0, pool)
    rmm.reinitialize()
    assert type(mr.get_current_device_resource()) is mr.CudaMemoryResource
    c.rmm_release(pool)
    check_round_trip()


def resource_of_c(c: Any) -> ctypes.c_void_p:
    found = ctypes.c_void_p()
    assert c.rmm_get_device_resource(0, ctypes.byref(found)) == 0
    return found


def test_a_resource_that_c_replaces_for_a_while_is_the_same_object_afterwards(c: Any) -> None:
    mr.set_current_device_resource(mr.StatisticsResourceAdaptor(mr.CudaMemoryResource()))
    before = resource_of_c(c)
    pool = open_pool(c)
    assert c.rmm_set_device_resource(0, pool) == 0
    gc.collect()
    assert type(mr.get_current_device_resource()) is mr.DeviceMemoryResource
    assert c.rmm_set_device_resource(0, before) == 0
    c.rmm_release(before)
    c.rmm_release(pool)
    adaptor = mr.get_current_device_resource()
    assert isinstance(adaptor, mr.StatisticsResourceAdaptor)
    b = DeviceBuffer(size=100)
    assert adaptor.allocation_counts.current_bytes == 100
    del b


def test_what_c_has_set_is_c_s_own_again_after_python_has_set_it_back(c: Any) -> None:
    pool = open_pool(c)
    c.rmm_set_device_resource(0, pool)
    seen = mr.get_current_device_resource()
    assert resource_of_c(c).value == pool.value
    mr.set_current_device_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(seen)
    again = resource_of_c(c)
    assert again.value == pool.value and c.rmm_kind(again) == b"pool"
    for _ in range(3):
        c.rmm_release(pool)  # the first, and the two that C was given


def test_what_c_replaces_is_dropped_by_the_next_look_of_python(c: Any) -> None:
    resource = mr.CudaMemoryResource()
    gone = weakref.ref(resource)
    mr.set_current_device_resource(resource)
    del resource
    c.rmm_set_device_resource(0, None)
    assert type(mr.get_current_device_resource()) is mr.CudaMemoryResource
    assert gone() is None


def test_what_c_holds_of_python_stays_usable_after_python_has_replaced_it(c: Any) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(resource)
    held, ptr = resource_of_c(c), ctypes.c_void_p()
    mr.set_current_device_resource(mr.CudaMemoryResource())
    del resource
    gc.collect()
    assert c.rmm_allocate(held, ctypes.c_size_t(8), ctypes.c_size_t(256), None, ctypes.byref(ptr)) == 0
    assert c.rmm_deallocate(held, ptr, ctypes.c_size_t(8), None) == 0
    c.rmm_release(held)
    assert calls == [("allocate", 8), ("deallocate", 8)]
