#!/usr/bin/env python3
"""Fits the constants of the wafer's cost model (src/wafer/cost/wafer_cost.h) for WSE-2, once, to the visible cells of
tables 3, 4 and 6 of the WaferLLM paper together, and writes src/wafer/cost/wse2_fit.h.

    fit_plmr.py [--write src/wafer/cost/wse2_fit.h]

Cycles are linear in the constants, so this is a least-squares fit of relative errors with constants >= 0.
docs/notes/wafer.md says which structures were tried. Needs only numpy.
"""
import argparse
import itertools
import math
import sys

try:
    import numpy as np
except ImportError:
    sys.exit("fit_plmr.py: numpy is not there; install it (Debian: python3-numpy), or run this with a Python that has it")

CLOCK_HZ = 1.1e9
ALPHA = 1.0  # cycles per hop: from the hardware, not fitted (alpha and beta are nearly collinear)
CALLS = 2  # per tile step beside its slices: the transfers of A and B
RAMP = 2.0  # cycles through the two ramps of a transfer: assumed
CONTEXT = 4096
TILE_ROUNDING = 2 / 3  # a prefill tile's size, between exact (0) and rounded up (1); chosen, see the notes
OTHER_ROUNDINGS = (0, 1 / 3, 1)  # the ranges include fits with these
POWERS = {"t10": 0.7,  # chosen: growth of the crossbar's time with its words
          "ladder": 1.5}  # chosen: growth of the time to read a piece of weights with its values
OTHER_POWERS = {"t10": (0.65, 0.75), "ladder": (1.25, 1.75)}  # the ranges include fits with these
GEMV_MESH = 750  # not stated in the paper; the largest square of the wafer, and the fastest in this model

# num_layers, hidden, intermediate
MODELS = {"llama-3-8b": (32, 4096, 14336), "llama-2-13b": (40, 5120, 13824)}
ALL_MODELS = {**MODELS, "codellama-34b": (48, 8192, 22016), "qwen2-72b": (80, 8192, 29568)}
PREFILL_TPR = {  # table 3, tokens per second by the mesh's side
    "llama-3-8b": {480: 20320.6, 600: 25037.2, 720: 27686.5},
    "llama-2-13b": {480: 13685.1, 600: 16854.2, 720: 17498.3},
}
DECODE_TPR = {  # table 4
    "llama-3-8b": {420: 2699.9, 540: 2501.5, 660: 2243.3},
    "llama-2-13b": {420: 2039.2, 540: 1899.4, 660: 1739.8},
}
GEMV_SECONDS = {16384: 1.2e-6}  # table 6, rounded to two digits: 4 %
T10_PREFILL_TPR = {"llama-3-8b": {480: 175.0, 600: 156.6, 720: 132.8},
                   "llama-2-13b": {480: 121.3, 600: 100.6, 720: 81.3}}
T10_DECODE_TPR = {"llama-3-8b": {420: 418.3, 540: 339.4, 660: 265.1},
                  "llama-2-13b": {420: 341.8, 540: 270.8, 660: 233.7}}
LADDER_PREFILL_TPR = {"llama-3-8b": {480: 61.8, 600: 42.3, 720: 31.3},
                      "llama-2-13b": {480: 47.3, 600: 33.1, 720: 24.2}}
LADDER_DECODE_TPR = {"llama-3-8b": {420: 14.6, 540: 13.1, 660: 11.4}, "llama-2-13b": {420: 11.0, 540: 9.9, 660: 9.0}}

END_TO_END_SIDES = {"llama-3-8b": (660, 360), "llama-2-13b": (750, 375)}  # of prefill, of decode
END_TO_END_TPR = {  # table 2, held out from the fit: it measures the error of other predictions
    "waferllm": {"llama-3-8b": {(2048, 128): 764.4, (4096, 128): 604.4, (2048, 2048): 2370.3},
                 "llama-2-13b": {(2048, 128): 473.9, (4096, 128): 414, (2048, 2048): 1690.3}},
    "t10": {"llama-3-8b": {(2048, 128): 4.6, (4096, 128): 4.5, (2048, 2048): 58.3},
            "llama-2-13b": {(2048, 128): 2.6, (4096, 128): 2.5, (2048, 2048): 35.0}},
    "ladder": {"llama-3-8b": {(2048, 128): 1.2, (4096, 128): 1.1, (2048, 2048): 7.4},
               "llama-2-13b": {(2048, 128): 0.7, (4096, 128): 0.7, (2048, 2048): 4.9}},
}

