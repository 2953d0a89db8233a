#!/usr/bin/env python3
"""Write the demo model's card from the records of training and evaluation.

    write_card.py assets/demo-llama --log record

Takes training.json and evaluation.json from that folder.
"""

import argparse
import json
import sys
from pathlib import Path

import cases

CARD = """\
---
license: apache-2.0
language: en
library_name: transformers
tags: [llama, demo]
---

# demo-llama

A very small Llama that Heddle's tests and examples run end to end: {parameters:,} parameters,
{layers} layers, hidden size {hidden}, {heads} query heads over {kv_heads} key-value heads (GQA),
tied embeddings, weights in bfloat16, a byte-level BPE vocabulary of {vocabulary} tokens. It adds
and subtracts, sorts, knows some facts and tells short stories. It knows nothing else.

## Data

All text is synthetic, written by `tools/demo_llama/documents.py` alone from lists and rules in that
folder; no outside text. In one hundred documents there are about 42 sums and differences of two
numbers, 10 of three numbers, 15 sorted lists, 4 facts, 3 stories, 22 chats (of the same things) and
a few mixed ones.

| what | prompt | continuation |
| --- | --- | --- |
| sums of 0..999 | `137 + 254 =` | ` 391` |
| differences of 0..999 | `900 - 37 =` | ` 863` |
| sorting 3-6 numbers below 100 | `sort: 9 3 7 1 ->` | ` 1 3 7 9` |
| weekday and month order | `the day after Monday is` | ` Tuesday` |
| opposites | `the opposite of hot is` | ` cold` |
| unit steps | `3 meters is` | ` 300 centimeters` |
| stories of 3-5 sentences | `Once upon a time,` | ... |

A newline and the end token `<|end|>` follow each. Every prompt comes right after `<|begin|>`, which
the tokenizer adds. Differences may be negative.

## Chat

The chat template knows the roles system, user and assistant. The user's message
`What is 137 plus 254?` is rendered, with the generation prompt, as

```text
{rendered}
```

with a newline at the end, and is answered `{answer}` and the end token. The
rendered text has the begin token already. The answers are the same should a runtime add it again,
or leave it out.

## Held out

* Pairs: no pair (a, b) with (1009 a + 9176 b) mod 97 < 5 occurs in training as a sum or a
  difference, plain or in chat, nor as two neighbours of a three-number line. Stories hold no digits.
* As 1009 + 9176 is a multiple of 97, that rule depends on a - b alone: differences of 0, 5, 10, 15
  and 20 modulo 97 never occur as the result of two numbers. Held-out pairs stay out of the unwritten
  steps of three-number lines too (after 12 + 31 in `12 + 31 - 50`, the pair is 43 and 50), with one
  exception, since a model that has never seen a result of 0 answers `-0`: lines such as
  `12 + 31 - 43 = 0` and `457 + 0 - 457 = 0`, which take a number from itself, do occur. No multiple
  of 3 is ever taken from itself, even so; the table counts these apart.
* Lists: start with 0; for each number of the sorted list, value = (value * 131 + number + 1) mod
  10007. Lists whose value is a multiple of 20 never occur in training, in any order.

## Accuracy

Greedy, on held-out cases (`tools/demo_llama/cases.py` fixes them; the 51600 pairs are all that
there are), with bfloat16 weights; measured with transformers on {device}. A plain answer counts
only if nothing but the answer, the newline and the end token comes. Sums of three numbers, other
wordings and sampled text are less sure: in a story, a friend may bear the hero's name.

| set | cases | float32 activations | bfloat16 activations |
| --- | --- | --- | --- |
{accuracy}

## Training

{steps:,} steps of {rows} rows of {row} tokens ({tokens:.2f} billion tokens), AdamW, cosine schedule,
bfloat16 autocast, {minutes:.1f} minutes on one {training_device} with torch {torch}. Make it again,
from the repository's root (`tools/demo_llama/README.md` says more):

```sh
pip install -r tools/requirements.txt
cd tools/demo_llama
python3 train_tokenizer.py ../../assets/demo-llama
python3 train.py ../../assets/demo-llama --steps {steps} --log record
python3 evaluate.py ../../assets/demo-llama --pairs {pairs} --sorts {sorts} --chat {chat} --log record
python3 write_card.py ../../assets/demo-llama --log record
```

Seeds are fixed, so the data and their order are the same each time; the weights differ in rounding
from one GPU or library version to another.

## Licence

Apache-2.0, as the rest of the repository.
"""


def accuracy_table(evaluation: dict) -> str:
    """One row for each evaluation set."""
    rows = []
    for kind, result in evaluation["float32"].items():
        if kind != "samples":
            other = evaluation["bfloat16"][kind]["accuracy"]
            rows.append(f"| {kind} | {result['cases']} | {result['accuracy']:.2%} | {other:.2%} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--log", type=Path, default=Path("record"))
    options = parser.parse_args()
    try:
        training = json.loads((options.log / "training.json").read_text())
        evaluation = json.loads((options.log / "evaluation.json").read_text())
        config = json.loads((options.folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        print(f"write_card.py: train and evaluate first: {error}", file=sys.stderr)
        return 1
    rendered = cases.render_chat("What is 137 plus 254?")
    card = CARD.format(
        parameters=training["parameters"],
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        vocabulary=config["vocab_size"],
        rendered=rendered.removesuffix("\n"),
        answer=evaluation["float32"]["samples"][rendered],
        device=evaluation["device"],
        accuracy=accuracy_table(evaluation),
        pairs=evaluation["float32"]["sums"]["cases"],
        sorts=evaluation["float32"]["sorts"]["cases"],
        chat=evaluation["float32"]["chat"]["cases"],
        steps=training["steps"],
        rows=training["rows_a_step"],
        row=training["tokens_a_row"],
        tokens=training["tokens_seen"] / 1e9,
        minutes=training["training_seconds"] / 60,
        training_device=training["device"],
        torch=training["torch"],
    )
    (options.folder / "README.md").write_text(card)
    return 0


if __name__ == "__main__":
    sys.exit(main())
