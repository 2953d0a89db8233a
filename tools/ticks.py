"""Round ticks for the SVGs that the tools here draw."""
import math


def step_of(most, parts):
    """The least of 1, 2 and 5 times a power of ten of which at most `parts` fit into 0 to `most`."""
    power = 10.0 ** math.floor(math.log10(most / parts))
    return next(power * digit for digit in (1, 2, 5, 10) if most / (power * digit) <= parts * (1 + 1e-9))


def ticks_within(most, parts):
    """0, a step, two steps, ... as far as `most`."""
    step = step_of(most, parts)
    return [step * i for i in range(int(most / step * (1 + 1e-9)) + 1)]


def ticks_around(most, parts):
    """The same with one more where `most` lies behind the last: an axis that ends at its last tick."""
    found = ticks_within(most, parts)
    return found if found[-1] >= most else found + [found[-1] + found[1]]


def label_of(value):
    return f"{value:,.10g}".replace(",", " ")


def time_axis(left, width, top, bottom, microseconds):
    """SVG lines from `top` to `bottom` and labels below them, of a time axis as wide as `microseconds`; its unit is with
    the last label: ms from 5 ms on, us below."""
    divisor, unit = (1000, "ms") if microseconds >= 5000 else (1, "us")
    found = ticks_within(microseconds / divisor, 10)
    body = []
    for tick in found:
        x = left + width * tick * divisor / microseconds
        words = label_of(tick) + (f" {unit}" if tick == found[-1] else "")
        body.append(f'<path d="M{x:.1f} {top} V{bottom}" stroke="#e4e4e4"/>'
                    f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" fill="#444444">{words}</text>')
    return body
