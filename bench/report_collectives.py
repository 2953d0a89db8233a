#!/usr/bin/env python3
"""Generates docs/results/collectives.md, and an SVG for each team, from the JSON in bench/results.

    bench/report_collectives.py [RESULTS_FOLDER [OUTPUT]]

Compares records `X-FABRIC-N-ranks[-pass-P]-collective.json` (or packed: bench/pack_collectives.py) of `heddle bench collective` with baselines: NCCL, which is in the
same record, and, if present, `X-torch-N-ranks...` (bench/baselines/torch_symmetric.py) and `X-openmpi-N-ranks...`
(bench/baselines/mpi_collectives.c). `FABRIC-tcp` is over TCP; its baseline is `openmpi-tcp`. A baseline's record counts only with a
record of Heddle of the same pass, that is, measured interleaved with it; each time is the median of those passes. All figures come
from the files; do not edit the page by hand.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess

import plots
from plots import size_text

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = re.compile(r"(?P<machine>.+)-(?P<what>shm|mpi|nvlink|openmpi|torch)(?P<wire>-tcp)?-(?P<ranks>\d+)-ranks"
                  r"(?P<turn>-pass-\d+)?-collective\.json")


def in_history(commit):
    """What a page says of a commit that a rewritten history has lost; empty where it is there."""
    found = subprocess.run(["git", "-C", ROOT, "merge-base", "--is-ancestor", commit, "HEAD"], capture_output=True, check=False)
    return "" if found.returncode == 0 else " (no longer in this history: to be measured again)"


def runs_of(folder):
    """{file name of a run: its record}: files by themselves, and those that bench/pack_collectives.py has put together."""
    runs = {}
    for path in sorted(folder.glob("*-collective.json")) + sorted(folder.glob("*-collectives.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        runs.update(record["runs"] if path.name.endswith("-collectives.json") else {path.name: record})
    return runs


def teams_of(folder):
    """{(machine, what, wire, ranks): {pass: (file name, record)}}, ordered by file name."""
    teams = {}
    for file_name, record in sorted(runs_of(folder).items()):
        name = NAME.fullmatch(file_name)
        if not name:
            continue
        expected = "collective_peer" if name["what"] in ("openmpi", "torch") else "collective"
        if record.get("bench") != expected or not record.get("cases"):
            raise SystemExit(f"report_collectives.py: error: {file_name} is no record of {expected} with cases")
        team = (name["machine"], name["what"], name["wire"] or "", int(name["ranks"]))
        teams.setdefault(team, {})[name["turn"] or ""] = (file_name, record)
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


def baselines_of(teams, machine, wire, ranks, passes):
    baselines = {"NCCL": times_of(passes, best_of_nccl)}
    for name, what in (("PyTorch", "torch"), ("Open MPI", "openmpi")):
        of_baseline = teams.get((machine, what, wire, ranks), {})
        alternating = {turn: record for turn, record in of_baseline.items() if turn in passes}
        baselines[name] = times_of(alternating, lambda case: case["seconds"])
    return {name: times for name, times in baselines.items() if times}


def cases_of(passes):
    """Each (collective, size) once, in the first record's order."""
    cases = {}
    for _, record in passes.values():
        for case in record["cases"]:
            cases.setdefault((case["collective"], case["bytes"]), case)
    return cases


def has_predictions(passes):
    return any("predicted_seconds" in case for case in cases_of(passes).values())


def rows_of(passes, ours, baselines):
    for key, case in cases_of(passes).items():
        seconds = ours[key]
        floor = case.get("floor_seconds")
        row = [case["collective"], size_text(case["bytes"]), case["algorithm"], str(case["blocks"]), f"{1e6 * seconds:.2f}",
               f"{100 * case['ours']['skew']:.1f}", f"{1e-9 * case['traffic_bytes'] / seconds:.2f}"]
        if floor:
            row.append(f"{100 * floor / seconds:.0f} %")
        if has_predictions(passes):
            row.append(f"{1e6 * case['predicted_seconds']:.2f}" if "predicted_seconds" in case else "-")
        for name, times in baselines.items():
            row += [f"{1e6 * times[key]:.2f}", f"{times[key] / seconds:.2f}"] if key in times else ["-", "-"]
            if name == "NCCL":
                row.append(str(case.get("nccl", {}).get("blocks", "?")) if key in times else "-")
        yield row


def table(passes, ours, baselines, on_gpus):
    head = ["collective", "size", "algorithm", "SMs" if on_gpus else "blocks", "us", "skew %", "bus GB/s"]
    if on_gpus:
        head.append("% of roofline")
    if has_predictions(passes):
        head.append("predicted us")
    for name in baselines:
        head += [f"{name} us", "ratio"] + (["its SMs"] if name == "NCCL" else [])
    lines = ["| " + " | ".join(head) + " |", "|---|--:|---|" + "--:|" * (len(head) - 3)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows_of(passes, ours, baselines)])


def plot(series, title, picture):
    """Time of all_reduce by size; whether there was any."""
    series = {name: [(size, 1e6 * seconds) for (collective, size), seconds in times.items() if collective == "all_reduce"]
              for name, times in series.items()}
    series = {name: points for name, points in series.items() if points}
    if series:
        plots.sizes(series, title, picture)
    return bool(series)


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
            "`skew` is how much sooner the fastest rank ended; a ratio is the baseline's time divided by Heddle's: above 1, Heddle is "
            "faster. The baselines are NCCL (the better of plain memory and registered windows) and PyTorch's symmetric memory (the "
            "better of its one-shot and two-shot all-reduce) on GPUs, Open MPI on the CPU; each ran interleaved with Heddle. On the CPU "
            "there is no `% of roofline`: copies go through caches, whose rate no data sheet states."]
    teams = teams_of(arguments.results)
    parts = []
    for (machine, what, wire, ranks), passes in teams.items():
        _, first = next(iter(passes.values()))
        if what in ("openmpi", "torch"):
            continue
        title = (f"{first['fabric']}{' over TCP' if wire else ''}, {first['ranks']} ranks, {first['dtype']}" +
                 (f", {first['cache']} cache" if "cache" in first else ""))
        ours = times_of(passes, lambda case: case["ours"]["seconds"])
        baselines = baselines_of(teams, machine, wire, ranks, passes)
        parts += [f"## {title}", f"{first['machine']['key']}; {len(passes)} {'passes' if len(passes) > 1 else 'pass'}, commit "
                  f"{first['commit']}{in_history(first['commit'])}, {first['date']}; `{' '.join(['heddle'] + first['command'][1:])}`"]
        picture = output.with_name(f"all-reduce-{machine}-{what}{wire}-{ranks}-ranks.svg")
        if plot({"Heddle": ours, **baselines}, f"all_reduce, {title}", picture):
            parts.append(f"![all_reduce by size]({picture.name})")
        parts.append(table(passes, ours, baselines, what == "nvlink"))
    if not parts:
        parser.error(f"{arguments.results} has no record of Heddle's, such as X-shm-2-ranks-collective.json; nothing is written")
    output.write_text("\n\n".join(head + parts) + "\n", encoding="utf-8")


main()
