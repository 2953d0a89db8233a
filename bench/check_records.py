#!/usr/bin/env python3
"""Names the records in bench/results whose commit is missing, dirty or not in this history. Exits with 1 if there are any,
with 77 where there is no whole history to look in.

    bench/check_records.py

A baseline's program knows no commit: its record counts as one of the commit of the Heddle that it was interleaved with
(X-torch-... beside X-nvlink-...).
"""
import bisect
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHORTEST_NAME = 7  # of a commit, as git abbreviates it


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


def history():
    """All commits that HEAD comes from, sorted."""
    return sorted(subprocess.run(["git", "-C", ROOT, "rev-list", "HEAD"], capture_output=True, text=True,
                                 check=True).stdout.split())


def is_among(commit, commits):
    """Whether a commit, by its name or the beginning of it, is one of these, which are sorted."""
    at = bisect.bisect_left(commits, commit)
    return len(commit) >= SHORTEST_NAME and at < len(commits) and commits[at].startswith(commit)


def has_history():
    shallow = subprocess.run(["git", "-C", ROOT, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True,
                             check=False)
    return shallow.stdout.strip() == "false"


def read(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return [json.loads(text)]
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def commits_in(path):
    commits = {commit for record in read(path) for commit in commits_of(record)}
    beside = path.with_name(path.name.replace("-torch-", "-nvlink-"))
    return commits if commits or beside == path or not beside.exists() else commits_in(beside)


def main():
    if not has_history():
        print("check_records.py: there is no whole history here, so commits cannot be looked up: git fetch --unshallow")
        sys.exit(77)
    faults = 0
    ours = history()
    for path in sorted((ROOT / "bench/results").glob("*.json*")) + sorted((ROOT / "bench/results").glob("*.lines")):
        commits = commits_in(path)
        wrong = [commit for commit in commits if not is_among(commit, ours)]
        if wrong or not commits:
            faults += 1
            print(f"{path.name}: " + (f"{', '.join(sorted(wrong))} is no commit of this history" if wrong else "names no commit"))
    sys.exit(1 if faults else 0)


main()
