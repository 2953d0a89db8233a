#!/usr/bin/env python3
"""Makes tests/data/experts: logits of tiny models with experts, and of those with latent attention: Mixtral, DeepSeek-V2
and models of DeepSeek-V3's architecture.

Weights are not stored. They are synthetic (src/weights/synthetic_values.h, second implementation in
make_synthetic_values.py): tensor NAME of a case has the key "CASE/NAME" and the given deviation and offset, rounded to
bfloat16.

  experts.json         `tokens`: one sequence; `rows`: the positions whose logits are kept; `cases`: a config.json as users
                       meet it and its tensors
  experts.safetensors  float32: CASE [rows, vocab_size]

Float32 with eager attention, one pass over the whole sequence. What could hide mistakes is an error here: logits without
spread, an expert that no token or every token chooses where there is a choice, a choice that float32 in another order
may change, a setting that changes nothing. Checkpoints have a tensor for each expert in transformers 4 and 5;
transformers 5 stacks them when it loads.
Versions: tools/requirements.txt. Run: python tools/goldens/make_experts.py [tests/data/experts]
"""

import copy
import json
import math
import sys
from pathlib import Path

import torch
from make_llama_heads import values_of
from safetensors.torch import save_file
from transformers import (DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, MixtralConfig,
                          MixtralForCausalLM)

LENGTH = 90
ROWS = [0, 1, 15, 16, 17, 31, 32, 40, 63, 64, 88, 89]
VOCAB = 67
CLASSES = {
    "mixtral": (MixtralConfig, MixtralForCausalLM),
    "deepseek_v2": (DeepseekV2Config, DeepseekV2ForCausalLM),
    "deepseek_v3": (DeepseekV3Config, DeepseekV3ForCausalLM),
}


def config_of(model_type: str, **changes) -> dict:
    """A config.json as transformers 4 writes it. Fields of `changes` that are ... are left out."""
    config = {
        "architectures": [CLASSES[model_type][1].__name__],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 48,
        "intermediate_size": 40,
        "max_position_embeddings": 512,
        "model_type": model_type,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.46.0",
        "vocab_size": VOCAB,
    }
    if model_type == "mixtral":
        config |= {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16,
                   "sliding_window": None, "rope_theta": 1e6, "output_router_logits": False, "router_aux_loss_coef": 0.02}
    else:
        config |= {"kv_lora_rank": 32, "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
                   "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1, "moe_intermediate_size": 24,
                   "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": False, "routed_scaling_factor": 1.0,
                   "scoring_func": "softmax", "topk_method": "greedy", "n_group": 1, "topk_group": 1, "num_hidden_layers": 3,
                   "attention_bias": False}
    if model_type == "deepseek_v3":
        config |= {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True, "num_nextn_predict_layers": 0}
    config.update(changes)
    return {key: value for key, value in config.items() if value is not ...}


def saved_by_transformers_5(config: dict) -> dict:
    config_class, model_class = CLASSES[config["model_type"]]
    saved = config_class.from_dict(copy.deepcopy(config)).to_diff_dict()
    saved["architectures"] = [model_class.__name__]
    saved["dtype"] = "bfloat16"
    return json.loads(json.dumps(saved, default=str))


def yarn(**changes) -> dict:
    return {"type": "yarn", "factor": 8, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 64, **changes}


# name: (why, config)
CASES = {
    "mixtral": ("two of four experts", config_of("mixtral")),
    "mixtral-window": ("a window, and as many experts as Mixtral has", config_of("mixtral", sliding_window=24, num_local_experts=8)),
    "mixtral-top-1": ("one expert, whose weight is 1; theta by default", config_of("mixtral", num_local_experts=3, rope_theta=...,
                                                                                 num_experts_per_tok=1)),
    "mixtral-v5": ("as transformers 5 writes it", saved_by_transformers_5(config_of("mixtral", num_experts_per_tok=4,
                                                                                  num_local_experts=6, sliding_window=40))),
    "v2-lite": ("a dense layer, then six of sixteen experts and two shared; no q_lora",
                config_of("deepseek_v2", n_routed_experts=16, num_experts_per_tok=6, n_shared_experts=2)),
    "v2-lite-yarn": ("YaRN, whose mscale is in the scale of the softmax",
                     config_of("deepseek_v2", rope_scaling=yarn(), num_experts_per_tok=2)),
    "v2": ("q_lora, groups, a scale", config_of("deepseek_v2", q_lora_rank=20, topk_method="group_limited_greedy", n_group=4,
                                               topk_group=2, num_experts_per_tok=3, routed_scaling_factor=4.0)),
    "v2-three-groups": ("half of the groups, more experts than one group has",
                        config_of("deepseek_v2", n_routed_experts=12, topk_method="group_limited_greedy", n_group=6, topk_group=3,
                                  num_experts_per_tok=5, rope_scaling=yarn(factor=4))),
    "v2-no-shared": ("no shared experts, one of eight", config_of("deepseek_v2", n_shared_experts=0, num_experts_per_tok=1)),
    "v2-no-dense": ("experts from the first layer on", config_of("deepseek_v2", first_k_dense_replace=0, num_experts_per_tok=2,
                                                               routed_scaling_factor=2.5)),
    "v2-dense": ("no layer has experts", config_of("deepseek_v2", first_k_dense_replace=3)),
    "v2-odd": ("no two widths alike", config_of("deepseek_v2", kv_lora_rank=40, qk_nope_head_dim=12, qk_rope_head_dim=10,
                                              v_head_dim=22, q_lora_rank=18, num_attention_heads=3, num_key_value_heads=3)),
    "v2-real-heads": ("DeepSeek-V2's widths of heads and latents",
                      config_of("deepseek_v2", kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
                                num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=2)),
    "v2-mscale-v5": ("two mscales; as transformers 5 writes it",
                     saved_by_transformers_5(config_of("deepseek_v2", q_lora_rank=24,
                                                       rope_scaling=yarn(mscale=1.0, mscale_all_dim=0.5, factor=4)))),
    "v3": ("sigmoid, groups by their two best, a bias of the choice, normalized",
           config_of("deepseek_v3", q_lora_rank=20, n_routed_experts=16, num_experts_per_tok=4, n_group=4, topk_group=2,
                     routed_scaling_factor=2.5, rope_scaling=yarn(mscale=1.0, mscale_all_dim=1.0))),
    "v3-one-group": ("no groups, not normalized", config_of("deepseek_v3", norm_topk_prob=False, num_experts_per_tok=5)),
}


