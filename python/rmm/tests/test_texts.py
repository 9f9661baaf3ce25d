"""What errors, reports and findings say to people who write Python."""

import json
import re
from collections.abc import Callable

import pytest

import rmm
from rmm import DeviceBuffer, mr
from rmm.pylibrmm.stream import DEFAULT_STREAM, LEGACY_DEFAULT_STREAM, Stream
from support import MIB, ON_HOST, run_python

HUGE = 1 << 50

#: Where in the library an error comes from: RMM's texts have it too.
PLACE = re.compile(r"\S+\.cpp:\d+")
NAME_OF_CPP = re.compile(r"\w*_(?:resource|adaptor)\b|\brmm::\w*|\bdevice_buffer\b")


def cuda() -> mr.DeviceMemoryResource:
    return mr.CudaMemoryResource()


def names_of_cpp(text: str) -> list[str]:
    return NAME_OF_CPP.findall(PLACE.sub("", text))


def without_others(report: str) -> str:
    """The report without what other processes change on a GPU between two calls."""
    return re.sub(r"(free|other processes and driver) [\d.]+ [KMGT]?i?B", r"\1", report)


def full_fixed_size() -> None:
    resource = mr.FixedSizeMemoryResource(mr.LimitingResourceAdaptor(cuda(), 2 * MIB), MIB, 2)
    keep = [resource.allocate(100) for _ in range(2)]
    try:
        resource.allocate(100)
    finally:
        for ptr in keep:
            resource.deallocate(ptr, 100)


def pool_in_pieces() -> None:
    resource = mr.PoolMemoryResource(cuda(), 4 * MIB, 4 * MIB)
    keep = [DeviceBuffer(size=MIB, mr=resource) for _ in range(4)]
    del keep[::2]
    resource.allocate(2 * MIB)


#: Calls that are refused, with words of which one says whose text it is.
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "cuda": (lambda: cuda().allocate(HUGE), "CudaMemoryResource was asked .* or a PoolMemoryResource"),
    "managed": (lambda: mr.ManagedMemoryResource().allocate(HUGE), "ManagedMemoryResource"),
    "pinned_host": (lambda: mr.PinnedHostMemoryResource().allocate(HUGE), "PinnedHostMemoryResource"),
    "async": (lambda: mr.CudaAsyncMemoryResource().allocate(HUGE), "CudaAsyncMemoryResource"),
    "async, at first": (lambda: mr.CudaAsyncMemoryResource(HUGE), "initial size of a CudaAsyncMemoryResource"),
    "pool": (lambda: mr.PoolMemoryResource(cuda(), 0, MIB).allocate(2 * MIB), 'pool "PoolMemoryResource"'),
    "pool in pieces": (pool_in_pieces, "a VmmMemoryResource, or one initial block"),
    "arena": (lambda: mr.ArenaMemoryResource(cuda(), MIB).allocate(2 * MIB), 'pool "ArenaMemoryResource"'),
    "vmm": (lambda: mr.VmmMemoryResource(64 * MIB).allocate(128 * MIB), 'pool "VmmMemoryResource"'),
    "vmm of nothing": (lambda: mr.VmmMemoryResource(0), "size of a VmmMemoryResource is 0"),
    "pinned_pool": (lambda: mr.PinnedPoolMemoryResource(MIB).allocate(64 * MIB), 'pool "PinnedPoolMemoryResource"'),
    "pinned_pool of 100": (lambda: mr.PinnedPoolMemoryResource(100), "a PinnedPoolMemoryResource must be"),
    "fixed_size": (full_fixed_size, 'pool "FixedSizeMemoryResource"'),
    "fixed_size, too large": (
        lambda: mr.FixedSizeMemoryResource(cuda(), 256, 4).allocate(257),
        'pool "FixedSizeMemoryResource" .* or a BinningMemoryResource',
    ),
    "fixed_size of nothing": (lambda: mr.FixedSizeMemoryResource(cuda(), 0), "of a FixedSizeMemoryResource is 0"),
    "fixed_size, no blocks": (lambda: mr.FixedSizeMemoryResource(cuda(), 1, 0), "of a FixedSizeMemoryResource is 0"),
    "binning": (
        lambda: mr.BinningMemoryResource(mr.PoolMemoryResource(cuda(), 0, MIB), 8, 9).allocate(2 * MIB),
        'pool "PoolMemoryResource"',
    ),
}
if ON_HOST:
    REFUSED["system"] = (lambda: mr.SystemMemoryResource().allocate(HUGE), "SystemMemoryResource failed")
    REFUSED["sam_headroom"] = (
        lambda: mr.SamHeadroomMemoryResource(0).allocate(HUGE),
        "SamHeadroomMemoryResource failed",
    )


