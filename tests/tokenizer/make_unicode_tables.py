"""Writes lib/files/tokenizer/unicode_tables.cpp from what the Python package `tokenizers` does with every code point:

    PYTHONPATH=.deps/tests python3 tests/tokenizer/make_unicode_tables.py lib/files/tokenizer/unicode_tables.cpp

Run it after a change of the package's version in jobs/setup.sh; `tokenizer.unicode` compares the tables with the package.
Categories come from the package's regular expressions. Canonical decompositions come from Python's unicodedata, but only
those that the package applies too; the script stops where the two disagree otherwise.
"""
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

# The order of lib/files/tokenizer/unicode.cpp.
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
EVERYTHING = "".join(map(chr, CODES))
HANGUL = range(0xAC00, 0xD7A4)
NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def ranges(codes):
    """[(first, last)] of sorted codes. Surrogates, which no text holds, may lie inside a range."""
    result = []
    for code in codes:
        if result and (code == result[-1][1] + 1 or (code, result[-1][1]) == (0xE000, 0xD7FF)):
            result[-1][1] = code
        else:
            result.append([code, code])
    return result


def removed(pre_tokenizer):
    """The codes that a pre-tokenizer with the behaviour `removed` removes."""
    inside = bytearray(b"\1" * len(CODES))
    for _, (begin, end) in pre_tokenizer.pre_tokenize_str(EVERYTHING):
        inside[begin:end] = bytes(end - begin)
    return [code for code, here in zip(CODES, inside) if here]


def matching(pattern):
    return removed(pre_tokenizers.Split(Regex(pattern), "removed"))


def word_characters_of_added_tokens():
    """The characters beside which an added token with `single_word` is not found."""
    tokenizer = Tokenizer(models.BPE({"x": 0}, [], unk_token="x"))
    tokenizer.add_tokens([AddedToken("!!", single_word=True, normalized=False)])
    found = tokenizer.token_to_id("!!")
    words = []
    for begin in range(0, len(CODES), 50000):
        codes = CODES[begin:begin + 50000]
        encodings = tokenizer.encode_batch([chr(code) + "!!" for code in codes])
        words += [code for code, encoding in zip(codes, encodings) if found not in encoding.ids]
    return words


def check_spaces(spaces):
    """What lstrip strips and what Digits splits off are the characters of \\s and \\p{N}."""
    tokenizer = Tokenizer(models.BPE({"x": 0}, [], unk_token="x"))
    tokenizer.add_tokens([AddedToken("!!", lstrip=True, normalized=False)])
    encodings = tokenizer.encode_batch([chr(code) + "!!" for code in CODES if code != ord("x")])
    stripped = [code for code, encoding in zip((code for code in CODES if code != ord("x")), encodings)
                if len(encoding.ids) == 1]
    assert stripped == spaces
    numbers = set(matching(r"\p{N}"))
    pieces = pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str(EVERYTHING)
    assert all(len({ord(letter) in numbers for letter in piece}) == 1 for piece, _ in pieces)


def combining_classes():
    """{code: class}, from the order into which the package brings two marks."""
    def has_class(mark):
        """In order, a mark of any class but 0 lets U+0323 pass U+0301."""
        return NFD(mark) == mark and not NFD("a\u0301" + mark + "\u0323").endswith("\u0323")

    marks = [chr(code) for code in CODES if has_class(chr(code))]
    sample = {unicodedata.combining(mark): mark for mark in reversed(marks)}
    classes = {}
    for mark in marks:
        moves = {value: NFD("a" + mark + other) != "a" + mark + other or NFD("a" + other + mark) != "a" + other + mark
                 for value, other in sample.items()}
        if any(moves.values()):
            classes[ord(mark)], = [value for value, moved in moves.items() if not moved]
    # A mark that decomposes has no class of its own in a decomposed text, but blocks composition where it stands.
    for code in CODES:
        if NFD(chr(code)) != chr(code) and unicodedata.combining(chr(code)):
            classes[code] = unicodedata.combining(chr(code))
    return classes


