#!/usr/bin/env python3
"""PyTorch's symmetric memory as a baseline for `heddle bench collective --fabric nvlink`: all-reduce, one process per GPU.

    torchrun --nproc-per-node N bench/baselines/torch_symmetric.py FROM_BYTES TO_BYTES FACTOR REPEATS [OUTPUT]

Prints JSON as mpi_collectives.c does (or writes it to OUTPUT, again after each size): for each size the slowest rank's median
seconds per call of the faster one of the one-shot and the two-shot all-reduce. Measured like `heddle bench collective`: calls on
distinct buffers in a CUDA graph, which first overwrites more than the GPU's cache, then synchronises with the other ranks, and is
timed from there on. Multicast stays off: neither operation uses it, and it is disabled for NCCL.
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

ONE_SHOT_UP_TO = 4 << 20
MORE_THAN_CACHE = 128 << 20


def calls_of(size):
    return 20 if size <= 1 << 20 else 6 if size <= 64 << 20 else 2


def timing_events():
    """Events inside the graph if this PyTorch supports it (`inside`); else around its replay, including the barrier."""
    try:
        return [torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)], True
    except TypeError:
        return [torch.cuda.Event(enable_timing=True) for _ in range(2)], False


def seconds_of(operation, tensors, barrier, overwritten, group, repeats):
    for tensor in tensors:
        operation(tensor, "sum", group)
    torch.cuda.synchronize()
    (begin, end), inside = timing_events()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL has a thread that queries events
        overwritten.zero_()
        barrier()
        if inside:
            begin.record()
        for tensor in tensors:
            operation(tensor, "sum", group)
        if inside:
            end.record()
    samples = []
    for sample in range(-2, repeats):
        dist.barrier()
        if not inside:
            begin.record()
        graph.replay()
        if not inside:
            end.record()
        torch.cuda.synchronize()
        if sample >= 0:
            samples.append(begin.elapsed_time(end) * 1e-3 / len(tensors))
    slowest = torch.tensor(statistics.median(samples), device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def main():
    first, last, factor, repeats = (int(text) for text in sys.argv[1:5])
    output = sys.argv[5] if len(sys.argv) > 5 else None
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    group = dist.group.WORLD.group_name
    overwritten = torch.empty(MORE_THAN_CACHE, dtype=torch.uint8, device=device)
    meeting = symmetric_memory.rendezvous(symmetric_memory.empty(64, dtype=torch.bfloat16, device=device), group)
    cases = []
    size = first
    while size <= last:
        tensors = []
        for _ in range(calls_of(size)):
            tensor = symmetric_memory.empty(size // 2, dtype=torch.bfloat16, device=device)
            symmetric_memory.rendezvous(tensor, group)
            tensors.append(tensor.normal_())
        ways = {"two_shot": torch.ops.symm_mem.two_shot_all_reduce_}
        if size <= ONE_SHOT_UP_TO:
            ways["one_shot"] = torch.ops.symm_mem.one_shot_all_reduce
        times = {name: seconds_of(way, tensors, meeting.barrier, overwritten, group, repeats) for name, way in ways.items()}
        cases.append({"collective": "all_reduce", "bytes": size, "seconds": min(times.values()), "ways": times})
        if dist.get_rank() == 0:
            record = {"bench": "collective_peer", "peer": f"PyTorch {torch.__version__} symmetric memory",
                      "ranks": dist.get_world_size(), "timed_inside_the_graph": timing_events()[1], "cases": cases}
            if output:
                with open(output, "w", encoding="utf-8") as file:
                    json.dump(record, file, indent=1)
            elif size * factor > last:
                print(json.dumps(record, indent=1))
        size *= factor
    dist.destroy_process_group()


main()
