#!/usr/bin/env python3
"""The training text: an endless random sequence of documents from a seed.

A document is a list of segments (text, learn). Segments with learn are what
the model must answer; the others are what it is asked, and count little in
training. Segments meet at token borders, so the tokens of a document are the
tokens of a prompt followed by those of its answer, as at run time.

Run as a program, it prints a sample.
"""

import argparse
import random
from collections.abc import Callable

import facts
import stories
from cases import (
    LIMIT,
    SORT_LENGTHS,
    SORT_LIMIT,
    equal_pair_is_never_reached,
    join,
    list_is_held_out,
    pair_is_held_out,
)

Segment = tuple[str, bool]
Document = list[Segment]

BEGIN, END, SYSTEM, USER, ASSISTANT, PAD = SPECIAL_TOKENS = (
    "<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|pad|>",
)  # fmt: skip

SYSTEM_MESSAGES = [
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer in one sentence.",
    "Answer briefly.",
    "You are Heddle, a small and friendly model.",
    "Be kind and exact.",
]


def _operand(rng: random.Random) -> int:
    """0 .. 999; short numbers more often than a uniform draw would give them."""
    return rng.randrange(rng.choice((LIMIT, LIMIT, LIMIT, LIMIT, 100, 10)))


def pair(rng: random.Random) -> tuple[int, int]:
    """A pair that is not held out, hard cases (long carries, near numbers) included."""
    while True:
        kind = rng.random()
        if kind < 0.6:
            a, b = rng.randrange(LIMIT), rng.randrange(LIMIT)
        elif kind < 0.85:
            a, b = _operand(rng), _operand(rng)
        elif kind < 0.95:
            a = _operand(rng)
            b = a + rng.randint(-30, 30)
        else:
            a = _operand(rng)
            b = rng.choice((10, 100, 1000)) - a + rng.randint(-2, 2)
        if 0 <= b < LIMIT and not pair_is_held_out(a, b):
            return a, b


def numbers(rng: random.Random) -> list[int]:
    """A list to sort that is not held out, with now and then equal or small numbers."""
    while True:
        limit = SORT_LIMIT if rng.random() < 0.85 else 10
        drawn = [rng.randrange(limit) for _ in range(rng.choice(SORT_LENGTHS))]
        if rng.random() < 0.15:
            drawn[rng.randrange(len(drawn))] = rng.choice(drawn)
        if not list_is_held_out(drawn):
            return drawn


def _two_numbers(rng: random.Random) -> facts.Question:
    a, b = pair(rng)
    if rng.random() < 0.5:
        return f"{a} + {b} =", f" {a + b}\n"
    return f"{a} - {b} =", f" {a - b}\n"


def _step_is_allowed(so_far: int, sign: str, number: int) -> bool:
    """Whether a three-number line may lead to this step, which it does not show.

    Held-out pairs are kept out here too, but for results of 0: as every pair
    of equal numbers is held out, the model would see none otherwise.
    """
    if so_far == number and sign == "-":
        return not equal_pair_is_never_reached(number)
    return not pair_is_held_out(so_far, number)


def _three_numbers(rng: random.Random) -> facts.Question:
    """Three numbers with two signs; no two neighbours are a held-out pair.

    Results are often 0 or near it, for the reason above, and one of the first
    two is often small, which brings the rest close to a two-number line.
    """
    while True:
        a, b = _operand(rng), _operand(rng)
        small = rng.random()
        if small < 0.1:
            b = 0
        elif small < 0.4:
            b = rng.randint(1, 9)
        elif small < 0.5:
            a = rng.randint(1, 9)
        first, second = rng.choice((("+", "-"), ("-", "+"), ("-", "-"), ("+", "+")))
        so_far = a + b if first == "+" else a - b
        if second == "-" and rng.random() < 0.7:
            c = so_far - rng.choice((0, 0, 0, rng.randint(-30, 30)))
        elif second == "+" and rng.random() < 0.5:
            c = -so_far + rng.choice((0, 0, rng.randint(-30, 30)))
        else:
            c = _operand(rng)
        shown = not pair_is_held_out(a, b) and not pair_is_held_out(b, c)
        if 0 <= c < LIMIT and shown and _step_is_allowed(so_far, second, c):
            result = so_far + c if second == "+" else so_far - c
            return f"{a} {first} {b} {second} {c} =", f" {result}\n"


def _letters(rng: random.Random) -> facts.Question:
    """Letters for numbers: something minus itself is 0, whatever it is."""
    x, y = ("".join(rng.choices("abcdefghijkmnpqrstuvwxyz", k=rng.randint(1, 4))) for _ in "xy")
    return rng.choice((
        (f"{x} - {x} =", " 0\n"), (f"{x} - {x} =", " 0\n"), (f"{x} - 0 =", f" {x}\n"),
        (f"{x} + 0 =", f" {x}\n"), (f"{x} - {y} =", f" {x} - {y}\n" if x != y else " 0\n"),
        (f"{x} + {y} - {x} =", f" {y}\n"), (f"{x} + {y} - {y} =", f" {x}\n"),
    ))  # fmt: skip


