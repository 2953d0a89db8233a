#!/usr/bin/env python3
"""predict_weave.py writes bench/results/weave-predicted-h200.json: what a layer of Llama-3.3-70B takes on 2, 4 and 8 H200s in each mode,
the fused operator, and traces on 2 and 4, from records of two H200s. report_steps.py puts it beside what was measured.

- No communication: what a rank computes is 2/N of its part on two, except for the norms, which every rank computes whole.
- A call of an operator: the part that a call of one token takes, and the rest by the bytes that a rank sends, 2 (N-1)/N of all.
- fused: the layer without communication, and two calls in place of its two norms. (default is left out: NCCL's rate on two ranks says
  little of its rate on four.)
- weave: the two lanes of src/parallel/token_weave.cpp, cut where the record on two was cut. Computation has the SMs that transfers leave
  (figure 10 at 8 SMs). Waves of blocks are not in it, nor what a sum and a GEMM take from each other.

The last is most of what a layer on two takes longer than this says: `on_two` is measured over modelled, and 4 and 8 ranks get it, too.

Traces (figure 12) of llama-3-8b in steps of 2048 tokens of 4096, as many bytes as 1024 of the layer's 8192:

- Communication on two is what the default takes longer than no-comm. Fused sums take as much of it as in the layer (figure 14): the record of
  traces is older than sums by TMA where rows lie.
- On four ranks computation halves; the default's communication grows as NCCL and a norm do, fused sums as the operator above.
"""
import json

from pages import ROOT

RESULTS = ROOT / "bench" / "results"
LAYER, OPERATOR, SMS = (f"modes-h200-2-ranks-figure-{number}.json" for number in (14, 4, 10))
PREDICTED = RESULTS / "weave-predicted-h200.json"
NORM = "gpu-h200-prefill-llama-3-8b.json"
RANKS = (2, 4, 8)
ALL_SMS, TRANSFER_SMS = 132, 8
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 8192, 64, 8, 128, 28672
FUSED = "fused"
TRACES = "modes-h200-2-ranks-figure-12.json"
TRACE_TOKENS = 1024  # of the layer: a step's bytes
NCCL_AND_NORM_ON_FOUR = 115e-6  # so many tokens on four H200s, multicast off: the baseline of the target


def record(name):
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def line_through(points):
    """Linear between points, on through the last two, and from the origin to the first."""
    points = [(0, 0), *sorted(points)]

    def value(at):
        above = next((i for i in range(1, len(points)) if points[i][0] >= at), len(points) - 1)
        (x, y), (x1, y1) = points[above - 1:above + 1]
        return y + (y1 - y) * (at - x) / (x1 - x)
    return value


def operator_on_two(rows):
    """seconds(tokens, ranks) of a call, from what calls on two ranks took."""
    measured = sorted((row["tokens"], row["microseconds"] * 1e-6) for row in rows)
    line, fixed = line_through(measured), measured[0][1]
    if measured[0][0] > 1:
        fixed = 0
    return lambda tokens, ranks: fixed + max(0, line(tokens) - fixed) * 2 * (ranks - 1) / ranks


def norm_seconds():
    found = {}
    for step in record(NORM)["cases"]:
        for operators in step["operators"] if isinstance(step.get("operators"), list) else []:
            for one in operators["operators"]:
                if one["operator"] == "rmsnorm" and one["calls_per_step"] > 1:
                    rows, columns = (int(word) for word in one["shape"].split(",")[0].split(" x "))
                    found[rows * columns] = one["seconds"]["median"]
    line = line_through(found.items())
    return lambda tokens: line(tokens * HIDDEN)


def flops(block, first, tokens):
    """Of tokens `first` to `first + tokens` of a prompt, which attend to all before them."""
    if block == "feed-forward":
        return 2 * tokens * 3 * HIDDEN * INNER
    weights = HIDDEN * HEAD_DIM * (2 * HEADS + 2 * KV_HEADS)
    return 2 * tokens * weights + 4 * HEADS * HEAD_DIM * (first * tokens + tokens * tokens / 2)