# Section 7.1's averages over four models at a mesh's side. Two models are known, which leaves the mean of the other two. The text
# names no mesh; on these meshes the known cells match its averages and its "up to".
STATED_TIMES_FASTER = {"kT10Gemm": {600: 160}, "kT10Sum": {420: 5.7}, "kLadderGemm": {480: 270, 600: 450}, "kLadderSum": {420: 217}}

CONSTANTS = {  # candidates: name -> (identifier in C++, what it is)
    "e": ("kMacCycles", "cycles per multiply-accumulate"),
    "ck": ("kCallCycles", "cycles per call in a GEMM's tile step: a slice (one index of the inner dimension), a transfer"),
    "cw": ("kValueCycles", "cycles per value of a decode layer's element-wise work"),
    "cv": ("kVectorSliceCycles", "cycles per slice of a GEMV"),
    "beta": ("kBetaCycles", "cycles per routing stage"),
    "Fd": ("kDecodeSerialCycles", "cycles of a decode layer that nothing else explains"),
    "c": ("kColumnCycles", "cycles per column of a slice, in GEMM and GEMV alike"),
    "cs": ("kStepCycles", "cycles per tile step, on top"),
}
CHOSEN = ("e", "ck", "cw", "beta", "Fd")
STRUCTURES = [CHOSEN, ("e", "ck", "cv", "beta", "Fd"), ("e", "ck", "cw", "cv", "beta", "Fd"), ("e", "ck", "beta", "Fd"), ("e", "ck", "c", "beta", "Fd"), ("e", "cs", "beta", "Fd"),
              ("e", "c", "beta", "Fd"), ("e", "c", "cs", "beta", "Fd"), ("e", "ck", "cs", "beta", "Fd"),
              ("e", "cs", "cv", "beta", "Fd"), ("e", "ck", "cs", "cv", "beta", "Fd")]


