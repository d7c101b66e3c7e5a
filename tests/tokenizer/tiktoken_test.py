"""Published tiktoken files and Mistral's tekken.json: our ids and texts beside those of the package `tiktoken` and of Meta's code.

The files come from the packages that ship them. cl100k_base and o200k_base are in none; they are tested if the folder
TIKTOKEN_CACHE_DIR has them, as tiktoken stores them. Their patterns and special tokens are also those of Llama 3 and 4 or in
the table alone.
"""
import base64
import hashlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unicodedata
import unittest

try:
    import tiktoken
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs the packages that this compares with")
    sys.exit(77)

import samples

# The file, its SHA-256 as it is published, its pattern, the ids of <begin of text> and <end of text>, the vocabulary.
KNOWN = {
    "Llama 3": ("llama_models/llama3/tokenizer.model", "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
                "llama3", 128000, 128001, 128256),
    "Llama 4": ("llama_models/llama4/tokenizer.model", "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed",
                "gpt4o", 200000, 200001, 202048),
    "Qwen": ("dashscope/resources/qwen.tiktoken", "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
             "qwen2", None, 151643, 151851),
    "gpt2": ("mlx_whisper/assets/gpt2.tiktoken", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
             "gpt2", None, 50256, 50257),
    "cl100k_base": ("9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
                    "llama3", None, 100257, 100277),
    "o200k_base": ("fb374d419588a4632f3f557e76b4b70aebbca790", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
                   "gpt4o", None, 199999, 200019),
}


SPECIALS = {"Llama 3": ["<|eot_id|>", "<|eom_id|>", "<|end_header_id|>"],
            "Llama 4": ["<|eot|>", "<|vision_reserved_special_token_1047|>", "<|reasoning_thinking_end|>", "<|reserved_special_token_903|>"]}


def shipped(path):
    """A file of an installed package, or of tiktoken's cache; None if it is not there."""
    package, slash, rest = path.partition("/")
    spec = importlib.util.find_spec(package) if slash else None
    folder = pathlib.Path(spec.submodule_search_locations[0]) if spec else pathlib.Path(os.environ.get("TIKTOKEN_CACHE_DIR", "/none"))
    file = folder / (rest if slash else path)
    return file if file.exists() and (spec or not slash) else None


def ranks_in(file):
    return {base64.b64decode(token): int(rank) for token, rank in map(str.split, file.read_text().splitlines())}


