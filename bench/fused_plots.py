"""The plots of fused operators, drawn as those of plots.py: cases of `heddle bench all-gather-linear` and its like."""
import sys

import matplotlib.ticker

import plots
from pages import ROOT
from plots import plt

sys.path.insert(0, str(ROOT / "tools"))
from ticks import label_of, ticks_around  # noqa: E402: after its folder is known

COLOURS = {"bsp": plots.BASELINE, "pull": plots.OTHER, "all-gather": plots.OTHER, "copy": "#7b5aa6", "waits": "#7b5aa6",
           "push": plots.HEDDLE, "fused": plots.HEDDLE}
STYLE = {"marker": "o", "markersize": 4}


def _size(value):
    return f"{value // 1024}K" if value % 1024 == 0 else str(value)


def _draw_times(axes, series):
    for variant, points in series.items():
        axes.plot(*zip(*points), label=variant, color=COLOURS[variant], **STYLE)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: label_of(value))


def _draw_ratios(axes, series):
    """How many times as fast as bsp each other variant is; returns the most."""
    bsp = dict(series["bsp"])
    ratios = {variant: [(size, bsp[size] / time) for size, time in points]
              for variant, points in series.items() if variant != "bsp"}
    for variant, points in ratios.items():
        axes.plot(*zip(*points), color=COLOURS[variant], **STYLE)
    axes.axhline(1, color=COLOURS["bsp"], linestyle="--", linewidth=1.2)
    return max([1.0, *(ratio for points in ratios.values() for _, ratio in points)])


def variants(panels, label, title, path):
    """Microseconds a call by size, and below them how many times as fast as bsp: {panel title: {variant: [(size, microseconds)]}}.

    Sizes, which `label` names, are on a logarithmic axis.
    """
    figure, all_axes = plt.subplots(2, len(panels), figsize=(max(5.4, 4.4 * len(panels)), 5.4), squeeze=False, sharex="col",
                                    sharey="row")
    most = 0
    for (times, ratios), (name, series) in zip(all_axes.T, panels.items()):
        _draw_times(times, series)
        most = max(most, _draw_ratios(ratios, series))
        sizes = sorted({size for points in series.values() for size, _ in points})
        ratios.set_xscale("log", base=2)
        ratios.set_xticks(sizes, [_size(size) for size in sizes])
        for axes in (times, ratios):
            axes.minorticks_off()
            axes.tick_params(labelsize=8)
        times.set_title(name)
        ratios.set_xlabel(label)
    ticks = ticks_around(1.03 * most, 7)  # room for the mark of the fastest
    all_axes[1][0].set_yticks(ticks, [label_of(tick) for tick in ticks])
    all_axes[1][0].set_ylim(0, ticks[-1])
    all_axes[0][0].set_ylabel("microseconds a call")
    all_axes[1][0].set_ylabel("speed, bsp = 1")
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.legend(*all_axes[0][0].get_legend_handles_labels(), loc="upper center", ncols=4, fontsize=9,
                  bbox_to_anchor=(0.5, 0.01))
    plots.save(figure, path)


LINES = {"predicted": {"linestyle": "--"}, "a GPU each": {"linestyle": "-", "marker": "o", "markersize": 4},
         "sharing one GPU": {"linestyle": "none", "marker": "x", "markersize": 6}}
CONTEXTS = [plots.HEDDLE, plots.OTHER, "#7b5aa6", plots.BASELINE]


def scaling(panels, title, path):
    """Microseconds by ranks: {panel title: {context: {one of LINES: {ranks: microseconds}}}}, a colour for each context."""
    figure, all_axes = plt.subplots(1, len(panels), figsize=(4.8 * len(panels), 3.8), squeeze=False)
    for axes, (name, contexts) in zip(all_axes[0], panels.items()):
        for colour, (context, lines) in zip(CONTEXTS, contexts.items()):
            for line, points in lines.items():
                if points:
                    axes.plot(*zip(*sorted(points.items())), color=colour, label=f"{_size(context)}, {line}", **LINES[line])
        ranks = sorted({count for lines in contexts.values() for points in lines.values() for count in points})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ranks, [str(count) for count in ranks])
        axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: label_of(value))
        axes.minorticks_off()
        axes.tick_params(labelsize=8)
        axes.set_xlabel("ranks")
        axes.set_title(name, fontsize=9)
    all_axes[0][0].set_ylabel("microseconds a call")
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.legend(*all_axes[0][0].get_legend_handles_labels(), loc="upper center", ncols=4, fontsize=8, bbox_to_anchor=(0.5, 0.01))
    plots.save(figure, path)
