"""Documents as rows of tokens for training, made shard by shard on all cores.

A row holds whole documents, one after another. Each entry of a row is a token
with two flags in its high bits: LEARN, the token belongs to an answer; START, a
document starts here (so that attention can stay inside documents).
"""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from documents import PAD, documents

ROW = 256
SHARD_DOCUMENTS = 100_000
LEARN, START = 0x8000, 0x4000
TOKEN_MASK = START - 1

_tokenizer: Tokenizer | None = None


def _start_worker(path: str) -> None:
    """Each process reads the tokenizer once and leaves the other cores to the others."""
    global _tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tokenizer = Tokenizer.from_file(path)


def pack(seed: str, count: int, tokenizer: Tokenizer) -> np.ndarray:
    """Rows of shape [rows, ROW], filled greedily in the documents' order."""
    made = documents(seed, count)
    segments = [segment for document in made for segment in document]
    encodings = iter(tokenizer.encode_batch([text for text, _ in segments], add_special_tokens=False))
    row: list[int] = []
    rows: list[list[int]] = []
    padding = tokenizer.token_to_id(PAD) | START
    for document in made:
        entries: list[int] = []
        for _, learn in document:
            ids = next(encodings).ids
            entries += [token | LEARN for token in ids] if learn else ids
        if len(entries) > ROW:
            continue  # a long chat; rare
        entries[0] |= START
        if len(row) + len(entries) > ROW:
            rows.append(row + [padding] * (ROW - len(row)))
            row = []
        row += entries
    return np.array(rows, dtype=np.uint16)  # the unfinished row is left out


def _shard(number: int) -> np.ndarray:
    return pack(f"train {number}", SHARD_DOCUMENTS, _tokenizer)


def shards(tokenizer_path: Path, workers: int) -> Iterator[np.ndarray]:
    """The training shards in order; the same on any number of processes."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, _start_worker, (str(tokenizer_path),)) as pool:
        first = 0
        waiting = [pool.apply_async(_shard, (number,)) for number in range(2 * workers)]
        while True:
            made = waiting[first % len(waiting)].get()
            waiting[first % len(waiting)] = pool.apply_async(_shard, (first + len(waiting),))
            first += 1
            yield made
