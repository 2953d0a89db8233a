#!/usr/bin/env python3
"""Generates docs/results/gpu.md from the JSON of scripts/gpu.sh, copied to bench/results as gpu-*.json and gpu-*.jsonl.

    bench/report_gpu.py [RESULTS_FOLDER [OUTPUT]]

All figures come from the files; do not edit the page by hand. Missing results have no section.
"""
import json
import pathlib
import re
import statistics
import sys

import plots
from pages import parse_record

ROOT = pathlib.Path(__file__).resolve().parent.parent


def load(folder):
    records, runs = [], []
    for path in sorted(folder.glob("gpu-*.json*")):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            runs += [(path.name, parse_record(line)) for line in text.splitlines() if line.strip()]
            continue
        try:
            record = parse_record(text)
        except json.JSONDecodeError:  # from an interrupted run
            print(f"report_gpu.py: {path.name} is not whole and left out", file=sys.stderr)
            continue
        if isinstance(record, dict) and "bench" in record:
            records.append((path.name, record))
    return records, runs


def load_lines(folder):
    """Results of baselines that are programs of their own: a list of figures by (baseline, model)."""
    figures = {}
    for path in sorted(folder.glob("gpu-*.lines")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("{"):
                figure = json.loads(line)
                figures.setdefault((figure.get("peer", path.stem), figure.get("model", "")), []).append(figure)
    return figures


# Runs of a mode for a special purpose, by the part of their files' names after gpu-h200-.
PURPOSES = ("batches-", "pages-", "vllm-before-", "generate-steps-", "flashinfer-", "uncaptured-")


def purpose_of(name):
    rest = name.split("-", 2)[-1]
    return next((purpose for purpose in PURPOSES if rest.startswith(purpose)), "")


def of_kind(records, kind, purpose=""):
    return [(name, record) for name, record in records if record["bench"] == kind and purpose_of(name) == purpose]


def table(head, rows, text_columns=1):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] * text_columns + ["--:"] * (len(head) - text_columns)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def percent(value):
    return f"{100 * value:.1f} %"


def share(value):
    """Of the roofline; a star leads to the reason of one above 100 %, which stands above the tables."""
    return percent(value) + (" \\*" if value > 1 else "")


def spread_of(spread):
    return percent((spread["p90"] - spread["p10"]) / 2 / spread["median"]) if spread["median"] else "-"


def model_of(record):
    return record["model"].removeprefix("synth:")


def shares(case):
    parts = case["time_shares"]
    return [percent(parts[kind]) if kind in parts else "-" for kind in ("attention", "linear", "other", "gaps")]


BASELINE_HEAD = ["PyTorch ms", "ratio", "paired", "argmax agrees, logits differ"]


def baseline_cells(case, factor):
    if "peer_seconds" not in case:
        return ["-"] * 4
    check = case["check"]
    agree = (f"{check['argmax_agree']}/{check['rows']}, {percent(check['max_logit_difference'] / check['largest_logit'])}"
             if check.get("rows") and check["largest_logit"] else "-")
    paired = case["paired_ratio"]
    return [f"{factor * case['peer_seconds']['median']:.3f}", f"{case['ratio_of_medians']:.3f}",
            f"{paired['p10']:.3f}-{paired['p90']:.3f}", agree]


def decode_section(entries):
    rows = []
    for _, record in entries:
        for case in record["cases"]:
            floor = 1e3 * case["floor_seconds"] / case["tokens"]
            rows.append([f"{model_of(record)} {record['dtype_of_weights']}", str(case["batch"]), str(case["context"]),
                         f"{case['milliseconds_per_token']:.3f}", spread_of(case["seconds"]),
                         f"{case['tokens_per_second']:.0f}", f"{floor:.3f}", share(case["floor_share"]["median"]),
                         *shares(case), *baseline_cells(case, 1e3 / case["tokens"])])
    return ("## Decode\n\nMilliseconds a token (of each sequence) of whole steps. The roofline is the time to read the weights and the KV cache "
            "at the memory's read rate of the same minute. `attention`, `linear` and `other` are those operators alone, in the step's "
            "shapes; `gaps` is what the step takes more (below 0: operators overlap). The last column counts the likeliest tokens that "
            "are PyTorch's, too, and gives the largest difference of 256 logits as a share of the largest logit.\n\n" +
            table(["model", "batch", "context", "ms", "spread", "tokens/s", "roofline ms", "% of roofline", "attention", "linear",
                   "other", "gaps", *BASELINE_HEAD], rows))


