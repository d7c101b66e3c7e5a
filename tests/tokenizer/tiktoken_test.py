"""Llama 3's tiktoken files: our ids and texts beside those of the package `tiktoken`."""
import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import tiktoken
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs the packages that this compares with")
    sys.exit(77)

import samples


def trained_ranks():
    """{token: rank} of a BPE: the bytes, then the merges in their order."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(samples.training_texts(), trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet,
                                                                                show_progress=False))
    others = sorted(set(range(256)) - {ord(letter) for letter in alphabet if ord(letter) < 256})
    byte_of = {letter: ord(letter) if ord(letter) < 256 else others[ord(letter) - 256] for letter in alphabet}
    tokens = [bytes([byte]) for byte in range(256)]
    for left, right in json.loads(tokenizer.to_str())["model"]["merges"]:
        tokens.append(bytes(byte_of[letter] for letter in left + right))
    return {token: rank for rank, token in enumerate(dict.fromkeys(tokens))}


def special_tokens(first):
    """The special tokens of Llama 3, as its code numbers them."""
    names = ["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(4)]
    names += ["<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"]
    names += [f"<|reserved_special_token_{i}|>" for i in range(5, 256 - 5)]
    return {name: first + i for i, name in enumerate(names)}


class Tiktoken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.ranks = trained_ranks()
        cls.lines = [base64.b64encode(token).decode() + f" {rank}\n" for token, rank in cls.ranks.items()]
        cls.path = cls.folder / "tokenizer.model"
        cls.path.write_text("".join(cls.lines))
        cls.specials = special_tokens(len(cls.ranks))
        cls.encoding = tiktoken.Encoding("test", pat_str=samples.PATTERNS["llama3"], mergeable_ranks=cls.ranks,
                                         special_tokens=cls.specials)

    def info(self, *arguments):
        done = subprocess.run([samples.DRIVER, "info", *arguments], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else (done.returncode, done.stderr)

    def test_ids_and_texts(self):
        texts = samples.SENTENCES + ["<|begin_of_text|>a<|eot_id|>", "x" * 30_000]
        texts += samples.random_texts(100_000 if samples.LONG else 20_000, seed=9)
        ids = samples.encode(self.path, texts)
        for text, ours in zip(texts, ids):
            self.assertEqual(ours, self.encoding.encode_ordinary(text), repr(text[:200]))
        self.assertEqual(samples.decode(self.folder, ids), texts)
        self.assertEqual(samples.decode(self.path, [[ids[0][0], self.specials["<|eot_id|>"], ids[0][1]]]),
                         [self.encoding.decode(ids[0][:2])])

    def test_special_tokens(self):
        info = self.info(self.folder)
        self.assertEqual(info["vocab_size"], self.encoding.n_vocab)
        self.assertEqual(info["prefix"], [self.specials["<|begin_of_text|>"]])
        self.assertEqual(info["end_of_text"], self.specials["<|end_of_text|>"])
        for name, expected in self.specials.items():
            if name.startswith("<|e") or name[-4:-2] in ("_0", "_4", "_5", "50"):
                self.assertEqual(self.info(self.path, name)["end_of_text"], expected)

    def test_refused(self):
        def refused(reason, lines, name="tokenizer.model"):
            path = self.folder / "bad" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(lines))
            code, message = self.info(path)
            self.assertEqual(code, 2)
            self.assertIn(reason, message)
        refused("only Llama 3's file is known", self.lines, "cl100k_base.tiktoken")
        refused("tokenizer.model:3: the rank is 3, but", self.lines[:2] + self.lines[3:])
        refused("tokenizer.model:2: ", [self.lines[0], "!!!! 1\n"] + self.lines[2:])
        refused("has no token for the byte 0xff", self.lines[:255])
        refused("tokenizer.model:301: the token \"a\" occurs twice", self.lines[:300] + ["YQ== 300\n"])


if __name__ == "__main__":
    unittest.main()
