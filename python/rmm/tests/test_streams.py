"""Streams, stream pools, and streams of other libraries."""

import gc
import sys
import threading
import types
import weakref
from typing import Any

import pytest

from rmm import DeviceBuffer, mr, pylibrmm
from rmm.pylibrmm.cuda_stream import CudaStream, CudaStreamFlags
from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream
from rmm.pylibrmm.utils import as_stream
from support import check_round_trip, needs, needs_gpu, recording_resource

FLAGS = [None, CudaStreamFlags.SYNC_DEFAULT, CudaStreamFlags.NON_BLOCKING]


class Protocol:
    """A stream by the protocol, of any version."""

    def __init__(self, handle: int, version: int = 0) -> None:
        self.answer = (version, handle)

    def __cuda_stream__(self) -> tuple[int, int]:
        return self.answer


def handle_of(stream: Stream) -> int:
    return stream.__cuda_stream__()[1]


def test_the_default_streams_have_the_handles_of_cuda() -> None:
    defaults = (DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM)
    assert [s.__cuda_stream__() for s in defaults] == [(0, 0), (0, 1), (0, 2)]
    assert [s.is_default() for s in defaults] == [True, True, False]
    assert len(set(defaults)) == 3
    assert DEFAULT_STREAM != LEGACY_DEFAULT_STREAM


@pytest.mark.parametrize("flags", FLAGS)
def test_new_streams_differ_and_work(flags: CudaStreamFlags | None) -> None:
    first, second = Stream(flags=flags), Stream(None, flags)
    assert first != second
    assert len({first, second, DEFAULT_STREAM}) == 3
    assert not first.is_default()
    check_round_trip(stream=first)
    first.synchronize()


def test_a_stream_of_a_stream_is_equal_and_hashes_the_same() -> None:
    first = Stream()
    second = Stream(first)
    assert first == second
    assert not first != second  # noqa: SIM202
    assert hash(first) == hash(second)
    assert second in {first}


@pytest.mark.parametrize("other", [0, None, "stream", object(), Protocol(0)], ids=repr)
def test_a_stream_never_equals_another_type(other: object) -> None:
    assert other != DEFAULT_STREAM
    assert not other == DEFAULT_STREAM  # noqa: SIM201


def test_a_handle_lives_as_long_as_any_stream_that_shares_it() -> None:
    first = Stream()
    second = Stream(obj=first)
    del first
    gc.collect()
    check_round_trip(stream=second)


def test_flags_together_with_an_object_are_refused() -> None:
    with pytest.raises(ValueError, match="flags may only be specified when obj is None"):
        Stream(DEFAULT_STREAM, flags=CudaStreamFlags.NON_BLOCKING)


def test_an_object_with_the_protocol_is_a_stream_and_is_kept() -> None:
    ours = Stream()
    foreign = Protocol(handle_of(ours))
    stream = Stream(foreign)
    assert stream == ours
    gone = weakref.ref(foreign)
    del foreign
    gc.collect()
    assert gone() is not None
    del stream
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("version", [1, 7])
def test_another_version_of_the_protocol_is_refused(version: int) -> None:
    with pytest.raises(NotImplementedError, match=f"version: '{version}'"):
        Stream(Protocol(0, version))


@pytest.mark.parametrize("bad", [object(), "stream", 1.5, [], b"abc"], ids=repr)
def test_other_objects_are_type_errors(bad: Any) -> None:
    with pytest.raises(TypeError):
        Stream(bad)
    with pytest.raises(TypeError):
        DeviceBuffer(size=1, stream=bad)


def test_an_exception_of_the_protocol_goes_on() -> None:
    class Broken:
        def __cuda_stream__(self) -> tuple[int, int]:
            raise KeyError("from the protocol")

    with pytest.raises(KeyError, match="from the protocol"):
        Stream(Broken())


