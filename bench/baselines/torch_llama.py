#!/usr/bin/env python3
"""PyTorch as a baseline for `heddle bench decode|prefill`: a plain Llama, compiled, its steps in CUDA graphs.

Written as a careful user would: one GEMM for q, k and v, one for gate and up; torch.compile compiles everything between
two attentions as one function, which serves all layers; F.scaled_dot_product_attention runs over a contiguous cache of
exactly the step's length, with the fastest of its kernels for the shape (tried when a case is prepared); one CUDA graph per
step. The host waits once per sample, after the last step, as Heddle does. Activations and the residual have the weights'
dtype. Nothing is sampled; the logits of a step's last tokens are computed.

HEDDLE_TORCH_MODE chooses the compilation: `default`, `gemv` (default, and GEMVs as generated kernels), `max-autotune` (also
small-M GEMMs with the fastest of cuBLAS's and Triton's kernels), or `eager`.

Weights are Heddle's: from a folder's safetensors, or those of `synth:NAME`, generated here by the same formula (on the GPU,
a second for a model of 16 GB). A context that heddle fills with random keys and values ("context_fill": "random") gets the
same values here, so logits can be compared.

By hand, without heddle:  torch_llama.py --model llama-3.2-1b --batch 1 --context 1024,4096 [--prefill 2048]
"""
import argparse
import glob
import json
import math
import os
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right
except ImportError as error:
    sys.exit(f"{error}: {sys.executable} has no PyTorch for this; HEDDLE_BASELINE_PYTHON names another Python")

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import protocol  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MODE = os.environ.get("HEDDLE_TORCH_MODE", "gemv" if DEVICE.type == "cuda" else "eager")
MASK = 0xFFFFFFFF
torch.set_grad_enabled(False)
UNIT_DEVIATION = 53510.0
POSITIONS = 1 << 20  # per head of the random context; heddle numbers its elements by it


# The formula of src/weights/synthetic_values.h.

def synthetic_key(shape, tensor):
    value = 0xCBF29CE484222325
    for byte in f"{shape}/{tensor}".encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    value ^= value >> 31
    return value & MASK, value >> 32


def synthetic_values(key, index, deviation, offset=0.0):
    """float32 values of the elements `index`, an int64 tensor."""
    add, mix = key
    word = ((index & MASK) * 0x9E3779B1 + add + (index >> 32) * 0xC2B2AE35) & MASK
    word = ((word ^ (word >> 16)) * 0x85EBCA6B + mix) & MASK
    word = ((word ^ (word >> 16)) * 0x7FEB352D) & MASK
    word = ((word ^ (word >> 15)) * 0x846CA68B) & MASK
    word ^= word >> 16
    number = 2 * ((word & 0xFFFF) - (word >> 16)) + 1
    scale = torch.tensor(deviation / UNIT_DEVIATION, dtype=torch.float32, device=index.device)
    product = number.to(torch.float32) * scale
    return product + offset if offset else product


def synthetic_tensor(key, shape, dtype, deviation, offset=0.0):
    out = torch.empty(math.prod(shape), dtype=dtype, device=DEVICE)
    piece = 1 << 24
    for begin in range(0, out.numel(), piece):
        index = torch.arange(begin, min(begin + piece, out.numel()), device=DEVICE)
        out[begin:begin + index.numel()] = synthetic_values(key, index, deviation, offset).to(dtype)
    return out.view(shape)


class SyntheticWeights:
    """The parameters of synthetic_model.cpp, by tensor name."""

    def __init__(self, model, config):
        self.name = model.split(":", 1)[-1].split(",")[0]
        self.to_residual = 2.5 / math.sqrt(2 * config["num_hidden_layers"])
        self.config = config

    def __call__(self, name, shape, dtype):
        key = synthetic_key(self.name, name)
        if name.endswith("norm.weight"):
            return synthetic_tensor(key, shape, dtype, 0.1, 1.0)
        if name.endswith(".bias"):
            return synthetic_tensor(key, shape, dtype, 0.1)
        if "embed_tokens" in name or "lm_head" in name:
            return synthetic_tensor(key, shape, dtype, 3 / math.sqrt(shape[1]))
        gain = self.to_residual if "o_proj" in name or "down_proj" in name else 1
        return synthetic_tensor(key, shape, dtype, gain / math.sqrt(shape[1]))


