#!/usr/bin/env python3
"""Generates docs/results/fused.md and its SVGs from the JSON in bench/results.

    bench/report_fused.py [RESULTS_FOLDER [OUTPUT]]

Reads `fused-X-BENCH*.json`, which `heddle bench all-gather-linear|linear-reduce-scatter|linear-all-reduce|flash-decode` wrote. All
figures come from the files; do not edit the page by hand.
"""
import argparse
import pathlib
import re

from pages import ROOT, command, records_of, source, table, write

TITLES = {"all-gather-linear": "All-gather + GEMM (figure 9)", "linear-reduce-scatter": "GEMM + reduce-scatter",
          "linear-all-reduce": "GEMM + all-reduce", "flash-decode": "Distributed flash decode (figure 10)"}
BSP = {
    "all-gather-linear": "`bsp` is an all-gather of A, then `linear`. Where A is sharded on K, a kernel between them puts the gathered"
                         " columns side by side.",
    "linear-reduce-scatter": "`bsp` is `linear`, then a reduce-scatter of float32 sums.",
    "linear-all-reduce": "`bsp` is `linear`, then an all-reduce of float32 sums.",
    "flash-decode": "`bsp` is attention over a rank's keys, Heddle's all-gather of the results, and a kernel that merges them. `all-gather`"
                    " is the transfer of the fused operator, still between waits; with `waits` the merge waits for each part; `push` sends"
                    " parts as they are computed. All variants, `bsp` included, have attention's decode kernel. Of one rank, which sends"
                    " nothing, the rate is that of the kernel.",
}
INTRO = """# Operators fused with their transfer

Made by `bench/report_fused.py`. What was tried and why: [notes/fused.md](../notes/fused.md). The operators, their variants and the
numbers of figures are those of "Eliminating Multi-GPU Performance Taxes".

`bsp` (bulk-synchronous) is the pair of separate operators that a fused one replaces: a collective of Heddle and, for GEMMs, `linear`,
which takes a small-M GEMM of Heddle up to 16 rows, another kernel of Heddle up to 64, and cuBLASLt above. Where a name stands behind
bsp's time, bsp is the fastest of Heddle's collective (`own`), NCCL's (`nccl`) and NCCL's on registered windows (`nccl-windows`). In other
tables NCCL was not timed, so they do not say how a fused operator compares with NCCL and cuBLAS.

Times are microseconds a call: the median of samples on the slowest rank, where a sample is a CUDA graph of several calls on the same
operands, which may stay in the cache if they fit there. Samples of a case's variants are interleaved. In brackets:
bsp's time over the variant's, so more than 1 is faster than bsp. `GEMM alone` is `linear` of the gathered A, or of a rank's columns, with
nothing to transfer; behind it, the fastest variant's time over it. `within its spread` names the variants whose samples overlap
the fastest one's (p10 to p90; in records without `launched_by` those of rank 0): the record does not show that these are slower. The error is the largest of all variants, against
float64.
"""

FINDING = """The paper finds pull fastest up to M = 128 and push above, but bsp at 8 to 64. Here push is fastest throughout, or
copy engines are (copy), for these reasons:

- Up to 256 rows (512 where A is sharded on M) a kernel gathers A before the GEMM. Then pull costs a message that says where a shard lies, and push none.
- Above, pull reads a tile of A over the link for every tile of columns of C that needs it, and push takes each tile over the link once."""
GAPS = """Targets of these operators and what the records reach, of ranks with a GPU each. The targets are for four GPUs; a rank's part of the
matrices is as large on the ranks that were measured. A figure is that of the fastest fused variant; samples that overlap count by
their medians. Findings of each design: [notes/fused.md](../notes/fused.md)."""


SCALING = """Microseconds of the fastest variant. Ranks that share a GPU divide its SMs and its memory's rate, so that more of them take
as long as one at best: their column shows what it costs to divide the keys. Ranks with a GPU each are measured where there is a column
for them, and predicted otherwise: push, in brackets how many times as fast as bsp."""


