#!/usr/bin/env python3
"""Compares `heddle score` with transformers, token by token, in float32.

    tools/check_score.py [--heddle build/release/apps/cli/heddle] [--tokens 5000] [--model DIR ...] [--record]
    tools/check_score.py --page

Two kinds of models: random ones of each family with a long context, generated here from a fixed seed, which score all tokens
at once; and the given folders (default: assets/demo-llama) on a text of as many tokens, in windows of their context as in
https://huggingface.co/docs/transformers/perplexity. Prints the largest difference of a log-probability and both
perplexities; --record also writes bench/results/score.json and docs/results/score.md, --page only the page from that record.
Exits with 1 when a difference exceeds 1e-4. Needs torch and transformers (tools/requirements.txt), --page neither.
"""
import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import torch
    import transformers
except ImportError:  # --page needs neither
    torch = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BOUND = 1e-4
RECORD = os.path.join(ROOT, "bench/results/score.json")
PAGE = os.path.join(ROOT, "docs/results/score.md")


def random_models(context):
    """(name, function that creates it): small models with the differences of the families, scaled rope, and windowed
    attention."""
    sizes = dict(vocab_size=1000, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=8,
                 num_key_value_heads=2, max_position_embeddings=context, initializer_range=0.12,
                 tie_word_embeddings=False)
    llama3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}
    return [
        ("Llama-2", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))),
        ("Llama-3.1", lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, rope_parameters=llama3))),
        ("Mistral, sliding window of 700",
         lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, sliding_window=700))),
        ("Qwen2.5", lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))),
        ("Qwen3, head_dim 32", lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes, head_dim=32))),
    ]


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
    differences = [abs(a - b) for a, b in pairs]
    result = {"model": name, "tokens": len(ids), "window": window, "stride": stride, "largest": max(differences),
              "mean": sum(differences) / len(pairs), "perplexity": ours["perplexity"],
              "theirs": math.exp(-sum(b for _, b in pairs) / len(pairs))}
    print("{model}: {tokens} tokens, window {window}, stride {stride}: largest difference {largest:.2e} (mean {mean:.2e}), "
          "perplexity {perplexity:.6f}, transformers {theirs:.6f}".format(**result), flush=True)
    return result


def record_of(results, heddle):
    """What --record writes."""
    version = subprocess.run([heddle, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True,
                            text=True).stdout.strip()
    return {"bench": "score", "heddle": version, "commit": commit or "unknown",
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "transformers": transformers.__version__, "torch": torch.__version__, "bound": BOUND, "cases": results}


def page(record):
    rows = "".join("| {model} | {tokens} | {window} | {stride} | {largest:.1e} | {mean:.1e} | {perplexity:.2f} | {theirs:.2f} |\n"
                   .format(**case) for case in record["cases"])
    return f"""# `heddle score` against transformers

Made by `tools/check_score.py` from [score.json](../../bench/results/score.json): {record["heddle"]}, commit {record["commit"]},
{record["date"]}; transformers {record["transformers"]}, torch {record["torch"]}; float32 on a processor. The difference is that of a
token's log-probability, and the bound is {record["bound"]:.0e}. The first models are random and small, one of each family, and score
the whole text at once; demo-llama scores pages of this repository in windows of its context.

| model | tokens | window | stride | largest difference | mean | perplexity | transformers |
|---|--:|--:|--:|--:|--:|--:|--:|
{rows}"""


def natural_text(tokenizer, num_tokens):
    """The repository's own pages, truncated to that many tokens."""
    text = ""
    for path in ("docs/architecture.md", "docs/life_of_a_token.md", "CONTRIBUTING.md", "README.md", "docs/dependencies.md"):
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


def write_page():
    with open(RECORD, encoding="utf-8") as file:
        record = json.load(file)
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page(record))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default=os.path.join(ROOT, "build/release/apps/cli/heddle"))
    parser.add_argument("--tokens", type=int, default=5000)
    parser.add_argument("--model", nargs="*", default=[os.path.join(ROOT, "assets/demo-llama")])
    parser.add_argument("--record", action="store_true", help="write bench/results/score.json and the page")
    parser.add_argument("--page", action="store_true", help="only write the page from bench/results/score.json")
    arguments = parser.parse_args()
    if arguments.page:
        write_page()
        return
    if torch is None:
        parser.error("needs torch and transformers: pip install -r tools/requirements.txt")

    results = []
    window = arguments.tokens + 100
    ids = torch.randint(1000, (arguments.tokens,), generator=torch.Generator().manual_seed(2)).tolist()
    for name, make in random_models(window):
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(1)
            make().save_pretrained(folder)
            results.append(compare(name, arguments.heddle, folder, {"tokens": ids}, ids, window, window))
    for folder in arguments.model:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        text = natural_text(tokenizer, arguments.tokens)
        ids = tokenizer(text)["input_ids"]
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            window = min(json.load(file)["max_position_embeddings"], len(ids))
        for stride in (window // 2, window):
            results.append(compare(os.path.basename(folder.rstrip("/")), arguments.heddle, folder, {"text": text}, ids,
                                   window, stride))
    if arguments.record:
        record = record_of(results, arguments.heddle)  # before the file changes, which would make the tree dirty
        with open(RECORD, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
            file.write("\n")
        write_page()
    sys.exit(0 if max(result["largest"] for result in results) <= BOUND else 1)


if __name__ == "__main__":
    main()
