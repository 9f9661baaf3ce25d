"""Python and C++ (here by the C interface) see one table of resources."""

import ctypes
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm._cuda import gpu
from support import check_round_trip, needs_two_devices, recording_resource


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


class Cpp:
    """The functions of <rmm/mr/per_device_resource.hpp>, which say nothing of who keeps a resource alive."""

    def __init__(self) -> None:
        functions = ctypes.CDLL(loaded_library())
        of_mr = "_ZN3rmm6kmm_v02mr23{}_per_device_resourceENS0_14cuda_device_idE{}"
        self._get = functions[of_mr.format("get", "")]
        self._set = functions[of_mr.format("set", "PNS1_22device_memory_resourceE")]
        self._get.argtypes, self._get.restype = [ctypes.c_int], ctypes.c_void_p
        self._set.argtypes, self._set.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p

    def get(self, device: int) -> Any:
        return self._get(device)

    def set(self, device: int, resource: Any) -> Any:
        """Returns the one before."""
        return self._set(device, resource)


@pytest.fixture
def cpp() -> Iterator[Cpp]:
    functions = Cpp()
    yield functions
    for device in range(gpu.getDeviceCount()):
        functions.set(device, None)


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


def resource_of_c(c: Any, device: int = 0) -> ctypes.c_void_p:
    found = ctypes.c_void_p()
    assert c.rmm_get_device_resource(device, ctypes.byref(found)) == 0
    return found


@pytest.fixture
def pool_of_second(c: Any) -> Iterator[ctypes.c_void_p]:
    """A pool of C's for device 1."""
    gpu.setDevice(1)
    pool = open_pool(c)
    gpu.setDevice(0)
    yield pool
    c.rmm_set_device_resource(1, None)
    c.rmm_release(pool)


@needs_two_devices
@pytest.mark.parametrize("by", ["c", "c++"])
@pytest.mark.parametrize("python_looks", [False, True])
def test_reinitialize_replaces_what_others_have_set_for_every_device(
    by: str, python_looks: bool, c: Any, cpp: Cpp, pool_of_second: ctypes.c_void_p
) -> None:
    initial = cpp.get(1)
    assert c.rmm_set_device_resource(1, pool_of_second) == 0
    if by == "c++":
        pointer = cpp.get(1)
        c.rmm_set_device_resource(1, None)
        cpp.set(1, pointer)
    if python_looks:
        assert type(mr.get_per_device_resource(1)) is mr.DeviceMemoryResource
    rmm.reinitialize()
    assert cpp.get(1) == initial
    assert type(mr.get_per_device_resource(1)) is mr.CudaMemoryResource
    gpu.setDevice(1)
    check_round_trip()


@needs_two_devices
def test_what_cpp_replaces_for_a_while_can_be_set_again_after_reinitialize(
    c: Any, cpp: Cpp, pool_of_second: ctypes.c_void_p
) -> None:
    initial = cpp.get(1)
    gpu.setDevice(1)
    assert c.rmm_set_device_resource(1, pool_of_second) == 0
    other = cpp.get(1)
    counted = mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())
    mr.set_per_device_resource(1, counted)
    gone = weakref.ref(counted)
    before = cpp.set(1, other)
    assert type(mr.get_per_device_resource(1)) is mr.DeviceMemoryResource
    del counted
    rmm.reinitialize()
    gc.collect()
    assert gone() is None, "Python has let go of it"
    assert cpp.get(1) == initial
    cpp.set(1, before)
    assert cpp.get(1) == before
    check_round_trip()
    rmm.reinitialize()
    assert cpp.get(1) == initial, "Python had set it"


@needs_two_devices
@pytest.mark.parametrize("by", ["c", "c++"])
def test_reinitialize_replaces_what_python_has_set_and_others_have_put_back(
    by: str, c: Any, cpp: Cpp, pool_of_second: ctypes.c_void_p
) -> None:
    initial = cpp.get(1)
    gpu.setDevice(1)
    resource = mr.ManagedMemoryResource()
    mr.set_per_device_resource(1, resource)
    if by == "c":
        of_python = resource_of_c(c, 1)
        assert c.rmm_set_device_resource(1, pool_of_second) == 0
        assert c.rmm_set_device_resource(1, of_python) == 0
        c.rmm_release(of_python)
    else:
        before = cpp.set(1, initial)
        assert cpp.set(1, before) == initial
    assert mr.get_per_device_resource(1) is resource
    gpu.setDevice(0)
    rmm.reinitialize()
    assert cpp.get(1) == initial


@needs_two_devices
def test_a_resource_of_python_that_cpp_has_set_for_another_device_is_kept_for_it(cpp: Cpp) -> None:
    resource, calls = recording_resource(mr.ManagedMemoryResource())
    mr.set_per_device_resource(0, resource)
    pointer = cpp.get(0)
    cpp.set(1, pointer)
    del resource
    mr.set_per_device_resource(0, mr.CudaMemoryResource())
    gc.collect()
    assert cpp.get(1) == pointer
    buffer = DeviceBuffer(size=100, mr=mr.get_per_device_resource(1))
    assert calls == [("allocate", 100)]
    del buffer
    cpp.set(1, None)
    assert calls == [("allocate", 100), ("deallocate", 100)]


def test_reinitialize_drops_what_c_has_set_before_it_makes_a_pool(c: Any) -> None:
    _, total = mr.available_device_memory()
    opened = ctypes.c_void_p()
    assert c.rmm_open(b"pool", b"initial=60%", None, ctypes.byref(opened)) == 0
    assert c.rmm_set_device_resource(0, opened) == 0
    c.rmm_release(opened)
    rmm.reinitialize(pool_allocator=True)
    pool = mr.get_current_device_resource()
    assert isinstance(pool, mr.PoolMemoryResource)
    assert abs(pool.pool_size() - total / 2) < total / 8


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


def test_what_c_replaces_is_dropped_without_a_look_of_python(c: Any) -> None:
    resource = mr.CudaMemoryResource()
    gone = weakref.ref(resource)
    mr.set_current_device_resource(resource)
    del resource
    thread = threading.Thread(target=c.rmm_set_device_resource, args=(0, None))
    thread.start()
    thread.join()
    for _ in range(1000):  # as soon as the main thread is asked; it is between two steps of a program
        if gone() is None:
            return
    pytest.fail("Python keeps an object that nobody can find")


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
