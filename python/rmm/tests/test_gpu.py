"""rmm._cuda.gpu: devices and errors of the driver; what needs handles of CUDA that others have made."""

import ctypes
import gc
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm._cuda import gpu
from rmm.pylibrmm.stream import Stream
from support import MIB, ON_HOST, check_round_trip, needs, needs_gpu, on_host_driver, run_python


@on_host_driver
def test_the_host_driver_has_no_cuda_and_its_virtual_devices() -> None:
    assert gpu.driverGetVersion() == 0
    assert isinstance(gpu.runtimeGetVersion(), int)
    assert gpu.getDeviceCount() == int(os.environ["KMM_VIRTUAL_DEVICES"])


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
    for device in range(gpu.getDeviceCount()):
        assert gpu.getDeviceAttribute(attribute, device) == value


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


# ---- where managed memory is

HAS_CONCURRENT_MANAGED_ACCESS = not ON_HOST and gpu.getDeviceCount() > 0 and gpu.getDeviceAttribute(89, 0) == 1
NOWHERE, ON_THE_HOST = -2, -1


def place_of(b: DeviceBuffer) -> int:
    """Where the memory was prefetched to last: a device, or one of the above."""
    place = ctypes.c_int(4711)
    last_prefetch_location = 4
    status = ctypes.CDLL("libcuda.so.1").cuMemRangeGetAttribute(
        ctypes.byref(place),
        ctypes.c_size_t(ctypes.sizeof(place)),
        ctypes.c_int(last_prefetch_location),
        ctypes.c_uint64(b.ptr),
        ctypes.c_size_t(b.size),
    )
    assert status == 0
    return place.value


@pytest.mark.skipif(not HAS_CONCURRENT_MANAGED_ACCESS, reason="needs a GPU with concurrent managed access")
class TestPlacesOfManagedMemory:
    @pytest.mark.parametrize("pool", [False, True])
    def test_memory_is_where_it_was_prefetched_to(self, pool: bool) -> None:
        rmm.reinitialize(managed_memory=True, pool_allocator=pool, initial_pool_size=8 * MIB)
        b = DeviceBuffer(size=4 * MIB)
        assert place_of(b) == NOWHERE
        for device, expected in ((None, gpu.getDevice()), (-1, ON_THE_HOST), (0, 0)):
            b.prefetch(device=device)
            b.stream.synchronize()
            assert place_of(b) == expected

    def test_the_adaptor_prefetches_new_blocks_to_the_current_device(self) -> None:
        mr.set_current_device_resource(mr.PrefetchResourceAdaptor(mr.ManagedMemoryResource()))
        b = DeviceBuffer(size=4 * MIB)
        b.stream.synchronize()
        assert place_of(b) == gpu.getDevice()

    def test_managed_memory_is_not_prefetched_by_itself(self) -> None:
        mr.set_current_device_resource(mr.ManagedMemoryResource())
        b = DeviceBuffer.to_device(bytes(4 * MIB))
        assert place_of(b) == NOWHERE


# ---- views of pools of the driver that others have made


