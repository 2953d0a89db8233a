#!/usr/bin/env python3
"""Makes docs/results/collectives.md, and an SVG for each run, from the JSON under bench/results.

    bench/report_collectives.py [RESULTS_FOLDER [OUTPUT]]

A record `X-FABRIC-N-ranks-collective.json` of `heddle bench collective` is set beside `X-openmpi-N-ranks-collective.json`
(bench/peers/mpi_collectives.c), where that is there. Every figure comes from the files; write none by hand.
"""
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLOURS = ["#1b6ca8", "#c8553d"]


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} bytes"


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def peer_of(path, record):
    name = path.name.split(f"-{record['fabric']}-")[0] + f"-openmpi-{record['ranks']}-ranks-collective.json"
    file = path.with_name(name)
    if not file.exists():
        return {}
    return {(case["collective"], case["bytes"]): case["seconds"] for case in load(file)["cases"]}


def rows_of(record, peers):
    for case in record["cases"]:
        ours = case["ours"]["seconds"]
        peer = case.get("nccl", {}).get("seconds") or peers.get((case["collective"], case["bytes"]))
        if "nccl_windows" in case:
            peer = min(peer, case["nccl_windows"]["seconds"])
        floor = case.get("floor_seconds")
        yield [case["collective"], size_text(case["bytes"]), f"{case['algorithm']}",
               str(case["blocks"]), f"{1e6 * ours:.2f}", f"{100 * case['ours']['skew']:.1f}", f"{case['bus_gbps']:.2f}",
               f"{100 * floor / ours:.0f} %" if floor else "-", f"{1e6 * peer:.2f}" if peer else "-",
               f"{peer / ours:.2f}" if peer else "-"]


def table(record, peers):
    head = ["collective", "size", "algorithm", "blocks", "us", "skew %", "bus GB/s", "of floor", "peer us", "ratio"]
    lines = ["| " + " | ".join(head) + " |", "|---|--:|---|" + "--:|" * (len(head) - 3)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows_of(record, peers)])


def points(pairs, x, y):
    return " ".join(f"{x(size):.1f},{y(seconds):.1f}" for size, seconds in pairs)


def plot(record, peers, title):
    """Time of all_reduce by size, both axes logarithmic."""
    ours = [(c["bytes"], c["ours"]["seconds"]) for c in record["cases"] if c["collective"] == "all_reduce"]
    peer = [(size, peers[("all_reduce", size)]) for size, _ in ours if ("all_reduce", size) in peers]
    times = [seconds for _, seconds in ours + peer]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log2(ours[0][0]), math.log2(ours[-1][0])
    x = lambda size: 70 + 500 * (math.log2(size) - first) / max(1e-9, last - first)
    y = lambda seconds: 330 - 280 * (math.log10(seconds) - low) / (high - low)
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 390" font-family="sans-serif" font-size="12">',
             '<rect width="620" height="390" fill="white"/>', f'<text x="70" y="25" font-size="14">{title}</text>']
    for power in range(low, high + 1):
        at = y(10.0 ** power)
        parts.append(f'<line x1="70" x2="570" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
                     f'<text x="62" y="{at + 4:.1f}" text-anchor="end">{10.0 ** (power + 6):g} us</text>')
    for size, _ in ours:
        parts.append(f'<text x="{x(size):.1f}" y="350" text-anchor="middle" font-size="9">{size_text(size)}</text>')
    for (name, pairs), colour, at in zip((("Heddle", ours), ("peer", peer)), COLOURS, (370, 385)):
        if pairs:
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points(pairs, x, y)}"/>'
                         f'<text x="70" y="{at}" fill="{colour}">{name}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/results"
    output = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/results/collectives.md"
    parts = ["# Speed of collectives",
             "Made by `bench/report_collectives.py` from the files under `bench/results`. A time is the slowest rank's median for a call; "
             "`skew` is how much sooner the fastest rank's was; a ratio is the peer's time divided by Heddle's, so above 1 Heddle is "
             "faster. The peer is NCCL on GPUs (the better of plain memory and registered windows) and Open MPI on the CPU."]
    for path in sorted(folder.glob("*-collective.json")):
        record = load(path)
        if record.get("bench") != "collective":
            continue
        title = f"{record['fabric']}, {record['ranks']} ranks, {record['dtype']}"
        peers = peer_of(path, record)
        picture = output.with_name(path.stem + ".svg")
        picture.write_text(plot(record, peers, f"all_reduce, {title}"), encoding="utf-8")
        parts += [f"## {title}", f"`{path.name}`: {record['machine']['key']}, commit {record['commit']}, {record['date']}; "
                  f"`{' '.join(['heddle'] + record['command'][1:])}`", f"![all_reduce by size]({picture.name})", table(record, peers)]
    output.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


main()
