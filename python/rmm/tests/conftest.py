"""Tests run on the host driver with two virtual devices, or on the driver that KMM_TEST_DRIVER names."""

import os
from collections.abc import Iterator

os.environ["KMM_DRIVER"] = os.environ.get("KMM_TEST_DRIVER", "host")
os.environ.setdefault("KMM_VIRTUAL_DEVICES", "2")
os.environ.setdefault("KMM_VIRTUAL_DEVICE_MEM", "1GiB")
os.environ.pop("RMM_LOG_FILE", None)

import pytest

import rmm
from rmm._cuda import gpu


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "error")
    # Of numba-cuda, where its NumPy is newer than it expects.
    config.addinivalue_line("filterwarnings", "ignore:The 'generic' unit for NumPy timedelta:DeprecationWarning")


@pytest.fixture(autouse=True)
def reinitialized() -> Iterator[None]:
    """Each test finds, and leaves, the plain resource on every device and device 0 current."""
    yield
    gpu.setDevice(0)
    rmm.reinitialize()


@pytest.fixture
def stats_mr() -> rmm.mr.StatisticsResourceAdaptor:
    """Statistics over plain memory, current."""
    mr = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
    rmm.mr.set_current_device_resource(mr)
    return mr
