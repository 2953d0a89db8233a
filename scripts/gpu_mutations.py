#!/usr/bin/env python3
"""Puts faults into GPU code, one at a time, and sees whether the tests notice (gpu_mutations.toml lists them).

  gpu_mutations.py list                           checks the table against the sources
  gpu_mutations.py build STAGE [NAME...] [--build-folder DIR]
                                                  builds each mutant where nvcc is: STAGE/bin/mutants/NAME, and the programs
                                                  without a fault, STAGE/bin/PROGRAM. Called by gpu_bundle.sh --mutations
  gpu_mutations.py run BIN [--seconds S]          runs them on a machine with a GPU: a line for each, "killed" or "survived".
                                                  Called by gpu.sh mutations

`build` changes one source file at a time and always puts it back; it refuses files with changes that are not committed.
"""
import argparse
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KILL_AFTER_S = 10  # from the polite signal on


def fail(message):
    sys.exit(f"gpu_mutations: error: {message}")


def read_table(names):
    import tomllib  # Python 3.11; `run` does without

    with open(ROOT / "scripts/gpu_mutations.toml", "rb") as file:
        table = tomllib.load(file)["mutation"]
    unknown = set(names) - {one["name"] for one in table}
    if unknown:
        fail(f"no mutation is called {', '.join(sorted(unknown))}")
    table = [one for one in table if not names or one["name"] in names]
    for one in table:
        found = (ROOT / one["file"]).read_text().count(one["old"])
        if found != 1:
            fail(f"{one['name']}: {one['file']} has {found} places {one['old']!r}, expected 1")
    return table


def compile_program(program, build_folder):
    subprocess.run(["ninja", "-C", build_folder, program], check=True, stdout=subprocess.DEVNULL)
    return next(path for path in pathlib.Path(build_folder).rglob(program) if path.is_file())


def strip_to(program, destination):
    destination.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", destination, program], check=True)


def build_mutant(one, stage, build_folder):
    source = ROOT / one["file"]
    if subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD", "--", source]).returncode != 0:
        fail(f"{one['file']} has changes that are not committed")
    text = source.read_text()
    start = time.monotonic()
    try:
        source.write_text(text.replace(one["old"], one["new"]))
        program = compile_program(one["program"], build_folder)
        strip_to(program, stage / "bin/mutants" / one["name"])
    finally:
        source.write_text(text)
    print(f"{one['name']:24} built in {time.monotonic() - start:.0f} s", flush=True)


def build(arguments):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the source is put back
    table = read_table(arguments.names)
    stage = pathlib.Path(arguments.stage)
    for one in table:
        build_mutant(one, stage, arguments.build_folder)
    for program in sorted({one["program"] for one in table}):
        strip_to(compile_program(program, arguments.build_folder), stage / "bin" / program)
    (stage / "bin/mutants/table.json").write_text(json.dumps(table))


def failed_tests(log):
    """Of a GoogleTest log; a test that began and did not end (a crash, a hang) has failed."""
    failed = re.findall(r"^\[  FAILED  \] ([\w/.]+)(?:,| \()", log, re.MULTILINE)
    begun = re.findall(r"^\[ RUN      \] ([\w/.]+)", log, re.MULTILINE)
    ended = set(re.findall(r"^\[ +(?:OK|FAILED|SKIPPED) +\] ([\w/.]+)", log, re.MULTILINE))
    return sorted(set(failed) | {test for test in begun if test not in ended})


def run_tests(program, filter_, seconds):
    """How it went: (passed tests, failed tests, whether it was ended by the time limit)."""
    command = ["timeout", "-k", str(KILL_AFTER_S), str(seconds), program, f"--gtest_filter={filter_}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    passed = re.findall(r"^\[       OK \] ([\w/.]+)", done.stdout, re.MULTILINE)
    failed = failed_tests(done.stdout)
    if done.returncode != 0 and not failed:
        failed = [f"exit status {done.returncode}"]
    return passed, failed, done.returncode in (124, 137)


def run(arguments):
    binaries = pathlib.Path(arguments.bin)
    table = json.loads((binaries / "mutants/table.json").read_text())
    sound = {}  # whether the tests of a filter pass without a fault
    for one in table:
        key = (one["program"], one["filter"])
        if key not in sound:
            passed, failed, _ = run_tests(binaries / one["program"], one["filter"], 3 * arguments.seconds)
            sound[key] = bool(passed) and not failed
            if not sound[key]:
                print(f"{one['program']} --gtest_filter={one['filter']} without a fault: "
                      f"{len(passed)} passed, failed: {', '.join(failed) or 'none'}", flush=True)
        start = time.monotonic()
        _, failed, timed_out = run_tests(binaries / "mutants" / one["name"], one["filter"], arguments.seconds)
        verdict = "no verdict" if not sound[key] else "killed" if failed else "survived"
        print(json.dumps({"mutation": one["name"], "file": one["file"], "verdict": verdict, "failed": failed,
                          "expected": one["expected"], "as_expected": one["expected"] in failed,
                          "timed_out": timed_out, "seconds": round(time.monotonic() - start, 1)}), flush=True)
    return 0 if all(sound.values()) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    building = commands.add_parser("build")
    building.add_argument("stage")
    building.add_argument("names", nargs="*", metavar="NAME")
    building.add_argument("--build-folder", default=ROOT / "build/hopper")
    running = commands.add_parser("run")
    running.add_argument("bin")
    running.add_argument("--seconds", type=int, default=40, help="of one mutant")
    arguments = parser.parse_args()
    if arguments.command == "list":
        for one in read_table([]):
            print(f"{one['name']:24} {one['file']}: {one['program']} {one['expected']}")
        return 0
    if arguments.command == "build":
        return build(arguments)
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
