#!/usr/bin/env python3
"""predict_fused.py writes bench/results/fused-predicted-h200-scaling.json: what flash decode takes on 2, 4 and 8 H200s, from records of
one. report_fused.py puts it beside what ranks that share a GPU took (figure 11).

- A rank's attention: push of a rank alone, which exchanges nothing, over its share of the keys; linear between the contexts of the
  record, and on beyond its ends.
- push: 3.5 us for the exchange with one other rank inside the kernel (docs/notes/fused.md, predicted before any run).
- bsp: 10 us for the all-gather of the parts and two kernels more (likewise).
- Each rank beyond two: its parts at the rate of a GPU's link.
"""
import json

from pages import ROOT

RESULTS = ROOT / "bench" / "results"
PREDICTED = RESULTS / "fused-predicted-h200-scaling.json"
RECORDS = ("fused-h200-1-gpus-flash-decode-8.json", "fused-h200-1-gpus-flash-decode-96.json")
RATES = "sequence-rates-h200.json"
RANKS = (2, 4, 8)
CONTEXTS = (1 << 15, 1 << 17, 1 << 19, 1 << 20)
EXCHANGE_US = {"bsp": 10.0, "push": 3.5}


def record(name):
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def line_through(points):
    """Linear between points, and on through the first two and the last two."""
    points = sorted(points)

    def value(at):
        above = next((i for i in range(1, len(points)) if points[i][0] >= at), len(points) - 1)
        (x, y), (x1, y1) = points[above - 1:above + 1]
        return y + (y1 - y) * (at - x) / (x1 - x)
    return value


def rows_of(results, link_bytes_per_us):
    alone = [result for result in results if result["variant"] == "push"]
    attention = line_through((result["context"], result["microseconds"]) for result in alone)
    shape = {key: alone[0][key] for key in ("batch", "heads", "kv_heads", "head_dim", "dtype")}
    part_bytes = 4 * shape["batch"] * shape["heads"] * (shape["head_dim"] + 2)
    return [{"variant": variant, "context": context, **shape, "ranks": ranks,
             "microseconds": attention(context / ranks) + exchange + (ranks - 2) * part_bytes / link_bytes_per_us}
            for context in CONTEXTS for ranks in RANKS for variant, exchange in EXCHANGE_US.items()]


def prediction():
    rates = record(RATES)
    link = rates["rates"]["gpu_link_gbps"] * 1e3
    rows = [row for name in RECORDS for row in rows_of(record(name)["results"], link)]
    return {"commits": {**{name: record(name)["commit"] for name in RECORDS}, **rates["commits"]}, "results": rows}


if __name__ == "__main__":
    PREDICTED.write_text(json.dumps(prediction(), indent=2) + "\n", encoding="utf-8")