def prefill_section(entries):
    rows = []
    for _, record in entries:
        for case in record["cases"]:
            rows.append([f"{model_of(record)} {record['dtype_of_weights']}", str(case["batch"]), str(case["tokens"]), str(case["context"]),
                         f"{case['milliseconds']:.2f}", spread_of(case["seconds"]), f"{case['tokens_per_second']:.0f}",
                         f"{case['tflops']:.0f}", share(case["floor_share"]["median"]), *shares(case),
                         *baseline_cells(case, 1e3)])
    return ("## Prefill\n\nThe roofline is the rate that a GEMM of 8192 x 8192 matrices keeps up for 64 ms, in the same run. A shorter prompt may end "
            "before the GPU's clock has come down to what the power limit sustains; `gaps` may be below 0 for that, too.\n\n" +
            table(["model", "batch", "tokens", "context", "ms", "spread", "tokens/s", "TFLOP/s", "% of roofline", "attention", "linear",
                   "other", "gaps", *BASELINE_HEAD], rows))


def operator_table(measured):
    compared = any("peer_seconds" in one for one in measured["operators"])
    refusals = [f"{one['operator']}: {one['peer_case']['refused']}." for one in measured["operators"] if "refused" in one.get("peer_case", {})]

    def beside_baseline(one):
        if not compared:
            return []
        return [f"{1e6 * one['peer_seconds']['median']:.2f}", f"{one['ratio_of_medians']:.2f}"] if "peer_seconds" in one else ["-", "-"]

    rows = []
    for one in measured["operators"]:
        if "failed" in one:
            rows.append([one["operator"], one["shape"], "-", "-", "-", "-", "-", "-", "-", one["failed"], *beside_baseline(one)])
            continue
        seconds = one["seconds"]["median"]
        error = one["relative_error"]
        rows.append([one["operator"], one["shape"], str(one["calls_per_step"]), f"{1e6 * seconds:.2f}",
                     f"{1e6 * one['floor_seconds']:.2f}", share(one["floor_share"]), f"{one['gbps']:.0f}",
                     f"{1e6 * seconds * one['calls_per_step']:.0f}",
                     f"{1e6 * (seconds - one['floor_seconds']) * one['calls_per_step']:.0f}",
                     (error if isinstance(error, str) else f"{error:.1e}") + ("" if one["right"] else " WRONG"), *beside_baseline(one)])
    rows.append(["all", "", str(sum(one.get("calls_per_step", 0) for one in measured["operators"])), "",
                 f"{1e6 * measured['floor_seconds_per_step']:.0f} a step",
                 share(measured["floor_seconds_per_step"] / measured["seconds_per_step"])
                 if measured["seconds_per_step"] else "-", "", f"{1e6 * measured['seconds_per_step']:.0f}",
                 f"{1e6 * (measured['seconds_per_step'] - measured['floor_seconds_per_step']):.0f}", "", *beside_baseline({})])
    return table(["operator", "shape", "calls", "us", "roofline us", "% of roofline", "GB/s", "us a step", "us above roofline", "error"] +
                 (["PyTorch us", "ratio"] if compared else []), rows, 2) + "".join(f"\n\n{refusal}" for refusal in refusals)


def operator_sections(records):
    tables = {}  # if a step has two, the one compared with PyTorch
    for kind in ("decode", "prefill", "operator"):
        for _, record in of_kind(records, kind):
            for case in record["cases"]:
                for measured in case.get("operators", []) if kind != "operator" else [case]:
                    what = "a decode step" if measured["tokens"] == 1 else f"{measured['tokens']} tokens a sequence"
                    head = (f"### {model_of(record)}, {record['dtype_of_weights']}: {what}, batch {measured['batch']}, "
                            f"context {measured['context']}")
                    if "peer" in record or head not in tables:
                        tables[head] = operator_table(measured)
    parts = [f"{head}\n\n{table}" for head, table in tables.items()]
    if not parts:
        return ""
    about = ("Where PyTorch ran interleaved (compiled, in a CUDA graph), a ratio above 1 says that Heddle is faster. PyTorch's residual has 16 "
             "bits, so its norm and embedding of many tokens move about half as much; its cache has no pages. In Heddle a short kernel "
             "overlaps with the next one of its kind (programmatic dependent launch), in PyTorch it does not. Attention is without its "
             "plan, which a step makes once.")
    about = about if any("PyTorch us" in part for part in parts) else ""
    return ("## Operators\n\nEach alone, calls in a CUDA graph over distinct operands larger than the L2 cache; operators without weights or keys "
            "find their operands in it. The roofline of GEMMs and of attention of many tokens is the rate that a GEMM of 8192 x 8192 "
            "matrices keeps up. `us above roofline`: per step, which shows where a step's time goes. `error`: against the CPU's operator, Euclidean, relative. " + about + "\n\n" + "\n\n".join(parts))


