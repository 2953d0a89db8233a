#!/usr/bin/env python3
"""Generates docs/results/collectives.md, and an SVG for each team, from the JSON in bench/results.

    bench/report_collectives.py [RESULTS_FOLDER [OUTPUT]]

Compares records `X-FABRIC-N-ranks[-pass-P]-collective.json` of `heddle bench collective` with baselines: NCCL, which is in the
same record, and, if present, `X-torch-N-ranks...` (bench/peers/torch_symmetric.py) and `X-openmpi-N-ranks...`
(bench/peers/mpi_collectives.c). `FABRIC-tcp` is over TCP; its baseline is `openmpi-tcp`. A baseline's record counts only with a
record of Heddle of the same pass, that is, measured interleaved with it; each time is the median of those passes. All figures come
from the files; do not edit the page by hand.
"""
import argparse
import json
import math
import pathlib
import re
import statistics

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLOURS = ["#1b6ca8", "#c8553d", "#3a7d44", "#7b5aa6"]
NAME = re.compile(r"(?P<machine>.+)-(?P<what>shm|mpi|nvlink|openmpi|torch)(?P<wire>-tcp)?-(?P<ranks>\d+)-ranks"
                  r"(?P<turn>-pass-\d+)?-collective\.json")


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} bytes"


def teams_of(folder):
    """{(machine, what, wire, ranks): {pass: (file name, record)}}, ordered by file name."""
    teams = {}
    for path in sorted(folder.glob("*-collective.json")):
        name = NAME.fullmatch(path.name)
        if not name:
            continue
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            expected = "collective_peer" if name["what"] in ("openmpi", "torch") else "collective"
            if record["bench"] != expected or not record["cases"]:
                raise ValueError(f"is no record of {expected} with cases")
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"report_collectives.py: error: {path} is no record of a bench of collectives: {error!r}")
        team = (name["machine"], name["what"], name["wire"] or "", int(name["ranks"]))
        teams.setdefault(team, {})[name["turn"] or ""] = (path.name, record)
    return teams


def times_of(passes, seconds_of_case):
    """{(collective, bytes): median over the passes that have it}."""
    times = {}
    for _, record in passes.values():
        for case in record["cases"]:
            seconds = seconds_of_case(case)
            if seconds is not None:
                times.setdefault((case["collective"], case["bytes"]), []).append(seconds)
    return {key: statistics.median(values) for key, values in times.items()}


def best_of_nccl(case):
    ways = [case[way]["seconds"] for way in ("nccl", "nccl_windows") if way in case]
    return min(ways) if ways else None


def peers_of(teams, machine, wire, ranks, passes):
    peers = {"NCCL": times_of(passes, best_of_nccl)}
    for name, what in (("PyTorch", "torch"), ("Open MPI", "openmpi")):
        of_peer = teams.get((machine, what, wire, ranks), {})
        in_turns = {turn: record for turn, record in of_peer.items() if turn in passes}
        peers[name] = times_of(in_turns, lambda case: case["seconds"])
    return {name: times for name, times in peers.items() if times}


def cases_of(passes):
    """Each (collective, size) once, in the first record's order."""
    cases = {}
    for _, record in passes.values():
        for case in record["cases"]:
            cases.setdefault((case["collective"], case["bytes"]), case)
    return cases


def has_predictions(passes):
    return any("predicted_seconds" in case for case in cases_of(passes).values())


def rows_of(passes, ours, peers):
    for key, case in cases_of(passes).items():
        seconds = ours[key]
        floor = case.get("floor_seconds")
        row = [case["collective"], size_text(case["bytes"]), case["algorithm"], str(case["blocks"]), f"{1e6 * seconds:.2f}",
               f"{100 * case['ours']['skew']:.1f}", f"{1e-9 * case['traffic_bytes'] / seconds:.2f}"]
        if floor:
            row.append(f"{100 * floor / seconds:.0f} %")
        if has_predictions(passes):
            row.append(f"{1e6 * case['predicted_seconds']:.2f}" if "predicted_seconds" in case else "-")
        for name, times in peers.items():
            row += [f"{1e6 * times[key]:.2f}", f"{times[key] / seconds:.2f}"] if key in times else ["-", "-"]
            if name == "NCCL":
                row.append(str(case.get("nccl", {}).get("blocks", "?")) if key in times else "-")
        yield row


