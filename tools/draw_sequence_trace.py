#!/usr/bin/env python3
"""Draws one layer of each strategy of sequence parallelism, as an SVG: a row for each lane of a rank.

    tools/draw_sequence_trace.py trace.json [more.json ...] layers.svg [--ranks 0,3] [--title TEXT]

A trace is of `heddle trace --output trace.json bench sequence-attention ...`. Of each strategy it draws the last layer
of the first trace that has one. Lanes are computation, the ring's transfers and all others.
"""
import argparse
import json
from html import escape

from ticks import time_axis

STRATEGIES = {"ulysses": "Ulysses", "ring": "Ring", "usp": "USP", "tas": "TAS", "torus": "Torus Attention",
              "one_sided": "one-sided"}
COMPUTE = ("split heads", "attend", "join heads")
WAITS = ("wait for word", "wait for lane", "barrier")
COLOURS = {"split heads": "#7fb2d6", "attend": "#1b6ca8", "join heads": "#7fb2d6", "push q": "#f2a65a", "pull q": "#f2a65a",
           "push kv": "#d1495b", "pull kv": "#d1495b", "push o": "#7b5aa6", "pull o": "#7b5aa6", "barrier": "#777777",
           "wait for word": "#e4e4e4", "wait for lane": "#f4f4f4"}
LEGEND = {"split, join heads": "#7fb2d6", "attend": "#1b6ca8", "Q": "#f2a65a", "K, V": "#d1495b", "O": "#7b5aa6",
          "barrier": "#777777", "wait for a word": "#e4e4e4"}
LEFT, WIDTH, ROW, TOP, GAP = 150, 900, 16, 56, 30


def end_of(event):
    return event["ts"] + event["dur"]


def layers_of(events):
    """{strategy: (begin, end)} of the last layer, over all ranks: the spans of the strategy's name."""
    layers = {}
    for strategy in STRATEGIES:
        last = {}  # by rank
        for event in events:
            if event["name"] == strategy:
                last[event["pid"]] = max(last.get(event["pid"], event), event, key=lambda e: e["ts"])
        if last:
            layers[strategy] = (min(e["ts"] for e in last.values()), max(end_of(e) for e in last.values()))
    return layers


def lanes_of(events, rank, begin, end):
    """[(label, spans)] of a rank: computation, the ring's lane if it has moved something, and all other transfers."""
    lanes = {}
    for event in events:
        if event["pid"] == rank and event["name"] in COLOURS and event["ts"] >= begin - 1 and end_of(event) <= end + 1:
            lanes.setdefault(event["tid"], []).append(event)
    named = []
    for spans in lanes.values():
        names = {span["name"] for span in spans}
        if names & set(COMPUTE):
            named.append((0, "computation", spans))
        else:
            lasts = max((end_of(span) for span in spans if span["name"] != "wait for lane"), default=begin)
            named.append((lasts, "transfers", spans))
    named.sort(key=lambda lane: lane[0])
    if len(named) == 3:  # the layer's last barrier is of the lane of all other transfers
        named[1] = (named[1][0], "ring", named[1][2])
    return [(f"rank {rank}, {label}", spans) for _, label, spans in named]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="+")
    parser.add_argument("svg")
    parser.add_argument("--ranks", default="0")
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    found = {}  # by strategy: a trace's events, when the layer begins and ends
    for path in args.trace:
        with open(path, encoding="utf-8") as file:
            events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
        for strategy, window in layers_of(events).items():
            found.setdefault(strategy, (events, *window))
    layers = {strategy: found[strategy] for strategy in STRATEGIES if strategy in found}
    if not layers:
        raise SystemExit(f"{', '.join(args.trace)}: no layer of a strategy")
    longest = max(end - begin for _, begin, end in layers.values())
    scale, y, out = WIDTH / longest, TOP, []
    for strategy, (events, begin, end) in layers.items():
        out.append(f'<text x="{LEFT}" y="{y}" font-size="13">{STRATEGIES[strategy]}: {(end - begin) / 1000:.1f} ms</text>')
        y += 8
        for rank in map(int, args.ranks.split(",")):
            for label, spans in lanes_of(events, rank, begin, end):
                out.append(f'<text x="{LEFT - 8}" y="{y + 11}" text-anchor="end">{escape(label)}</text>')
                out.append(f'<line x1="{LEFT}" y1="{y + ROW - 1}" x2="{LEFT + WIDTH}" y2="{y + ROW - 1}" stroke="#eeeeee"/>')
                for span in spans:
                    if span["name"] == "wait for lane":
                        continue
                    peer = f", rank {span['args']['index']}" if "index" in span.get("args", {}) else ""
                    out.append(f'<rect x="{LEFT + (span["ts"] - begin) * scale:.1f}" y="{y}" '
                               f'width="{max(0.6, span["dur"] * scale):.1f}" height="{ROW - 3}" '
                               f'fill="{COLOURS[span["name"]]}"><title>{span["name"]}{peer}: {span["dur"]:.0f} us'
                               '</title></rect>')
                y += ROW
        y += GAP
    axis = time_axis(LEFT, WIDTH, TOP + 8, y - GAP, longest)
    y += 20
    x = LEFT
    for name, colour in LEGEND.items():
        out.append(f'<rect x="{x}" y="{y - 12}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 18}" y="{y - 2}">{escape(name)}</text>')
        x += 125
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {y + 14}" font-family="sans-serif" '
            'font-size="11">', '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{LEFT}" y="26" font-size="15">{escape(args.title)}</text>']
    with open(args.svg, "w", encoding="utf-8") as file:
        file.write("\n".join(head + axis + out) + "\n</svg>\n")


if __name__ == "__main__":
    main()
