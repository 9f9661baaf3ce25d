"""memory_report and memory_tag."""

import json
import threading
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, mr
from support import MIB


def pool() -> mr.PoolMemoryResource:
    resource = mr.PoolMemoryResource(mr.CudaMemoryResource(), MIB)
    mr.set_current_device_resource(resource)
    return resource


def test_a_report_is_text_or_json() -> None:
    keep = pool(), DeviceBuffer(size=1000)
    text = rmm.memory_report()
    assert text == rmm.memory_report(format="text")
    assert "PoolMemoryResource" in text
    assert isinstance(json.loads(rmm.memory_report("json")), dict)
    del keep


@pytest.mark.parametrize("bad", ["xml", "", None, 1])
def test_another_format_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="format"):
        rmm.memory_report(bad)


def test_a_tag_names_what_a_block_allocates() -> None:
    pool()
    with rmm.memory_tag("a-block") as tag:
        assert tag.name == "a-block"
        keep = DeviceBuffer(size=1000)
    assert "a-block" in rmm.memory_report()
    assert "a-block" in rmm.memory_report("json")
    del keep


def test_a_tag_names_what_a_function_allocates() -> None:
    pool()

    @rmm.memory_tag("a-function")
    def f(size: int, *, twice: bool = False) -> list[DeviceBuffer]:
        """Of f."""
        return [DeviceBuffer(size=size) for _ in range(1 + twice)]

    keep = f(1000, twice=True)
    assert len(keep) == 2
    assert (f.__name__, f.__doc__) == ("f", "Of f.")
    assert "a-function" in rmm.memory_report()


def test_the_innermost_tag_counts_and_ends_with_its_block_and_exceptions_pass() -> None:
    resource = mr.PoolMemoryResource(mr.CudaMemoryResource(), 0, MIB)
    keep = []
    with rmm.memory_tag("outer"):
        with pytest.raises(KeyError), rmm.memory_tag("inner"):
            keep.append(DeviceBuffer(size=1000, mr=resource))
            raise KeyError
        keep += [DeviceBuffer(size=100_000, mr=resource)]
    with pytest.raises(rmm.OutOfMemoryError) as raised:
        DeviceBuffer(size=2 * MIB, mr=resource)
    assert raised.value.largest_tag == "outer"


def test_tags_are_a_threads_own() -> None:
    resource = mr.PoolMemoryResource(mr.CudaMemoryResource(), 0, MIB)
    keep: list[DeviceBuffer] = []
    with rmm.memory_tag("only-here"):
        thread = threading.Thread(target=lambda: keep.append(DeviceBuffer(size=1000, mr=resource)))
        thread.start()
        thread.join()
    with pytest.raises(rmm.OutOfMemoryError) as raised:
        DeviceBuffer(size=2 * MIB, mr=resource)
    assert raised.value.largest_tag is None


@pytest.mark.parametrize("bad", [None, 1, b"tag"])
def test_a_tag_is_text(bad: Any) -> None:
    with pytest.raises(TypeError):
        rmm.memory_tag(bad)


def test_a_report_is_made_while_threads_allocate() -> None:
    pool()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with rmm.memory_tag("worker"):
                DeviceBuffer(size=1000)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        rmm.memory_report()
    stop.set()
    thread.join()
