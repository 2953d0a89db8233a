#!/usr/bin/env python3
"""Compares `heddle score` with transformers, token by token, in float32.

    tools/check_score.py [--heddle build/release/apps/cli/heddle] [--tokens 5000] [--model DIR ...]

Two kinds of model: a random Llama with a long context, made here from a fixed seed, which scores all tokens at once;
and the folders given (default: assets/demo-llama) on a text of as many tokens, in windows of their context as in
https://huggingface.co/docs/transformers/perplexity. Prints the largest difference of a log-probability and both
perplexities; exits with 1 when a difference exceeds 1e-4. Needs torch and transformers (tools/requirements.txt).
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BOUND = 1e-4


def random_llama(folder, context):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=1000, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=context, initializer_range=0.12, tie_word_embeddings=False)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def transformers_logprobs(model, ids, window, stride):
    """The guide's windows; None where a window has no row for the token."""
    logprobs = [None] * len(ids)
    done = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        with torch.no_grad():
            logits = model(torch.tensor([ids[begin:end]])).logits[0].double()
        rows = torch.log_softmax(logits, dim=-1)
        for i in range(max(done, begin + 1), end):
            logprobs[i] = rows[i - 1 - begin, ids[i]].item()
        done = end
        if end == len(ids):
            return logprobs


def heddle_score(heddle, folder, line, options):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        command = [heddle, "score", "--model", folder, "--file", file.name, "--json", "--dtype", "float32",
                   "--compute", "float32", *options]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def compare(name, heddle, folder, line, ids, window, stride):
    options = ["--window", str(window), "--stride", str(stride)]
    ours = heddle_score(heddle, folder, line, options)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    theirs = transformers_logprobs(model, ids, window, stride)
    assert ours["tokens"] == ids, "the tokens differ"
    assert [x is None for x in ours["logprobs"]] == [x is None for x in theirs], "other tokens have no log-probability"
    pairs = [(a, b) for a, b in zip(ours["logprobs"], theirs) if a is not None]
    difference = max(abs(a - b) for a, b in pairs)
    perplexity = math.exp(-sum(b for _, b in pairs) / len(pairs))
    print(f"{name}: {len(ids)} tokens, window {window}, stride {stride}: largest difference {difference:.2e} "
          f"(mean {sum(abs(a - b) for a, b in pairs) / len(pairs):.2e}), perplexity {ours['perplexity']:.6f}, "
          f"transformers {perplexity:.6f}")
    return difference


def natural_text(tokenizer, num_tokens):
    """The repository's own pages, cut where the tokenizer has that many tokens."""
    text = ""
    for path in ("docs/house.md", "docs/life_of_a_token.md", "CONTRIBUTING.md", "README.md", "docs/dependencies.md"):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text += file.read()
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if len(tokenizer(text[:middle])["input_ids"]) < num_tokens:
            low = middle + 1
        else:
            high = middle
    return text[:low]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build/release/apps/cli/heddle"))
    parser.add_argument("--tokens", type=int, default=5000)
    parser.add_argument("--model", nargs="*", default=[os.path.join(ROOT, "assets/demo-llama")])
    arguments = parser.parse_args()

    differences = []
    with tempfile.TemporaryDirectory() as folder:
        random_llama(folder, context=arguments.tokens + 100)
        ids = torch.randint(1000, (arguments.tokens,), generator=torch.Generator().manual_seed(2)).tolist()
        window = arguments.tokens + 100
        differences.append(compare("random llama", arguments.heddle, folder, {"tokens": ids}, ids, window, window))
    for folder in arguments.model:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        text = natural_text(tokenizer, arguments.tokens)
        ids = tokenizer(text)["input_ids"]
        context = json.load(open(os.path.join(folder, "config.json")))["max_position_embeddings"]
        window = min(context, len(ids))
        for stride in (window // 2, window):
            differences.append(compare(os.path.basename(folder.rstrip("/")), arguments.heddle, folder, {"text": text}, ids,
                                       window, stride))
    sys.exit(0 if max(differences) <= BOUND else 1)


if __name__ == "__main__":
    main()
