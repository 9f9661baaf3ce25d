"""Buffers travel; resources, streams and stream pools do not."""

import copy
import pickle
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from rmm.pylibrmm.stream import Stream
from support import recording_resource, some_bytes


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("content", [b"", b"abc"])
def test_a_buffer_comes_back_from_a_pickle(content: bytes, protocol: int) -> None:
    b = pickle.loads(pickle.dumps(DeviceBuffer.to_device(content), protocol))
    assert type(b) is DeviceBuffer
    assert b.tobytes() == content


def test_a_buffer_reduces_to_the_function_by_its_public_name_and_an_array() -> None:
    reduced: Any = DeviceBuffer.to_device(b"abc").__reduce__()
    function, (content,) = reduced
    assert function is rmm.pylibrmm.device_buffer.to_device
    assert (content.dtype, content.tobytes()) == ("u1", b"abc")
    assert b"crmm.pylibrmm.device_buffer\nto_device\n" in pickle.dumps(DeviceBuffer.to_device(b"abc"), 0)


@pytest.mark.parametrize("content", [b"", b"abc", some_bytes(10_000).tobytes()], ids=len)
def test_protocol_5_gives_exactly_one_buffer_beside_the_pickle(content: bytes) -> None:
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(DeviceBuffer.to_device(content), protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 1
    assert bytes(buffers[0].raw()) == content
    assert len(text) < 1000
    assert pickle.loads(text, buffers=buffers).tobytes() == content


def test_a_pickle_waits_for_the_buffers_stream() -> None:
    stream = Stream(flags=rmm.pylibrmm.CudaStreamFlags.NON_BLOCKING)
    source = some_bytes(1 << 20)
    b = DeviceBuffer.to_device(source, stream)
    for _ in range(20):
        b.copy_from_host(source, stream)
    assert pickle.loads(pickle.dumps(b)).tobytes() == source.tobytes()


@pytest.mark.parametrize("load", [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_loading_allocates_from_the_resource_that_is_current_there(load: Any) -> None:
    b = DeviceBuffer.to_device(b"abc")
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(resource)
    assert load(b).mr is resource
    assert calls[0] == ("allocate", 3)


@pytest.mark.filterwarnings("ignore:rmm._lib:FutureWarning")
def test_pickles_of_old_versions_load() -> None:
    import numpy as np

    content = pickle.dumps(np.frombuffer(b"abc", "u1"), 0)
    head, tail = b"crmm._lib.device_buffer\nto_device\n(", b"tR."
    assert pickle.loads(head + content[:-1] + tail).tobytes() == b"abc"


@pytest.mark.parametrize(
    "make",
    [Stream, CudaStreamPool, mr.CudaMemoryResource, lambda: mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())],
    ids=["stream", "stream pool", "resource", "adaptor"],
)
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_streams_and_resources_do_not_pickle(make: Any, protocol: int) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(make(), protocol)


def test_an_out_of_memory_error_keeps_its_fields_in_a_pickle() -> None:
    with pytest.raises(rmm.OutOfMemoryError) as raised:
        DeviceBuffer(size=1 << 40)
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    assert again.requested_bytes == raised.value.requested_bytes == 1 << 40
