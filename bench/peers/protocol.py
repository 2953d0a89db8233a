"""The adapter's side of the protocol between `heddle bench` and a peer: JSON lines on standard input and output.

bench/README.md describes the messages. Whatever else a library prints must not reach standard output, so this module
keeps the real one for itself and points file descriptor 1 at standard error.
"""
import json
import os
import signal
import sys


def serve(hello, prepare):
    """Says hello, then answers until standard input ends.

    prepare(case) returns an object with ready() -> dict, sample() -> seconds, and check(num_probes) -> dict; where it
    has close(), that is called before the next case.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # heddle hears it and closes our standard input
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
    """Tokens whose logits are compared: evenly spaced, as heddle takes them."""
    stride = max(1, vocab_size // 256)
    return list(range(0, vocab_size, stride))[:num_probes]