def info(*arguments):
    done = subprocess.run([samples.DRIVER, "info", *map(str, arguments)], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else (done.returncode, done.stderr)


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


# Runs around the limits at which Meta's code divides a text: 25,000 characters of one kind, 400,000 of all.
LONG_RUNS = ["x" * 25_000, "x" * 25_001 + " ", " " * 30_000 + "a", "\u00e9" * 25_001, "ab\x1c\n " * 81_000, "\u3000" * 25_002]


class Tiktoken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.texts = samples.SENTENCES + LONG_RUNS + ["<|begin_of_text|>a<|eot_id|><|endoftext|>"]
        cls.texts += samples.random_texts(50_000 if samples.LONG else 2_000, seed=9)

    def check_ids(self, path, encode):
        ids = samples.encode(path, self.texts)
        for text, ours in zip(self.texts, ids):
            self.assertEqual(ours, encode(text), repr(text[:200]))
        return ids

    def test_known_files(self):
        found = 0
        for name, (path, sha256, pattern, begin, end, vocab_size) in KNOWN.items():
            file = shipped(path)
            if file is None:
                continue
            found += 1
            with self.subTest(name):
                self.assertEqual(hashlib.sha256(file.read_bytes()).hexdigest(), sha256)
                encoding = tiktoken.Encoding(name, pat_str=samples.PATTERNS[pattern], mergeable_ranks=ranks_in(file), special_tokens={})
                expected = self.meta(name) or (lambda text: encoding.encode_ordinary(unicodedata.normalize("NFC", text) if name == "Qwen" else text))
                renamed = self.folder / "some.name"  # the bytes alone say what it is; a copy by Windows is the same file
                renamed.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
                ids = self.check_ids(renamed, expected)
                said = info(file)
                self.assertEqual((said["vocab_size"], said["begin_of_text"], said["end_of_text"]), (vocab_size, begin, end))
                self.assertEqual((said["prefix"], said["suffix"]), ([begin] if begin else [], []))
                if name != "Qwen":
                    self.assertEqual(samples.decode(file, [ids[0] + [end] + ids[1]]), [self.texts[0] + self.texts[1]])
        if not found:
            self.skipTest("no package with a published file is installed")

    def meta(self, name):
        """The encoder of Meta's own code."""
        if not name.startswith("Llama"):
            return None
        module = importlib.import_module(f"llama_models.llama{name[-1]}.tokenizer")
        tokenizer = module.Tokenizer.get_instance()
        for token in SPECIALS[name]:
            self.assertEqual(info(shipped(KNOWN[name][0]), token)["end_of_text"], tokenizer.special_tokens[token], token)
        return lambda text: tokenizer.encode(text, bos=False, eos=False)

    def test_tekken(self):
        for name in ("tekken_240718.json", "tekken_240911.json"):
            file = shipped(f"mistral_common/data/{name}")
            if file is None:
                self.skipTest("the package mistral_common is not installed")
            content = json.loads(file.read_text())
            config = content["config"]
            before = config["default_num_special_tokens"]
            ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in content["vocab"][:config["default_vocab_size"] - before]}
            encoding = tiktoken.Encoding(name, pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
            ids = self.check_ids(file, lambda text: [before + rank for rank in encoding.encode_ordinary(text)])
            self.assertEqual(samples.decode(file, [[1] + ids[0] + [2]]), [self.texts[0]])
            said = info(file)
            self.assertEqual((said["vocab_size"], said["prefix"], said["end_of_text"]), (config["default_vocab_size"], [1], 2))

    def test_refused(self):
        lines = [base64.b64encode(token).decode() + f" {rank}\n" for token, rank in trained_ranks().items()]

        def refused(reason, content, name="tokenizer.model"):
            path = self.folder / "bad" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(content))
            code, message = info(path)
            self.assertEqual(code, 2)
            self.assertIn(reason, message)
        refused(f"is a tiktoken file of {len(lines)} tokens. Such a file does not say its pattern", lines)
        refused("AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)", lines, "llama3.tiktoken")
        made_up = [base64.b64encode(f"{rank}".encode()).decode() + f" {rank}\n" for rank in range(50256)]
        refused("of 50256 tokens, as gpt2 has, but its bytes differ", made_up)
        refused("tokenizer.model:3: the rank is 3, but", lines[:2] + lines[3:])
        refused("tokenizer.model:2: ", [lines[0], "!!!! 1\n"] + lines[2:])
        tokens = [base64.b64encode(bytes([byte])).decode() for byte in range(256)]

        def tekken(entries, specials=1000, size=1256):
            return json.dumps({"config": {"pattern": "a", "default_vocab_size": size, "default_num_special_tokens": specials},
                               "vocab": [{"rank": rank, "token_bytes": token} for rank, token in enumerate(entries)]})
        refused('"vocab" has 255 tokens, but config says 256', tekken(tokens[:255]), "tekken.json")
        refused("has no token for the byte 0xff", tekken(tokens[:255], size=1255), "tekken.json")
        refused('"vocab[1].token_bytes" is not base 64', tekken(["AA==", "!"] + tokens[2:]), "tekken.json")
        refused('the token "\\u0000" occurs twice', tekken(["AA==", "AA=="] + tokens[2:]), "tekken.json")
        refused('"config" says a vocabulary of 256 tokens with 1000 special ones', tekken(tokens, size=256), "tekken.json")


if __name__ == "__main__":
    unittest.main()