def typed(command):
    """As a user types it: without the limit on its time, and without the folders of the machine."""
    return re.sub(r"\S*/(assets/\S+)", r"\1", re.sub(r"^\S.*/heddle ", "heddle ", command))


def startup_section(entries):
    rows = [[f"`{record['name']}`", f"{statistics.median(record['seconds']):.2f}", f"{record['seconds'][0]:.2f}",
             f"`{typed(record['command'])}`"] for _, record in entries]
    return ("## From process start to the first token\n\nWall time of `heddle generate --max-tokens 1`, median of three and the first.\n\n" +
            table(["model", "s", "first", "command"], rows))


def batches_section(entries):
    rows = []
    for _, record in entries:
        for case in record["cases"]:
            floor = 1e3 * case["floor_seconds"] / case["tokens"]
            rows.append([model_of(record), str(case["batch"]), str(case["context"]), f"{case['milliseconds_per_token']:.3f}",
                         f"{case['tokens_per_second']:.0f}", f"{floor:.3f}", share(case["floor_share"]["median"])])
    return ("## By batch\n\nA graph is prepared for each batch up to 16, then for multiples of 8 up to 64; a batch between them is padded.\n\n"
            "![tokens per second by batch](gpu-decode-by-batch.svg)\n\n" +
            table(["model", "batch", "context", "ms", "tokens/s", "roofline ms", "% of roofline"], rows))


def generate_section(records, lines):
    """Tokens per second for a user, including sampling, text and scheduler, beside steps only."""
    rows = []
    for (what, model), figures in lines.items():
        steps = [case for _, record in of_kind(records, "decode", "generate-steps-") if model_of(record) == model for case in record["cases"]]
        if what == "generate" and steps:
            rate = figures[-1]["tokens_per_second"]
            rows.append([model, f"{rate:.1f}", f"{1e3 / rate:.3f}", f"{steps[0]['milliseconds_per_token']:.3f}",
                         percent(1e3 / rate / steps[0]["milliseconds_per_token"] - 1)])
    return ("## Generating\n\n512 tokens after a prompt of 1003 by `heddle generate --temperature 0.8`, with sampling and text, and steps alone "
            "(`bench decode`, 512 from context 1024) in the same call.\n\n" +
            table(["model", "tokens/s", "ms a token", "steps alone", "more"], rows)) if rows else ""


def pages_section(entries):
    entries = sorted(entries, key=lambda entry: entry[1]["page_size"])
    cases = [(case["batch"], case["context"]) for case in entries[0][1]["cases"]]
    rows = [[f"{batch} x {context}"] + [f"{entry[1]['cases'][i]['milliseconds_per_token']:.3f}" for entry in entries]
            for i, (batch, context) in enumerate(cases)]
    return (f"## By page size\n\n{model_of(entries[0][1])}, milliseconds a token with pages of so many tokens; the engine's are 64.\n\n" +
            table(["batch x context"] + [str(entry[1]["page_size"]) for entry in entries], rows))


def load_section(entries):
    rows = [[model_of(record), f"{record['bytes'] / 1e9:.2f}", f"{record['weights_seconds']['median']:.2f}",
             f"{record['read_seconds']['median']:.2f}", f"{record['pinned_copy_seconds']['median']:.2f}",
             f"{record['times_the_floor']:.2f}", f"{record['seconds']['median']:.2f}"]
            for _, record in entries if "weights_seconds" in record]
    return ("## Loading\n\nSeconds. `read`: the same bytes from files in memory into pinned memory by as many threads; `bus`: as many bytes from pinned memory to "
            "the GPU; the slower of both is the roofline. `first token`: with config, tokenizer, cache and one step.\n\n" +
            table(["model", "GB", "weights", "read", "bus", "times the roofline", "first token"], rows))


