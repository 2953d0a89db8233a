#!/usr/bin/env python3
"""Generates docs/results/cpu.md from the JSON that `heddle bench` wrote to bench/results.

    bench/report.py [RESULTS_FOLDER [OUTPUT]]

All figures come from the files; do not edit the page by hand.
"""
import json
import pathlib
import sys

import plots
import rooflines

ROOT = pathlib.Path(__file__).resolve().parent.parent


def records(folder):
    found = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or not record.get("device", "cpu").startswith("cpu"):
            continue  # report_gpu.py reads those
        if record.get("bench") in ("decode", "prefill") and "cases" not in record:
            continue  # steps on a GPU, which docs/notes read
        if record.get("bench") in ("decode", "prefill", "load", "tokenize"):
            found.append((path.name, record))
    return found


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["--:"] * (len(head) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def percent(value):
    return f"{100 * value:.1f} %"


def share(value):
    """Of a limit; a star leads to the reason of one above 100 % and of one that is missing."""
    if value is None:
        return "- \\*"
    return percent(value) + (" \\*" if value > 1 else "")


def spread_of(spread):
    """Half the distance from p10 to p90, relative to the median."""
    return percent((spread["p90"] - spread["p10"]) / 2 / spread["median"]) if spread["median"] else "-"


def baseline_cells(case, field="peer_tokens_per_second"):
    if "paired_ratio" not in case:
        return ["-", "-", "-"]
    paired = case["paired_ratio"]
    rate = f"{case[field]:.2f}" if field in case else f"{case['peer_seconds']['median']:.3f}"
    return [rate, f"{case['ratio_of_medians']:.3f}", f"{paired['p10']:.3f}-{paired['p90']:.3f}"]


def check_cell(case):
    check = case["check"]
    if "rows" not in check:
        return "finite"
    return (f"{check['argmax_agree']}/{check['rows']}; {check['max_logit_difference']:.3f} "
            f"of {check['largest_logit']:.1f}")


def decode_table(entries):
    rows = []
    for _, record in entries:
        for case in record["cases"]:
            rows.append([str(record["threads"]), str(case["batch"]),
                         str(case["context"]), f"{case['milliseconds_per_token']:.2f}",
                         f"{case['tokens_per_second']:.2f}", f"{case['gbps']:.2f}",
                         f"{case['memory_read_gbps']['median']:.2f}", share(rooflines.decode_share(case)),
                         spread_of(case["seconds"]), percent(case["time_shares"]["attention"]), *baseline_cells(case),
                         check_cell(case)])
    return table(["threads", "batch", "context", "ms/token", "tokens/s", "GB/s", "memory GB/s",
                  "% of roofline", "spread", "attention", "llama.cpp tokens/s", "ratio", "paired", "argmax; logits differ"],
                 rows)


def prefill_table(entries):
    rows = []
    for _, record in entries:
        for case in record["cases"]:
            rows.append([str(record["threads"]), str(case["tokens"]),
                         str(case["context"]), f"{case['milliseconds']:.1f}", f"{case['tokens_per_second']:.1f}",
                         f"{case['tflops']:.3f}", f"{case['float32_gflops']['median'] / 1e3:.3f}",
                         share(rooflines.prefill_share(record, case)), spread_of(case["seconds"]),
                         percent(case["time_shares"]["attention"]), *baseline_cells(case), check_cell(case)])
    return table(["threads", "tokens", "context", "ms", "tokens/s", "TFLOP/s", "float32 TFLOP/s",
                  "% of float32", "spread", "attention", "llama.cpp tokens/s", "ratio", "paired", "argmax; logits differ"],
                 rows)


def load_table(entries):
    rows = [[str(record["threads"]), f"{record['bytes'] / 1e9:.3f}",
             f"{record['open_seconds']['median']:.3f}", f"{record['load_seconds']['median']:.3f}",
             f"{record['first_step_seconds']['median']:.3f}", f"{record['seconds']['median']:.3f}",
             spread_of(record["seconds"]), *baseline_cells(record, "peer_seconds_median")] for _, record in entries]
    return table(["threads", "GB", "open s", "load s", "first step s", "first token s", "spread", "llama.cpp s",
                  "ratio", "paired"], rows)


def tokenize_table(entries):
    rows = [[record["model"], str(record["bytes"]), str(record["tokens"]),
             f"{record['encode_megabytes_per_second']:.2f}", spread_of(record["encode_seconds"]),
             f"{record['decode_megabytes_per_second']:.2f}", spread_of(record["decode_seconds"])]
            for _, record in entries]
    return table(["model", "bytes", "tokens", "encode MB/s", "spread", "decode MB/s", "spread"], rows)


# What a star says under its table.
REASONS = {
    "decode": "\\* Above 100 %: the limit is memory read bandwidth, measured just before each sample, and other users of this "
              "(virtual) machine's memory change it in between.",
    "prefill": "\\* No share: the limit that was measured is the rate of float32 multiply-adds, and these GEMMs are bfloat16 dot products "
               "(AVX512-BF16 or AMX), which multiply more at a time. Their limit is not measured.",
}


BEFORE_AMX = "c8466c52"  # the commit of the Xeon's records that were taken beside llama.cpp

TABLES = {"decode": ("Decode", decode_table), "prefill": ("Prefill", prefill_table),
          "load": ("Load to first token", load_table), "tokenize": ("Tokenizer, one thread", tokenize_table)}


def conditions(entries):
    lines = []
    for name, record in entries:
        clocks = record["machine"].get("clock_mhz_after") or [0]
        lines.append(f"- `{name}`: {record['model']}, kernels {record['machine']['kernels']}, clocks "
                     f"{min(clocks):.0f}-{max(clocks):.0f} MHz, commit {record['commit']}, {record['date']}; "
                     f"`{' '.join(['heddle'] + record['command'][1:])}`")
    return "\n".join(lines)


def baselines(entries):
    lines = set()
    for _, record in entries:
        if "peer" in record:
            baseline = record["peer"]
            settings = "; ".join(f"{key}: {value}" for key, value in baseline["settings"].items())
            lines.add(f"Baseline: {baseline['name']}, {baseline['version']} ({settings}).")
    return "\n\n".join(sorted(lines))


def processor(record):
    """A short name: what distinguishes the machines of the records."""
    simd, threads = record["machine"]["simd"], record.get("threads")
    family = ("Xeon, Emerald Rapids" if "amx_bf16" in simd else "EPYC, Zen 4") if "avx512bf16" in simd or "avx512_bf16" in simd else record["machine"]["cpu"]
    return f"{family}, {threads} threads" if threads else family


def label(record):
    """The name of a bar, which says where a record is older than what it would show."""
    return processor(record) + ("\n(before the GEMMs for AMX)" if record["commit"].startswith(BEFORE_AMX) else "")


def speeds(case, record):
    rates = {"Heddle": case["tokens_per_second"]}
    if "peer_tokens_per_second" in case:
        rates[record["peer"]["name"]] = case["peer_tokens_per_second"]
    return rates


def draw(found, picture):
    """Bars: decode and prefill, Heddle and the baseline, of the records that have one."""
    compared = [record for _, record in found if "peer" in record and "cases" in record]
    panels = {}
    for title, kind, chosen in (("decode, one sequence", "decode", lambda case: case["batch"] == 1),
                                ("decode, eight sequences", "decode", lambda case: case["batch"] == 8),
                                ("prefill, 512 tokens", "prefill", lambda case: case["context"] == 0)):
        panels[f"llama-3.2-1b bfloat16: {title}"] = [
            (label(record), speeds(case, record)) for record in compared if record["bench"] == kind
            for case in record["cases"] if chosen(case)]
    plots.bars(panels, picture)


def report(found, picture):
    parts = ["# Speed on processors",
             "Made by `bench/report.py` from the files under `bench/results`, one of each machine and bench; `bench/README.md` says how it "
             "is measured. A ratio is llama.cpp's time divided by Heddle's, interleaved in one run: above 1, Heddle is faster. `paired` "
             "is the 10 % to 90 % range of the ratios of neighbouring samples; `spread` is half the range from 10 % to 90 %, of the median. "
             "The roofline of decode is the memory read bandwidth measured beside it; the share is GB/s over memory GB/s of the same row, "
             "both medians.",
             f"![tokens per second by processor]({picture.name})",
             "The Xeon's records are older than Heddle's GEMMs for AMX and do not show them."]
    for machine in sorted({record["machine"]["key"] for _, record in found}):
        entries = [(name, record) for name, record in found if record["machine"]["key"] == machine]
        parts.append(f"## {machine}")
        if baselines(entries):
            parts.append(baselines(entries))
        for kind, (title, make_table) in TABLES.items():
            of_kind = [(name, record) for name, record in entries if record["bench"] == kind]
            if of_kind:
                cells = make_table(of_kind)
                parts += [f"### {title}", cells] + ([REASONS[kind]] if "\\*" in cells else [])
        parts += ["### Runs", conditions(entries)]
    return "\n\n".join(parts) + "\n"


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/results"
    output = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/results/cpu.md"
    found = records(folder)
    if not found:
        sys.exit(f"report.py: no records of heddle bench in {folder}")
    output.parent.mkdir(parents=True, exist_ok=True)
    picture = output.with_name("cpu-tokens-per-second.svg")
    draw(found, picture)
    output.write_text(report(found, picture), encoding="utf-8")


main()
