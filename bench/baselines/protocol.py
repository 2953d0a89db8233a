"""The adapter's side of the protocol between `heddle bench` and a baseline: JSON lines on standard input and output.

bench/README.md describes the messages. Output of libraries must not reach standard output, so this module keeps the real
one for itself and redirects file descriptor 1 to standard error.
"""
import json
import os
import signal
import sys


def serve(hello, prepare):
    """Sends the hello, then answers requests until standard input ends.

    prepare(case) returns an object with ready() -> dict, sample() -> seconds, and check(num_probes) -> dict. If it
    has close(), that is called before the next case.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # heddle handles it and closes our standard input
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message):
        out.write(json.dumps(message) + "\n")
        out.flush()

    say({"hello": hello})
    case = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "case" in request:
                if case is not None and hasattr(case, "close"):
                    case.close()
                case = prepare(request["case"])
                say({"ready": case.ready()})
            elif "sample" in request:
                say({"seconds": case.sample()})
            elif "check" in request:
                say(case.check(int(request["check"]["probes"])))
            else:
                say({"error": "unknown request"})
        except Exception as error:  # noqa: BLE001: heddle prints it and ends
            say({"error": f"{type(error).__name__}: {error}"})


def probe_indices(vocab_size, num_probes):
    """Tokens whose logits are compared: evenly spaced, as in heddle."""
    stride = max(1, vocab_size // 256)
    return list(range(0, vocab_size, stride))[:num_probes]
