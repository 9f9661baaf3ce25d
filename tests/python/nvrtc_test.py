"""kmm/device.hpp and the headers it brings, compiled to PTX for sm_90 by NVRTC: of the wheel in build/venv, else of a
CUDA toolkit. No GPU is used."""

import ctypes
import importlib.util
import os
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
KERNELS = SOURCE / "tests/device/device_header_test.cu"


def load():
    """The wheel's folder has one library whose name ends with NVRTC's major version."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).glob("*/lib/libnvrtc.so.*")):
            if "alt" not in file.name:
                return ctypes.CDLL(str(file))
    for name in (os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/lib64/libnvrtc.so", "libnvrtc.so.13"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    if os.environ.get("CI"):
        pytest.fail("NVRTC is missing: scripts/dev_python.sh names its wheel")
    pytest.skip("neither the wheel nvidia-cuda-nvrtc nor a CUDA toolkit is installed", allow_module_level=True)


nvrtc = load()


def text_of(program, size, get):
    length = ctypes.c_size_t()
    assert size(program, ctypes.byref(length)) == 0
    buffer = ctypes.create_string_buffer(length.value)
    assert get(program, buffer) == 0
    return buffer.value.decode()


def compile_text(text, *options, name="kernels.cu"):
    """PTX; fails with what the compiler said, warnings too."""
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None) == 0
    try:
        given = [b"--gpu-architecture=compute_90", f"-I{SOURCE / 'include'}".encode(), *(o.encode() for o in options)]
        status = nvrtc.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        said = text_of(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        assert status == 0 and not said.strip(), said
        return text_of(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def check_kernels(ptx):
    assert len(re.findall(r"\.visible \.entry \w*(?:add_vectors|sum_neighbours|find_smallest)", ptx)) == 3
    assert ".target sm_90" in ptx
    # What is called from outside is what the device has: nothing of the host's side of the library.
    assert set(re.findall(r"\.extern \.func.*?(\w+)\s*\n?\(", ptx)) <= {"vprintf"}


@pytest.mark.parametrize(
    "options", [(), ("-default-device",), ("-DKMM_BOUNDS_CHECK=1",), ("-DKMM_USE_CUDA=0",)], ids=str
)
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_kernels_need_no_standard_header_and_no_option(standard, options):
    check_kernels(compile_text(KERNELS.read_text(), f"-std={standard}", *options))


@pytest.mark.parametrize(
    "header",
    """core/view utils/bounds utils/checked_compare utils/checked_math utils/dim utils/fixed_vector utils/geometry
    utils/hash_utils utils/integer_fun utils/key_value utils/macros utils/panic utils/point utils/range""".split(),
)
def test_headers_that_kernels_use_compile_alone(header):
    compile_text(f'#include "kmm/{header}.hpp"\n')


def test_limits_of_numbers_are_those_of_the_standard_library():
    """As a program takes them for the first value of a maximum."""
    equal = (
        ("float", "lowest()", "-3.40282346638528859812e38F"),
        ("float", "epsilon()", "1.1920928955078125e-7F"),
        ("double", "lowest()", "-1.7976931348623157e308"),
        ("double", "epsilon()", "2.220446049250313e-16"),
        ("int", "lowest()", "-2147483647 - 1"),
        ("unsigned", "lowest()", "0u"),
        ("int", "is_signed", "true"),
        ("unsigned", "is_signed", "false"),
        ("float", "has_infinity", "true"),
        ("const float", "digits", "24"),
        ("const volatile int", "digits", "31"),
    )
    lines = [f"static_assert(std::numeric_limits<{type}>::{name} == {value});\n" for type, name, value in equal]
    lines += [f"static_assert({nan} != {nan});\n" for nan in ("std::numeric_limits<float>::quiet_NaN()",)]
    compile_text('#include "kmm/device.hpp"\n' + "".join(lines))


def test_stand_ins_of_the_program_go_before_ours(tmp_path):
    """As kernel tuners have them: over CCCL, or with integers of the system's names."""
    (tmp_path / "cstdint").write_text(
        "#pragma once\n"
        + "".join(
            f"typedef {sign} {base} {prefix}{bits}_t; namespace std {{ using ::{prefix}{bits}_t; }}\n"
            for sign, prefix in (("signed", "int"), ("unsigned", "uint"))
            for base, bits in (("char", 8), ("short", 16), ("int", 32), ("long", 64))
        )
    )
    ptx = compile_text(KERNELS.read_text(), f"-I{tmp_path}")
    check_kernels(ptx)
    assert "add_vectorsN3kmm5RangeIlEE" in ptx, "int64_t is a long there"


def test_stand_ins_over_cccl_serve(tmp_path):
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    if not (toolkit / "cccl/cuda/std/type_traits").exists():
        pytest.skip("no CUDA toolkit with CCCL is installed")
    for header in ("cstddef", "cstdint", "limits", "type_traits", "utility"):
        (tmp_path / header).write_text(
            f"#pragma once\n#include <cuda/std/{header}>\nnamespace std {{ using namespace cuda::std; }}\n"
        )
    options = (f"-I{tmp_path}", f"-I{toolkit / 'cccl'}", f"-I{toolkit}")
    check_kernels(compile_text(KERNELS.read_text(), *options))
    check_kernels(compile_text(KERNELS.read_text(), "-default-device", *options))


def test_an_error_names_the_line_of_the_program():
    with pytest.raises(AssertionError, match=r"mine\.cu\(3\): error"):
        compile_text('#include "kmm/device.hpp"\n\nint x = ;\n', name="mine.cu")
