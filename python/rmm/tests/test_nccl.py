"""NCCL over a pool that other processes and network cards reach: PyTorch registers it with ncclCommRegister."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmm._cuda import gpu
from support import needs, needs_gpu

# Each process uses one GPU. Tensors of 24 MiB and more are segments of their own in PyTorch's allocator, smaller ones
# share one. Multicast objects are left out: NCCL makes them for NVLink SHARP.
PROGRAM = """
import sys
import torch
import torch.distributed as dist
import rmm
from rmm.allocators.torch import rmm_torch_allocator

rank, ranks, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
try:
    memory = rmm.mr.VmmMemoryResource(enable_ipc=True, enable_rdma=True)
except RuntimeError as refused:
    print("without RDMA:", refused)
    memory = rmm.mr.VmmMemoryResource(enable_ipc=True)
rmm.mr.set_per_device_resource(rank, memory)
dist.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=ranks, device_id=device)
backend = dist.group.WORLD._get_backend(device)
pool = torch.cuda.MemPool(rmm_torch_allocator.allocator())
with torch.cuda.use_mem_pool(pool):
    sizes = 5, 1000, 3 << 20, 16 << 20, 100_000_001
    tensors = [torch.empty(size, dtype=torch.int64, device=device) for size in sizes]
assert memory.pool_size() >= sum(tensor.nbytes for tensor in tensors), memory.pool_size()
backend.register_mem_pool(pool)
for step in range(3):
    for tensor in tensors:
        torch.arange(tensor.numel(), out=tensor)
        tensor.mul_(rank + 1 + step)
        dist.all_reduce(tensor)
    for tensor in tensors:
        factor = sum(other + 1 + step for other in range(ranks))
        assert torch.equal(tensor, torch.arange(tensor.numel(), device=device) * factor), (step, tensor.numel())
backend.deregister_mem_pool(pool)
dist.destroy_process_group()
print("right on rank", rank)
"""


@needs_gpu
@needs("torch")
@pytest.mark.parametrize("ranks", [1, 2])
def test_an_all_reduce_of_registered_tensors_is_right(ranks: int, tmp_path: Path) -> None:
    if gpu.getDeviceCount() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    environment = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "REG,ALLOC",
        "NCCL_NVLS_ENABLE": "0",
        **os.environ,
        "KMM_DRIVER": "cuda",
    }
    logs = [tmp_path / f"{rank}.txt" for rank in range(ranks)]
    processes = []
    for rank, log in enumerate(logs):
        with log.open("w") as output:
            arguments = [sys.executable, "-c", PROGRAM, str(rank), str(ranks), str(tmp_path / "store")]
            processes.append(subprocess.Popen(arguments, env=environment, stdout=output, stderr=subprocess.STDOUT))
    try:
        for process in processes:
            process.wait(timeout=240)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, log in zip(processes, logs, strict=True):
        text = log.read_text()
        print(text)
        assert process.returncode == 0, text
        assert "right on rank" in text
        assert text.count("register comm") >= 4, "NCCL says what is registered"
