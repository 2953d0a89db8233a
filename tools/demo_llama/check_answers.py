#!/usr/bin/env python3
"""Check answers to the prompts of make_prompts.py and print the accuracy.

    check_answers.py --at-least 0.99 answers.jsonl

Reads one JSON object a line with the prompt and the generated text, as
`heddle run --json` writes them; without a file, standard input. Exits with 1
when the accuracy is below --at-least, with 2 when the input can't be judged.
"""

import argparse
import json
import sys

import cases


def judge(lines: list[str]) -> tuple[int, int, list[str]]:
    """Right answers, all answers, and a line about each wrong one."""
    right, wrong = 0, []
    for number, line in enumerate(lines, 1):
        try:
            answer = json.loads(line)
            prompt, text = answer["prompt"], answer["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} is no answer with 'prompt' and 'text': {error}") from error
        if cases.is_right(prompt, text):
            right += 1
        else:
            wrong.append(f"{prompt!r}: got {text!r}, expected {cases.expected(prompt)!r}")
    return right, right + len(wrong), wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("answers", nargs="?", type=argparse.FileType("r"), default=sys.stdin)
    parser.add_argument("--at-least", type=float, default=0.99, help="lowest accuracy that passes")
    parser.add_argument("--show", type=int, default=10, help="how many wrong answers to list")
    options = parser.parse_args()
    try:
        right, total, wrong = judge([line for line in options.answers if line.strip()])
        if total == 0:
            raise ValueError("no answers to check")
    except ValueError as error:
        print(f"check_answers.py: {error}", file=sys.stderr)
        return 2
    for line in wrong[: options.show]:
        print(line)
    print(f"{right} of {total} right: {right / total:.4f} (at least {options.at_least})")
    return 0 if right / total >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
