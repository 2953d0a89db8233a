#!/usr/bin/env python3
"""Generates tests/data/tokenizer: tiny tokenizers and the package `tokenizers`' results with them.

Pinned: tokenizers 0.23.3, Python 3.11 (its unicodedata is Unicode 14.0: random texts use characters assigned there, which every ICU
that Heddle builds with knows). Run again: make_tokenizer.py. The same seeds give the same files.
make_random_goldens.py goes with it (many more texts, as hashes), and compare_tokenizers.py compares on fresh ones.
"""

import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import random_texts as from_counter
import sentencepiece_cases
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/data/tokenizer"

LLAMA3_REGEX = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_REGEX = LLAMA3_REGEX.replace(r"\p{N}{1,3}", r"\p{N}")

# Written for this file.
TEXTS = [
    "The heddle lifts every second thread, and the shuttle runs through the gap that it leaves.",
    "We're sure they'll say it isn't what I'd've done; she's late, I'm not. WE'RE SURE THEY'LL SAY IT.",
    "A loom has 12 shafts, 1024 heddles and 98765 knots; pi is 3.14159, not 22/7.",
    "for (int i = 0; i < n; ++i) {\n\tsum += weights[i] * x[i];  // one row\n}\n",
    "{\"name\": \"warp\", \"threads\": [1, 2, 3], \"ok\": true}\r\n\r\n",
    "    indented\n\n\n  twice   and   with  gaps   \n \n\t\tend  ",
    "Über den Fäden läuft das Weberschiffchen; größer wird die Straße nicht, sagt Jürgen.",
    "Нить идёт через глазок, и ткач ведёт челнок. Сколько нитей? Двадцать одна!",
    "Ο αργαλειός είναι παλιός· ο υφαντής ξέρει κάθε κλωστή. ΟΔΟΣ",
    "织布机有很多线,每一根线都穿过一个综眼。今天织了三米布。",
    "機織りは朝から晩まで続きます。ケーキとコーヒーも忘れずに。ヴァイオリン",
    "베틀 위에서 실이 움직이고, 베를 짜는 사람은 노래를 부른다.",
    "النول قديم والخيط طويل، والنساج يعرف كل عقدة.",
    "करघा पुराना है और धागा लंबा है। बुनकर हर गाँठ जानता है। १२३४५",
    "กี่ทอผ้าเก่าแล้ว แต่ด้ายยังแข็งแรง",
    "Cafe\u0301 and caf\u00e9, \u212bngstr\u00f6m and A\u030angstro\u0308m, \ufb01ne \uff21\uff22\uff23 \u2460 \u1e9b\u0323",
    "👩‍👩‍👧‍👦 family, 🇩🇪 flag, 👍🏽 thumbs, ❤️ heart, 😀😀😀",
    "x\u00a0y\u2003z\u3000w\u200bv\u200dq\ufeff\u0085\u000b\u000c end",
    "'\u017fo it goes, '\u212aing; \u0130stanbul \u01c5 \u1e9e \u03a3\u03a3",
    "הנול ישן והחוט ארוך, והאורג מכיר כל קשר.",
    "தறி பழையது, நூல் நீளமானது.",
    "საქსოვი დაზგა ძველია, ძაფი კი გრძელი.",
    "\u0661\u0662\u0663 \u2167 \u00bd\u00b2 \u0e53 \U0001d7d8 10\u2070",
]

POOLS = [
    "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " ", " \t\n\r", ".,;:!?'\"-_()[]{}<>/\\|@#$%^&*+=~`",
    "\u00a0\u1680\u2003\u2009\u2028\u2029\u202f\u205f\u3000\u0085\u000b\u000c\u001c\u180e\u200b\ufeff",
    "äöüßéèçñåøÆŒſİıĸKÅΩ", "абвгдежзийклмн", "αβγδεζηθςσΣ", "的一是不了人我在有他", "あいうえおアイウエオー", "가나다라마바사각",
    "ابتثجحخد", "कखगघािीु्ँ", "กขคงัิี่้", "\u0300\u0301\u0308\u030a\u0323\u0327\u0345\u05b0\u0f71\u0f72\u3099\ufe0f\u20e3",
    "😀👍🏽👩\u200d🇩🇪❤", "\u0661\u06f2\u0969\u2167\u00bd\u00b2\u2460\U0001d7d8\U00010107", "\ufb01\uff21\uff76\uff9e\u3392\u212b\u2126\u1e9b",
    "\u0000\u0001\u007f\u0080\u00ad\u0378\ue000\U000f0000\ufffd\ufffe\U0010ffff",
]
SNIPPETS = ["'s", "'S", "'ll", "'LL", "'re", "'t", "n't", "'\u017f", "  ", "\n\n", " \n ", "\r\n", "100", "1234567", "hello", " the", "A\u0301"]


