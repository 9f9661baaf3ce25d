"""CuPy, with all its memory from a pool of rmm through the hooks of <rmm/rmm.h>: right results, on a stream of its own too.

usage: cupy_hooks.py LIBKMM_RMM_SO
"""

from __future__ import annotations

import sys

from hooks import SKIPPED, Rmm, library_or_skip

cupy = library_or_skip("cupy")
try:
    cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError as e:
    print(f"left out: CuPy sees no GPU ({e})")
    sys.exit(SKIPPED)

rmm = Rmm(sys.argv[1])
pool = rmm.open("pool", "initial=64MiB name=cupy")
counted = rmm.open("statistics", "", pool)
allocator = cupy.cuda.CFunctionAllocator(
    counted.value, rmm.address("rmm_cupy_allocate"), rmm.address("rmm_cupy_deallocate"), rmm
)
cupy.cuda.set_allocator(allocator.malloc)

n = 1 << 20
x = cupy.arange(n, dtype=cupy.int64)
assert rmm.statistics(counted).bytes_now >= 8 * n, "CuPy's memory does not come from the resource"
assert int((x * 3 + 1).sum()) == 3 * n * (n - 1) // 2 + n

for turn in range(200):
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        rmm.c.rmm_set_hook_stream(stream.ptr)
        y = cupy.full(n + turn * 1000, turn, dtype=cupy.int64)
        for _ in range(3):
            y = y + 1  # the one before is freed with its kernel still running
        found = int(y.sum())
        assert found == (turn + 3) * (n + turn * 1000), f"turn {turn}: {found}"
        del y
    rmm.c.rmm_set_hook_stream(None)

try:
    cupy.zeros(1 << 50, dtype=cupy.int8)
    raise AssertionError("a pebibyte was there")
except (cupy.cuda.memory.OutOfMemoryError, MemoryError, RuntimeError) as e:
    print(f"a pebibyte: {type(e).__name__}; rmm says: {rmm.c.rmm_last_error().decode()}")

del x
cupy.cuda.runtime.deviceSynchronize()
left = rmm.statistics(counted)
print(f"{left.blocks_total} blocks, at most {left.bytes_peak} bytes; {left.bytes_now} bytes left")
assert left.bytes_now == 0, left.bytes_now
cupy.cuda.set_allocator(None)
rmm.c.rmm_release(counted)
rmm.c.rmm_release(pool)
