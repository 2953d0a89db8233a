#!/usr/bin/env python3
"""Generates src/text/tokenizer/unicode_data.cpp: the character sets of the package `tokenizers`, found by querying it for every
code point, so that they do not depend on ICU's version.

Pinned: tokenizers 0.23.3. The package has several tables of its own: Oniguruma's (regular expressions; Unicode 16), the Rust
standard library's (Digits, Lowercase), the crate unicode_categories' (Punctuation; Unicode 8) and the normalizer's (StripAccents).
"""

import pathlib
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/text/tokenizer/unicode_data.cpp"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCK = 4000

# In the order of unicode_data.h.
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
SCRIPTS = """Common Inherited Latin Greek Cyrillic Armenian Hebrew Arabic Syriac Thaana Devanagari Bengali Gurmukhi Gujarati Oriya Tamil
    Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Georgian Hangul Ethiopic Cherokee Khmer Mongolian Hiragana Katakana
    Bopomofo Han Yi""".split()


def removed_by(pre_tokenizer):
    """The code points that a pre-tokenizer drops, which looks at each character by itself."""
    gone = set()
    for begin in range(0, len(CODE_POINTS), BLOCK):
        block = CODE_POINTS[begin:begin + BLOCK]
        left = {ord(c) for piece, _ in pre_tokenizer.pre_tokenize_str("".join(map(chr, block))) for c in piece}
        gone.update(c for c in block if c not in left)
    return gone


def matched_by(regex):
    return removed_by(pre_tokenizers.Split(Regex(regex), "removed"))


def isolated_by(pre_tokenizer):
    alone = set()
    for begin in range(0, len(CODE_POINTS), BLOCK):
        text = "a" + "".join(chr(c) + "a" for c in CODE_POINTS[begin:begin + BLOCK] if c != ord("a"))
        alone.update(ord(piece) for piece, _ in pre_tokenizer.pre_tokenize_str(text) if len(piece) == 1 and piece != "a")
    return alone


def ranges(points):
    result = []
    for c in sorted(points):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def lines(entries):
    text, line = [], "   "
    for entry in entries:
        if len(line) + len(entry) > 117:
            text.append(line)
            line = "   "
        line += " " + entry
    return "\n".join(text + [line])


def write_ranges(comment, name, points):
    entries = [f"{{{first:#x}, {last:#x}}}," for first, last in ranges(points)]
    return f"// {comment}\nconst CodePointRange {name}List[] = {{\n{lines(entries)}\n}};\n\n", f"const std::span<const CodePointRange> {name}({name}List);\n"


def category_entries(categories):
    entries, previous = [], None
    for c in range(0x110000):
        category = categories.get(c, "Cn")
        if category != previous and not 0xD800 <= c < 0xE000:
            entries.append(f"{c << 5 | CATEGORIES.index(category):#x},")
            previous = category
    return entries


def lower_entries():
    lower = normalizers.Lowercase()
    mapping = {}
    for c in CODE_POINTS:
        to = lower.normalize_str(chr(c))
        if to != chr(c):
            mapping[c] = to
    longer = {c: to for c, to in mapping.items() if len(to) > 1}
    assert longer == {0x130: "i\u0307"}, longer
    runs = []  # first, last, step, delta
    for c in sorted(c for c in mapping if c not in longer):
        delta = ord(mapping[c]) - c
        run = runs[-1] if runs else None
        if run and run[3] == delta and c - run[1] in (1, 2) and (run[0] == run[1] or c - run[1] == run[2]):
            run[1:3] = [c, c - run[1]]
        else:
            runs.append([c, c, 1, delta])
    return [f"{{{first:#x}, {last:#x}, {step}, {delta}}}," for first, last, step, delta in runs]


