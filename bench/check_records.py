#!/usr/bin/env python3
"""Names the records in bench/results whose commit is missing, dirty or not in this history. Exits with 1 if there are any.

    bench/check_records.py
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def commits_of(value):
    """All values of "commit" in a record, however deep; those of two programs are {"old": ..., "new": ...}."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("commit", "commits"):
                yield from inner.values() if isinstance(inner, dict) else [inner]
            else:
                yield from commits_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from commits_of(inner)


def in_history(commit):
    return subprocess.run(["git", "-C", ROOT, "merge-base", "--is-ancestor", commit, "HEAD"], capture_output=True,
                          check=False).returncode == 0


def main():
    faults = 0
    known = {}
    for path in sorted((ROOT / "bench/results").glob("*.json*")) + sorted((ROOT / "bench/results").glob("*.lines")):
        text = path.read_text(encoding="utf-8")
        records = [json.loads(text)] if path.suffix == ".json" else [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        commits = {commit for record in records for commit in commits_of(record)}
        wrong = [commit for commit in commits if not known.setdefault(commit, in_history(commit))]
        if wrong or not commits:
            faults += 1
            print(f"{path.name}: " + (f"{', '.join(sorted(wrong))} is no commit of this history" if wrong else "names no commit"))
    sys.exit(1 if faults else 0)


main()
