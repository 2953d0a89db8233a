#!/usr/bin/env python3
"""Writes the table of README.md between its two marks from the records in bench/results, and checks it with --check.

    bench/report_headline.py [--check]

A record whose commit is not in this history has no row. Exits with 77 where there is no whole history to look in.
"""
import json
import pathlib
import subprocess
import sys

import rooflines

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- Written by bench/report_headline.py. -->\n", "<!-- End of what it writes. -->\n"


def record(name):
    return json.loads((ROOT / "bench/results" / name).read_text(encoding="utf-8"))


def in_history(commit):
    return subprocess.run(["git", "-C", ROOT, "merge-base", "--is-ancestor", commit, "HEAD"], capture_output=True,
                          check=False).returncode == 0


def case_of(of_bench, **wanted):
    return next(case for case in of_bench["cases"] if all(case[key] == value for key, value in wanted.items()))


def bench_row(what, name, unit, **wanted):
    """A case of `heddle bench decode` or `prefill` beside its baseline."""
    of_bench = record(name)
    case = case_of(of_bench, **wanted)
    rates = [case["tokens_per_second"], case["peer_tokens_per_second"]]
    digits = 0 if rates[0] >= 100 else 1
    baseline = of_bench["peer"]["name"].split(",")[0]
    on_gpu = of_bench.get("gpu") is not None
    share = case["floor_share"]["median"] if on_gpu else rooflines.share_of(of_bench, case)
    roofline = "-" if share is None else f"{100 * share:.0f} %" + ("\\*" if share > 1 else "")
    return of_bench["commit"], [what, f"{rates[0]:.{digits}f} {unit}", f"{baseline} {rates[1]:.{digits}f}",
                                f"{case['ratio_of_medians']:.2f}", roofline]


def median_seconds(runs, what, collective, size, seconds):
    times = sorted(seconds(case_of(run, collective=collective, bytes=size)) for name, run in runs.items() if what in name)
    return times[len(times) // 2]


def cpu_collective_row(what, fabric, ranks, collective, size):
    runs = record("cpu-milan-collectives.json")["runs"]
    first = next(run for name, run in runs.items() if f"-{fabric}-{ranks}-ranks" in name)
    passes = {name.split("-ranks-")[1] for name in runs if f"-{fabric}-{ranks}-ranks" in name}
    beside = {name: run for name, run in runs.items() if name.split("-ranks-")[1] in passes}  # interleaved with ours
    ours = median_seconds(beside, f"-{fabric}-{ranks}-ranks", collective, size, lambda case: case["ours"]["seconds"])
    theirs = median_seconds(beside, f"-openmpi-{ranks}-ranks", collective, size, lambda case: case["seconds"])
    return first["commit"], [what, f"{1e6 * ours:.0f} us", f"Open MPI {1e6 * theirs:.0f}", f"{theirs / ours:.2f}", "-"]


def gpu_collective_row(what, ranks, size):
    run = record(f"h200-nvlink-{ranks}-ranks-pass-1-collective.json")
    case = case_of(run, collective="all_reduce", bytes=size)
    ours = case["ours"]["seconds"]
    nccl = min(case[way]["seconds"] for way in ("nccl", "nccl_windows") if way in case)
    torch = case_of(record(f"h200-torch-{ranks}-ranks-pass-1-collective.json"), collective="all_reduce", bytes=size)["seconds"]
    theirs, name = min((nccl, "NCCL"), (torch, "PyTorch"))
    return run["commit"], [what, f"{1e6 * ours:.1f} us", f"{name} {1e6 * theirs:.1f}", f"{theirs / ours:.2f}",
                           f"{100 * case['floor_seconds'] / ours:.0f} %"]


def table():
    zen, gpu = "two cores of an EPYC (Zen 4)", "one H200"
    rows = [
        bench_row(f"Decode, llama-3-8b, context 4096, {gpu}", "gpu-h200-decode-llama-3-8b.json", "tokens/s", batch=1, context=4096),
        bench_row(f"Decode, 16 sequences, llama-3-8b, context 4096, {gpu}", "gpu-h200-decode-llama-3-8b.json", "tokens/s", batch=16, context=4096),
        bench_row(f"Prefill, llama-3-8b, 8192 tokens, {gpu}", "gpu-h200-prefill-llama-3-8b.json", "tokens/s", batch=1, tokens=8192),
        bench_row(f"Decode, llama-3.2-1b, context 128, {zen}", "cpu-zen4-2-threads-decode.json", "tokens/s", batch=1, context=128),
        bench_row(f"Decode, 8 sequences, llama-3.2-1b, context 128, {zen}", "cpu-zen4-2-threads-decode.json", "tokens/s", batch=8, context=128),
        bench_row(f"Prefill, llama-3.2-1b, 512 tokens, {zen}", "cpu-zen4-2-threads-prefill.json", "tokens/s", context=0),
        gpu_collective_row("All-reduce of 1 MiB, two H200s", 2, 1 << 20),
        cpu_collective_row("All-reduce of 1 MiB, two threads of an EPYC (Milan)", "shm", 2, "all_reduce", 1 << 20),
        cpu_collective_row("All-reduce of 1 MiB, two processes of an EPYC (Milan)", "mpi", 2, "all_reduce", 1 << 20),
    ]
    lines = ["| | Heddle | baseline | ratio | of the roofline |", "|---|--:|--:|--:|--:|"]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for commit, cells in rows if in_history(commit)]) + "\n"


def main():
    shallow = subprocess.run(["git", "-C", ROOT, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True, check=False)
    if shallow.stdout.strip() != "false":
        print("report_headline.py: there is no whole history here, so commits cannot be looked up: git fetch --unshallow")
        sys.exit(77)
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    new = f"\n{table()}\n"
    if "--check" in sys.argv[1:]:
        sys.exit(None if new == old else "report_headline.py: README.md's table is not that of the records: run bench/report_headline.py")
    README.write_text(before + BEGIN + new + END + after, encoding="utf-8")


main()
