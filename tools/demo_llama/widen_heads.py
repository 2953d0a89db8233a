#!/usr/bin/env python3
"""Writes the demo model with heads of 128 instead of 32: the same function, for kernels that take wide heads alone.

Usage: widen_heads.py [FOLDER OF THE DEMO MODEL] FOLDER TO WRITE

Feature j of a head's first half becomes feature 4 j, and that of the second half 64 + 4 j; all others are zero. Then the
rotation's frequency, theta^(-2 (4 j) / 128) = theta^(-2 j / 32), is the same one. Scores are divided by sqrt(128), twice
sqrt(32), so that the query projection is doubled, which is exact in bfloat16.
"""

import json
import pathlib
import shutil
import struct
import sys

FROM, TO = 32, 128
STEP = TO // FROM


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    begin = 8 + size
    return {name: (of["dtype"], of["shape"], data[begin + of["data_offsets"][0] : begin + of["data_offsets"][1]])
            for name, of in header.items()}


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(of[2] for of in tensors.values()))


def place(feature):
    half = FROM // 2
    return STEP * feature if feature < half else TO // 2 + STEP * (feature - half)


def doubled(row):
    values = struct.unpack(f"<{len(row) // 2}H", row)
    # The exponent plus one; a subnormal number or zero is shifted.
    return struct.pack(f"<{len(values)}H", *(v + 0x80 if v & 0x7F80 else (v & 0x8000) | (v & 0x7F) << 1 for v in values))


def widened_rows(tensor, change=lambda row: row):
    dtype, (rows, columns), data = tensor
    assert dtype == "BF16"
    width = 2 * columns
    out = [bytes(width)] * (rows // FROM * TO)
    for row in range(rows):
        out[row // FROM * TO + place(row % FROM)] = change(data[row * width : (row + 1) * width])
    return dtype, [len(out), columns], b"".join(out)


def widened_columns(tensor):
    dtype, (rows, columns), data = tensor
    assert dtype == "BF16"
    wide = columns // FROM * TO
    out = bytearray(2 * rows * wide)
    for row in range(rows):
        for column in range(columns):
            to = 2 * (row * wide + column // FROM * TO + place(column % FROM))
            at = 2 * (row * columns + column)
            out[to : to + 2] = data[at : at + 2]
    return dtype, [rows, wide], bytes(out)


def main():
    target = pathlib.Path(sys.argv[-1])
    source = pathlib.Path(sys.argv[1]) if len(sys.argv) > 2 else pathlib.Path(__file__).parents[2] / "assets/demo-llama"
    shutil.copytree(source, target, dirs_exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    assert config["head_dim"] == FROM
    config["head_dim"] = TO
    (target / "config.json").write_text(json.dumps(config, indent=2))
    for path in source.glob("*.safetensors"):
        tensors = read(path)
        for name, tensor in tensors.items():
            if name.endswith("q_proj.weight"):
                tensors[name] = widened_rows(tensor, doubled)
            elif name.endswith(("k_proj.weight", "v_proj.weight")):
                tensors[name] = widened_rows(tensor)
            elif name.endswith("o_proj.weight"):
                tensors[name] = widened_columns(tensor)
        write(target / path.name, tensors)


main()
