#!/usr/bin/env python3
"""Generates tests/data/synthetic/values.txt: elements of synthetic weights from an independent numpy implementation of their
definition (src/weights/synthetic_values.h), as the reference for every implementation.

A line is: shape, tensor, index of the element, deviation and offset (as the C++ test gives them), and the bits of the
element in float32, bfloat16 and float16, in hexadecimal.

Run: python tools/goldens/make_synthetic_values.py [tests/data/synthetic/values.txt]
"""

import math
import sys
from pathlib import Path

import numpy as np

UNIT_DEVIATION = 53510.0
MASK = (1 << 64) - 1


def key(shape: str, tensor: str) -> tuple[int, int]:
    h = 0xCBF29CE484222325
    for byte in f"{shape}/{tensor}".encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    h = (h ^ (h >> 27)) * 0x94D049BB133111EB & MASK
    h ^= h >> 31
    return h & 0xFFFFFFFF, h >> 32


def word(add: int, mix: int, index: int) -> int:
    m = 0xFFFFFFFF
    h = ((index & m) * 0x9E3779B1 + add + (index >> 32) * 0xC2B2AE35) & m
    h = ((h ^ (h >> 16)) * 0x85EBCA6B + mix) & m
    h = (h ^ (h >> 16)) * 0x7FEB352D & m
    h = (h ^ (h >> 15)) * 0x846CA68B & m
    return h ^ (h >> 16)


def value(shape: str, tensor: str, index: int, deviation: float, offset: float) -> np.float32:
    w = word(*key(shape, tensor), index)
    integer = 2 * ((w & 0xFFFF) - (w >> 16)) + 1
    scale = np.float32(deviation / UNIT_DEVIATION)
    return np.float32(offset) + scale * np.float32(integer)


def bfloat16_bits(x: np.float32) -> int:
    bits = int(x.view(np.uint32))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


TENSORS = [
    ("llama-3.2-1b", "model.embed_tokens.weight", 3 / math.sqrt(2048), 0.0, 128256 * 2048),
    ("llama-3.2-1b", "model.layers.0.mlp.down_proj.weight", 2.5 / math.sqrt(32) / math.sqrt(8192), 0.0, 2048 * 8192),
    ("llama-3.3-70b", "model.layers.79.input_layernorm.weight", 0.1, 1.0, 8192),
    ("qwen2.5-7b", "model.layers.27.self_attn.k_proj.bias", 0.1, 0.0, 512),
    # Numbers so small that float16 has few bits left, and indices beyond 32 bits.
    ("llama-2-7b", "small", 1e-5, 0.0, 1 << 20),
    ("llama-2-7b", "beyond", 1.0, 0.0, 1 << 36),
]


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/synthetic/values.txt")
    lines = []
    for shape, tensor, deviation, offset, size in TENSORS:
        rng = np.random.default_rng(7)
        indices = sorted({*range(8), size - 1, *(int(i) for i in rng.integers(0, size, 55))})
        if size > 1 << 32:
            indices += [(1 << 32) - 1, 1 << 32, (1 << 32) + 1]
        for index in indices:
            x = value(shape, tensor, index, deviation, offset)
            half = int(x.astype(np.float16).view(np.uint16))
            lines.append(
                f"{shape} {tensor} {index} {deviation!r} {offset!r} "
                f"{int(x.view(np.uint32)):08x} {bfloat16_bits(x):04x} {half:04x}\n"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))


if __name__ == "__main__":
    main()