def main():
    if tokenizers.__version__ != "0.23.3":
        sys.exit(f"needs tokenizers 0.23.3, found {tokenizers.__version__}")
    sets = {name: matched_by(rf"\p{{{name}}}") for name in CATEGORIES if name != "Cn"}
    categories = {c: name for name, points in sets.items() for c in points}
    assert sum(map(len, sets.values())) == len(categories)
    union = lambda *names: set().union(*(sets[name] for name in names))
    letters, marks = union("Lu", "Ll", "Lt", "Lm", "Lo"), union("Mn", "Mc", "Me")
    numbers = union("Nd", "Nl", "No")
    alphabetic = matched_by(r"\p{Alphabetic}")
    assert alphabetic >= letters | sets["Nl"]
    assert matched_by(r"[\w]") == alphabetic | marks | union("Nd", "Pc")
    assert matched_by(r"\w") == matched_by(r"[\w]") | {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}
    assert matched_by(r"\d") == sets["Nd"]
    space = matched_by(r"\s")
    assert space == removed_by(pre_tokenizers.WhitespaceSplit()) == matched_by("[[:space:]]")
    assert space == {c for c in CODE_POINTS if normalizers.Strip().normalize_str(chr(c)) == ""}
    lowercase, uppercase = matched_by(r"\p{Lowercase}"), matched_by(r"\p{Uppercase}")
    assert lowercase >= sets["Ll"] and uppercase >= sets["Lu"]
    assert lowercase == matched_by("[[:lower:]]") and uppercase == matched_by("[[:upper:]]")
    whitespace = pre_tokenizers.Whitespace()
    rust_word = {c for c in CODE_POINTS if c not in space and len(whitespace.pre_tokenize_str(f"a{chr(c)}a")) == 1}
    assert rust_word == matched_by(r"[\w]") | {0x200C, 0x200D}
    rust_numeric = isolated_by(pre_tokenizers.Digits(individual_digits=True))
    assert rust_numeric >= numbers
    accents = {c for c in CODE_POINTS if normalizers.StripAccents().normalize_str(chr(c)) == ""}

    bodies, spans = zip(
        write_ranges("White_Space, as \\s.", "kSpace", space),
        write_ranges("Alphabetic beyond L and Nl.", "kOtherAlphabetic", alphabetic - letters - sets["Nl"]),
        write_ranges("Lowercase beyond Ll.", "kOtherLowercase", lowercase - sets["Ll"]),
        write_ranges("Uppercase beyond Lu.", "kOtherUppercase", uppercase - sets["Lu"]),
        write_ranges("What Digits takes beyond N.", "kOtherNumeric", rust_numeric - numbers),
        write_ranges("What Punctuation cuts at.", "kPunctuation", removed_by(pre_tokenizers.Punctuation("removed"))),
        write_ranges("What StripAccents removes.", "kAccents", accents))
    scripts = [f"{{{first:#x}, {last:#x}, \"{name.lower()}\"}}," for name in SCRIPTS for first, last in ranges(matched_by(rf"\p{{{name}}}"))]
    OUT.write_text(
        "// Made by tools/goldens/make_unicode_data.py; do not edit.\n"
        '#include "text/tokenizer/unicode_data.h"\n\nnamespace heddle::unicode_data {\nnamespace {\n\n// clang-format off\n'
        f"const std::uint32_t kCategoryList[] = {{\n{lines(category_entries(categories))}\n}};\n\n" + "".join(bodies) +
        f"const LowercaseRun kLowercaseList[] = {{\n{lines(lower_entries())}\n}};\n\n"
        f"const ScriptRange kScriptList[] = {{\n{lines(scripts)}\n}};\n// clang-format on\n\n}}  // namespace\n\n"
        "const std::span<const std::uint32_t> kCategories(kCategoryList);\n" + "".join(spans) +
        "const std::span<const LowercaseRun> kLowercase(kLowercaseList);\nconst std::span<const ScriptRange> kScripts(kScriptList);\n\n"
        "}  // namespace heddle::unicode_data\n", encoding="utf-8")
    print(f"{OUT}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
