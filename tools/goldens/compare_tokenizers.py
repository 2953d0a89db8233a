#!/usr/bin/env python3
"""Compares the command with the package `tokenizers` on new random texts and ids, for every tokenizer of the goldens; writes nothing.

compare_tokenizers.py build/cpu/apps/cli/heddle [--count 5000] [--seed 1]
"""

import argparse

import make_tokenizer

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heddle", help="path of the heddle command")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    make_tokenizer.compare(arguments.heddle, arguments.count, arguments.seed)
