"""DeviceBuffer: making, copying, growing, reading; and the copy functions beside it."""

import array
import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm.pylibrmm.device_buffer import copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host, to_device
from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream
from support import RESOURCES, check_round_trip, on_host_driver, recording_resource, some_bytes

BYTES_LIKE: list[Any] = [
    b"abc",
    bytearray(b"abc"),
    memoryview(b"abc"),
    np.frombuffer(b"abc", dtype="u1"),
    array.array("B", b"abc"),
]


@pytest.mark.parametrize("size", [0, 5, 1000])
def test_a_buffer_says_how_large_it_is_in_every_way(size: int) -> None:
    b = DeviceBuffer(size=size)
    assert (b.ptr != 0) == (size != 0)
    assert b.size == b.nbytes == len(b) == b.__sizeof__() == size
    assert b.capacity() >= size
    assert b.ptr % 256 == 0


def test_arguments_are_keywords_only() -> None:
    with pytest.raises(TypeError):
        DeviceBuffer(0, 5)  # type: ignore[call-arg]


def test_the_array_interface_is_a_fresh_dict_of_five_keys() -> None:
    b = DeviceBuffer(size=5)
    has = b.__cuda_array_interface__
    assert has == {"data": (b.ptr, False), "shape": (5,), "strides": None, "typestr": "|u1", "version": 0}
    has.clear()
    assert len(b.__cuda_array_interface__) == 5


def test_a_buffer_shows_its_resource_and_its_stream_and_none_of_it_can_be_set() -> None:
    stream = Stream()
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), 0, 1 << 20)
    b = DeviceBuffer(size=5, stream=stream, mr=pool)
    assert b.mr is pool
    assert b.stream == stream
    for name in ("ptr", "size", "nbytes", "mr", "stream"):
        with pytest.raises(AttributeError):
            setattr(b, name, None)


def test_a_buffer_has_no_buffer_protocol() -> None:
    with pytest.raises(TypeError):
        memoryview(DeviceBuffer(size=5))  # type: ignore[arg-type]


def test_ptr_and_size_copy_from_host_and_from_device_memory() -> None:
    source = some_bytes(100)
    from_host = DeviceBuffer(ptr=source.ctypes.data, size=100)
    from_device = DeviceBuffer(ptr=from_host.ptr, size=100)
    assert from_device.tobytes() == source.tobytes()
    assert from_device.ptr != from_host.ptr


@pytest.mark.parametrize(("ptr", "size"), [(0, 8), (64, 0), (0, 0)])
def test_without_pointer_or_size_nothing_is_copied(ptr: int, size: int) -> None:
    assert len(DeviceBuffer(ptr=ptr, size=size)) == size


def test_a_buffer_of_no_bytes_never_calls_the_resource() -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    b = DeviceBuffer(size=0, mr=resource)
    assert (b.ptr, b.size) == (0, 0)
    assert b.tobytes() == b""
    del b
    assert calls == []


@pytest.mark.parametrize("size", [1, 20, 1000])
def test_mr_is_asked_once_and_for_the_exact_size(size: int) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    b = DeviceBuffer(size=size, mr=resource)
    assert calls == [("allocate", size)]
    del resource
    gc.collect()
    del b
    assert calls == [("allocate", size), ("deallocate", size)]


def test_the_current_resource_is_used_at_that_moment_and_remembered() -> None:
    first, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(first)
    b = DeviceBuffer(size=10)
    mr.set_current_device_resource(mr.CudaMemoryResource())
    assert b.mr is first
    b.resize(20)
    del b
    assert calls == [("allocate", 10), ("allocate", 20), ("deallocate", 10), ("deallocate", 20)]


@pytest.mark.parametrize("bad", [-1, 1.5, None, "5"])
def test_a_size_that_is_no_size_is_refused(bad: Any) -> None:
    with pytest.raises(OverflowError if bad == -1 else TypeError):
        DeviceBuffer(size=bad)


@pytest.mark.parametrize("bad", [1, "mr", object()])
def test_a_resource_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError):
        DeviceBuffer(size=1, mr=bad)


