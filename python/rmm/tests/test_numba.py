"""rmm.allocators.numba: the manager alone without a GPU, arrays with one."""

import builtins
import gc
import importlib
import sys
import types
import warnings
from typing import Any

import pytest

from rmm import DeviceBuffer, mr
from support import needs, needs_gpu, recording_resource, run_quietly, skip_without_numba_kernels


def test_without_numba_the_import_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n == "numba" or n.startswith(("numba.", "rmm.allocators.numba"))]:
        monkeypatch.delitem(sys.modules, name)
    real_import = builtins.__import__

    def no_numba(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "numba":
            raise ModuleNotFoundError("No module named 'numba'", name="numba")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_numba)
    with pytest.raises(ImportError, match="needs the package"):
        importlib.import_module("rmm.allocators.numba")


def test_under_the_simulator_the_import_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rmm.allocators.numba", raising=False)
    numba = types.ModuleType("numba")
    numba.cuda = types.ModuleType("numba.cuda")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.setitem(sys.modules, "numba.cuda", numba.cuda)
    with pytest.raises(ImportError, match="simulator"):
        importlib.import_module("rmm.allocators.numba")


@needs("numba.cuda")
class TestManager:
    @pytest.fixture
    def manager(self) -> Any:
        from rmm.allocators.numba import RMMNumbaManager

        class Context:
            """What the manager asks of Numba's context."""

        manager = RMMNumbaManager(context=None)
        manager.context = Context()
        return manager

    def test_numba_finds_the_manager_and_asks_its_version_with_warnings_as_errors(self) -> None:
        from rmm.allocators import numba

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert numba._numba_memory_manager is numba.RMMNumbaManager
            assert numba.RMMNumbaManager(context=None).interface_version == 1

    @pytest.mark.parametrize("module", ["rmm.allocators.numba", "rmm"])
    def test_numba_takes_it_by_the_environment(self, module: str) -> None:
        run_quietly(
            "from numba.cuda.cudadrv import driver\n"
            "driver._ensure_memory_manager()\n"
            "assert driver._memory_manager.__name__ == 'RMMNumbaManager', driver._memory_manager",
            "-W",
            "error::FutureWarning",
            NUMBA_CUDA_MEMORY_MANAGER=module,
        )

    def test_initialize_does_nothing(self, manager: Any) -> None:
        assert manager.initialize() is None

    def test_memory_is_a_buffer_that_the_table_holds_until_the_finalizer_runs(self, manager: Any) -> None:
        resource, calls = recording_resource(mr.CudaMemoryResource())
        mr.set_current_device_resource(resource)
        pointer = manager.memalloc(42)
        ptr = int(pointer.device_pointer)
        assert pointer.size == 42
        assert list(manager.allocations) == [ptr]
        assert type(manager.allocations[ptr]) is DeviceBuffer
        assert manager.allocations[ptr].size == 42
        pointer.free()
        assert not manager.allocations
        assert calls == [("allocate", 42), ("deallocate", 42)]

    def test_memory_that_is_dropped_is_freed(self, manager: Any) -> None:
        pointer = manager.memalloc(42)
        del pointer
        gc.collect()
        assert not manager.allocations

    def test_a_finalizer_after_a_reset_of_the_context_does_nothing(self, manager: Any) -> None:
        pointer = manager.memalloc(42)
        manager.allocations.clear()
        pointer.free()

    def test_no_bytes_give_a_null_pointer_without_an_entry(self, manager: Any) -> None:
        pointer = manager.memalloc(0)
        assert (int(pointer.device_pointer), pointer.size) == (0, 0)
        assert not manager.allocations
        del pointer

    def test_out_of_memory_is_a_memory_error(self, manager: Any) -> None:
        with pytest.raises(MemoryError):
            manager.memalloc(1 << 50)

    def test_memory_without_a_handle_for_other_processes_says_which_has_one(
        self, manager: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from numba import cuda

        def refuse(self: object, memory: object) -> None:
            raise OSError("of the driver")

        monkeypatch.setattr(cuda.GetIpcHandleMixin, "get_ipc_handle", refuse)
        with pytest.raises(RuntimeError, match="CudaAsyncMemoryResource") as raised:
            manager.get_ipc_handle(manager.memalloc(8))
        assert isinstance(raised.value.__cause__, OSError)

    def test_free_memory_is_not_told(self, manager: Any) -> None:
        with pytest.raises(NotImplementedError):
            manager.get_memory_info()


ARRAYS = """
import numpy as np, rmm
from numba import cuda
from rmm.allocators.numba import RMMNumbaManager
cuda.set_memory_manager(RMMNumbaManager)
rmm.reinitialize(pool_allocator=True, initial_pool_size='64MiB')
rmm.statistics.enable_statistics()
@cuda.jit
def add(x):
    x[cuda.grid(1)] += 1
a = cuda.to_device(np.arange(64.0))
assert rmm.statistics.get_statistics().current_bytes == 512
add[1, 64](a)
assert np.array_equal(a.copy_to_host(), np.arange(64.0) + 1)
b = rmm.DeviceBuffer.to_device(np.zeros(512, 'u1'))
b.copy_from_device(a)
assert np.array_equal(b.copy_to_host().view('f8'), a.copy_to_host())
del a
assert rmm.statistics.get_statistics().current_bytes == 512
"""


@needs_gpu
@needs("numba.cuda")
def test_arrays_and_kernels_of_numba_use_the_current_resource() -> None:
    skip_without_numba_kernels()
    run_quietly(ARRAYS, "-W", "ignore")


@needs_gpu
@needs("numba.cuda")
def test_an_array_has_a_handle_for_other_processes() -> None:
    run_quietly(
        "import numpy as np, rmm\n"
        "from numba import cuda\n"
        "from rmm.allocators.numba import RMMNumbaManager\n"
        "cuda.set_memory_manager(RMMNumbaManager)\n"
        "rmm.reinitialize(pool_allocator=True, initial_pool_size='64MiB')\n"
        "array = cuda.to_device(np.arange(8.0))\n"
        "handle = array.get_ipc_handle()\n"
        "assert handle._ipc_handle.size >= 64",
        "-W",
        "ignore",
    )
