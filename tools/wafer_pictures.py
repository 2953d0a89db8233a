#!/usr/bin/env python3
"""Draws the pictures of docs/wafer.md: the interleaved ring, the K-tree, where a layer's cycles go, figures 9 and 10, and the KV
cache's heat maps.

    wafer_pictures.py HEDDLE [FOLDER | --check]

HEDDLE is the program; it computes the cycles and draws the heat maps. FOLDER defaults to docs/results. With --check nothing is
written: differences from docs/results are listed, and the exit status is 1 (heat maps are compared by pixels, because libraries
compress differently). Needs only Python.
"""
import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEMO = ["--model", str(ROOT / "assets/demo-llama/config.json"), "--mesh", "16", "--regions", "1", "--context", "64"]
HEAT_MAPS = {"wafer-kv-concat-16.png": [*DEMO, "--kv", "concat"], "wafer-kv-shift-16.png": [*DEMO, "--tokens", "300"],
             "wafer-kv-shift.png": ["--model", "llama-3-8b"]}

INK, QUIET, OUT, BACK = "#333333", "#999999", "#1f77b4", "#d95f02"
COLOURS = ["#1b6ca8", "#5aa9d6", "#a6cee3", "#f4a261", "#e76f51", "#9d4e3c"]


def svg(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="13">\n'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker></defs>\n'
            f'<rect width="{width}" height="{height}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")


def text(x, y, words, anchor="middle", fill=INK, size=13):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{words}</text>'


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
                body.append(text(round(x + width / 2, 1), y + 18, f"{100 * value / total:.0f} %", fill="white", size=11))
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
    for name, options in HEAT_MAPS.items():
        subprocess.run([heddle, "wafer", "kv", *options, "--heatmap", str(folder / name)], check=True,
                       stdout=subprocess.DEVNULL)


SIDES = range(240, 721, 60)


def panel(x, title, curves, height):
    """Curves [(name, colour, dash, microseconds by side)] over the sides, from zero, on one scale."""
    left, top, width = x + 46, 56, 190
    most = max(max(values) for _, _, _, values in curves)
    body = [text(left + width / 2, top - 12, title)]
    for part in range(5):
        y = top + height * (1 - part / 4)
        body.append(f'<path d="M{left} {y:.1f} h{width}" stroke="#dddddd"/>' + text(left - 6, y + 4, f"{most * part / 4:.{0 if most > 100 else 1}f}", "end", QUIET, 11))
    for side in SIDES[::2]:
        body.append(text(left + width * (side - SIDES[0]) / (SIDES[-1] - SIDES[0]), top + height + 16, side, fill=QUIET, size=11))
    for _, colour, dash, values in curves:
        points = " ".join(f"{left + width * (side - SIDES[0]) / (SIDES[-1] - SIDES[0]):.1f},{top + height * (1 - value / most):.1f}"
                          for side, value in zip(SIDES, values))
        body.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
    return body


def panels(heddle, title, verb, sizes, curves):
    """A panel for each size, [(name, colour, dash, method, sync)] in it."""
    def time(size, side, method, sync):
        out = subprocess.run([heddle, "wafer", verb, "--n", str(size), "--mesh", str(side), "--method", method, "--json"],
                             check=True, capture_output=True).stdout
        return json.loads(out)["microseconds_by_sync"][sync]
    height, body = 160, [text(20, 22, title, "start")]
    for i, size in enumerate(sizes):
        drawn = [(name, colour, dash, [time(size, side, method, sync) for side in SIDES])
                 for name, colour, dash, method, sync in curves]
        body += panel(250 * i, f"{verb.upper()} {size // 1024}K", drawn, height)
    for i, (name, colour, dash, _, _) in enumerate(curves):
        x, y = 46 + 180 * (i % 4), 56 + height + 40 + 20 * (i // 4)
        body += [f'<path d="M{x} {y - 4} h24" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>', text(x + 30, y, name, "start", size=12)]
    return svg(250 * len(sizes) + 10, height + 110 + 20 * ((len(curves) - 1) // 4), body)


def figure_9(heddle):
    ours = [(f"{name}, {sync}", colour, dash, method, sync) for sync, dash in (("barrier", "none"), ("dataflow", "4 4"))
            for name, colour, method in (("MeshGEMM", COLOURS[0], "meshgemm"), ("SUMMA", COLOURS[3], "summa"), ("Cannon", COLOURS[5], "cannon"))]
    return panels(heddle, "Microseconds by cores a side, as figure 9 has them (analytical)", "gemm", (2048, 4096, 8192), ours)


def figure_10(heddle):
    return panels(heddle, "Microseconds by cores a side, as figure 10 has them (analytical)", "gemv", (2048, 4096, 8192),
                  [("K-tree (MeshGEMV)", COLOURS[0], "none", "k-tree", "dataflow"),
                   ("pipeline", COLOURS[3], "none", "pipeline", "dataflow"), ("ring", COLOURS[5], "none", "ring", "dataflow")])


def contents(path):
    """An SVG's bytes; of a PNG its header and rows of pixels."""
    data = path.read_bytes()
    if path.suffix != ".png":
        return data
    at, header, rows = 8, b"", b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        header += body if kind == b"IHDR" else b""
        rows += body if kind == b"IDAT" else b""
        at += 12 + length
    return header + zlib.decompress(rows)


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
