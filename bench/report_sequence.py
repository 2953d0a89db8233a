#!/usr/bin/env python3
"""Without arguments, report_sequence.py generates docs/results/sequence.md and its pictures from the JSON in bench/results: do not
edit it by hand.

report_sequence.py RECORD.json... PICTURE.svg draws records of `heddle bench sequence-attention --json`, of one figure, in one picture. Of
figures 7 to 10 the rows that they predict, if there are any; with --measured those that they measured. Prints their commits, for the
page that shows the picture.
"""
import json
import pathlib
import sys

import sequence_plots
import sequence_tables
from pages import ROOT, records_of, write


def whereabouts(rows):
    """Where the ranks of measured rows were: machines and links that one host emulates are called so."""
    places = {row["ranks_on"] + (", emulated machines" if row["emulated_machines"] else "") +
              (" and links" if row["emulated_links"] else "") for row in rows}
    return "; ".join(sorted(places))


def draw(records, measured, picture):
    """Records of one figure, in one picture."""
    record, rows = records[0], [row for one in records for row in one["rows"]]
    number = record["figure"]
    if any(one["figure"] != number for one in records):
        sys.exit("records of several figures do not go into one picture")
    print(f"{picture}: figure {number}, commit {', '.join(sorted({one['commit'] for one in records}))}")
    if number == 12:
        of = record["gpu"]["name"] if record.get("gpu") else record["machine"]["cpu"]
        rows.sort(key=lambda row: (row["head_dim"], row["tokens"]))
        sequence_plots.pieces(rows, f"Attention over pieces, {of} (figure 12)", picture)
        return
    found = {source: [row for row in rows if row["source"] == source] for source in ("predicted", "measured")}
    source = "predicted" if found["predicted"] and not measured else "measured"
    if not found[source]:
        sys.exit(f"{picture}: no {source} rows")
    of = f"predicted; rates: {record['rates']['source']}" if source == "predicted" else f"measured, {whereabouts(found[source])}"
    plot = sequence_plots.degrees if number == 8 and len(records) == 1 else sequence_plots.layers
    plot(found[source], f"Attention layers, {of} (figure {number})", picture)


def main():
    arguments = [word for word in sys.argv[1:] if word != "--measured"]
    if len(sys.argv) == 1:
        results, pages = ROOT / "bench" / "results", ROOT / "docs" / "results"
        write(sequence_tables.page(results), pages / "sequence.md")
        for group, records in sequence_tables.groups(results):
            if picture := sequence_tables.picture_of(group, records):
                draw([record for _, record in records], True, pages / picture)
        draw([record for _, record in records_of(results, sequence_tables.PIECES)], True, pages / sequence_tables.PIECES_PICTURE)
        return
    if len(arguments) < 2:
        sys.exit(__doc__)
    *paths, picture = arguments
    draw([json.loads(pathlib.Path(path).read_text(encoding="utf-8")) for path in paths], "--measured" in sys.argv, picture)


main()