def test_tobytes_has_the_length_and_goes_back_in() -> None:
    b = DeviceBuffer(size=5)
    text = b.tobytes()
    assert type(text) is bytes
    assert len(text) == 5
    again = DeviceBuffer.to_device(text)
    assert len(again) == 5
    again.resize(2)
    assert again.size == 2
    assert again.capacity() >= 5


@pytest.mark.parametrize("source", BYTES_LIKE, ids=lambda s: type(s).__name__)
def test_bytes_like_objects_of_every_kind_go_there_and_back(source: Any) -> None:
    b = DeviceBuffer.to_device(source)
    assert b.tobytes() == bytes(b) == b"abc"
    result = b.copy_to_host()
    assert (result.dtype, result.shape) == (np.dtype("u1"), (3,))
    assert np.array_equal(result, np.frombuffer(b"abc", "u1"))
    assert to_device(source).tobytes() == b"abc"
    b.copy_from_host(source)
    assert b.tobytes() == b"abc"


@pytest.mark.parametrize("target", [bytearray(3), bytearray(5), np.zeros(3, "u1"), np.zeros(9, "u1")], ids=repr)
def test_copy_to_host_fills_what_it_is_given_and_returns_that_object(target: Any) -> None:
    assert DeviceBuffer.to_device(b"abc").copy_to_host(target) is target
    assert bytes(target) == b"abc" + bytes(len(target) - 3)


def test_copy_to_host_refuses_a_target_that_is_too_small() -> None:
    with pytest.raises(ValueError, match="Argument `ary` is too small. Need space for 10 bytes."):
        DeviceBuffer(size=10).copy_to_host(np.zeros(9, "u1"))


def test_copy_to_host_refuses_a_target_that_cannot_be_written() -> None:
    with pytest.raises(BufferError):
        DeviceBuffer(size=3).copy_to_host(b"abc")
    with pytest.raises(BufferError):
        copy_ptr_to_host(DeviceBuffer(size=3).ptr, b"abc")


def test_copy_from_host_changes_only_what_it_covers() -> None:
    b = DeviceBuffer.to_device(np.zeros(10, "u1"))
    b.copy_from_host(b"abc")
    assert b.tobytes() == b"abc" + bytes(7)


def test_copy_from_host_refuses_more_than_fits() -> None:
    with pytest.raises(ValueError, match="Argument `ary` is too large. Need space for 6 bytes."):
        DeviceBuffer(size=5).copy_from_host(b"abcdef")


@pytest.mark.parametrize("bad", [None, "abc", 123], ids=repr)
def test_what_is_not_bytes_like_is_a_type_error(bad: Any) -> None:
    b = DeviceBuffer(size=3)
    for call in (DeviceBuffer.to_device, to_device, b.copy_from_host, lambda x: copy_host_to_ptr(x, b.ptr)):
        with pytest.raises(TypeError):
            call(bad)
    if bad is not None:
        with pytest.raises(TypeError):
            b.copy_to_host(bad)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(3, "u2"),
        np.zeros(3, "i1"),
        np.zeros(3, "f8"),
        np.zeros((2, 3), "u1"),
        np.zeros(6, "u1")[::2],
        np.zeros((), "u1"),
        memoryview(array.array("b", b"abc")),
    ],
    ids=["uint16", "int8", "double", "two dimensions", "strided", "no dimension", "signed"],
)
def test_other_formats_shapes_and_strides_are_value_errors(bad: Any) -> None:
    b = DeviceBuffer(size=100)
    for call in (DeviceBuffer.to_device, to_device, b.copy_from_host, b.copy_to_host):
        with pytest.raises(ValueError):
            call(bad)


@pytest.mark.parametrize("empty", [b"", bytearray(), np.zeros(0, "u1")], ids=repr)
def test_empty_is_valid(empty: Any) -> None:
    b = DeviceBuffer.to_device(empty)
    assert (b.ptr, b.size) == (0, 0)
    assert b.tobytes() == b""
    assert b.copy_to_host().shape == (0,)
    b.copy_from_host(empty)
    copy_host_to_ptr(empty, 0)


