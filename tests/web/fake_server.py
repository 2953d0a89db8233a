"""A server that answers as `heddle serve` does, word by word, so that tests of the page need no model."""
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "apps/web"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
WORD_SECONDS = 0.03
REASONED_CALL = [{"reasoning_content": "They want "}, {"reasoning_content": "the weather."},
                 {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]},
                 {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]},
                 {"tool_calls": [{"index": 0, "function": {"arguments": '"Bern"}'}}]}]
BOUNDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]


def live(step):
    """What /live says; it changes with `step`."""
    requests = [{"id": f"req-{step // 8 + i:06d}", "state": "decode" if i < 9 else "prefill" if i < 11 else "waiting",
                 "prompt_tokens": 120 + 37 * i, "output_tokens": 12 * (11 - i) if i < 9 else 0,
                 "computed_tokens": 120 + 49 * i, "kv_pages": 4 + 3 * i if i < 11 else 0} for i in range(14)]
    used = sum(request["kv_pages"] for request in requests)
    rate = 412 + 60 * ((step * 7919) % 11 - 5) / 5
    return {"state": "running", "model": "demo-llama", "uptime_s": 40 + step / 4,
            "queue": {"waiting": 3, "max": 256, "outstanding": 14}, "batch": {"running": 11, "slots": 64},
            "pages": {"total": 512, "free": 512 - used - 60, "cached": 60, "tokens_per_page": 32},
            "prefix": {"queried_tokens": 18000, "hit_tokens": 7340}, "preemptions": 2,
            "rates": {"output_tokens_per_s": rate, "prompt_tokens_per_s": 1830.5, "steps_per_s": 37.2},
            "memory": {"gbps": 11.4, "roofline_gbps": 18.9, "share": 0.603},
            "ranks": [{"rank": 0, "gbps": 5.8}, {"rank": 1, "gbps": 5.6}],
            "ttft": {"bounds_s": BOUNDS, "counts": [0, 0, 0, 3, 22, 61, 90, 41, 12, 3, 0, 0, 0], "sum_s": 21.5, "count": 232},
            "itl": {"bounds_s": BOUNDS, "counts": [0, 0, 12, 480, 2210, 340, 40, 6, 0, 0, 0, 0, 0], "sum_s": 58.1, "count": 3088},
            "totals": {"prompt_tokens": 96412, "output_tokens": 41873, "rejected": 5, "cancelled": 3,
                       "finished": {"stop": 180, "length": 49}}, "requests": requests}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def respond(self, status, content_type, body):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body)

    def respond_json(self, status, value):
        self.respond(status, "application/json", json.dumps(value).encode())

    def begin_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, text):
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def do_GET(self):
        path = self.path.split("?")[0]
        self.server.keys[path] = self.headers.get("Authorization")
        if path == "/v1/models":
            self.respond_json(200, {"object": "list", "data": [{"id": "demo-llama", "object": "model"}]})
        elif path == "/live":
            self.begin_stream()
            try:
                for step in range(10**6):
                    self.event(json.dumps(live(step)))
                    time.sleep(0.25)
            except OSError:
                pass
        else:
            file = PAGE / ("index.html" if path == "/" else path.lstrip("/"))
            if file.parent != PAGE or file.suffix not in TYPES or not file.is_file():
                self.respond_json(404, {"error": {"message": "there is no such path"}})
            else:
                self.respond(200, TYPES[file.suffix], file.read_bytes())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        last = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        if "fail" in last:
            self.respond_json(400, {"error": {"message": "messages: this one is not liked", "type": "invalid_request_error"}})
            return
        words = [f"word{i} " for i in range(400 if "long" in last else 6)]
        if "code" in last:
            words = ["Here:\n", "```python\n", "print('<b>hi</b>')\n", "```\n", "Done."]
        self.begin_stream()
        try:
            deltas = REASONED_CALL if "tool" in last else []
            for delta in deltas:
                self.event(json.dumps({"choices": [{"index": 0, "finish_reason": None, "delta": delta}]}))
            for word in [] if deltas else words:
                choice = {"index": 0, "finish_reason": None}
                choice |= {"delta": {"content": word}} if "messages" in body else {"text": word}
                self.event(json.dumps({"choices": [choice]}))
                time.sleep(WORD_SECONDS)
            end = {"index": 0, "finish_reason": "stop"} | ({"delta": {}} if "messages" in body else {"text": ""})
            self.event(json.dumps({"choices": [end]}))
            self.event(json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": len(words), "total_tokens": 9 + len(words)}}))
            self.event("[DONE]")
        except OSError:
            self.server.num_broken_off += 1


def start():
    """The server, running in a thread, and its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.bodies = []
    server.keys = {}  # the Authorization of the last GET of each path
    server.num_broken_off = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"
