"""What keeps what alive, in whatever order the program drops things."""

import gc
import itertools
import threading
import weakref
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from rmm.pylibrmm.stream import Stream
from support import MIB, RESOURCES, recording_resource


def test_a_buffer_from_a_pool_on_a_new_stream_outlives_the_pool_in_the_table() -> None:
    mr.set_current_device_resource(mr.PoolMemoryResource(mr.CudaMemoryResource(), MIB))
    b = DeviceBuffer.to_device(bytes(10), Stream())
    mr.set_current_device_resource(mr.CudaMemoryResource())
    gc.collect()
    b.stream.synchronize()
    del b
    gc.collect()


@pytest.mark.parametrize("what", ["buffer", "pool", "stack"])
def test_cycles_are_collected_after_the_resource_was_replaced(what: str) -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    pool = mr.PoolMemoryResource(resource, MIB, MIB)
    stack = mr.StatisticsResourceAdaptor(pool)
    mr.set_current_device_resource(stack)
    b = DeviceBuffer(size=10)
    mr.set_current_device_resource(mr.CudaMemoryResource())
    cycle: list[Any] = [{"buffer": b, "pool": pool, "stack": stack}[what], b]
    cycle.append(cycle)
    del b, pool, stack, resource, cycle
    gc.collect()
    assert [kind for kind, _ in calls] == ["allocate", "deallocate"]


def test_a_buffer_in_a_cycle_with_its_own_resource_is_collected() -> None:
    class Resource(mr.StatisticsResourceAdaptor):
        pass

    resource = Resource(mr.CudaMemoryResource())
    gone = weakref.ref(resource)
    resource.buffer = DeviceBuffer(size=10, mr=resource)  # type: ignore[attr-defined]
    del resource
    gc.collect()
    assert gone() is None


def test_a_stream_in_a_cycle_with_what_it_was_made_from_is_collected() -> None:
    class Foreign:
        stream: Any = None

        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 0)

    foreign = Foreign()
    foreign.stream = Stream(foreign)
    gone = weakref.ref(foreign)
    del foreign
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=repr)
def test_a_stack_is_taken_apart_in_the_right_order_whatever_is_dropped_first(order: tuple[int, ...]) -> None:
    recording, calls = recording_resource(mr.CudaMemoryResource())
    pool = mr.PoolMemoryResource(recording, MIB, MIB)
    limited = mr.LimitingResourceAdaptor(pool, MIB)
    held: list[Any] = [recording, pool, limited, DeviceBuffer(size=10, mr=limited, stream=Stream())]
    del recording, pool, limited
    for which in order:
        held[which] = None
    gc.collect()
    assert [kind for kind, _ in calls] == ["allocate", "deallocate"]


@pytest.mark.parametrize("make", RESOURCES.values(), ids=RESOURCES.keys())
def test_a_buffer_outlives_its_resource_of_any_kind(make: Any) -> None:
    resource = make()
    b = DeviceBuffer(size=100, mr=resource)
    gone = weakref.ref(resource)
    del resource
    gc.collect()
    assert gone() is not None
    b.copy_from_host(b"abc")
    assert b.tobytes()[:3] == b"abc"
    del b
    gc.collect()
    assert gone() is None


def test_a_dropped_buffer_has_been_freed_before_the_next_statement() -> None:
    resource, calls = recording_resource(mr.CudaMemoryResource())
    b = DeviceBuffer(size=10, mr=resource)
    del b
    assert calls == [("allocate", 10), ("deallocate", 10)]


def test_a_buffer_keeps_the_stream_of_a_pool_and_so_the_pool() -> None:
    pool = CudaStreamPool(2)
    gone = weakref.ref(pool)
    b = DeviceBuffer(size=10, stream=pool.get_stream())
    del pool
    gc.collect()
    assert gone() is not None
    del b
    gc.collect()
    assert gone() is None


def test_bins_outlive_what_the_program_forgot() -> None:
    bin_resource, calls = recording_resource(mr.CudaMemoryResource())
    binning = mr.BinningMemoryResource(mr.CudaMemoryResource())
    binning.add_bin(1024, bin_resource)
    del bin_resource
    gc.collect()
    b = DeviceBuffer(size=1000, mr=binning)
    del binning
    gc.collect()
    del b
    assert [kind for kind, _ in calls] == ["allocate", "deallocate"]


def test_reinitialize_with_live_buffers_of_the_old_pool() -> None:
    rmm.reinitialize(pool_allocator=True, initial_pool_size=MIB)
    buffers = [DeviceBuffer.to_device(bytes([i])) for i in range(10)]
    for _ in range(3):
        rmm.reinitialize(pool_allocator=True, initial_pool_size=MIB)
    assert [b.tobytes()[0] for b in buffers] == list(range(10))


def test_nothing_leaks_over_many_stacks() -> None:
    def stack() -> None:
        resource = mr.StatisticsResourceAdaptor(mr.PoolMemoryResource(mr.CudaMemoryResource(), MIB))
        mr.set_current_device_resource(resource)
        DeviceBuffer.to_device(b"abc", Stream())

    stack()
    mr.set_current_device_resource(mr.CudaMemoryResource())
    gc.collect()
    free, _ = mr.available_device_memory()
    objects = len(gc.get_objects())
    for _ in range(20):
        stack()
    mr.set_current_device_resource(mr.CudaMemoryResource())
    gc.collect()
    assert mr.available_device_memory()[0] == free
    assert len(gc.get_objects()) < objects + 20


# ---- cycles through functions


