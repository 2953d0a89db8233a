#!/usr/bin/env python3
"""Generates tests/data/llama/family: results of transformers for the architectures and settings of the Llama family.

  weights.safetensors  tensors of a tiny model, biases and norms of queries and keys among them; a case takes some of them
  family.json          `tokens`: one long sequence; `rows`: the positions whose logits are kept; `cases`: a config.json as
                       users meet it, which optional tensors go with it, and the factor on cosine and sine; `rope`: the
                       same factor for configs of real models and for random ones, with their frequencies
  logits.safetensors   float32: NAME [rows, vocab_size], and NAME.inv_freq

Float32 with eager attention, one pass over the whole sequence. A case whose setting changes nothing is an error.
Versions: tools/requirements.txt. Run: python tools/goldens/make_llama_family.py [tests/data/llama/family]
"""

import copy
import json
import sys
from pathlib import Path
from random import Random

import torch
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

LENGTH = 200
ROWS = [0, 1, 15, 16, 17, 63, 64, 65, 130, 199]
VOCAB = 131
CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}

# Tensors that some cases have, by the ends of their names.
QKV_BIAS = ["q_proj.bias", "k_proj.bias", "v_proj.bias"]
ATTENTION_BIAS = QKV_BIAS + ["o_proj.bias"]
MLP_BIAS = ["gate_proj.bias", "up_proj.bias", "down_proj.bias"]
QK_NORM = ["q_norm.weight", "k_norm.weight"]
OPTIONAL = ATTENTION_BIAS + MLP_BIAS + QK_NORM


def config_of(model_type: str, **changes) -> dict:
    """A config.json as transformers 4 writes it. None stays as null; fields of `changes` that are ... are left out."""
    config = {
        "architectures": [CLASSES[model_type][1].__name__],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "hidden_size": 48,
        "intermediate_size": 64,
        "max_position_embeddings": 4096,
        "model_type": model_type,
        "num_attention_heads": 4,  # for 2 and 4 ranks, and for 3 that have unequal shares
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "transformers_version": "4.46.0",
        "use_cache": True,
        "vocab_size": VOCAB,
    }
    config.update(changes)
    return {key: value for key, value in config.items() if value is not ...}


def saved_by_transformers_5(config: dict) -> dict:
    config_class, model_class = CLASSES[config["model_type"]]
    saved = config_class.from_dict(copy.deepcopy(config)).to_diff_dict()
    saved["architectures"] = [model_class.__name__]
    saved["dtype"] = saved.pop("torch_dtype", saved.get("dtype", "float32"))
    return json.loads(json.dumps(saved, default=str))


LLAMA3 = config_of("llama", rope_theta=500000.0, max_position_embeddings=512,
                   rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                 "original_max_position_embeddings": 64, "rope_type": "llama3"})
YARN = config_of("llama", max_position_embeddings=256,
                 rope_scaling={"factor": 4.0, "original_max_position_embeddings": 64, "type": "yarn"})