@pytest.mark.parametrize("refused", REFUSED)
def test_errors_name_resources_as_python_does(refused: str) -> None:
    call, words = REFUSED[refused]
    with pytest.raises((MemoryError, RuntimeError)) as raised:
        call()
    text = str(raised.value)
    assert names_of_cpp(text) == []
    # A GPU's driver may refuse such sizes with another reason than a lack of memory, and then the text is its own.
    if ON_HOST or isinstance(raised.value, (rmm.OutOfMemoryError, RuntimeError)):
        assert re.search(words, text, re.DOTALL), text


def test_reports_name_resources_as_python_does() -> None:
    fixed = mr.FixedSizeMemoryResource(cuda(), 1024, 4)
    pools = mr.PoolMemoryResource(cuda(), MIB), mr.VmmMemoryResource(64 * MIB), fixed, mr.CudaAsyncMemoryResource()
    pools[0].set_name("my_memory_resource")  # the program's own word
    keep = [DeviceBuffer(size=100, mr=pool) for pool in pools]
    text = rmm.memory_report()
    for name in ("Cuda", "Vmm", "FixedSize", "CudaAsync"):
        assert f"  {name}MemoryResource: holds" in text
    assert "  my_memory_resource (PoolMemoryResource): holds" in text
    assert names_of_cpp(text.replace("my_memory_resource", "")) == []
    # What programs read has the same words in every process.
    holders = json.loads(rmm.memory_report("json"))["devices"][0]["holders"]
    names = {(h["name"], h["kind"]) for h in holders}
    assert ("my_memory_resource", "pool_memory_resource") in names
    for kind in ("cuda", "vmm", "fixed_size", "cuda_async"):
        assert (f"{kind}_memory_resource", f"{kind}_memory_resource") in names
    assert not [name for of_one in names for name in of_one if "MemoryResource" in name]
    assert without_others(rmm.memory_report()) == without_others(text)
    del keep


def test_a_text_of_the_programs_own_stays_as_it_is() -> None:
    def allocate(nbytes: int, stream: Stream) -> int:
        raise MemoryError("my_memory_resource is empty")

    resource = mr.PoolMemoryResource(mr.CallbackMemoryResource(allocate, lambda ptr, nbytes, stream: None), 0)
    with pytest.raises(MemoryError, match="my_memory_resource is empty"):
        resource.allocate(8)


@pytest.mark.parametrize("nbytes", [MIB + 1, 2 * MIB])
def test_a_fixed_size_resource_says_how_large_its_blocks_are(nbytes: int) -> None:
    resource = mr.FixedSizeMemoryResource(cuda(), MIB, 2)
    with pytest.raises(rmm.OutOfMemoryError) as raised:
        resource.allocate(nbytes)
    first, second, *rest = str(raised.value).splitlines()
    assert "Maximum allocation size exceeded" in first
    assert f"({nbytes} bytes), and its blocks have 1.00 MiB ({MIB} bytes)" in first
    assert "a larger block size" in second and not rest
    assert (raised.value.requested_bytes, raised.value.limit) == (nbytes, "maximum")


def test_a_full_fixed_size_resource_says_how_large_its_blocks_are() -> None:
    with pytest.raises(rmm.OutOfMemoryError, match="asked for 100 bytes, which takes a block of 1.00 MiB"):
        full_fixed_size()


