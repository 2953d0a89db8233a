"""The section of docs/results/cluster.md that says what a fused attention block can gain, from the records in bench/results."""
from pages import parse_record

MODEL = "llama-2-7b"
BLOCK = ("rmsnorm", "linear qkv", "rope_kv_write", "attention", "linear output")
# Of ClusterFusion's own kernel, microseconds by context, on the H200 of docs/notes/cluster.md; there is no record.
PAPERS_KERNEL = {1024: 117, 4096: 137, 16384: 214}


def read(folder, name):
    path = folder / name
    if not path.exists():
        return None
    return parse_record(path.read_text(encoding="utf-8"))


def median(way):
    return way["seconds"]["median"]


def joined(values, form):
    return " / ".join(format(value, form) for value in values)


def launches(case, of_step):
    kernels = sum(one["calls_per_step"] for one in of_step)
    layers = next(one["calls_per_step"] for one in of_step if one["operator"] == "rope_kv_write")
    gap = case["gap_seconds"] / case["tokens"]
    return (f"- **Launches.** A step is {kernels} operators; one for each attention block would leave {kernels - layers * (len(BLOCK) - 1)}."
            f" In a captured step with programmatic dependent launch that saves nothing: the step takes {gap * 1e6:+.0f} us"
            f" ({gap * 1e3 / case['milliseconds_per_token']:+.1%}) against the sum of its operators, each measured alone, back to back in a"
            " graph. An uncaptured baseline pays for every launch.")


def uncaptured(folder):
    """Of PyTorch without a graph, where that was measured: `scripts/gpu.sh cluster`."""
    record = read(folder, f"gpu-h200-uncaptured-{MODEL}.json")
    if record is None:
        return "- **An uncaptured baseline** was not measured here yet (`scripts/gpu.sh cluster` measures PyTorch without graphs)."
    ratios = joined([case["ratio_of_medians"] for case in record["cases"]], ".2f")
    contexts = joined([case["context"] for case in record["cases"]], "d")
    return (f"- **An uncaptured baseline**, PyTorch without graphs, takes {ratios} times as long as our captured separate operators at"
            f" {contexts} tokens (`gpu-h200-uncaptured-{MODEL}.json`).")


def traffic(of_step):
    block = {one["operator"]: one["bytes"] for one in of_step if one["operator"] in BLOCK}
    between = block["rmsnorm"] + block["rope_kv_write"]
    return (f"- **Traffic.** Norm, rotation and KV-cache write move {between / 1e3:.0f} KB a block, beside the {sum(block.values()) / 1e6:.0f} MB of"
            f" weights, keys and values that every form must read: {between / sum(block.values()):.2%}. They stay in L2.")


def left(block, case):
    layers = next(one["calls_per_step"] for one in case["operators"][0]["operators"] if one["operator"] == "rope_kv_write")
    separate = [context["ways"][0] for context in block["contexts"]]
    roofline = [context["floor_seconds"] for context in block["contexts"]]
    best = [min(context["ways"][1:], key=median) for context in block["contexts"]]
    above = [median(way) - floor for way, floor in zip(separate, roofline)]
    at = [context["context"] for context in block["contexts"]]
    step = case["milliseconds_per_token"] * 1e-3
    own = [PAPERS_KERNEL[context] for context in at]
    return [f"- **What is left.** At {joined(at, 'd')} tokens the captured separate operators take {joined([1e6 * median(way) for way in separate], '.1f')} us"
            f" a block and are {joined([1e6 * one for one in above], '.1f')} us above the roofline, the fill and the drain of five kernels. A block"
            f" at the roofline would be {joined([median(way) / floor for way, floor in zip(separate, roofline)], '.2f')}x as fast, and a whole"
            f" step at {at[0]} tokens {step / (step - layers * above[0]):.2f}x.",
            f"- **What the fused block takes.** Its fastest form is {joined([1e6 * (median(way) - floor) for way, floor in zip(best, roofline)], '.1f')}"
            f" us above the roofline, {joined([median(a) / median(b) for a, b in zip(separate, best)], '.2f')}x as fast as the separate operators: the"
            " waits between its phases cost more than those between kernels that overlap.",
            f"- **The paper's own kernel** took {joined(own, 'd')} us on an H200 ([notes](../notes/cluster.md)),"
            f" {joined([us / (1e6 * median(way)) for us, way in zip(own, separate)], '.1f')} times as long as the separate operators here. So what"
            " it gains in the paper, it gains over baselines that are slower still."]


def exchanges(cluster):
    def ratios(operation):
        found = []
        for one in cluster["table_1"]:
            on = [median(way) for way in one["routes"] if way["route"] not in ("packets", "flags")]
            off = [median(way) for way in one["routes"] if way["route"] in ("packets", "flags")]
            if (one["operation"], one["busy"]) == (operation, "all") and on and off:
                found.append(min(off) / min(on))
        return f"{min(found):.2f} to {max(found):.2f}x"

    return (f"- **DSMEM.** With all clusters busy a gather is {ratios('gather')} and a reduction {ratios('reduce')} as fast as through L2, a"
            " microsecond or two a call. A block has two to five such exchanges.")


def conclusion(folder):
    """Lines of Markdown; none without the records."""
    decode, block, cluster = (read(folder, f"gpu-h200-{name}.json") for name in (f"decode-{MODEL}", f"block-{MODEL}", "cluster"))
    if None in (decode, block, cluster):
        return []
    case = next(case for case in decode["cases"] if (case["batch"], case["context"]) == (1, 1024))
    of_step = case["operators"][0]["operators"]
    return ["## Where the paper's gain comes from, and what is left of it", "",
            f"{MODEL}, one text, NVIDIA H200; from `gpu-h200-decode-{MODEL}.json`, `gpu-h200-block-{MODEL}.json` and `gpu-h200-cluster.json`.", "",
            launches(case, of_step), traffic(of_step), uncaptured(folder), *left(block, case), exchanges(cluster), "",
            "By these figures the paper gains launches and the host's part in them. A captured step has removed both, and against it a fused block"
            " can win only by reading memory more steadily than five overlapping kernels do. Ours does not, at any size that was measured,"
            " and is not chosen.", ""]