class CUmemoryPool:
    """Stands in for the class of cuda.bindings where a pool was made without it."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __int__(self) -> int:
        return self.handle


class PoolsOfRuntime:
    """Of cuda.bindings.runtime; handles are cudaMemPool_t."""

    def default(self) -> Any:
        from cuda.bindings import runtime

        error, pool = runtime.cudaDeviceGetDefaultMemPool(0)
        assert error == runtime.cudaError_t.cudaSuccess
        return pool

    def make(self) -> Any:
        from cuda.bindings import runtime

        properties = runtime.cudaMemPoolProps()
        properties.allocType = runtime.cudaMemAllocationType.cudaMemAllocationTypePinned
        properties.location.type = runtime.cudaMemLocationType.cudaMemLocationTypeDevice
        properties.location.id = 0
        error, pool = runtime.cudaMemPoolCreate(properties)
        assert error == runtime.cudaError_t.cudaSuccess
        return pool

    def destroy(self, pool: Any) -> None:
        from cuda.bindings import runtime

        (error,) = runtime.cudaMemPoolDestroy(pool)
        assert error == runtime.cudaError_t.cudaSuccess


class PoolsOfBindingsOfDriver:
    """Of cuda.bindings.driver; handles are CUmemoryPool."""

    def default(self) -> Any:
        from cuda.bindings import driver

        error, pool = driver.cuDeviceGetDefaultMemPool(0)
        assert error == driver.CUresult.CUDA_SUCCESS
        return pool

    def make(self) -> Any:
        from cuda.bindings import driver

        properties = driver.CUmemPoolProps()
        properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = 0
        error, pool = driver.cuMemPoolCreate(properties)
        assert error == driver.CUresult.CUDA_SUCCESS
        return pool

    def destroy(self, pool: Any) -> None:
        from cuda.bindings import driver

        (error,) = driver.cuMemPoolDestroy(pool)
        assert error == driver.CUresult.CUDA_SUCCESS


class PoolsOfDriver:
    """Of the driver's library itself, which is there wherever a GPU is."""

    class Properties(ctypes.Structure):
        """CUmemPoolProps."""

        _fields_ = (
            ("alloc_type", ctypes.c_int),
            ("handle_types", ctypes.c_int),
            ("location_type", ctypes.c_int),
            ("location_id", ctypes.c_int),
            ("security_attributes", ctypes.c_void_p),
            ("max_size", ctypes.c_size_t),
            ("usage", ctypes.c_ushort),
            ("reserved", ctypes.c_ubyte * 54),
        )

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def default(self) -> Any:
        pool = ctypes.c_void_p()
        assert self.library.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0
        assert pool.value is not None
        return CUmemoryPool(pool.value)

    def make(self) -> Any:
        pool = ctypes.c_void_p()
        # Pinned, which is the only type, and on a device: both enumerators are 1.
        properties = self.Properties(alloc_type=1, location_type=1, location_id=0)
        assert ctypes.sizeof(properties) == 88
        assert self.library.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(properties)) == 0
        assert pool.value is not None
        return CUmemoryPool(pool.value)

    def destroy(self, pool: Any) -> None:
        assert self.library.cuMemPoolDestroy(ctypes.c_void_p(int(pool))) == 0


@needs_gpu
class TestViewsOfPools:
    @pytest.fixture(
        params=[
            pytest.param(PoolsOfRuntime, marks=needs("cuda.bindings")),
            pytest.param(PoolsOfBindingsOfDriver, marks=needs("cuda.bindings")),
            PoolsOfDriver,
        ]
    )
    def pools(self, request: pytest.FixtureRequest) -> Any:
        mr.available_device_memory()  # the device is in use from here on
        return request.param()

    @pytest.fixture
    def own_pool(self, pools: Any) -> Iterator[Any]:
        pool = pools.make()
        yield pool
        mr.set_current_device_resource(mr.CudaMemoryResource())
        gc.collect()
        pools.destroy(pool)

    def test_the_default_pool_serves(self, pools: Any) -> None:
        pool = pools.default()
        view = mr.CudaAsyncViewMemoryResource(pool)
        assert view.pool_handle() == int(pool) != 0
        mr.set_current_device_resource(view)
        assert mr.get_current_device_resource_type() is mr.CudaAsyncViewMemoryResource
        for length in (1, 1000, 4 * MIB):
            check_round_trip(length)
            check_round_trip(length, Stream())

    def test_an_own_pool_serves_under_others(self, own_pool: Any) -> None:
        view = mr.CudaAsyncViewMemoryResource(own_pool)
        assert view.pool_handle() == int(own_pool)
        statistics = mr.StatisticsResourceAdaptor(mr.LimitingResourceAdaptor(view, 64 * MIB))
        mr.set_current_device_resource(statistics)
        check_round_trip(MIB)
        counts = statistics.allocation_counts
        assert (counts.current_bytes, counts.total_bytes) == (0, 2 * MIB)
        with pytest.raises(MemoryError):
            DeviceBuffer(size=65 * MIB)

    def test_two_views_of_one_pool_serve(self, own_pool: Any) -> None:
        views = [mr.CudaAsyncViewMemoryResource(own_pool) for _ in range(2)]
        buffers = [DeviceBuffer(size=MIB, mr=view) for view in views for _ in range(4)]
        assert len({b.ptr for b in buffers}) == 8
        del views
        del buffers

    def test_after_the_end_of_its_pool_a_view_refuses_and_is_dropped_quietly(
        self, pools: Any, capfd: pytest.CaptureFixture[str]
    ) -> None:
        pool = pools.make()
        view = mr.CudaAsyncViewMemoryResource(pool)
        mr.set_current_device_resource(view)
        check_round_trip()
        pools.destroy(pool)
        with pytest.raises(MemoryError):
            DeviceBuffer(size=1000)
        with pytest.raises(MemoryError):
            view.allocate(1000)
        mr.set_current_device_resource(mr.CudaMemoryResource())
        del view, pool
        gc.collect()
        check_round_trip()
        assert capfd.readouterr().err == ""
