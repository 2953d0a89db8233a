#!/usr/bin/env python3
"""Generates docs/results/cluster.md and its SVGs from the JSON in bench/results.

    bench/report_cluster.py [RESULTS_FOLDER [OUTPUT]]

Reads `gpu-X-cluster.json` (`heddle bench cluster`), `gpu-X-block-*.json` (`heddle bench block`) and `gpu-X-figure-N*.json` (with
`--figure N`); cluster_conclusion.py also `gpu-h200-decode-*.json`. All figures come from the files; do not edit the page by hand.
"""
import argparse
import pathlib

from cluster_conclusion import conclusion
from pages import ROOT, records_of, table, write


def us(seconds):
    return f"{seconds * 1e6:.2f}" if seconds < 20e-6 else f"{seconds * 1e6:.1f}"


def figure_5(record):
    of = record["figure_5"]
    hbm = of["global_read_bytes_per_second"]
    rows = []
    for one in of["clusters"]:
        rate = one["read_bytes_per_second"]["median"]
        paper = []
        if "paper_latency_cycles" in one:
            paper.append(f"{one['paper_latency_cycles']:g} cycles")
        if "paper_read_bytes_per_second" in one:
            paper.append(f"{one['paper_read_bytes_per_second'] * 1e-12:.2f} TB/s")
        rows.append([one["cluster"], f"{one['latency_cycles']:.0f}", f"{one['latency_ns']:.0f}", f"{rate * 1e-12:.2f}",
                     f"{rate / hbm:.0%}", one["active_sms"], ", ".join(paper)])
    rows.append(["HBM", f"{of['global_latency_cycles']:.0f}", f"{of['global_latency_ns']:.0f}", f"{hbm * 1e-12:.2f}", "100%", "",
                 "> 470 cycles, 2.96 TB/s"])
    return table(["cluster", "latency, cycles", "ns", "read, TB/s", "of HBM", "active SMs", "the paper, H100"], rows)


def best(routes, on_chip):
    names = ("packets", "flags")
    of = [route for route in routes if (route["route"] not in names) == on_chip]
    return min(of, key=lambda route: route["seconds"]["median"]) if of else None


def table_1(record, busy):
    rows = []
    for one in record["table_1"]:
        if one["busy"] != busy:
            continue
        off, on = best(one["routes"], False), best(one["routes"], True)
        paper = one.get("paper")
        ours = [f"{us(off['seconds']['median'])} ({off['route']})"]
        if on:
            ours += [f"{us(on['seconds']['median'])} ({on['route']})", f"{off['seconds']['median'] / on['seconds']['median']:.2f}x",
                     us(on["floor_seconds"]), f"{on['fraction_of_floor']:.0%}"]
        else:
            ours += ["does not fit", "", "", ""]
        rows.append([one["operation"], one["cluster"], one["kib"], *ours,
                     f"{paper['off_chip_us']:.2f} / {paper['on_chip_us']:.2f} = {paper['off_chip_us'] / paper['on_chip_us']:.2f}x" if paper else ""])
    return table(["operation", "cluster", "KiB", "off chip, us", "on chip, us", "ratio", "roofline on chip, us", "of the roofline",
                  "the paper, H100: off / on"], rows)


def block(record):
    rows = []
    for context in record["contexts"]:
        separate = next(way for way in context["ways"] if way["how"].startswith("separate"))
        fused = [way for way in context["ways"] if way is not separate]
        for way in [separate, *sorted(fused, key=lambda way: way["seconds"]["median"])[:4]]:
            rows.append([context["context"], way["how"], us(way["seconds"]["median"]), us(context["floor_seconds"]),
                         f"{way['fraction_of_roofline']:.0%}", f"{way['ratio_to_separate']:.3f}x",
                         f"{way['relative_difference']:.1e}" if "relative_difference" in way else ""])
    return table(["context", "how", "us a layer", "roofline, us", "of roofline", "against separate", "differs by"], rows)


PHASES = ("start", "normalise", "QKV projection", "gather", "heads", "attention", "merge", "output projection", "sum")


def durations(ends):
    """Of each phase, from the cycles to their ends. The blocks of a form leave 0 where it has no such phase; then the next one
    that has an end takes from the last one that had."""
    begin = 0
    for end in ends:
        yield f"{end - begin:.0f}" if end > 0 else ""
        begin = end or begin


def phases(record):
    """Of the fastest fused mapping of each context: cycles of each phase."""
    rows = []
    for context in record["contexts"]:
        fused = [way for way in context["ways"] if way.get("cycles_to_end_of_phase")]
        if fused:
            way = min(fused, key=lambda way: way["seconds"]["median"])
            rows.append([context["context"], way["how"], *durations(way["cycles_to_end_of_phase"])])
    if not rows:
        return ""
    return ("Cycles of each phase, the median of all blocks of the fastest mapping. The streamed form rotates heads within attention and adds"
            " no outputs of units; its `gather` and `merge` are the two meetings of all blocks:\n\n" + table(["context", "how", *PHASES], rows))


def figure_20(record):
    """The fastest way of each split in clusters of each size."""
    rows = []
    for context in record["contexts"]:
        fused = [way for way in context["ways"] if "split" in way]
        for cluster in sorted({way["cluster"] for way in fused}):
            of = {split: min((way for way in fused if (way["cluster"], way["split"]) == (cluster, split)),
                             key=lambda way: way["seconds"]["median"], default=None) for split in ("tokens", "head")}
            if None in of.values():
                continue
            token, head = of["tokens"]["seconds"]["median"], of["head"]["seconds"]["median"]
            rows.append([context["context"], cluster, us(token), us(head), f"{head / token:.2f}x",
                         *(f"{of[split]['paper_dsmem_bytes_of_head'] / 1024:.1f}" for split in ("tokens", "head"))])
    return table(["context", "cluster", "SplitToken, us", "SplitHead, us", "ratio", "SplitToken, KiB a head", "SplitHead, KiB a head"], rows)


