"""SentencePiece models: our ids and texts beside those of the package `sentencepiece`."""
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


class SentencePiece(unittest.TestCase):
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
