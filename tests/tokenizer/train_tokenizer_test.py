"""prepare-data train-tokenizer and tokenize --tokenizer, from the corpus to the token file."""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    from tokenizers import Regex, Tokenizer, pre_tokenizers
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs the packages that this compares with")
    sys.exit(77)

import samples

PROGRAM = pathlib.Path(os.environ["ARGOSY_BIN"]) / "prepare-data"


def merges_by_definition(texts, pattern, count):
    """The merges of a byte-level BPE, with all pairs counted again before each: [(left, right)] in bytes."""
    split = pre_tokenizers.Split(Regex(samples.PATTERNS[pattern]), "isolated")
    words = collections.Counter(piece.encode() for text in texts for piece, _ in split.pre_tokenize_str(text))
    tokens = [bytes([byte]) for byte in range(256)]
    words = {tuple(word): number for word, number in words.items()}
    merges = []
    for _ in range(count):
        pairs = collections.Counter()
        for word, number in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += number
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        token = tokens[best[0]] + tokens[best[1]]
        merges.append((tokens[best[0]], tokens[best[1]]))
        if token not in tokens:
            tokens.append(token)
        merged = tokens.index(token)
        changed = collections.Counter()
        for word, number in words.items():
            result, at = [], 0
            while at < len(word):
                matches = word[at:at + 2] == best
                result.append(merged if matches else word[at])
                at += 2 if matches else 1
            changed[tuple(result)] += number
        words = changed
    return merges


class TrainTokenizer(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.texts = samples.training_texts()
        self.corpus = self.folder / "corpus.jsonl"
        self.corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in self.texts))

    def run_program(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def train(self, name, *arguments, vocab_size=2000, **options):
        path = self.folder / name / "tokenizer.json"
        path.parent.mkdir(exist_ok=True)
        done = self.run_program("train-tokenizer", "--input", self.corpus, "--vocab-size", vocab_size, "--output", path,
                                *arguments, **options)
        return path, done

    def test_the_package_reads_it(self):
        texts = samples.SENTENCES + samples.random_texts(5_000, seed=12) + ["a<|endoftext|> b"]
        for pattern in ("gpt2", "llama3"):
            path, _ = self.train(pattern, "--pattern", pattern)
            tokenizer = Tokenizer.from_file(str(path))
            self.assertEqual(tokenizer.get_vocab_size(), 2000)
            self.assertEqual(tokenizer.token_to_id("<|endoftext|>"), 1999)
            ids = samples.encode(path, texts)
            self.assertEqual(ids, [encoding.ids for encoding in tokenizer.encode_batch(texts)])
            self.assertEqual(samples.decode(path, ids[:-1]), texts[:-1])
        config = json.loads(path.with_name("tokenizer_config.json").read_text())
        self.assertEqual(config["eos_token"], "<|endoftext|>")

    def test_merges_follow_the_definition(self):
        self.texts = [samples.SENTENCES[0], "aaaa aaa abab " * 3, "\n".join(samples.SENTENCES[:12])] + self.texts[:2]
        self.corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in self.texts))
        for pattern in ("gpt2", "llama3"):
            path, _ = self.train("naive", "--pattern", pattern, vocab_size=257 + 150)
            model = json.loads(path.read_text())["model"]
            bytes_of = {token: bytes([id]) for token, id in model["vocab"].items() if id < 256}
            merges = [tuple(b"".join(bytes_of[letter] for letter in part) for part in merge) for merge in model["merges"]]
            self.assertEqual(merges, merges_by_definition(self.texts, pattern, len(merges)))

    def test_result_depends_on_the_texts_alone(self):
        path, _ = self.train("a")
        first = path.read_bytes()
        lines = self.corpus.read_text().splitlines(keepends=True)
        self.corpus.write_text("".join(reversed(lines)))
        self.assertEqual(self.train("a")[0].read_bytes(), first)  # it replaces its own file

    def test_tokenize(self):
        path, _ = self.train("t")
        printed = [json.loads(self.run_program("tokenize", "--input", self.corpus, "--output", self.folder / "t.h5", "--tokenizer",
                                               source, *more).stdout)
                   for source, more in ((path, ()), (path.parent, ()), (path, ("--end-of-text", "<|endoftext|>")))]
        self.assertEqual(printed[0], printed[1])
        self.assertEqual(printed[0], printed[2])
        expected = sum(len(encoding.ids) + 1 for encoding in Tokenizer.from_file(str(path)).encode_batch(self.texts))
        self.assertEqual(printed[0]["tokens"], expected)
        self.assertEqual(printed[0]["vocab_size"], 2000)
        verified = json.loads(self.run_program("--verify", self.folder / "t.h5").stdout)
        self.assertEqual(verified["tokenizer"], "tokenizer.json")
        path.with_name("tokenizer_config.json").unlink()
        done = self.run_program("tokenize", "--input", self.corpus, "--output", self.folder / "u.h5", "--tokenizer", path, code=2)
        self.assertIn("add --end-of-text TOKEN", done.stderr)

    def test_errors(self):
        _, done = self.train("few", vocab_size=100_000)
        self.assertIn("no further pair occurs twice", done.stderr)
        for size in (256, -1):
            self.assertIn("it must be in 257", self.train("e", vocab_size=size, code=2)[1].stderr)
        self.assertFalse((self.folder / "e/tokenizer.json").exists())
        other = self.folder / "o/tokenizer.json"
        other.parent.mkdir()
        other.write_text('{\n  "version": "1.0",\n  "truncation": null')
        self.assertIn("tokenizer.json", self.train("o", code=2)[1].stderr)
        self.corpus.write_text('{"tokens": [1]}\n')
        self.assertIn('corpus.jsonl:1: a tokenizer is trained on {"text"} records alone', self.train("e", code=2)[1].stderr)
        self.corpus.write_text("")
        self.assertIn("the inputs hold no records", self.train("e", code=2)[1].stderr)


if __name__ == "__main__":
    unittest.main()
