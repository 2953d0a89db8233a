"""Tokenizers of SentencePiece's kind: Llama-2's, and the same vocabulary under other normalizers, pre-tokenizers and decoders."""

import collections
import json

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

MARK = "\u2581"
SPECIAL = ["<unk>", "<s>", "</s>"]


def llama2(texts):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    # Of the alphabet only the most frequent characters: the others are bytes. Chosen here, as the trainer breaks ties by chance.
    counts = collections.Counter("".join(texts).replace(" ", MARK))
    alphabet = sorted(counts, key=lambda c: (-counts[c], c))[:170]
    trainer = trainers.BpeTrainer(vocab_size=760, special_tokens=SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)],
                                  initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False)
    tokenizer.train_from_iterator(texts * 2, trainer)
    root = json.loads(tokenizer.to_str())
    root["added_tokens"] = root["added_tokens"][:len(SPECIAL)]
    vocab, merges = root["model"]["vocab"], root["model"]["merges"]
    for length in (2, 4, 8):
        vocab.setdefault(MARK * length, len(vocab))
        merges.append([MARK * (length // 2)] * 2)
    root["pre_tokenizer"] = None
    root["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
    root["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    root["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return root


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


def sequence(kind, key, *elements):
    return {kind: {"type": "Sequence", key: list(elements)}}


def variants():
    """name -> patch on llama2"""
    strip = lambda start, stop: {"type": "Strip", "content": MARK, "start": start, "stop": stop}
    replace = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
    result = {"mistral": {"normalizer": None, "pre_tokenizer": metaspace("first", False)}}
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            result[f"Metaspace {scheme} split {split}"] = {
                "normalizer": None, "pre_tokenizer": metaspace(scheme, split), "decoder": metaspace(scheme, split)}
    result["mixed"] = {
        **sequence("normalizer", "normalizers", {"type": "NFKC"}, {"type": "Lowercase"}),
        **sequence("pre_tokenizer", "pretokenizers", {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Isolated"},
                   metaspace("always", True)),
        **sequence("decoder", "decoders", {"type": "ByteFallback"}, metaspace("always", True))}
    old = {"type": "Metaspace", "replacement": MARK, "str_rep": MARK, "add_prefix_space": True}
    result["Metaspace of an old file"] = {"normalizer": None, "pre_tokenizer": old, "decoder": old}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        result["Punctuation " + behavior] = {"normalizer": None, **sequence(
            "pre_tokenizer", "pretokenizers", {"type": "Punctuation", "behavior": behavior}, metaspace("first", True))}
    result["CharDelimiterSplit"] = {"normalizer": None, "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": "e"}}
    result["BertPreTokenizer"] = {"normalizer": None, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    result["StripAccents"] = sequence("normalizer", "normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {
        "type": "Strip", "strip_left": True, "strip_right": False})
    result["Strip"] = {"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}}
    result["decoder without Fuse"] = sequence("decoder", "decoders", replace, {"type": "ByteFallback"})
    result["decoder Strip first"] = sequence("decoder", "decoders", strip(1, 0), {"type": "ByteFallback"}, {"type": "Fuse"})
    result["decoder Replace regex"] = sequence("decoder", "decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, {
        "type": "Replace", "pattern": {"Regex": MARK + "+|[a-c]"}, "content": "-"})
    result["BPEDecoder"] = {"decoder": {"type": "BPEDecoder", "suffix": "e"}}
    result["no fuse_unk, no bytes"] = {"model": {"fuse_unk": False, "byte_fallback": False}}
    result["no bytes"] = {"model": {"byte_fallback": False}}
    result["BertProcessing"] = {"post_processor": {"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]}}
    return result


EXTRA = ["<s>", " <s> ", "</s>x", "<unk>", "  ", MARK, MARK * 3, "<0x41>", " a", "e"]
