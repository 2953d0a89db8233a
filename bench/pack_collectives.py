#!/usr/bin/env python3
"""Packs the passes of bench/run_collectives.sh on one machine, Heddle's and the baseline's, into one record.

    bench/pack_collectives.py FOLDER PREFIX OUTPUT

FOLDER holds PREFIX-*-collective.json, and is emptied of them. A baseline's program knows no commit: it gets that of the
Heddle that ran interleaved with it.
"""
import json
import pathlib
import re
import sys


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.split("\n\n")[1].strip())
    folder, prefix, output = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    paths = sorted(folder.glob(f"{prefix}-*-collective.json"))
    runs = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in paths}
    if not runs:
        sys.exit(f"pack_collectives.py: error: {folder} holds no {prefix}-*-collective.json")
    commits = {re.sub(r"-(shm|mpi|nvlink)", "", name): run["commit"] for name, run in runs.items() if "commit" in run}
    for name, run in runs.items():
        if "commit" not in run:
            run["commit"] = commits[re.sub(r"-(openmpi|torch)", "", name)]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(run, separators=(',', ':'))}" for name, run in runs.items())
    output.write_text(f'{{"bench": "collectives", "runs": {{\n{lines}\n}}}}\n', encoding="utf-8")
    for path in paths:
        path.unlink()


main()
