"""tokenizer.json files: our ids and texts beside those of the package `tokenizers`."""
import functools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import unittest

try:
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                            trainers)
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs the packages that this compares with")
    sys.exit(77)

import samples


@functools.cache
def training(patterns, is_nfc):
    """tokenizer.json with the stages of a published one, trained on a few texts. Without patterns: GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    if patterns is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        splits = [pre_tokenizers.Split(Regex(each), "isolated") for each in patterns]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if is_nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(samples.training_texts(), trainer)
    return tokenizer.to_str()


def trained(patterns=None, is_nfc=False, specials=("<|endoftext|>",), ignore_merges=False):
    content = json.loads(training(patterns, is_nfc))
    content["model"]["ignore_merges"] = ignore_merges
    if ignore_merges:  # without some merges, only whole pieces become their tokens
        content["model"]["merges"] = [merge for number, merge in enumerate(content["model"]["merges"]) if number % 3]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.add_special_tokens([AddedToken(special, special=True) for special in specials])
    return tokenizer


TEXT = {"Sequence": {"id": "A", "type_id": 0}}
END = {"SpecialToken": {"id": "end", "type_id": 0}}


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
        path = self.save(trained(), edit=lambda content: content["model"].pop("type"))
        ids = self.compare(path, self.texts + self.random)
        self.assertEqual(samples.decode(path, ids), self.texts + self.random)
        malformed = samples.malformed_texts(len(self.random) // 10, seed=2)
        self.assertEqual(samples.encode(path, malformed),
                         samples.encode(path, [text.decode(errors="replace") for text in malformed]))

    def test_llama3(self):
        tokenizer = trained((samples.PATTERNS["llama3"],), ignore_merges=True,
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
        path = self.save(trained((samples.PATTERNS["qwen2"],), is_nfc=True,
                                 specials=["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
        self.compare(path, self.texts + ["<|im_start|>user\nÅ<|im_end|>\n"] + self.random)

    def test_other_patterns(self):
        deepseek = (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", samples.PATTERNS["punctuation"])
        for patterns in ((samples.PATTERNS["gpt4o"],), deepseek):
            self.compare(self.save(trained(patterns)), self.texts + self.random[:10_000])

    def test_added_tokens(self):
        tokenizer = trained(is_nfc=True)
        tokenizer.add_tokens([AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True), AddedToken("<lr>", lstrip=True, rstrip=True),
                              AddedToken("word", single_word=True), AddedToken("wordy", single_word=True, normalized=False),
                              AddedToken("Å", normalized=True), AddedToken("e\u0301", normalized=True), AddedToken("u\u0308", normalized=False),
                              AddedToken("<", normalized=False), AddedToken("<|", normalized=True), AddedToken("  ", normalized=False),
                              AddedToken("\n", special=True, rstrip=True), AddedToken(" é ", normalized=True), AddedToken("é", special=True)])
        pieces = ["<l>", "<r>", "<lr>", "word", "wordy", "Å", "A\u030a", "Å", "é", "e\u0301", "ü", "u\u0308", "<", "<|", "<|endoftext|>", " ", "  ", "\n", "\u3000",
                  "\u0085", "\u180e", "\u200d", "a", "_", "-", "ÿ", "\u0301", "½", "ⓐ", "l>", "字"]
        draw = random.Random(8)
        texts = ["".join(draw.choices(pieces, k=draw.randint(1, 12))) for _ in range(20_000)]
        path = self.save(tokenizer)
        self.compare(path, texts + samples.SENTENCES + pieces)

    def test_added_tokens_that_meet(self):
        """In white space that two tokens include, and in NFC."""
        tokenizer = trained(is_nfc=True)
        tokenizer.add_tokens([AddedToken("é", single_word=True, normalized=True)])
        tokenizer.add_special_tokens([AddedToken("word", rstrip=True), AddedToken("  ", lstrip=True), AddedToken("e\u0301", normalized=True)])
        texts = ["x word  y", "x word y", "x  word  word word", "   word", "word  ", "aéb", "ae\u0301b", "é e\u0301"]
        self.compare(self.save(tokenizer), texts)

    def test_splits(self):
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=True)
        for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
            for invert in (False, True):
                for pattern in (Regex(r"\d|[aeiou]"), "a", " ", "(.*)"):
                    tokenizer = trained()
                    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, behavior, invert), byte_level])
                    self.compare(self.save(tokenizer), samples.SENTENCES[:30] + self.random[:300])
        for individual in (False, True):
            tokenizer = trained()
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual), byte_level])
            tokenizer.post_processor = processors.TemplateProcessing(single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))])
            self.compare(self.save(tokenizer), samples.SENTENCES + self.random[:3000])
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
        self.compare(self.save(tokenizer), samples.SENTENCES + self.random[:3000])

    def test_merges_in_both_spellings(self):
        tokenizer = trained()

        def spell(content):
            content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
            content["model"].update(continuing_subword_prefix="", end_of_word_suffix="", unk_token="<|endoftext|>")
        self.compare(self.save(tokenizer, edit=spell), self.texts)

    def test_long_pieces(self):
        path = self.save(trained((samples.PATTERNS["llama3"],)))
        begin = time.monotonic()
        texts = ["x" * 1_000_000, "ab" * 500_000, " " * 1_000_000, "\U0001f600" * 250_000]
        ids = samples.encode(path, texts)
        self.assertEqual(samples.decode(path, ids), texts)
        self.assertLess(time.monotonic() - begin, 10)
        draw = random.Random(13)
        words = "".join(letter for text in samples.training_texts() for letter in text if letter.isalpha())
        random_pieces = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(40, 3000))) for _ in range(50)]
        random_pieces += [words[begin:begin + draw.randint(40, 3000)] for begin in range(0, 100_000, 2_000)]
        self.compare(path, [text[:100_000] for text in texts] + random_pieces)

    def test_config_beside_the_file(self):
        tokenizer = trained(specials=["<s>", "</s>", "<|endoftext|>"])
        path = self.save(tokenizer)
        config = self.folder / "tokenizer_config.json"
        self.addCleanup(config.unlink)
        for eos in ("</s>", {"__type": "AddedToken", "content": "</s>", "lstrip": False}):
            config.write_text(json.dumps({"eos_token": eos, "bos_token": "<s>", "model_max_length": 1e30}))
            for source in (path, self.folder):
                info = json.loads(subprocess.run([samples.DRIVER, "info", source], capture_output=True, check=True).stdout)
                self.assertEqual(info["end_of_text"], tokenizer.token_to_id("</s>"))
                self.assertEqual(info["begin_of_text"], tokenizer.token_to_id("<s>"))
        self.assertEqual(info["name"], "tokenizer.json")
        self.assertRegex(info["digest"], "^[0-9a-f]{32}$")
        done = subprocess.run([samples.DRIVER, "info", path, "<|endoftext|>"], capture_output=True, check=True)
        self.assertEqual(json.loads(done.stdout)["end_of_text"], tokenizer.token_to_id("<|endoftext|>"))
        done = subprocess.run([samples.DRIVER, "info", path, "<none>"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn('has no token "<none>"', done.stderr)

    def test_refused(self):
        tokenizer = trained()

        def refused(reason, edit):
            path = self.save(tokenizer, edit=edit)
            done = subprocess.run([samples.DRIVER, "info", path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(f"tokenizer.json{reason if reason.startswith(' has no') else ': ' + reason}", done.stderr)

        def setting(*keys, value):
            def edit(content):
                for key in keys[:-1]:
                    content = content[key]
                content[keys[-1]] = value
            return edit

        def processing(single):
            return {"type": "TemplateProcessing", "single": single, "pair": [],
                    "special_tokens": {"end": {"id": "end", "ids": [5], "tokens": ["end"]}}}

        def template(single):
            return setting("post_processor", value=processing(single))

        def without_byte(content):
            vocab = content["model"]["vocab"]
            vocab["zz"] = vocab.pop("a")
            content["model"]["merges"] = []
        for reason, edit in (
                ('"model.type" is "WordPiece"', setting("model", "type", value="WordPiece")), ('"model.dropout" must be null', setting("model", "dropout", value=0.1)),
                ('"model.end_of_word_suffix" must', setting("model", "end_of_word_suffix", value="</w>")), ('"model.extra" is a key', setting("model", "extra", value=1)),
                ('"extra" is a key', setting("extra", value=1)), ('"truncation" must be null', setting("truncation", value={"max_length": 5})),
                ('"normalizer.type" is "NFKC"', setting("normalizer", value={"type": "NFKC"})), (' has no "pre_tokenizer.type"', setting("pre_tokenizer", value=None)),
                ('"pre_tokenizer" must end with ByteLevel', setting("pre_tokenizer", value={"type": "Whitespace"})),
                ('"decoder.type" is "WordPiece"', setting("decoder", value={"type": "WordPiece"})), ('"post_processor.type" is "BertProcessing"', setting("post_processor", value={"type": "BertProcessing"})),
                ('"model.merges[0]" needs the token', setting("model", "merges", 0, value="zq qz")), ('"model.merges[1]" is', setting("model", "merges", 1, value="a b c")),
                ('"model.vocab" gives', setting("model", "vocab", "a", value=5_000_000)), ('"model.vocab" gives', setting("model", "vocab", "a", value=7)),
                ('"model.vocab"', setting("model", "vocab", "a", value=-1)), ('"model.vocab" has no token for the byte 0x61', without_byte),
                ('"added_tokens[0].id" is 4', setting("added_tokens", 0, "id", value=4)), ('"added_tokens[0].content" is empty', setting("added_tokens", 0, "content", value="")),
                ('"version" is "2.0"', setting("version", value="2.0")), ('"model.unk_token" is 7', setting("model", "unk_token", value=7)),
                ('"model.byte_fallback" is "yes"', setting("model", "byte_fallback", value="yes")),
                ('"decoder.trim_offsets" is 1', setting("decoder", "trim_offsets", value=1)), ('"decoder" is missing', setting("decoder", value=None)),
                ('"pre_tokenizer.pretokenizers[0].pattern" must have one of the keys Regex, String', setting("pre_tokenizer", value={
                    "type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "a", "String": "b"},
                                                           "behavior": "Isolated"}, {"type": "ByteLevel"}]})),
                ('"post_processor.single[0]" must have one of the keys', template([{**TEXT, **END}])),
                ('"post_processor.single[0].Sequence.id" must be "A"', template([{"Sequence": {"id": "B", "type_id": 0}}])),
                ('"post_processor.single[0].SpecialToken.id" names a token that', template([{"SpecialToken": {"id": "no"}}, TEXT])),
                ('"post_processor.single" must hold the text once', template([END])),
                ('"post_processor.processors[1]" is a second template', lambda content: content.update(post_processor={
                    "type": "Sequence", "processors": [processing([TEXT, END]), processing([END, TEXT])]})),
                ('"pre_tokenizer.pretokenizers[0].pattern": the pattern', setting("pre_tokenizer", value={"type": "Sequence", "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": "(?<=a)b"}, "behavior": "Isolated", "invert": False}, {"type": "ByteLevel"}]}))):
            with self.subTest(reason):
                refused(reason, edit)


if __name__ == "__main__":
    unittest.main()
