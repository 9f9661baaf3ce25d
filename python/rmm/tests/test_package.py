"""Names, modules, and what an import does and does not do."""

import importlib
import os
import pkgutil
import shutil
from pathlib import Path

import numpy as np
import pytest

import rmm
from support import needs, run_python, run_quietly

PACKAGE = Path(rmm.__file__).parent


def test_the_version_is_that_of_the_interface_and_the_commit_is_text() -> None:
    assert rmm.__version__ == "25.10.00"
    assert rmm.__version__ == (PACKAGE / "VERSION").read_text().strip()
    assert isinstance(rmm.__git_commit__, str)


def test_the_version_of_the_project_is_given_beside_it() -> None:
    assert [part.isdigit() for part in rmm.__kmm_version__.split(".")] == [True] * 3


def test_all_of_rmm_is_the_seventeen_names_and_each_resolves() -> None:
    assert sorted(rmm.__all__) == sorted(
        "DeviceBuffer RMMError disable_logging enable_logging flush_logger get_flush_level get_log_filenames "
        "get_logging_level is_initialized level_enum mr register_reinitialize_hook reinitialize set_flush_level "
        "set_logging_level should_log unregister_reinitialize_hook".split()
    )
    assert all(hasattr(rmm, name) for name in rmm.__all__)


@pytest.mark.parametrize(
    "module",
    "mr mr.experimental statistics rmm _cuda.gpu librmm._logger pylibrmm.stream pylibrmm.cuda_stream "
    "pylibrmm.cuda_stream_pool pylibrmm.device_buffer pylibrmm.memory_resource pylibrmm.logger pylibrmm.helper "
    "allocators.cupy allocators.torch".split(),
)
def test_modules_resolve_after_import_rmm_alone(module: str) -> None:
    run_quietly(f"import rmm\nassert rmm.{module}.__name__ == 'rmm.{module}'", "-W", "error")


@needs("numba.cuda")
def test_the_module_for_numba_resolves_after_import_rmm_alone() -> None:
    run_quietly("import rmm\nassert rmm.allocators.numba.__name__ == 'rmm.allocators.numba'")


def test_every_name_in_every_all_resolves() -> None:
    for info in pkgutil.walk_packages(rmm.__path__, "rmm."):
        others = ("rmm._cuda.stream", "rmm.allocators.numba", "rmm.librmm._torch_allocator")
        if info.name in others or info.name.startswith("rmm._lib"):
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            if (info.name, name) != ("rmm.allocators", "numba"):
                assert hasattr(module, name), f"{info.name}.{name}"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("DeviceBuffer", "rmm.pylibrmm.device_buffer"),
        ("to_device", "rmm.pylibrmm.device_buffer"),
        ("copy_ptr_to_host", "rmm.pylibrmm.device_buffer"),
        ("Stream", "rmm.pylibrmm.stream"),
        ("CudaStreamPool", "rmm.pylibrmm.cuda_stream_pool"),
        ("PoolMemoryResource", "rmm.pylibrmm.memory_resource"),
        ("DeviceMemoryResource", "rmm.pylibrmm.memory_resource"),
        ("StatisticsResourceAdaptor", "rmm.pylibrmm.memory_resource"),
    ],
)
def test_native_names_carry_the_modules_of_rmm(name: str, module: str) -> None:
    found = getattr(importlib.import_module(module), name)
    assert found.__module__ == module
    assert found.__qualname__ == name


def test_pylibrmm_exports_the_classes() -> None:
    assert rmm.pylibrmm.DeviceBuffer is rmm.DeviceBuffer
    assert rmm.pylibrmm.CudaStreamPool is rmm.pylibrmm.cuda_stream_pool.CudaStreamPool
    assert rmm.pylibrmm.CudaStreamFlags is rmm.pylibrmm.stream.CudaStreamFlags
    assert rmm.pylibrmm.stream.CudaStreamFlags is rmm.pylibrmm.cuda_stream.CudaStreamFlags
    assert rmm.pylibrmm.memory_resource.PoolMemoryResource is rmm.mr.PoolMemoryResource
    assert rmm.pylibrmm.stream._OwningStream is rmm.pylibrmm.cuda_stream.CudaStream