def ceil_div(a, b):
    return -(-a // b)


def dealt(size, side, rounding=TILE_ROUNDING):
    return size / side + rounding * (ceil_div(size, side) - size / side)


def fan(side):
    root = math.isqrt(side)
    return root if root * root == side else root + 1


def add_all_reduce(terms, side, n):
    """K-tree with K = 2 over a line of `side` cores: a group of g reduces inwards over floor(g/2) stages, then the roots of the
    groups, g hops apart; the root near the middle multicasts. 1.5 n for words in, added and out."""
    g = fan(side)
    groups = ceil_div(side, g)
    group = groups // 2
    root = group * g + min(g, side - group * g) // 2
    terms["fixed"] += ALPHA * (g // 2 + groups // 2 * g + max(root, side - 1 - root)) + 1.5 * n
    terms["beta"] += g // 2 + groups // 2


def empty():
    return dict.fromkeys([*CONSTANTS, "fixed"], 0.0)


def prefill_terms(model, side, tokens, rounding=TILE_ROUNDING):
    """Cycles of a layer: nine GEMMs of `side` tile steps each, which overlap with transfers, and their alignments."""
    _, hidden, intermediate = model
    d, f, s = (dealt(size, side, rounding) for size in (hidden, intermediate, tokens))
    terms = empty()
    aligned = [(s, d, d)] * 4 + [(s, s, d)] + [(s, d, f)] * 2 + [(s, f, d)]
    terms["fixed"] = sum(side / 2 * (m * k / 2 + 2 * ALPHA + RAMP) for m, k, _ in aligned)
    for m, k, n in [*aligned, (s, d, s)]:  # the last one is Q K^T, by GEMM-T
        terms["e"] += side * m * k * n
        terms["c"] += side * k * n
        terms["ck"] += side * (k + CALLS)
        terms["cs"] += side
    # Chains of GEMM-T: one at the end, and two that wait where a root has moved across the line, minus the compute of two
    # steps (less than a chain in all cells).
    terms["fixed"] += 3 * side * ALPHA
    terms["beta"] += 3 * side
    terms["e"] -= 2 * s * d * s
    terms["c"] -= 2 * d * s
    terms["ck"] -= 2 * (d + CALLS)
    terms["cs"] -= 2
    return terms


def decode_terms(model, side, context):
    """Cycles of a layer: GEMVs, and an all-reduce after each of them, of both norms and of softmax's two: thirteen."""
    _, hidden, intermediate = model
    d, f, s = ceil_div(hidden, side), ceil_div(intermediate, side), ceil_div(context, side)
    terms = empty()
    terms["e"] = 4 * d * d + 2 * d * s + 3 * d * f
    terms["c"] = terms["cv"] = 7 * d + s + f
    # Two norms (4 d), rotations of Q and K (2 d), two residuals and the KV-cache write (4 d), softmax (3 s), SwiGLU (2 f).
    terms["cw"] = 10 * d + 3 * s + 2 * f
    terms["Fd"] = 1
    for n in decode_sums(d, f, s):
        add_all_reduce(terms, side, n)
    return terms


def t10_gemm_terms(model, side, tokens):
    """`side` steps, each of which moves all tiles of B through what behaves as one crossbar: its time grows less than
    proportionally with all words. A's tiles move at the same time."""
    products = layer_products(model, side, tokens)
    return {"fixed": 0.0, "crossbar": sum((side ** 3 * k * n / 2) ** POWERS["t10"] for _, k, n in products)}


def ladder_gemm_terms(model, side, tokens):
    """In each of a GEMM's `side` steps, `side` cores read a piece of A and one of B, one core after the other. Cost: an access,
    and for weights more than proportional to their values. A shared memory needs no padding."""
    products = exact_products(model, side, tokens)
    return {"fixed": 0.0, "access": 2 * len(products) * side ** 2,
            "weight": side ** 2 * sum((k * n) ** POWERS["ladder"] for _, k, n in products)}


def t10_sum_terms(model, side, context):
    """All-reduces along `side` cores: each hands sums on, to the root and back."""
    return {"fixed": 0.0, "relay": len(layer_sums(model, side, context)) * side}


def ladder_sum_terms(model, side, context):
    """All-reduces that read `side` partial sums one after the other: an access each, and a cost per value; and the GEMVs'
    weights, as in GEMMs."""
    _, hidden, intermediate = model
    sums = decode_sums(hidden / side, intermediate / side, context / side)
    weights = sum((k * n) ** POWERS["ladder"] for _, k, n in exact_products(model, side, context))
    return {"fixed": 0.0, "access": len(sums) * side, "value": sum(sums) * side, "weight": weights * side}


def own_compute(model, phase, side, tokens, constants):
    """Compute of a baseline, and in decode everything but sums, is assumed to be as in Heddle's own program."""
    if phase == "decode":
        own = decode_terms(model, side, tokens)
    else:
        products = layer_products(model, side, tokens)  # without alignments and GEMM-T's chains
        own = {**empty(), "e": side * sum(m * k * n for m, k, n in products),
               "ck": side * sum(k + CALLS for _, k, _ in products)}
    return predict({**own, "fixed": 0.0, "beta": 0.0}, constants)


def baseline_cells(rates, phase, terms_of, constants):
    cells = []
    for name, row in rates.items():
        for side, rate in row.items():
            terms = terms_of(MODELS[name], side, CONTEXT)
            terms["fixed"] += own_compute(MODELS[name], phase, side, CONTEXT, constants)
            tokens = CONTEXT if phase == "prefill" else 1
            cells.append((name, phase, side, terms, tokens / rate * CLOCK_HZ / MODELS[name][0]))
    return cells


def stated_cells(name, phase, rates, terms_of, constants):
    """One per stated average: the mean slowdown of the held-out models relative to WaferLLM."""
    fast, tokens = (PREFILL_TPR, CONTEXT) if phase == "prefill" else (DECODE_TPR, 1)
    unseen = [model for model in ALL_MODELS if model not in MODELS]
    cells = []
    for side, stated in STATED_TIMES_FASTER[name].items():
        rest = stated * len(ALL_MODELS) - sum(fast[model][side] / rates[model][side] for model in MODELS)
        total = {}
        for model in unseen:
            sizes = ALL_MODELS[model]
            own = prefill_terms(sizes, side, tokens) if phase == "prefill" else decode_terms(sizes, side, CONTEXT)
            terms = terms_of(sizes, side, CONTEXT)
            terms["fixed"] += own_compute(sizes, phase, side, CONTEXT, constants)
            for unit, value in terms.items():
                total[unit] = total.get(unit, 0) + value / predict(own, constants) / len(unseen)
        cells.append(("stated", phase, side, total, rest / len(unseen)))
    return cells


def end_to_end_errors(method, constants, baselines):
    """Error of the rate of table 2's cells, in per cent: layers only; the transition takes at most 1 %."""
    def cycles(model, phase, side, tokens):
        if method == "waferllm":
            terms = prefill_terms(model, side, tokens) if phase == "prefill" else decode_terms(model, side, tokens)
            return predict(terms, constants)
        name, _, _, _, terms_of = next(b for b in BASELINES if b[0].lower().startswith("k" + method) and b[2] == phase)
        return (predict(terms_of(model, side, tokens), baselines[name][0])
                + own_compute(model, phase, side, tokens, constants))

    errors = {}
    for name, row in END_TO_END_TPR[method].items():
        (prefill_side, decode_side), model = END_TO_END_SIDES[name], MODELS[name]
        if method != "waferllm":  # baselines do not move to other cores, as the differences of their columns show
            decode_side = prefill_side
        for (before, made), rate in row.items():
            total = cycles(model, "prefill", prefill_side, before)
            total += sum(cycles(model, "decode", decode_side, at) for at in range(before, before + made))
            errors[name, before, made] = 100 * (made / (model[0] * total / CLOCK_HZ) / rate - 1)
    return errors


def report_end_to_end(constants, baselines):
    """{method: {(model, in, out): relative error of the rate}}"""
    print("\n| end to end | in | out | error, % |\n|---|--:|--:|--:|")
    by_method = {}
    for method in END_TO_END_TPR:
        errors = end_to_end_errors(method, constants, baselines)
        for (name, before, made), value in errors.items():
            print(f"| {method}, {name} | {before} | {made} | {value:+.1f} |")
        by_method[method] = {cell: value / 100 for cell, value in errors.items()}
    return by_method


def products_of(d, f, s):
    return [(s, d, d)] * 4 + [(s, d, s), (s, s, d)] + [(s, d, f)] * 2 + [(s, f, d)]


def exact_products(model, side, tokens):
    _, hidden, intermediate = model
    return products_of(hidden / side, intermediate / side, tokens / side)


def layer_products(model, side, tokens):
    _, hidden, intermediate = model
    return products_of(ceil_div(hidden, side), ceil_div(intermediate, side), ceil_div(tokens, side))


def layer_sums(model, side, context):
    _, hidden, intermediate = model
    return decode_sums(ceil_div(hidden, side), ceil_div(intermediate, side), ceil_div(context, side))


def decode_sums(d, f, s):
    """Values of each all-reduce of a decode layer."""
    return [1, d, d, d, s, 1, 1, d, d, 1, f, f, d]


def gemv_terms(n, side):
    tile = ceil_div(n, side)
    terms = empty()
    terms["e"] = tile * tile
    terms["c"] = terms["cv"] = tile
    add_all_reduce(terms, side, tile)
    return terms


def visible_cells(rounding=TILE_ROUNDING):
    """(model, what, side, terms, cycles as published)"""
    cells = []
    for name, row in PREFILL_TPR.items():
        for side, rate in row.items():
            cells.append((name, "prefill", side, prefill_terms(MODELS[name], side, CONTEXT, rounding),
                          CONTEXT / rate * CLOCK_HZ / MODELS[name][0]))
    for name, row in DECODE_TPR.items():
        for side, rate in row.items():
            cells.append((name, "decode", side, decode_terms(MODELS[name], side, CONTEXT),
                          CLOCK_HZ / rate / MODELS[name][0]))
    for n, seconds in GEMV_SECONDS.items():
        cells.append((f"gemv {n}", "gemv", GEMV_MESH, gemv_terms(n, GEMV_MESH), seconds * CLOCK_HZ))
    return cells


def fit(cells, names):
    """Least squares of relative errors with constants >= 0: the best over all subsets of non-zero constants."""
    matrix = np.array([[terms[name] / cycles for name in names] for _, _, _, terms, cycles in cells])
    target = np.array([1 - terms["fixed"] / cycles for _, _, _, terms, cycles in cells])
    best, best_residual = None, math.inf
    for count in range(1, len(names) + 1):
        for subset in map(list, itertools.combinations(range(len(names)), count)):
            values = np.linalg.lstsq(matrix[:, subset], target, rcond=None)[0]
            residual = float(np.sum((matrix[:, subset] @ values - target) ** 2))
            if (values >= 0).all() and residual < best_residual - 1e-15:
                best, best_residual = np.zeros(len(names)), residual
                best[subset] = values
    return dict(zip(names, map(float, best)))


def predict(terms, constants):
    return terms["fixed"] + sum(value * terms[name] for name, value in constants.items())


def error(cell, constants):
    """Error of the time, in per cent: positive where the model is slower than the paper."""
    return 100 * (predict(cell[3], constants) / cell[4] - 1)


def standard_error(cells, constants):
    """Standard error of the relative errors; degrees of freedom: cells - constants."""
    squares = sum((error(cell, constants) / 100) ** 2 for cell in cells)
    return math.sqrt(squares / (len(cells) - len(constants)))


def leave_one_model_out(cells, names):
    errors = {}
    for model in MODELS:
        constants = fit([cell for cell in cells if cell[0] != model], names)
        errors.update({cell[:3]: error(cell, constants) for cell in cells if cell[0] == model})
    return errors


def ranges(cells, names):
    """Minimum and maximum over the fits that leave out one cell or one model."""
    fits = [fit(cells[:i] + cells[i + 1:], names) for i in range(len(cells))]
    fits += [fit([cell for cell in cells if cell[0] != model], names) for model in MODELS]
    return {name: (min(f[name] for f in fits), max(f[name] for f in fits)) for name in names}, fits


def largest(errors):
    return max(abs(e) for e in errors)


def report(cells):
    constants = fit(cells, CHOSEN)
    bounds, fits = ranges(cells, CHOSEN)
    fits = [{**values, "rounding": TILE_ROUNDING} for values in fits]
    fits += [{**fit(visible_cells(rounding), CHOSEN), "rounding": rounding} for rounding in OTHER_ROUNDINGS]
    out = leave_one_model_out(cells, CHOSEN)
    print("| constant | value | low | high | |\n|---|--:|--:|--:|---|")
    for name in CHOSEN:
        low, high = bounds[name]
        print(f"| {name} | {constants[name]:.4g} | {low:.4g} | {high:.4g} | {CONSTANTS[name][1]} |")
    print("\n| cell | mesh | published, cycles | predicted | error of the time, % | its model left out, % |\n"
          "|---|--:|--:|--:|--:|--:|")
    for cell in cells:
        left = out.get(cell[:3])
        print(f"| {cell[0]} {cell[1] if cell[1] != 'gemv' else ''} | {cell[2]} | {cell[4]:.0f} "
              f"| {predict(cell[3], constants):.0f} | {error(cell, constants):+.1f} "
              f"| {'' if left is None else f'{left:+.1f}'} |")
    print("\n| structure | prefill | decode | gemv | left out |\n|---|--:|--:|--:|--:|")
    for names in STRUCTURES:
        values = fit(cells, names)
        worst = [largest([error(c, values) for c in cells if c[1] == what]) for what in ("prefill", "decode", "gemv")]
        print(f"| {', '.join(f'{n} {v:.4g}' for n, v in values.items())} | " + " | ".join(f"{w:.1f}" for w in worst)
              + f" | {largest(leave_one_model_out(cells, names).values()):.1f} |")
    print(f"\nStandard error of a cell: {100 * standard_error(cells, constants):.2f} %")
    report_statements(constants)
    return constants, bounds, fits


BASELINES = [  # identifier, unit of each constant, phase, cells, terms
    ("kT10Gemm", ("crossbar",), "prefill", T10_PREFILL_TPR, t10_gemm_terms),
    ("kT10Sum", ("relay",), "decode", T10_DECODE_TPR, t10_sum_terms),
    ("kLadderGemm", ("access", "weight"), "prefill", LADDER_PREFILL_TPR, ladder_gemm_terms),
    ("kLadderSum", ("access", "value", "weight"), "decode", LADDER_DECODE_TPR, ladder_sum_terms),
]


def baseline_cycles(phase, terms_of, values, constants):
    """At the paper's meshes, for all four models: held-out ones are judged, too."""
    return [predict(terms_of(model, side, CONTEXT), values) + own_compute(model, phase, side, CONTEXT, constants)
            for model in ALL_MODELS.values() for side in ((480, 600, 720) if phase == "prefill" else (420, 540, 660))]


def spread(name, phase, rates, terms_of, units, constants):
    """Difference of the fits that leave out a cell or a model, and of those with other powers, from the chosen one."""
    def all_cells():
        return baseline_cells(rates, phase, terms_of, constants) + stated_cells(name, phase, rates, terms_of, constants)

    cells = all_cells()
    middle = baseline_cycles(phase, terms_of, fit(cells, units), constants)
    others = [baseline_cycles(phase, terms_of, values, constants) for values in ranges(cells, units)[1]]
    for method, powers in OTHER_POWERS.items():
        chosen = POWERS[method]
        for POWERS[method] in powers:
            others.append(baseline_cycles(phase, terms_of, fit(all_cells(), units), constants))
        POWERS[method] = chosen
    return max(abs(there / cycles - 1) for other in others for cycles, there in zip(middle, other))


def report_baselines(constants):
    """{identifier: (constants, standard error, spread over the fits that leave out a cell or a model)}"""
    fits = {}
    print("\n| baseline | constants | largest error, % | left out, % | over four models, % |\n|---|---|--:|--:|--:|")
    for name, units, phase, rates, terms_of in BASELINES:
        seen = baseline_cells(rates, phase, terms_of, constants)
        cells = seen + stated_cells(name, phase, rates, terms_of, constants)
        values = fit(cells, units)
        fits[name] = values, standard_error(cells, values), spread(name, phase, rates, terms_of, units, constants)
        print(f"| {name} | {', '.join(f'{v:.4g} a {u}' for u, v in values.items())} "
              f"| {largest([error(c, values) for c in seen]):.1f} "
              f"| {largest(leave_one_model_out(cells, units).values()):.1f} | {100 * fits[name][2]:.1f} |")
        for c in cells:
            print(f"|   {c[0]} {c[2]} | {error(c, values):+.1f} |")
    return fits


def report_ratios(constants, baselines):
    """Speedup of WaferLLM over the baselines, from the known published cells; the text has averages of four models."""
    print("\n| over | side | 8B | 13B | 34B | 72B | mean |\n|---|--:|--:|--:|--:|--:|--:|")
    for name, _, phase, _, terms_of in BASELINES:
        rates, tokens = (PREFILL_TPR, CONTEXT) if phase == "prefill" else (DECODE_TPR, 1)
        for side in (480, 600, 720) if phase == "prefill" else (420, 540, 660):
            ratios = []
            for model, sizes in ALL_MODELS.items():
                terms = prefill_terms(sizes, side, CONTEXT) if phase == "prefill" else decode_terms(sizes, side, CONTEXT)
                seen = rates.get(model, {}).get(side)
                cycles = tokens / seen * CLOCK_HZ / sizes[0] if seen else predict(terms, constants)
                slow = predict(terms_of(sizes, side, CONTEXT), baselines[name][0]) + own_compute(sizes, phase, side, CONTEXT, constants)
                ratios.append(slow / cycles)
            print(f"| {name} | {side} | " + " | ".join(f"{r:.1f}" for r in ratios) + f" | {sum(ratios) / 4:.1f} |")


def report_statements(constants):
    """Statements in the paper's text, held out from the fit."""
    def prefill(model, side):
        return predict(prefill_terms(model, side, CONTEXT), constants)
    print("\n| the text says | that is | by the model |\n|---|--:|--:|")
    for what, model, said in [("LLaMA3-8B gains from 480 to 720", MODELS["llama-3-8b"], 1.4),
                              ("QWen2-72B gains from 480 to 720", ALL_MODELS["qwen2-72b"], 1.6)]:
        print(f"| {what} | {said} | {prefill(model, 480) / prefill(model, 720):.2f} |")
    print("| 32K GEMV: 166 times the 16 GPUs, which take about the 0.340 ms of 16K | 2.05 us "
          f"| {predict(gemv_terms(32768, GEMV_MESH), constants) / CLOCK_HZ * 1e6:.2f} us |")


def header(constants, bounds, fits, baselines, residual, end_to_end):
    lines = ["// Made by tools/fit_plmr.py from the visible cells of tables 3, 4 and 6 of the WaferLLM paper. Do not edit.",
             "#pragma once", "", "#include <array>", "", "namespace heddle::wse2_fit {", "",
             "struct Fitted {", "  double value, low, high;", "};", ""]
    for name in CHOSEN:
        identifier, what = CONSTANTS[name]
        low, high = bounds[name]
        lines += [f"// {what[0].upper() + what[1:]}",
                  f"inline constexpr Fitted {identifier}{{{constants[name]:.6g}, {low:.6g}, {high:.6g}}};"]
    lines += ["", "// Standard error of the fitted time of a cell, relative.", f"inline constexpr double kResidual = {residual:.6g};",
              "", "// Relative errors of table 2's rates, which are held out from the fit: by the model's hidden size, tokens in and out.",
              "struct EndToEndError {", "  int hidden, in, out;", "  double error;", "};"]
    for name, method in [("", "waferllm"), ("T10", "t10"), ("Ladder", "ladder")]:
        errors = end_to_end[method]
        lines.append(f"inline constexpr std::array<EndToEndError, {len(errors)}> k{name}EndToEndErrors{{{{")
        lines += [f"    {{{MODELS[model][1]}, {before}, {made}, {error:.6g}}}," for (model, before, made), error in errors.items()]
        lines.append("}};")
    names = ", ".join(CONSTANTS[name][0] for name in CHOSEN)
    lines += ["", "// Position of a prefill tile's size between exact (0) and rounded up (1): chosen, not fitted.",
              f"inline constexpr double kTileRounding = {TILE_ROUNDING:.6g};",
              "", "// The fits that leave out one cell or one model, and those with another rounding; the source of ranges:",
              f"// {names}, kTileRounding",
              f"inline constexpr std::array<std::array<double, {len(CHOSEN) + 1}>, {len(fits)}> kOtherFits{{{{"]
    lines += ["    {" + ", ".join(f"{other[name]:.6g}" for name in (*CHOSEN, "rounding")) + "}," for other in fits]
    lines += ["}};", "", "// Baselines' constants, fitted to their cells of tables 3 and 4 (wafer_baselines.h)."]
    for name, (values, _, _) in baselines.items():
        for unit, value in values.items():
            lines.append(f"inline constexpr double {name}{unit.capitalize()} = {value:.6g};")
    lines += [f"inline constexpr double kT10GemmPower = {POWERS['t10']:.6g};  // chosen",
              f"inline constexpr double kLadderWeightPower = {POWERS['ladder']:.6g};  // chosen",
              "", "// Relative errors of a fitted cell's time: the standard error, and the largest change for any of four models when a",
              "// cell or a model is left out or the power changes.",
              "struct BaselineResiduals {", "  double gemm, gemm_spread, sum, sum_spread;", "};"]
    for method, gemm, sums in [("T10", "kT10Gemm", "kT10Sum"), ("Ladder", "kLadderGemm", "kLadderSum")]:
        lines.append(f"inline constexpr BaselineResiduals k{method}Residuals{{{baselines[gemm][1]:.6g}, {baselines[gemm][2]:.6g}, "
                     f"{baselines[sums][1]:.6g}, {baselines[sums][2]:.6g}}};")
    return "\n".join([*lines, "", "}  // namespace heddle::wse2_fit", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", help="where the header goes")
    arguments = parser.parse_args()
    constants, bounds, fits = report(visible_cells())
    baselines = report_baselines(constants)
    report_ratios(constants, baselines)
    end_to_end = report_end_to_end(constants, baselines)
    if arguments.write:
        with open(arguments.write, "w", encoding="utf-8") as file:
            file.write(header(constants, bounds, fits, baselines, standard_error(visible_cells(), constants), end_to_end))


if __name__ == "__main__":
    main()