def decompositions():
    """({code: its other form}, {code: (first, second)}, codes of pairs that are not composed)."""
    singles, pairs, excluded = {}, {}, []
    for code in CODES:
        parts = unicodedata.decomposition(chr(code))
        if not parts or parts.startswith("<") or NFD(chr(code)) == chr(code):
            assert code in HANGUL or NFD(chr(code)) == chr(code), hex(code)
            continue
        assert NFD(chr(code)) == unicodedata.normalize("NFD", chr(code)), hex(code)
        parts = [int(part, 16) for part in parts.split()]
        if len(parts) == 1:
            singles[code] = parts[0]
            continue
        pairs[code] = parts
        if NFC(chr(code)) != chr(code):
            excluded.append(code)
    return singles, pairs, excluded


def array(name, comment, numbers):
    """A C++ array in lines of 120 columns."""
    lines, line = [], "    "
    for number in numbers:
        text = f"{number},"
        if len(line) + len(text) > 120:
            lines.append(line)
            line = "    "
        line += text
    lines.append(line)
    return [f"// {comment}", f"constexpr uint32_t {name}_[] = {{", *lines, "};",
            f"const Numbers {name}({name}_);", ""]


def category_runs():
    of = {}
    for number, category in enumerate(CATEGORIES):
        for code in matching(rf"\p{{{category}}}"):
            assert code not in of
            of[code] = number
    runs = []
    for code in CODES:
        if runs and runs[-1][1] == of[code]:
            runs[-1][2] = code
        else:
            runs.append([code, of[code], code])
    starts = [code for code, _, _ in runs] + [0x110000]
    return [starts[i + 1] - starts[i] << 5 | runs[i][1] for i in range(len(runs))], of


def flat(entries):
    """The numbers of (code, ...) entries. Each code is stored as its distance from the code before it."""
    result, before = [], 0
    for code, *rest in entries:
        result += [code - before, *rest]
        before = code
    return result


def main():
    runs_of_category, category = category_runs()
    spaces = matching(r"\s")
    check_spaces(spaces)
    in_word = [number for number, name in enumerate(CATEGORIES) if name[0] in "LM" or name in ("Nd", "Nl", "Pc")]
    also_words = []
    for words in (matching(r"\w"), word_characters_of_added_tokens()):
        assert {code for code in CODES if category[code] in in_word} <= set(words)
        also_words.append([code for code in words if category[code] not in in_word])
    classes = combining_classes()
    singles, pairs, excluded = decompositions()
    lines = ["// Generated by tests/tokenizer/make_unicode_tables.py; do not edit. The tables hold what the Python package",
             f"// `tokenizers` {tokenizers.__version__} does.", "// clang-format off",
             '#include "tokenizer/unicode.h"', "", "namespace argosy::tokenizer {", ""]
    lines += array("kCategoryRuns", "(length << 5 | category) of each run of one category.", runs_of_category)
    lines += array("kSpaces", "The ranges of \\s: first and last.", [code for pair in ranges(spaces) for code in pair])
    lines += array("kAlsoWord", "Ranges of \\w beside letters, marks, Nd, Nl and Pc.", [code for pair in ranges(also_words[0]) for code in pair])
    lines += array("kAlsoWordOfTokens", "The same for the word characters around added tokens.",
                   [code for pair in ranges(also_words[1]) for code in pair])
    runs = []
    for code, value in sorted(classes.items()):
        if runs and runs[-1][0] + runs[-1][1] == code and runs[-1][2] == value:
            runs[-1][1] += 1
        else:
            runs.append([code, 1, value])
    lines += array("kCombiningClasses", "Ranges of one combining class: distance from the range before, length, class.", flat(runs))
    lines += array("kSingles", "Code points, as distances, and the one code point that each decomposes into.",
                   flat(sorted(singles.items())))
    lines += array("kPairs", "Code points, as distances, and the two code points that each decomposes into.",
                   flat((code, *parts) for code, parts in sorted(pairs.items())))
    lines += array("kNotComposed", "The code points in kPairs that are not composed.", excluded)
    lines += ["}  // namespace argosy::tokenizer"]
    pathlib.Path(sys.argv[1]).write_text("\n".join(lines) + "\n")


main()
