"""The page of measured layers of sequence parallelism, from records of `heddle bench sequence-attention`. Draws nothing."""
import re

from pages import command, records_of, source, table

NAMES = {"ulysses": "Ulysses", "ring": "Ring", "usp": "USP", "tas": "TAS", "torus": "Torus", "one_sided": "one-sided"}
INTRO = """# Sequence-parallel attention, measured

Made by `bench/report_sequence.py`. What was expected and what it means:
[notes/sequence_attention.md](../notes/sequence_attention.md), which has the predicted figures, too. Layers of attention, not whole
sampling steps.

On GPUs a layer is a CUDA graph on ranks of one host, which stands for several machines: `2 x 1` is two machines of one GPU. Times are
milliseconds, the median of samples on the slowest rank, each strategy with its fastest degree of those measured. In brackets: the time of
USP over it, and that of the fastest USP; more than 1 is faster. USP's `U x R` are its degrees of Ulysses and Ring by the gcd rule. Where R
is 1, Ulysses, USP and TAS are the same program, so they differ by chance alone, and nothing in it overlaps; where U is 1, USP is Ring. So the
fastest USP may be either of them. `alone`, where it was measured, is the layer's computation without transfers, by the strategy that is
fastest with them.
`slowest` is the slowest strategy's time over the fastest one's; `spread` is the widest p10 to p90 of a strategy, over its median.
Strategies were measured one after the other. `link` is how long an emulated link takes for what USP sends into a machine.
"""
ELEMENT_BYTES = 2  # ranks on GPUs compute in bfloat16
PIECES = "sequence-figure-12-*.json"
PIECES_PICTURE = "sequence-figure-12.svg"
PLACES = {  # by the names of records
    "gpus": "a GPU each, no paced links",
    "links": "a GPU each, emulated links",
    "shared": "ranks share the GPU, no paced links",
    "shared-links": "ranks share the GPU, emulated links",
}


def measured(record):
    """{strategy: its row with the fastest degree}, but USP's with the gcd rule's degree, which is the highest one."""
    rows = [row for row in record["rows"] if row["source"] == "measured"]
    best = {name: min(of, key=lambda row: row["seconds"])
            for name in NAMES if (of := [row for row in rows if row["strategy"] == name])}
    best["usp"] = max((row for row in rows if row["strategy"] == "usp"), key=lambda row: row["ulysses"])
    return best


def fastest_usp(rows):
    """Of USP with every degree; Ring is USP with U = 1, and Ulysses with R = 1."""
    return min((row for row in rows if row["strategy"] in ("usp", "ring", "ulysses")), key=lambda row: row["seconds"])


def degrees(row):
    return f"{row['ulysses']} x {row['ring']}"


def layer_row(record, link, with_alone):
    rows = measured(record)
    usp, times = rows["usp"], [row["seconds"] for row in rows.values()]
    fastest = fastest_usp(row for row in record["rows"] if row["source"] == "measured")
    spread = max((row["spread"]["p90"] - row["spread"]["p10"]) / row["seconds"] for row in rows.values())
    alone = min(rows.values(), key=lambda row: row["seconds"]).get("compute_seconds")

    def cell(row):
        to = [of["seconds"] / row["seconds"] for of in (usp, fastest)]
        return f"{row['seconds'] * 1e3:.3f}" + ("" if row is usp else f" ({to[0]:.2f}, {to[1]:.2f})")
    return [usp["layer"], f"{usp['machines']} x {usp['gpus']}", degrees(usp), *(cell(rows[name]) for name in NAMES if name in rows),
            f"{fastest['seconds'] * 1e3:.3f}, {degrees(fastest)}", *([f"{alone['median'] * 1e3:.3f}" if alone else "-"] if with_alone else []),
            *(f"{usp['measured_elements'] * ELEMENT_BYTES / gbps * 1e-6:.3f}" for gbps in [link] if gbps),
            f"{max(times) / min(times):.3f}", f"{spread:.1%}"]


def has_alone(records):
    return any("compute_seconds" in row for _, record in records for row in record["rows"])


def tokens_of(record):
    return int(record["rows"][-1]["layer"].split(" ", 1)[0])


def groups(folder):
    """[((place, GPUs, link), [(name, record)])]: measured layers that go into one table."""
    found = {}
    for name, record in records_of(folder, "sequence-*.json"):
        if not (of := re.fullmatch(rf"sequence-({'|'.join(PLACES)})-\d+x\d+-.*\.json", name)):
            continue
        gpus = source(name, record).rsplit(", ", 1)[1]
        found.setdefault((of[1], gpus, record["rates"]["machine_link_gbps"] if "links" in of[1] else None), []).append((name, record))
    for records in found.values():
        records.sort(key=lambda one: (tokens_of(one[1]), one[0]))
    return sorted(found.items(), key=lambda item: list(PLACES).index(item[0][0]))


def picture_of(group, records):
    """The picture's file of a group of a GPU a rank, whose records are of one figure; None of others."""
    place, gpus, link = group
    if "shared" in place or len({record["figure"] for _, record in records}) > 1:
        return None
    return "-".join(["sequence", place, *re.findall(r"[a-z0-9]+", gpus.lower().replace("nvidia", "")), *([f"{link:g}"] if link else [])]) + ".svg"


