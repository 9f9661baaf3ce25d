"""rmm.allocators.torch: its functions called directly, a stand-in for PyTorch, and PyTorch on a GPU."""

import ctypes
import importlib
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm._cuda import gpu
from rmm.pylibrmm.device_buffer import copy_device_to_ptr, copy_host_to_ptr
from rmm.pylibrmm.stream import Stream
from support import needs, needs_gpu, needs_two_devices, recording_resource, run_quietly

LIBRARY = Path(rmm.__file__).parent / "librmm" / "_torch_allocator.so"


@pytest.fixture
def library() -> Any:
    library = ctypes.CDLL(str(LIBRARY))
    library.allocate.restype = ctypes.c_void_p
    library.allocate.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    library.deallocate.restype = None
    library.deallocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    return library


def reload_module() -> Any:
    sys.modules.pop("rmm.allocators.torch", None)
    return importlib.import_module("rmm.allocators.torch")


@pytest.fixture
def fresh_module() -> Any:
    yield
    sys.modules.pop("rmm.allocators.torch", None)


@pytest.mark.usefixtures("fresh_module")
def test_without_torch_the_allocator_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert reload_module().rmm_torch_allocator is None


class Pluggable:
    """As what CUDAPluggableAllocator.allocator() gives in PyTorch."""

    def __init__(self) -> None:
        self.hooks: dict[str, int] = {}

    def set_record_stream_fn(self, address: int) -> None:
        self.hooks["record_stream"] = address

    def set_reset_fn(self, address: int) -> None:
        self.hooks["reset"] = address


class CUDAPluggableAllocator:
    def __init__(self, path: str, allocate: str, deallocate: str) -> None:
        self.arguments = (path, allocate, deallocate)
        self._allocator = Pluggable()

    def allocator(self) -> Pluggable:
        return self._allocator


def stand_in(monkeypatch: pytest.MonkeyPatch, has_gpu: bool) -> None:
    torch, cuda, memory = (types.ModuleType(name) for name in ("torch", "torch.cuda", "torch.cuda.memory"))
    torch.cuda = cuda  # type: ignore[attr-defined]
    cuda.memory = memory  # type: ignore[attr-defined]
    cuda.is_available = lambda: has_gpu  # type: ignore[attr-defined]
    memory.CUDAPluggableAllocator = CUDAPluggableAllocator  # type: ignore[attr-defined]
    for module in (torch, cuda, memory):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("fresh_module")
def test_without_a_gpu_the_allocator_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, has_gpu=False)
    assert reload_module().rmm_torch_allocator is None


@pytest.mark.usefixtures("fresh_module")
def test_the_allocator_names_the_library_and_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, has_gpu=True)
    allocator = reload_module().rmm_torch_allocator
    assert allocator.arguments == (str(LIBRARY), "allocate", "deallocate")


@pytest.mark.usefixtures("fresh_module")
def test_the_hooks_that_torch_has_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, has_gpu=True)
    hooks = reload_module().rmm_torch_allocator.allocator().hooks
    assert set(hooks) == {"record_stream", "reset"}
    assert 0 not in hooks.values()


def test_the_functions_use_the_resource_of_the_device_and_the_exact_size_and_stream(library: Any) -> None:
    seen: list[Any] = []
    upstream = mr.CudaMemoryResource()

    def allocate(nbytes: int, stream: Stream) -> int:
        seen.append(("allocate", nbytes, stream))
        return upstream.allocate(nbytes, stream)

    def deallocate(ptr: int, nbytes: int, stream: Stream) -> None:
        seen.append(("deallocate", nbytes, stream))
        upstream.deallocate(ptr, nbytes, stream)

    mr.set_current_device_resource(mr.CallbackMemoryResource(allocate, deallocate))
    stream = Stream()
    handle = stream.__cuda_stream__()[1]
    ptr = library.allocate(1000, 0, handle)
    assert ptr
    library.deallocate(ptr, 1000, 0, handle)
    assert seen == [("allocate", 1000, stream), ("deallocate", 1000, stream)]


def test_a_block_goes_back_to_the_resource_that_made_it(library: Any) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(resource)
    ptr = library.allocate(8, 0, None)
    mr.set_current_device_resource(mr.CudaMemoryResource())
    library.deallocate(ptr, 8, 0, None)
    assert calls == [("allocate", 8), ("deallocate", 8)]


def test_a_block_outlives_the_last_reference_of_python_to_its_resource(library: Any) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(mr.StatisticsResourceAdaptor(resource))
    del resource
    ptr = library.allocate(8, 0, None)
    rmm.reinitialize()
    library.deallocate(ptr, 8, 0, None)
    assert calls == [("allocate", 8), ("deallocate", 8)]


