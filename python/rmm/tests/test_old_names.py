"""Names of earlier versions: they work and warn, or work silently where a warning would break programs."""

import importlib
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import rmm
from rmm import DeviceBuffer, level_enum, mr
from rmm.pylibrmm.stream import DEFAULT_STREAM, Stream
from support import needs, needs_gpu, needs_two_devices, run_python, run_quietly

OLD_NAMES = (
    "to_device device_array device_array_like device_array_from_ptr rmm_cupy_allocator RMMNumbaManager "
    "_numba_memory_manager logging_level"
).split()


def test_old_names_are_neither_listed_nor_exported() -> None:
    for name in OLD_NAMES:
        assert name not in dir(rmm)
        assert name not in rmm.__all__
    assert "MemoryResource" not in dir(rmm.mr)
    assert "MemoryResource" not in mr.__all__


@pytest.mark.parametrize("name", ["to_device", "device_array", "rmm_cupy_allocator", "logging_level"])
def test_an_old_name_warns_at_the_line_that_uses_it_and_names_another(name: str) -> None:
    with pytest.warns(FutureWarning, match=rf"rmm\.{name} is an old name: use ") as seen:
        assert getattr(rmm, name) is not None
    assert [w.filename for w in seen] == [__file__]


def test_hasattr_of_an_unknown_name_is_false_and_silent() -> None:
    assert not hasattr(rmm, "no_such_name")


@pytest.mark.parametrize("source", [b"abc", bytearray(b"abc"), memoryview(b"abc")], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("stream", [0, 1, DEFAULT_STREAM], ids=repr)
@pytest.mark.filterwarnings("ignore:rmm.to_device:FutureWarning")
def test_rmm_to_device_makes_a_buffer_of_bytes(source: Any, stream: Any) -> None:
    b = rmm.to_device(source, stream=stream)  # type: ignore[attr-defined]
    assert type(b) is DeviceBuffer
    assert b.tobytes() == b"abc"


@pytest.mark.filterwarnings("ignore:rmm.rmm_cupy_allocator:FutureWarning")
def test_the_allocator_for_cupy_is_the_one_of_its_module() -> None:
    from rmm.allocators.cupy import rmm_cupy_allocator

    assert rmm.rmm_cupy_allocator is rmm_cupy_allocator  # type: ignore[attr-defined]


@needs("numba.cuda")
def test_the_manager_for_numba_is_the_one_of_its_module_and_silent_where_numba_reads_it() -> None:
    from rmm.allocators.numba import RMMNumbaManager

    with pytest.warns(FutureWarning, match="rmm.RMMNumbaManager"):
        assert rmm.RMMNumbaManager is RMMNumbaManager  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rmm._numba_memory_manager is RMMNumbaManager  # type: ignore[attr-defined]


def test_rmm_mr_memory_resource_is_the_base_class() -> None:
    with pytest.warns(FutureWarning, match="rmm.mr.MemoryResource is an old name: use rmm.mr.DeviceMemoryResource"):
        assert mr.MemoryResource is mr.DeviceMemoryResource  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["PoolMemoryResource", "FixedSizeMemoryResource", "LoggingResourceAdaptor"])
