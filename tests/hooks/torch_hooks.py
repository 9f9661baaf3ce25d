"""PyTorch, with all its memory from a pool of rmm through the hooks of <rmm/rmm.h>: right results on several streams, everything
counted, everything given back.

usage: torch_hooks.py LIBKMM_RMM_SO
"""

from __future__ import annotations

import sys

from hooks import SKIPPED, Rmm, library_or_skip

torch = library_or_skip("torch")
if not torch.cuda.is_available():
    print("left out: PyTorch sees no GPU")
    sys.exit(SKIPPED)

rmm = Rmm(sys.argv[1])
pool = rmm.open("pool", "initial=64MiB name=torch")
counted = rmm.open("statistics", "", pool)
rmm.check(rmm.c.rmm_set_device_resource(-1, counted))
allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "rmm_torch_allocate", "rmm_torch_deallocate")
torch.cuda.memory.change_current_allocator(allocator)


def train() -> None:
    """A forward and a backward pass, so that autograd's thread allocates too."""
    weights = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(weights.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = weights(torch.ones(256, 512, device="cuda")).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.item()))
    assert losses[-1] < losses[0], losses


# PyTorch keeps work space for cuBLAS, of a size that depends on the GPU, from the first product on.
train()
torch.cuda.synchronize()
kept = rmm.statistics(counted).bytes_now

n = 1 << 20
x = torch.arange(n, dtype=torch.int64, device="cuda")
assert rmm.statistics(counted).bytes_now >= kept + 8 * n, "PyTorch's memory does not come from the resource"
assert int((x * 3 + 1).sum().item()) == 3 * n * (n - 1) // 2 + n

# Each stream frees temporaries that the others may get at once: a block that came too early would show in the sums.
streams = [torch.cuda.Stream() for _ in range(4)]
torch.cuda.synchronize()
sums = []
for turn in range(200):
    with torch.cuda.stream(streams[turn % 4]):
        y = torch.full((n + turn * 1000,), turn, dtype=torch.int64, device="cuda")
        for _ in range(3):
            y = y + 1  # the one before is freed with its kernel still running
        sums.append((y.sum(), (turn + 3) * (n + turn * 1000)))
    del y
torch.cuda.synchronize()
for turn, (found, expected) in enumerate(sums):
    assert int(found.item()) == expected, f"turn {turn}: {int(found.item())} instead of {expected}"

train()

now = rmm.statistics(counted)
assert now.blocks_total > 200 * 4, now.blocks_total
del x, sums, found
torch.cuda.synchronize()
left = rmm.statistics(counted)
print(f"{left.blocks_total} blocks, at most {left.bytes_peak} bytes; {left.bytes_now} bytes left, {kept} of them PyTorch's own")
assert left.bytes_now == kept, "tensors are gone, their memory is not"