def test_a_torch_stream_has_an_int_named_cuda_stream() -> None:
    ours = Stream()
    assert Stream(types.SimpleNamespace(cuda_stream=handle_of(ours))) == ours


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> None:
    """A module of this name, and its packages, as if another library were imported."""
    parts = name.split(".")
    for length in range(1, len(parts)):
        package = types.ModuleType(".".join(parts[:length]))
        monkeypatch.setitem(sys.modules, package.__name__, package)
    module = types.ModuleType(name)
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_cupy_stream_has_a_ptr(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeStream:
        def __init__(self, ptr: int) -> None:
            self.ptr = ptr

    class FakeExternalStream:
        def __init__(self, ptr: int) -> None:
            self.ptr = ptr

    stand_in(monkeypatch, "cupy.cuda.stream", Stream=FakeStream, ExternalStream=FakeExternalStream)
    ours = Stream()
    assert Stream(FakeStream(handle_of(ours))) == ours
    assert Stream(FakeExternalStream(handle_of(ours))) == ours


def test_a_numba_stream_is_an_int(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeStream:
        def __init__(self, handle: int) -> None:
            self.handle = handle

        def __int__(self) -> int:
            return self.handle

    stand_in(monkeypatch, "numba.cuda.cudadrv.driver", Stream=FakeStream)
    ours = Stream()
    assert Stream(FakeStream(handle_of(ours))) == ours


def test_no_library_is_imported_for_the_check() -> None:
    from support import run_quietly

    run_quietly(
        "import sys\nfrom rmm.pylibrmm.stream import Stream\n"
        "try:\n    Stream(object())\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError\n"
        "assert not {'cupy', 'numba', 'torch', 'cuda'} & set(sys.modules)"
    )


def test_every_call_with_a_stream_takes_what_a_stream_can_be_made_from() -> None:
    ours = Stream()
    foreign = Protocol(handle_of(ours))
    b = DeviceBuffer.to_device(b"abc", foreign)
    assert b.stream == ours
    assert b.tobytes(foreign) == b"abc"
    b.resize(5, foreign)
    ptr = b.mr.allocate(8, foreign)
    b.mr.deallocate(ptr, 8, foreign)


def test_as_stream_makes_a_stream_and_refuses_none() -> None:
    assert as_stream(DEFAULT_STREAM) is DEFAULT_STREAM
    assert as_stream(Protocol(2)) == PER_THREAD_DEFAULT_STREAM
    with pytest.raises(TypeError, match="stream argument cannot be None"):
        as_stream(None)


def test_a_cuda_stream_owns_one_handle() -> None:
    owner = CudaStream()
    assert owner.is_valid()
    assert owner.value() not in (0, 1, 2)
    assert pylibrmm.stream._OwningStream is CudaStream


def test_flags_are_integers() -> None:
    assert [(f.name, int(f)) for f in CudaStreamFlags] == [("SYNC_DEFAULT", 0), ("NON_BLOCKING", 1)]
    assert isinstance(CudaStreamFlags.SYNC_DEFAULT, int)


@pytest.mark.parametrize("flags", FLAGS[1:])
def test_a_pool_hands_out_its_streams_in_turn(flags: CudaStreamFlags) -> None:
    pool = CudaStreamPool(10, flags)
    assert pool.get_pool_size() == 10
    streams = [pool.get_stream() for _ in range(10)]
    assert len(set(streams)) == 10
    assert not set(streams) & {DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM}
    for number, stream in enumerate(streams):
        assert pool.get_stream(number) == pool.get_stream(stream_id=number + 20) == stream
    assert pool.get_stream() == streams[0]
    check_round_trip(stream=streams[3])


def test_a_pool_has_sixteen_streams_unless_told_otherwise() -> None:
    assert CudaStreamPool().get_pool_size() == 16


def test_a_pool_without_streams_is_refused() -> None:
    with pytest.raises(RuntimeError):
        CudaStreamPool(0)


def test_a_stream_keeps_its_pool() -> None:
    pool = CudaStreamPool(2)
    gone = weakref.ref(pool)
    stream = pool.get_stream()
    del pool
    gc.collect()
    assert gone() is not None
    check_round_trip(stream=stream)


def test_threads_share_a_pool() -> None:
    pool = CudaStreamPool(4)
    taken: list[Stream] = []

    def take() -> None:
        taken.extend(pool.get_stream() for _ in range(100))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken.count(s) for s in set(taken)) == [100] * 4


def test_callbacks_see_the_stream_of_the_request() -> None:
    seen: list[Stream] = []
    upstream = mr.CudaMemoryResource()

    def allocate(nbytes: int, stream: Stream) -> int:
        seen.append(stream)
        return upstream.allocate(nbytes, stream)

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        seen.append(stream)
        upstream.deallocate(ptr, nbytes, stream)

    first, second = Stream(), Stream()
    b = DeviceBuffer(size=8, stream=first, mr=mr.CallbackMemoryResource(allocate, deallocate))
    b.resize(4, second)
    del b
    assert seen == [first, second]


def test_a_buffer_is_freed_on_its_stream_after_the_program_dropped_that() -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    b = DeviceBuffer(size=8, stream=Stream(), mr=resource)
    gc.collect()
    del b
    assert calls[-1] == ("deallocate", 8)


@needs_gpu
@needs("cuda.core")
@pytest.mark.parametrize("make", [Stream, lambda: DEFAULT_STREAM, lambda: PER_THREAD_DEFAULT_STREAM])
def test_streams_go_through_cuda_core_and_back(make: Any) -> None:
    try:
        from cuda.core import Device
    except ImportError:
        from cuda.core.experimental import Device
    device = Device()
    device.set_current()
    ours = make()
    theirs = device.create_stream(ours)
    assert Stream(theirs).__cuda_stream__() == ours.__cuda_stream__()
    memory = device.allocate(1024, stream=theirs)
    assert memory.size == 1024
    memory.close()


@needs_gpu
@needs("cupy")
def test_a_stream_of_cupy_has_the_same_handle() -> None:
    import cupy

    theirs = cupy.cuda.Stream()
    assert Stream(theirs).__cuda_stream__() == (0, theirs.ptr)
    check_round_trip(stream=Stream(theirs))


@needs_gpu
@needs("numba.cuda")
def test_a_stream_of_numba_has_the_same_handle() -> None:
    from numba import cuda

    theirs = cuda.stream()
    stream = Stream(theirs)
    assert handle_of(stream) == int(theirs)
    mr.set_current_device_resource(mr.PoolMemoryResource(mr.CudaMemoryResource(), 1 << 20))
    for s in (stream, Stream(cuda.default_stream())):
        b = DeviceBuffer(size=10, stream=s)
        assert (b.size, b.ptr != 0) == (10, True)
