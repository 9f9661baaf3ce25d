"""Numbers as arguments: whatever is an integer is taken, and what is none is refused by its name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm._cuda.gpu import deviceGetName, getDeviceAttribute, setDevice
from rmm.pylibrmm.cuda_stream import CudaStream
from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from rmm.pylibrmm.device_buffer import copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host
from rmm.pylibrmm.helper import parse_bytes
from rmm.pylibrmm.stream import Stream
from support import MIB


class Index:
    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


KINDS: dict[str, Callable[[int], Any]] = {
    "int": int,
    "int32": np.int32,
    "int64": np.int64,
    "uint64": np.uint64,
    "__index__": Index,
}


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def number(request: pytest.FixtureRequest) -> Callable[[int], Any]:
    made: Callable[[int], Any] = request.param
    return made


def test_sizes_may_be_any_integer(number: Any) -> None:
    b = DeviceBuffer(size=number(10))
    assert b.size == 10
    b.resize(number(20))
    b.reserve(number(30))
    assert (b.size, b.capacity()) == (20, 30)
    cuda = mr.CudaMemoryResource()
    assert mr.LimitingResourceAdaptor(cuda, number(MIB)).get_allocation_limit() == MIB
    pool = mr.PoolMemoryResource(cuda, number(MIB), number(2 * MIB))
    assert pool.pool_size() == MIB
    assert pool.trim(number(0)) == MIB
    fixed = mr.FixedSizeMemoryResource(cuda, number(1024), number(4))
    assert fixed.statistics()["held_bytes"] == 4096
    binning = mr.BinningMemoryResource(cuda, number(10), number(11))
    binning.add_bin(number(4096))
    assert parse_bytes(number(7)) == 7
    assert CudaStreamPool(number(3)).get_pool_size() == 3


def test_addresses_may_be_any_integer() -> None:
    cuda = mr.CudaMemoryResource()
    kinds: list[Callable[[int], Any]] = [int, np.uint64, Index]
    for kind in kinds:
        ptr = cuda.allocate(16)
        copy_host_to_ptr(b"abc", kind(ptr))
        b = DeviceBuffer(ptr=kind(ptr), size=kind(3))
        assert b.tobytes() == b"abc"
        copy_device_to_ptr(kind(b.ptr), kind(ptr + 8), kind(3))
        found = bytearray(3)
        copy_ptr_to_host(kind(ptr + 8), found)
        assert found == b"abc"
        cuda.deallocate(kind(ptr), kind(16))


def test_a_callback_may_return_any_integer() -> None:
    cuda = mr.CudaMemoryResource()
    for kind in (np.uint64, Index):

        def allocate(nbytes: int, stream: Stream, kind: Callable[[int], Any] = kind) -> Any:
            return kind(cuda.allocate(nbytes, stream))

        resource = mr.CallbackMemoryResource(allocate, cuda.deallocate)
        b = DeviceBuffer(size=3, mr=resource)
        b.copy_from_host(b"abc")
        assert b.tobytes() == b"abc"


def test_streams_and_devices_may_be_any_integer(number: Any) -> None:
    owner = CudaStream()

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, Any]:
            return (0, np.uint64(owner.value()))

    assert Stream(Protocol()).__cuda_stream__() == (0, owner.value())
    with pytest.warns(FutureWarning):
        assert DeviceBuffer(size=1, stream=number(0)).stream.is_default()
    setDevice(number(0))
    assert deviceGetName(number(0))
    assert getDeviceAttribute(number(75), number(0)) == getDeviceAttribute(75, 0)
    assert mr.get_per_device_resource(number(0)) is mr.get_current_device_resource()
    DeviceBuffer(size=10, mr=mr.ManagedMemoryResource()).prefetch(number(0))


def refused() -> dict[str, tuple[str, Callable[[Any], object]]]:
    """What takes one number that is not negative: the argument's name, and a call with it."""
    cuda = mr.CudaMemoryResource()
    b = DeviceBuffer(size=8)
    return {
        "DeviceBuffer(size)": ("size", lambda bad: DeviceBuffer(size=bad)),
        "DeviceBuffer(ptr)": ("ptr", lambda bad: DeviceBuffer(ptr=bad, size=1)),
        "resize": ("new_size", b.resize),
        "reserve": ("new_capacity", b.reserve),
        "allocate": ("nbytes", cuda.allocate),
        "deallocate(ptr)": ("ptr", lambda bad: cuda.deallocate(bad, 8)),
        "deallocate(nbytes)": ("nbytes", lambda bad: cuda.deallocate(0, bad)),
        "initial_pool_size": ("initial_pool_size", lambda bad: mr.PoolMemoryResource(cuda, bad)),
        "maximum_pool_size": ("maximum_pool_size", lambda bad: mr.PoolMemoryResource(cuda, 0, bad)),
        "arena_size": ("arena_size", lambda bad: mr.ArenaMemoryResource(cuda, bad)),
        "block_size": ("block_size", lambda bad: mr.FixedSizeMemoryResource(cuda, bad)),
        "blocks": ("blocks_to_preallocate", lambda bad: mr.FixedSizeMemoryResource(cuda, 256, bad)),
        "add_bin": ("allocation_size", mr.BinningMemoryResource(cuda).add_bin),
        "allocation_limit": ("allocation_limit", lambda bad: mr.LimitingResourceAdaptor(cuda, bad)),
        "trim": ("keep_bytes", mr.PoolMemoryResource(cuda, 0).trim),
        "maximum_size": ("maximum_size", mr.VmmMemoryResource),
        "release_threshold": ("release_threshold", lambda bad: mr.CudaAsyncMemoryResource(0, bad)),
        "pool_size": ("pool_size", CudaStreamPool),
        "stream_id": ("stream_id", CudaStreamPool(2).get_stream),
        "flags": ("flags", CudaStream),
        "device": ("device", mr.get_per_device_resource),
        "db": ("db", lambda bad: copy_ptr_to_host(bad, bytearray(1))),
        "d_src": ("d_src", lambda bad: copy_device_to_ptr(bad, b.ptr, 1)),
        "d_dst": ("d_dst", lambda bad: copy_device_to_ptr(b.ptr, bad, 1)),
        "count": ("count", lambda bad: copy_device_to_ptr(b.ptr, b.ptr, bad)),
    }


