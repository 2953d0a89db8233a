#!/usr/bin/env python3
"""Train the demo model and write its weights and configs beside its tokenizer.

    train.py assets/demo-llama --steps 11000 --log record

The folder must hold tokenizer.json (train_tokenizer.py writes it). All seeds
are fixed: the same steps on the same kind of GPU see the same data in the same
order. With --minutes the number of steps is cut to what fits, and recorded.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from documents import BEGIN, END, PAD
from model import Llama, Shape, export
from packing import LEARN, ROW, START, TOKEN_MASK, shards

SEED = 97
PEAK_RATE = 2e-3
WARMUP = 300
WEIGHT_DECAY = 0.1
PROMPT_WEIGHT = 0.05  # what a prompt's token counts, against 1 for an answer's
MEASURED_STEPS = 100  # after as many steps, --minutes cuts the schedule


def batches(
    tokenizer: Path, rows: int, passes: int, workers: int, device: str
) -> Iterator[torch.Tensor]:
    """Batches of packed rows; each shard is gone through `passes` times, shuffled."""
    shuffle = torch.Generator().manual_seed(SEED)
    for shard in shards(tokenizer, workers):
        packed = torch.from_numpy(shard.astype("int32")).to(device)
        for _ in range(passes):
            order = torch.randperm(len(packed), generator=shuffle).to(device)
            for first in range(0, len(packed) - rows + 1, rows):
                yield packed[order[first : first + rows]]


def loss_of(model: Llama, packed: torch.Tensor) -> torch.Tensor:
    """Mean loss of the next token inside documents, answers weighing most."""
    tokens, starts = packed & TOKEN_MASK, (packed & START) != 0
    logits = model(tokens, starts)[:, :-1]
    losses = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten().long(), reduction="none")
    learn = (packed[:, 1:] & LEARN) != 0
    weights = torch.where(learn, 1.0, PROMPT_WEIGHT).masked_fill(starts[:, 1:], 0.0).flatten()
    return (losses * weights).sum() / weights.sum()


def rate_at(step: int, steps: int) -> float:
    """The learning rate: a short rise, then half a cosine down to nothing."""
    if step < WARMUP:
        return PEAK_RATE * (step + 1) / WARMUP
    return PEAK_RATE * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, steps - WARMUP)))


def train(model: Llama, data: Iterator[torch.Tensor], options: argparse.Namespace, device: str) -> dict:
    """Run the schedule; returns what the log and the card say of it."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), fused=device == "cuda")
    compiled = torch.compile(loss_of) if device == "cuda" else loss_of
    steps, begun, measured, history = options.steps, time.time(), 0.0, []
    step = 0
    while step < steps:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = compiled(model, next(data))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step == MEASURED_STEPS:
            measured = time.time()
        if step == 4 * MEASURED_STEPS and options.minutes:
            each = (time.time() - measured) / (3 * MEASURED_STEPS)
            left = options.minutes * 60 - (time.time() - begun)
            steps = min(steps, step + int(left / each))
            print(f"{each * 1000:.1f} ms a step: {steps} steps", flush=True)
        if step % 200 == 0 or step == steps:
            history.append((step, round(loss.item(), 5), round(time.time() - begun, 1)))
            print("step {} loss {} seconds {}".format(*history[-1]), flush=True)
    return {
        "steps": steps,
        "rows_a_step": options.rows,
        "tokens_a_row": ROW,
        "tokens_seen": steps * options.rows * ROW,
        "passes_a_shard": options.passes,
        "seed": SEED,
        "parameters": sum(p.numel() for p in model.parameters()),
        "training_seconds": round(time.time() - begun, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "torch": torch.__version__,
        "history": history,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds tokenizer.json; the model is written here")
    parser.add_argument("--steps", type=int, default=11000)
    parser.add_argument("--minutes", type=float, help="cut the steps to what fits")
    parser.add_argument("--rows", type=int, default=384, help="rows of a step")
    parser.add_argument("--passes", type=int, default=2, help="times through each shard")
    parser.add_argument("--layers", type=int, default=Shape.num_hidden_layers)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--log", type=Path, default=Path("record"), help="folder for training.json")
    options = parser.parse_args()

    tokenizer_path = options.folder / "tokenizer.json"
    if not tokenizer_path.is_file():
        parser.error(f"{tokenizer_path} is not there; make it with train_tokenizer.py {options.folder}")
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    shape = Shape(tokenizer.get_vocab_size(), num_hidden_layers=options.layers)
    model = Llama(shape).to(device)
    data = batches(tokenizer_path, options.rows, options.passes, options.workers, device)
    record = train(model, data, options, device)
    export(model, options.folder, *(tokenizer.token_to_id(token) for token in (BEGIN, END, PAD)))
    options.log.mkdir(parents=True, exist_ok=True)
    (options.log / "training.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
