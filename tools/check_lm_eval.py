#!/usr/bin/env python3
"""Runs lm-eval's local-completions against `heddle serve`, and compares what both say of the same texts.

Usage: tools/check_lm_eval.py PROGRAM MODEL [-- OPTION... of heddle serve]   (pip install 'lm_eval[api]' transformers datasets)

The tasks are local: perplexity of texts (echo with log-probabilities of token ids), a choice between two ends (likelihoods of
a continuation), and a continuation (greedy, until a stop string). Nothing is fetched. The bits per byte that lm-eval finds
must be those of `heddle score`. Prints both and exits 1 if they differ.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

TEXTS = ["Once upon a time, there was a little girl named Lily.", "Tom saw a big red ball and he wanted it very much.",
         "The cat sat on the mat. It was a sunny day and the birds were singing."]
CHOICES = [("Once upon a time, there was a little", [" girl", " carburetor"], 0),
           ("Tom wanted to play with the", [" parliament", " ball"], 1), ("The dog ran to the", [" park", " derivative"], 0)]

TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
{rest}"""

PERPLEXITY = """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: bits_per_byte
"""

CHOICE = """output_type: multiple_choice
doc_to_text: "{{query}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
target_delimiter: ""
metric_list:
  - metric: acc
"""

CONTINUATION = """output_type: generate_until
doc_to_text: "{{query}}"
doc_to_target: "{{choices[gold]}}"
generation_kwargs: {until: ["."], max_gen_toks: 24, do_sample: false}
metric_list:
  - metric: exact_match
"""


def write_tasks(folder):
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (folder / "choices.jsonl").write_text(
        "".join(json.dumps({"query": q, "choices": c, "gold": g}) + "\n" for q, c, g in CHOICES))
    for name, data, rest in (("heddle_texts", "texts", PERPLEXITY), ("heddle_choices", "choices", CHOICE),
                             ("heddle_continuation", "choices", CONTINUATION)):
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, data=folder / f"{data}.jsonl", rest=rest))


def bits_per_byte(program, model, folder):
    run = subprocess.run([program, "score", model, "--file", folder / "texts.jsonl", "--json"], stdout=subprocess.PIPE,
                         text=True, check=True)
    nats = -sum(sum(x for x in json.loads(line)["logprobs"] if x is not None) for line in run.stdout.splitlines())
    return nats / math.log(2) / sum(len(text.encode()) for text in TEXTS)


def main():
    program, model = sys.argv[1:3]
    more = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    server = subprocess.Popen([program, "serve", model, "--port", "0", *more], stdout=subprocess.PIPE, text=True)
    try:
        words = server.stdout.readline().split()
        name, url = words[2], words[4]
        for _ in range(1000):
            try:
                urllib.request.urlopen(url + "/ready", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            write_tasks(folder)
            subprocess.run(
                [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args",
                 f"model={name},base_url={url}/v1/completions,num_concurrent=4,max_retries=1,tokenizer={model}", "--tasks",
                 "heddle_texts,heddle_choices,heddle_continuation", "--include_path", place, "--output_path",
                 folder / "out"], check=True, env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
            results = json.loads(next((folder / "out").rglob("results_*.json")).read_text())["results"]
            theirs = results["heddle_texts"]["bits_per_byte,none"]
            ours = bits_per_byte(program, model, folder)
        print(f"bits per byte: lm-eval {theirs:.4f}, heddle score {ours:.4f}; "
              f"choices right: {results['heddle_choices']['acc,none']:.2f}")
        if abs(theirs - ours) > 1e-3:
            raise SystemExit("they differ")
    finally:
        server.terminate()
        server.wait(timeout=60)


if __name__ == "__main__":
    main()