class Manager:
    """Owns resources that call it."""

    def __init__(self, above: str, freed: list[int]) -> None:
        self.cuda = mr.CudaMemoryResource()
        self.freed = freed
        callback = mr.CallbackMemoryResource(self.allocate, self.free)
        self.mr: mr.DeviceMemoryResource = callback
        if above == "failure_callback":
            self.mr = mr.FailureCallbackResourceAdaptor(callback, self.make_room)
        elif above == "pool":
            self.mr = mr.PoolMemoryResource(callback, MIB, MIB)
        elif above == "stack":
            pool = mr.PoolMemoryResource(mr.StatisticsResourceAdaptor(callback), MIB, MIB)
            self.mr = mr.FailureCallbackResourceAdaptor(mr.TrackingResourceAdaptor(pool), self.make_room)
        elif above == "binning":
            binning = mr.BinningMemoryResource(mr.CudaMemoryResource())
            binning.add_bin(MIB, callback)
            self.mr = binning

    def allocate(self, nbytes: int, stream: Stream) -> int:
        return self.cuda.allocate(nbytes, stream)

    def free(self, ptr: int, nbytes: int, stream: Stream) -> None:
        self.cuda.deallocate(ptr, nbytes, stream)
        self.freed.append(nbytes)

    def make_room(self, nbytes: int) -> bool:
        return False


@pytest.mark.parametrize("with_buffers", [False, True], ids=["empty", "with buffers"])
@pytest.mark.parametrize("above", ["callback", "failure_callback", "pool", "stack", "binning"])
def test_a_manager_that_owns_its_resource_gives_everything_back(above: str, with_buffers: bool) -> None:
    free, _ = mr.available_device_memory()
    freed: list[int] = []
    managers = []
    for _ in range(5):
        manager = Manager(above, freed)
        if with_buffers:
            manager.buffers = [DeviceBuffer(size=1000 + i, mr=manager.mr) for i in range(3)]  # type: ignore[attr-defined]
        managers.append(weakref.ref(manager))
    del manager
    gc.collect()
    assert [gone() for gone in managers] == [None] * 5
    assert mr.available_device_memory()[0] == free
    assert len(freed) == (5 if above in ("pool", "stack") else 15 if with_buffers else 0)


def test_a_manager_whose_buffer_is_in_use_is_not_collected() -> None:
    freed: list[int] = []
    manager = Manager("pool", freed)
    gone = weakref.ref(manager)
    b = DeviceBuffer.to_device(b"abc")
    b = DeviceBuffer(size=3, mr=manager.mr)
    del manager
    gc.collect()
    b.copy_from_host(b"abc")
    assert b.tobytes() == b"abc"
    assert gone() is not None
    assert freed == []
    del b
    gc.collect()
    assert gone() is None
    assert freed == [MIB]


def test_a_manager_whose_resource_is_in_the_table_is_not_collected() -> None:
    freed: list[int] = []
    manager = Manager("pool", freed)
    mr.set_current_device_resource(manager.mr)
    gone = weakref.ref(manager)
    del manager
    gc.collect()
    assert DeviceBuffer.to_device(b"abc").tobytes() == b"abc"
    mr.set_current_device_resource(mr.CudaMemoryResource())
    gc.collect()
    assert gone() is None
    assert freed == [MIB]


def test_a_class_whose_own_methods_allocate_is_collected() -> None:
    cuda = mr.CudaMemoryResource()
    freed: list[int] = []

    class Resource(mr.CallbackMemoryResource):
        def __init__(self) -> None:
            super().__init__(self.take, self.give)

        def take(self, nbytes: int, stream: Stream) -> int:
            return cuda.allocate(nbytes, stream)

        def give(self, ptr: int, nbytes: int, stream: Stream) -> None:
            cuda.deallocate(ptr, nbytes, stream)
            freed.append(nbytes)

    class Asked(mr.FailureCallbackResourceAdaptor):
        def __init__(self, upstream: mr.DeviceMemoryResource) -> None:
            super().__init__(upstream, self.ask)

        def ask(self, nbytes: int) -> bool:
            return False

    resource = Resource()
    asked = Asked(resource)
    assert DeviceBuffer.to_device(b"abc").tobytes() == b"abc"
    resource.buffer = DeviceBuffer(size=7, mr=asked)  # type: ignore[attr-defined]
    gone: list[weakref.ref[mr.DeviceMemoryResource]] = [weakref.ref(resource), weakref.ref(asked)]
    del resource, asked
    gc.collect()
    assert [r() for r in gone] == [None, None]
    assert freed == [7]


def test_what_a_finalizer_brings_back_after_its_memory_is_gone_says_so() -> None:
    saved: list[Any] = []

    class Saving(Manager):
        def __del__(self) -> None:
            saved.append(self)

    freed: list[int] = []
    manager = Saving("pool", freed)
    manager.buffer = DeviceBuffer(size=1000, mr=manager.mr)  # type: ignore[attr-defined]
    del manager
    gc.collect()
    (manager,) = saved
    assert freed == [MIB]
    buffer = manager.buffer
    assert buffer.size == 0
    with pytest.raises(RuntimeError, match="the garbage collector has given the memory of this buffer back"):
        buffer.resize(10)
    with pytest.raises(RuntimeError, match="the garbage collector"):
        buffer.copy()
    with pytest.raises(RuntimeError, match="whose memory the garbage collector has given back"):
        manager.mr.allocate(10)


def test_threads_that_make_managers_while_the_collector_runs_leave_nothing() -> None:
    free, _ = mr.available_device_memory()
    freed: list[int] = []

    def work() -> None:
        for i in range(30):
            manager = Manager(("pool", "stack", "callback")[i % 3], freed)
            manager.buffers = [DeviceBuffer(size=10, mr=manager.mr)]  # type: ignore[attr-defined]
            if i % 5 == 0:
                gc.collect()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert mr.available_device_memory()[0] == free
    assert len(freed) == 120