def is_assigned(c):
    return unicodedata.category(c) != "Cn"


ASSIGNED = [c for c in map(chr, range(0x110000)) if is_assigned(c) and unicodedata.category(c) not in ("Cs", "Co")]


def panics(tokenizer, text):
    """Whether the package itself panics on this text (its alignments do, with some normalizers)."""
    try:
        tokenizer.encode(text)
    except BaseException as error:  # a panic of Rust is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return True
    return False


def random_texts(rng, count, tokenizer, extra):
    texts = []
    while len(texts) < count:
        text = random_text(rng, extra)
        if not panics(tokenizer, text):
            texts.append(text)
    return texts


def random_text(rng, extra):
    parts = []
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 21])):
        kind = rng.random()
        if kind < 0.55:
            pool = rng.choice(POOLS)
            parts.append("".join(rng.choice(pool) for _ in range(rng.choice([1, 1, 2, 3, 4, 9]))))
        elif kind < 0.70:
            parts.append(rng.choice(SNIPPETS))
        elif kind < 0.80 and extra:
            parts.append(rng.choice(extra))
        elif kind < 0.90:
            text = rng.choice(TEXTS)
            begin = rng.randrange(len(text))
            parts.append(text[begin:begin + rng.randrange(1, 12)])
        else:
            parts.append("".join(rng.choice(ASSIGNED) for _ in range(rng.choice([1, 2, 3]))))
    return "".join(parts)


def train(tokenizer, vocab_size, special):
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(TEXTS * 2, trainer)


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, 520, ["<|endoftext|>"])
    root = json.loads(tokenizer.to_str())
    root["model"]["merges"] = ["#version: 0.2"] + [" ".join(merge) for merge in root["model"]["merges"]]
    return root


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_REGEX), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 640, [])
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer.add_special_tokens([AddedToken(content, normalized=False) for content in specials])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
                                      special_tokens=[(specials[0], tokenizer.token_to_id(specials[0]))])])
    root = json.loads(tokenizer.to_str())
    # A token that no merge makes: only ignore_merges finds it. The ids behind it move up by one.
    vocab = root["model"]["vocab"]
    new_id = len(vocab)
    vocab["\u0120shuttle" if "\u0120shuttle" not in vocab else "\u0120heddlework"] = new_id
    for token in root["added_tokens"]:
        token["id"] += 1
    special_tokens = root["post_processor"]["processors"][1]["special_tokens"]["<|begin_of_text|>"]
    special_tokens["ids"] = [special_tokens["ids"][0] + 1]
    return root


def qwen2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2_REGEX), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, 580, [])
    tokenizer.add_special_tokens([AddedToken(content, normalized=False) for content in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    return json.loads(tokenizer.to_str())


def added(root, *tokens):
    """Replaces the added tokens; ids count on from the vocabulary."""
    result = []
    next_id = len(root["model"]["vocab"])
    for content, flags in tokens:
        token_id = root["model"]["vocab"].get(content)
        if token_id is None:
            token_id, next_id = next_id, next_id + 1
        result.append({"id": token_id, "content": content, **{
            flag: flag in flags for flag in ["single_word", "lstrip", "rstrip", "normalized", "special"]}})
    return {"added_tokens": result}


def split(pattern, behavior, invert=False):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}}


def byte_level(**options):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **options}


