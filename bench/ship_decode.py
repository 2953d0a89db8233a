#!/usr/bin/env python3
"""Puts tables of `heddle tune decode` into src/parallel/shipped_decode.json, which is shipped with Heddle.

    bench/ship_decode.py GPU FROM TUNED_JSON...

GPU: the name that the driver gives it, "NVIDIA H200"; of each store, entries of machines with such a GPU are taken. FROM: where they
were measured, "commit a6448e11". TUNED_JSON: stores of those machines ($HEDDLE_CACHE_DIR/tuned.json; `scripts/gpu.sh cluster`
leaves one in its archive). A table of the same shape is replaced, however many layers the model had.
"""
import json
import pathlib
import re
import sys

SHIPPED = pathlib.Path(__file__).resolve().parent.parent / "src" / "parallel" / "shipped_decode.json"


def tables_of(store, gpu):
    for machine, versions in store["machines"].items():
        if not machine.endswith(f" x {gpu}"):
            continue
        for values in versions.values():
            for name, rows in values.items():
                if of := re.fullmatch(r"decode\.\d+x(.*\.cuda)", name):
                    yield of[1], rows


def text_of(shipped):
    """A line for each line of a table."""
    text = json.dumps(shipped, indent=1)
    return re.sub(r"\{\s+(\"form\"[^{}]*?)\s+\}", lambda row: "{" + re.sub(r"\s+", " ", row[1]) + "}", text) + "\n"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    gpu, source, *stores = sys.argv[1:]
    shipped = json.loads(SHIPPED.read_text(encoding="utf-8"))
    of_gpu = shipped.setdefault(gpu, {"from": source, "models": {}})
    of_gpu["from"] = source
    for store in stores:
        for name, rows in tables_of(json.loads(pathlib.Path(store).read_text(encoding="utf-8")), gpu):
            of_gpu["models"][name] = [{"form": row.pop("form"), **row} for row in rows]
            print(name)
    SHIPPED.write_text(text_of(shipped), encoding="utf-8")


main()
