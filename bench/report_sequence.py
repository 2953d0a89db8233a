#!/usr/bin/env python3
"""Without arguments, report_sequence.py generates docs/results/sequence.md from the JSON in bench/results: do not edit it by hand.

report_sequence.py RECORD.json PICTURE.svg draws a record of `heddle bench sequence-attention --json`. Of figures 7 to 10 the rows
that the record predicts, if it has any; with --measured those that it measured. Prints the record's commit, for the page that shows
the picture.
"""
import json
import sys

import sequence_plots
import sequence_tables
from pages import ROOT, write


def whereabouts(rows):
    """Where the ranks of measured rows were: machines that one host emulates are called so."""
    places = {row["ranks_on"] + (", emulated machines" if row["emulated_machines"] else "") for row in rows}
    return "; ".join(sorted(places))


def main():
    if len(sys.argv) == 1:
        write(sequence_tables.page(ROOT / "bench" / "results"), ROOT / "docs" / "results" / "sequence.md")
        return
    arguments = [word for word in sys.argv[1:] if word != "--measured"]
    if len(arguments) != 2:
        sys.exit(__doc__)
    with open(arguments[0], encoding="utf-8") as file:
        record = json.load(file)
    number, rows = record["figure"], record["rows"]
    print(f"{arguments[1]}: figure {number}, commit {record['commit']}")
    if number == 12:
        of = record["gpu"]["name"] if record.get("gpu") else record["machine"]["cpu"]
        sequence_plots.pieces(rows, f"Attention over pieces, {of} (figure 12)", arguments[1])
        return
    found = {source: [row for row in rows if row["source"] == source] for source in ("predicted", "measured")}
    source = "predicted" if found["predicted"] and "--measured" not in sys.argv else "measured"
    if not found[source]:
        sys.exit(f"{arguments[0]}: no {source} rows")
    of = f"predicted; rates: {record['rates']['source']}" if source == "predicted" else f"measured, {whereabouts(found[source])}"
    draw = sequence_plots.degrees if number == 8 else sequence_plots.layers
    draw(found[source], f"Attention layers, {of} (figure {number})", arguments[1])


main()