def cases_of(record, axis):
    """{all of a case's shape but its size: {size: {variant: result}}}"""
    cases = {}
    names = ("batch", "n", "k", "shard", "heads", "kv_heads", "head_dim", "value_dim", "dtype")
    for result in record["results"]:
        fixed = tuple((key, result[key]) for key in names if key in result)
        cases.setdefault(fixed, {}).setdefault(result[axis], {})[result["variant"]] = result
    return cases


def axis_of(bench):
    return "context" if bench == "flash-decode" else "m"


def words_of(bench, shape):
    of = dict(shape)
    if bench == "flash-decode":
        latent = f", the values their first {of['value_dim']}" if "value_dim" in of else ""
        return f"batch {of['batch']}, {of['heads']} heads on {of['kv_heads']} KV heads of {of['head_dim']}{latent}, {of['dtype']}"
    shard = f", A sharded on {of['shard'].upper()}" if bench == "all-gather-linear" else ""
    return f"N = {of['n']}, K = {of['k']}, {of['dtype']}{shard}"


def whereabouts(record):
    devices = record["device"].split(",")
    if devices == ["cpu"]:
        return f"{record['ranks']} ranks on the CPU"
    own = devices == ["cuda"] or len(set(devices)) == record["ranks"]
    return f"{record['ranks']} ranks, " + ("a GPU each" if own else "which share GPUs")


def rate(bench, result):
    """What one rank does in a second: TFLOP/s of a GEMM, TB/s of the keys and values that attention reads."""
    if bench != "flash-decode":
        return 2e-6 * result["m"] * result["n"] * result["k"] / result["ranks"] / result["microseconds"]
    planes = 1 if "value_dim" in result else 2  # latents are keys and values
    elements = planes * result["batch"] * result["context"] * result["kv_heads"] * result["head_dim"]
    return 1e-6 * elements * (4 if result["dtype"] == "float32" else 2) / result["ranks"] / result["microseconds"]


def overlap(one, other):
    return one["p10_microseconds"] <= other["p90_microseconds"] and other["p10_microseconds"] <= one["p90_microseconds"]


def fastest_of(of):
    return min(of.values(), key=lambda result: result["microseconds"])


def row_of(bench, size, of):
    best, bsp = fastest_of(of), of["bsp"]["microseconds"]
    behind = f" {of['bsp']['bsp_is']}" if "bsp_is" in of["bsp"] else ""
    cells = [f"{result['microseconds']:.1f}" + (behind if variant == "bsp" else f" ({bsp / result['microseconds']:.2f})")
             for variant, result in of.items()]
    beside = [variant for variant, result in of.items() if result is not best and overlap(result, best)]
    alone = [f"{gemm:.1f} ({best['microseconds'] / gemm:.2f})"] if (gemm := best.get("gemm_microseconds")) else []
    return [size, *cells, best["variant"], ", ".join(beside), *alone, f"{rate(bench, best):.{2 if bench == 'flash-decode' else 0}f}",
            f"{max(result['max_relative_error'] for result in of.values()):.1e}"]


def fastest_fused(of):
    return fastest_of({variant: result for variant, result in of.items() if variant != "bsp"})


def verdict(of):
    """Of the fastest fused variant against bsp; medians whose samples overlap show no difference."""
    fused = fastest_fused(of)
    if overlap(fused, of["bsp"]):
        return "open"
    return "faster" if fused["microseconds"] < of["bsp"]["microseconds"] else "slower"


def summary(records):
    """A row for each table of the page: at which sizes the fastest fused variant beats bsp."""
    rows = []
    for bench, _, record in records:
        for shape, sizes in cases_of(record, axis_of(bench)).items():
            found = [", ".join(str(size) for size, of in sizes.items() if verdict(of) == what) for what in ("faster", "open", "slower")]
            rows.append([TITLES[bench].split(" (")[0], words_of(bench, shape), whereabouts(record), *(text or "-" for text in found)])
    return table(["operator", "shape", "ranks", "a fused variant is faster at", "samples overlap at", "bsp is faster at"], rows)


def memory_rate(folder, gpus):
    """What `heddle bench cluster` saw such a GPU read: TB/s, and the file; or None."""
    for name, record in records_of(folder, "gpu-*-cluster.json"):
        if gpus.endswith(record["gpu"]["name"]):
            return record["figure_5"]["global_read_bytes_per_second"] * 1e-12, name
    return None