def test_a_size_one_array_is_contiguous_whatever_its_stride() -> None:
    assert DeviceBuffer.to_device(np.arange(10, dtype="u1")[4:5:3]).tobytes() == b"\x04"


class Array:
    """What another library shows of an array on the device."""

    def __init__(self, ptr: int, length: int, typestr: str = "|u1", **others: Any) -> None:
        self.__cuda_array_interface__ = {
            "data": (ptr, False),
            "shape": (length,),
            "typestr": typestr,
            "version": 0,
            **others,
        }


@pytest.mark.parametrize("strides", [{}, {"strides": None}, {"strides": (4,)}], ids=repr)
def test_copy_from_device_takes_any_type_in_one_dimension(strides: dict[str, Any]) -> None:
    source = np.arange(5, dtype="<f4")
    there = DeviceBuffer.to_device(source.view("u1"))
    b = DeviceBuffer.to_device(np.zeros(24, "u1"))
    b.copy_from_device(Array(there.ptr, 5, "<f4", **strides))
    DEFAULT_STREAM.synchronize()
    assert b.tobytes() == source.tobytes() + bytes(4)


def test_copy_from_device_takes_a_buffer() -> None:
    b = DeviceBuffer.to_device(np.zeros(10, "u1"))
    b.copy_from_device(DeviceBuffer.to_device(b"abc"))
    assert b.tobytes() == b"abc" + bytes(7)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: np.zeros(3, "u1"),
        lambda p: b"abc",
        lambda p: Array(p, 11),
        lambda p: Array(p, 2, "<f8"),
        lambda p: Array(p, 3, shape=(3, 1)),
        lambda p: Array(p, 1, shape=()),
        lambda p: Array(p, 3, strides=(2,)),
        lambda p: Array(p, 3, strides=(-1,)),
        lambda p: Array(p, 3, version=3, mask=Array(p, 3)),
    ],
    ids="ndarray bytes too-large too-large-items two-dimensions no-dimension strided backwards masked".split(),
)
def test_copy_from_device_refuses_what_it_cannot_copy(make: Any) -> None:
    there = DeviceBuffer(size=100)
    b = DeviceBuffer(size=10)
    with pytest.raises(ValueError):
        b.copy_from_device(make(there.ptr))


@pytest.mark.parametrize("stream", [1, 2, None])
def test_copy_from_device_is_ordered_after_the_stream_of_the_interface(stream: int | None) -> None:
    there = DeviceBuffer.to_device(b"abc")
    b = DeviceBuffer(size=3)
    b.copy_from_device(Array(there.ptr, 3, version=3, stream=stream))
    assert b.tobytes() == b"abc"


def test_copy_from_device_waits_for_a_long_queue_on_the_stream_of_the_interface() -> None:
    source, target = (
        Stream(flags=rmm.pylibrmm.CudaStreamFlags.NON_BLOCKING),
        Stream(flags=rmm.pylibrmm.CudaStreamFlags.NON_BLOCKING),
    )
    size = 1 << 20
    there = DeviceBuffer.to_device(np.zeros(size, "u1"))
    ones = DeviceBuffer.to_device(np.ones(size, "u1"))
    b = DeviceBuffer(size=size, stream=target)
    for _ in range(50):
        copy_device_to_ptr(ones.ptr, there.ptr, size, source)
    b.copy_from_device(Array(there.ptr, size, version=3, stream=source.__cuda_stream__()[1]), target)
    assert b.tobytes(target) == bytes([1]) * size


@pytest.mark.parametrize("make_copy", [DeviceBuffer.copy, copy.copy, copy.deepcopy])
def test_a_copy_is_another_object_at_another_address_with_the_same_content(make_copy: Any) -> None:
    b = DeviceBuffer.to_device(some_bytes(100))
    c = make_copy(b)
    assert c is not b
    assert c.ptr != b.ptr
    assert c.size == b.size
    assert c.tobytes() == b.tobytes()
    c.copy_from_host(b"xyz")
    assert b.tobytes() == some_bytes(100).tobytes()


