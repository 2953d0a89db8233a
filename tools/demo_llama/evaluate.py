#!/usr/bin/env python3
"""Measure the exported model on held-out cases, greedily, with transformers.

    evaluate.py assets/demo-llama --log record

Each set is run with float32 and with bfloat16 activations over the bfloat16
weights. Answers are judged by cases.py, as check_answers.py judges them.
"""

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

import cases
import facts
from documents import BEGIN

LOWEST = {"sums": 0.99, "differences": 0.99, "sorts": 0.98, "chat": 0.99}
BATCH = 8192
SAMPLES = (
    ["137 + 254 =", "900 - 37 =", "5 - 5 =", "457 - 457 =", "0 + 0 =", "sort: 9 3 7 1 ->"]
    + ["the day after Monday is", "the opposite of hot is", "3 meters is"]
    + ["Once upon a time, there was", "One day"]
    + [cases.render_chat("What is 137 plus 254?"), cases.render_chat("What is 37 minus 900?")]
    + [cases.render_chat("Tell me a short story about a fox."), cases.render_chat("Hello!")]
)


class Runner:
    """The exported folder, loaded as a user of transformers would."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: str):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = LlamaForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
        self.device = device

    @torch.inference_mode()
    def answers(self, prompts: list[str], most: int, begins: int = 1) -> list[str]:
        """The greedy continuation of each prompt, up to the end token, in the prompts' order.

        Every prompt starts with `begins` begin tokens, its own counted.
        """
        # Prompts of one length go together, so no padding comes before a prompt.
        groups = defaultdict(list)
        for index, prompt in enumerate(prompts):
            text = BEGIN * begins + prompt.removeprefix(BEGIN)
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            groups[len(ids)].append((index, ids))
        texts = [""] * len(prompts)
        for group in groups.values():
            for first in range(0, len(group), BATCH):
                part = group[first : first + BATCH]
                inputs = torch.tensor([ids for _, ids in part], device=self.device)
                made = self.model.generate(
                    inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=most, do_sample=False
                )[:, inputs.shape[1] :].tolist()
                end = self.model.generation_config.eos_token_id
                for (index, _), ids in zip(part, made):
                    # What the end token does not close is cut off, hence wrong.
                    ended = end in ids
                    text = self.tokenizer.decode(ids[: ids.index(end)] if ended else ids)
                    texts[index] = text if ended else text + "..."
        return texts


def measure(runner: Runner, counts: dict[str, int]) -> dict:
    """Accuracy and some wrong answers of every set."""
    results = {}

    def judge(name: str, prompts: list[str], right: Callable[[str, str], bool], begins: int = 1) -> None:
        answers = list(zip(prompts, runner.answers(prompts, 24, begins)))
        wrong = [answer for answer in answers if not right(*answer)]
        share = 1 - len(wrong) / len(answers)
        results[name] = {"cases": len(answers), "accuracy": round(share, 6), "wrong": wrong[:12]}

    def held_out(kind: str) -> list[str]:
        return cases.prompts(kind, counts[kind])

    differences, chat = held_out("differences"), held_out("chat")
    zeros = [prompt for prompt in differences if cases.expected(prompt) == "0"]
    unreached = [p for p in zeros if cases.equal_pair_is_never_reached(int(p.split()[0]))]
    judge("sums", held_out("sums"), cases.is_right)
    judge("differences", differences, cases.is_right)
    judge("of these, x - x", zeros, cases.is_right)
    judge("of these, x a multiple of 3", unreached, cases.is_right)
    judge("sorts", held_out("sorts"), cases.is_right)
    judge("chat", chat, cases.is_right)
    judge("chat without begin token", chat, cases.is_right, begins=0)
    judge("chat with two begin tokens", chat, cases.is_right, begins=2)
    rng = random.Random(cases.EVALUATION_SEED)
    known = dict(facts.plain(rng) for _ in range(2000))
    judge("facts (seen in training)", list(known), lambda prompt, text: known[prompt] == text)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=2000, help="sums and differences to try, each")
    parser.add_argument("--sorts", type=int, default=2000)
    parser.add_argument("--chat", type=int, default=1000)
    parser.add_argument("--log", type=Path, default=Path("record"), help="folder for evaluation.json")
    options = parser.parse_args()
    counts = {
        "sums": options.pairs, "differences": options.pairs,
        "sorts": options.sorts, "chat": options.chat,
    }  # fmt: skip
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    record, passed = {"device": name}, True
    for name in ("float32", "bfloat16"):
        runner = Runner(options.folder, getattr(torch, name), device)
        record[name] = measure(runner, counts)
        for kind, result in record[name].items():
            passed &= result["accuracy"] >= LOWEST.get(kind, 0.0)
            print(name, kind, json.dumps(result), flush=True)
        record[name]["samples"] = {prompt: runner.answers([prompt], 120)[0] for prompt in SAMPLES}
    for prompt, text in record["float32"]["samples"].items():
        print(repr(prompt), "->", repr(text))
    options.log.mkdir(parents=True, exist_ok=True)
    (options.log / "evaluation.json").write_text(json.dumps(record, indent=1) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
