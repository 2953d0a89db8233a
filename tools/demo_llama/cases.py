"""The rules and test cases that training and every later test share.

Which pairs and lists are held out, what the right answer to a prompt is, and
the fixed evaluation sets. Standard library only, so that a test machine needs
no package to make prompts or check answers.
"""

import random
import re
from collections.abc import Iterator

LIMIT = 1000  # operands are 0 .. LIMIT - 1
SORT_LIMIT = 100  # numbers to sort are 0 .. SORT_LIMIT - 1
SORT_LENGTHS = range(3, 7)
EVALUATION_SEED = 97


def pair_is_held_out(a: int, b: int) -> bool:
    """Whether the pair (a, b) is kept out of training, sums and differences alike.

    1009 + 9176 is a multiple of 97, so the rule depends on a - b alone: a - b
    is 0, 5, 10, 15 or 20 modulo 97. Whole results of a difference, 0 among
    them, are therefore never seen in a two-number line.
    """
    return (1009 * a + 9176 * b) % 97 < 5


def equal_pair_is_never_reached(number: int) -> bool:
    """Whether training leaves out number - number even as a step of a longer line.

    Steps of three-number lines (12 + 30 - 42 takes 42 from 42) are the only
    place where training meets equal numbers, and there none of these.
    """
    return number % 3 == 0


def list_is_held_out(numbers: list[int]) -> bool:
    """Whether a list, in any order, is kept out of training (about 1 in 20)."""
    value = 0
    for number in sorted(numbers):
        value = (value * 131 + number + 1) % 10007
    return value % 20 == 0


def held_out_pairs() -> list[tuple[int, int]]:
    """Every held-out pair in one fixed random order."""
    pairs = [(a, b) for a in range(LIMIT) for b in range(LIMIT) if pair_is_held_out(a, b)]
    random.Random(EVALUATION_SEED).shuffle(pairs)
    return pairs


def held_out_lists() -> Iterator[list[int]]:
    """An endless fixed sequence of held-out lists to sort, all lengths alike."""
    rng = random.Random(EVALUATION_SEED)
    while True:
        numbers = [rng.randrange(SORT_LIMIT) for _ in range(rng.choice(SORT_LENGTHS))]
        if list_is_held_out(numbers):
            yield numbers


def join(numbers: list[int]) -> str:
    """Numbers as a line shows them: one space between."""
    return " ".join(map(str, numbers))


def render_chat(question: str) -> str:
    """The text that the chat template makes of one user message."""
    return f"<|begin|><|user|>\n{question}<|end|>\n<|assistant|>\n"


def prompts(kind: str, count: int) -> list[str]:
    """The first `count` prompts of an evaluation set."""
    if kind == "sums":
        made = [f"{a} + {b} =" for a, b in held_out_pairs()[:count]]
    elif kind == "differences":
        made = [f"{a} - {b} =" for a, b in held_out_pairs()[:count]]
    elif kind == "sorts":
        lists = held_out_lists()
        made = [f"sort: {join(next(lists))} ->" for _ in range(count)]
    elif kind == "chat":
        words = ("plus", "minus")
        made = [
            render_chat(f"What is {a} {words[i % 2]} {b}?")
            for i, (a, b) in enumerate(held_out_pairs()[:count])
        ]
    else:
        raise ValueError(f"no evaluation set is called '{kind}'; there are {', '.join(KINDS)}")
    if len(made) < count:
        raise ValueError(f"the set '{kind}' holds {len(made)} cases, fewer than {count}")
    return made


KINDS = ("sums", "differences", "sorts", "chat")

_LINE = re.compile(r"(\d+) ([+-]) (\d+) =")
_SORT = re.compile(r"sort: (\d+(?: \d+)*) ->")
_CHAT = re.compile(r"What is (\d+) (plus|minus) (\d+)\?")


def expected(prompt: str) -> str:
    """The right answer to a prompt of an evaluation set, without space and newline."""
    text = prompt.removeprefix("<|begin|>")
    if match := _SORT.fullmatch(text):
        return join(sorted(map(int, match[1].split())))
    if match := _LINE.fullmatch(text) or _CHAT.search(text):
        a, b = int(match[1]), int(match[3])
        return str(a + b if match[2] in ("+", "plus") else a - b)
    raise ValueError(f"not a prompt of the demo model's evaluation sets: {prompt!r}")


def is_right(prompt: str, text: str) -> bool:
    """Whether `text`, generated after `prompt`, is the right answer.

    A plain prompt's answer is one space, the answer and a newline, and nothing
    more. A chat answer is a sentence whose last number is the answer.
    """
    if _CHAT.search(prompt):
        numbers = re.findall(r"-?\d+", text)
        return bool(numbers) and numbers[-1] == expected(prompt)
    return text.removesuffix("<|end|>").rstrip("\n") == " " + expected(prompt)
