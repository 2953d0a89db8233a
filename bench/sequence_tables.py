"""The page of measured layers of sequence parallelism, from records of `heddle bench sequence-attention`. Draws nothing."""
import re

from pages import command, records_of, source, table

NAMES = {"ulysses": "Ulysses", "ring": "Ring", "usp": "USP", "tas": "TAS", "torus": "Torus", "one_sided": "one-sided"}
INTRO = """# Sequence-parallel attention, measured

Made by `bench/report_sequence.py`. What was expected and what it means:
[notes/sequence_attention.md](../notes/sequence_attention.md), which has the predicted figures, too. Layers of attention, not whole
sampling steps.

A layer is a CUDA graph on ranks of one host, which stands for several machines: `2 x 1` is two machines of one GPU. Times are
milliseconds, the median of samples on the slowest rank; in brackets USP's time over it, so more than 1 is faster than USP. `U x R` are
the degrees of Ulysses and Ring of USP. Where R is 1, Ulysses, USP and TAS are the same program, so they differ by chance alone.
`slowest` is the slowest strategy's time over the fastest one's; `spread` is the widest p10 to p90 of a strategy, over its median.
Strategies were measured one after the other. `link` is how long an emulated link takes for what USP sends into a machine.
"""
ELEMENT_BYTES = 2  # ranks on GPUs compute in bfloat16
PLACES = {  # by the names of records
    "gpus": "a GPU each, no paced links",
    "links": "a GPU each, emulated links",
    "shared": "ranks share the GPU, no paced links",
    "shared-links": "ranks share the GPU, emulated links",
}


def measured(record):
    return {row["strategy"]: row for row in record["rows"] if row["source"] == "measured"}


def layer_row(record, link):
    rows = measured(record)
    usp, times = rows["usp"], [row["seconds"] for row in rows.values()]
    spread = max((row["spread"]["p90"] - row["spread"]["p10"]) / row["seconds"] for row in rows.values())
    cells = [f"{rows[name]['seconds'] * 1e3:.3f}" + ("" if name == "usp" else f" ({usp['seconds'] / rows[name]['seconds']:.2f})")
             for name in NAMES if name in rows]
    return [usp["layer"], f"{usp['machines']} x {usp['gpus']}", f"{usp['ulysses']} x {usp['ring']}", *cells,
            *(f"{usp['measured_elements'] * ELEMENT_BYTES / gbps * 1e-6:.3f}" for gbps in [link] if gbps),
            f"{max(times) / min(times):.3f}", f"{spread:.1%}"]


def tokens_of(record):
    return int(record["rows"][-1]["layer"].split(" ", 1)[0])


def layers(folder):
    found = {}  # (place, GPUs, link): records
    for name, record in records_of(folder, "sequence-*.json"):
        if not (of := re.fullmatch(rf"sequence-({'|'.join(PLACES)})-\d+x\d+-.*\.json", name)):
            continue
        gpus = source(name, record).rsplit(", ", 1)[1]
        found.setdefault((of[1], gpus, record["rates"]["machine_link_gbps"] if "links" in of[1] else None), []).append((name, record))
    page = []
    for (place, gpus, link), records in sorted(found.items(), key=lambda item: list(PLACES).index(item[0][0])):
        records.sort(key=lambda one: (tokens_of(one[1]), one[0]))
        strategies = [name for name in NAMES if name in measured(records[0][1])]
        links = "" if link is None else f" of {link:g} GB/s between machines"
        page += [f"## {gpus}, {PLACES[place]}{links}", "",
                 table(["layer", "machines x GPUs", "U x R", *(NAMES[name] for name in strategies), *["link"] * (link is not None), "slowest",
                        "spread"], [layer_row(record, link) for _, record in records]),
                 *(f"- {source(name, record)}. `{command(record)}`" for name, record in records), ""]
    return page


def pieces(folder):
    """Figure 12: attention over pieces on one GPU, beside the fastest of PyTorch's kernels."""
    records = records_of(folder, "sequence-figure-12-*.json")
    if not records:
        return []
    of = [(name, record, {row["case"]: row for row in record["rows"]}) for name, record in records]
    of.sort(key=lambda one: (one[1]["rows"][0]["head_dim"], one[1]["rows"][0]["tokens"]))
    rows = []
    for _, record, cases in of:
        one = record["rows"][0]
        baseline = one["tflops"] / one["ratio_of_medians"]
        rows.append([one["tokens"], f"{one['heads']} x {one['head_dim']}", one["peer_case"]["kernel"], f"{baseline:.0f}",
                     f"{one['tflops']:.0f}", f"{one['ratio_of_medians']:.3f}",
                     *(f"{case['to_one_piece']:.3f}" for case in cases.values() if case is not one)])
    others = [case for case in of[0][2] if case != of[0][1]["rows"][0]["case"]]
    return ["## Attention over pieces on one GPU (figure 12)", "",
            "TFLOP/s of the fastest of PyTorch's kernels and of one call over one piece, interleaved, and the baseline's time over the"
            " latter's. Then times of calls over several pieces, to one piece.", "",
            table(["tokens", "heads", "baseline", "its TFLOP/s", "one piece", "ratio", *others], rows),
            *(f"- {source(name, record)}. `{command(record)}`" for name, record, _ in of), ""]


def page(folder):
    return [INTRO, *layers(folder), *pieces(folder)]