def variants(root):
    """name -> JSON merge patch on the tokenizer `gpt2` and texts that the random ones draw from."""
    result = {}

    def add(name, *patches, extra=()):
        merged = {}
        for patch in patches:
            merged.update(patch)
        result[name] = (merged, list(extra))

    flags = ["", "single_word", "lstrip", "rstrip", "normalized", "special", "lstrip rstrip", "single_word normalized",
             "lstrip rstrip normalized special", "single_word lstrip rstrip special"]
    marks = ["<M>", "WORD", "<L>", "<R>", "<NÉ>", "<S>", "<LR>", "Norm", "<Ő>", "w_w"]
    extra = marks + ["<n\u00e9>", "<Ne\u0301>", " <L> ", " <R> ", "  <LR>\n", " WORD ", "WORDS", "norm", "NORM", "a", "<<M>>", "w_w.", "<O\u030b>"]
    tokens = added(root, *zip(marks, flags), ("th", "single_word"), ("<M><L>", ""), ("<M", ""))
    add("added-token flags", tokens, extra=extra)
    add("added-token flags, normalized", tokens, {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}},
        extra=extra)
    add("a normalizer that prepends", tokens, {"normalizer": {"type": "Prepend", "prepend": "_"}}, extra=extra)
    add("white-space tokens", added(root, ("  ", "rstrip"), ("\n", ""), (" x", "rstrip normalized")), extra=["   ", "\n\n", " x  x", "    "])
    add("not only byte-level characters", added(root, ("<é>", ""), ("<日>", "special"), ("Ġx", "special"), ("ÃĀ©", "")),
        extra=["<é>", "<日>", "Ġx", "ÃĀ©"])
    for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]:
        add("normalizer " + form, {"normalizer": {"type": form}})
    add("normalizer Replace", {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        {"type": "Replace", "pattern": {"Regex": "[aeiou]{2,}|x+"}, "content": "-"}]}})
    add("add_prefix_space", {"pre_tokenizer": byte_level(add_prefix_space=True)}, added(root, ("<M>", "")), extra=["<M>", "<M> "])
    add("Digits after ByteLevel", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        byte_level(), {"type": "Digits", "individual_digits": True}]}})
    add("Digits before ByteLevel", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": False}, byte_level(add_prefix_space=True, use_regex=False)]}})
    add("Whitespace", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, byte_level(use_regex=False)]}})
    add("WhitespaceSplit", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, byte_level()]}})
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        add("Split " + behavior, split({"Regex": r"\s|[aeiou]"}, behavior))
        add("Split inverted " + behavior, split({"Regex": r"\p{L}+|\d"}, behavior, True))
    add("Split at a string", split({"String": "e"}, "MergedWithPrevious"))
    add("Split at empty matches", split({"Regex": r"(?=[A-Z])|x*"}, "MergedWithNext"))
    # Where Ruby's syntax and Perl's differ.
    add("Split at lines", split({"Regex": r"^.|.$|\h+"}, "Isolated"))
    add("Split, repeated intervals", split({"Regex": r"\p{N}{1,3}+|[a-c]{2}?x|{|(?:de|\w){2}+|[\w&&[^a-z]]{,2}\."}, "Isolated"))
    add("Split, dot matches newlines", split({"Regex": r"(?m:e.)|(?i)st"}, "Isolated"))
    add("byte_fallback and unk", {"pre_tokenizer": None, "decoder": None, "model": {
        "byte_fallback": True, "unk_token": "<|endoftext|>", "fuse_unk": True,
        "vocab": {f"<0x{byte:02X}>": len(root["model"]["vocab"]) + byte for byte in range(0xC0)}}},
        {"added_tokens": []})
    add("unk, not fused", {"pre_tokenizer": None, "decoder": None, "model": {"unk_token": "<|endoftext|>"}, "added_tokens": []})
    add("unk, fused", {"pre_tokenizer": None, "decoder": {"type": "Fuse"}, "model": {"unk_token": "<|endoftext|>", "fuse_unk": True}})
    add("no unk", {"pre_tokenizer": None, "decoder": None})
    template = lambda single: {"post_processor": {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {
        "<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}, "two": {"id": "two", "ids": [5, 6], "tokens": ["a", "b"]}}}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    token = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    add("template around", template([token("two"), text, token("<|endoftext|>")]))
    add("template twice", template([text, token("<|endoftext|>"), text]))
    return result


def merge_patch(target, patch):
    """What RFC 7396 (the test's) gives, to a reader who ignores the fields that an element does not have."""
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict) and (key in ("model", "vocab")):
            merge_patch(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def random_ids(rng, size):
    return [rng.randrange(size) for _ in range(rng.choice([1, 2, 3, 5, 8, 20]))]


def expected(tokenizer, text):
    ids = tokenizer.encode(text).ids
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    case = {"text": text, "ids": ids}
    if plain != ids:
        case["plain_ids"] = plain
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    if decoded != text:
        case["decoded"] = decoded
    skipped = tokenizer.decode(ids, skip_special_tokens=True)
    if skipped != decoded:
        case["skipped"] = skipped
    return case


def expected_decode(tokenizer, ids):
    case = {"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
    skipped = tokenizer.decode(ids, skip_special_tokens=True)
    if skipped != case["decoded"]:
        case["skipped"] = skipped
    return case


def goldens(root, rng, extra, texts, num_random, num_decode):
    tokenizer = Tokenizer.from_str(json.dumps(root))
    size = max(tokenizer.get_vocab().values()) + 1
    return {"vocab_size": size,
            "encode": [expected(tokenizer, text) for text in list(texts) + random_texts(rng, num_random, tokenizer, extra)],
            "decode": [expected_decode(tokenizer, random_ids(rng, size)) for _ in range(num_decode)]}


def all_cases():
    """(name, base, patch, whole tokenizer.json, strings for random texts)"""
    bases = {"gpt2": gpt2(), "llama3": llama3(), "qwen2": qwen2(), "llama2": sentencepiece_cases.llama2(TEXTS)}
    for name, root in bases.items():
        yield name, name, {}, root, [token["content"] for token in root["added_tokens"]]
    for name, (patch, extra) in variants(bases["gpt2"]).items():
        root = copy.deepcopy(bases["gpt2"])
        merge_patch(root, patch)
        yield name, "gpt2", patch, root, extra
    for name, patch in sentencepiece_cases.variants().items():
        root = copy.deepcopy(bases["llama2"])
        merge_patch(root, patch)
        yield name, "llama2", patch, root, sentencepiece_cases.EXTRA


def dump(path, value, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, **options) + "\n", encoding="utf-8")


def write():
    rng = random.Random(20250101)
    cases = []
    for name, base, patch, root, extra in all_cases():
        if not patch:
            dump(DATA / base / "tokenizer.json", root, separators=(",", ":"))
            long_texts = ["", "a" * 300, " " * 300 + "x", "ab" * 150, "\n" * 150, *TEXTS]
            golden = goldens(root, rng, extra, long_texts, 50, 40)
        else:
            golden = goldens(root, rng, extra, extra, 10, 5)
        cases.append({"name": name, "tokenizer": base, "patch": patch, **golden})
    config = {"bos_token": {"__type": "AddedToken", "content": "<|begin_of_text|>", "special": True}, "eos_token": "<|eot_id|>"}
    dump(DATA / "llama3/tokenizer_config.json", config, indent=1)
    dump(DATA / "qwen2/tokenizer_config.json", {"bos_token": None, "eos_token": "<|im_end|>"}, indent=1)
    path = DATA / "goldens.json"
    path.write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases) + "\n]\n", encoding="utf-8")
    size = sum(file.stat().st_size for file in DATA.rglob("*") if file.is_file())
    print(f"{len(cases)} tokenizers, {size} bytes in {DATA}")


def run_heddle(heddle, folder, lines, *flags):
    path = folder / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [heddle, "tokenize", "--model", str(folder), "--json", "--file", str(path), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def compare(heddle, count, seed):
    failures = 0
    for name, _, _, root, extra in all_cases():
        rng = random.Random(f"{seed} {name}")
        tokenizer = Tokenizer.from_str(json.dumps(root))
        size = max(tokenizer.get_vocab().values()) + 1
        texts = random_texts(rng, count // 2, tokenizer, extra)
        first = rng.randrange(from_counter.NUM_TEXTS)
        more = (from_counter.text(seed, first + index) for index in range(count - count // 2))
        texts += [text for text in more if not panics(tokenizer, text)]
        id_lists = [random_ids(rng, size) for _ in range(count)]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            dump(folder / "tokenizer.json", root)
            checks = [
                ([{"text": text} for text in texts], [{"ids": tokenizer.encode(text).ids} for text in texts], []),
                ([{"text": text} for text in texts], [{"ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in texts], ["--no-special"]),
                ([{"ids": ids} for ids in id_lists], [{"text": tokenizer.decode(ids, skip_special_tokens=False)} for ids in id_lists], ["--decode"]),
                ([{"ids": ids} for ids in id_lists], [{"text": tokenizer.decode(ids)} for ids in id_lists], ["--decode", "--no-special"]),
            ]
            wrong = []
            for lines, want, flags in checks:
                found = run_heddle(heddle, folder, lines, *flags)
                wrong += [(line, w, f, flags) for line, w, f in zip(lines, want, found, strict=True) if w != f]
        print(f"{name}: {len(checks) * count} compared, {len(wrong)} differ")
        for line, want, found, flags in wrong[:3]:
            print(f"  {flags} {json.dumps(line)}\n    package {json.dumps(want)}\n    heddle  {json.dumps(found)}")
        failures += len(wrong)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    if tokenizers.__version__ != "0.23.3":
        sys.exit(f"needs tokenizers 0.23.3, found {tokenizers.__version__}")
    write()