def layers(folder):
    page = []
    for group, records in groups(folder):
        place, gpus, link = group
        strategies = [name for name in NAMES if name in measured(records[0][1])]
        links = "" if link is None else f" of {link:g} GB/s between machines"
        page += [f"## {gpus}, {PLACES[place]}{links}", "",
                 table(["layer", "machines x GPUs", "U x R", *(NAMES[name] for name in strategies), "fastest USP", *["alone"] * has_alone(records), *["link"] * (link is not None), "slowest",
                        "spread"], [layer_row(record, link, has_alone(records)) for _, record in records]),
                 *(f"![Time of each strategy beside USP's]({of})\n" for of in [picture_of(group, records)] if of),
                 *(f"- {source(name, record)}. `{command(record)}`" for name, record in records), ""]
    return page


NAMESPACES = "sequence-namespaces-*.json"
SHAPED = """## Machines that are network namespaces, computation by timed waits

Ranks of CPUs on one host, in namespaces whose links are shaped, both ways (`tests/parallel/sequence_machines.sh HEDDLE CASES timed MACHINES
RANKS MBIT ARGUMENTS...`). Computation waits as long as the rates say, and transfers are real. Seconds, in brackets what communication
exposes; `exposed` is what was measured over what was predicted. `to USP` is USP's measured time over the strategy's.
"""


def shaped_rows(record):
    rows = {source: {row["strategy"]: row for row in record["rows"] if row["source"].startswith(source)} for source in ("predicted", "measured")}
    for name in NAMES:
        if name not in rows["measured"]:
            continue
        one, forecast = rows["measured"][name], rows["predicted"][name]
        spread = one["spread"]
        yield [one["layer"], f"{one['machines']} x {one['gpus']}", f"{record['rates']['machine_link_gbps'] * 8000:.3g} Mbit/s", NAMES[name], degrees(one),
               *(f"{row['seconds']:.2f} ({row['exposed_seconds']:.2f})" for row in (forecast, one)),
               f"{one['exposed_seconds'] / forecast['exposed_seconds']:.2f}", f"{rows['measured']['usp']['seconds'] / one['seconds']:.2f}",
               f"{(spread['p90'] - spread['p10']) / one['seconds']:.1%}"]


def namespaces(folder):
    records = records_of(folder, NAMESPACES)
    if not records:
        return []
    return [SHAPED, table(["layer", "machines x ranks", "payload of a link", "strategy", "U x R", "predicted", "measured", "exposed", "to USP", "spread"],
                          [row for _, record in records for row in shaped_rows(record)]),
            *(f"- From `{name}`: commit {record['commit']}, {record['machine']['cpu']}. `{command(record)}`" for name, record in records), ""]


PREDICTED = """## Predicted for H200s

The same layers, each strategy with the degree that is predicted to be its fastest, from rates that records have: attention's of figure 12
at that length, NVLink's of the collectives, and what state that is carried from call to call costs
(`bench/sequence_rates.py`; `bench/predict_sequence.sh` has the commands). `alone` is the fastest strategy's computation without
transfers, and `exposed` how much longer its layer takes, of `alone`. No 4 H200s have been measured.
"""


def predicted_row(name, record):
    rows = {row["strategy"]: row for row in record["rows"]}
    best, usp = min(rows.values(), key=lambda row: row["seconds"]), fastest_usp(rows.values())
    alone = best["seconds"] - best["exposed_seconds"]
    return [best["layer"], f"{best['machines']} x {best['gpus']}", "NVLink" if "-gpus-" in name else f"{18.75 * best['gpus']:g} GB/s",
            *(f"{rows[of]['seconds'] * 1e3:.3f}, {degrees(rows[of])}" if of in rows else "-" for of in NAMES),
            f"{usp['seconds'] / rows['one_sided']['seconds']:.2f}", NAMES[best["strategy"]], f"{alone * 1e3:.3f}",
            f"{best['exposed_seconds'] / alone:.1%}"]


def predictions(folder):
    records = records_of(folder, "sequence-predicted-h200-*.json")
    if not records:
        return []
    records.sort(key=lambda one: ("-links-" in one[0], one[1]["rows"][0]["machines"] * one[1]["rows"][0]["gpus"],
                                  -one[1]["rows"][0]["machines"], tokens_of(one[1])))
    commits = ", ".join(sorted({record["commit"] for _, record in records}))
    return [PREDICTED, table(["layer", "machines x GPUs", "between machines", *NAMES.values(), "one-sided to the fastest USP", "fastest",
                              "alone", "exposed"], [predicted_row(name, record) for name, record in records]),
            f"- From `sequence-predicted-h200-*.json`: commit {commits}", ""]


def pieces(folder):
    """Figure 12: attention over pieces on one GPU, beside the fastest of PyTorch's kernels."""
    records = records_of(folder, PIECES)
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
            f"![TFLOP/s by length]({PIECES_PICTURE})\n",
            *(f"- {source(name, record)}. `{command(record)}`" for name, record, _ in of), ""]


def page(folder):
    return [INTRO, *layers(folder), *namespaces(folder), *predictions(folder), *pieces(folder)]
