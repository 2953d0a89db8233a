#!/usr/bin/env python3
"""report_sequence.py RECORD.json PICTURE.svg: draws a record of `heddle bench sequence-attention --json`.

The rows that the record predicts, if it has any; otherwise those that it measured.
"""
import json
import sys

import plots


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        record = json.load(file)
    if record["figure"] == 12:
        sys.exit("figure 12 is a table; there is nothing to draw")
    for source in ("predicted", "measured"):
        rows = [row for row in record["rows"] if row["source"] == source]
        if rows:
            plots.sequence_layers(rows, f"attention layers, {source} (figure {record['figure']})", sys.argv[2])
            return


main()