class FolderWeights:
    def __init__(self, folder):
        from safetensors import safe_open
        self.files = [safe_open(path, framework="pt", device=str(DEVICE))
                      for path in sorted(glob.glob(os.path.join(folder, "*.safetensors")))]
        self.file_of = {name: file for file in self.files for name in file.keys()}

    def __call__(self, name, shape, dtype):
        return self.file_of[name].get_tensor(name).to(dtype)


# The model. Compiled functions take their weights as arguments, so that one compilation serves all layers.

def rms_norm(x, weight, eps):
    wide = x.float()
    return ((wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)) * weight).to(x.dtype)


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    wide = x.float()
    return (wide * cos + torch.cat((-wide[..., half:], wide[..., :half]), -1) * sin).to(x.dtype)


def attention_in(h, norm, qkv, bias, cos, sin, keys, values, positions, sizes):
    batch, tokens, heads, kv_heads, dim, eps = sizes
    x = rms_norm(h, norm, eps)
    projected = F.linear(x, qkv, bias).view(batch, tokens, heads + 2 * kv_heads, dim).transpose(1, 2)
    q = rotated(projected[:, :heads], cos, sin)
    keys[:, :, positions] = rotated(projected[:, heads:heads + kv_heads], cos, sin)
    values[:, :, positions] = projected[:, heads + kv_heads:]
    return q


def attention_out(h, attended, output, norm, gate_up, down, eps):
    h = h + F.linear(attended.transpose(1, 2).reshape(h.shape[0], h.shape[1], -1), output)
    gate, up = F.linear(rms_norm(h, norm, eps), gate_up).chunk(2, -1)
    return h + F.linear(F.silu(gate) * up, down)


def last_logits(h, norm, head, eps):
    return F.linear(rms_norm(h[:, -1], norm, eps), head).float()


