#!/usr/bin/env python3
"""PyTorch as a baseline for `heddle bench operator`: each operator of a step as in torch_llama.py, compiled, its calls in a
CUDA graph.

Operands are random, with as many sets of weights or keys and values as heddle uses, so that each call reads from memory and
not from a cache. The residual and what is added to it have the weights' dtype, as in a PyTorch model. Attention reads a cache without pages, with the fastest kernel for the shape. Results are not
compared here; `bench decode` and `prefill` compare torch_llama.py's logits. An operator that PyTorch models do not run as a
kernel of its own is rejected, and the others continue. On the CPU calls are eager and timed by the clock.
"""
import os
import sys
import time
from types import SimpleNamespace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_llama as llama  # noqa: E402: prints one line where there is no PyTorch
import protocol  # noqa: E402

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

EPS = 1e-5


def gates(gate_up):
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def add_norm(residual, delta, weight):
    residual = residual + delta
    return residual, llama.rms_norm(residual, weight, EPS)


def rope_kv_write(qkv, cos, sin, keys, values, positions, heads, kv_heads):
    q = llama.rotated(qkv[:, :heads], cos, sin)
    keys[:, :, positions] = llama.rotated(qkv[:, heads:heads + kv_heads], cos, sin)
    values[:, :, positions] = qkv[:, heads + kv_heads:]
    return q


def norm(x, weight):
    return llama.rms_norm(x, weight, EPS)


def product_then_gates(x, weight, bias):
    return gates(F.linear(x, weight, bias))


def looked_up(ids, table):
    return F.embedding(ids, table)


def product(x, weight, bias):
    return F.linear(x, weight, bias)


def widened_product(x, weight, bias):
    return F.linear(x, weight, bias).float()


if llama.MODE != "eager":
    import torch._dynamo.config
    torch._dynamo.config.recompile_limit = 1000  # one per shape
PRODUCT, WIDENED_PRODUCT, PRODUCT_THEN_GATES, GATES, NORM, ADD_NORM, ROPE_KV_WRITE, LOOKED_UP = map(
    llama.compiled, (product, widened_product, product_then_gates, gates, norm, add_norm, rope_kv_write, looked_up))


class Refused(Exception):
    """An operator that cannot be compared; the next one may be."""


class Operands:
    """Random tensors of the case's dtype."""

    def __init__(self, case):
        self.dtype = getattr(torch, case["dtype"])
        self.sets = case["sets"]

    def rows(self, *shape):
        return torch.randn(shape, device=llama.DEVICE, dtype=self.dtype)

    def weights(self, *shape):
        return [self.rows(*shape) * shape[1] ** -0.5 for _ in range(self.sets)]

    def bias(self, case):
        return self.rows(case["out_features"]) if case["bias"] else None


# Each takes the case and returns a function of the set's number, and the chosen kernel where there are several.

def linear(case, make):
    x, weights = make.rows(case["rows"], case["in_features"]), make.weights(case["out_features"], case["in_features"])
    multiply, bias = WIDENED_PRODUCT if case["role"] == "logits" else PRODUCT, make.bias(case)
    return lambda i: multiply(x, weights[i], bias), None


def linear_swiglu(case, make):
    x, weights = make.rows(case["rows"], case["in_features"]), make.weights(case["out_features"], case["in_features"])
    bias = make.bias(case)
    return lambda i: PRODUCT_THEN_GATES(x, weights[i], bias), None


def swiglu(case, make):
    gate_up = make.rows(case["rows"], 2 * case["intermediate"])
    return lambda i: GATES(gate_up), None


def rmsnorm(case, make):
    if case["heads_alone"]:
        raise Refused("norms of heads are not in torch_llama.py")
    residual, delta = make.rows(case["rows"], case["hidden"]), make.rows(case["rows"], case["hidden"])
    weight = torch.rand(case["hidden"], device=llama.DEVICE) + 0.5
    if not case["residual"]:
        return lambda i: NORM(delta, weight), None
    return lambda i: ADD_NORM(residual, delta, weight), None


