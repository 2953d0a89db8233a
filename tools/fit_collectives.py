#!/usr/bin/env python3
"""Fits the time of each collective algorithm on H200s to the records of `heddle bench collective` on two and four GPUs:

    seconds = fixed + a_peer (N - 1) + traffic / rate

    fit_collectives.py                 # the constants of src/machine/collective_cost.h, and the errors of each algorithm
    fit_collectives.py --predict 8     # a Markdown table of predictions for that many GPUs, as in docs/notes/collectives.md

Least squares of relative errors, with equal weights for all cases of all passes; a_peer is left out where it would be negative.
Traffic is what a rank sends (src/machine/collective_cost.h).
"""
import argparse
import json
import pathlib

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "bench/results"
WAYS = [("all_reduce", "low_latency"), ("all_reduce", "two_phase"), ("all_reduce", "pipelined"),
        ("all_gather", "low_latency"), ("all_gather", "direct"), ("reduce_scatter", "low_latency"), ("reduce_scatter", "direct"),
        ("all_to_all", "low_latency"), ("all_to_all", "direct")]


def traffic(collective, algorithm, ranks, size):
    if (collective, algorithm) == ("all_reduce", "low_latency"):
        return (ranks - 1) * size
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks * size


def records():
    for path in sorted(RESULTS.glob("h200-nvlink-*-ranks-pass-*-collective.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["ranks"] in (2, 4):
            for case in record["cases"]:
                yield record["ranks"], case["collective"], case["algorithm"], case["bytes"], case["ours"]["seconds"]


def solve(rows):
    """The x that minimises the sum of (row . x - 1)^2, by Gaussian elimination of the normal equations."""
    size = len(rows[0])
    matrix = [[sum(row[i] * row[j] for row in rows) for j in range(size)] + [sum(row[i] for row in rows)] for i in range(size)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(matrix[r][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for r in range(size):
            if r != i:
                factor = matrix[r][i] / matrix[i][i]
                matrix[r] = [a - factor * b for a, b in zip(matrix[r], matrix[i])]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]


def fit(way, cases):
    """(fixed us, us per peer, us per MB), and each case's (error, ranks, size)."""
    terms = lambda ranks, size: (1.0, ranks - 1.0, traffic(*way, ranks, size) * 1e-6)
    fixed, a_peer, a_megabyte = solve([[t / (1e6 * s) for t in terms(n, size)] for n, size, s in cases])
    if a_peer < 0:
        rows = [[t / (1e6 * s) for t in terms(n, size)] for n, size, s in cases]
        (fixed, a_megabyte), a_peer = solve([[row[0], row[2]] for row in rows]), 0.0
    constants = (fixed, a_peer, a_megabyte)
    errors = [(sum(c * t for c, t in zip(constants, terms(n, size))) / (1e6 * s) - 1, n, size) for n, size, s in cases]
    return constants, errors


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", type=int, metavar="N", help="GPUs")
    arguments = parser.parse_args()
    fits = {way: fit(way, [(n, size, s) for n, *of, size, s in records() if tuple(of) == way]) for way in WAYS}
    if arguments.predict is None:
        for way, ((fixed, a_peer, a_megabyte), errors) in fits.items():
            worst, ranks, size = max(errors, key=lambda error: abs(error[0]))
            print(f"{way[0]:15} {way[1]:12} fixed {fixed:6.3f} us  a peer {a_peer:5.3f} us  {1e3 / a_megabyte:6.1f} GB/s  "
                  f"worst {100 * worst:+.1f} % ({size_text(size)}, {ranks} ranks)")
        return
    print("| collective | size | " + " | ".join(("low_latency", "two_phase", "direct", "pipelined")) + " |\n|---|--:|--:|--:|--:|--:|")
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for shift in (10, 14, 15, 16, 17, 18, 20, 22, 24, 26, 28):
            cells = []
            for algorithm in ("low_latency", "two_phase", "direct", "pipelined"):
                constants, _ = fits.get((collective, algorithm), (None, None))
                sent = traffic(collective, algorithm, arguments.predict, 1 << shift)
                cells.append(f"{constants[0] + constants[1] * (arguments.predict - 1) + constants[2] * sent * 1e-6:.1f}"
                             if constants else "")
            print(f"| {collective} | {size_text(1 << shift)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