def gpus_of(name, record):
    return source(name, record).rsplit(", ", 1)[1]


def of_paper(rows):
    """What was fastest of so many rows in the paper's figure 9."""
    if rows > 128:
        return "push"
    return "bsp" if 8 <= rows <= 64 else "pull"


def finding(records):
    """The paper's finding beside ours, for A sharded on K as there."""
    rows = []
    for bench, _, record in records:
        if bench != "all-gather-linear":
            continue
        for shape, sizes in cases_of(record, "m").items():
            if dict(shape)["shard"] != "k":
                continue
            for size, of in sorted(sizes.items()):
                bsp, pull, push = (of[variant]["microseconds"] for variant in ("bsp", "pull", "push"))
                rows.append([size, whereabouts(record), of_paper(size), fastest_of(of)["variant"], f"{bsp / pull:.2f}", f"{bsp / push:.2f}"])
    if not rows:
        return []
    return ["## The paper's finding, and ours", "", FINDING, "",
            table(["M", "ranks", "fastest in the paper", "fastest here", "pull, x of bsp", "push, x of bsp"], rows)]


def of_gemm(bench, of, ceiling):
    fused = fastest_fused(of)
    return fused["microseconds"] / fused["gemm_microseconds"] if "gemm_microseconds" in fused else None


def of_bsp(bench, of, ceiling):
    return of["bsp"]["microseconds"] / fastest_fused(of)["microseconds"]


def saved(bench, of, ceiling):
    return of["bsp"]["microseconds"] - fastest_fused(of)["microseconds"]


def of_ceiling(bench, of, ceiling):
    return rate(bench, fastest_fused(of)) / ceiling if ceiling else None


GATHERS = "slots of tiles; packets and a gather kernel for few rows; copy engines by chunks; push within the GEMM; tiles by measured rounds"
SUMS = "stores by threads; TMA out of an exchange; wide tiles forwarded from L2; packets for few rows"
DECODES = "a transfer between waits; a merge that waits for each part; push by the block that merges splits"
# (operator, K of a rank or None, what is wanted, at which sizes and numbers of ranks, the figure, whether more is better, its bound, designs tried)
TARGETS = [
    ("all-gather-linear", None, "a rank alone: at most 1.02 of cuBLASLt from M = 512 on", lambda size, ranks: ranks == 1 and size >= 512, of_gemm, False,
     1.02, GATHERS),
    ("all-gather-linear", None, "at most 1.12 of the GEMM alone below M = 512", lambda size, ranks: ranks > 1 and size < 512, of_gemm, False, 1.12, GATHERS),
    ("all-gather-linear", None, "at most 1.05 of the GEMM alone from M = 512 on", lambda size, ranks: ranks > 1 and size >= 512, of_gemm, False, 1.05, GATHERS),
    ("all-gather-linear", None, "no slower than bsp", lambda size, ranks: ranks > 1, of_bsp, True, 1.0, GATHERS),
    ("linear-reduce-scatter", 2048, "at least 1.2 of bsp from M = 1024 on, K = 2048 a rank", lambda size, ranks: ranks > 1 and size >= 1024, of_bsp, True, 1.2, SUMS),
    ("linear-reduce-scatter", 7168, "at most 1.05 of the GEMM alone, K = 7168 a rank", lambda size, ranks: ranks > 1, of_gemm, False, 1.05, SUMS),
    ("linear-reduce-scatter", None, "no slower than bsp", lambda size, ranks: ranks > 1, of_bsp, True, 1.0, SUMS),
    ("linear-all-reduce", None, "no slower than bsp", lambda size, ranks: ranks > 1, of_bsp, True, 1.0, SUMS),
    ("flash-decode", None, "saves 5 us of bsp", lambda size, ranks: ranks > 1, saved, True, 5.0, DECODES),
    ("flash-decode", None, "at least 1.2 of bsp at 32K", lambda size, ranks: ranks > 1 and size == 32768, of_bsp, True, 1.2, DECODES),
    ("flash-decode", None, "at least 0.93 of the read ceiling at 1M", lambda size, ranks: size == 1 << 20, of_ceiling, True, 0.93, DECODES),
]


