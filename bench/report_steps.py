#!/usr/bin/env python3
"""Generates docs/results/experts.md and docs/results/token_weave.md from the JSON in bench/results.

    bench/report_steps.py [RESULTS_FOLDER [OUTPUT_FOLDER]]

Reads `experts-X-decode-*.json` and `modes-X-{MODE}-{decode,prefill}-*.json` (`heddle bench decode|prefill`), and
`modes-X-figure-N.json` (`heddle bench token-weave --figure N`). All figures come from the files; do not edit the pages by hand.
"""
import argparse
import pathlib
import re

from pages import ROOT, command, records_of, source, table, write

MODES = ("default", "symmetric", "fused", "weave", "no-comm")
# For records of one token's experts: all layers, those without experts, experts of a layer, of a token, bytes of one in bfloat16.
EXPERTS = {
    "synth:deepseek-v2-lite": {"layers": 27, "dense": 1, "count": 64, "per_token": 6, "bytes": 3 * 1408 * 2048 * 2},
    "synth:mixtral-8x7b": {"layers": 32, "dense": 0, "count": 8, "per_token": 2, "bytes": 3 * 14336 * 4096 * 2},
}


def expected_experts(count, per_token, tokens):
    """Distinct experts of a layer that so many tokens choose, evenly and independently (src/layers/experts.h)."""
    return count * (1 - (1 - per_token / count) ** tokens)


def batch_reads(record, case):
    """(experts of a layer that a step reads, bytes of the step). Older records have one token's experts in the bytes."""
    if "experts" in record:
        return case["expected_experts"], case["bytes_per_step"]
    name, _, changes = record["model"].partition(",")
    model = EXPERTS[name]
    layers = int(changes.removeprefix("layers=") or model["layers"]) - model["dense"]
    read = expected_experts(model["count"], model["per_token"], case["batch"])
    return read, case["bytes_per_step"] + (read - model["per_token"]) * layers * model["bytes"]


def experts(folder):
    page = ["# Models with experts and latent attention", "",
            "Made by `bench/report_steps.py`. What was expected and what it means: [notes/experts.md](../notes/experts.md).", "",
            "The roofline is the bytes of a step over the memory's read rate, measured in the same run. Of a layer's E routed experts, of which"
            " a token chooses k, a step of B tokens is counted as reading E (1 - (1 - k/E)^B), which is what even and independent choices"
            " give on average. The choices of these runs were not counted.", ""]
    for name, record in records_of(folder, "experts-*-decode-*.json"):
        rows = []
        for case in record["cases"]:
            read, bytes_ = batch_reads(record, case)
            more = bytes_ / case["bytes_per_step"]
            rows.append([case["batch"], case["context"], f"{read:.1f}", f"{case['milliseconds_per_token']:.2f}",
                         f"{more * case['floor_seconds'] / case['tokens'] * 1e3:.2f}", f"{more * case['floor_share']['median']:.0%}",
                         f"{bytes_ * 1e-9:.2f}", f"{more * case['gbps'] * 1e-3:.2f}", f"{case['memory_read_gbps']['median'] * 1e-3:.2f}"])
        page += [f"## {record['model']}, decode", "", f"{source(name, record)}. `{command(record)}`", "",
                 table(["batch", "context", "experts read", "ms a step", "roofline, ms", "of the roofline", "GB a step", "TB/s",
                        "memory, TB/s"], rows)]
    return page


def milliseconds(case, bench):
    return case["milliseconds_per_token"] if bench == "decode" else case["seconds"]["median"] * 1e3


def ranks_of(name, record):
    """So many ranks on which GPUs, and whether they share one, where no link is crossed."""
    ranks, gpus = f"{record['ranks']} rank{'s' if record['ranks'] > 1 else ''}", record["machine"]["key"].rsplit("; ", 1)[1]
    if "-shared-" in name:  # one GPU, of as many as the machine has
        return f"{ranks} that share one {gpus.split(' x ')[-1]}"
    return f"{ranks} on {gpus}, a GPU each"


# Of calls, by their tokens.
CALL_FIGURES = {4: "All-reduce, residual and norm", 5: "All-reduce, and reduce-scatter with all-gather", 6: "Reduce-scatter"}
# Of calls, by their SMs.
SM_FIGURES = {7: "SMs of the all-reduce", 10: "SMs of the fused operator"}