# name: (why, config, optional tensors, the case whose logits it must not have)
CASES = {
    "llama-2": ("nothing but the sizes", config_of("llama", rope_theta=..., rope_scaling=...), [], None),
    "llama-linear": ("contexts past the original one", config_of("llama", max_position_embeddings=64, rope_scaling={"type": "linear", "factor": 4.0}), [],
                     "llama-2"),
    "llama-dynamic": ("within max_position_embeddings it is no scaling",
                      config_of("llama", max_position_embeddings=256, rope_scaling={"type": "dynamic", "factor": 2.0}), [], None),
    "llama-3.1": ("as transformers 4 writes it", LLAMA3, [], "llama-2"),
    "llama-3.1-v5": ("as transformers 5 writes it", saved_by_transformers_5(LLAMA3), [], "llama-2"),
    "llama-yarn": ("as transformers 4 writes it", YARN, [], "llama-2"),
    "llama-yarn-v5": ("as transformers 5 writes it", saved_by_transformers_5(YARN), [], "llama-2"),
    "llama-yarn-mscale": ("DeepSeek's fields, and bounds that are no whole pairs",
                          config_of("llama", max_position_embeddings=256,
                                    rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                                                  "beta_fast": 16, "beta_slow": 2, "mscale": 1.0, "mscale_all_dim": 0.5,
                                                  "truncate": False}), [], "llama-yarn"),
    "llama-yarn-factor": ("attention_factor given, original context not",
                          config_of("llama", max_position_embeddings=64,
                                    rope_scaling={"rope_type": "yarn", "factor": 3.5, "attention_factor": 0.8}), [], "llama-yarn"),
    "llama-biases": ("attention_bias and mlp_bias", config_of("llama", attention_bias=True, mlp_bias=True), ATTENTION_BIAS + MLP_BIAS,
                     "llama-2"),
    "mistral-window": ("every layer has one", config_of("mistral", sliding_window=16), [], "llama-2"),
    "mistral-no-window": ("null: none", config_of("mistral", sliding_window=None, rope_theta=1000000.0), [], "llama-2"),
    "mistral-v5": ("as transformers 5 writes it", saved_by_transformers_5(config_of("mistral", sliding_window=100)), [], "llama-2"),
    "qwen2": ("QKV bias; a window that is not used", config_of("qwen2", use_sliding_window=False, sliding_window=8, max_window_layers=0),
              QKV_BIAS, "llama-2"),
    "qwen2-window": ("the upper layers have one", config_of("qwen2", use_sliding_window=True, sliding_window=24, max_window_layers=1),
                     QKV_BIAS, "qwen2"),
    "qwen2-layer-types": ("the lower layer has one; as transformers 5 writes it",
                          saved_by_transformers_5(config_of("qwen2", use_sliding_window=True, sliding_window=24,
                                                            layer_types=["sliding_attention", "full_attention"])),
                          QKV_BIAS, "qwen2-window"),
    "qwen2.5-yarn": ("as the model card tells to add it",
                     config_of("qwen2", use_sliding_window=False, max_position_embeddings=64, rope_theta=1000000.0,
                               rope_scaling={"factor": 4.0, "original_max_position_embeddings": 64, "type": "yarn"}), QKV_BIAS, "qwen2"),
    "qwen3": ("norms of queries and keys", config_of("qwen3", attention_bias=False, use_sliding_window=False, sliding_window=None,
                                                     max_window_layers=2), QK_NORM, "llama-2"),
    "qwen3-v5": ("all at once, as transformers 5 writes it",
                 saved_by_transformers_5(config_of("qwen3", attention_bias=True, use_sliding_window=True, sliding_window=33,
                                                   max_window_layers=1, max_position_embeddings=128,
                                                   rope_scaling={"rope_type": "yarn", "factor": 2.0,
                                                                 "original_max_position_embeddings": 64})),
                 ATTENTION_BIAS + QK_NORM, "qwen3"),
}

