#!/usr/bin/env python3
"""Prints the roofline of each operator of a decode step: the bytes it must read and write, and their time at the memory's
bandwidth. docs/notes/decode.md uses them.

    bench/floors.py [GBPS]        default 4550, measured on one H200

A step reads every weight once, and the keys and values of each sequence. `heddle bench operator --model NAME` counts the
same bytes and measures the rate itself.
"""
import sys

MODELS = {  # as src/weights/shapes.h; 2 bytes per element in all three
    "llama-2-7b": {"vocab": 32000, "hidden": 4096, "inner": 11008, "heads": 32, "kv_heads": 32, "dim": 128, "layers": 32},
    "llama-3-8b": {"vocab": 128256, "hidden": 4096, "inner": 14336, "heads": 32, "kv_heads": 8, "dim": 128, "layers": 32},
    "llama-3.2-1b": {"vocab": 128256, "hidden": 2048, "inner": 8192, "heads": 32, "kv_heads": 8, "dim": 64, "layers": 16},
}


def operators(m, batch, context):
    """(name, calls per step, bytes per call)"""
    q, kv, hidden, inner = m["heads"] * m["dim"], m["kv_heads"] * m["dim"], m["hidden"], m["inner"]
    keys = context + 1

    def linear(out, size, y):
        return 2 * out * size + batch * (2 * size + y * out)
    return [("embedding", 1, batch * hidden * 6),
            ("rmsnorm", 2 * m["layers"] + 1, batch * hidden * 14 + 4 * hidden),
            ("linear qkv", m["layers"], linear(q + 2 * kv, hidden, 2)),
            ("rope_kv_write", m["layers"], batch * 4 * (q + 2 * kv)),
            ("attention", m["layers"], batch * (4 * kv * keys + 4 * q)),
            ("linear output", m["layers"], linear(hidden, q, 4)),
            ("linear_swiglu", m["layers"], 4 * inner * hidden + batch * 2 * (hidden + inner)),
            ("linear down", m["layers"], linear(hidden, inner, 4)),
            ("linear logits", 1, linear(m["vocab"], hidden, 4))]


def table(name, gbps):
    m = MODELS[name]
    cases = [(1, 1024), (1, 4096), (1, 16384), (16, 4096)]
    lines = [f"### {name}", "", "| operator | calls | " + " | ".join(f"{b} x {c}" for b, c in cases) + " |",
             "|---|--:|" + "--:|" * len(cases)]
    columns = [operators(m, *case) for case in cases]
    for rows in zip(*columns):
        cells = [f"{bytes_ / gbps / 1e3:.2f}" for _, _, bytes_ in rows]
        lines.append(f"| {rows[0][0]} | {rows[0][1]} | " + " | ".join(cells) + " |")
    sums = [sum(calls * bytes_ for _, calls, bytes_ in column) for column in columns]
    lines.append("| **all, ms a step** | " + str(sum(row[1] for row in columns[0])) + " | " +
                 " | ".join(f"**{total / gbps / 1e6:.3f}**" for total in sums) + " |")
    return "\n".join(lines)


def main():
    gbps = float(sys.argv[1]) if len(sys.argv) > 1 else 4550
    print("\n\n".join(table(name, gbps) for name in MODELS))


if __name__ == "__main__":
    main()