def compiled(function):
    if MODE == "eager":
        return function
    if MODE == "gemv":
        torch._inductor.config.coordinate_descent_tuning = True
    if MODE == "max-autotune":
        torch._inductor.config.coordinate_descent_tuning = True
        return torch.compile(function, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs")
    return torch.compile(function, dynamic=False, fullgraph=True)


if MODE != "eager":
    import torch._inductor.config  # noqa: E402
attention_in_compiled = compiled(attention_in)
attention_out_compiled = compiled(attention_out)
last_logits_compiled = compiled(last_logits)


class Llama:
    def __init__(self, model, config, dtype, inv_freq):
        self.layers_count = config["num_hidden_layers"]
        self.hidden = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.dim = config.get("head_dim") or self.hidden // self.heads
        self.eps = config["rms_norm_eps"]
        self.dtype = dtype
        self.inv_freq = inv_freq.to(DEVICE)
        weights = SyntheticWeights(model, config) if model.startswith("synth:") else FolderWeights(model)
        vocab, hidden, inner = config["vocab_size"], self.hidden, config["intermediate_size"]
        q, kv = self.heads * self.dim, self.kv_heads * self.dim
        bias = config.get("attention_bias") or config.get("model_type") == "qwen2"
        self.embedding = weights("model.embed_tokens.weight", (vocab, hidden), dtype)
        self.layers = []
        for i in range(self.layers_count):
            name = f"model.layers.{i}."

            def load(tensor, *shape):
                return weights(name + tensor, shape, dtype)
            self.layers.append({
                "in_norm": load("input_layernorm.weight", hidden).float(),
                "qkv": torch.cat([load("self_attn.q_proj.weight", q, hidden), load("self_attn.k_proj.weight", kv, hidden),
                                  load("self_attn.v_proj.weight", kv, hidden)]),
                "bias": torch.cat([load("self_attn.q_proj.bias", q), load("self_attn.k_proj.bias", kv),
                                   load("self_attn.v_proj.bias", kv)]) if bias else None,
                "output": load("self_attn.o_proj.weight", hidden, q),
                "out_norm": load("post_attention_layernorm.weight", hidden).float(),
                "gate_up": torch.cat([load("mlp.gate_proj.weight", inner, hidden),
                                      load("mlp.up_proj.weight", inner, hidden)]),
                "down": load("mlp.down_proj.weight", hidden, inner)})
        self.norm = weights("model.norm.weight", (hidden,), dtype).float()
        self.head = self.embedding if config.get("tie_word_embeddings") else weights("lm_head.weight", (vocab, hidden),
                                                                                    dtype)

    def place(self, first, count):
        """Positions first, first + 1, ..., with the rotary angles of queries and keys: prepared before a step."""
        positions = torch.arange(first, first + count, device=DEVICE)
        angles = positions[:, None].float() * self.inv_freq
        return first + count, positions, angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def step(self, tokens, cache, place, attend):
        """Logits [batch, vocab] after `tokens` [batch, n] at the positions of `place`."""
        batch, count = tokens.shape
        length, positions, cos, sin = place
        sizes = (batch, count, self.heads, self.kv_heads, self.dim, self.eps)
        h = F.embedding(tokens, self.embedding)
        for layer, (keys, values) in zip(self.layers, cache):
            q = attention_in_compiled(h, layer["in_norm"], layer["qkv"], layer["bias"], cos, sin, keys, values, positions,
                                      sizes)
            attended = attend(q, keys[:, :, :length], values[:, :, :length])
            h = attention_out_compiled(h, attended, layer["output"], layer["out_norm"], layer["gate_up"], layer["down"],
                                       self.eps)
        return last_logits_compiled(h, self.norm, self.head, self.eps)


def mask_arguments(q, k):
    queries, length = q.shape[2], k.shape[2]
    if queries == 1:
        return {}
    return {"is_causal": True} if queries == length else {"attn_mask": causal_lower_right(queries, length)}


def shared_heads(backend):
    def attend(q, k, v):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1], **mask_arguments(q, k))
    return attend


def repeated_heads(backend):
    def attend(q, k, v):
        groups = q.shape[1] // k.shape[1]
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1),
                                                  **mask_arguments(q, k))
    return attend


