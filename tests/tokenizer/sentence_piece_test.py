"""SentencePiece models: our ids and texts beside those of the package `sentencepiece`.

Where two ways to cut a text into the pieces of a unigram model have the same score, as in runs of one character, the ids
depend on the library's version: 0.1.97, which Debian 12 has, to 0.2.1 keep the sum of scores in float and compare it with a
sum in double, so rounding decides; 0.2.2 and newer compare floats and keep the cut with the longer last piece. BPE_IDS pins
the ids of published BPE models, which do not depend on the version.
"""
import hashlib
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import sentencepiece
except ImportError as missing:
    print(f"skipped: {missing}; `jobs/setup.sh --tests` installs the packages that this compares with")
    sys.exit(77)

import samples


# SHA-256 of json.dumps of the ids of samples.SENTENCES + samples.random_texts(2000, seed=10), by model of the package
# mistral_common. The packages sentencepiece 0.2.0 and 0.2.3 made the same ones.
BPE_IDS = {"tokenizer.model.v1": "a03a6cf0511be8100215f39ddb042baaf5a9e7743cf256dec4684f1ef7a8554b",
           "mistral_instruct_tokenizer_240323.model.v3": "bdd295ae24ef76a197172b89e94869d337bd1cfcde0a9d34c731347379261137"}


class SentencePiece(unittest.TestCase):
    def test_ids_of_published_models(self):
        spec = importlib.util.find_spec("mistral_common")
        if spec is None:
            self.skipTest("the package mistral_common is not installed")
        texts = samples.SENTENCES + samples.random_texts(2000, seed=10)
        for name, expected in BPE_IDS.items():
            ids = samples.encode(pathlib.Path(spec.submodule_search_locations[0]) / "data" / name, texts)
            self.assertEqual(hashlib.sha256(json.dumps(ids).encode()).hexdigest(), expected, name)

    def train(self, folder, **options):
        """A model that is trained on a few texts, as Llama 2's (bpe) and T5's (unigram) were."""
        path = folder / "tokenizer.model"
        lines = [line for text in samples.training_texts() for line in text.split("\n") if line.strip() and "\0" not in line]
        with path.open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file, vocab_size=1200,
                                                     character_coverage=0.98, minloglevel=2, num_threads=1, **options)
        return path

    def test_ids_and_texts(self):
        texts = [text for text in samples.SENTENCES if len(text) < 3000]
        texts += samples.random_texts(20_000 if samples.LONG else 2_000, seed=10)
        malformed = samples.malformed_texts(100, seed=11)
        for options in ({"model_type": "bpe", "byte_fallback": True, "split_digits": True, "normalization_rule_name": "identity",
                         "add_dummy_prefix": True, "remove_extra_whitespaces": False}, {"model_type": "unigram"}):
            with tempfile.TemporaryDirectory() as name, self.subTest(options["model_type"]):
                folder = pathlib.Path(name)
                path = self.train(folder, **options)
                processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
                ids = samples.encode(folder, texts)
                for text, ours in zip(texts, ids):
                    self.assertEqual(ours, processor.encode(text), repr(text))
                self.assertEqual(samples.decode(path, ids), processor.decode(ids))
                self.assertEqual(samples.encode(path, malformed), processor.encode([text.decode(errors="replace") for text in malformed]))
                self.check_info(path, processor)

    def test_beside_a_tokenizer_json_that_cannot_be_read(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            path = self.train(folder, model_type="unigram")
            (folder / "tokenizer.json").write_text('{"model": {"type": "Unigram"}}')

            def warnings_of(source):
                return json.loads(subprocess.run([samples.DRIVER, "info", source], capture_output=True, check=True).stdout)["warnings"]
            self.assertEqual(len(warnings_of(path)), 1)
            self.assertIn("0.2.2 and newer", warnings_of(path)[0])
            both = warnings_of(folder)
            self.assertEqual(len(both), 2)
            self.assertIn("tokenizer.model is the tokenizer, because", both[0])
            self.assertIn('"model.type" is "Unigram"; only BPE is supported', both[0])
            done = subprocess.run([samples.DRIVER, "info", folder / "tokenizer.json"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("tokenizer.model beside it", done.stderr)
            path.write_bytes(b"neither")
            done = subprocess.run([samples.DRIVER, "info", folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            for part in ("only BPE is supported", "tokenizer.model is not a tokenizer"):
                self.assertIn(part, done.stderr)

    def check_info(self, path, processor):
        def info(*arguments):
            return json.loads(subprocess.run([samples.DRIVER, "info", path, *arguments], capture_output=True, check=True).stdout)
        printed = info()
        self.assertEqual((printed["vocab_size"], printed["prefix"], printed["suffix"]), (processor.vocab_size(), [], []))
        self.assertEqual((printed["begin_of_text"], printed["end_of_text"]), (processor.bos_id(), processor.eos_id()))
        self.assertEqual(info("<unk>")["end_of_text"], processor.unk_id())
        path.with_name("tokenizer_config.json").write_text('{"add_bos_token": true, "bos_token": "<s>", "eos_token": {"content": "</s>"}}')
        self.assertEqual(info()["prefix"], [processor.bos_id()])

    def test_refused(self):
        with tempfile.TemporaryDirectory() as name:
            for content, reason in ((b"\n\x05ab", "SentencePiece says"), (b"hello", "is not a tokenizer"), (b"", "is not a tokenizer")):
                path = pathlib.Path(name) / "tokenizer.model"
                path.write_bytes(content)
                done = subprocess.run([samples.DRIVER, "info", path], capture_output=True, text=True)
                self.assertEqual(done.returncode, 2)
                self.assertIn(reason, done.stderr)


if __name__ == "__main__":
    unittest.main()
