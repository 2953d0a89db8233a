"""The plots of sequence parallelism, drawn as those of plots.py: records of `heddle bench sequence-attention --json`."""
import plots
from plots import plt
from matplotlib.patches import Patch

COLOURS = {"usp": plots.BASELINE, "tas": plots.OTHER, "torus": "#7b5aa6", "one_sided": plots.HEDDLE, "ulysses": plots.ROOFLINE,
           "ring": "#b8a13a"}
NAMES = {"usp": "USP", "tas": "TAS", "torus": "Torus Attention", "one_sided": "one-sided", "ulysses": "Ulysses", "ring": "Ring"}
COLUMNS = 6  # groups of bars side by side: their labels stay readable
EXPOSED = 0.4  # opacity of exposed communication


def _strategies(rows):
    return list(dict.fromkeys(row["strategy"] for row in rows))


def _layer(row):
    return row["layer"], row["machines"], row["gpus"]


def _placement(machines, gpus):
    return f"{machines} machines x {gpus} GPU" + ("s" if gpus > 1 else "")


def _best(rows):
    """{strategy: its row with the fastest degrees}."""
    best = {}
    for row in rows:
        known = best.get(row["strategy"])
        best[row["strategy"]] = row if known is None or row["seconds"] < known["seconds"] else known
    return best


def _group(axes, place, best, width):
    """The bars of one layer, a strategy each, beside USP = 1: computation, and exposed communication on top of it."""
    usp = best["usp"]["seconds"] if "usp" in best else 1.0
    for index, (strategy, row) in enumerate(best.items()):
        at = place + (index - (len(best) - 1) / 2) * width
        exposed = max(0.0, row.get("exposed_seconds", 0.0))  # a difference of medians may be below 0
        axes.bar(at, (row["seconds"] - exposed) / usp, width, color=COLOURS[strategy])
        axes.bar(at, exposed / usp, width, bottom=(row["seconds"] - exposed) / usp, color=COLOURS[strategy], alpha=EXPOSED)


def layers(rows, title, path):
    """Seconds of attention layers by strategy, as bars beside USP = 1; exposed communication is the lighter part.

    `rows`: all predicted or all measured.
    """
    of = list(dict.fromkeys(map(_layer, rows)))
    placements = {(machines, gpus) for _, machines, gpus in of}
    lines = [of[i:i + COLUMNS] for i in range(0, len(of), COLUMNS)]
    columns = max(map(len, lines))
    strategies = _strategies(rows)
    figure, panels = plt.subplots(len(lines), 1, figsize=(max(6.4, 1.4 * columns), 2.1 * len(lines) + 1.0), squeeze=False,
                                  sharey=True)
    for axes, line in zip(panels[:, 0], lines):
        for place, layer in enumerate(line):
            _group(axes, place, _best(row for row in rows if _layer(row) == layer), 0.8 / len(strategies))
        where = [""] * len(line) if len(placements) == 1 else [f"\n{machines} x {gpus}" for _, machines, gpus in line]
        axes.set_xticks(range(len(line)), [name.replace(", ", "\n") + of_it for (name, _, _), of_it in zip(line, where)], fontsize=9)
        axes.set_xlim(-0.6, columns - 0.4)
        axes.grid(axis="x", visible=False)
        axes.set_ylabel("time, USP = 1")
    panels[0, 0].set_ylim(top=1.05 * panels[0, 0].get_ylim()[1])
    if len(placements) == 1:
        title += f", {_placement(*next(iter(placements)))}"
    else:
        title += ", machines x GPUs below the name"
    figure.suptitle(title, fontsize=10)
    parts = [Patch(color=COLOURS[strategy], label=NAMES[strategy]) for strategy in strategies]
    if any("exposed_seconds" in row for row in rows):  # predictions, and layers measured beside computation alone
        parts += [Patch(color="#555555", label="full colour: computation"),
                  Patch(color="#555555", alpha=EXPOSED, linewidth=0, label="pale: exposed communication")]
    figure.tight_layout()
    figure.legend(handles=parts, loc="upper center", ncols=min(len(parts), 6), fontsize=8, bbox_to_anchor=(0.5, 0.01),
                  columnspacing=1.0, handlelength=1.4)
    plots.save(figure, path)


def degrees(rows, title, path):
    """Milliseconds of attention layers by U x R, a panel for each layer and placement: a record's figure 8."""
    of = list(dict.fromkeys(map(_layer, rows)))
    columns = min(4, len(of))
    lines = -(-len(of) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(3.0 * columns, 2.7 * lines), squeeze=False)
    for axes in panels.flat[len(of):]:
        axes.set_visible(False)
    for axes, layer in zip(panels.flat, of):
        of_layer = [row for row in rows if _layer(row) == layer]
        of_axis = sorted({row["ulysses"] for row in of_layer})
        for strategy in _strategies(rows):
            points = sorted((row["ulysses"], row["seconds"] * 1e3) for row in of_layer if row["strategy"] == strategy)
            alone = {"linestyle": "none"} if len(points) == 1 else {}  # Ulysses and Ring have one degree
            axes.plot([of_axis.index(degree) for degree, _ in points], [ms for _, ms in points], marker="o", markersize=4,
                      color=COLOURS[strategy], label=NAMES[strategy], **alone)
        ranks = layer[1] * layer[2]
        axes.set_xticks(range(len(of_axis)), [f"{degree} x {ranks // degree}" for degree in of_axis], fontsize=8,
                        rotation=45 if len(of_axis) > 4 else 0)
        axes.set_title(f"{layer[0]}, {_placement(*layer[1:])}", fontsize=9)
        axes.set_ylim(0, 1.15 * max(row["seconds"] * 1e3 for row in of_layer))
    for line in panels:
        line[0].set_ylabel("ms of a layer")
    figure.suptitle(title, fontsize=10)
    figure.supxlabel("Ulysses degree x ring degree", fontsize=10)
    figure.tight_layout()
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="upper center", ncols=len(COLOURS), fontsize=9,
                  bbox_to_anchor=(0.5, 0.01))
    plots.save(figure, path)


def pieces(rows, title, path):
    """TFLOP/s of attention over pieces by sequence length, a panel for each head dimension: a record's figure 12."""
    head_dims = list(dict.fromkeys(row["head_dim"] for row in rows))
    cases = list(dict.fromkeys(row["case"] for row in rows))
    colours = dict(zip(cases, [plots.HEDDLE, plots.OTHER, "#8fbf95", "#7b5aa6", "#b9a5d3"]))
    figure, panels = plt.subplots(1, len(head_dims), figsize=(4.2 * len(head_dims), 3.4), squeeze=False)
    for axes, head_dim in zip(panels[0], head_dims):
        of = [row for row in rows if row["head_dim"] == head_dim]
        lengths = sorted({row["tokens"] for row in of})
        series = {case: [(row["tokens"], row["tflops"]) for row in of if row["case"] == case] for case in cases}
        series["baseline"] = [(row["tokens"], row["tflops"] * row["seconds"]["median"] / row["peer_seconds"]["median"])
                              for row in of if "peer_seconds" in row]
        for name, points in series.items():
            if points:
                axes.plot([lengths.index(tokens) for tokens, _ in points], [rate for _, rate in points], marker="o",
                          markersize=4, label=name, color=colours.get(name, plots.BASELINE))
        axes.set_xticks(range(len(lengths)), [str(length) for length in lengths], fontsize=8)
        axes.set(title=f"{of[0]['heads']} heads of {head_dim}", xlabel="tokens")
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    panels[0][0].set_ylabel("TFLOP/s")
    panels[0][0].legend(loc="lower right", fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    plots.save(figure, path)