def test_rmm_mr_has_all_of_the_native_module_and_the_functions_of_python() -> None:
    from rmm.pylibrmm.memory_resource import _memory_resource as own

    for name in own.__all__:
        assert name in rmm.mr.__all__
        assert getattr(rmm.mr, name) is getattr(own, name) is getattr(rmm.pylibrmm.memory_resource, name)
    for name in ("_flush_logs", "_initialize"):
        assert getattr(rmm.mr, name) is getattr(own, name)
    for module in (rmm.mr, rmm.pylibrmm.memory_resource):
        assert sorted(module.__all__) == sorted([*own.__all__, "experimental"])


def test_every_class_of_resources_is_listed() -> None:
    from rmm.pylibrmm.memory_resource import _memory_resource as own

    native = {
        name
        for name, x in vars(rmm._core).items()
        if isinstance(x, type) and issubclass(x, rmm.mr.DeviceMemoryResource)
    }
    assert len(native) > 20
    assert native - set(own.__all__) == {"CudaAsyncManagedMemoryResource"}  # experimental


def test_the_experimental_resource_is_in_both_modules_of_that_name() -> None:
    ours = rmm.mr.experimental.CudaAsyncManagedMemoryResource
    assert ours is rmm.pylibrmm.memory_resource.experimental.CudaAsyncManagedMemoryResource
    assert not hasattr(rmm.mr, "CudaAsyncManagedMemoryResource")


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert (PACKAGE / "_core.pyi").is_file()


def test_import_warns_of_nothing_touches_no_gpu_and_imports_no_other_library() -> None:
    run_quietly(
        "import sys, rmm\n"
        "heavy = {'cuda', 'cuda.bindings', 'numba', 'cupy', 'torch', 'ctypes', 'importlib.metadata'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)",
        "-W",
        "error",
        KMM_DRIVER="cuda",  # a driver that is looked for at the import would fail here, or be loaded
    )


def test_is_initialized_and_available_memory_work_straight_after_the_import() -> None:
    run_quietly("import rmm\nassert rmm.is_initialized()\nassert rmm.mr.available_device_memory()[1] > 0")


def test_an_unknown_attribute_is_an_attribute_error_that_names_it() -> None:
    for module in (rmm, rmm.mr, rmm.allocators):
        with pytest.raises(AttributeError, match="no_such_name"):
            module.no_such_name  # noqa: B018


@pytest.mark.parametrize("metadata", ["rmm_cu12-25.10.0.dist-info", "rmm_cu13-26.4.0.dist-info"])
def test_an_import_beside_rapids_package_says_what_to_do(metadata: str, tmp_path: Path) -> None:
    (tmp_path / metadata).mkdir()
    shutil.copytree(PACKAGE, tmp_path / "rmm", ignore=shutil.ignore_patterns("*.so*", "lib", "include"))
    result = run_python("import rmm", PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "pip uninstall " + metadata.split("-")[0].replace("_", "-") in last


def test_metadata_of_other_packages_is_no_clash(tmp_path: Path) -> None:
    from rmm._installation import refuse_clash

    for name in ("kmm_rmm-0.4.0.dist-info", "rmm_cursor-1.0.dist-info.bak", "rmmlib-1.0.dist-info"):
        (tmp_path / name).mkdir()
    refuse_clash(os.fspath(tmp_path / "rmm"))


def test_an_rmm_error_has_a_number_and_a_text() -> None:
    error = rmm.RMMError(7, "seven")
    assert (error.errcode, str(error)) == (7, "seven")
    assert isinstance(error, Exception)


def test_a_buffer_made_first_of_all_works_without_numpy_imported_by_the_program() -> None:
    run_quietly("import rmm\nb = rmm.DeviceBuffer.to_device(b'abc')\nassert b.copy_to_host().tolist() == [97, 98, 99]")


def test_numpy_is_recent_enough() -> None:
    major, minor = (int(part) for part in np.__version__.split(".")[:2])
    assert (1, 23) <= (major, minor) < (3, 0)
