"""tokenizer.json files: our ids and texts beside those of the package `tokenizers`."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                            trainers)
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs the packages that this compares with")
    sys.exit(77)

import samples


def trained(name, pattern, normalizer=None, specials=("<|endoftext|>",), **options):
    """A tokenizer with the stages of a published one, trained on a few texts."""
    tokenizer = Tokenizer(models.BPE(**options))
    if pattern is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        patterns = [pattern] if isinstance(pattern, str) else pattern
        splits = [pre_tokenizers.Split(Regex(each), "isolated") for each in patterns]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(samples.training_texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(special, special=True) for special in specials])
    return tokenizer


class TokenizerJson(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.texts = samples.SENTENCES + ["\n".join(samples.SENTENCES)]
        cls.random = samples.random_texts(300_000 if samples.LONG else 30_000, seed=1)

    def save(self, tokenizer, name="tokenizer.json", edit=None):
        path = self.folder / name
        tokenizer.save(str(path))
        if edit:
            content = json.loads(path.read_text())
            edit(content)
            path.write_text(json.dumps(content))
        return path

    def compare(self, path, texts):
        """Ids and decoded texts of both, of the file as it is."""
        tokenizer = Tokenizer.from_file(str(path))
        expected = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        ids = samples.encode(path, texts)
        self.assertEqual(len(ids), len(texts))
        for text, ours, theirs in zip(texts, ids, expected):
            if ours != theirs:
                self.fail(f"{text[:200]!r}: {ours[:50]} != {theirs[:50]}, "
                          f"{[tokenizer.id_to_token(i) for i in ours[:50]]} != {[tokenizer.id_to_token(i) for i in theirs[:50]]}")
        for text, ours, theirs in zip(texts, samples.decode(path, ids), tokenizer.decode_batch(ids)):
            self.assertEqual(ours, theirs, repr(text[:200]))
        return ids

    def test_gpt2(self):
        path = self.save(trained("gpt2", None), edit=lambda content: content["model"].pop("type"))
        ids = self.compare(path, self.texts + self.random)
        self.assertEqual(samples.decode(path, ids), self.texts + self.random)
        malformed = samples.malformed_texts(len(self.random) // 10, seed=2)
        self.assertEqual(samples.encode(path, malformed),
                         samples.encode(path, [text.decode(errors="replace") for text in malformed]))

    def test_llama3(self):
        tokenizer = trained("llama3", samples.PATTERNS["llama3"], ignore_merges=True,
                            specials=["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
        begin = tokenizer.token_to_id("<|begin_of_text|>")
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", begin)])])
        path = self.save(tokenizer)
        specials = ["a<|begin_of_text|> b<|eot_id|><|eot_id|>  <|end_of_text|", "<<|eot_id|>>"]
        self.compare(path, self.texts + specials + self.random)
        info = json.loads(subprocess.run([samples.DRIVER, "info", path], capture_output=True, check=True).stdout)
        self.assertEqual((info["prefix"], info["suffix"], info["vocab_size"]), ([begin], [], tokenizer.get_vocab_size()))
        self.assertEqual(tokenizer.encode("a").ids, info["prefix"] + samples.encode(path, ["a"])[0])

    def test_qwen2(self):
        path = self.save(trained("qwen2", samples.PATTERNS["qwen2"], normalizers.NFC(),
                                 specials=["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
        self.compare(path, self.texts + ["<|im_start|>user\nÅ<|im_end|>\n"] + self.random)

    def test_other_patterns(self):
        for name, pattern in (("gpt4o", samples.PATTERNS["gpt4o"]),
                              ("deepseek", [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", samples.PATTERNS["punctuation"]])):
            with self.subTest(name):
                self.compare(self.save(trained(name, pattern)), self.texts + self.random[:10_000])


if __name__ == "__main__":
    unittest.main()