def test_a_copy_comes_from_the_buffers_own_resource_and_holds_it() -> None:
    own, calls = recording_resource(mr.CudaMemoryResource())
    stream = Stream()
    b = DeviceBuffer(size=10, stream=stream, mr=own)
    other, other_calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(other)
    c = b.copy()
    assert c.mr is own
    assert c.stream == stream
    assert calls == [("allocate", 10)] * 2
    assert other_calls == []


def test_a_copy_of_an_empty_buffer_is_empty() -> None:
    assert DeviceBuffer().copy().size == 0


def test_growing_keeps_the_content_and_within_the_capacity_the_address() -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    b = DeviceBuffer(size=3, mr=resource)
    b.copy_from_host(b"abc")
    b.reserve(100)
    assert (b.size, b.capacity()) == (3, 100)
    at = b.ptr
    b.resize(50)
    b.reserve(20)
    b.resize(3)
    assert (b.ptr, b.size, b.capacity()) == (at, 3, 100)
    assert calls == [("allocate", 3), ("allocate", 100), ("deallocate", 3)]
    assert b.tobytes() == b"abc"
    b.resize(200)
    assert b.tobytes()[:3] == b"abc"


@pytest.mark.parametrize("method", ["reserve", "resize"])
def test_growing_makes_its_stream_the_buffers_own_and_holds_it(method: str) -> None:
    first, second = Stream(), Stream()
    b = DeviceBuffer(size=10, stream=first)
    getattr(b, method)(20, stream=second)
    assert b.stream == second
    gone = weakref.ref(second)
    handle = second.__cuda_stream__()
    del first, second
    gc.collect()
    kept = gone()
    assert kept is not None and kept.__cuda_stream__() == handle
    getattr(b, method)(5)
    assert b.stream == DEFAULT_STREAM


@pytest.mark.parametrize("method", ["reserve", "resize"])
def test_a_grow_that_fails_leaves_the_buffer_as_it_was(method: str) -> None:
    limited = mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), 1024)
    stream = Stream()
    b = DeviceBuffer(size=3, stream=stream, mr=limited)
    b.copy_from_host(b"abc", stream)
    before = (b.ptr, b.size, b.capacity())
    with pytest.raises(MemoryError):
        getattr(b, method)(4096)
    assert (b.ptr, b.size, b.capacity()) == before
    assert b.stream == stream
    assert b.tobytes(stream) == b"abc"


def test_copies_between_addresses() -> None:
    b, c = DeviceBuffer(size=4), DeviceBuffer(size=4)
    copy_host_to_ptr(b"abcd", b.ptr)
    copy_device_to_ptr(b.ptr + 1, c.ptr, 3)
    DEFAULT_STREAM.synchronize()
    target = bytearray(2)
    copy_ptr_to_host(c.ptr + 1, memoryview(target))
    assert target == b"cd"
    copy_ptr_to_host(0, bytearray())
    copy_device_to_ptr(0, 0, 0)


@on_host_driver
def test_a_copy_that_the_driver_refuses_is_a_runtime_error() -> None:
    with pytest.raises(RuntimeError):
        copy_ptr_to_host(0, bytearray(3))
    with pytest.raises(RuntimeError):
        copy_host_to_ptr(b"abc", 0)
    check_round_trip()


@pytest.mark.parametrize("resource", RESOURCES.values(), ids=RESOURCES.keys())
@pytest.mark.parametrize("length", [1, 9, 10_000])
def test_bytes_go_round_with_every_resource(resource: Any, length: int) -> None:
    mr.set_current_device_resource(resource())
    for stream in (DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream()):
        check_round_trip(length, stream)


