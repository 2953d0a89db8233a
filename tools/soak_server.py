#!/usr/bin/env python3
"""Soaks a running `heddle serve` with many clients on loopback, standard library alone.

Usage: tools/soak_server.py PROGRAM MODEL [--clients 1000] [--tokens 24] [--seconds 300] [-- OPTION... of heddle serve]

A third of the clients disconnect at random, a tenth send slowly. Each of the others must get a complete stream, equal to the
answer of the unloaded server to the same seed, or 429 (and then tries again). At the end no page may be in use. Prints one
line of figures and exits 1 if anything was wrong.
"""
import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
import urllib.request

SEEDS = 8


def body(name, seed, tokens):
    return json.dumps({"model": name, "prompt": "Once upon a time", "max_tokens": tokens, "temperature": 1, "seed": seed,
                       "stream": True, "ignore_eos": True}).encode()


async def read_stream(reader):
    """The status and the joined text; None for a text that is not complete."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    data = (await reader.read()).decode(errors="replace")
    if status != 200:
        return status, None
    data = re.sub(r"(^|\r\n)[0-9a-f]+\r\n", "", data)  # frames of chunks
    events = [line[6:] for line in data.split("\n") if line.startswith("data: ")]
    if not events or events[-1].strip() != "[DONE]":
        return status, None
    texts = []
    for event in events[:-1]:
        answer = json.loads(event)
        if "error" in answer:
            return status, None
        texts += [choice["text"] for choice in answer["choices"]]
    return status, "".join(texts)


class Soak:
    def __init__(self, args, name, port, seed=1):
        self.args, self.name, self.port = args, name, port
        self.random = random.Random(seed)
        self.counts = {"complete": 0, "left": 0, "busy": 0, "wrong": 0, "broken": 0}
        self.lone = {}

    async def connect(self):
        for _ in range(50):
            try:
                return await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.1)
        raise OSError("the server takes no connection")

    async def ask(self, seed, slow, leaves):
        reader, writer = await self.connect()
        content = body(self.name, seed, self.args.tokens)
        request = (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                   f"Content-Length: {len(content)}\r\n\r\n").encode() + content
        try:
            if slow:
                for at in range(0, len(request), 32):
                    writer.write(request[at:at + 32])
                    await writer.drain()
                    await asyncio.sleep(0.02)
            else:
                writer.write(request)
            if leaves:
                await asyncio.sleep(self.random.random() * 2)
                return None
            return await read_stream(reader)
        finally:
            writer.close()

    async def client(self, number):
        seed, leaves, slow = number % SEEDS, number % 3 == 0, number % 10 == 1
        while True:
            try:
                result = await self.ask(seed, slow, leaves)
            except (OSError, asyncio.IncompleteReadError):
                self.counts["broken"] += 1
                return
            if result is None:
                self.counts["left"] += 1
                return
            status, text = result
            if status == 429:
                self.counts["busy"] += 1
                await asyncio.sleep(0.2 + self.random.random())
                continue
            if text is None:
                self.counts["broken"] += 1
            elif text != self.lone[seed]:
                self.counts["wrong"] += 1
            else:
                self.counts["complete"] += 1
            return

    async def run(self):
        for seed in range(SEEDS):
            self.lone[seed] = (await self.ask(seed, False, False))[1]
        await asyncio.wait_for(asyncio.gather(*[self.client(n) for n in range(self.args.clients)]), self.args.seconds)


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
        return reply.read()


def resident_mb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return True
        except OSError:
            pass
        time.sleep(0.1)
    return False


def pages_are_free(port):
    live = json.loads(get(port, "/live"))
    pages = live["pages"]
    return live["queue"]["outstanding"] == 0 and pages["free"] + pages["cached"] == pages["total"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=300)
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    more = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    args = parser.parse_args(own)
    server = subprocess.Popen([args.program, "serve", args.model, "--port", "0", *more], stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline().split()
        name, port = line[2], int(line[4].rsplit(":", 1)[1])
        if not wait_for(lambda: get(port, "/ready"), 120):
            raise SystemExit("the server did not become ready")
        soak = Soak(args, name, port)
        before, start = resident_mb(server.pid), time.monotonic()
        asyncio.run(soak.run())
        seconds = time.monotonic() - start
        freed = wait_for(lambda: pages_are_free(port), 30)
        print(f"{args.clients} clients in {seconds:.1f} s: {soak.counts}; pages {'all free' if freed else 'LEAKED'}; "
              f"RSS {before:.0f} -> {resident_mb(server.pid):.0f} MiB")
        server.terminate()
        ended = server.wait(timeout=60)
        if soak.counts["wrong"] or soak.counts["broken"] or not freed or ended != 0:
            raise SystemExit(f"wrong; the server's exit status was {ended}")
    finally:
        server.kill()


if __name__ == "__main__":
    main()
