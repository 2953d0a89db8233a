#!/usr/bin/env python3
"""Draws records of `heddle bench serve --json` as latency by throughput, a line for each record.

    bench/plot_serve.py OUT.svg Heddle=heddle.json vLLM=vllm.json
"""
import json
import pathlib
import sys

import plots


def main():
    if len(sys.argv) < 3 or not all("=" in argument for argument in sys.argv[2:]):
        sys.exit(__doc__.strip())
    series, titles = {}, []
    for argument in sys.argv[2:]:
        name, file = argument.split("=", 1)
        record = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
        if record.get("bench") != "serve":
            sys.exit(f"{file}: no record of heddle bench serve")
        series[name] = record["cases"]
        titles.append(f"{record['model']}, {record['prompt_tokens']} + {record['output_tokens']} tokens")
    plots.latency_throughput(series, "; ".join(dict.fromkeys(titles)), sys.argv[1])


if __name__ == "__main__":
    main()