def table(passes, ours, peers, on_gpus):
    head = ["collective", "size", "algorithm", "SMs" if on_gpus else "blocks", "us", "skew %", "bus GB/s"]
    if on_gpus:
        head.append("of floor")
    if has_predictions(passes):
        head.append("predicted us")
    for name in peers:
        head += [f"{name} us", "ratio"] + (["its SMs"] if name == "NCCL" else [])
    lines = ["| " + " | ".join(head) + " |", "|---|--:|---|" + "--:|" * (len(head) - 3)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows_of(passes, ours, peers)])


def plot(series, title):
    """Time of all_reduce by size, both axes logarithmic."""
    series = {name: sorted((size, seconds) for (collective, size), seconds in times.items() if collective == "all_reduce")
              for name, times in series.items()}
    series = {name: pairs for name, pairs in series.items() if pairs}
    if not series:
        return None
    times = [seconds for pairs in series.values() for _, seconds in pairs]
    sizes = sorted({size for pairs in series.values() for size, _ in pairs})
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log2(sizes[0]), math.log2(sizes[-1])
    x = lambda size: 70 + 500 * (math.log2(size) - first) / max(1e-9, last - first)
    y = lambda seconds: 330 - 280 * (math.log10(seconds) - low) / max(1, high - low)
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 390" font-family="sans-serif" font-size="12">',
             '<rect width="620" height="390" fill="white"/>', f'<text x="70" y="25" font-size="14">{title}</text>']
    for power in range(low, high + 1):
        at = y(10.0 ** power)
        parts.append(f'<line x1="70" x2="570" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
                     f'<text x="62" y="{at + 4:.1f}" text-anchor="end">{10.0 ** (power + 6):g} us</text>')
    for size in sizes:
        parts.append(f'<text x="{x(size):.1f}" y="350" text-anchor="middle" font-size="9">{size_text(size)}</text>')
    for i, ((name, pairs), colour) in enumerate(zip(series.items(), COLOURS)):
        points = " ".join(f"{x(size):.1f},{y(seconds):.1f}" for size, seconds in pairs)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
                     f'<text x="{70 + 120 * i}" y="378" fill="{colour}">{name}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=ROOT / "bench/results", help="the folder of the records")
    parser.add_argument("output", nargs="?", type=pathlib.Path, default=ROOT / "docs/results/collectives.md",
                        help="the page; its plots are put beside it")
    arguments = parser.parse_args()
    output = arguments.output
    if not arguments.results.is_dir():
        parser.error(f"{arguments.results} is no folder")
    head = ["# Speed of collectives",
            "Made by `bench/report_collectives.py` from the files under `bench/results`. A time is the slowest rank's median for a call; "
             "`skew` is how much sooner the fastest rank's was; a ratio is the peer's time divided by Heddle's, so above 1 Heddle is "
             "faster. The peers are NCCL (the better of plain memory and registered windows) and PyTorch's symmetric memory (the better of "
             "its one-shot and two-shot all-reduce) on GPUs, Open MPI on the CPU, run in turns with Heddle. The CPU has no `of floor`: the "
             "floor would be the copies' through caches that no datasheet rates."]
    teams = teams_of(arguments.results)
    parts, pictures = [], {}
    for (machine, what, wire, ranks), passes in teams.items():
        first_name, first = next(iter(passes.values()))
        if what in ("openmpi", "torch"):
            continue
        title = (f"{first['fabric']}{' over TCP' if wire else ''}, {first['ranks']} ranks, {first['dtype']}" +
                 (f", {first['cache']} cache" if "cache" in first else ""))
        ours = times_of(passes, lambda case: case["ours"]["seconds"])
        peers = peers_of(teams, machine, wire, ranks, passes)
        parts += [f"## {title}", f"{', '.join(f'`{name}`' for name, _ in passes.values())}: {first['machine']['key']}, commit "
                  f"{first['commit']}, {first['date']}; `{' '.join(['heddle'] + first['command'][1:])}`"]
        svg = plot({"Heddle": ours, **peers}, f"all_reduce, {title}")
        if svg:
            picture = output.with_name(first_name.replace(".json", ".svg"))
            pictures[picture] = svg
            parts.append(f"![all_reduce by size]({picture.name})")
        parts.append(table(passes, ours, peers, what == "nvlink"))
    if not parts:
        parser.error(f"{arguments.results} has no record of Heddle's, such as X-shm-2-ranks-collective.json; nothing is written")
    for picture, svg in pictures.items():
        picture.write_text(svg, encoding="utf-8")
    output.write_text("\n\n".join(head + parts) + "\n", encoding="utf-8")


main()