@needs_two_devices
def test_the_functions_make_the_device_current_and_put_it_back(library: Any) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_per_device_resource(1, resource)
    ptr = library.allocate(8, 1, None)
    library.deallocate(ptr, 8, 1, None)
    assert calls == [("allocate", 8), ("deallocate", 8)]
    assert gpu.getDevice() == 0


def test_no_bytes_give_null_without_asking_the_resource(library: Any) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    mr.set_current_device_resource(resource)
    assert library.allocate(0, 0, None) is None
    library.deallocate(None, 0, 0, None)
    assert calls == []


def test_a_block_that_another_stream_uses_is_held_back_until_that_stream_has_passed(library: Any) -> None:
    library.record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    mr.set_current_device_resource(mr.PoolMemoryResource(mr.CudaMemoryResource(), 64 << 20))
    flags = rmm.pylibrmm.CudaStreamFlags.NON_BLOCKING
    first, second = Stream(flags=flags), Stream(flags=flags)
    on_first = first.__cuda_stream__()[1]
    size = 1 << 20
    out, busy, busier = (DeviceBuffer(size=n) for n in (size, 16 << 20, 16 << 20))
    for _ in range(5):
        ptr = library.allocate(size, 0, on_first)
        copy_host_to_ptr(b"\1" * size, ptr, first)
        first.synchronize()
        for _ in range(5):
            copy_device_to_ptr(busy.ptr, busier.ptr, busy.size, second)
        copy_device_to_ptr(ptr, out.ptr, size, second)
        library.record_stream(ptr, second.__cuda_stream__()[1])
        library.deallocate(ptr, size, 0, on_first)
        again = library.allocate(size, 0, on_first)
        copy_host_to_ptr(bytes(size), again, first)
        first.synchronize()
        second.synchronize()
        assert out.tobytes() == b"\1" * size
        library.deallocate(again, size, 0, on_first)


def test_emptying_the_cache_trims_the_resource(library: Any) -> None:
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), 0)
    mr.set_current_device_resource(pool)
    ptr = library.allocate(1 << 20, 0, None)
    assert pool.pool_size() >= 1 << 20
    library.deallocate(ptr, 1 << 20, 0, None)
    library.reset()
    assert pool.pool_size() == 0


def test_the_base_of_a_block_is_the_block_with_its_size(library: Any) -> None:
    library.base_alloc.restype = ctypes.c_void_p
    library.base_alloc.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    ptr = library.allocate(1000, 0, None)
    size = ctypes.c_size_t()
    assert library.base_alloc(ptr, ctypes.byref(size)) == ptr
    assert size.value == 1000
    library.deallocate(ptr, 1000, 0, None)


TENSORS = """
import torch, rmm
from rmm.allocators.torch import rmm_torch_allocator
rmm.statistics.enable_statistics()
torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
def current():
    return rmm.statistics.get_statistics().current_bytes
assert current() == 0
x = torch.tensor([1, 2]).cuda()
assert current() > 0
del x
assert current() == 0
s = torch.cuda.Stream()
with torch.cuda.stream(s):
    x = torch.tensor([1, 2]).cuda()
    assert current() > 0
    del x
torch.cuda.synchronize()
assert current() == 0
x = torch.empty(0, device='cuda')
assert current() == 0
try:
    torch.empty(1 << 50, dtype=torch.uint8, device='cuda')
except RuntimeError as error:
    assert 'out_of_memory' in str(error), error
else:
    raise AssertionError
"""


@needs_gpu
@needs("torch")
def test_tensors_come_from_the_current_resource() -> None:
    run_quietly(TENSORS)


@needs_gpu
@needs("torch")
def test_record_stream_holds_a_block_back() -> None:
    run_quietly(
        "import torch, rmm\n"
        "from rmm.allocators.torch import rmm_torch_allocator\n"
        "rmm.reinitialize(pool_allocator=True, initial_pool_size='256MiB')\n"
        "torch.cuda.memory.change_current_allocator(rmm_torch_allocator)\n"
        "s = torch.cuda.Stream()\n"
        "for _ in range(10):\n"
        "    x = torch.ones(1 << 20, device='cuda')\n"
        "    s.wait_stream(torch.cuda.current_stream())\n"
        "    with torch.cuda.stream(s):\n"
        "        torch.cuda._sleep(10_000_000)\n"
        "        total = x.sum()\n"
        "    x.record_stream(s)\n"
        "    del x\n"
        "    y = torch.zeros(1 << 20, device='cuda')\n"
        "    s.synchronize()\n"
        "    assert total.item() == 1 << 20\n"
    )
