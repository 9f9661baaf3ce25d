"""Exceptions across the border of C++, and callbacks that raise."""

import functools
import gc
import os
import pickle
import sys
import traceback
import weakref
from typing import Any

import numpy as np
import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm._cuda import gpu
from rmm.pylibrmm.stream import Stream
from support import MIB, ON_HOST, run_python


def failing(error: BaseException) -> mr.CallbackMemoryResource:
    def allocate(nbytes: int, stream: Stream) -> int:
        raise error

    return mr.CallbackMemoryResource(allocate, lambda ptr, nbytes, stream: None)


def test_out_of_memory_says_what_was_asked_and_has_the_numbers() -> None:
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), 4 * MIB, 8 * MIB)
    keep = DeviceBuffer(size=3 * MIB, mr=pool)
    with pytest.raises(MemoryError) as raised:
        DeviceBuffer(size=16 * MIB, mr=pool)
    error = raised.value
    assert type(error) is rmm.OutOfMemoryError
    assert str(16 * MIB) in str(error)
    assert error.requested_bytes == 16 * MIB
    assert error.device == 0
    assert error.device_total_bytes == mr.available_device_memory()[1]
    assert 0 < error.device_free_bytes <= error.device_total_bytes
    assert error.pool_maximum_bytes == 8 * MIB
    assert error.pool_in_use_bytes >= keep.size
    assert error.pool_num_blocks == 1
    assert error.limit == "maximum"


def test_out_of_memory_names_the_tag_that_holds_most() -> None:
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), 0, 8 * MIB)
    with rmm.memory_tag("join"):
        keep = DeviceBuffer(size=4 * MIB, mr=pool)
    with pytest.raises(rmm.OutOfMemoryError, match="join") as raised:
        DeviceBuffer(size=16 * MIB, mr=pool)
    assert raised.value.largest_tag == "join"
    assert raised.value.largest_tag_bytes >= keep.size


def test_out_of_memory_has_its_public_name_in_tracebacks_and_pickles_with_its_fields() -> None:
    with pytest.raises(rmm.OutOfMemoryError) as raised:
        DeviceBuffer(size=1 << 50)
    again = pickle.loads(pickle.dumps(raised.value))
    assert traceback.format_exception_only(again)[0].startswith("rmm.OutOfMemoryError: ")
    assert (str(again), vars(again)) == (str(raised.value), vars(raised.value))
    assert again.requested_bytes == 1 << 50


def test_fields_that_are_not_known_have_neutral_values() -> None:
    error = rmm.OutOfMemoryError("text")
    assert str(error) == "text"
    assert (error.device, error.requested_bytes, error.limit, error.largest_tag) == (-1, 0, "unknown", None)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (MemoryError("my text"), MemoryError),
        (rmm.OutOfMemoryError("my text"), MemoryError),
        (RuntimeError("my text"), RuntimeError),
        (Exception("my text"), RuntimeError),
        (BaseException("my text"), RuntimeError),
        (KeyboardInterrupt("my text"), RuntimeError),
        (ValueError("my text"), RuntimeError),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, BaseException) else "",
)
@pytest.mark.parametrize("over", [None, "pool", "statistics", "limiting"])
def test_what_a_callback_raises_comes_out_with_its_text_and_is_the_cause(
    raised: BaseException, expected: type[Exception], over: str | None
) -> None:
    resource: mr.DeviceMemoryResource = failing(raised)
    if over == "pool":
        resource = mr.PoolMemoryResource(resource, 0)
    elif over == "statistics":
        resource = mr.StatisticsResourceAdaptor(resource)
    elif over == "limiting":
        resource = mr.LimitingResourceAdaptor(resource, 64 * MIB)
    with pytest.raises(expected, match="my text") as caught:
        DeviceBuffer(size=8, mr=resource)
    assert isinstance(caught.value, MemoryError) == (expected is MemoryError)
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize("result", [None, "ptr", 1.5, b""], ids=repr)
def test_a_callback_that_returns_no_int_is_a_runtime_error(result: Any) -> None:
    resource = mr.CallbackMemoryResource(lambda nbytes, stream: result, lambda ptr, nbytes, stream: None)
    with pytest.raises(RuntimeError):
        DeviceBuffer(size=8, mr=resource)


@pytest.mark.parametrize("result", [-1, -(1 << 70), 1 << 64, np.int64(-1)], ids=repr)
def test_a_number_that_is_no_address_is_an_error(result: Any) -> None:
    frees: list[int] = []
    resource = mr.CallbackMemoryResource(lambda nbytes, stream: result, lambda ptr, nbytes, stream: frees.append(ptr))
    with pytest.raises(RuntimeError, match="the address that allocate_func returns must be between 0 and") as caught:
        DeviceBuffer(size=8, mr=resource)
    assert str(int(result)) in str(caught.value)
    with pytest.raises(RuntimeError):
        resource.allocate(8)
    assert frees == []


def test_a_failed_callback_leaves_no_cause_to_later_errors() -> None:
    with pytest.raises(RuntimeError):
        failing(ValueError("first")).allocate(8)
    with pytest.raises(MemoryError) as later:
        mr.CudaMemoryResource().allocate(1 << 50)
    assert later.value.__cause__ is None


def test_the_exception_of_a_callback_is_let_go_of_with_the_one_that_came_out() -> None:
    class Marker:
        pass

    marker = Marker()
    gone = weakref.ref(marker)
    error = ValueError("with a marker")
    error.marker = marker  # type: ignore[attr-defined]
    del marker
    resource = failing(error)
    del error
    with pytest.raises(RuntimeError):
        resource.allocate(8)
    del resource
    with pytest.raises(RuntimeError):
        failing(ValueError("another")).allocate(8)
    gc.collect()
    assert gone() is None


