#!/usr/bin/env python3
"""Train the demo model's tokenizer and write it with its settings.

    train_tokenizer.py assets/demo-llama

Byte-level BPE over the generated text. Every byte has a token, so any string
can be encoded; every digit is a token of its own, so a prompt ends where its
answer's tokens begin. Texts are normalised to NFC first, as Qwen2 does.
"""

import argparse
import json
import re
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from documents import BEGIN, END, PAD, SPECIAL_TOKENS, documents

VOCABULARY = 1280
DOCUMENTS = 60_000
MAX_LENGTH = 512

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


def train() -> Tokenizer:
    """A tokenizer trained on a sample of the documents, special tokens cut out."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    special = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))
    texts = (
        special.sub("\n", "".join(text for text, _ in document))
        for document in documents("tokenizer", DOCUMENTS)
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A",
        pair=f"{BEGIN} $A {BEGIN} $B:1",
        special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))],
    )
    return tokenizer


def settings(tokenizer: Tokenizer) -> dict:
    """What tokenizer_config.json says beside the tokenizer itself."""
    added = {
        str(tokenizer.token_to_id(token)): {
            "content": token, "lstrip": False, "normalized": False,
            "rstrip": False, "single_word": False, "special": True,
        }
        for token in SPECIAL_TOKENS
    }  # fmt: skip
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": added,
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_LENGTH,
        "chat_template": CHAT_TEMPLATE,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where tokenizer.json is written")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    tokenizer.save(str(options.folder / "tokenizer.json"))
    path = options.folder / "tokenizer_config.json"
    path.write_text(json.dumps(settings(tokenizer), indent=2) + "\n")
    print(f"{options.folder}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