def call_figure(number, title, name, record):
    for row in record["rows"]:  # as older records call it
        row["way"] = {"all-reduce, norm": "Heddle's all-reduce, norm", "all-reduce": "Heddle's all-reduce"}.get(row["way"], row["way"])
    tokens = sorted({row["tokens"] for row in record["rows"]})
    ways = dict.fromkeys(row["way"] for row in record["rows"])
    field, unit = ("sent_gb_per_second", "GB/s that a rank sends") if number == 6 else ("microseconds", "Microseconds")
    cells = {(row["way"], row["tokens"]): f"{row[field]:.1f}" for row in record["rows"]}
    page = [f"## {title} (figure {number}), rows {record['rows'][0]['hidden']} wide, {ranks_of(name, record)}", "",
            f"{source(name, record)}. {unit} by tokens. Not here: {record['not_reproducible_here']}.", "",
            table(["way", *map(str, tokens)], [[way, *(cells.get((way, count), "") for count in tokens)] for way in ways])]
    if number != 6 and record["ranks"] > 1 and not any("NCCL" in way for way in ways):
        page += ["This record has no row by NCCL, so it compares Heddle's operators with each other alone.", ""]
    return page


def sm_figure(number, title, name, record):
    tokens = sorted({row["tokens"] for row in record["rows"]})
    counts = sorted({row["sms"] for row in record["rows"]})
    times = {(row["tokens"], row["sms"]): row["microseconds"] for row in record["rows"]}
    return [f"## {title} (figure {number}), rows {record['rows'][0]['hidden']} wide, {ranks_of(name, record)}", "",
            f"{source(name, record)}. Microseconds by SMs, and in brackets over the time on {counts[-1]}."
            + " Target: 1.15 on 16 SMs, 1.4 on 8." * (number == 10), "",
            table(["tokens", *map(str, counts)],
                  [[count, *(f"{times[count, sms]:.1f} ({times[count, sms] / times[count, counts[-1]]:.2f})" for sms in counts)] for count in tokens])]


# Figures of steps in each mode, against the same step without communication.
STEP_FIGURES = {1: "What communication adds", 9: "One part, equal and smart split", 11: "Latency of a prompt", 14: "One layer"}


def step_figure(number, title, name, record):
    rows = [[row["tokens"], row["mode"], row["split"], f"{row['seconds']['median'] * 1e3:.2f}", f"{row['of_no_comm']:.3f}"] for row in record["rows"]]
    return [f"## {title} (figure {number}), {record['model']}, {ranks_of(name, record)}", "", f"{source(name, record)}. `{command(record)}`", "",
            table(["tokens", "mode", "split", "ms", "of no-comm"], rows)]


TRACE_FIGURES = {12: "Throughput of traces", 13: "Throughput by the tokens of a step"}


def traces(number, title, name, record):
    """Older records do not say how many of their steps were in two parts."""
    sizes = [[], ["tokens of a step"]][number == 13]
    rows = [[row["workload"], *(row["step_tokens"] for _ in sizes), row["mode"], *(f"{row['steps_in_two_parts']} of {row['steps']}" for _ in range("steps" in row)),
             f"{row['seconds']['median']:.3f} ({row['seconds']['p10']:.3f} to {row['seconds']['p90']:.3f})",
             f"{row['tokens_per_second']:.0f}", f"{row['of_default']:.2f}"] for row in record["rows"]]
    counted = "steps" in record["rows"][0]
    page = [f"## {title} (figure {number}), {record['model']}, {ranks_of(name, record)}", "",
            f"{source(name, record)}. `{command(record)}`", "", "A workload is prompt tokens : output tokens. Target: 1.15 of default.", "",
            table(["workload", *sizes, "mode", *["steps in two parts"] * counted, "s (p10 to p90)", "tokens/s", "of default"], rows)]
    if not counted:
        page += ["Modes ran one after the other in this record, `default` first, and the first sample of each may have captured graphs. How"
                 " many of its steps were in two parts is not recorded.", ""]
    return page


def predictions(folder):
    """Of bench/predict_weave.py."""
    page = []
    for name, record in records_of(folder, "weave-predicted-*.json"):
        ranks = sorted({row["ranks"] for row in record["rows"]})
        cells = {(row["tokens"], row["mode"], row["ranks"]): row for row in record["rows"]}
        lines = [[tokens, mode, f"{cells[tokens, mode, 2]['on_two']:.3f}",
                  *(f"{cells[tokens, mode, n]['seconds'] * 1e3:.3f} ({cells[tokens, mode, n]['of_no_comm']:.3f})" for n in ranks)]
                 for tokens, mode in dict.fromkeys((row["tokens"], row["mode"]) for row in record["rows"])]
        calls = {(row["tokens"], row["ranks"]): row["seconds"] * 1e6 for row in record["operators"]}
        page += [f"## Predicted: one layer on several GPUs, {record['model']}", "",
                 f"From `{name}`, made by `bench/predict_weave.py` from " + ", ".join(f"`{of}` ({commit})" for of, commit in record["commits"].items())
                 + ". Nobody has measured 4 or 8 of these GPUs.", "",
                 "Milliseconds, and in brackets over `no-comm` on as many ranks. On 2 ranks it is what was measured: `measured over model` of it"
                 " is what the model leaves out there, and more ranks get the same factor.", "",
                 table(["tokens", "mode", "measured over model", *(f"{n} GPUs" for n in ranks)], lines),
                 f"The fused operator, rows {record['operators'][0]['hidden']} wide, microseconds:", "",
                 table(["tokens", *(f"{n} GPUs" for n in ranks)],
                       [[tokens, *(f"{calls[tokens, n]:.1f}" for n in ranks)] for tokens in dict.fromkeys(row["tokens"] for row in record["operators"])])]
        page += predicted_traces(record)
    return page


