#!/usr/bin/env python3
"""Times two builds of heddle, interleaved in one call: is the new one slower than the old one?

    bench/compare_programs.py --old OLD/heddle --new NEW/heddle --out RESULT.json [--rounds 3] -- BENCH [-- BENCH]...

BENCH is what follows `heddle bench`, e.g. `decode --model synth:llama-3-8b --device cuda --case 1x1024`. Each round of a
BENCH runs old, new, new, old. The result has for each case the median of each program over all rounds, their ratio, and what old against old
shows: the ratio of the first and the second run of the old program in a round, farthest from 1. Exits 1 when a case is slower than that by
more than --allowed (0.01)."""
import argparse
import json
import statistics
import subprocess
import sys


def split(words):
    benches = [[]]
    for word in words:
        if word == "--":
            benches.append([])
        else:
            benches[-1].append(word)
    return [bench for bench in benches if bench]


def name_of(bench, case):
    model = bench[bench.index("--model") + 1].removeprefix("synth:")
    keys = [f"{key} {case[key]}" for key in ("batch", "context", "tokens") if key in case and not (bench[0] == "decode" and key == "tokens")]
    return f"{model} {bench[0]}, " + ", ".join(keys)


def run(program, bench, timeout):
    """The median seconds of each case, by its name, and the record without its samples."""
    done = subprocess.run([program, "bench", *bench, "--json", "-"], capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} bench {' '.join(bench)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    record = json.loads(done.stdout)
    return {name_of(bench, case): case["seconds"]["median"] for case in record["cases"]}, record


def compare(case, of, allowed):
    """A line of the table, printed, and of the record."""
    old, new = statistics.median(of["old"]), statistics.median(of["new"])
    spread = max(abs(first / second - 1) for first, second in zip(of["old"][::2], of["old"][1::2]))
    slower = new / old > 1 + allowed + spread
    print(f"{case:48} old {old * 1e3:10.3f} ms  new {new * 1e3:10.3f} ms  new/old {new / old:.4f}  old/old within {spread:.4f}"
          + ("  SLOWER" if slower else ""), flush=True)
    return {"case": case, "old_seconds": old, "new_seconds": new, "new_over_old": new / old, "old_against_old": spread,
            "slower": slower, "samples": of}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--allowed", type=float, default=0.01, help="by what part a case may be slower than old against old shows")
    parser.add_argument("--timeout", type=float, default=300, help="seconds of one run")
    argv = sys.argv[1:]
    at = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:at])
    result = {"bench": "compare_programs", "command": sys.argv, "rounds": options.rounds, "commits": {}, "cases": []}
    for bench in split(argv[at:]):
        samples = {}
        for _ in range(options.rounds):
            for which in ("old", "new", "new", "old"):
                seconds, record = run(getattr(options, which), bench, options.timeout)
                result |= {"machine": record["machine"], "gpu": record["gpu"], "threads": record["threads"]}
                result["commits"][which] = record["commit"]
                for case, value in seconds.items():
                    samples.setdefault(case, {"old": [], "new": []})[which].append(value)
        result["cases"] += [compare(case, of, options.allowed) for case, of in samples.items()]
        with open(options.out, "w", encoding="utf-8") as file:  # after each bench: a call that is cut short leaves the rest
            json.dump(result, file, indent=1)
    sys.exit(1 if any(case["slower"] for case in result["cases"]) else 0)


if __name__ == "__main__":
    main()
