#!/usr/bin/env python3
"""Says how long GPUs stand still between the steps of a trace (heddle trace).

    heddle trace -o trace.json bench prefill --model synth:llama-3-8b,layers=8 --device cuda --tokens 8192 --step-tokens 1024 --repeats 3
    tools/step_gaps.py trace.json --steps 8 --runs 3 [--most 0.01]

A step begins with its kernel `--first`; a step in two parts has two of them, so count them twice. Of each of the last `--runs` runs
of `--steps` steps of a stream it looks at the time from the begin of the first step to that of the last one, and prints the share
in which the GPU runs no kernel and no copy, on whatever stream, and the longest such gap. Ends with status 1 where the median
share of a stream is above `--most`.
"""
import argparse
import json
import statistics
import sys

def slices_of_gpus(events):
    """GPU -> its slices (begin, end, stream, name), by their begin."""
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    gpus = {}
    for event in events:
        if event["ph"] == "X" and event["cat"] in ("kernel", "transfer") and names[event["pid"]].startswith("GPU"):
            gpus.setdefault(names[event["pid"]], []).append((event["ts"], event["ts"] + event["dur"], event["tid"], event["name"]))
    return {name: sorted(slices) for name, slices in sorted(gpus.items())}


def gaps_between(slices, begin, end):
    """(length, name of the slice behind) of each time within begin to end in which nothing runs."""
    gaps, busy_until = [], begin
    for start, stop, _, name in slices:
        if start >= end:
            break
        if start > busy_until:
            gaps.append((start - busy_until, name))
        busy_until = max(busy_until, stop)
    if busy_until < end:
        gaps.append((end - busy_until, "the last step begins"))
    return gaps


def runs_of(slices, first, stream, steps, runs):
    """(begin of the first step, begin of the last one) of the last runs on a stream."""
    begins = [start for start, _, on, name in slices if on == stream and first in name]
    if len(begins) < steps * runs:
        raise SystemExit(f"{len(begins)} kernels \"{first}\" on stream {stream}, expected {runs} runs of {steps}")
    begins = begins[len(begins) - steps * runs:]
    return [(begins[i * steps], begins[i * steps + steps - 1]) for i in range(runs)]


def report(gpu, slices, stream, args):
    """Prints the gaps of a stream's runs; returns their median share."""
    shares = []
    for number, (begin, end) in enumerate(runs_of(slices, args.first, stream, args.steps, args.runs), 1):
        gaps = gaps_between(slices, begin, end)
        idle, (longest, behind) = sum(length for length, _ in gaps), max(gaps, key=lambda gap: gap[0], default=(0, "nothing"))
        shares.append(idle / (end - begin))
        print(f"{gpu}, stream {stream}, run {number}: {idle:.1f} of {end - begin:.1f} us idle ({shares[-1]:.2%}), "
              f"longest {longest:.1f} us, before {behind}")
    return statistics.median(shares)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--steps", type=int, required=True, help="of a run, 2 or more")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--first", default="embedding", help="part of the name of the kernel that a step begins with")
    parser.add_argument("--most", type=float, default=1.0, help="share of gaps")
    args = parser.parse_args()
    if args.steps < 2 or args.runs < 1:
        parser.error("a gap lies between two steps: --steps 2 or more, --runs 1 or more")
    with open(args.trace, encoding="utf-8") as file:
        gpus = slices_of_gpus(json.load(file)["traceEvents"])
    streams = [(gpu, stream) for gpu, slices in gpus.items() for stream in sorted({on for _, _, on, name in slices if args.first in name})]
    if not streams:
        raise SystemExit(f"no kernel \"{args.first}\" of a GPU in this trace")
    status = 0
    for gpu, stream in streams:
        share = report(gpu, gpus[gpu], stream, args)
        if share > args.most:
            print(f"{gpu}, stream {stream}: {share:.2%} is above {args.most:.2%}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
