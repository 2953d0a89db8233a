"""The plots of docs/results, drawn by matplotlib (tools/requirements.txt) as SVG.

Each function takes the figures and the file to write. The same figures give the same file: no date, no random ids.
Those of sequence parallelism are in sequence_plots.py, those of fused operators in fused_plots.py.
"""
import matplotlib
import matplotlib.ticker

matplotlib.use("Agg")
matplotlib.rcParams.update({
    "svg.hashsalt": "heddle", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "axes.titlesize": 10,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e4e4e4",
    "legend.frameon": False, "figure.facecolor": "white"})
import matplotlib.pyplot as plt  # noqa: E402: after the backend is chosen

HEDDLE, BASELINE, OTHER, ROOFLINE = "#1b6ca8", "#c8553d", "#3a7d44", "#777777"
COLOURS = {"Heddle": HEDDLE, "roofline": ROOFLINE}


def _colour(name, taken):
    """Heddle and the roofline keep theirs on every plot; baselines take the others in order."""
    return COLOURS.get(name) or [BASELINE, OTHER, "#7b5aa6"][taken]


def save(figure, path):
    figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    plt.close(figure)


def _draw(axes, series):
    taken = 0
    for name, points in series.items():
        xs, ys = zip(*sorted(points))
        dashed = {"linestyle": "--", "linewidth": 1.2} if name == "roofline" else {"marker": "o", "markersize": 4}
        axes.plot(xs, ys, label=name, color=_colour(name, taken), **dashed)
        taken += name not in COLOURS


def size_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def batches(series, title, path):
    """tokens/s by batch: {name: [(batch, tokens/s)]}."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    _draw(axes, series)
    axes.set(xlabel="sequences in a batch", ylabel="tokens/s, all sequences", title=title)
    axes.set_xscale("log", base=2)
    ticks = [1, 2, 4, 8, 16, 32, 64]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    save(figure, path)


def contexts(models, title, path):
    """tokens/s of one sequence by context, a panel a model: {model: {name: [(context, tokens/s)]}}."""
    figure, panels = plt.subplots(1, len(models), figsize=(2.9 * len(models), 3.0), squeeze=False)
    for axes, (model, series) in zip(panels[0], models.items()):
        _draw(axes, series)
        ticks = sorted({context for points in series.values() for context, _ in points})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{tick // 1024}K" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set(title=model, xlabel="context, tokens")
    panels[0][0].set_ylabel("tokens/s")
    panels[0][0].legend(loc="lower left")
    figure.suptitle(title, y=1.04)
    save(figure, path)


def bars(panels, path):
    """Horizontal pairs of bars: {panel title: [(label, {name: tokens/s})]}."""
    heights = [max(1, len(rows)) for rows in panels.values()]
    figure, all_axes = plt.subplots(len(panels), 1, figsize=(7.0, 0.55 * sum(heights) + 0.9 * len(panels)), squeeze=False,
                                    gridspec_kw={"height_ratios": heights})
    names = list(dict.fromkeys(name for rows in panels.values() for _, values in rows for name in values))
    for axes, (title, rows) in zip((line[0] for line in all_axes), panels.items()):
        width = 0.8 / len(names)
        for i, name in enumerate(names):
            shown = [(j, values[name]) for j, (_, values) in enumerate(rows) if name in values]
            bar = axes.barh([j + (i - (len(names) - 1) / 2) * width for j, _ in shown], [value for _, value in shown], width,
                            color=_colour(name, i - (names[0] in COLOURS)), label=name)
            axes.bar_label(bar, fmt=lambda value: f"{value:.3g}" if value < 1000 else f"{value:.0f}", padding=3, fontsize=8)
        axes.set_yticks(range(len(rows)), [label for label, _ in rows])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(title=title)
        axes.margins(x=0.1)
    all_axes[-1][0].set_xlabel("tokens/s")
    all_axes[0][0].legend(loc="lower right")
    figure.tight_layout()
    save(figure, path)


def sizes(series, title, path):
    """Microseconds by bytes, both axes logarithmic: {name: [(bytes, us)]}."""
    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    _draw(axes, series)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = sorted({size for points in series.values() for size, _ in points})
    axes.set_xticks(ticks, [size_text(tick) for tick in ticks], fontsize=8)
    axes.minorticks_off()
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}".replace(",", " "))
    axes.tick_params(axis="y", labelsize=8)
    axes.set(xlabel="bytes of a rank's larger buffer", ylabel="microseconds a call", title=title)
    axes.legend(loc="upper left")
    save(figure, path)


def clusters(figure, title, path):
    """Latency, bandwidth and active SMs by cluster size: a record's figure_5. The roofline is global memory's."""
    of = figure["clusters"]
    sizes_of = [one["cluster"] for one in of]
    panels = (("cycles a load", [one["latency_cycles"] for one in of], figure["global_latency_cycles"]),
              ("read, TB/s", [one["read_bytes_per_second"]["median"] * 1e-12 for one in of],
               figure["global_read_bytes_per_second"] * 1e-12),
              ("active SMs", [one["active_sms"] for one in of], None))
    drawn, all_axes = plt.subplots(1, 3, figsize=(9.6, 3.0))
    for axes, (label, values, of_memory) in zip(all_axes, panels):
        axes.plot(sizes_of, values, marker="o", markersize=4, color=HEDDLE)
        if of_memory is not None:
            axes.axhline(of_memory, color=ROOFLINE, linestyle="--", linewidth=1.2, label="global memory")
            axes.legend(loc="best")
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes_of, [str(size) for size in sizes_of])
        axes.minorticks_off()
        axes.set(xlabel="blocks of a cluster", ylabel=label)
        axes.set_ylim(0, 1.1 * max(*values, of_memory or 0))
    drawn.suptitle(title, fontsize=10)
    drawn.tight_layout()
    save(drawn, path)


def latency_throughput(series, title, path):
    """TTFT and TPOT by throughput: {name: [{"output_tokens_per_s", "ttft_ms", "tpot_ms"}]}, cases of `heddle bench serve`
    in order of their load. Lines are means, marks above them the 99th percentiles."""
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.4))
    for axes, key, label in zip(panels, ("ttft_ms", "tpot_ms"), ("time to first token", "time per output token")):
        for i, (name, cases) in enumerate(series.items()):
            known = [case for case in cases if case[key] is not None]
            rates = [case["output_tokens_per_s"] for case in known]
            colour = _colour(name, i - (next(iter(series)) in COLOURS))
            axes.plot(rates, [case[key]["mean"] for case in known], label=name, color=colour, marker="o", markersize=4)
            axes.plot(rates, [case[key]["p99"] for case in known], color=colour, marker="_", linestyle="none")
        axes.set(xlabel="output tokens/s", ylabel=f"{label}, ms (mean; dash: p99)")
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
    panels[0].legend(loc="upper left")
    figure.suptitle(title)
    figure.tight_layout()
    save(figure, path)