def _sort(rng: random.Random) -> facts.Question:
    drawn = numbers(rng)
    return f"sort: {join(drawn)} ->", f" {join(sorted(drawn))}\n"


def _chat_two_numbers(rng: random.Random) -> facts.Question:
    a, b = pair(rng)
    plus = rng.random() < 0.5
    word, sign, result = ("plus", "+", a + b) if plus else ("minus", "-", a - b)
    asks = [
        f"What is {a} {word} {b}?", f"What is {a} {word} {b}?", f"What is {a} {word} {b}?",
        f"What is {a} {sign} {b}?", f"How much is {a} {word} {b}?", f"What's {a} {word} {b}?",
        f"Please work out {a} {word} {b}.", f"Can you tell me what {a} {word} {b} is?",
        f"{a} {sign} {b} = ?", f"{a} {word} {b}", f"Calculate {a} {sign} {b}.",
        f"Add {a} and {b}." if plus else f"Take {b} away from {a}.",
    ]  # fmt: skip
    return rng.choice(asks), f"{a} {word} {b} is {result}."


def _chat_three_numbers(rng: random.Random) -> facts.Question:
    prompt, answer = _three_numbers(rng)
    words = prompt.removesuffix(" =").replace(" + ", " plus ").replace(" - ", " minus ")
    return f"What is {words}?", f"{words} is {answer.strip()}."


def _chat_sort(rng: random.Random) -> facts.Question:
    drawn = numbers(rng)
    between = rng.choice((" ", ", "))
    shown, answer = (between.join(map(str, list_)) for list_ in (drawn, sorted(drawn)))
    ask = rng.choice((
        "Sort these numbers: {}", "Sort {}.", "Please sort {}.", "Put these numbers in order: {}",
        "Can you sort {}?",
    ))  # fmt: skip
    return ask.format(shown), f"In order: {answer}."


def _plain(question: Callable[[random.Random], facts.Question]) -> Callable[..., Document]:
    """Documents of one line."""

    def make(rng: random.Random) -> Document:
        prompt, answer = question(rng)
        return [(BEGIN + prompt, False), (answer + END, True)]

    return make


def _lines(rng: random.Random) -> Document:
    """Several lines under a heading, so that a first line without one ends its document."""
    count = rng.randint(2, 8)
    document = [(f"{BEGIN}{count} lines:\n", False)]
    kind = rng.choice((None, _two_numbers, _sort, facts.plain))
    for _ in range(count):
        make = kind or rng.choice((_two_numbers, _sort, facts.plain))
        prompt, answer = make(rng)
        document += [(prompt, False), (answer, True)]
    return document + [(END, True)]


def _story(rng: random.Random) -> Document:
    return [(BEGIN, False), (stories.story(rng)[0] + "\n" + END, True)]


def _chat(question: Callable[[random.Random], facts.Question]) -> Callable[..., Document]:
    """Documents in the chat template's form, some with earlier turns."""

    def make(rng: random.Random) -> Document:
        # A runtime may add the begin token to text that has it already, or to none.
        asked = BEGIN * rng.choice((0, 1, 1, 1, 1, 1, 1, 1, 2, 2))
        if rng.random() < 0.25:
            asked += f"{SYSTEM}\n{rng.choice(SYSTEM_MESSAGES)}{END}\n"
        document = []
        others = (_chat_two_numbers, _chat_sort, facts.chat, facts.small_talk)
        earlier = rng.choice((0, 0, 0, 0, 0, 0, 1, 2))
        for make_turn in [rng.choice(others) for _ in range(earlier)] + [question]:
            ask, answer = make_turn(rng)
            document.append((f"{asked}{USER}\n{ask}{END}\n{ASSISTANT}\n", False))
            document.append((answer + END, True))
            asked = "\n"
        return document

    return make


# How many documents in a hundred are of each sort.
MIXTURE: list[tuple[float, Callable[[random.Random], Document]]] = [
    (42, _plain(_two_numbers)),
    (10, _plain(_three_numbers)),
    (1, _plain(_letters)),
    (15, _plain(_sort)),
    (4, _plain(facts.plain)),
    (2, _lines),
    (3, _story),
    (11, _chat(_chat_two_numbers)),
    (4, _chat(_chat_three_numbers)),
    (3, _chat(_chat_sort)),
    (3, _chat(facts.chat)),
    (0.5, _chat(facts.small_talk)),
    (1.5, _chat(stories.chat)),
]


def documents(seed: str, count: int) -> list[Document]:
    """`count` documents; the same seed always gives the same ones."""
    rng = random.Random(seed)
    weights, makers = zip(*MIXTURE)
    return [make(rng) for make in rng.choices(makers, weights, k=count)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a sample of the training text.")
    parser.add_argument("--seed", default="sample")
    parser.add_argument("--count", type=int, default=20, help="how many documents (default 20)")
    options = parser.parse_args()
    for document in documents(options.seed, options.count):
        print("".join(text for text, _ in document))


if __name__ == "__main__":
    main()