def figures_of(records, folder, target):
    """[(figure, where)] of a target's sizes, in every record of ranks that have a GPU each."""
    bench, k, _, wanted, figure, *_ = target
    found = []
    for of_bench, name, record in records:
        if of_bench != bench or not whereabouts(record).endswith("a GPU each"):
            continue
        ceiling = memory_rate(folder, gpus_of(name, record))
        for shape, sizes in cases_of(record, axis_of(bench)).items():
            if k and dict(shape)["k"] != k * record["ranks"]:
                continue
            for size, of in sizes.items():
                value = figure(bench, of, ceiling and ceiling[0]) if wanted(size, record["ranks"]) else None
                if value is not None:
                    found.append((value, f"{axis_of(bench)} = {size}, {words_of(bench, shape)}"))
    return found


def gaps(records, folder):
    """What is wanted beside what the records show."""
    rows = []
    for target in TARGETS:
        bench, _, wanted, _, _, more, bound, designs = target
        found = figures_of(records, folder, target)
        met = sum(value >= bound if more else value <= bound for value, _ in found)
        value, where = (min if more else max)(found) if found else (None, None)
        rows.append([TITLES[bench].split(" (")[0], wanted, f"{met} of {len(found)} sizes" if found else "not recorded",
                     f"{value:.4f} at {where}" if found else "-", designs])
    return ["## Targets and gaps", "", GAPS, "", table(["operator", "target", "met at", "worst", "designs tried"], rows)]


def times_over_ranks(records, which):
    """{shape: {context: {ranks: microseconds of the fastest variant}}} of flash decode, of ranks that are `which`."""
    times = {}
    for bench, _, record in records:
        if bench == "flash-decode" and whereabouts(record).endswith(which):
            for shape, sizes in cases_of(record, "context").items():
                for size, of in sizes.items():
                    times.setdefault(shape, {}).setdefault(size, {})[record["ranks"]] = fastest_of(of)["microseconds"]
    return times


def predicted_over_ranks(folder):
    """The file, its record, and {shape: {context: {ranks: {variant: microseconds}}}} of bench/predict_fused.py; or None."""
    for name, record in records_of(folder, "fused-predicted-*-scaling.json"):
        times = {}
        for shape, sizes in cases_of(record, "context").items():
            for one in record["results"]:
                if one["context"] in sizes and all(one[key] == value for key, value in shape):
                    times.setdefault(shape, {}).setdefault(one["context"], {}).setdefault(one["ranks"], {})[one["variant"]] = one["microseconds"]
        return name, record, times
    return None


def scaling(records, folder, picture):
    """Figure 11, decode over ranks: the page, and the arguments of fused_plots.scaling."""
    own, shared = times_over_ranks(records, "a GPU each"), times_over_ranks(records, "which share GPUs")
    predicted = predicted_over_ranks(folder)
    if predicted is None:
        return [], None
    name, record, of_prediction = predicted
    own_ranks, shared_ranks = (sorted({ranks for sizes in times.values() for of in sizes.values() for ranks in of}) for times in (own, shared))
    predicted_ranks = sorted({one["ranks"] for one in record["results"]})
    cell = lambda of, ranks: f"{of[ranks]:.1f}" if ranks in of else "-"  # noqa: E731
    rows = []
    for shape, sizes in of_prediction.items():
        for size, of in sizes.items():
            on_own, on_shared = own.get(shape, {}).get(size, {}), shared.get(shape, {}).get(size, {})
            rows.append([words_of("flash-decode", shape), size, *(cell(on_own, ranks) for ranks in own_ranks),
                         *(cell(on_shared, ranks) for ranks in shared_ranks),
                         *(f"{of[ranks]['push']:.1f} ({of[ranks]['bsp'] / of[ranks]['push']:.2f})" for ranks in predicted_ranks)])
    head = ["shape", "context", *(f"{ranks} GPU{'s' if ranks > 1 else ''}" for ranks in own_ranks),
            *(f"{ranks} ranks on one" for ranks in shared_ranks), *(f"{ranks} GPUs, predicted" for ranks in predicted_ranks)]
    of_records = ", ".join(f"`{one}` ({commit})" for one, commit in record["commits"].items())
    page = ["## Decode over ranks (figure 11)", "", SCALING, "", f"Predicted: `{name}`, made by `bench/predict_fused.py` from {of_records}.", "",
            f"![Microseconds by ranks for each context]({picture})", "", table(head, rows)]
    panels = {words_of("flash-decode", shape): {
        size: {"predicted": {ranks: one["push"] for ranks, one in of.items()},
               "a GPU each": own.get(shape, {}).get(size, {}), "sharing one GPU": shared.get(shape, {}).get(size, {})}
        for size, of in sizes.items()} for shape, sizes in of_prediction.items()}
    return page, (panels, "Distributed flash decode over ranks (figure 11)", picture)


