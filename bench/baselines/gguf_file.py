"""Writes a model folder (Hugging Face layout, safetensors) as a GGUF file with exactly the same weights.

Matrices are copied bit for bit (bfloat16, float16 or float32 as stored); vectors become float32, which is exact.
No tokenizer is written: benchmarks use token ids. Needs only Python. The format follows the GGUF specification; the
names of tensors and the order of q and k rows follow llama.cpp's loader.
"""
import array
import json
import math
import mmap
import os
import struct

UINT32, FLOAT32, STRING = 4, 6, 8
TYPES = {"F32": 0, "F16": 1, "BF16": 30}
FILE_TYPES = {"F32": 0, "F16": 1, "BF16": 32}
SIZES = {"F32": 4, "F16": 2, "BF16": 2}
ALIGNMENT = 32

ARCHITECTURES = {  # name in GGUF, whether q and k rows are in the order for interleaved rotation
    "LlamaForCausalLM": ("llama", True),
    "MistralForCausalLM": ("llama", True),
    "Qwen2ForCausalLM": ("qwen2", False),
    "Qwen3ForCausalLM": ("qwen3", False),
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name):
    base, kind = name.rsplit(".", 1)
    if base in OTHER_NAMES:
        return f"{OTHER_NAMES[base]}.{kind}"
    prefix, rest = base.split("model.layers.", 1)[1].split(".", 1)
    return f"blk.{prefix}.{LAYER_NAMES[rest]}.{kind}"


class Folder:
    """config.json and the tensors, as memory-mapped bytes."""

    def __init__(self, path):
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        self.tensors = {}  # name -> dtype, shape, bytes
        for name in sorted(os.listdir(path)):
            if name.endswith(".safetensors"):
                self._map(os.path.join(path, name))

    def _map(self, path):
        with open(path, "rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        (size,) = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(bytes(data[8:8 + size])).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                self.tensors[name] = (entry["dtype"], entry["shape"], data[8 + size + begin:8 + size + end])


def to_float32(dtype, data):
    if dtype == "F32":
        return bytes(data)
    if dtype == "F16":
        return array.array("f", struct.unpack(f"<{len(data) // 2}e", data)).tobytes()
    return array.array("I", (bits << 16 for bits in struct.unpack(f"<{len(data) // 2}H", data))).tobytes()


def interleaved(data, num_heads, num_rows):
    """Reorders the rows of each head from halves (i, i + d/2) to neighbours (2 i, 2 i + 1), which llama.cpp rotates."""
    head_dim, row_bytes = num_rows // num_heads, len(data) // num_rows
    rows = []
    for head in range(num_heads):
        for i in range(head_dim // 2):
            for half in range(2):
                row = head * head_dim + half * (head_dim // 2) + i
                rows.append(bytes(data[row * row_bytes:(row + 1) * row_bytes]))
    return b"".join(rows)


def rope_parameters(config):
    """Reads the format of transformers 4 (rope_theta, rope_scaling) and 5 (rope_parameters)."""
    rope = dict(config.get("rope_scaling") or {})
    rope.update(config.get("rope_parameters") or {})
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3", "linear"):
        raise ValueError(f"rope_type {kind} is not converted")
    return kind, rope


def llama3_factors(rope, head_dim):
    """The divisor of each frequency (Llama 3.1): `factor` for long waves, 1 for short ones, interpolated between."""
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for i in range(0, head_dim, 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (i / head_dim)
        if wave < original / high:
            factors.append(1.0)
        elif wave > original / low:
            factors.append(float(factor))
        else:
            smooth = (original / wave - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def field(key, kind, value):
    packed = string(value) if kind == STRING else struct.pack("<I" if kind == UINT32 else "<f", value)
    return string(key) + struct.pack("<I", kind) + packed


def metadata(config, arch, head_dim, rope_kind, rope, file_type):
    fields = [
        field("general.architecture", STRING, arch), field("general.name", STRING, "heddle bench"),
        field("general.file_type", UINT32, file_type), field("tokenizer.ggml.model", STRING, "none"),
    ]
    numbers = {
        "context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config.get("num_key_value_heads") or config["num_attention_heads"],
        "attention.key_length": head_dim, "attention.value_length": head_dim, "rope.dimension_count": head_dim,
        "vocab_size": config["vocab_size"],
    }
    fields += [field(f"{arch}.{key}", UINT32, value) for key, value in numbers.items()]
    fields.append(field(f"{arch}.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"]))
    fields.append(field(f"{arch}.rope.freq_base", FLOAT32, rope["rope_theta"]))
    if rope_kind == "linear":
        fields.append(field(f"{arch}.rope.scaling.type", STRING, "linear"))
        fields.append(field(f"{arch}.rope.scaling.factor", FLOAT32, rope["factor"]))
    return fields


def write_gguf(folder_path, file_path):
    folder = Folder(folder_path)
    config = folder.config
    name = config["architectures"][0]
    if name not in ARCHITECTURES:
        raise ValueError(f"{name} is not converted; known are {', '.join(ARCHITECTURES)}")
    arch, permuted = ARCHITECTURES[name]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope_kind, rope = rope_parameters(config)
    heads_of = {"q_proj": heads, "k_proj": config.get("num_key_value_heads") or heads}

    tensors = []  # name, type, shape, size in bytes, function that returns the bytes
    for tensor, (dtype, shape, data) in folder.tensors.items():
        if tensor == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        projection = tensor.split(".")[-2]
        rows = shape[0]
        if len(shape) == 1:
            def content(dtype=dtype, data=data, projection=projection, rows=rows):
                values = to_float32(dtype, data)
                return interleaved(values, heads_of[projection], rows) if permuted and projection in heads_of else values
            tensors.append((gguf_name(tensor), TYPES["F32"], shape, 4 * rows, content))
        else:
            def content(data=data, projection=projection, rows=rows):
                return interleaved(data, heads_of[projection], rows) if permuted and projection in heads_of else data
            tensors.append((gguf_name(tensor), TYPES[dtype], shape, len(data), content))
    if rope_kind == "llama3":
        factors = array.array("f", llama3_factors(rope, head_dim)).tobytes()
        tensors.append(("rope_freqs.weight", TYPES["F32"], [head_dim // 2], len(factors), lambda: factors))

    dtype = folder.tensors["model.embed_tokens.weight"][0]
    fields = metadata(config, arch, head_dim, rope_kind, rope, FILE_TYPES[dtype])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(fields)
    offset = 0
    for name, kind, shape, size, _ in tensors:  # sizes run from the fastest dimension to the slowest
        head += string(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", kind, offset)
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    temporary = f"{file_path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(head + bytes(-len(head) % ALIGNMENT))
            for _, _, _, size, content in tensors:
                file.write(content())
                file.write(bytes(-size % ALIGNMENT))
        os.replace(temporary, file_path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
