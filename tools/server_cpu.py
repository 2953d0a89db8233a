#!/usr/bin/env python3
"""Measures the CPU that `heddle serve` spends on a token beside the engine, standard library alone.

Usage: tools/server_cpu.py PROGRAM MODEL [--streams 16] [--requests 128] [--input 32] [--output 128] [-- OPTION... of heddle serve]

`heddle bench serve` keeps STREAMS streams open on loopback. The kernel counts what each thread of the server has run, user
and system time together (/proc/PID/task/*/schedstat). The server's thread, which is the first, owns sockets, JSON and
streams; workers parse and encode; all others are the engine's. Printed: microseconds a token of the server's thread and the
workers, and of the engine.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time
import urllib.request


def threads_of(pid):
    times = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        times[int(task.name)] = int((task / "schedstat").read_text().split()[0])
    return times


def wait_until_ready(url):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url + "/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the server did not become ready")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--input", type=int, default=32)
    parser.add_argument("--output", type=int, default=128)
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    more = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    args = parser.parse_args(own)
    server = subprocess.Popen([args.program, "serve", args.model, "--port", "0", *more], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[4]
        wait_until_ready(url)

        def load(requests):
            run = subprocess.run([args.program, "bench", "serve", "--url", url, "--concurrency", str(args.streams),
                                  "--num-prompts", str(requests), "--input-len", str(args.input), "--output-len",
                                  str(args.output), "--json"], stdout=subprocess.PIPE, text=True, check=True)
            return json.loads(run.stdout)

        load(args.streams)  # warms up
        before, start = threads_of(server.pid), time.monotonic()
        load(args.requests)
        seconds, after = time.monotonic() - start, threads_of(server.pid)
        tokens = args.requests * args.output
        spent = {thread: (ns - before.get(thread, 0)) / 1000 / tokens for thread, ns in after.items()}
        first = spent.pop(server.pid)
        # The workers are started behind the first thread, before the engine's: the engine's are the busy ones.
        busiest = sorted(spent.values(), reverse=True)
        print(f"{args.streams} streams, {tokens} tokens in {seconds:.1f} s: server {first:.1f} us a token; other threads "
              + ", ".join(f"{us:.1f}" for us in busiest))
    finally:
        server.terminate()
        server.wait(timeout=60)


if __name__ == "__main__":
    main()
