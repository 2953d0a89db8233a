#!/usr/bin/env python3
"""sequence_rates.py writes bench/results/sequence-rates-h200.json: what `--rates` of `heddle plan attention` and `heddle bench
sequence-attention` takes for H200s, from records of bench/results. Rates that no record has stay the paper's. Attention's own is that
of a record of figure 12, given as another --rates: it depends on heads and tokens.
"""
import json

from pages import ROOT

RESULTS = ROOT / "bench" / "results"
COLLECTIVES = "h200-nvlink-2-ranks-pass-1-collective.json"
PIECES = "sequence-figure-12-37376-x-128-h200.json"
CALL_SECONDS = 8e-6  # the default of call_us


def record(name):
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def link_gbps():
    """NVLink from GPU to GPU, both ways at once: the longest all-to-all."""
    cases = [case for case in record(COLLECTIVES)["cases"] if case["collective"] == "all_to_all"]
    return max(cases, key=lambda case: case["bytes"])["bus_gbps"]


def carry_gbps():
    """At which O', l and m leave a call of attention and enter the next, by what three more calls over four pieces cost. Lower than the
    memory's rate: a call's first loads and last stores overlap little. Heads that are split and joined are charged at the same rate, which
    is too low for them."""
    rows = {row["case"]: row for row in record(PIECES)["rows"]}
    one, four = rows["4 pieces, 1 call"], rows["4 pieces, 4 calls"]
    seconds = four["seconds"]["median"] - one["seconds"]["median"] - 3 * CALL_SECONDS
    state_bytes = one["tokens"] * one["heads"] * (one["head_dim"] + 2) * 4
    return 3 * 2 * state_bytes / seconds * 1e-9


def main():
    rates = {"source": f"{COLLECTIVES} (links), {PIECES} (memory: carried state)", "memory_gbps": round(carry_gbps(), 1),
             "gpu_link_gbps": round(link_gbps(), 1)}
    commits = {name: record(name)["commit"] for name in (COLLECTIVES, PIECES)}
    text = json.dumps({"rates": rates, "commits": commits}, indent=2)
    (RESULTS / "sequence-rates-h200.json").write_text(text + "\n", encoding="utf-8")


main()
