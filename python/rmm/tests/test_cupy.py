"""rmm.allocators.cupy: against a stand-in for CuPy on any machine, and with CuPy on a GPU."""

import ctypes
import gc
import sys
import threading
import types
import weakref
from typing import Any

import numpy as np
import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm._cuda import gpu
from rmm.allocators.cupy import native_allocator, rmm_cupy_allocator
from rmm.pylibrmm.stream import Stream
from support import MIB, needs, needs_gpu, needs_two_devices, recording_resource


class UnownedMemory:
    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        assert device_id >= 0, "CuPy would have to ask the driver for the device"
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


class FakeStream:
    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.ptr)


class FakeExternalStream(FakeStream):
    """Of a stream that somebody else destroys."""


@pytest.fixture
def fake_cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    cupy: Any = types.ModuleType("cupy")
    cupy.current = FakeStream(0)
    cupy.cuda = types.SimpleNamespace(
        UnownedMemory=UnownedMemory,
        MemoryPointer=MemoryPointer,
        ExternalStream=FakeExternalStream,
        get_current_stream=lambda: cupy.current,
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return cupy


def test_without_cupy_the_module_imports_and_the_calls_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    calls: list[Any] = [lambda: rmm_cupy_allocator(42), native_allocator]
    for call in calls:
        with pytest.raises(ModuleNotFoundError):
            call()


def test_memory_is_a_buffer_of_the_exact_size_on_the_current_stream(fake_cupy: Any) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(resource)
    stream = Stream()
    fake_cupy.current = FakeStream(stream.__cuda_stream__()[1])
    pointer = rmm_cupy_allocator(42)
    owner = pointer.mem._owner
    assert type(owner) is DeviceBuffer
    assert (pointer.mem.size, pointer.mem.ptr, pointer.ptr) == (42, owner.ptr, owner.ptr)
    assert owner.ptr != 0
    assert owner.size == 42
    assert owner.stream == stream
    assert owner.mr is resource
    assert pointer.mem.device_id == 0
    assert calls == [("allocate", 42)]
    del pointer, owner
    assert calls == [("allocate", 42), ("deallocate", 42)]


def test_no_bytes_give_a_null_pointer_with_an_owner(fake_cupy: Any) -> None:
    pointer = rmm_cupy_allocator(0)
    assert (pointer.mem.size, pointer.mem.ptr) == (0, 0)
    assert type(pointer.mem._owner) is DeviceBuffer


@needs_two_devices
def test_the_device_is_the_current_one(fake_cupy: Any) -> None:
    gpu.setDevice(1)
    pointer = rmm_cupy_allocator(8)
    assert pointer.mem.device_id == 1
    assert pointer.mem._owner.mr is mr.get_per_device_resource(1)


def test_the_stream_object_may_be_dropped_before_the_memory(fake_cupy: Any) -> None:
    stream = Stream()
    fake_cupy.current = FakeStream(stream.__cuda_stream__()[1])
    pointer = rmm_cupy_allocator(8)
    fake_cupy.current = FakeStream(0)
    gc.collect()
    del pointer
    stream.synchronize()


def test_out_of_memory_is_a_memory_error(fake_cupy: Any) -> None:
    with pytest.raises(MemoryError):
        rmm_cupy_allocator(1 << 50)


def test_the_native_allocator_is_pythons_where_cupy_does_not_show_its_current_stream(
    fake_cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy_backends", None)
    allocator = native_allocator()
    assert native_allocator() is allocator
    pointer = allocator.malloc(42)
    assert type(pointer.mem._owner) is DeviceBuffer


class CFunctionAllocator:
    """As CuPy's: calls C functions by address."""

    def __init__(self, param: int, malloc_func: int, free_func: int, owner: object) -> None:
        self.arguments = (param, malloc_func, free_func)
        self.owner = owner


# A function of C that CuPy exports: its current stream.
_current_handle = ctypes.c_ssize_t(0)
_get_stream = ctypes.CFUNCTYPE(ctypes.c_ssize_t)(lambda: _current_handle.value)


@pytest.fixture
def native_cupy(fake_cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in that also has what the native allocator asks of CuPy."""
    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    stream = types.ModuleType("cupy_backends.cuda.stream")
    capsule = new_capsule(ctypes.cast(_get_stream, ctypes.c_void_p), b"intptr_t (void)", None)
    stream.__pyx_capi__ = {"get_current_stream_ptr": capsule}  # type: ignore[attr-defined]
    for name in ("cupy_backends", "cupy_backends.cuda"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.stream", stream)
    fake_cupy.cuda.memory = types.SimpleNamespace(CFunctionAllocator=CFunctionAllocator)
    return fake_cupy


def functions_of(allocator: Any) -> tuple[Any, Any]:
    """The two functions of an allocator, called with the GIL as CuPy does."""
    _, malloc, free = allocator.arguments
    allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(malloc)
    deallocate = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(free)
    return allocate, deallocate


def test_the_native_allocator_is_one_of_c_functions_and_owns_its_memory(native_cupy: Any) -> None:
    allocator = native_allocator()
    assert isinstance(allocator, CFunctionAllocator)
    assert allocator.owner is allocator
    assert native_allocator() is allocator
    assert 0 not in allocator.arguments[1:]


def test_native_functions_use_the_current_resource_and_stream_and_the_exact_size(native_cupy: Any) -> None:
    seen: list[Any] = []
    upstream = mr.CudaMemoryResource()

    def allocate(nbytes: int, stream: Stream) -> int:
        seen.append(("allocate", nbytes, stream))
        return upstream.allocate(nbytes, stream)

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        seen.append(("deallocate", nbytes, stream))
        upstream.deallocate(ptr, nbytes, stream)

    mr.set_current_device_resource(mr.CallbackMemoryResource(allocate, deallocate))
    malloc, free = functions_of(native_allocator())
    stream = Stream()
    _current_handle.value = stream.__cuda_stream__()[1]
    try:
        ptr = malloc(None, 42, 0)
    finally:
        _current_handle.value = 0
    assert ptr
    mr.set_current_device_resource(mr.CudaMemoryResource())
    free(None, ptr, 0)
    assert seen == [("allocate", 42, stream), ("deallocate", 42, stream)]


def test_blocks_of_native_functions_keep_their_stream_until_the_last_is_freed(native_cupy: Any) -> None:
    malloc, free = functions_of(native_allocator())
    handle = Stream()

    def stream_with(count: int, kind: type[FakeStream] = FakeStream) -> tuple[Any, list[int]]:
        native_cupy.current = kind(handle.__cuda_stream__()[1])
        _current_handle.value = native_cupy.current.ptr
        try:
            return weakref.ref(native_cupy.current), [malloc(None, 42 + i, 0) for i in range(count)]
        finally:
            native_cupy.current, _current_handle.value = FakeStream(0), 0

    wrapper, first = stream_with(1, FakeExternalStream)  # of the same stream as the next one, which destroys it
    seen, blocks = stream_with(3)
    assert wrapper() is None
    _, again = stream_with(1, FakeExternalStream)
    for ptr in (*first, *again, *blocks[1:]):
        free(None, ptr, 0)
        gc.collect()
        assert seen() is not None
    free(None, blocks[0], 0)
    gc.collect()
    assert seen() is None


@needs_two_devices
def test_native_functions_work_for_each_device(native_cupy: Any) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_per_device_resource(1, resource)
    malloc, free = functions_of(native_allocator())
    ptr = malloc(None, 8, 1)
    free(None, ptr, 1)
    assert calls == [("allocate", 8), ("deallocate", 8)]
    assert gpu.getDevice() == 0


def test_blocks_of_native_functions_keep_their_resource_and_let_go_of_it(native_cupy: Any) -> None:
    malloc, free = functions_of(native_allocator())
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), 8 * MIB)
    pool.set_name("of the blocks")
    mr.set_current_device_resource(pool)
    small, large = [malloc(None, 1000, 0) for _ in range(3)], malloc(None, 3 * MIB, 0)
    assert pool.statistics()["num_blocks"] == 4
    mr.set_current_device_resource(mr.CudaMemoryResource())
    del pool
    for ptr in (*small[1:], large):
        free(None, ptr, 0)
        assert "of the blocks" in rmm.memory_report()
    free(None, small[0], 0)
    assert "of the blocks" not in rmm.memory_report()


def test_native_functions_keep_nothing_of_a_resource_that_gives_null(native_cupy: Any) -> None:
    malloc, _free = functions_of(native_allocator())

    def give_nothing(nbytes: int, stream: Stream) -> int:
        return 0

    seen = weakref.ref(give_nothing)
    mr.set_current_device_resource(mr.CallbackMemoryResource(give_nothing, lambda ptr, nbytes, stream: None))
    del give_nothing
    assert not any(malloc(None, 100, 0) for _ in range(1000))
    mr.set_current_device_resource(mr.CudaMemoryResource())
    gc.collect()
    assert seen() is None


def test_threads_use_native_functions_at_once(native_cupy: Any) -> None:
    malloc, free = functions_of(native_allocator())
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), 8 * MIB)
    mr.set_current_device_resource(pool)
    all_of_them: list[int] = []
    lock = threading.Lock()

    def work(size: int) -> None:
        mine = []
        for i in range(2000):
            mine.append(malloc(None, size + i, 0))
            if i % 3:
                free(None, mine.pop(i % len(mine)), 0)
        with lock:
            all_of_them.extend(mine)

    threads = [threading.Thread(target=work, args=(100 * t + 1,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(all_of_them)) == len(all_of_them) == pool.statistics()["num_blocks"]
    for ptr in all_of_them:
        free(None, ptr, 0)
    assert pool.statistics()["num_blocks"] == 0


def test_native_functions_give_null_for_no_bytes_and_ignore_the_free_of_null(native_cupy: Any) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(resource)
    malloc, free = functions_of(native_allocator())
    assert not malloc(None, 0, 0)
    free(None, None, 0)
    assert calls == []


def test_native_functions_raise_memory_errors(native_cupy: Any) -> None:
    malloc, _ = functions_of(native_allocator())
    with pytest.raises(MemoryError):
        malloc(None, 1 << 50, 0)


@needs_gpu
@needs("cupy")
class TestWithCupy:
    @pytest.fixture(autouse=True, params=["python", "native"])
    def allocator(self, request: pytest.FixtureRequest) -> Any:
        import cupy

        malloc = rmm_cupy_allocator if request.param == "python" else native_allocator().malloc
        before = cupy.cuda.get_allocator()
        cupy.cuda.set_allocator(malloc)
        yield malloc
        gc.collect()
        cupy.cuda.set_allocator(before)

    def test_the_allocator_gives_memory_pointers(self, allocator: Any) -> None:
        pointer = allocator(42)
        assert (pointer.mem.size, pointer.ptr != 0) == (42, True)
        assert allocator is not rmm_cupy_allocator or type(pointer.mem._owner) is DeviceBuffer
        nothing = allocator(0)
        assert (nothing.mem.size, nothing.ptr) == (0, 0)

    @pytest.mark.parametrize("pool", [False, True])
    @pytest.mark.parametrize("new_stream", [False, True])
    def test_arrays_come_from_the_current_resource(self, pool: bool, new_stream: bool, allocator: Any) -> None:
        import cupy

        rmm.reinitialize(pool_allocator=pool, initial_pool_size=MIB)
        rmm.statistics.enable_statistics()
        with cupy.cuda.Stream() if new_stream else cupy.cuda.Stream.null as stream:
            array = cupy.arange(10)
            counts = rmm.statistics.get_statistics()
            assert counts is not None and counts.current_bytes >= 80
            assert np.array_equal(cupy.asnumpy(array + 1), np.arange(1, 11))
            stream.synchronize()
        del stream
        gc.collect()
        del array
        gc.collect()
        counts = rmm.statistics.get_statistics()
        assert counts is not None and counts.current_bytes == 0

    def test_the_owner_of_an_array_of_pythons_allocator_is_a_buffer(self, allocator: Any) -> None:
        import cupy

        if allocator is not rmm_cupy_allocator:
            pytest.skip("memory of C functions is owned by the allocator")
        assert type(cupy.arange(10).data.mem._owner) is DeviceBuffer