def recipe_of(name: str, shape: list[int]) -> dict:
    """Deviations that make logits, attention and the choice of experts vary, which hides no mistakes."""
    deviation, offset = 0.2, 1.0
    if name.endswith("correction_bias"):
        deviation, offset = 0.07, 0.0
    elif len(shape) == 2:
        scale = 3.0 if "lm_head" in name else 1.0 if "embed" in name else 2.0 if name.endswith("gate.weight") else 1.5
        deviation, offset = scale / math.sqrt(shape[1]), 0.0
    return {"name": name, "shape": shape, "deviation": deviation, "offset": offset}


def experts_of(model_type: str, name: str, shape: list[int]) -> dict[str, list[int]]:
    """The tensors of a checkpoint that make a stacked parameter of transformers 5."""
    if model_type == "mixtral":
        name, names = name.replace(".mlp.", ".block_sparse_moe."), ("w1", "w3", "w2")
    else:
        names = ("gate_proj", "up_proj", "down_proj")
    prefix = name.rsplit(".", 1)[0]
    if name.endswith("down_proj"):
        return {f"{prefix}.{e}.{names[2]}.weight": shape[1:] for e in range(shape[0])}
    return {f"{prefix}.{e}.{which}.weight": [shape[1] // 2, shape[2]] for e in range(shape[0]) for which in names[:2]}


def parameters_of(model: torch.nn.Module) -> dict[str, list[int]]:
    named = dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if n.endswith("correction_bias")}
    return {name: list(p.shape) for name, p in named.items() if p.numel() > 0}


def build(name: str, config: dict) -> tuple[torch.nn.Module, list[dict]]:
    config_class, model_class = CLASSES[config["model_type"]]
    parsed = config_class.from_dict(copy.deepcopy(config))
    parsed._attn_implementation = "eager"
    model = model_class(parsed).eval().float()
    state, recipes = {}, []
    for parameter, shape in parameters_of(model).items():
        if parameter.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors = experts_of(config["model_type"], parameter, shape)
        elif config["model_type"] == "mixtral":
            tensors = {parameter.replace(".mlp.", ".block_sparse_moe."): shape}
        else:
            tensors = {parameter: shape}
        made = [recipe_of(tensor, size) for tensor, size in tensors.items()]
        recipes += made
        values = torch.cat([values_of(name, recipe).float().flatten() for recipe in made])
        state[parameter] = values.reshape(shape)
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert all("shared_experts" in key for key in missing), missing  # those of zero experts
    return model, recipes


def chosen(module: torch.nn.Module, logits: torch.Tensor) -> torch.Tensor:
    """The router's choice for logits that it would have computed, as a mask."""
    identity = torch.nn.functional.linear
    torch.nn.functional.linear = lambda *_: logits
    try:
        indices = module(torch.zeros(len(logits), module.hidden_dim))[2]
    finally:
        torch.nn.functional.linear = identity
    return torch.zeros_like(logits).scatter(1, indices, 1)


def check(name: str, model: torch.nn.Module, config: dict, tokens: torch.Tensor) -> torch.Tensor:
    routed = []
    routers = [m for m in model.modules() if type(m).__name__.lower().endswith("topkrouter")]
    hooks = [m.register_forward_hook(lambda m, _, out: routed.append((m, out[0]))) for m in routers]
    with torch.no_grad():
        logits = model(tokens[None]).logits[0]
    for hook in hooks:
        hook.remove()
    assert logits.std() > 1, (name, logits.std())
    generator = torch.Generator().manual_seed(5)
    for module, router_logits in routed:
        choice = chosen(module, router_logits)
        counts = choice.sum(0)
        assert counts.min() > 0 and counts.max() < len(tokens), (name, counts)
        for _ in range(20):
            noise = 1e-4 * (2 * torch.rand(router_logits.shape, generator=generator) - 1)
            assert (chosen(module, router_logits + noise) == choice).all(), f"{name}: choose another seed"
    return logits


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/experts")
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tokens = torch.randint(0, VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(6))
    cases, results = [], {}
    for name, (why, config) in CASES.items():
        model, recipes = build(name, config)
        logits = check(name, model, config, tokens)
        results[name] = logits[ROWS].contiguous()
        cases.append({"name": name, "why": why, "config": config, "tensors": recipes})
        print(f"{name}: standard deviation {logits.std():.2f}")
    save_file(results, folder / "experts.safetensors")
    lines = ",\n".join(json.dumps(case) for case in cases)
    (folder / "experts.json").write_text(f'{{"tokens": {tokens.tolist()}, "rows": {ROWS}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