def test_upstream_is_an_old_name_of_a_parameter(name: str, tmp_path: Any) -> None:
    arguments: dict[str, dict[str, Any]] = {
        "PoolMemoryResource": {"initial_pool_size": 1 << 20},
        "FixedSizeMemoryResource": {"blocks_to_preallocate": 1},
        "LoggingResourceAdaptor": {"log_file_name": str(tmp_path / "log")},
    }
    make: Any = getattr(mr, name)
    upstream = mr.CudaMemoryResource()
    with pytest.warns(FutureWarning, match="upstream_mr"):
        adaptor = make(upstream=upstream, **arguments[name])
    assert adaptor.upstream_mr is upstream
    with pytest.raises(TypeError):
        make(upstream, no_such_parameter=upstream, **arguments[name])
    with pytest.raises(TypeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make(upstream, upstream=upstream, **arguments[name])


@pytest.mark.parametrize("device", [0, pytest.param(1, marks=needs_two_devices)])
def test_a_cuda_resource_for_a_device_allocates_there(device: int) -> None:
    from rmm._cuda import gpu

    gpu.setDevice(device)
    free, _ = mr.available_device_memory()
    gpu.setDevice(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        resource = mr.CudaMemoryResource(device=device)
    ptr = resource.allocate(1 << 24)
    assert gpu.getDevice() == 0
    gpu.setDevice(device)
    assert mr.available_device_memory()[0] <= free - (1 << 24)
    gpu.setDevice(0)
    resource.deallocate(ptr, 1 << 24)


def test_a_number_is_the_stream_of_that_handle() -> None:
    handle = Stream()
    number = handle.__cuda_stream__()[1]
    calls: list[Any] = [
        lambda: DeviceBuffer(size=3, stream=number),
        lambda: DeviceBuffer.to_device(b"abc", stream=number),
        lambda: rmm.pylibrmm.device_buffer.to_device(b"abc", number),
    ]
    for call in calls:
        with pytest.warns(FutureWarning):
            b = call()
        assert b.stream == handle


@pytest.mark.filterwarnings("ignore:rmm.logging_level:FutureWarning")
def test_logging_level_has_the_levels_in_capitals() -> None:
    old = rmm.logging_level  # type: ignore[attr-defined]
    names = {"TRACE": "trace", "DEBUG": "debug", "INFO": "info", "WARN": "warn", "ERR": "error"}
    for name, level in {**names, "CRITICAL": "critical", "OFF": "off"}.items():
        assert getattr(old, name) is level_enum[level]


def test_counts_are_read_as_a_mapping_silently(stats_mr: mr.StatisticsResourceAdaptor) -> None:
    b = DeviceBuffer(size=20)
    assert stats_mr.allocation_counts["current_bytes"] == b.size
    assert dict(stats_mr.allocation_counts)["total_count"] == 1


@pytest.mark.parametrize("name", ["device_buffer", "memory_resource", "logger", "cuda_stream"])
def test_modules_of_rmm_lib_are_those_of_pylibrmm(name: str) -> None:
    sys.modules.pop(f"rmm._lib.{name}", None)
    with pytest.warns(FutureWarning, match=rf"rmm\._lib\.{name} is an old name: use rmm\.pylibrmm\.{name}"):
        old = importlib.import_module(f"rmm._lib.{name}")
    assert old is importlib.import_module(f"rmm.pylibrmm.{name}")


def test_modules_of_rmm_lib_resolve_without_another_import() -> None:
    run_quietly(
        "import rmm\nfrom rmm._lib.device_buffer import DeviceBuffer\n"
        "assert rmm._lib.device_buffer.DeviceBuffer is DeviceBuffer is rmm.DeviceBuffer\n"
        "assert rmm._lib.memory_resource.CudaMemoryResource is rmm.mr.CudaMemoryResource\n"
        "import rmm._lib.lib",
        "-W",
        "ignore::FutureWarning",
    )


@pytest.mark.filterwarnings("ignore:rmm._lib:FutureWarning")
def test_the_old_module_for_torch_is_where_its_functions_are() -> None:
    import os

    from rmm._lib import torch_allocator

    assert torch_allocator.__file__ is not None
    assert os.path.isfile(torch_allocator.__file__)
    assert torch_allocator.__file__.endswith("_torch_allocator.so")


def test_the_old_module_of_streams_warns_when_it_is_imported() -> None:
    result = run_python("import rmm._cuda.stream")
    assert "FutureWarning: rmm._cuda.stream is an old name: use rmm.pylibrmm.stream" in result.stderr
    sys.modules.pop("rmm._cuda.stream", None)
    with pytest.warns(FutureWarning):
        old = importlib.import_module("rmm._cuda.stream")
    for name in ("Stream", "DEFAULT_STREAM", "LEGACY_DEFAULT_STREAM", "PER_THREAD_DEFAULT_STREAM"):
        assert getattr(old, name) is getattr(rmm.pylibrmm.stream, name)


def test_names_up_to_the_last_versions_are_silent() -> None:
    run_quietly(
        "import rmm, rmm.pylibrmm.cuda_stream\n"
        "rmm.mr._initialize()\nrmm.mr._flush_logs()\n"
        "rmm.mr.get_current_device_resource_type()\nrmm.mr.get_per_device_resource_type(0)",
        "-W",
        "error",
    )


def test_levels_are_never_text() -> None:
    with pytest.raises(TypeError):
        rmm.set_logging_level("trace")  # type: ignore[arg-type]


@needs_gpu
@needs("numba.cuda")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numba_are_owned_by_buffers(order: Any) -> None:
    source = np.asarray(np.arange(6, dtype="f8").reshape(2, 3), order=order)
    there = rmm.to_device(source)  # type: ignore[attr-defined]
    assert np.array_equal(there.copy_to_host(), source)
    like = rmm.device_array_like(source)  # type: ignore[attr-defined]
    assert (like.shape, like.dtype, like.strides) == (source.shape, source.dtype, source.strides)
    assert isinstance(like.gpu_data._owner, DeviceBuffer)
    empty = rmm.device_array(6, "f8")  # type: ignore[attr-defined]
    assert empty.shape == (6,)
    gone: list[int] = []
    view = rmm.device_array_from_ptr(  # type: ignore[attr-defined]
        int(there.gpu_data.device_pointer), 6, finalizer=lambda: gone.append(1)
    )
    assert np.array_equal(np.sort(view.copy_to_host()), np.arange(6))
    del view
    assert gone == [1]