def woven_layer(parts, compute_seconds, sum_seconds):
    """A layer amid others: `parts` by turns, as run_interleaved enqueues them."""
    layers, ends = 12, []
    computed, lanes = [0.0] * len(parts), {"compute": 0.0, "transfers": 0.0}
    for _ in range(layers):
        for block in ("attention", "feed-forward"):
            for part, (first, tokens) in enumerate(parts):
                lanes["transfers"] = max(lanes["transfers"], computed[part]) + sum_seconds(tokens)
                lanes["compute"] = max(lanes["compute"], lanes["transfers"]) + compute_seconds(block, first, tokens)
                computed[part] = lanes["compute"]
        ends.append(lanes["compute"])
    return (ends[-1] - ends[layers // 2 - 1]) / (layers - layers // 2)


def predicted_traces(layers, all_sms):
    """Of traces whose default and no-comm are recorded on two ranks."""
    over_no_comm = {mode: layers[TRACE_TOKENS, mode]["of_no_comm"] - 1 for mode in ("default", "fused")}
    nccl_on_two = next(row["microseconds"] * 1e-6 for row in record(OPERATOR)["rows"]
                       if row["way"] == "NCCL's all-reduce, norm" and row["tokens"] == TRACE_TOKENS)
    grows = {2: {"default": 1, "fused": 1},
             4: {"default": NCCL_AND_NORM_ON_FOUR / nccl_on_two, "fused": all_sms(TRACE_TOKENS, 4) / all_sms(TRACE_TOKENS, 2)}}
    on_two = {(row["workload"], row["mode"]): row["seconds"]["median"] for row in record(TRACES)["rows"]}
    rows = []
    for workload in dict.fromkeys(name for name, _ in on_two):
        computed = on_two[workload, "no-comm"]
        communication = on_two[workload, "default"] - computed
        for ranks, of in grows.items():
            seconds = {"default": computed * 2 / ranks + communication * of["default"],
                       "fused": computed * 2 / ranks + communication * over_no_comm["fused"] / over_no_comm["default"] * of["fused"],
                       "no-comm": computed * 2 / ranks}
            rows += [{"workload": workload, "ranks": ranks, "mode": mode, "seconds": time, "of_default": seconds["default"] / time}
                     for mode, time in seconds.items()]
    return rows


def prediction():
    layers = {(row["tokens"], row["mode"]): row for row in record(LAYER)["rows"]}
    norm = norm_seconds()
    of_operator = [row for row in record(OPERATOR)["rows"] if row["way"] == FUSED]
    all_sms = operator_on_two(of_operator)
    few_sms = operator_on_two([row for row in record(SMS)["rows"] if row["sms"] == TRANSFER_SMS])

    def seconds(mode, tokens, ranks):
        norms = 2 * norm(tokens)
        share = (layers[tokens, "no-comm"]["seconds"]["median"] - norms) * 2 / ranks
        if mode == "no-comm":
            return share + norms
        if mode == "fused":
            return share + 2 * all_sms(tokens, ranks)
        prefix = layers[tokens, "weave"]["prefix_tokens"]
        all_flops = flops("attention", 0, tokens) + flops("feed-forward", 0, tokens)
        slower = ALL_SMS / (ALL_SMS - TRANSFER_SMS)
        return woven_layer([(0, prefix), (prefix, tokens - prefix)], lambda *block: share * slower * flops(*block) / all_flops,
                           lambda count: few_sms(count, ranks))

    rows = []
    for tokens, mode in layers:
        if mode not in ("no-comm", "fused", "weave"):
            continue
        measured = layers[tokens, mode]["seconds"]["median"]
        on_two = measured / seconds(mode, tokens, 2)
        for ranks in RANKS:
            predicted = seconds(mode, tokens, ranks) * on_two
            rows.append({"tokens": tokens, "mode": mode, "ranks": ranks, "modelled_seconds": seconds(mode, tokens, ranks),
                         "on_two": on_two, "seconds": predicted, "of_no_comm": predicted / seconds("no-comm", tokens, ranks)})
    operators = [{"way": FUSED, "tokens": row["tokens"], "hidden": HIDDEN, "ranks": ranks, "seconds": all_sms(row["tokens"], ranks)}
                 for row in of_operator for ranks in RANKS]
    commits = {name: record(name)["commit"] for name in (LAYER, OPERATOR, SMS, NORM, TRACES)}
    return {"model": record(LAYER)["model"], "commits": commits, "rows": rows, "operators": operators,
            "traces_model": record(TRACES)["model"], "traces": predicted_traces(layers, all_sms)}


if __name__ == "__main__":
    PREDICTED.write_text(json.dumps(prediction(), indent=2) + "\n", encoding="utf-8")