# Of real models' config.json: head_dim, max_position_embeddings, rope_theta, rope_scaling.
ROPE = {
    "Llama-2-7b": (128, 4096, 10000.0, None),
    "Llama-3.1-8B": (128, 131072, 500000.0, {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                            "original_max_position_embeddings": 8192, "rope_type": "llama3"}),
    "Llama-3.2-1B": (64, 131072, 500000.0, {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                           "original_max_position_embeddings": 8192, "rope_type": "llama3"}),
    "Vicuna-16k": (128, 4096, 10000.0, {"factor": 4.0, "type": "linear"}),
    "Qwen2.5-7B with YaRN": (128, 32768, 1000000.0, {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}),
    "Qwen3-8B with YaRN": (128, 40960, 1000000.0, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    "DeepSeek-V2-Lite": (64, 163840, 10000, {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
                                             "original_max_position_embeddings": 4096, "type": "yarn"}),
    "a null factor": (64, 163840, 10000, {"factor": None, "original_max_position_embeddings": 4096, "rope_type": "yarn"}),
    "gpt-oss": (64, 131072, 150000, {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
                                     "rope_type": "yarn", "truncate": False}),
    "zeros mean defaults": (64, 8192, 10000.0, {"beta_fast": 0, "beta_slow": 0, "mscale": 0, "mscale_all_dim": 1, "factor": 2.0,
                                                "original_max_position_embeddings": 4096, "rope_type": "yarn"}),
    "all pairs beyond the bounds": (16, 64, 10000.0, {"factor": 2.0, "original_max_position_embeddings": 4, "rope_type": "yarn"}),
}


def random_rope(random: Random) -> tuple:
    """Settings that make sense, which nobody chose."""
    original = random.choice([64, 500, 4096, 8192, 100000])
    scaling = {"factor": random.choice([1, 1.5, 4, 40.0, 123.456]), "original_max_position_embeddings": original}
    kind = random.choice(["llama3", "yarn", "yarn"])
    scaling["rope_type"] = kind
    if kind == "llama3":
        scaling["low_freq_factor"] = random.uniform(0.5, 4)
        scaling["high_freq_factor"] = scaling["low_freq_factor"] + random.uniform(0.1, 20)
    else:
        optional = {"beta_fast": random.uniform(2, 64), "beta_slow": random.uniform(0.1, 2), "truncate": random.random() < 0.5,
                    "mscale": random.uniform(0.1, 2), "mscale_all_dim": random.uniform(0.1, 2),
                    "attention_factor": random.uniform(0.5, 2)}
        scaling.update({key: value for key, value in optional.items() if random.random() < 0.5})
    return random.choice([16, 30]), original, random.choice([100.0, 10000.0, 500000, 12345678.9]), scaling


def make_weights() -> dict[str, torch.Tensor]:
    """Of the model that has every optional tensor."""
    generator = torch.Generator().manual_seed(1)
    config = config_of("llama", attention_bias=True, mlp_bias=True, rope_scaling=...)
    shapes = {name: p.shape for name, p in LlamaForCausalLM(LlamaConfig.from_dict(config)).named_parameters()}
    for layer in range(config["num_hidden_layers"]):
        for name in QK_NORM:
            shapes[f"model.layers.{layer}.self_attn.{name}"] = torch.Size([config["head_dim"]])
    weights = {}
    # Scales that make logits and attention vary, which hides no mistakes.
    for name in sorted(shapes):
        random = torch.randn(shapes[name], generator=generator)
        if name.endswith("norm.weight"):
            weights[name] = 1 + 0.25 * random.clamp(-2, 2)
        elif name.endswith(".bias"):
            weights[name] = 0.5 * random
        else:
            scale = 1.0 if "embed" in name or "lm_head" in name else 2.0
            weights[name] = random * scale / shapes[name][1] ** 0.5
    return weights


def model_of(config: dict, weights: dict[str, torch.Tensor], optional: list[str]) -> torch.nn.Module:
    config_class, model_class = CLASSES[config["model_type"]]
    parsed = config_class.from_dict(copy.deepcopy(config))
    parsed._attn_implementation = "eager"
    model = model_class(parsed).eval()
    absent = tuple(name for name in OPTIONAL if name not in optional)
    model.load_state_dict({name: value for name, value in weights.items() if not name.endswith(absent)}, strict=True)
    return model


def rope_of(head_dim: int, max_position: int, theta: float, scaling: dict | None) -> dict:
    config = {"head_dim": head_dim, "hidden_size": 4 * head_dim, "num_attention_heads": 4, "max_position_embeddings": max_position,
              "rope_theta": theta, "rope_scaling": scaling}
    rotary = LlamaRotaryEmbedding(LlamaConfig.from_dict(copy.deepcopy(config)))
    return {"config": config, "scale": rotary.attention_scaling, "inv_freq": [float(x) for x in rotary.inv_freq]}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/llama/family")
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    weights = make_weights()
    tokens = torch.randint(0, VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(2))
    cases, results = [], {}
    for name, (why, config, optional, other) in CASES.items():
        model = model_of(config, weights, optional)
        with torch.no_grad():
            results[name] = model(tokens[None]).logits[0, ROWS].contiguous()
        rotary = model.model.rotary_emb
        results[f"{name}.inv_freq"] = rotary.inv_freq.clone()
        cases.append({"name": name, "why": why, "config": config, "optional": optional, "scale": rotary.attention_scaling})
        apart = (results[name] - results[other]).abs().max().item() if other else None
        print(f"{name}: standard deviation {results[name].std():.2f}, apart from {other} by {apart}")
        assert apart is None or apart > 0.1
    save_file(weights, folder / "weights.safetensors")
    save_file(results, folder / "logits.safetensors")
    random = Random(3)
    rope = [{"name": name, **rope_of(*args)} for name, args in ROPE.items()]
    rope += [{"name": f"random {i}", **rope_of(*random_rope(random))} for i in range(40)]
    (folder / "family.json").write_text(
        json.dumps({"tokens": tokens.tolist(), "rows": ROWS, "cases": cases, "rope": rope}, indent=1) + "\n")


if __name__ == "__main__":
    main()