def cache(case, make):
    return make.rows(case["batch"], case["kv_heads"], case["context"] + case["tokens"], case["head_dim"])


def kv_write(case, make):
    heads, kv_heads, dim = case["heads"], case["kv_heads"], case["head_dim"]
    qkv = make.rows(case["batch"], case["tokens"], heads + 2 * kv_heads, dim).transpose(1, 2)  # the layout that a GEMM leaves
    positions = torch.arange(case["tokens"], device=llama.DEVICE) + case["context"]
    angles = positions[:, None].float() * 10000.0 ** -(torch.arange(dim, device=llama.DEVICE) % (dim // 2) * 2.0 / dim)
    cos, sin, keys, values = angles.cos(), angles.sin(), cache(case, make), cache(case, make)
    return lambda i: ROPE_KV_WRITE(qkv, cos, sin, keys, values, positions, heads, kv_heads), None


def attention(case, make):
    shape = SimpleNamespace(heads=case["heads"], kv_heads=case["kv_heads"], dim=case["head_dim"], dtype=make.dtype,
                            layers_count=case["sets"])
    length = case["context"] + case["tokens"]
    if 0 < case["window"] < length:
        raise Refused("windows of attention are not in torch_llama.py")
    try:
        way, attend, _ = llama.fastest_way(shape, case["batch"], case["tokens"], length)
    except llama.NoWay as error:
        raise Refused(error) from error
    q = make.rows(case["batch"], case["heads"], case["tokens"], case["head_dim"])
    pairs = [(cache(case, make), cache(case, make)) for _ in range(case["sets"])]
    return lambda i: attend(q, *pairs[i]), way


def embedding(case, make):
    table = make.rows(min(case["vocab"], 32768), case["hidden"])
    ids = torch.randint(table.shape[0], (case["rows"],), device=llama.DEVICE)
    return lambda i: LOOKED_UP(ids, table), None


OPERATORS = {"linear": linear, "linear_swiglu": linear_swiglu, "swiglu": swiglu, "rmsnorm": rmsnorm, "rope_kv_write": kv_write,
             "attention": attention, "embedding": embedding}


class Case:
    def __init__(self, case):
        llama.use_device_of(case)
        self.calls, self.answer, self.run = case["calls"], {}, None
        try:
            self.prepare(case)
        except Refused as reason:
            self.answer = {"refused": str(reason)}

    def prepare(self, case):
        if case["operator"] not in OPERATORS:
            raise Refused(f"a PyTorch model has no kernel of its own for {case['operator']}")
        call, way = OPERATORS[case["operator"]](case, Operands(case))
        self.answer = {"way": way} if way else {}

        def everything():
            for i in range(self.calls):
                value = call(i % case["sets"])  # reuses the memory of the last but one; heddle's results share one place, too
            return value
        call(0)  # triggers compilation
        llama.synchronize()
        if llama.DEVICE.type == "cpu":
            self.run = everything
            return
        self.begin, self.end = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))

        def between_events():
            self.begin.record()
            value = everything()
            self.end.record()
            return value
        self.run, self.value = llama.graph_of(between_events)

    def ready(self):
        return self.answer

    def sample(self):
        """Seconds per call. The first sample is a warm-up, as in heddle."""
        self.run()
        llama.synchronize()
        begin = time.perf_counter()
        self.run()
        llama.synchronize()
        seconds = time.perf_counter() - begin
        if llama.DEVICE.type == "cuda":
            seconds = self.begin.elapsed_time(self.end) / 1e3
        return seconds / self.calls

    def check(self, _):
        return {}

    def close(self):
        self.run = self.value = None
        if llama.DEVICE.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    protocol.serve({"name": "PyTorch", "version": torch.__version__,
                    "settings": {"compile": llama.MODE, "device": llama.DEVICE.type}}, Case)