def ours_for(records, model, figure, purpose):
    """(batch, context or tokens) of a baseline's figure -> our milliseconds in a run of that purpose."""
    for name, record in records:
        if model_of(record) != model or purpose_of(name) != purpose:
            continue
        for case in record.get("cases", []):
            if figure.startswith("decode-b") and record["bench"] == "decode":
                batch, context = figure.removeprefix("decode-b").split("-")
                if (case["batch"], case["context"]) == (int(batch), int(context)):
                    return case["milliseconds_per_token"]
            if (figure.startswith("prefill-") and record["bench"] == "prefill" and case["batch"] == 1
                    and case["tokens"] == int(figure.split("-")[1])):
                return case["milliseconds"]
    return None


def vllm_section(records, lines):
    rows = []
    for (baseline, model), figures in lines.items():
        if baseline != "vllm":
            continue
        for one in figures:
            theirs = one.get("ms_per_token_steady") or one.get("ms_per_token") or one.get("ms")
            if not theirs or one["figure"].startswith("throughput"):
                continue
            before = ours_for(records, model, one["figure"], "vllm-before-")
            after = ours_for(records, model, one["figure"], "")
            ours = [value for value in (before, after) if value]
            rows.append([model, one["figure"], *(f"{value:.3f}" if value else "-" for value in (before, theirs, after)),
                         f"{theirs / statistics.mean(ours):.2f}" if ours else "-"])
    loads = [one for figures in lines.values() for one in figures if one.get("figure") == "load" and "vllm" in one]
    about = f" vLLM {loads[0]['vllm']}, PyTorch {loads[0]['torch']}, {loads[0]['gpu']}." if loads else ""
    return ("## vLLM\n\nMilliseconds a token, or of a prompt, in one call: Heddle, vLLM, Heddle again. vLLM's include its scheduler and sampler, Heddle's are "
            f"steps; a ratio above 1: Heddle is faster.{about}\n\n" +
            table(["model", "figure", "before", "vLLM", "after", "ratio"], rows, 2)) if rows else ""


def flashinfer_section(records, lines):
    ours, theirs = {}, {}
    for _, record in of_kind(records, "operator", "flashinfer-"):
        for case in record["cases"]:
            for one in case["operators"]:
                if "failed" in one or not one["right"]:
                    continue
                keys, heads = (part.split(" ")[0] for part in one["shape"].split(", ")[1:3])  # "1 x 1, 1024 keys, 32/8 heads of 128"
                ours.setdefault((heads, int(keys)), []).append(one)
    for (baseline, _), figures in lines.items():
        for one in figures:
            if baseline == "flashinfer" and one["figure"] == "decode" and "us" in one:
                way = "tensor cores" if one["tensor_cores"] else "CUDA cores"
                shape = (f"{one['heads']}/{one['kv_heads']}", one["context"])
                theirs.setdefault(shape, {}).setdefault(way, []).append(one["us"])
    rows = []
    for shape in sorted(ours.keys() & theirs.keys(), key=lambda shape: (-int(shape[0].split("/")[1]), shape[1])):
        times = [1e6 * one["seconds"]["median"] for one in ours[shape]]
        way, best = min(((way, statistics.median(us)) for way, us in theirs[shape].items()), key=lambda entry: entry[1])
        mine = statistics.median(times)
        rows.append([shape[0], str(shape[1]), f"{mine:.1f}", f"{min(times):.1f}-{max(times):.1f}",
                     share(statistics.median(one["floor_share"] for one in ours[shape])), f"{best:.1f}", way, f"{best / mine:.2f}"])
    loads = [one for figures in lines.values() for one in figures if one.get("figure") == "load" and "flashinfer" in one]
    about = f" FlashInfer {loads[0]['flashinfer']}, PyTorch {loads[0]['torch']}, {loads[0]['gpu']}." if loads else ""
    return ("## FlashInfer\n\nDecode attention of one sequence, microseconds a call in a CUDA graph over caches larger than L2, bfloat16, heads of "
            "128, pages of 64 (FlashInfer 16). Interleaved in one call: Heddle three times, FlashInfer twice between; medians; the faster of FlashInfer's two "
            f"ways.{about}\n\n" +
            table(["heads", "keys", "Heddle us", "from-to", "% of roofline", "FlashInfer us", "way", "ratio"], rows)) if rows else ""


def runs_section(runs):
    rows = [[f"`{run['run']}`", "skipped" if run.get("skipped") else "ok" if run["ok"] else f"failed ({run['exit']})",
             str(run.get("seconds", "-")), run.get("commit", "-")] for _, run in runs]
    return "## What ran\n\n" + table(["run", "ended", "s", "commit"], rows)


