"""Regular expressions, the tables of Unicode and NFC: ours beside those of the package `tokenizers`."""
import random
import subprocess
import sys
import time
import unittest

try:
    from tokenizers import Regex, normalizers, pre_tokenizers
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs the packages that this compares with")
    sys.exit(77)

import samples

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
EVERYTHING = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)


def cut(pattern, texts):
    """The pieces into which our matcher cuts each text."""
    pieces = []
    for text, lengths in zip(texts, samples.run_driver(["cut", pattern], [text.encode() for text in texts], "B", "I")):
        data, at = text.encode(), 0
        pieces.append([data[(at := at + length) - length:at].decode() for length in lengths])
    return pieces


def expected(pattern, texts):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return [[piece for piece, _ in split.pre_tokenize_str(text)] for text in texts]


class Patterns(unittest.TestCase):
    def compare(self, pattern, texts):
        for text, ours, theirs in zip(texts, cut(pattern, texts), expected(pattern, texts)):
            self.assertEqual(ours, theirs, (pattern, text[:200]))

    def test_published_patterns(self):
        texts = samples.SENTENCES + samples.random_texts(200_000 if samples.LONG else 5_000, seed=3)
        for pattern in samples.PATTERNS.values():
            self.compare(pattern, texts)

    def test_syntax(self):
        texts = samples.SENTENCES[:40] + samples.random_texts(300, seed=4) + ["aaaa", "abab\nab", "a{2}", "x-]^\\[y", "ab12 34cd"]
        for pattern in (
                "a", "é+", "😀?a", r"\d{2}", r"\d{2,}", r"\d{1,2}", r"\d{,3}a", r"\d{1,3}?", r"[a-c]{2,3}?b", "(?:ab)+", "(ab|a)+?b", "(?:ab){2,3}",
                "(?:a|b){1,2}?b", "a*b", "a*?b", "a++b", "a?+b", r"\s*+x", r"\w+", r"\W+", r"\S+", r"\D+", r"[\w-]+", r"[^\W\d]+", r"[-a]", r"[a-]",
                r"[\]\[\\^-]", r"[^a-zA-Z\p{L}]", r"\p{^L}", r"\P{L}", r"\P{^Nd}", r"[\P{L}a]+", r"\p{Lu}\p{Ll}*", "(?i:s)", "(?i:k+)x?", "(?i:[sdmt]|ll)",
                "(?i:xs)", "(?i:[a-m])s", "a(?=b)", "a(?!b)", "(?=a)\\w+", "(?!ab)\\w", r"\s+$", "a$", r"\s+(?=\S)|x",
                r"\r\n|\t|\f|\v|\a|\e", r"\.\*\+\?\(\)\|\{\}\/\-", "[一-龥぀-ゟ゠-ヿ]+", r"(?:a(?:b(?:c|d)?)?)+", "(?:(?:a|ab)(?:c|bcd))d?",
                r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", r"[ \t]+(?!\S)|[^\S\n]"):
            self.compare(pattern, texts)

    def test_random_patterns(self):
        draw = random.Random(5)

        def atom(depth):
            if depth and draw.random() < 0.3:
                return f"({draw.choice(['?:', '', '?=', '?!']) if depth > 1 else '?:'}{choice(depth - 1)})"
            return draw.choice(["a", "b", " ", "'", r"\s", r"\S", r"\p{L}", r"\d", "[ab]", "[^a]", r"[^\s\d]", r"\n", "é"])

        def sequence(depth):
            return "".join(atom(depth) + draw.choice(["", "", "?", "*", "+", "??", "*?", "+?", "{1,2}", "{2}"])
                           for _ in range(draw.randint(1, 4)))

        def choice(depth):
            return "|".join(sequence(depth) for _ in range(draw.randint(1, 3)))

        texts = ["".join(draw.choice("aabb '\n1é") for _ in range(draw.randint(1, 30))) for _ in range(60)]
        num_compared = 0
        while num_compared < (3000 if samples.LONG else 120):
            pattern = choice(2)
            done = subprocess.run([samples.DRIVER, "cut", pattern], input=samples.records([text.encode() for text in texts], "B"),
                                  capture_output=True)
            if done.returncode == 0:
                self.compare(pattern, texts)
                num_compared += 1
            else:
                # It can match nothing, alone or in a repetition, or it is exponential.
                self.assertRegex(done.stderr.decode(), "can match|takes too many steps")

    def test_refused(self):
        for pattern, reason in (("", "empty text"), ("a*", "empty text"), ("(?=a)", "empty text"), ("(", "no )"), ("a)", "no ("), ("[", "too early"),
                                ("[]a]", "begins with ]"), ("[a[b]]", "within"), ("[a&&b]", "within"), ("(?<=a)b", "groups"), ("(?>a)", "groups"),
                                ("(?i)a", "groups"), ("(?<n>a)", "groups"), (r"\bab", "escape"), (r"\1a", "escape"), (r"\x41", "escape"),
                                (r"\p{Greek}", "category"), (r"\p{}", "category"), (r"\pL", "followed"), ("^a", "'^'"), ("a.", "'.'"), ("*a", "'*'"),
                                ("a**", "follows"), ("a{2}{3}", "follows"), ("a{2,1}", "begin"), ("a{x}", "begin"), ("a{99999}", "too large"),
                                ("a{2}?", "lazy"), ("a{1,2}+", "possessive"), ("(ab)++", "possessive"), ("(a?)*b", "nothing"), ("(?i:ss)", "apply"),
                                ("(?i:é)", "ASCII"), (r"(?i:\w)", "characters"), ("(?i:[^a])", "apply"), ("[b-a]", "range"), (r"[\d-a]", "range"),
                                ("(" * 60 + "a" + ")" * 60, "deep"), ("(?:(?:ab){999}){99}", "large")):
            done = subprocess.run([samples.DRIVER, "cut", pattern], input="", capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, pattern)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(reason, done.stderr)

    def test_long_texts_take_linear_time(self):
        for text in (" " * 4_000_000 + "x", "x" * 4_000_000, "\n" * 2_000_000 + " " * 2_000_000, "e\u0301" * 1_000_000, "Aa" * 1_000_000):
            for pattern in samples.PATTERNS.values():
                begin = time.monotonic()
                self.assertEqual("".join(cut(pattern, [text])[0]), text)
                self.assertLess(time.monotonic() - begin, 10)
        done = subprocess.run([samples.DRIVER, "cut", r"(?:a|a)+b"], input=samples.records([b"a" * 5000], "B"), capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("takes too many steps at byte 0 of a text", done.stderr.decode())


class UnicodeTables(unittest.TestCase):
    def test_properties_of_every_code_point(self):
        for pattern in ("|".join(rf"\p{{{name}}}+" for name in CATEGORIES), r"\s+|\w+"):
            self.assertEqual(cut(pattern, [EVERYTHING]), expected(pattern, [EVERYTHING]))
        for name in CATEGORIES:
            self.assertEqual(*(split(rf"\p{{{name}}}", [EVERYTHING[:12_000] + EVERYTHING[0xE000 - 2048:0xE100 - 2048]])
                               for split in (cut, expected)))

    def test_nfc(self):
        draw = random.Random(6)
        pool = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000
                and normalizers.NFD().normalize_str(chr(code)) != chr(code) and not 0xAC00 <= code < 0xD7A4]
        pool += [letter for pair in pool for letter in normalizers.NFD().normalize_str(pair)]
        pool += samples.POOLS[8] + samples.POOLS[9] + "abe \n"
        texts = ["\n".join(EVERYTHING)]
        texts += ["".join(draw.choices(pool, k=draw.randint(1, 12))) for _ in range(400_000 if samples.LONG else 30_000)]
        texts += samples.SENTENCES + samples.random_texts(10_000, seed=7)
        ours = samples.run_driver(["nfc"], [text.encode() for text in texts], "B", "B")
        for text, normalized in zip(texts, ours):
            self.assertEqual(normalized.decode(), normalizers.NFC().normalize_str(text), [hex(ord(letter)) for letter in text[:100]])


if __name__ == "__main__":
    unittest.main()
