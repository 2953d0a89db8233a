#!/usr/bin/env python3
"""PyTorch's symmetric memory as the peer of `heddle bench collective --fabric nvlink`: all-reduce, one process a GPU.

    torchrun --nproc-per-node N bench/peers/torch_symmetric.py FROM_BYTES TO_BYTES FACTOR REPEATS

Prints JSON as mpi_collectives.c does: for each size the slowest rank's median seconds a call of the better of the one-shot and
the two-shot all-reduce, in CUDA graphs. Multicast stays off: neither operation uses it, and NCCL is told not to. Not run yet.
"""
import json
import os
import statistics
import sys

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

import torch  # noqa: E402: reads the environment
import torch.distributed as dist  # noqa: E402
import torch.distributed._symmetric_memory as symmetric_memory  # noqa: E402

CALLS = 20
ONE_SHOT_UP_TO = 4 << 20


def seconds_of(operation, tensor, group, repeats):
    operation(tensor, "sum", group)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            operation(tensor, "sum", group)
    samples = []
    for sample in range(-2, repeats):
        dist.barrier()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if sample >= 0:
            samples.append(begin.elapsed_time(end) * 1e-3 / CALLS)
    slowest = torch.tensor(statistics.median(samples), device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def main():
    first, last, factor, repeats = (int(text) for text in sys.argv[1:5])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    group = dist.group.WORLD.group_name
    ops = torch.ops.symm_mem
    cases = []
    size = first
    while size <= last:
        tensor = symmetric_memory.empty(size // 2, dtype=torch.bfloat16, device="cuda").normal_()
        symmetric_memory.rendezvous(tensor, group)
        ways = {"two_shot": ops.two_shot_all_reduce_}
        if size <= ONE_SHOT_UP_TO:
            ways["one_shot"] = ops.one_shot_all_reduce
        times = {name: seconds_of(way, tensor, group, repeats) for name, way in ways.items()}
        cases.append({"collective": "all_reduce", "bytes": size, "seconds": min(times.values()), "ways": times})
        size *= factor
    if dist.get_rank() == 0:
        print(json.dumps({"bench": "collective_peer", "peer": f"PyTorch {torch.__version__} symmetric memory",
                          "ranks": dist.get_world_size(), "cases": cases}, indent=1))
    dist.destroy_process_group()


main()