@pytest.mark.parametrize("asking", [DEFAULT_STREAM, LEGACY_DEFAULT_STREAM], ids=["default", "legacy"])
@pytest.mark.parametrize("using", [DEFAULT_STREAM, LEGACY_DEFAULT_STREAM], ids=["default", "legacy"])
def test_an_out_of_memory_error_has_one_name_for_the_default_stream(asking: Stream, using: Stream) -> None:
    resource = mr.PoolMemoryResource(cuda(), 0, 4 * MIB)
    keep = DeviceBuffer(size=MIB, stream=using, mr=resource)
    with pytest.raises(rmm.OutOfMemoryError) as raised:
        DeviceBuffer(size=8 * MIB, stream=asking, mr=resource)
    text = str(raised.value)
    assert "bytes) on the default stream and is" in text
    assert "by stream: default 1.00 MiB" in text
    assert not re.search(r"stream 0|\b0x[01]\b", text)
    del keep


def test_an_out_of_memory_error_names_other_streams_by_their_handles() -> None:
    resource = mr.PoolMemoryResource(cuda(), 0, 4 * MIB)
    stream = Stream()
    keep = DeviceBuffer(size=MIB, stream=stream, mr=resource)
    with pytest.raises(rmm.OutOfMemoryError) as raised:
        DeviceBuffer(size=8 * MIB, stream=stream, mr=resource)
    handle = hex(stream.__cuda_stream__()[1])
    assert f"bytes) on stream {handle} and is" in str(raised.value)
    assert f"by stream: {handle} 1.00 MiB" in str(raised.value)
    del keep


# ---- findings: text on stderr, from a process of their own

FINDINGS = (
    "from rmm import mr\n"
    "resource = mr.{resource}\n"
    "ptr = resource.allocate(100)\n"
    "resource.deallocate(ptr, 99)\n"
    "resource.deallocate(ptr, 100)\n"
    "resource.allocate(100)\n"
    "del resource\n"
)
DEBUG_ADAPTOR = "DebugResourceAdaptor(mr.CudaMemoryResource())"
POOL = "PoolMemoryResource(mr.CudaMemoryResource(), 1 << 20)"


@pytest.mark.parametrize("resource", [DEBUG_ADAPTOR, POOL], ids=["adaptor", "pool"])
def test_findings_have_names_of_python(resource: str) -> None:
    result = run_python(FINDINGS.format(resource=resource), RMM_DEBUG="1")
    assert result.returncode == 0
    assert result.stderr.count("rmm: debug:") == 3, result.stderr
    assert result.stderr.count(f" of a {resource.partition('(')[0]}") == 3
    assert "on the default stream\n" in result.stderr
    assert "allocated on the default stream, freed before on the default stream" in result.stderr
    assert names_of_cpp(result.stderr) == []


@pytest.mark.parametrize("resource", [DEBUG_ADAPTOR, POOL], ids=["adaptor", "pool"])
def test_findings_advise_what_a_program_in_python_can_do(resource: str) -> None:
    program = FINDINGS.format(resource=resource)
    without = run_python(program, RMM_DEBUG="1").stderr
    advice = re.findall(r"stacks were not taken: run with (\w+)=(\S+) in the environment", without)
    assert len(advice) == 3 == without.count("stacks were"), without
    assert len(set(advice)) == 1
    (name, value) = advice[0]
    heeded = run_python(program, **{name: value}).stderr
    assert "stacks were" not in heeded, heeded
    assert heeded.count("allocated at\n#0") == 3
    assert "freed at\n#0" in heeded


def test_without_the_variable_a_debug_adaptor_looks_for_everything_without_stacks() -> None:
    for value in ("", "0"):
        result = run_python(FINDINGS.format(resource=DEBUG_ADAPTOR), RMM_DEBUG=value)
        assert result.stderr.count("rmm: debug:") == result.stderr.count("stacks were not taken") == 3


def test_a_debug_adaptor_does_what_the_variable_says() -> None:
    result = run_python(FINDINGS.format(resource=DEBUG_ADAPTOR), RMM_DEBUG="redzones,sync")
    assert "still in use" not in result.stderr  # leaks were not asked for
    assert result.stderr.count("rmm: debug:") == 2
    refused = run_python(FINDINGS.format(resource=DEBUG_ADAPTOR), RMM_DEBUG="stakcs")
    assert refused.returncode == 1
    assert 'RuntimeError: RMM_DEBUG is "stakcs": "stakcs" is unknown' in refused.stderr
