#!/usr/bin/env python3
"""Stresses a `heddle serve` of its own on loopback, bounded in time, standard library alone.

Usage: tools/stress_server.py overload|random|sigterm PROGRAM MODEL [OPTION...] [-- OPTION... of heddle serve]

overload  measures what the server answers with a full batch, then sends five times as many requests for --seconds. Some must
          be answered by 429 with Retry-After, memory must stay bounded, and the tokens of whole answers must stay within a
          tenth of the capacity, by the server's CPU time where other programs run on the machine (--by-cpu).
random    sends --requests valid and invalid requests of a seed. No answer may be a 5xx but 501, the server must live, hold no
          page and end well: under AddressSanitizer, without a leak. Memory must not grow in the second half.
sigterm   sends SIGTERM while streams run: every stream that has begun must be complete, and the server ends with 0.

Prints a line of figures; exit status 1 if something was wrong.
"""
import argparse
import asyncio
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request

PAGE = 4096


class Server:
    def __init__(self, args, more):
        self.process = subprocess.Popen([args.program, "serve", args.model, "--port", "0", *more],
                                        stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().split()
        self.name, self.port = line[2], int(line[4].rsplit(":", 1)[1])
        self.wait_for(lambda: self.get("/ready"), 300)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as reply:
            return reply.read()

    def wait_for(self, condition, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if condition():
                    return True
            except OSError:
                pass
            time.sleep(0.1)
        return False

    def pages_are_free(self):
        live = json.loads(self.get("/live"))
        pages = live["pages"]
        return live["queue"]["outstanding"] == 0 and pages["free"] + pages["cached"] == pages["total"]

    def resident_mb(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE / 2**20

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=120)


def http_text(path, body, method="POST", more=""):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{more}"
            f"Content-Length: {len(content)}\r\n\r\n").encode() + content


async def ask(port, request, seconds=120):
    """The status (0: closed without an answer), the head and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        data = await asyncio.wait_for(reader.read(), seconds)
    except ConnectionError:
        data = b""
    finally:
        writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    return (int(head[9:12]) if head.startswith(b"HTTP/1.") else 0), head.decode("latin-1"), body


# overload

async def overload(server, args):
    body = {"model": server.name, "prompt": "Once upon a time", "max_tokens": args.tokens, "temperature": 1,
            "ignore_eos": True}
    counts = {"answers": 0, "refused": 0, "other": 0}

    async def one(seed):
        status, head, reply = await ask(server.port, http_text("/v1/completions", {**body, "seed": seed}))
        if status == 200 and json.loads(reply)["usage"]["completion_tokens"] == args.tokens:
            counts["answers"] += 1
        elif status == 429 and "Retry-After:" in head:
            counts["refused"] += 1
        else:
            counts["other"] += 1

    async def closed_loop(number, end):
        seed = number << 20
        while time.monotonic() < end:
            await one(seed)
            seed += 1

    async def measured(load):
        counts.update(answers=0, refused=0, other=0)
        start, cpu = time.monotonic(), server.cpu_seconds()
        await load
        seconds = time.monotonic() - start
        tokens = counts["answers"] * args.tokens
        return tokens / seconds, tokens / (server.cpu_seconds() - cpu), counts["answers"] / seconds

    full = args.sequences + args.queue // 2
    await asyncio.gather(*[closed_loop(n, time.monotonic() + 2) for n in range(full)])  # warms up
    capacity = await measured(
        asyncio.gather(*[closed_loop(n, time.monotonic() + args.seconds / 4) for n in range(full)]))
    rate = 5 * capacity[2]
    rss, most = server.resident_mb(), 0

    async def open_loop():
        nonlocal most
        tasks, start = set(), time.monotonic()
        number = 0
        while time.monotonic() < start + args.seconds:
            while number < (time.monotonic() - start) * rate:
                task = asyncio.create_task(one(number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                number += 1
            most = max(most, server.resident_mb())
            await asyncio.sleep(0.005)
        await asyncio.gather(*tasks)

    good = await measured(open_loop())
    ratio = good[1] / capacity[1] if args.by_cpu else good[0] / capacity[0]
    print(f"capacity {capacity[0]:.0f} tokens/s ({capacity[1]:.0f} a CPU second of the server); {rate:.0f} requests/s for "
          f"{args.seconds:.0f} s: {counts}; goodput {good[0]:.0f} tokens/s, {good[0] / capacity[0]:.2f} of the capacity "
          f"({good[1]:.0f} a CPU second, {good[1] / capacity[1]:.2f}); RSS {rss:.0f} MiB, at most {most:.0f}")
    return counts["refused"] > 0 and counts["other"] == 0 and ratio >= 0.9 and most < rss + 64


# random

WORDS = ["Once upon a time", "", "<|end|>", "\u00e9\ud83d\ude00", "a" * 300, "\u0000", "{", "x y z"]
VALUES = [None, True, False, 0, 1, -1, 3, 1e9, -0.5, 0.7, "", "auto", "a", [], [1], ["a"], [[1, 2]], {}, {"a": 1},
          {"type": "function", "function": {"name": "f"}}, 2**63, "\udc80"]
FIELDS = ["model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "n",
          "best_of", "stop", "stop_token_ids", "seed", "logprobs", "top_logprobs", "prompt_logprobs", "echo", "logit_bias",
          "presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens", "ignore_eos", "stream",
          "stream_options", "tools", "tool_choice", "parallel_tool_calls", "response_format", "guided_json", "guided_regex",
          "guided_choice", "structured_outputs", "guided_grammar", "suffix", "user", "unknown"]
SCHEMAS = [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 9}, {"enum": ["a", 1, None]},
           {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "null"}}},
           {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, {"not": {}}, {"$ref": "#/nowhere"},
           {"type": "string", "pattern": "(a|b)+c?", "maxLength": 5}, {"type": "string", "minLength": 9, "maxLength": 1}]
REGEXES = ["a+", "(", "[a-z]{2,4}", "yes|no", "a{1,99999}", "(?=x)", ".*", "\\d{3}"]


def random_body(rng, name):
    chat = rng.random() < 0.4
    body = {"model": name, "max_tokens": rng.randint(1, 6), "temperature": rng.choice([0, 0.5, 1, 2])}
    if chat:
        body["messages"] = [{"role": rng.choice(["user", "system", "assistant"]), "content": rng.choice(WORDS)}
                            for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            body["tools"] = [{"type": "function", "function": {"name": f"f{i}", "parameters": rng.choice(SCHEMAS)}}
                             for i in range(rng.randint(1, 3))]
            body["tool_choice"] = rng.choice(["none", "auto", "required", {"type": "function", "function": {"name": "f0"}}])
    else:
        body["prompt"] = rng.choice([rng.choice(WORDS), [rng.randrange(500) for _ in range(rng.randint(1, 40))],
                                     ["a", "b"], [[1, 2], [3]]])
    for field, values in (("stream", [True]), ("n", [1, 2, 3]), ("seed", [1, 2**40]), ("stop", ["a", [".", "e"]]),
                          ("top_k", [-1, 1, 40]), ("top_p", [0, 0.5]), ("min_p", [0.1]), ("logit_bias", [{"300": 5}]),
                          ("guided_choice", [["yes", "no"]]), ("guided_json", SCHEMAS), ("guided_regex", REGEXES),
                          ("response_format", [{"type": "json_object"}, {"type": "text"}]), ("min_tokens", [1, 3]),
                          ("prompt_logprobs", [0, 2]), ("logprobs", [True] if chat else [0, 3]), ("ignore_eos", [True]),
                          ("repetition_penalty", [1.2])):
        if rng.random() < 0.08:
            body[field] = rng.choice(values)
    return chat, body


def random_request(rng, name):
    """The bytes of a request, and whether its answer may be anything or nothing: it was no HTTP."""
    chat, body = random_body(rng, name)
    path = "/v1/chat/completions" if chat else "/v1/completions"
    kind = rng.random()
    if kind < 0.5:
        return http_text(path, body), False
    if kind < 0.75:  # a field that is wrong, or happens to be right
        for _ in range(rng.randint(1, 2)):
            body[rng.choice(FIELDS)] = rng.choice(VALUES)
        return http_text(path, body), False
    content = json.dumps(body).encode()
    if kind < 0.9:  # bytes that are wrong
        content = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(content))
            if rng.random() < 0.5:
                content[at] = rng.randrange(256)
            else:
                del content[at:at + rng.randint(1, 9)]
                content = content or bytearray(b"{")
        return http_text(path, bytes(content)), False
    if kind < 0.96:
        route = rng.choice(["/tokenize", "/detokenize", "/v1/models", "/v1/models/x", "/metrics", "/live", "/", "/v1/embeddings",
                            "/v1/responses", "/health", "/nothing", "/../etc/passwd", "/%00", "*"])
        return http_text(route, rng.choice([b"", b"[]", content, json.dumps({"prompt": "a"}).encode(),
                                            json.dumps({"tokens": [1, 2, 10**9]}).encode()]),
                         rng.choice(["GET", "POST", "PUT", "HEAD", "DELETE"])), False
    request = bytearray(http_text(path, content))  # a head that is wrong
    for _ in range(rng.randint(1, 5)):
        request[rng.randrange(min(80, len(request)))] = rng.randrange(256)
    return bytes(request), True


async def send_random(server, args):
    rng = random.Random(args.seed)
    counts, wrong, rss = {}, [], []
    next_number = 0

    async def client():
        nonlocal next_number
        while next_number < args.requests and server.process.poll() is None and len(wrong) < 10:
            if args.limit and time.monotonic() > start + args.limit:
                return
            next_number += 1
            if next_number % max(1, args.requests // 20) == 0:
                rss.append(server.resident_mb())
            request, rude = random_request(rng, server.name)
            if rude:
                try:
                    status, _, _ = await ask(server.port, request, 2)
                except asyncio.TimeoutError:  # the server waits for the rest of it
                    status = 0
            else:
                try:
                    status, _, body = await ask(server.port, request, args.patience)
                except asyncio.TimeoutError:
                    wrong.append(("no answer", request, b""))
                    continue
                if status == 0 or status >= 500 and status != 501 or status >= 400 and b'"message"' not in body and \
                        not request.startswith(b"HEAD"):
                    wrong.append((status, request[:400], body[:200]))
            counts[status] = counts.get(status, 0) + 1

    start = time.monotonic()
    await asyncio.gather(*[client() for _ in range(16)])
    seconds = time.monotonic() - start
    for each in wrong:
        print("wrong:", each)
    freed = server.wait_for(server.pages_are_free, 60)
    half = rss[len(rss) // 2] if rss else 0
    print(f"{next_number} requests in {seconds:.0f} s: {dict(sorted(counts.items()))}; pages {'all free' if freed else 'LEAKED'}; "
          f"RSS in MiB at each twentieth: {[round(each) for each in rss]}")
    return not wrong and freed and (args.limit or next_number >= args.requests) and (not rss or rss[-1] < half * 1.1 + 8)


# sigterm

async def stop_under_load(server, args):
    body = {"model": server.name, "prompt": "Once upon a time", "max_tokens": args.tokens, "temperature": 1,
            "ignore_eos": True, "stream": True}
    first = asyncio.Event()
    counts = {"complete": 0, "refused": 0, "cut": 0}

    async def one(seed):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        except OSError:
            counts["refused"] += 1  # the server takes no more connections
            return
        accepted = False
        try:
            writer.write(http_text("/v1/completions", {**body, "seed": seed}))
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head[:16]:
                counts["refused"] += 1
                return
            accepted = True
            data = await reader.readuntil(b"\n\n")
            first.set()
            data = (data + await asyncio.wait_for(reader.read(), 300)).decode(errors="replace")
            tokens = len(re.findall(r'"finish_reason":"length"', data))
            counts["complete" if tokens == 1 and "[DONE]" in data else "cut"] += 1
        except (OSError, asyncio.IncompleteReadError):
            counts["cut" if accepted else "refused"] += 1
        finally:
            writer.close()

    streams = [asyncio.create_task(one(seed)) for seed in range(args.clients)]
    await asyncio.wait_for(first.wait(), 60)
    await asyncio.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    start = time.monotonic()
    await asyncio.gather(*streams)
    status = await asyncio.to_thread(server.process.wait, 60)
    print(f"SIGTERM with {args.clients} clients: {counts}; exit status {status} after {time.monotonic() - start:.1f} s")
    return counts["cut"] == 0 and counts["complete"] > 0 and status == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overload", "random", "sigterm"])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=60, help="of overload")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--queue", type=int, default=16)
    parser.add_argument("--by-cpu", action="store_true")
    parser.add_argument("--requests", type=int, default=100000)
    parser.add_argument("--limit", type=float, help="seconds, after which random ends with fewer requests; they are counted")
    parser.add_argument("--patience", type=float, default=120, help="seconds in which random wants an answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=64)
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    more = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    args = parser.parse_args(own)
    if args.what == "sigterm":
        more += ["--drain-seconds", "300"]
    if args.what == "overload":
        more += ["--max-sequences", str(args.sequences), "--max-queue", str(args.queue)]
    server = Server(args, more)
    try:
        good = asyncio.run({"overload": overload, "random": send_random, "sigterm": stop_under_load}[args.what](server, args))
        status = server.process.returncode if args.what == "sigterm" else server.stop()
        if not good or status != 0:
            raise SystemExit(f"wrong; the server's exit status was {status}")
    finally:
        server.process.kill()


if __name__ == "__main__":
    main()
