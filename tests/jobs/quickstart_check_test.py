"""The quick start's check of its models: it passes what training explains, and nothing else."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

JOBS = pathlib.Path(os.environ["ARGOSY_SOURCE"]) / "jobs"
UNTRAINED, BIGRAM, TRAINED = 0.525, 0.56, 0.995  # accuracies that a run of the quick start had


class QuickstartCheck(unittest.TestCase):
    def check(self, untrained=UNTRAINED, bigram=BIGRAM, trained=TRAINED, loss=0.9, words=(0, 0.02, 0.6)):
        with tempfile.TemporaryDirectory() as folder:
            files = {name: pathlib.Path(folder) / name for name in ("metrics", "entropy", "untrained", "bigram", "trained")}
            files["metrics"].write_text("".join(json.dumps({"loss": loss}) + "\n" for _ in range(12)))
            files["entropy"].write_text(json.dumps({"bigram_entropy": 2.0}))
            for name, accuracy, word in zip(("untrained", "bigram", "trained"), (untrained, bigram, trained), words):
                results = {"agreement": {"acc,none": accuracy, "acc_stderr,none": 0.025},
                           "last_word": {"acc,none": word, "acc_stderr,none": 0.03 * (word > 0), "perplexity,none": 12.5}}
                files[name].write_text(json.dumps({"results": results}))
            return subprocess.run([sys.executable, JOBS / "python/quickstart_check.py", *files.values()], capture_output=True, text=True)

    def expect_failure(self, part, **values):
        done = self.check(**values)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("quickstart: FAILED: ", done.stderr)
        self.assertIn(part, done.stderr)

    def test_a_trained_model_passes(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| trained   |      0.995 +- 0.025 |    0.600 +- 0.030 |", done.stdout)
        self.assertEqual(done.stdout.count("\n"), 6, "a table of three models, and that it passed")

    def test_an_untrained_model_fails_as_the_trained_one(self):
        self.expect_failure("did not learn which form", trained=UNTRAINED)

    def test_a_trained_model_fails_as_the_untrained_one(self):
        self.expect_failure("standard errors away", untrained=TRAINED)

    def test_a_task_that_pairs_of_tokens_solve_fails(self):
        self.expect_failure("half of the trained model's gain", bigram=0.76)
        self.expect_failure("half of the trained model's gain", trained=0.72, bigram=0.62)

    def test_last_words(self):
        self.expect_failure("did not learn which word ends a story", words=(0, 0, 0.19))
        self.expect_failure("last_word measures something else", words=(0.1, 0, 0.6))
        self.expect_failure("half of the trained model's gain over chance in last_word", words=(0, 0.31, 0.6))

    def test_loss(self):
        self.expect_failure("no more than pairs", loss=2.0)
        self.expect_failure("no more than pairs", loss=float("nan"))
        self.expect_failure("no more than pairs", loss=None)  # how pretrain writes one that is not finite


class BigramModel(unittest.TestCase):
    """The pairs of two short documents, counted by hand."""

    TOKENS = [0, 1, 0, 2, 0, 0, 2]  # "aba", the end of the text, "aa", and again

    def make(self, num_tokens):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        (folder / "corpus.jsonl").write_text('{"text": "aba"}\n{"text": "aa"}\n')
        (folder / "counts.json").write_text(json.dumps({"tokens": num_tokens, "vocab_size": 8}))
        (folder / "tokenizer").mkdir()
        tokenizer = {"model": {"vocab": {"a": 0, "b": 1}, "merges": []}, "added_tokens": [{"id": 2}]}
        (folder / "tokenizer/tokenizer.json").write_text(json.dumps(tokenizer))
        words = [folder / name for name in ("corpus.jsonl", "tokenizer", "counts.json", "model")]
        return subprocess.run([sys.executable, JOBS / "python/bigram_model.py", *words], capture_output=True, text=True)

    def test_entropy_of_the_corpus(self):
        pairs = list(zip(self.TOKENS, self.TOKENS[1:]))  # none is before the first token
        firsts = self.TOKENS[:-1]
        entropy = sum(math.log(firsts.count(one) / pairs.count((one, two))) for one, two in pairs) / len(pairs)
        done = self.make(len(self.TOKENS))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertAlmostEqual(json.loads(done.stdout)["bigram_entropy"], entropy, places=12)
        done = self.make(len(self.TOKENS) + 1)
        self.assertEqual(done.returncode, 1, "3 is the exit code of quickstart_check.py")
        self.assertIn("bigram_model: the corpus has 7 tokens, not 8", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
