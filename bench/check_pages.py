#!/usr/bin/env python3
"""Names the pages of docs/results that are not those of the records in bench/results, and the predictions that are not those of
the records they are made from. Exits with 1 if there are any.

    bench/check_pages.py

Of pages that can be made without matplotlib; pictures are not compared.
"""
import json
import sys

import predict_fused
import predict_weave
import report_cluster
import report_fused
import report_steps
import sequence_tables
from pages import ROOT, text_of

RESULTS = ROOT / "bench" / "results"


def main():
    pages = {
        "experts": (report_steps.experts(RESULTS), "report_steps.py"),
        "token_weave": (report_steps.modes(RESULTS), "report_steps.py"),
        "cluster": (report_cluster.page_of(RESULTS)[0], "report_cluster.py"),
        "fused": (report_fused.page_of(RESULTS)[0], "report_fused.py"),
        "sequence": (sequence_tables.page(RESULTS), "report_sequence.py"),
    }
    faults = 0
    for name, (page, script) in pages.items():
        path = ROOT / "docs" / "results" / f"{name}.md"
        if path.read_text(encoding="utf-8") != text_of(page):
            faults += 1
            print(f"{path.relative_to(ROOT)} is not that of the records: run bench/{script}")
    for prediction in (predict_fused, predict_weave):
        if json.loads(prediction.PREDICTED.read_text(encoding="utf-8")) != prediction.prediction():
            faults += 1
            print(f"{prediction.PREDICTED.relative_to(ROOT)} is not that of the records: run bench/{prediction.__name__}.py")
    sys.exit(1 if faults else 0)


main()