def figure_11(record):
    """Of each number of heads and context: the clusters of every size, and the fastest."""
    sizes = (1, 2, 4, 8, 16)
    rows = []
    for context in record["contexts"]:
        of = {way["cluster"]: way["seconds"]["median"] for way in context["ways"] if "cluster" in way}
        rows.append([context["shape"], context["context"], us(context["ways"][0]["seconds"]["median"]),
                     *(us(of[size]) if size in of else "" for size in sizes), min(of, key=of.get) if of else ""])
    return table(["heads", "context", "separate, us", *(f"clusters of {size}" for size in sizes), "fastest"], rows)


def figure_13(record):
    """Each mapping with its segments on the chip and off it."""
    rows = []
    for context in record["contexts"]:
        on = [way for way in context["ways"] if way.get("exchange") == "on chip"]
        off = {way["how"].rsplit(", ", 1)[0]: way["seconds"]["median"] for way in context["ways"] if way.get("exchange") == "off chip"}
        for way in on:
            name, seconds = way["how"].rsplit(", ", 1)[0], way["seconds"]["median"]
            if name in off:
                rows.append([context["context"], name, us(seconds), us(off[name]), f"{off[name] / seconds:.3f}x"])
    return table(["context", "mapping", "by DSMEM, us", "through global memory, us", "ratio"], rows)


def page_of(folder, stem="cluster"):
    """(the page, its pictures), which are called after `stem`."""
    page = ["# Thread block clusters", "",
            "Made by `bench/report_cluster.py`. What was expected and what it means: [notes/cluster.md](../notes/cluster.md).", "",
            *conclusion(folder)]
    pictures = []
    for name, record in records_of(folder, "gpu-*-cluster.json"):
        gpu = record["gpu"]["name"]
        page += [f"## {gpu}: clusters (ClusterFusion, Fig. 5)", "", f"From `{name}`, commit {record['commit']}. Loads of 16 bytes from the"
                 " neighbour's shared memory, every cluster busy; latency of dependent loads; blocks that run at once with one an SM. A cluster of one reads its own shared memory; `of HBM` says how many times as fast that is as memory.", "",
                 figure_5(record)]
        for busy, words in (("one", "one cluster alone"), ("all", "all clusters busy")):
            page += [f"## {gpu}: ClusterReduce and ClusterGather, {words} (Table 1)", "",
                     "Microseconds a call of 500 in one kernel. KiB: of all blocks' buffers; of a gather, when it is done. The best way on"
                     " and off the chip. The roofline: a latency a round, and a block's bytes at its share of the rate above, which was measured with every cluster busy: a cluster alone, whose blocks share no path with others, can be faster. The paper times"
                     " one call by itself and does not say of how many blocks.", "", table_1(record, busy)]
        page += [f"![Latency, bandwidth and active SMs by cluster size]({stem}-figure-5.svg)", ""]
        pictures.append(("clusters", record["figure_5"], f"{gpu}: clusters", f"{stem}-figure-5.svg"))
    for name, record in [*records_of(folder, "gpu-*-block-*.json"), *records_of(folder, "gpu-*-figure-18-*.json")]:
        page += [f"## {record['gpu']['name']}: the attention block of {record['shape']}, batch {record['batch']}", "",
                 f"From `{name}`, commit {record['commit']}: float16, {record['layers']} layers in a graph. Separate operators and the four"
                 " fastest mappings of the fused block, interleaved.", "", block(record), phases(record)]
    for name, record in records_of(folder, "gpu-*-figure-11.json"):
        page += [f"## {record['gpu']['name']}: cluster size and heads, batch {record['batch']} (Fig. 11)", "",
                 f"From `{name}`, commit {record['commit']}: microseconds a layer, heads of 128, hidden size 4096, a head a cluster. The paper:"
                 " clusters of 4 are the fastest with 32 and 64 heads, of 2 with 128.", "", figure_11(record)]
    for name, record in records_of(folder, "gpu-*-figure-13-*.json"):
        page += [f"## {record['gpu']['name']}: with and without DSMEM, {record['shape']}, batch {record['batch']} (Fig. 13)", "",
                 f"From `{name}`, commit {record['commit']}: the block, whose blocks exchange segments by DSMEM, or through global memory after"
                 " a barrier of the cluster. The paper, of whole steps: up to 33 % longer without DSMEM.", "", figure_13(record)]
    for name, record in records_of(folder, "gpu-*-figure-20-*.json"):
        page += [f"## {record['gpu']['name']}: SplitToken and SplitHead, {record['shape']}, batch {record['batch']} (Fig. 20)", "",
                 f"From `{name}`, commit {record['commit']}: the fastest way of each, interleaved, and bytes through distributed shared memory"
                 " in the cluster of a head by the paper's formulas.", "", figure_20(record)]
    return page, pictures


def main():
    import plots  # check_pages.py makes the page where there is no matplotlib

    parser = argparse.ArgumentParser()
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("output", nargs="?", type=pathlib.Path, default=ROOT / "docs" / "results" / "cluster.md")
    options = parser.parse_args()
    page, pictures = page_of(options.results, options.output.stem)
    write(page, options.output)
    for kind, figure, title, name in pictures:
        getattr(plots, kind)(figure, title, options.output.with_name(name))


if __name__ == "__main__":
    main()