def test_an_exception_in_a_free_goes_to_the_unraisable_hook_and_the_free_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: seen.append(unraisable.exc_value))
    upstream = mr.CudaMemoryResource()

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        upstream.deallocate(ptr, nbytes, stream)
        raise KeyError("in the free")

    resource = mr.StatisticsResourceAdaptor(mr.CallbackMemoryResource(upstream.allocate, deallocate))
    b = DeviceBuffer(size=8, mr=resource)
    del b
    assert [repr(e) for e in seen] == ["KeyError('in the free')"]
    assert resource.allocation_counts.current_bytes == 0
    ptr = resource.allocate(8)
    resource.deallocate(ptr, 8)
    assert len(seen) == 2


def test_callbacks_are_called_in_order_and_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    upstream = mr.CudaMemoryResource()

    def allocate(nbytes: int, stream: Stream) -> int:
        print(f"Allocating {nbytes} bytes")
        return upstream.allocate(nbytes, stream)

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        print(f"Deallocating {nbytes} bytes")
        upstream.deallocate(ptr, nbytes, stream)

    mr.set_current_device_resource(mr.CallbackMemoryResource(allocate, deallocate))
    b = DeviceBuffer(size=256)
    assert capsys.readouterr().out == "Allocating 256 bytes\n"
    del b
    assert capsys.readouterr().out == "Deallocating 256 bytes\n"


def test_partial_objects_work_as_callbacks() -> None:
    upstream = mr.CudaMemoryResource()
    seen: list[str] = []

    def allocate(name: str, nbytes: int, stream: Stream) -> int:
        seen.append(name)
        return upstream.allocate(nbytes, stream)

    def deallocate(ptr: int, nbytes: int, stream: Stream, name: str) -> None:
        seen.append(name)
        upstream.deallocate(ptr, nbytes, stream)

    resource = mr.CallbackMemoryResource(functools.partial(allocate, "a"), functools.partial(deallocate, name="d"))
    DeviceBuffer(size=8, mr=resource)
    assert seen == ["a", "d"]


@pytest.mark.parametrize("bad", [(None, print), (print, 1), ("a", "b")], ids=repr)
def test_callbacks_must_be_callable(bad: Any) -> None:
    with pytest.raises(TypeError):
        mr.CallbackMemoryResource(*bad)
    with pytest.raises(TypeError):
        mr.FailureCallbackResourceAdaptor(mr.CudaMemoryResource(), 7)  # type: ignore[arg-type]


def test_a_callback_may_use_other_resources_and_buffers() -> None:
    inner = mr.PoolMemoryResource(mr.CudaMemoryResource(), MIB)
    scratch: list[bytes] = []

    def allocate(nbytes: int, stream: Stream) -> int:
        scratch.append(DeviceBuffer.to_device(b"scratch", stream).tobytes(stream))
        return inner.allocate(nbytes, stream)

    resource = mr.CallbackMemoryResource(allocate, inner.deallocate)
    assert DeviceBuffer.to_device(b"abc").tobytes() == b"abc"
    b = DeviceBuffer(size=3, mr=resource)
    b.copy_from_host(b"abc")
    assert b.tobytes() == b"abc"
    assert scratch == [b"scratch"]


def test_callbacks_live_as_long_as_the_native_resource() -> None:
    upstream = mr.CudaMemoryResource()

    class Callback:
        def __call__(self, nbytes: int, stream: Stream) -> int:
            return upstream.allocate(nbytes, stream)

    callback = Callback()
    gone = weakref.ref(callback)
    b = DeviceBuffer(size=8, mr=mr.CallbackMemoryResource(callback, upstream.deallocate))
    del callback
    gc.collect()
    assert gone() is not None
    del b
    gc.collect()
    assert gone() is None


def test_deallocate_never_raises_for_what_the_driver_says() -> None:
    program = (
        "from rmm import mr\n"
        "mr.CudaMemoryResource().deallocate(4096, 8)\n"
        "mr.CudaMemoryResource().allocate(8)\n"
        "print('done')"
    )
    result = run_python(program, RMM_DEBUG_LOG_FILE=os.devnull)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_a_device_that_is_not_there_is_a_cuda_runtime_error() -> None:
    with pytest.raises(gpu.CUDARuntimeError):
        gpu.setDevice(99)
    assert gpu.getDevice() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_in_a_child_of_a_fork_every_call_is_a_runtime_error() -> None:
    program = (
        "import os, rmm\n"
        "b = rmm.DeviceBuffer.to_device(b'abc')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        for call in (lambda: rmm.DeviceBuffer(size=8), b.tobytes, rmm.mr.available_device_memory):\n"
        "            try:\n"
        "                call()\n"
        "            except RuntimeError:\n"
        "                continue\n"
        "            os._exit(2)\n"
        "        os._exit(0)\n"
        "    finally:\n"
        "        os._exit(3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), b.tobytes())\n"
    )
    result = run_python(program)
    assert result.stdout == "0 b'abc'\n", result.stderr


@pytest.mark.skipif(not ON_HOST, reason="about the host driver's memory")
def test_running_out_of_virtual_memory_is_deterministic() -> None:
    _, total = mr.available_device_memory()
    for _ in range(3):
        half = DeviceBuffer(size=total // 2)
        with pytest.raises(MemoryError):
            DeviceBuffer(size=total // 2 + MIB)
        del half
