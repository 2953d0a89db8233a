"""Texts and ids from a counter: tests/text/tokenizer/random_texts.h makes the same ones in C++, so that only hashes are committed."""

import json
import pathlib

MASK = (1 << 64) - 1
# Every assigned code point but most of those for private use.
RANGES = [(0x0, 0xD7FF), (0xE000, 0xE0FF), (0xF900, 0x323AF), (0xE0000, 0xE01EF), (0xF0000, 0xF000F), (0x10FFF0, 0x10FFFF)]
NUM_CODE_POINTS = sum(last - first + 1 for first, last in RANGES)
CHARS_A_TEXT = 10  # 20 000 texts have every code point once
NUM_TEXTS = 20000
BLOCK = 100
SNIPPETS = json.loads((pathlib.Path(__file__).resolve().parents[2] / "tests/data/tokenizer/snippets.json").read_text(encoding="utf-8"))


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


class Counter:
    def __init__(self, seed, index):
        self.state = mix((seed << 32) + index)

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return (mix(self.state) >> 32) % bound


def code_point(number):
    for first, last in RANGES:
        if number <= last - first:
            return first + number
        number -= last - first + 1


def text(seed, index):
    counter = Counter(seed, index)
    parts = []
    for n in range(CHARS_A_TEXT):
        parts.append(chr(code_point(((index * CHARS_A_TEXT + n) * 7919 + seed) % NUM_CODE_POINTS)))
        if counter.below(2) == 0:
            snippet = SNIPPETS[counter.below(len(SNIPPETS))]
            parts.append(snippet * (1 + (counter.below(12) if counter.below(8) == 0 else 0)))
    return "".join(parts)


def ids(seed, index, vocab_size):
    counter = Counter(seed + 1, index)
    return [counter.below(vocab_size) for _ in range(1 + counter.below(12))]


class Hash:
    """FNV-1a of 64 bits."""

    def __init__(self):
        self.value = 0xCBF29CE484222325

    def add(self, data):
        for byte in data:
            self.value = (self.value ^ byte) * 0x100000001B3 & MASK

    def add_ids(self, numbers):
        for number in numbers:
            self.add(number.to_bytes(4, "little"))
        self.add(b"\xff\xff\xff\xff")

    def add_text(self, value):
        self.add(value.encode() + b"\xff")
