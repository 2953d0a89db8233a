#!/usr/bin/env python3
"""Generates tests/data/tokenizer/random.json: for each kind of tokenizer, hashes of the package `tokenizers`' results on 20 000
random texts (one hash per block of 100: ids, and the decoded text of these and of as many random ids). Texts on which the package
panics are left out and listed. Pinned: tokenizers 0.23.3."""

import json

import make_tokenizer
import random_texts
from random_texts import BLOCK, NUM_TEXTS, Hash
from tokenizers import Tokenizer

KINDS = ["gpt2", "llama3", "qwen2", "llama2", "mistral", "Metaspace always split True", "Metaspace never split False", "mixed"]
SEED = 1


def block_of(tokenizer, size, block, left_out):
    ids_hash, text_hash = Hash(), Hash()
    for index in range(block * BLOCK, (block + 1) * BLOCK):
        text = random_texts.text(SEED, index)
        if make_tokenizer.panics(tokenizer, text):
            left_out.append(index)
            continue
        ids = tokenizer.encode(text).ids
        ids_hash.add_ids(ids)
        for some in (ids, random_texts.ids(SEED, index, size)):
            text_hash.add_text(tokenizer.decode(some, skip_special_tokens=False))
            text_hash.add_text(tokenizer.decode(some, skip_special_tokens=True))
    return f"{ids_hash.value:016x}{text_hash.value:016x}"


def main():
    kinds = []
    for name, base, patch, root, _ in make_tokenizer.all_cases():
        if name not in KINDS:
            continue
        tokenizer = Tokenizer.from_str(json.dumps(root))
        size = max(tokenizer.get_vocab().values()) + 1
        left_out = []
        blocks = [block_of(tokenizer, size, block, left_out) for block in range(NUM_TEXTS // BLOCK)]
        kinds.append({"name": name, "tokenizer": base, "patch": patch, "left_out": left_out, "blocks": blocks})
        print(name, len(left_out), "left out")
    path = make_tokenizer.DATA / "random.json"
    path.write_text("[\n" + ",\n".join(json.dumps(kind) for kind in kinds) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
