#!/usr/bin/env python3
"""Draws one layer of the last step of a trace (heddle trace) as an SVG: a row for each rank and lane.

    tools/draw_trace.py trace.json layer.svg --layer 1 [--title TEXT]
    tools/draw_trace.py trace.json layer.svg --kernels 4 [--title TEXT]

Of the spans on each lane it draws what blocks compute (attention, feed_forward) and what crosses ranks (all_reduce,
all_reduce_norm). A layer's window begins with its first attention and ends with its last feed_forward, over all ranks.

With --kernels N it draws the kernels of GPUs, a row for each GPU and stream: from the begin of the N-th last kernel of
attention to that of the second one behind it, which in a step of two parts is one layer.
"""
import argparse
import json
from html import escape

from ticks import time_axis

COMPUTE = ("attention", "feed_forward")
TRANSFER = ("all_reduce_norm", "all_reduce")
COLOURS = {"attention": "#1b6ca8", "feed_forward": "#2a9d4a", "all_reduce_norm": "#d1495b", "all_reduce": "#d1495b"}
KERNELS = {"attention": "#1b6ca8", "GEMM": "#2a9d4a", "sum over ranks": "#d1495b", "other": "#999999"}
LEFT, WIDTH, ROW, TOP = 150, 900, 34, 60


def spans_of(events, rank, name):
    return [e for e in events if e["ph"] == "X" and e["pid"] == rank and e["name"] == name]


def last_step(events, rank):
    return max(spans_of(events, rank, "step"), key=lambda e: e["ts"])


def within(event, outer):
    return outer["ts"] <= event["ts"] <= outer["ts"] + outer["dur"]


def layer_of(events, rank, layer):
    """When the layer's first attention begins and its last feed_forward ends, in the rank's last step."""
    step = last_step(events, rank)
    blocks = [e for name in COMPUTE for e in spans_of(events, rank, name)
              if within(e, step) and e["tid"] == step["tid"] and e["args"]["index"] == layer]
    if not blocks:
        raise SystemExit(f"no layer {layer} in the last step of rank {rank}")
    return min(e["ts"] for e in blocks), max(e["ts"] + e["dur"] for e in blocks)


def rows_of_layer(events, layer):
    """The window, and the rows with their spans."""
    ranks = sorted({e["pid"] for e in events if e["ph"] == "X"})
    windows = [layer_of(events, rank, layer) for rank in ranks]
    begin, end = min(w[0] for w in windows), max(w[1] for w in windows)
    rows = []
    for rank in ranks:
        lanes = {}
        for event in events:
            if (event["ph"] == "X" and event["pid"] == rank and event["name"] in COLOURS
                    and event["ts"] < end and event["ts"] + event["dur"] > begin):
                lanes.setdefault(event["tid"], []).append(event)
        for tid, spans in sorted(lanes.items()):
            computes = any(s["name"] in COMPUTE for s in spans)
            rows.append((f"rank {rank}, {'computation' if computes else 'transfers'}", spans))
    return begin, end, rows


def kind_of(event):
    """Of a kernel, by its name."""
    if event["cat"] == "transfer":
        return "sum over ranks"
    if "attention" in event["name"]:
        return "attention"
    is_gemm = any(part in event["name"] for part in ("nvjet", "gemm", "tiles", "linear"))
    return "GEMM" if is_gemm else "other"


def rows_of_kernels(events, nth):
    """The window, and the rows with their kernels, named by kind."""
    kernels = [e for e in events if e["ph"] == "X" and e["cat"] in ("kernel", "transfer")]
    if not kernels:
        raise SystemExit("no kernels of a GPU in this trace")
    first = min(e["pid"] for e in kernels)
    starts = sorted(e["ts"] for e in kernels if e["pid"] == first and kind_of(e) == "attention")
    if len(starts) < max(nth, 3):
        raise SystemExit(f"{len(starts)} kernels of attention in this trace")
    begin, end = starts[-nth], starts[-nth + 2]
    streams = {}
    for event in kernels:
        if event["ts"] < end and event["ts"] + event["dur"] > begin:
            streams.setdefault((event["pid"] - first, event["tid"]), []).append({**event, "name": kind_of(event)})
    return begin, end, [(f"GPU {gpu}, stream {tid}", spans) for (gpu, tid), spans in sorted(streams.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("svg")
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--kernels", type=int, metavar="N")
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    with open(args.trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    if args.kernels is not None:
        begin, end, rows = rows_of_kernels(events, args.kernels)
    else:
        begin, end, rows = rows_of_layer(events, args.layer)
    colours = {**COLOURS, **KERNELS}
    scale = WIDTH / (end - begin)
    height = TOP + ROW * len(rows) + 60
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {height}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15">{escape(args.title)}</text>',
           *time_axis(LEFT, WIDTH, TOP - 8, TOP + ROW * len(rows) + 4, end - begin)]
    for i, (name, spans) in enumerate(rows):
        y = TOP + ROW * i
        out.append(f'<text x="{LEFT - 8}" y="{y + 18}" text-anchor="end">{escape(name)}</text>')
        out.append(f'<line x1="{LEFT}" y1="{y + 28}" x2="{LEFT + WIDTH}" y2="{y + 28}" stroke="#dddddd"/>')
        for span in spans:
            start, stop = max(begin, span["ts"]), min(end, span["ts"] + span["dur"])
            x, width = LEFT + (start - begin) * scale, max(0.5, (stop - start) * scale)
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="26" fill="{colours[span["name"]]}" '
                       f'stroke="white"><title>{escape(span["name"])}: {span["dur"]:.0f} us</title></rect>')
    y = TOP + ROW * len(rows) + 20
    x = LEFT
    for name in dict.fromkeys(s["name"] for _, spans in rows for s in spans):
        out.append(f'<rect x="{x}" y="{y + 14}" width="12" height="12" fill="{colours[name]}"/>')
        out.append(f'<text x="{x + 18}" y="{y + 25}">{escape(name)}</text>')
        x += 150
    with open(args.svg, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main()