def section(folder, bench, records, picture):
    """The tables of a bench's records, and what the picture of all of them shows: arguments of fused_plots.variants."""
    axis, panels, page = axis_of(bench), {}, []
    label, unit = ("context, keys of all ranks", "TB/s a GPU") if bench == "flash-decode" else ("M, rows of A", "TFLOP/s a GPU")
    for name, record in records:
        for shape, sizes in cases_of(record, axis).items():
            first = next(iter(sizes.values()))
            variants = list(first)
            alone = ["GEMM alone"] if "gemm_microseconds" in first[variants[0]] else []
            panels[words_of(bench, shape)] = {variant: [(size, of[variant]["microseconds"]) for size, of in sorted(sizes.items())]
                                              for variant in variants}
            by_host = ", launched by the host" if record.get("launched_by") == "host" else ""
            page += [f"### {words_of(bench, shape)}{by_host}", "", f"{source(name, record)}; {whereabouts(record)}. `{command(record)}`", "",
                     table([axis, *variants, "fastest", "within its spread", *alone, unit, "error"],
                           [row_of(bench, size, of) for size, of in sizes.items()])]
    name, record = records[0]
    gpus = gpus_of(name, record)
    ceiling = memory_rate(folder, gpus) if bench == "flash-decode" else None
    of_memory = f" One {gpus.split(' x ')[-1]} reads {ceiling[0]:.2f} TB/s (`{ceiling[1]}`)." if ceiling else ""
    title = f"{TITLES[bench]}: {gpus}, {whereabouts(record)}"
    return [f"## {TITLES[bench]}, {gpus}", "", BSP[bench] + of_memory, "", f"![Microseconds and speed against bsp by size]({picture})", "",
            *page], (panels, label, title, picture)


def page_of(folder, stem="fused"):
    """(the page, its pictures by variant, that of figure 11 or None), which are called after `stem`."""
    found = {}  # (bench, machine): its records
    for name, record in records_of(folder, "fused-*.json"):
        if of := re.fullmatch(rf"fused-(.*)-({'|'.join(TITLES)})(-.*)?\.json", name):
            found.setdefault((of[2], of[1]), []).append((name, record))
    found = dict(sorted(found.items(), key=lambda item: (list(TITLES).index(item[0][0]), item[0][1])))
    records = [(bench, name, record) for (bench, _), of_bench in found.items() for name, record in of_bench]
    # Calls that the host launches have tables of their own, and no part in what is said of all.
    records = [one for one in records if one[2].get("launched_by", "graph") == "graph"]
    over_ranks, scaled = scaling(records, folder, f"{stem}-scaling.svg")
    page = [INTRO, summary(records), *finding(records), *gaps(records, folder), *over_ranks]
    pictures = []
    for (bench, machine), records in found.items():
        of_bench, picture = section(folder, bench, records, f"{stem}-{machine}-{bench}.svg")
        page += of_bench
        pictures.append(picture)
    return page, pictures, scaled


def main():
    import fused_plots  # check_pages.py makes the page where there is no matplotlib

    parser = argparse.ArgumentParser()
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("output", nargs="?", type=pathlib.Path, default=ROOT / "docs" / "results" / "fused.md")
    options = parser.parse_args()
    page, pictures, scaled = page_of(options.results, options.output.stem)
    write(page, options.output)
    for panels, label, title, name in pictures:
        fused_plots.variants(panels, label, title, options.output.with_name(name))
    if scaled:
        panels, title, name = scaled
        fused_plots.scaling(panels, title, options.output.with_name(name))


if __name__ == "__main__":
    main()
