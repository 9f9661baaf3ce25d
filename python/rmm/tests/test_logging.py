"""Logs of allocations, and the debug log."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rmm
from rmm import DeviceBuffer, level_enum, mr
from rmm._cuda import gpu
from rmm.pylibrmm.stream import Stream
from support import MIB, needs_two_devices, run_python

HEADER = "Thread,Time,Action,Pointer,Size,Stream"


def lines(path: str | Path) -> list[str]:
    return Path(path).read_text().splitlines()


def test_reinitialize_logs_to_a_file_for_the_device(tmp_path: Path) -> None:
    rmm.reinitialize(logging=True, log_file_name=str(tmp_path / "log.csv"))
    DeviceBuffer(size=10)
    mr._flush_logs()
    assert mr.get_log_filenames() == rmm.get_log_filenames() == {0: str(tmp_path / "log.dev0.csv")}
    assert lines(tmp_path / "log.dev0.csv")[0] == HEADER


@pytest.mark.parametrize(
    ("name", "file"), [("log.csv", "log.dev0.csv"), ("log", "log.dev0"), ("a.b.txt", "a.b.dev0.txt")]
)
def test_the_number_of_the_device_goes_before_the_extension(name: str, file: str, tmp_path: Path) -> None:
    log = mr.LoggingResourceAdaptor(mr.CudaMemoryResource(), log_file_name=str(tmp_path / name))
    assert log.get_file_name() == str(tmp_path / file)


def test_a_relative_name_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = mr.LoggingResourceAdaptor(mr.CudaMemoryResource(), "log.csv")
    assert log.get_file_name() == os.path.join(os.getcwd(), "log.dev0.csv")


def test_the_name_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMM_LOG_FILE", str(tmp_path / "env.csv"))
    assert mr.LoggingResourceAdaptor(mr.CudaMemoryResource()).get_file_name() == str(tmp_path / "env.dev0.csv")
    monkeypatch.delenv("RMM_LOG_FILE")
    with pytest.raises(ValueError):
        mr.LoggingResourceAdaptor(mr.CudaMemoryResource())
    with pytest.raises(ValueError):
        rmm.enable_logging()


def test_a_log_over_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="Argument `upstream_mr` must not be None"):
        mr.LoggingResourceAdaptor(None, str(tmp_path / "log"))  # type: ignore[arg-type]


def test_rows_say_thread_time_action_pointer_size_and_stream(tmp_path: Path) -> None:
    log = mr.LoggingResourceAdaptor(mr.CudaMemoryResource(), str(tmp_path / "log.csv"))
    stream = Stream()
    b = DeviceBuffer(size=10, stream=stream, mr=log)
    ptr = b.ptr
    del b
    with pytest.raises(MemoryError):
        log.allocate(1 << 50)
    log.flush()
    header, *rows = lines(log.get_file_name())
    assert header == HEADER
    fields = [row.split(",") for row in rows]
    assert all(re.fullmatch(r"\d+", f[0]) and re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6}", f[1]) for f in fields)
    on = hex(stream.__cuda_stream__()[1])
    assert [f[2:] for f in fields] == [
        ["allocate", hex(ptr), "10", on],
        ["free", hex(ptr), "10", on],
        ["allocate failure", "(nil)", str(1 << 50), "0"],
    ]


def test_the_file_is_truncated_when_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "log.dev0.csv").write_text("old\n" * 100)
    mr.LoggingResourceAdaptor(mr.CudaMemoryResource(), str(tmp_path / "log.csv")).flush()
    assert lines(tmp_path / "log.dev0.csv") == [HEADER]


def test_the_file_may_be_deleted_while_it_is_open(tmp_path: Path) -> None:
    log = mr.LoggingResourceAdaptor(mr.CudaMemoryResource(), str(tmp_path / "log.csv"))
    os.remove(log.get_file_name())
    DeviceBuffer(size=10, mr=log)
    log.flush()


def test_a_log_may_be_named_by_a_path(tmp_path: Path) -> None:
    rmm.enable_logging(tmp_path / "one.csv")
    assert rmm.get_log_filenames()[0] == str(tmp_path / "one.dev0.csv")
    rmm.reinitialize(logging=True, log_file_name=tmp_path / "two.csv")
    assert rmm.get_log_filenames()[0] == str(tmp_path / "two.dev0.csv")


@needs_two_devices
def test_logging_can_be_switched_on_and_off_for_every_device(tmp_path: Path) -> None:
    pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), MIB)
    mr.set_per_device_resource(0, pool)
    second = mr.get_per_device_resource(1)
    assert rmm.get_log_filenames() == {0: None, 1: None}
    rmm.enable_logging(log_file_name=str(tmp_path / "log.csv"))
    names = {device: str(tmp_path / f"log.dev{device}.csv") for device in (0, 1)}
    assert rmm.get_log_filenames() == names
    assert gpu.getDevice() == 0
    log = mr.get_per_device_resource(0)
    rmm.enable_logging(log_file_name=str(tmp_path / "other.csv"))
    assert mr.get_per_device_resource(0) is log
    assert str(log)
    DeviceBuffer(size=10)
    mr._flush_logs()
    assert [len(lines(name)) for name in names.values()] == [3, 1]
    rmm.disable_logging()
    assert rmm.get_log_filenames() == {0: None, 1: None}
    assert mr.get_per_device_resource(0) is pool
    assert mr.get_per_device_resource(1) is second


def test_with_an_empty_table_logging_starts_on_device_0(tmp_path: Path) -> None:
    result = run_python(
        "import rmm\n"
        "assert rmm.get_log_filenames() == {}\n"
        f"rmm.enable_logging({str(tmp_path / 'log.csv')!r})\n"
        "print(list(rmm.get_log_filenames()))\n"
    )
    assert result.stdout == "[0]\n", result.stderr


def test_disable_logging_leaves_a_log_that_is_not_outermost(tmp_path: Path) -> None:
    log = mr.LoggingResourceAdaptor(mr.CudaMemoryResource(), str(tmp_path / "log.csv"))
    outer = mr.StatisticsResourceAdaptor(log)
    mr.set_current_device_resource(outer)
    rmm.disable_logging()
    assert mr.get_current_device_resource() is outer


def test_disable_logging_writes_what_was_logged(tmp_path: Path) -> None:
    rmm.enable_logging(str(tmp_path / "log.csv"))
    DeviceBuffer(size=10)
    rmm.disable_logging()
    assert len(lines(tmp_path / "log.dev0.csv")) == 3


# ---- the debug log


@pytest.fixture
def levels() -> Iterator[None]:
    before = rmm.get_logging_level(), rmm.get_flush_level()
    yield
    rmm.set_logging_level(before[0])
    rmm.set_flush_level(before[1])


def test_the_levels_are_the_numbers_of_rmm() -> None:
    names = "trace debug info warn error critical off n_levels".split()
    assert [(level.name, int(level)) for level in level_enum] == list(zip(names, range(8), strict=True))
    assert rmm.level_enum is rmm.pylibrmm.logger.level_enum is rmm.librmm._logger.level_enum


def test_the_log_begins_at_info() -> None:
    result = run_python("import rmm\nprint(rmm.get_logging_level().name)")
    assert result.stdout == "info\n"


@pytest.mark.parametrize("level", level_enum)
@pytest.mark.usefixtures("levels")
def test_every_level_can_be_set_and_read(level: level_enum) -> None:
    rmm.set_logging_level(level)
    assert rmm.get_logging_level() is level
    assert rmm.should_log(level)
    rmm.set_flush_level(level)
    assert rmm.get_flush_level() is level
    rmm.flush_logger()


@pytest.mark.usefixtures("levels")
def test_should_log_compares_with_the_level_that_is_set() -> None:
    rmm.set_logging_level(level_enum.warn)
    assert [rmm.should_log(level) for level in list(level_enum)[:6]] == [False] * 3 + [True] * 3


@pytest.mark.usefixtures("levels")
def test_a_flush_level_that_is_not_logged_warns() -> None:
    rmm.set_logging_level(level_enum.info)
    for level in (level_enum.trace, level_enum.debug):
        with pytest.warns(UserWarning, match=rf"^RMM will not log level_enum\.{level.name}\."):
            rmm.set_flush_level(level)
        assert rmm.get_flush_level() is level


@pytest.mark.parametrize("bad", ["INFO", 3, "invalid", 100, None, 1.2345, [1, 2, 3]], ids=repr)
def test_only_members_are_levels(bad: Any) -> None:
    for call in (rmm.set_logging_level, rmm.set_flush_level, rmm.should_log):
        with pytest.raises(TypeError, match="level must be an instance of the level_enum enum"):
            call(bad)


def test_the_debug_log_goes_to_the_file_that_the_environment_names(tmp_path: Path) -> None:
    file = tmp_path / "debug.txt"
    file.write_text("old\n")
    program = (
        "import rmm\n"
        "rmm.set_logging_level(rmm.level_enum.debug)\n"
        "t = rmm.mr.TrackingResourceAdaptor(rmm.mr.CudaMemoryResource())\n"
        "p = t.allocate(12345)\n"
        "t.log_outstanding_allocations()\n"
        "t.deallocate(p, 12345)\n"
        "rmm.flush_logger()\n"
    )
    result = run_python(program, RMM_DEBUG_LOG_FILE=str(file))
    assert (result.returncode, result.stderr) == (0, "")
    text = file.read_text()
    assert "old" not in text
    assert "12345 B" in text
    first = next(line for line in text.splitlines() if line.startswith("["))
    assert re.match(r"\[ *\d+\]\[\d\d:\d\d:\d\d:\d{6}\]\[[a-z ]{6}\] ", first), first
