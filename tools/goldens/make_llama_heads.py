#!/usr/bin/env python3
"""Makes tests/data/llama/heads: models whose heads are as wide as real ones, which the fast GPU kernels take.

Weights are not stored. They are synthetic (src/weights/synthetic_values.h, second implementation in
make_synthetic_values.py): tensor NAME of a case has the key "CASE/NAME" and the given deviation and offset, rounded to
bfloat16. Every dtype of a model is made of these same weights, so that all share the float32 logits.

  heads.json         `columns`: the logits that are kept of each row; `cases`: config.json, tensors, sequences, and
                     `answers`: tokens that transformers chooses greedily behind the first `prompt_lengths` tokens of
                     each sequence; `loss`: how far transformers is from its float32 logits and log-probabilities when
                     it computes in a 2-byte dtype (largest, root of the mean square)
  heads.safetensors  float32: CASE.logits.I [length of sequence I, columns], CASE.logprobs.I [length - 1], the
                     log-probability of each token from the second on

Float32 with eager attention, one pass over each sequence. What could hide mistakes is an error here: logits without
spread, attention that is uniform or sees one key, a first token without influence on the last; near ties in an answer.
Versions: tools/requirements.txt. Run: python tools/goldens/make_llama_heads.py [tests/data/llama/heads]
"""

import copy
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from make_llama_family import config_of, model_of, QK_NORM, QKV_BIAS
from make_synthetic_values import key, UNIT_DEVIATION
from safetensors.torch import save_file

# Beyond tiles of 64 and of 128 keys, and of 256; no two alike, none a multiple of a page.
LENGTHS = (270, 150, 137)
PROMPT_LENGTHS = (128, 63, 131)
ANSWER_LENGTH = 16
LEAST_MARGIN = 5e-4  # of the token chosen over the next: more than float32 in another order may move both
VOCAB = 259
COLUMNS = [0, 1, 7, 8, 15, 16, 31, 63, 64, 65, 100, 127, 128, 129, 150, 191, 192, 200, 223, 240, 255, 256, 257, 258]
DTYPES = ("bfloat16", "float16")


def heads_config(model_type: str, heads: int, kv_heads: int, head_dim: int, **changes) -> dict:
    return config_of(model_type, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
                     hidden_size=192, intermediate_size=320, vocab_size=VOCAB, max_position_embeddings=512,
                     torch_dtype="bfloat16", **changes)


# name: (why, config, optional tensors). Head counts are those of real models, divided.
CASES = {
    "llama-64": ("Llama 3.2's 4 heads to a KV head", heads_config("llama", 8, 2, 64, rope_theta=500000.0), []),
    "llama-128": ("Llama 3's 4 heads to a KV head", heads_config("llama", 8, 2, 128, rope_theta=500000.0), []),
    "mha-128": ("Llama 2's KV head for each head", heads_config("llama", 3, 3, 128), []),
    "qwen2-64": ("Qwen2.5-0.5B's 7 heads to a KV head, QKV bias",
                 heads_config("qwen2", 14, 2, 64, rope_theta=1000000.0, use_sliding_window=False), QKV_BIAS),
    "qwen2-128": ("Qwen2.5-7B's 7 heads to a KV head, QKV bias",
                  heads_config("qwen2", 7, 1, 128, rope_theta=1000000.0, use_sliding_window=False), QKV_BIAS),
    "qwen3-64": ("8 heads to a KV head, norms of queries and keys",
                 heads_config("qwen3", 8, 1, 64, rope_theta=1000000.0, attention_bias=False, use_sliding_window=False), QK_NORM),
    "qwen3-128": ("Qwen3's norms of queries and keys",
                  heads_config("qwen3", 4, 2, 128, rope_theta=1000000.0, attention_bias=False, use_sliding_window=False), QK_NORM),
    "mistral-128": ("a window that ends within a tile", heads_config("mistral", 8, 2, 128, sliding_window=100), []),
}


def recipe_of(name: str, shape: list[int]) -> dict:
    """Deviations that make logits and attention vary, which hides no mistakes."""
    deviation, offset = 0.2, 1.0
    if name.endswith((".bias", *QK_NORM)):
        deviation, offset = (0.3, 0.0) if name.endswith(".bias") else (0.2, 1.4)
    elif len(shape) == 2:
        scale = 3.0 if "lm_head" in name else 1.0 if "embed" in name else 1.5
        deviation, offset = scale / math.sqrt(shape[1]), 0.0
    return {"name": name, "shape": shape, "deviation": deviation, "offset": offset}


def values_of(case: str, recipe: dict) -> torch.Tensor:
    """make_synthetic_values.value() of all elements at once, rounded to bfloat16."""
    add, mix = (np.uint32(half) for half in key(case, recipe["name"]))
    h = np.arange(math.prod(recipe["shape"]), dtype=np.uint32) * np.uint32(0x9E3779B1) + add
    h = (h ^ (h >> 16)) * np.uint32(0x85EBCA6B) + mix
    h = (h ^ (h >> 16)) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> 15)) * np.uint32(0x846CA68B)
    h ^= h >> 16
    integers = 2 * ((h & 0xFFFF).astype(np.int32) - (h >> 16).astype(np.int32)) + 1
    values = np.float32(recipe["offset"]) + np.float32(recipe["deviation"] / UNIT_DEVIATION) * integers.astype(np.float32)
    return torch.from_numpy(values).reshape(recipe["shape"]).to(torch.bfloat16)