@pytest.mark.parametrize("call", refused())
def test_what_is_no_such_number_is_refused_by_its_name(call: str) -> None:
    name, function = refused()[call]
    with pytest.raises(TypeError, match=f"^{name} must be an int, not float$"):
        function(1.5)
    with pytest.raises(TypeError, match=f"^{name} must be an int, not float64$"):
        function(np.float64(8))
    for bad in (-1, np.int64(-1), Index(-1)):
        with pytest.raises(OverflowError, match=f"^{name} must be between 0 and 2\\*\\*64 - 1; it is -1$"):
            function(bad)
    with pytest.raises(OverflowError, match=f"^{name} must be between"):
        function(1 << 64)
    with pytest.raises(OverflowError, match=f"^{name} must be between 0 and 2\\*\\*64 - 1$"):
        function(10**5000)


@pytest.mark.parametrize("call", [setDevice, deviceGetName, DeviceBuffer(size=1).prefetch])
def test_a_device_that_is_no_int_is_refused_by_its_name(call: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="^device must be an int, not float$"):
        call(0.0)
    for bad in (1 << 31, 1 << 32, 1 << 64, -(1 << 32)):
        with pytest.raises(OverflowError, match=r"^device must be between -2\*\*31 and 2\*\*31 - 1; it is "):
            call(bad)


def test_what_dunder_index_raises_arrives() -> None:
    class Broken:
        def __index__(self) -> int:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        DeviceBuffer(size=Broken())
    with pytest.raises(RuntimeError, match="mine"):
        mr.CallbackMemoryResource(lambda nbytes, stream: Broken(), rmm.mr.CudaMemoryResource().deallocate).allocate(1)
