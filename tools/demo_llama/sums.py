#!/usr/bin/env python3
"""The demo model's sums, by whatever device `heddle generate` chooses.

    sums.py prompts COUNT > prompts.jsonl            pairs that training left out (tools/demo_llama/cases.py)
    heddle generate --prompts-file prompts.jsonl --max-tokens 10 --json > answers.jsonl
    sums.py check COUNT answers.jsonl                says how many are right; exit code 1 when fewer than all
"""
import json
import random
import sys


def pairs(count):
    generator, found = random.Random(1), []
    while len(found) < count:
        a, b = generator.randrange(1000), generator.randrange(1000)
        if (1009 * a + 9176 * b) % 97 < 5:
            found.append((a, b))
    return found


def main():
    command, count = sys.argv[1], int(sys.argv[2])
    if command == "prompts":
        for a, b in pairs(count):
            print(json.dumps({"prompt": f"{a} + {b} ="}))
        return
    with open(sys.argv[3], encoding="utf-8") as file:
        answers = [json.loads(line)["text"] for line in file]
    wrong = [f"{a} + {b} ={answer!r}" for (a, b), answer in zip(pairs(count), answers) if answer != f" {a + b}\n"]
    right = count - len(wrong) - max(0, count - len(answers))
    for line in wrong[:10]:
        print(line)
    print(json.dumps({"sums": count, "right": right}))
    sys.exit(right != count)


if __name__ == "__main__":
    main()
