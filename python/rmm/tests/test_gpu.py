"""rmm._cuda.gpu: devices and errors of the driver."""

import pickle

import pytest

from rmm._cuda import gpu
from support import ON_HOST, needs, needs_gpu, on_host_driver, run_python


@on_host_driver
def test_the_host_driver_has_no_cuda_and_its_virtual_devices() -> None:
    assert gpu.driverGetVersion() == 0
    assert isinstance(gpu.runtimeGetVersion(), int)
    assert gpu.getDeviceCount() == 2


@needs_gpu
def test_versions_are_a_thousand_times_major_and_ten_times_minor() -> None:
    assert gpu.driverGetVersion() >= 12000
    assert gpu.runtimeGetVersion() >= 12000


def test_the_current_device_can_be_changed() -> None:
    assert gpu.getDevice() == 0
    gpu.setDevice(gpu.getDeviceCount() - 1)
    assert gpu.getDevice() == gpu.getDeviceCount() - 1


@on_host_driver
@pytest.mark.parametrize(
    ("attribute", "value"), [(88, 1), (83, 1), (115, 1), (18, 0), (89, 0), (119, 0), (4711, 0), (-1, 0)]
)
def test_attributes_of_virtual_devices(attribute: int, value: int) -> None:
    assert gpu.getDeviceAttribute(attribute, 0) == value
    assert gpu.getDeviceAttribute(attribute, 1) == value


@needs("cuda.bindings")
def test_attributes_may_be_enumerators_of_cuda_bindings() -> None:
    from cuda.bindings.runtime import cudaDeviceAttr

    assert isinstance(gpu.getDeviceAttribute(cudaDeviceAttr.cudaDevAttrManagedMemory, 0), int)


def test_a_device_has_a_name_and_properties() -> None:
    properties = gpu.getDeviceProperties(0)
    assert properties.totalGlobalMem > 0
    assert properties.multiProcessorCount > 0
    assert (properties.major, properties.minor) >= (0, 0)
    name = gpu.deviceGetName(0)
    assert isinstance(name, str)
    assert name != ""
    if ON_HOST:
        assert properties.name == name


@pytest.mark.parametrize("device", [-1, 99])
def test_a_device_that_is_not_there_is_an_error_with_a_status(device: int) -> None:
    calls = (
        gpu.setDevice,
        gpu.deviceGetName,
        gpu.getDeviceProperties,
        lambda d: gpu.getDeviceAttribute(88, d),
    )
    for call in calls:
        with pytest.raises(gpu.CUDARuntimeError) as raised:
            call(device)
        assert raised.value.status != 0
        name, text = str(raised.value).split(": ", 1)
        assert name and text
    assert gpu.getDevice() == 0


@pytest.mark.parametrize("kind", [gpu.CUDARuntimeError, gpu.CUDADriverError])
def test_errors_are_made_from_a_status_and_pickle(kind: type[gpu.CUDARuntimeError] | type[gpu.CUDADriverError]) -> None:
    error = kind(2)
    assert isinstance(error, RuntimeError)
    assert error.status == 2
    name, text = str(error).split(": ", 1)
    assert name and text
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.status, str(again)) == (kind, 2, str(error))
    assert error.__reduce__() == (kind, (2,))


@needs("cuda.bindings")
def test_a_status_of_cuda_bindings_compares_equal() -> None:
    from cuda.bindings import driver, runtime

    assert gpu.CUDARuntimeError(runtime.cudaError_t.cudaErrorMemoryAllocation).status == 2
    assert gpu.CUDADriverError(driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY).status == 2
    assert gpu.CUDARuntimeError(2).status == runtime.cudaError_t.cudaErrorMemoryAllocation


@on_host_driver
def test_with_the_cuda_driver_forced_and_no_gpu_there_are_no_devices_and_none_can_be_set() -> None:
    result = run_python(
        "from rmm._cuda import gpu\n"
        "assert gpu.getDeviceCount() == 0\n"
        "try:\n    gpu.setDevice(0)\nexcept RuntimeError as error:\n    print('cuda' in str(error).lower())",
        KMM_DRIVER="cuda",
        CUDA_VISIBLE_DEVICES="",
    )
    assert result.stdout == "True\n", result.stderr


@needs_gpu
@needs("cuda.bindings")
def test_properties_are_those_of_cuda_bindings_on_a_gpu() -> None:
    from cuda.bindings import runtime

    assert isinstance(gpu.getDeviceProperties(0), runtime.cudaDeviceProp)


@needs_gpu
@needs("cupy")
def test_cupy_sees_the_same_current_device() -> None:
    import cupy

    assert cupy.cuda.runtime.getDevice() == gpu.getDevice()
