#!/usr/bin/env python3
"""Loads folders of `heddle synth` in transformers, and compares the results of both, in float32.

    tools/check_synth.py [--heddle build/release/apps/cli/heddle] [--out DIR] [NAME:LAYERS ...]

For each name: the log-probabilities of 60 random tokens (bound: 1e-4), the same bits with and without the folder, ids
and texts of the tokenizer, and the chat template. The default is a model of each family with one or two layers; the
largest needs 20 GB of memory and 7 GB below --out. Exits with 1 when anything differs. Needs torch and transformers
(tools/requirements.txt).
"""
import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BOUND = 1e-4
NUM_TOKENS = 60
MODELS = ["llama-2-7b:2", "llama-3-8b:2", "llama-3.2-1b:2", "codellama-34b:2", "qwen2-72b:1", "qwen2.5-7b:2",
          "qwen3-8b:2", "mistral-7b:2", "mixtral-8x7b:1", "deepseek-v2-lite:2"]
TEXTS = ["", " ", "Hello, world!", "the theory that nothing is enterprising", "  two  spaces\n\n\tand a tab ", "don't we'll",
         "naïve Ελληνικά 日本語 🙂 e\u0301", "1234567 3.14", "<|begin|>a<|end|> b <|im_start|>user\nHi<|im_end|>",
         "<|im_start|", "<|endoftext|>", "<|im_end|><|im_end|>", "\u00a0\u2003x\u200b", "a\x00b\x7f", "def f(x):\n    return x**2  # ok\n"]
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is <b>this</b> & \"that\"?\n"},
            {"role": "assistant", "content": "Ünï 🙂"}, {"role": "user", "content": ""}]


def run(command, lines=None):
    """Standard output of `heddle ...`; it reads `lines`, if any, from a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        if lines is not None:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            command = [*command, "--file", file.name]
        return subprocess.run(command, check=True, capture_output=True).stdout.decode()


def score(heddle, model, ids):
    return run([heddle, "score", "--model", model, "--json", "--dtype", "float32", "--compute", "float32"],
               [{"tokens": ids}])


def transformers_logprobs(folder, ids):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
    return [rows[i - 1, ids[i]].item() for i in range(1, len(ids))]


def largest_difference(ours, theirs):
    assert ours[0] is None and len(ours) == len(theirs) + 1
    return max(abs(a - b) for a, b in zip(ours[1:], theirs))


def wrong_texts(heddle, folder):
    """How many cases of the tokenizer or the template differ; prints each."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    cases = []
    for flags, special in ((), True), (("--no-special",), False):
        theirs = [tokenizer(text, add_special_tokens=special)["input_ids"] for text in TEXTS]
        ours = run([heddle, "tokenize", "--model", folder, "--json", *flags], [{"text": text} for text in TEXTS])
        cases += [("ids", text, json.loads(a)["ids"], b) for text, a, b in zip(TEXTS, ours.splitlines(), theirs)]
        ours = run([heddle, "tokenize", "--model", folder, "--decode", "--json", *flags], [{"ids": ids} for ids in theirs])
        texts = [tokenizer.decode(ids, skip_special_tokens=not special) for ids in theirs]
        cases += [("text", ids, json.loads(a)["text"], b) for ids, a, b in zip(theirs, ours.splitlines(), texts)]
    for flags, prompt in ((), True), (("--no-generation-prompt",), False):
        ours = run([heddle, "template", "--model", folder, *flags], [MESSAGES])
        theirs = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=prompt)
        cases.append(("template", prompt, ours, theirs))
    last = tokenizer.decode([len(tokenizer) - 1])
    cases.append(("vocabulary", last, json.load(open(os.path.join(folder, "config.json")))["vocab_size"], len(tokenizer)))
    wrong = [case for case in cases if case[2] != case[3]]
    for case in wrong:
        print("  {}: {!r}: heddle {!r}, transformers {!r}".format(*case))
    return len(wrong), len(cases)


def check(heddle, out, name, layers):
    folder = os.path.join(out, name)
    run([heddle, "synth", name, "--layers", str(layers), "--out", folder])
    try:
        vocab_size = json.load(open(os.path.join(folder, "config.json")))["vocab_size"]
        ids = torch.randint(vocab_size, (NUM_TOKENS,), generator=torch.Generator().manual_seed(3)).tolist()
        wrong, cases = wrong_texts(heddle, folder)
        ours = score(heddle, folder, ids)
        same = score(heddle, f"synth:{name},layers={layers}", ids) == ours
        difference = largest_difference(json.loads(ours)["logprobs"], transformers_logprobs(folder, ids))
        gc.collect()
    finally:
        shutil.rmtree(folder)
    print(f"{name}, layers {layers}: largest difference {difference:.2e}; without the folder "
          f"{'the same bits' if same else 'OTHER BITS'}; {wrong} of {cases} texts differ", flush=True)
    return difference <= BOUND and same and wrong == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build/release/apps/cli/heddle"))
    parser.add_argument("--out", help="where to write, and delete, the folders; default: a temporary folder")
    parser.add_argument("models", nargs="*", default=MODELS, metavar="NAME:LAYERS")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=arguments.out) as out:
        good = [check(arguments.heddle, out, *model.split(":")) for model in arguments.models]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