def conditions(records):
    lines = []
    for name, record in records:
        if record["bench"] == "startup":
            lines.append(f"- `{name}`: commit {record['commit']}")
            continue
        gpu = record.get("gpu") or {}
        clocks = gpu.get("clock_mhz") or {}
        after = gpu.get("clock_mhz_after") or {}
        lines.append(f"- `{name}`: {gpu.get('name', 'no GPU')}, driver {gpu.get('cuda_driver', '-')}, SM clock "
                     f"{clocks.get('sm', '-')} to {after.get('sm', '-')} MHz, page size {record.get('page_size', '-')}, commit "
                     f"{record['commit']}, {record['date']}; `{' '.join(['heddle'] + record['command'][1:])}`")
        if "peer" in record:
            settings = "; ".join(f"{key}: {value}" for key, value in record["peer"]["settings"].items())
            lines.append(f"  - baseline: {record['peer']['name']}, {record['peer']['version']} ({settings})")
    return "## Runs\n\n" + "\n".join(lines)


def report(records, runs, lines):
    parts = ["# Speed on one GPU",
             "Made by `bench/report_gpu.py` from the files under `bench/results`; `bench/README.md` says how it is measured. A ratio is "
             "PyTorch's time divided by Heddle's, interleaved in one run: above 1, Heddle is faster. `spread` is half the range from "
             "10 % to 90 %, of the median. `Runs` names each record's commit. The runs were on different machines, which differ by 2 to 3 %; "
             "a row, and a ratio, are of one call.",
             "![tokens per second by context](gpu-decode-by-context.svg)",
             "\\* Above 100 % of the roofline: the roofline is measured beside the operator. The largest GEMVs (`linear logits`) read "
             "memory up to 2 % faster than the kernel that measures its rate, and of the 50 MB of rotation and KV-cache write at 2048 tokens the L2 cache of 60 MB "
             "may hold a part; the shares of a step, `attention` to `gaps`, are no shares of "
             "the roofline, and add up to 100 % with negative gaps where operators overlap."]
    for kind, section in (("decode", decode_section), ("prefill", prefill_section), ("startup", startup_section)):
        if of_kind(records, kind):
            parts.append(section(of_kind(records, kind)))
    parts.append(vllm_section(records, lines))
    parts.append(flashinfer_section(records, lines))
    for purpose, kind, section in (("batches-", "decode", batches_section), ("pages-", "decode", pages_section),
                                   ("", "load", load_section)):
        if of_kind(records, kind, purpose):
            parts.append(section(of_kind(records, kind, purpose)))
    parts.append(generate_section(records, lines))
    parts.append(operator_sections(records))
    if runs:
        parts.append(runs_section(runs))
    parts.append(conditions(records))
    return "\n\n".join(part for part in parts if part) + "\n"


def draw(records, folder):
    """The plots that the page shows."""
    models = {}
    for _, record in of_kind(records, "decode"):
        series = {"Heddle": [], "PyTorch": [], "roofline": []}
        for case in record["cases"]:
            if case["batch"] == 1 and "peer_seconds" in case:
                series["Heddle"].append((case["context"], case["tokens_per_second"]))
                series["PyTorch"].append((case["context"], case["peer_tokens_per_second"]))
                series["roofline"].append((case["context"], case["tokens"] / case["floor_seconds"]))
        if series["Heddle"]:
            models[model_of(record)] = series
    if models:
        plots.contexts(models, "Decode of one sequence on one H200, weights of 16 bits", folder / "gpu-decode-by-context.svg")
    for _, record in of_kind(records, "decode", "batches-"):
        cases = record["cases"]
        plots.batches({"Heddle": [(case["batch"], case["tokens_per_second"]) for case in cases],
                       "roofline": [(case["batch"], case["batch"] * case["tokens"] / case["floor_seconds"]) for case in cases]},
                      f"Decode of {model_of(record)}, bfloat16, context {cases[0]['context']}, one H200",
                      folder / "gpu-decode-by-batch.svg")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/results"
    output = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/results/gpu.md"
    records, runs = load(folder)
    records = [(name, record) for name, record in records if record["bench"] in ("decode", "prefill", "operator", "startup", "load")]
    if not records:
        sys.exit(f"report_gpu.py: no gpu-*.json of heddle bench in {folder}")
    output.parent.mkdir(parents=True, exist_ok=True)
    draw(records, output.parent)
    output.write_text(report(records, runs, load_lines(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