def recipes_of(config: dict, optional: list[str]) -> list[dict]:
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    rows = {"q": config["num_attention_heads"] * config["head_dim"], "k": config["num_key_value_heads"] * config["head_dim"]}
    rows["v"] = rows["k"]
    shapes = {"model.embed_tokens.weight": [VOCAB, hidden]}
    for layer in range(config["num_hidden_layers"]):
        of = f"model.layers.{layer}."
        for which, size in rows.items():
            shapes[f"{of}self_attn.{which}_proj.weight"] = [size, hidden]
            shapes[f"{of}self_attn.{which}_proj.bias"] = [size]
        for which in QK_NORM:
            shapes[f"{of}self_attn.{which}"] = [config["head_dim"]]
        shapes |= {f"{of}self_attn.o_proj.weight": [hidden, rows["q"]],
                   f"{of}mlp.gate_proj.weight": [intermediate, hidden],
                   f"{of}mlp.up_proj.weight": [intermediate, hidden],
                   f"{of}mlp.down_proj.weight": [hidden, intermediate],
                   f"{of}input_layernorm.weight": [hidden],
                   f"{of}post_attention_layernorm.weight": [hidden]}
    shapes |= {"model.norm.weight": [hidden], "lm_head.weight": [VOCAB, hidden]}
    absent = tuple(name for name in QKV_BIAS + QK_NORM if name not in optional)
    return [recipe_of(name, shape) for name, shape in shapes.items() if not name.endswith(absent)]


def in_dtype(model: torch.nn.Module, dtype: str) -> torch.nn.Module:
    """Rotary frequencies stay in float32, as from_pretrained keeps them."""
    frequencies = model.model.rotary_emb.inv_freq.clone()
    narrow = copy.deepcopy(model).to(getattr(torch, dtype))
    narrow.model.rotary_emb.inv_freq = frequencies
    return narrow


@torch.no_grad()
def logits_of(model: torch.nn.Module, tokens: list[int]) -> torch.Tensor:
    return model(torch.tensor([tokens])).logits[0].float()


def logprobs_of(logits: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    return logits.double().log_softmax(-1)[torch.arange(len(tokens) - 1), tokens[1:]]


def distances(a: list[torch.Tensor], b: list[torch.Tensor]) -> dict:
    difference = (torch.cat(a).double() - torch.cat(b).double()).abs()
    return {"largest": difference.max().item(), "root_mean_square": difference.square().mean().sqrt().item()}


def answer_of(model: torch.nn.Module, prompt: list[int]) -> list[int]:
    tokens = []
    while len(tokens) < ANSWER_LENGTH:
        largest = logits_of(model, prompt + tokens)[-1].topk(2)
        assert largest.values[0] - largest.values[1] > LEAST_MARGIN, "choose another seed"
        tokens.append(largest.indices[0].item())
    return tokens


def check(name: str, model: torch.nn.Module, config: dict, tokens: list[int], logits: torch.Tensor) -> None:
    assert logits.std() > 1, name
    with torch.no_grad():
        attention = model(torch.tensor([tokens]), output_attentions=True).attentions
    entropy = [-(a * a.clamp(min=1e-20).log()).sum(-1)[0, :, -1].mean().item() for a in attention]
    assert all(0.5 < e < 0.9 * math.log(config.get("sliding_window") or len(tokens)) for e in entropy), (name, entropy)
    if config.get("sliding_window") is None:
        changed = [(tokens[0] + 1) % VOCAB, *tokens[1:]]
        assert (logits_of(model, changed)[-1] - logits[-1]).abs().max() > 1e-3, name


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/llama/heads")
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(4)
    cases, results = [], {}
    for name, (why, config, optional) in CASES.items():
        recipes = recipes_of(config, optional)
        weights = {recipe["name"]: values_of(name, recipe).float() for recipe in recipes}
        model = model_of(config, weights, optional)
        sequences = [torch.randint(0, VOCAB, (n,), generator=generator).tolist() for n in LENGTHS]
        logits = [logits_of(model, tokens) for tokens in sequences]
        logprobs = [logprobs_of(*pair) for pair in zip(logits, sequences)]
        check(name, model, config, sequences[0], logits[0])
        loss = {}
        for dtype in DTYPES:
            narrow = in_dtype(model, dtype)
            lossy = [logits_of(narrow, tokens) for tokens in sequences]
            loss[dtype] = {"logits": distances([x[:, COLUMNS] for x in lossy], [x[:, COLUMNS] for x in logits]),
                           "logprobs": distances([logprobs_of(*pair) for pair in zip(lossy, sequences)], logprobs)}
        prompts = [tokens[:n] for tokens, n in zip(sequences, PROMPT_LENGTHS)]
        answers = [answer_of(model, prompt) for prompt in prompts]
        for i in range(len(sequences)):
            results[f"{name}.logits.{i}"] = logits[i][:, COLUMNS].contiguous()
            results[f"{name}.logprobs.{i}"] = logprobs[i].float().contiguous()
        cases.append({"name": name, "why": why, "config": config, "tensors": recipes, "sequences": sequences,
                      "prompt_lengths": PROMPT_LENGTHS, "answers": answers, "loss": loss})
        print(f"{name}: standard deviation {logits[0].std():.2f}, loss {json.dumps(loss)}")
    save_file(results, folder / "heads.safetensors")
    lines = ",\n".join(json.dumps(case) for case in cases)
    (folder / "heads.json").write_text(f'{{"columns": {COLUMNS}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