def packed_heads(backend):
    """For one query per sequence: passes the query heads that share a KV head as several queries with the same keys."""
    def attend(q, k, v):
        groups = q.shape[1] // k.shape[1]
        batch, heads, _, dim = q.shape
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q.view(batch, heads // groups, groups, dim), k, v)
        return out.reshape(batch, heads, 1, dim)
    return attend


def ways_to_attend(queries, groups):
    if DEVICE.type == "cpu":
        return {"math": shared_heads(SDPBackend.MATH)}
    ways = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        ways[f"{backend.name}"] = shared_heads(backend)
        if groups > 1 and queries == 1:
            ways[f"{backend.name}, heads packed"] = packed_heads(backend)
        elif groups > 1:
            ways[f"{backend.name}, keys repeated"] = repeated_heads(backend)
    return ways


def graph_of(function):
    """A graph that replays `function`, and its result."""
    if DEVICE.type == "cpu":
        result = {}

        def run():
            result["value"] = function()
        run()
        return run, lambda: result["value"]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = function()
    return graph.replay, lambda: value


def synchronize():
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(run, times=5):
    run()
    samples = []
    for _ in range(times):
        synchronize()
        begin = time.perf_counter()
        run()
        synchronize()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


class NoWay(RuntimeError):
    pass


def fastest_way(model, batch, queries, length):
    """Times by name of kernel for these shapes; each sample calls it once per layer, each on its own memory."""
    shape = (batch, model.kv_heads, length, model.dim)
    copies = max(1, min(model.layers_count, (256 << 20) // (2 * math.prod(shape) * 2)))
    q = torch.randn(batch, model.heads, queries, model.dim, device=DEVICE, dtype=model.dtype)
    kv = [(torch.randn(shape, device=DEVICE, dtype=model.dtype), torch.randn(shape, device=DEVICE, dtype=model.dtype))
          for _ in range(copies)]
    times, ways = {}, ways_to_attend(queries, model.heads // model.kv_heads)
    for name, attend in ways.items():
        try:
            attend(q, *kv[0])
            synchronize()
            run, _ = graph_of(lambda attend=attend: [attend(q, k, v) for k, v in kv][-1])
            times[name] = seconds_of(run) / copies
        except RuntimeError:  # the kernel does not support these shapes
            synchronize()
    if not times:
        raise NoWay("no kernel of scaled_dot_product_attention takes these shapes")
    best = min(times, key=times.get)
    return best, ways[best], {name: round(seconds * 1e6, 2) for name, seconds in times.items()}


def random_context(model, cache, context):
    """Equal for all layers and sequences, as in heddle."""
    if context == 0:
        return
    key = synthetic_key("bench", "context")
    row = torch.arange(context * model.dim, device=DEVICE)
    for half in range(2):
        for head in range(model.kv_heads):
            first = (half * model.kv_heads + head) * POSITIONS * model.dim
            values = synthetic_values(key, row + first, 1.0).to(model.dtype).view(context, model.dim)
            for pair in cache:
                pair[half][:, head, :context] = values


class Case:
    def __init__(self, case, model):
        begin = time.perf_counter()
        self.model, self.batch, self.context = model, case["batch"], case["context"]
        inputs = torch.tensor(case["input_tokens"], device=DEVICE)
        self.num_tokens, step = inputs.shape[1], case["step_tokens"]
        length = self.context + self.num_tokens
        shape = (self.batch, model.kv_heads, length, model.dim)
        self.cache = [tuple(torch.zeros(shape, device=DEVICE, dtype=model.dtype) for _ in range(2))
                      for _ in range(model.layers_count)]
        self.way, attend, self.times = fastest_way(model, self.batch, min(step, self.num_tokens), length)
        if case.get("context_fill") == "random":
            random_context(model, self.cache, self.context)
        elif self.context > 0:
            tokens = torch.tensor(case["context_tokens"], device=DEVICE).repeat(self.batch, 1)
            math_way = shared_heads(SDPBackend.MATH)
            for first in range(0, self.context, 512):
                part = tokens[:, first:first + 512]
                model.step(part, self.cache, model.place(first, part.shape[1]), math_way)
        self.touch = torch.zeros(1, device=DEVICE)
        self.runs, self.logits = [], []
        pieces = [inputs[:, first:first + step].contiguous() for first in range(0, self.num_tokens, step)]
        places = [model.place(self.context + i * step, piece.shape[1]) for i, piece in enumerate(pieces)]
        for piece, place in list(zip(pieces, places))[:None if step > 1 else 1]:  # triggers compilation
            model.step(piece, self.cache, place, attend)
        synchronize()
        self.read_by_graphs = pieces, places  # graphs hold addresses only
        for piece, place in zip(pieces, places):
            run, value = graph_of(lambda piece=piece, place=place: model.step(piece, self.cache, place, attend))
            self.runs.append(run)
            self.logits.append(value)
        self.seconds = time.perf_counter() - begin

    def ready(self):
        return {"attention": self.way, "attention_microseconds": self.times, "mode": MODE,
                "seconds_to_prepare": round(self.seconds, 1)}

    def sample(self):
        self.touch.add_(1)  # the first kernel after another process ran takes 0.2 ms longer, which is not the model's time
        synchronize()
        begin = time.perf_counter()
        for run in self.runs:
            run()
        synchronize()
        return time.perf_counter() - begin

    def check(self, num_probes):
        argmax, last = [], None
        for run, value in zip(self.runs, self.logits):  # step by step: graphs may share a memory pool
            run()
            synchronize()
            last = value().float()
            argmax += last.argmax(-1).tolist()
        return {"argmax": argmax, "probes": last[0, protocol.probe_indices(last.shape[1], num_probes)].tolist()}

    def close(self):
        self.runs = self.logits = self.cache = self.read_by_graphs = None
        if DEVICE.type == "cuda":
            torch.cuda.empty_cache()


MODELS = {}


def require_supported(config):
    """Lists features that this plain Llama lacks."""
    if config.get("model_type") not in (None, "llama", "qwen2", "mistral"):
        raise RuntimeError(f"model_type {config['model_type']}: this baseline knows llama, qwen2 and mistral")
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        raise RuntimeError("sliding windows: this baseline has none")


def use_device_of(case):
    """The same GPU, or as many CPU threads, as heddle."""
    kind, _, index = case.get("device", DEVICE.type).partition(":")
    if kind != DEVICE.type:
        raise RuntimeError(f"heddle runs on {case['device']}, PyTorch here on {DEVICE.type}")
    if kind == "cuda":
        torch.cuda.set_device(int(index or 0))
    elif "threads" in case:
        torch.set_num_threads(case["threads"])


def model_of(case):
    use_device_of(case)
    require_supported(case["config"])
    key = (case["model"], case["dtype"])
    if key not in MODELS:
        MODELS.clear()
        MODELS[key] = Llama(case["model"], case["config"], getattr(torch, case["dtype"]),
                            torch.tensor(case["inv_freq"], dtype=torch.float32))
    return MODELS[key]


def prepare(case):
    return Case(case, model_of(case))


def known_config(name):
    sizes = {"llama-2-7b": (32000, 4096, 11008, 32, 32, 128, 32, 10000.0, False, "float16"),
             "llama-3-8b": (128256, 4096, 14336, 32, 8, 128, 32, 500000.0, False, "bfloat16"),
             "llama-3.2-1b": (128256, 2048, 8192, 32, 8, 64, 16, 500000.0, True, "bfloat16"),
             "tiny": (1000, 128, 384, 4, 2, 32, 4, 10000.0, False, "bfloat16")}
    vocab, hidden, inner, heads, kv_heads, dim, layers, theta, tied, dtype = sizes[name]
    return {"vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "head_dim": dim, "num_hidden_layers": layers, "rope_theta": theta,
            "tie_word_embeddings": tied, "rms_norm_eps": 1e-5, "torch_dtype": dtype}


def by_hand():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="llama-3.2-1b")
    parser.add_argument("--batch", default="1")
    parser.add_argument("--context", default="1024")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--prefill", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    config = known_config(options.model)
    dim = config["head_dim"]
    inv_freq = [config["rope_theta"] ** (-2 * i / dim) for i in range(dim // 2)]
    for batch in map(int, options.batch.split(",")):
        for context in map(int, options.context.split(",")):
            count = options.prefill or options.tokens
            tokens = torch.randint(config["vocab_size"], (batch, count)).tolist()
            case = prepare({"model": f"synth:{options.model}", "config": config, "dtype": config["torch_dtype"],
                            "inv_freq": inv_freq, "batch": batch, "context": context, "context_fill": "random",
                            "input_tokens": tokens, "step_tokens": count if options.prefill else 1})
            case.sample()
            samples = [case.sample() for _ in range(options.repeats)]
            ms = 1e3 * statistics.median(samples) / (1 if options.prefill else options.tokens)
            print(json.dumps({"model": options.model, "batch": batch, "context": context, "prefill": options.prefill,
                              "milliseconds": round(ms, 4), **case.ready(),
                              "finite": bool(torch.isfinite(case.logits[-1]()).all())}), flush=True)
            case.close()


def main():
    if len(sys.argv) > 1:
        return by_hand()
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    how = ", compiled, CUDA graphs" if DEVICE.type == "cuda" else ""
    protocol.serve({"name": "PyTorch" + how, "version": torch.__version__,
                    "settings": {"mode": MODE, "device": name, "waits": "once a sample"}}, prepare)


if __name__ == "__main__":
    main()
