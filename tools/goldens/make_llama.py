#!/usr/bin/env python3
"""Generates tests/data/llama: tiny random Llama folders, and their logits from transformers.

Each case is a Hugging Face folder (config.json, weights) plus
  golden.json         the token ids: one long sequence, and a batch of unequal lengths
  golden.safetensors  float32 logits: `prefill` (one pass), `chunked` (the same tokens in chunks over a cache), `decode`
                      (one by one over a cache), `batch.I` (row I of a padded batch); for 2-byte weights also
                      `native` (one pass, computed in that dtype: what transformers itself loses)
Float32 logits come from the weights as stored, computed in float32 with eager attention.

Versions: tools/requirements.txt. Run: python tools/goldens/make_llama.py [tests/data/llama]
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

CHUNKS = (5, 1, 7, 2, 9)
BATCH_LENGTHS = (1, 13, 7)


@dataclass
class Case:
    name: str
    why: str
    dtype: str = "float32"
    shards: int = 1
    config: dict = field(default_factory=dict)


CASES = [
    Case("gqa", "GQA 6/2, head_dim 24 apart from hidden / heads, vocabulary not a multiple of 16",
         config=dict(hidden_size=96, intermediate_size=112, num_attention_heads=6, num_key_value_heads=2, head_dim=24,
                     vocab_size=331, rms_norm_eps=1e-6)),
    Case("mha-tied", "as many KV heads as heads, head_dim derived, tied embeddings, another theta",
         config=dict(hidden_size=72, intermediate_size=100, num_attention_heads=3, num_key_value_heads=3,
                     vocab_size=259, tie_word_embeddings=True, rope_theta=500000.0)),
    Case("mqa-sharded", "one KV head, weights in three files",
         shards=3,
         config=dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=1,
                     vocab_size=257)),
    Case("gqa-bfloat16", "2-byte weights", dtype="bfloat16",
         config=dict(hidden_size=96, intermediate_size=112, num_attention_heads=6, num_key_value_heads=2, head_dim=24,
                     vocab_size=331)),
    Case("tied-float16", "2-byte weights, tied", dtype="float16",
         config=dict(hidden_size=72, intermediate_size=100, num_attention_heads=6, num_key_value_heads=3,
                     vocab_size=259, tie_word_embeddings=True)),
]


def make_model(case: Case, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(num_hidden_layers=3, max_position_embeddings=128, bos_token_id=1, eos_token_id=2,
                         attn_implementation="eager", **case.config)
    model = LlamaForCausalLM(config).eval()
    # The usual initialisation gives nearly uniform attention and logits near 0, which would hide mistakes.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
            else:
                scale = 1.0 if "embed" in name or "lm_head" in name else 2.0
                parameter.normal_(0, scale / parameter.shape[1] ** 0.5)
    return model.to(getattr(torch, case.dtype))


@torch.no_grad()
def logits_in_chunks(model: LlamaForCausalLM, tokens: torch.Tensor, chunks: list[int]) -> torch.Tensor:
    cache, outputs, start = DynamicCache(config=model.config), [], 0
    for length in chunks:
        outputs.append(model(tokens[:, start:start + length], past_key_values=cache, use_cache=True).logits)
        start += length
    return torch.cat(outputs, dim=1)[0]


@torch.no_grad()
def logits_of_batch(model: LlamaForCausalLM, rows: list[list[int]]) -> list[torch.Tensor]:
    """Left-padded, as transformers generates."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(tokens, attention_mask=mask, position_ids=positions).logits
    return [logits[i, longest - len(row):].contiguous() for i, row in enumerate(rows)]


def write_case(case: Case, folder: Path, seed: int) -> None:
    model = make_model(case, seed)
    total = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=total + 1 if case.shards == 1 else total // case.shards + 4096)
    (folder / "generation_config.json").unlink(missing_ok=True)

    generator = torch.Generator().manual_seed(seed)
    vocab = model.config.vocab_size
    sequence = torch.randint(0, vocab, (sum(CHUNKS),), generator=generator).tolist()
    batch = [torch.randint(0, vocab, (n,), generator=generator).tolist() for n in BATCH_LENGTHS]
    tokens = torch.tensor([sequence])

    # Loaded again as a user would: casting a model in memory would also round the rotary frequencies, which from_pretrained
    # keeps in float32.
    def loaded(dtype: str) -> LlamaForCausalLM:
        return LlamaForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()

    goldens = {}
    if case.dtype != "float32":
        with torch.no_grad():
            goldens["native"] = loaded(case.dtype)(tokens).logits[0].float()
    model = loaded("float32")
    with torch.no_grad():
        goldens["prefill"] = model(tokens).logits[0]
    goldens["chunked"] = logits_in_chunks(model, tokens, list(CHUNKS))
    goldens["decode"] = logits_in_chunks(model, tokens, [1] * len(sequence))
    for i, logits in enumerate(logits_of_batch(model, batch)):
        goldens[f"batch.{i}"] = logits
    save_file({name: value.contiguous() for name, value in goldens.items()}, folder / "golden.safetensors")
    (folder / "golden.json").write_text(
        json.dumps({"why": case.why, "tokens": sequence, "chunks": list(CHUNKS), "batch": batch}) + "\n")
    spread = goldens["prefill"].std().item()
    apart = (goldens["prefill"] - goldens["decode"]).abs().max().item()
    print(f"{case.name}: logits' standard deviation {spread:.2f}, prefill and decode apart by {apart:.1e}")


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/llama")
    torch.set_num_threads(1)
    for seed, case in enumerate(CASES):
        folder = root / case.name
        folder.mkdir(parents=True, exist_ok=True)
        write_case(case, folder, seed)


if __name__ == "__main__":
    main()
