#!/usr/bin/env python3
"""Puts faults into the sources, one at a time, and sees whether the tests notice.

  mutations.py list                           checks both tables against the sources
  mutations.py cpu [NAME...] [--seconds S]    builds and runs here what mutations_cpu.toml lists: a line for each, and a sum. Exit
                                              status 1 unless each is killed by the test that is named

Of GPU code (mutations_gpu.toml), where a machine with nvcc and one with a GPU are two:

  mutations.py build STAGE [NAME...] [--build-folder DIR]
                                              builds each mutant where nvcc is: STAGE/bin/mutants/NAME, and the programs
                                              without a fault, STAGE/bin/PROGRAM. Called by gpu_bundle.sh --mutations
  mutations.py run BIN [--seconds S]          runs them on a machine with a GPU: a line for each, "killed" or "survived".
                                              Called by gpu.sh mutations

`cpu` and `build` change one source file at a time and always put it back; they refuse files with changes that are not
committed.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPU_TABLE = ROOT / "scripts/mutations_gpu.toml"
CPU_TABLE = ROOT / "scripts/mutations_cpu.toml"
KILL_AFTER_S = 10  # from the polite signal on


def fail(message):
    sys.exit(f"mutations: error: {message}")


def read_table(path, names=()):
    import tomllib  # Python 3.11; `run` does without

    with open(path, "rb") as file:
        table = tomllib.load(file)["mutation"]
    known = [one["name"] for one in table]
    unknown = set(names) - set(known)
    if unknown:
        fail(f"no mutation of {path.name} is called {', '.join(sorted(unknown))}")
    if len(set(known)) != len(known):
        fail(f"{path.name} has two mutations of one name")
    table = [one for one in table if not names or one["name"] in names]
    for one in table:
        found = (ROOT / one["file"]).read_text().count(one["old"])
        if found != 1:
            fail(f"{one['name']}: {one['file']} has {found} places {one['old']!r}, expected 1")
        if ("expected" in one) == one.get("survives", False):
            fail(f"{one['name']}: expected a test that must fail, or that it survives")
    return table


def quit_politely():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the source is put back


@contextlib.contextmanager
def mutated(one):
    """While the source has the fault."""
    source = ROOT / one["file"]
    if subprocess.run(["git", "-C", ROOT, "diff", "--quiet", "HEAD", "--", source]).returncode != 0:
        fail(f"{one['file']} has changes that are not committed")
    text = source.read_text()
    try:
        source.write_text(text.replace(one["old"], one["new"]))
        yield
    finally:
        source.write_text(text)


def find_program(program, build_folder):
    return next(path for path in pathlib.Path(build_folder).rglob(program) if path.is_file())


def strip_to(program, destination):
    destination.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "-o", destination, program], check=True)


def compile_for_gpu(program, build_folder, destination):
    subprocess.run(["ninja", "-C", build_folder, program], check=True, stdout=subprocess.DEVNULL)
    strip_to(find_program(program, build_folder), destination)


def build(arguments):
    quit_politely()
    table = read_table(GPU_TABLE, arguments.names)
    stage = pathlib.Path(arguments.stage)
    for one in table:
        start = time.monotonic()
        with mutated(one):
            compile_for_gpu(one["program"], arguments.build_folder, stage / "bin/mutants" / one["name"])
        print(f"{one['name']:24} built in {time.monotonic() - start:.0f} s", flush=True)
    for program in sorted({one["program"] for one in table}):
        compile_for_gpu(program, arguments.build_folder, stage / "bin" / program)
    (stage / "bin/mutants/table.json").write_text(json.dumps(table))


def passed_tests(log):
    """Of a log of GoogleTest or ctest."""
    return re.findall(r"^\[       OK \] ([\w/.]+)", log, re.MULTILINE) + re.findall(r"Test +#\d+: (\S+) \.+ +Passed", log)


def failed_tests(log):
    """Of a log of GoogleTest or ctest; a test that began and did not end (a crash, a hang) has failed."""
    failed = re.findall(r"^\[  FAILED  \] ([\w/.]+)(?:,| \()", log, re.MULTILINE)
    failed += re.findall(r"Test +#\d+: (\S+) \.+\*\*\*", log)
    begun = re.findall(r"^\[ RUN      \] ([\w/.]+)", log, re.MULTILINE)
    ended = set(re.findall(r"^\[ +(?:OK|FAILED|SKIPPED) +\] ([\w/.]+)", log, re.MULTILINE))
    return sorted(set(failed) | {test for test in begun if test not in ended})


def run_tests(command, seconds):
    """How it went: (passed tests, failed tests, whether it was ended by the time limit)."""
    done = subprocess.run(["timeout", "-k", str(KILL_AFTER_S), str(seconds), *command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace",
                          env=os.environ | {"TSAN_OPTIONS": "halt_on_error=1"})  # a race ends the test that has it
    failed = failed_tests(done.stdout)
    if done.returncode != 0 and not failed:
        failed = [f"exit status {done.returncode}"]
    return passed_tests(done.stdout), failed, done.returncode in (124, 137)


def is_sound(command, seconds):
    """Whether the tests pass without a fault; says so if not."""
    passed, failed, _ = run_tests(command, 3 * seconds)
    if not passed or failed:
        print(f"{' '.join(map(str, command))} without a fault: {len(passed)} passed, "
              f"failed: {', '.join(failed) or 'none'}", flush=True)
    return bool(passed) and not failed


def is_as_expected(one, failed):
    return not failed if one.get("survives") else one["expected"] in failed


def run(arguments):
    binaries = pathlib.Path(arguments.bin)
    table = json.loads((binaries / "mutants/table.json").read_text())
    sound = {}  # by program and filter
    all_as_expected = True
    for one in table:
        filter_ = f"--gtest_filter={one['filter']}"
        key = (one["program"], filter_)
        if key not in sound:
            sound[key] = is_sound([binaries / one["program"], filter_], arguments.seconds)
        start = time.monotonic()
        _, failed, timed_out = run_tests([binaries / "mutants" / one["name"], filter_], arguments.seconds)
        verdict = "no verdict" if not sound[key] else "killed" if failed else "survived"
        all_as_expected = all_as_expected and sound[key] and is_as_expected(one, failed)
        print(json.dumps({"mutation": one["name"], "file": one["file"], "verdict": verdict, "failed": failed,
                          "expected": one.get("expected"), "as_expected": is_as_expected(one, failed),
                          "timed_out": timed_out, "seconds": round(time.monotonic() - start, 1)}), flush=True)
    return 0 if all_as_expected else 1


def build_on_cpu(one):
    """Builds the row's program and returns the command that runs its tests."""
    done = subprocess.run([ROOT / "scripts/setup.sh", one["program"]], env=os.environ | {"HEDDLE_PRESET": one["preset"]},
                          stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode != 0:
        fail(f"{one['program']} of {one['preset']} cannot be built with {one['name']}:\n{done.stderr[-3000:]}")
    folder = ROOT / "build" / one["preset"]
    if "ctest" in one:
        return ["ctest", "--test-dir", folder, "-R", f"^{one['ctest']}$"]
    return [find_program(one["program"], folder / "tests"), f"--gtest_filter={one['filter']}"]


def cpu(arguments):
    quit_politely()
    table = read_table(CPU_TABLE, arguments.names)
    sound = {}  # by preset, program and tests
    for one in table:
        key = (one["preset"], one["program"], one.get("filter", one.get("ctest")))
        if key not in sound:
            sound[key] = is_sound(build_on_cpu(one | {"name": "no fault"}), arguments.seconds)
    if not all(sound.values()):
        return 1
    killed = surprises = 0
    for one in table:
        start = time.monotonic()
        with mutated(one):
            _, failed, timed_out = run_tests(build_on_cpu(one), arguments.seconds)
        verdict = f"killed by {', '.join(failed)}" if failed else "survived"
        if timed_out:
            verdict += ", which did not end"
        if not is_as_expected(one, failed):
            verdict += f" (expected: {one.get('expected', 'survived')})"
            surprises += 1
        killed += bool(failed)
        print(f"{one['name']:32} {one['preset']:7} {time.monotonic() - start:4.0f} s  {verdict}", flush=True)
    print(f"{killed} killed, {len(table) - killed} survived, {surprises} not as expected")
    return 1 if surprises else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    here = commands.add_parser("cpu")
    here.add_argument("names", nargs="*", metavar="NAME")
    here.add_argument("--seconds", type=int, default=300, help="of the tests of one mutant")
    building = commands.add_parser("build")
    building.add_argument("stage")
    building.add_argument("names", nargs="*", metavar="NAME")
    building.add_argument("--build-folder", default=ROOT / "build/hopper")
    running = commands.add_parser("run")
    running.add_argument("bin")
    running.add_argument("--seconds", type=int, default=40, help="of one mutant")
    arguments = parser.parse_args()
    if arguments.command == "list":
        for one in read_table(CPU_TABLE) + read_table(GPU_TABLE):
            print(f"{one['name']:32} {one['file']}: {one['program']} {one.get('expected', 'survives')}")
        return 0
    return {"cpu": cpu, "build": build, "run": run}[arguments.command](arguments)


if __name__ == "__main__":
    sys.exit(main())
