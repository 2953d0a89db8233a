"""The KV cache's heat maps of docs/wafer.md: pictures of `heddle wafer kv --heatmap` with axes and a colour bar."""
import base64
import re
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

from ticks import label_of, ticks_within

ROOT = Path(__file__).resolve().parent.parent
DEMO = ["--model", str(ROOT / "assets/demo-llama/config.json"), "--mesh", "16", "--regions", "1", "--context", "64"]
PICTURES = {  # file: title, options
    "wafer-kv-concat-16.svg": ("Appended: demo-llama on 16 x 16 cores", [*DEMO, "--kv", "concat"]),
    "wafer-kv-shift-16.svg": ("Shifted: demo-llama on 16 x 16 cores", [*DEMO, "--tokens", "300"]),
    "wafer-kv-shift.svg": ("Shifted: llama-3-8b on 360 x 360 cores", ["--model", "llama-3-8b"])}
COLOURS = ("#000004", "#57106e", "#bc3754", "#f98e09", "#fcffa4")  # those of apps/cli/wafer/kv_heat_map.cpp
LEFT, TOP, WIDTH, HEIGHT = 70, 44, 640, 220
BAR = LEFT + WIDTH + 40
INK = "#333333"


def text(x, y, words, anchor="middle", turned=False):
    turn = f' transform="rotate(-90 {x} {y})"' if turned else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{INK}"{turn}>{words}</text>'


def tick(x, y, dx, dy):
    return f'<path d="M{x:.1f} {y:.1f} l{dx} {dy}" stroke="{INK}"/>'


def recorded(heddle, options):
    """The PNG; tokens after the prompt, of the prompt, that a row holds; rows of cores."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.png"
        said = subprocess.run([heddle, "wafer", "kv", *options, "--heatmap", str(path)], check=True, capture_output=True,
                              text=True).stdout
        made, prompt = re.search(r"^heat map .*: (\d+) tokens after a prompt of (\d+)$", said, re.MULTILINE).groups()
        holds = re.search(r"^concatenated +(\d+) tokens", said, re.MULTILINE).group(1)
        rows = re.search(r"^KV cache .* on (\d+) x \d+ of", said, re.MULTILINE).group(1)
        return path.read_bytes(), int(made), int(prompt), int(holds), int(rows)


def axes(made, prompt, rows):
    after = f" after a prompt of {prompt}" if prompt else ""
    body = [f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="{INK}"/>',
            text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, f"tokens generated{after}"),
            text(20, TOP + HEIGHT / 2, "row of cores", turned=True)]
    for token in ticks_within(made, 6):
        x = LEFT + WIDTH * token / made
        body += [tick(x, TOP + HEIGHT, 0, 5), text(round(x, 1), TOP + HEIGHT + 18, label_of(token))]
    for row in ticks_within(rows, 4):  # row 0 is at the top, as in the cache
        y = TOP + HEIGHT * (row + 0.5) / rows
        if row < rows:
            body += [tick(LEFT, y, -5, 0), text(LEFT - 8, round(y + 4, 1), label_of(row), "end")]
    return body


def colour_bar(holds):
    stops = "".join(f'<stop offset="{i / (len(COLOURS) - 1)}" stop-color="{colour}"/>' for i, colour in enumerate(COLOURS))
    body = [f'<defs><linearGradient id="colours" x1="0" y1="1" x2="0" y2="0">{stops}</linearGradient></defs>',
            f'<rect x="{BAR}" y="{TOP}" width="16" height="{HEIGHT}" fill="url(#colours)" stroke="{INK}"/>',
            text(BAR + 68, TOP + HEIGHT / 2, f"tokens in a row; full: {holds}", turned=True)]
    for tokens in ticks_within(holds, 5):
        y = TOP + HEIGHT * (1 - tokens / holds)
        body += [tick(BAR + 16, y, 5, 0), text(BAR + 24, round(y + 4, 1), label_of(tokens), "start")]
    return body


def heat_map(heddle, title, options):
    png, made, prompt, holds, rows = recorded(heddle, options)
    body = [f'<rect width="{BAR + 80}" height="{TOP + HEIGHT + 50}" fill="white"/>',
            f'<text x="{LEFT}" y="24" fill="{INK}" font-size="14">{title}</text>',
            f'<image x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" preserveAspectRatio="none" '
            f'href="data:image/png;base64,{base64.b64encode(png).decode()}"/>',
            *axes(made, prompt, rows), *colour_bar(holds)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {BAR + 80} {TOP + HEIGHT + 50}" width="{BAR + 80}" '
            f'height="{TOP + HEIGHT + 50}" font-family="sans-serif" font-size="12">\n' + "\n".join(body) + "\n</svg>\n")


def rows_of_pixels(png):
    """A PNG's header and rows, which do not depend on how a library compresses them."""
    at, header, rows = 8, b"", b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        header += body if kind == b"IHDR" else b""
        rows += body if kind == b"IDAT" else b""
        at += 12 + length
    return header + zlib.decompress(rows)


def contents(picture):
    """What two pictures that look alike have in common: their text, and the pixels of an image in it."""
    before, mark, rest = picture.partition("data:image/png;base64,")
    data, quote, after = rest.partition('"')
    return before, mark, rows_of_pixels(base64.b64decode(data)) if mark else b"", quote, after
