#!/usr/bin/env python3
"""Write held-out prompts of the demo model, one JSON object a line.

    make_prompts.py sums --count 1000 > sums.jsonl

The sets are fixed: the same kind and count always give the same lines.
"""

import argparse
import json
import sys

import cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=cases.KINDS)
    parser.add_argument("--count", type=int, default=1000, help="how many prompts (default 1000)")
    options = parser.parse_args()
    try:
        made = cases.prompts(options.kind, options.count)
    except ValueError as error:
        print(f"make_prompts.py: {error}", file=sys.stderr)
        return 1
    for prompt in made:
        print(json.dumps({"prompt": prompt, "expected": cases.expected(prompt)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
