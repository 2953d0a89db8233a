#!/usr/bin/env python3
"""Draws the pictures of docs/wafer.md: the interleaved ring, the K-tree, where a layer's cycles go, figures 9 and 10, and the KV
cache's heat maps.

    wafer_pictures.py HEDDLE [FOLDER | --check]

HEDDLE is the program; it computes the cycles and the heat maps. FOLDER defaults to docs/results. With --check nothing is
written: differences from docs/results are listed, and the exit status is 1 (heat maps are compared by pixels, because libraries
compress differently). Needs only Python.
"""
import argparse
import functools
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import wafer_heat_maps
from ticks import label_of, ticks_around

ROOT = Path(__file__).resolve().parent.parent

INK, QUIET, OUT, BACK = "#333333", "#666666", "#1f77b4", "#d95f02"
COLOURS = ["#1b6ca8", "#5aa9d6", "#a6cee3", "#f4a261", "#e76f51", "#9d4e3c"]


def svg(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="13">\n'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")


def text(x, y, words, anchor="middle", fill=INK, size=13):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{words}</text>'


def ink_on(fill):
    """Dark or white, whichever has more contrast on `fill` (relative luminance as in WCAG 2)."""
    parts = [int(fill[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def core(x, y, label, fill="white"):
    return (f'<circle cx="{x}" cy="{y}" r="14" fill="{fill}" stroke="{INK}"/>' + text(x, y + 4, label))


def arc(x1, x2, y, lift, colour):
    return (f'<path d="M{x1} {y} Q{(x1 + x2) / 2} {y + lift} {x2} {y}" fill="none" stroke="{colour}" stroke-width="2" '
            'marker-end="url(#tip)"/>')


def ring(cores):
    """Each core and its receiver, as in Algorithm 1: out over the even cores, back over the odd ones."""
    def send_to(i):
        if i == cores - 1 and cores % 2:
            return i - 1
        return min(i + 2, cores - 1) if i % 2 == 0 else max(i - 2, 0)
    gap, y = 70, 95
    body = [text(20, 22, f"INTERLEAVE on a line of {cores} cores: no way is longer than two hops", "start")]
    for i in range(cores):
        x, to = 50 + gap * i, 50 + gap * send_to(i)
        up = to > x
        body.append(arc(x + (8 if up else -8), to - (8 if up else -8), y + (-14 if up else 14), -42 if up else 42,
                        OUT if up else BACK))
    body += [core(50 + gap * i, y, i) for i in range(cores)]
    body.append(text(20, 172, "above: out over the even cores; below: back over the odd ones", "start", QUIET))
    return svg(gap * (cores - 1) + 100, 185, body)


def tree():
    """Nine cores, K = 2: sums run inwards to each group's middle, then to the middle of the middles; one multicast."""
    gap, body = 70, [text(20, 22, "K-tree on 9 cores, K = 2: two routing stages where a pipeline has eight", "start")]
    rows = [(75, "phase 1: groups of 3", [(0, 1), (2, 1), (3, 4), (5, 4), (6, 7), (8, 7)], {1, 4, 7}),
            (155, "phase 2: the roots", [(1, 4), (7, 4)], {4}),
            (235, "multicast", [(4, 0), (4, 8)], set(range(9)))]
    for y, name, ways, roots in rows:
        body.append(text(640, y + 4, name, "start", QUIET))
        for a, b in ways:
            x1, x2 = 40 + gap * a, 40 + gap * b
            near = 14 if x2 > x1 else -14
            if abs(a - b) == 1:
                body.append(f'<path d="M{x1 + near} {y} L{x2 - near} {y}" stroke="{OUT}" stroke-width="2" '
                            'marker-end="url(#tip)"/>')
            else:
                body.append(arc(x1, x2 - near / 2, y - 14, -44, BACK if name == "multicast" else OUT))
        body += [core(40 + gap * i, y, i, "#ffe8d6" if i in roots else "white") for i in range(9)]
    return svg(800, 265, body)


def cycles(heddle):
    """A layer's cycles by part, as `heddle wafer predict` gives them."""
    bars, layers = [], {"llama-3-8b": 32, "llama-2-13b": 40}
    for phase, side in (("decode", 420), ("prefill", 720)):
        for model, count in layers.items():
            answer = subprocess.run([heddle, "wafer", "predict", "--model", model, "--phase", phase, "--mesh", str(side),
                                     "--json"], check=True, capture_output=True, text=True)
            parts = {name: value / count for name, value in json.loads(answer.stdout)["breakdown"].items()}
            bars.append((f"{model}, {phase} on {side}", parts))
    body, y = [text(20, 22, "Where the cycles of a layer go, at 4096 tokens (predicted)", "start")], 50
    for name, parts in bars:
        total, x = sum(parts.values()), 230
        body.append(text(20, y + 18, name, "start"))
        for colour, (part, value) in zip(COLOURS, parts.items()):
            width = 480 * value / total
            body.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="26" fill="{colour}"/>')
            if width > 34:
                body.append(text(round(x + width / 2, 1), y + 18, f"{100 * value / total:.0f} %", fill=ink_on(colour), size=12))
            x += width
        body.append(text(720, y + 18, f"{total:,.0f} cycles".replace(",", " "), "start"))
        y += 34
        if name.startswith("llama-2-13b"):
            x = 230
            for colour, part in zip(COLOURS, parts):
                body.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour}"/>')
                body.append(text(x + 14, y + 10, part, "start", QUIET, 11))
                x += 30 + 7 * len(part)
            y += 34
    return svg(840, y, body)


def draw(heddle, folder):
    for name, picture in (("ring", ring(9)), ("tree", tree()), ("cycles", cycles(heddle)), ("figure-9", figure_9(heddle)),
                          ("figure-10", figure_10(heddle))):
        (folder / f"wafer-{name}.svg").write_text(picture, encoding="utf-8")
    for name, (title, options) in wafer_heat_maps.PICTURES.items():
        (folder / name).write_text(wafer_heat_maps.heat_map(heddle, title, options), encoding="utf-8")


SIDES = range(240, 721, 60)


def panel(x, title, curves, height):
    """Curves [(name, colour, dash, microseconds by side)] over the sides, from zero, on one scale."""
    left, top, width = x + 62, 56, 184
    ticks = ticks_around(max(max(values) for _, _, _, values in curves), 4)

    def across(side):
        return left + width * (side - SIDES[0]) / (SIDES[-1] - SIDES[0])

    def up(value):
        return top + height * (1 - value / ticks[-1])

    body = [text(left + width / 2, top - 12, title), text(left + width / 2, top + height + 34, "cores a side", size=12),
            f'<text transform="translate({x + 16} {top + height / 2}) rotate(-90)" text-anchor="middle" fill="{INK}" '
            'font-size="12">microseconds</text>']
    for tick in ticks:
        body.append(f'<path d="M{left} {up(tick):.1f} h{width}" stroke="#dddddd"/>' +
                    text(left - 6, round(up(tick) + 4, 1), label_of(tick), "end", QUIET, 11))
    for side in SIDES[::2]:
        body.append(text(across(side), top + height + 16, side, fill=QUIET, size=11))
    for _, colour, dash, values in curves:
        points = " ".join(f"{across(side):.1f},{up(value):.1f}" for side, value in zip(SIDES, values))
        body.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
    return body


def panels(heddle, title, verb, sizes, curves):
    """A panel for each size, [(name, colour, dash, method, sync)] in it."""
    @functools.cache
    def by_sync(size, side, method):
        out = subprocess.run([heddle, "wafer", verb, "--n", str(size), "--mesh", str(side), "--method", method, "--json"],
                             check=True, capture_output=True).stdout
        return json.loads(out)["microseconds_by_sync"]

    height, body = 160, [text(20, 22, title, "start")]
    for i, size in enumerate(sizes):
        drawn = [(name, colour, dash, [by_sync(size, side, method)[sync] for side in SIDES])
                 for name, colour, dash, method, sync in curves]
        body += panel(256 * i, f"{verb.upper()} {size // 1024}K", drawn, height)
    for i, (name, colour, dash, _, _) in enumerate(curves):
        x, y = 62 + 200 * (i % 3), 56 + height + 62 + 20 * (i // 3)
        body += [f'<path d="M{x} {y - 4} h24" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>', text(x + 30, y, name, "start", size=12)]
    return svg(256 * len(sizes) + 10, height + 132 + 20 * ((len(curves) - 1) // 3), body)


def figure_9(heddle):
    ours = [(f"{name}, {sync}", colour, dash, method, sync) for sync, dash in (("barrier", "none"), ("dataflow", "4 4"))
            for name, colour, method in (("MeshGEMM", COLOURS[0], "meshgemm"), ("SUMMA", COLOURS[3], "summa"), ("Cannon", COLOURS[5], "cannon"))]
    return panels(heddle, "GEMMs by cores a side, as in figure 9 (analytical)", "gemm", (2048, 4096, 8192), ours)


def figure_10(heddle):
    return panels(heddle, "GEMVs by cores a side, as in figure 10 (analytical)", "gemv", (2048, 4096, 8192),
                  [("K-tree (MeshGEMV)", COLOURS[0], "none", "k-tree", "dataflow"),
                   ("pipeline", COLOURS[3], "none", "pipeline", "dataflow"), ("ring", COLOURS[5], "none", "ring", "dataflow")])


def contents(path):
    return wafer_heat_maps.contents(path.read_text(encoding="utf-8"))


def check(heddle):
    with tempfile.TemporaryDirectory() as name:
        folder, kept = Path(name), ROOT / "docs" / "results"
        draw(heddle, folder)
        different = [path.name for path in sorted(folder.iterdir()) if contents(path) != contents(kept / path.name)]
    if different:
        sys.exit(f"docs/results: not what {heddle} draws: {', '.join(different)}; run tools/wafer_pictures.py {heddle}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heddle", help="the program")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "results")
    parser.add_argument("--check", action="store_true", help="write nothing, and say what differs from docs/results")
    arguments = parser.parse_args()
    if shutil.which(arguments.heddle) is None:
        parser.error(f"{arguments.heddle}: no program")
    if arguments.check:
        check(arguments.heddle)
    else:
        draw(arguments.heddle, arguments.folder)


if __name__ == "__main__":
    main()