def predicted_traces(record):
    cells = {(row["workload"], row["mode"], row["ranks"]): row for row in record["traces"]}
    ranks = sorted({count for _, _, count in cells})
    lines = [[workload, mode, *(f"{cells[workload, mode, n]['seconds']:.3f} ({cells[workload, mode, n]['of_default']:.2f})" for n in ranks)]
             for workload, mode in dict.fromkeys((workload, mode) for workload, mode, _ in cells)]
    return [f"Throughput of traces of {record['traces_model']}, seconds, and in brackets of the default's throughput. `no-comm` is the bound.", "",
            table(["workload", "mode", *(f"{n} GPUs" for n in ranks)], lines)]


def norm_share(name, record):
    """Figure 3."""
    rows = [[row["tokens"], row["norms"], f"{row['norm_seconds'] * 1e3:.3f}", f"{row['seconds']['median'] * 1e3:.3f}", f"{row['of_step']:.1%}"]
            for row in record["rows"]]
    return [f"## RMSNorm in a step of the default (figure 3), {record['model']}, {ranks_of(name, record)}", "",
            f"{source(name, record)}. `{command(record)}`", "", "Norms are timed alone, in the shapes of the step.", "",
            table(["tokens", "norms", "ms of norms", "ms of the step", "norms of the step"], rows)]


def of_figures(folder, figures, section):
    return [line for number, title in figures.items() for name, record in records_of(folder, f"modes-*-figure-{number}.json")
            for line in section(number, title, name, record)]


def modes(folder):
    page = ["# How ranks add what blocks leave", "",
            "Made by `bench/report_steps.py`. What was expected and what it means: [notes/token_weave.md](../notes/token_weave.md).", "",
            "`no-comm` leaves communication out, so its text is wrong: it says what a step would take if communication were free.", "",
            "With a GPU each, ranks add over the links between GPUs. Where they share one GPU, each has half of its SMs and nothing crosses a"
            " link, so these tables say what the operators cost, not what a link does.", "",
            "Each table names the commit that was measured. Records of 45ee396a are older than TMA, than fused sums in `weave`, than 8 SMs for"
            " transfers and than NCCL in `default`: their `weave` and `default` are other code than today's.", ""]
    runs = {}
    for name, record in records_of(folder, "modes-*.json"):
        if found := re.fullmatch(r"modes-(.*)-ranks-(.*)-(decode|prefill)-(.*)\.json", name):
            runs.setdefault((found[1], found[3], found[4]), {})[found[2]] = (name, record)
    for (_, bench, model), of in runs.items():
        name, record = of["default"]
        base = [milliseconds(case, bench) for case in record["cases"]]
        head = [f"{c['batch']} x {c['context']}" if bench == "decode" else f"{c['tokens']} tokens" for c in record["cases"]]
        rows = []
        for mode in (mode for mode in MODES if mode in of):
            times = [milliseconds(case, bench) for case in of[mode][1]["cases"]]
            rows.append([mode, *(f"{time:.2f} ({first / time:.2f}x)" for time, first in zip(times, base))])
        shares = ""
        if "no-comm" in of:
            floor = [milliseconds(case, bench) for case in of["no-comm"][1]["cases"]]
            shares = f"; communication takes {', '.join(f'{1 - f / b:.0%}' for f, b in zip(floor, base))} of the default's"
        page += [f"## {model}, {bench}, {ranks_of(name, record)}", "", source(name, record) + ", likewise the other modes. Milliseconds a step, and"
                 f" the default's over it{shares}.", "", table(["mode", *head], rows)]
    page += of_figures(folder, CALL_FIGURES, call_figure) + of_figures(folder, SM_FIGURES, sm_figure)
    for name, record in records_of(folder, "modes-*-figure-3.json"):
        page += norm_share(name, record)
    page += of_figures(folder, STEP_FIGURES, step_figure) + of_figures(folder, TRACE_FIGURES, traces)
    return page + predictions(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("output", nargs="?", type=pathlib.Path, default=ROOT / "docs" / "results")
    options = parser.parse_args()
    for name, page in (("experts", experts(options.results)), ("token_weave", modes(options.results))):
        write(page, options.output / f"{name}.md")


if __name__ == "__main__":
    main()