@pytest.mark.parametrize("dtype", ["u1", "<i2", "<f4", "<f8", "<c16"])
@pytest.mark.parametrize("length", [1, 7, 8, 128])
def test_values_of_every_type_go_round(dtype: str, length: int) -> None:
    source = np.arange(length).astype(dtype)
    b = DeviceBuffer.to_device(source.view("u1"))
    assert np.array_equal(b.copy().copy_to_host().view(dtype), source)


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("pool", [False, True])
def test_prefetch_never_fails(managed: bool, pool: bool) -> None:
    rmm.reinitialize(pool_allocator=pool, managed_memory=managed, initial_pool_size=1 << 20)
    for b in (DeviceBuffer.to_device(b"abc"), DeviceBuffer()):
        b.prefetch()
        b.prefetch(device=0)
        b.prefetch(device=-1)
        b.prefetch(device=None, stream=None)
        b.prefetch(stream=Stream())
        b.prefetch(0, DEFAULT_STREAM)
    assert DeviceBuffer.to_device(b"abc").tobytes() == b"abc"


def on_a_busy_stream() -> Stream:
    """A stream with a queue of copies that takes a while."""
    stream = Stream(flags=rmm.pylibrmm.CudaStreamFlags.NON_BLOCKING)
    first, second = DeviceBuffer(size=16 << 20, stream=stream), DeviceBuffer(size=16 << 20, stream=stream)
    for _ in range(10):
        copy_device_to_ptr(first.ptr, second.ptr, first.size, stream)
    return stream


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_pageable_memory_may_be_reused_when_an_asynchronous_copy_returns(size: int) -> None:
    stream = on_a_busy_stream()
    source = bytearray(b"\1" * size)
    b = DeviceBuffer.to_device(source, stream)
    source[:] = b"\2" * size
    assert b.tobytes(stream) == b"\1" * size
    source[:] = b"\3" * size
    b.copy_from_host(source, stream)
    source[:] = bytes(size)
    assert b.copy_to_host(stream=stream).tobytes() == b"\3" * size


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_results_in_pageable_memory_are_complete_when_the_copy_returns(size: int) -> None:
    stream = on_a_busy_stream()
    b = DeviceBuffer.to_device(b"\1" * size, stream)
    target = np.zeros(size, "u1")
    b.copy_to_host(target, stream)
    assert target.all()
    target[:] = 0
    copy_ptr_to_host(b.ptr, target, stream)
    assert target.all()


def test_streams_work_beside_each_other() -> None:
    stream, other = on_a_busy_stream(), Stream(flags=rmm.pylibrmm.CudaStreamFlags.NON_BLOCKING)
    assert DeviceBuffer.to_device(b"abc", other).tobytes(other) == b"abc"
    stream.synchronize()


TWELVE_CALLS: dict[str, Any] = {
    "DeviceBuffer": lambda b: DeviceBuffer(size=1, stream=None),
    "reserve": lambda b: b.reserve(1, stream=None),
    "resize": lambda b: b.resize(1, stream=None),
    "DeviceBuffer.to_device": lambda b: DeviceBuffer.to_device(b"abc", stream=None),
    "copy_to_host": lambda b: b.copy_to_host(stream=None),
    "copy_from_host": lambda b: b.copy_from_host(b"abc", stream=None),
    "copy_from_device": lambda b: b.copy_from_device(b, stream=None),
    "tobytes": lambda b: b.tobytes(stream=None),
    "to_device": lambda b: to_device(b"abc", stream=None),
    "copy_ptr_to_host": lambda b: copy_ptr_to_host(b.ptr, bytearray(3), stream=None),
    "copy_host_to_ptr": lambda b: copy_host_to_ptr(b"abc", b.ptr, stream=None),
    "copy_device_to_ptr": lambda b: copy_device_to_ptr(b.ptr, b.ptr, 3, stream=None),
    "allocate": lambda b: b.mr.allocate(8, stream=None),
    "deallocate": lambda b: b.mr.deallocate(8, 8, stream=None),
}


@pytest.mark.parametrize("call", TWELVE_CALLS.values(), ids=TWELVE_CALLS.keys())
def test_none_is_no_stream(call: Any) -> None:
    with pytest.raises(TypeError, match="stream argument cannot be None"):
        call(DeviceBuffer.to_device(b"abc"))


def test_subclasses_of_a_buffer_can_be_made() -> None:
    class Named(DeviceBuffer):
        name = "n"

    b = Named(size=3)
    assert (b.size, b.name) == (3, "n")
